//! Waits for the end of a task.
//!
//! Polls the state of the task with growing pauses. A reconfiguration takes a second or two, so polling needs fewer
//! calls than setting up and removing a property filter.
//!
//! Bound: the caller's time limit. A task outlives the session that started it, so the end of the session does not
//! matter.

use std::time::Duration;

use tokio::time::sleep;

use super::connection::Connection;
use crate::ManagedObject;
use crate::error::VsphereError;
use crate::{property, soap};

const METHOD: &str = "ReconfigureComputeResource_Task";
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// Returns when the task has succeeded, or failed with its fault.
pub(super) async fn finish(connection: &Connection, task: &ManagedObject) -> Result<(), VsphereError> {
    let mut pause = FIRST_PAUSE;
    loop {
        let found = connection
            .in_session(|client| Box::pin(async move { property::read(&client, task, &["info"]).await }))
            .await?;
        let info = found.into_iter().find_map(|change| change.value);
        let state = info.as_ref().and_then(|info| info.text_at("state"));
        match state {
            Some("success") => return Ok(()),
            Some("error") => {
                let error = info.as_ref().and_then(|info| info.child("error"));
                let fault = error.map_or_else(|| soap::unnamed_fault("the task failed"), soap::localized_fault);
                return Err(VsphereError::from_fault(METHOD, fault));
            }
            _ => (),
        }
        sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}
