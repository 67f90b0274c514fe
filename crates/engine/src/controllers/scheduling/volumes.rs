//! The executor of VolumeBinding: it writes what the plugin decided and waits until the volumes are bound.
//!
//! In: the volumes to bind and the claims to provision. Out: done when the watch shows all of them bound; or why they
//! will not be. The world is checked when the watch reports a change, not in intervals.
//!
//! Invariants: no lock on the world is held while waiting. What was written stays written, also after a failure: the
//! next attempt finds it in the world.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use model::{Subject, WorldChange};
use scheduler::plugins::{VolumeWork, WaitingFor, WrittenVersions};
use tokio::sync::watch;

use super::work::{Executes, WorkEnd, WorkError};
use crate::ports::{PodName, PortError, VolumeBinder};
use crate::runtime::SharedWorld;

/// No order takes longer, whatever the configuration says.
const WITHIN: Duration = Duration::from_secs(24 * 3600);

/// Tells waiting executors that a change may have bound their volumes, or may have ended the wait.
#[derive(Clone, Debug, Default)]
pub struct VolumeChanges(Arc<watch::Sender<()>>);

impl VolumeChanges {
    pub(super) fn observe(&self, change: &WorldChange) {
        let matters = match &change.subject {
            Subject::Volume { .. } | Subject::RelistEnded { .. } => true,
            Subject::Node { after, .. } => after.is_none(),
            Subject::Pod { after, .. } => after.is_none(),
            _ => false,
        };
        if matters {
            self.0.send_replace(());
        }
    }
}

pub struct VolumeExecutor {
    binder: Arc<dyn VolumeBinder>,
    world: SharedWorld,
    changes: VolumeChanges,
}

impl VolumeExecutor {
    #[must_use]
    pub fn new(binder: Arc<dyn VolumeBinder>, world: SharedWorld, changes: VolumeChanges) -> VolumeExecutor {
        VolumeExecutor { binder, world, changes }
    }

    async fn bind(&self, pod: &PodName, node: &str, work: &VolumeWork) -> Result<WorkEnd, WorkError> {
        let written = self.write(node, work).await.map_err(|error| WorkError::Failed(error.to_string()))?;
        let waiting = WaitingFor { namespace: &pod.namespace, pod: &pod.name, uid: &pod.uid, node };
        let bound = tokio::time::timeout(work.bind_within.min(WITHIN), self.bound(waiting, work, &written)).await;
        // The words of kube-scheduler, which waits with a context.
        let bound = bound.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
        bound.map_err(|error| WorkError::Failed(format!("binding volumes: {error}")))?;
        Ok(WorkEnd::Done)
    }

    async fn write(&self, node: &str, work: &VolumeWork) -> Result<WrittenVersions, PortError> {
        let mut written = WrittenVersions::default();
        for binding in &work.bindings {
            let is_written = !binding.sets_claim && !binding.sets_mark;
            written.volumes.push(match is_written {
                true => binding.version.clone(),
                false => self.binder.bind_volume(binding).await?,
            });
        }
        for provision in &work.provisions {
            written.claims.push(self.binder.select_node(provision, node).await?);
        }
        Ok(written)
    }

    /// Waits until all volumes are bound.
    async fn bound(&self, waiting: WaitingFor<'_>, work: &VolumeWork, written: &WrittenVersions) -> Result<(), String> {
        // Subscribed before the first look, so that no change is missed.
        let mut changes = self.changes.0.subscribe();
        loop {
            let is_done = work.is_done(&self.world.read(), waiting, written)?;
            if is_done {
                return Ok(());
            }
            if changes.changed().await.is_err() {
                return Err("the scheduler has ended".to_owned());
            }
        }
    }
}

impl Executes<VolumeWork> for VolumeExecutor {
    fn execute<'a>(
        &'a self,
        pod: &'a PodName,
        node: &'a str,
        work: &'a VolumeWork,
    ) -> BoxFuture<'a, Result<WorkEnd, WorkError>> {
        Box::pin(self.bind(pod, node, work))
    }

    fn within(&self) -> Duration {
        WITHIN
    }
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
