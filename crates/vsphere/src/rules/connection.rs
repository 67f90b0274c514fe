//! One shared session with a vCenter, started on first use.
//!
//! Invariants: concurrent callers share one login; a session that has ended is replaced once per call, with credentials
//! that are read again, and if the new session ends too, the caller gets the error; the session is logged out at the
//! end.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::client::Client;
use crate::config::VcenterConfig;
use crate::error::VsphereError;

/// The time limit of the logout.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Connection {
    config: VcenterConfig,
    client: Mutex<Option<Arc<Client>>>,
}

impl Connection {
    pub(super) fn new(config: VcenterConfig) -> Connection {
        Connection { config, client: Mutex::new(None) }
    }

    /// Runs `work` within the session. If the session has ended, runs it once more in a new one.
    pub(super) async fn in_session<'a, T>(
        &self,
        work: impl Fn(Arc<Client>) -> BoxFuture<'a, Result<T, VsphereError>>,
    ) -> Result<T, VsphereError> {
        let client = self.client(None).await?;
        match work(client.clone()).await {
            Err(error) if error.is_session_end() => work(self.client(Some(&client)).await?).await,
            done => done,
        }
    }

    /// The current session, unless it is the `ended` one; otherwise a new one.
    async fn client(&self, ended: Option<&Arc<Client>>) -> Result<Arc<Client>, VsphereError> {
        let mut held = self.client.lock().await;
        let usable = held.as_ref().filter(|client| !ended.is_some_and(|ended| Arc::ptr_eq(ended, client)));
        if let Some(client) = usable {
            return Ok(client.clone());
        }
        *held = None;
        let client = Arc::new(Box::pin(self.config.connect()).await?);
        *held = Some(client.clone());
        Ok(client)
    }

    pub(super) async fn close(&self) {
        let closed = timeout(CLOSE_LIMIT, async {
            match self.client.lock().await.take() {
                Some(client) => client.logout().await,
                None => Ok(()),
            }
        });
        if !matches!(closed.await, Ok(Ok(()))) {
            let vcenter = self.config.endpoint.host();
            tracing::debug!(vcenter, "logout of the session for rules failed; the session will expire");
        }
    }
}
