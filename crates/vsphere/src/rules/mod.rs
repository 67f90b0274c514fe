//! Reads and changes DRS rules and groups: the implementation of the engine's `RuleStore`.
//!
//! Input: cluster ids and changes of the engine. Output: the rules and groups of a cluster, or the completion of a
//! change.
//!
//! - `connection`: one session per vCenter, started on first use. `spec`: encodes changes for the API.
//! - `task`: waits for the end of a change. `failure`: classifies failures for the engine.
//!
//! Invariants: a call applies all changes in one reconfiguration, which names only the rules and groups of these
//! changes, so that it cannot touch a rule of another client. It is sent again only if the session had ended, never if
//! it may have been applied. Every call has a time limit; after a timeout it is unknown whether the change was applied
//! until the cluster is read again. The inventory uses the same code for reading, so that equal rules are equal facts.

mod connection;
mod failure;
mod spec;
mod task;

use std::collections::BTreeMap;
use std::time::Duration;

use engine::ports::{ClusterRules, PortError, RuleChange, RuleStore};
use futures::future::{BoxFuture, join_all};
use model::event::VcenterId;
use tokio::time::timeout;

use self::connection::Connection;
use self::failure::port_error;
use crate::ManagedObject;
use crate::config::VcenterConfig;
use crate::inventory::{CLUSTER, ClusterSettings};
use crate::property;

/// The time limit for reading, including a login if necessary.
const READ_LIMIT: Duration = Duration::from_secs(60);
/// The time limit for a change, including its task.
const CHANGE_LIMIT: Duration = Duration::from_secs(180);

/// The rules of all clusters of the given vCenters.
#[derive(Debug)]
pub struct Rules {
    connections: BTreeMap<VcenterId, Connection>,
}

impl Rules {
    /// Does not connect yet.
    #[must_use]
    pub fn new(vcenters: impl IntoIterator<Item = (VcenterId, VcenterConfig)>) -> Rules {
        Rules { connections: vcenters.into_iter().map(|(id, config)| (id, Connection::new(config))).collect() }
    }

    /// Logs out of all sessions, within a few seconds. A later call would start a new session.
    pub async fn close(&self) {
        join_all(self.connections.values().map(Connection::close)).await;
    }

    fn connection(&self, vcenter: VcenterId) -> Result<&Connection, PortError> {
        let unknown = || PortError::Permanent(format!("vCenter {} is not configured", vcenter.0));
        self.connections.get(&vcenter).ok_or_else(unknown)
    }

    async fn read_cluster(&self, vcenter: VcenterId, cluster: &ManagedObject) -> Result<ClusterRules, PortError> {
        let connection = self.connection(vcenter)?;
        let config = timeout(
            READ_LIMIT,
            connection.in_session(|client| {
                Box::pin(async move { property::read(&client, cluster, &["configurationEx"]).await })
            }),
        );
        let found = match config.await {
            Ok(found) => found.map_err(|error| port_error(cluster, error))?,
            Err(_) => return Err(late("reading", cluster, READ_LIMIT)),
        };
        // A cluster whose rules cannot be read is not a cluster without rules.
        let config = found.iter().find_map(|change| change.value.as_ref());
        let config = config.ok_or_else(|| PortError::Transient(format!("{cluster} has no configurationEx")))?;
        let ClusterSettings { rules, groups, .. } = ClusterSettings::read(config);
        Ok(ClusterRules { rules, groups })
    }

    async fn change_cluster(
        &self,
        vcenter: VcenterId,
        cluster: &ManagedObject,
        changes: &[RuleChange],
    ) -> Result<(), PortError> {
        if changes.is_empty() {
            return Ok(());
        }
        let connection = self.connection(vcenter)?;
        let done = timeout(CHANGE_LIMIT, async {
            let task = connection
                .in_session(|client| {
                    Box::pin(async move {
                        client
                            .call_for_object("ReconfigureComputeResource_Task", cluster, |body| {
                                spec::write(body, changes);
                            })
                            .await
                    })
                })
                .await?;
            task::finish(connection, &task).await
        });
        match done.await {
            Ok(done) => done.map_err(|error| port_error(cluster, error)),
            Err(_) => Err(late("changing", cluster, CHANGE_LIMIT)),
        }
    }
}

fn late(doing: &str, cluster: &ManagedObject, limit: Duration) -> PortError {
    PortError::Transient(format!("{doing} the rules of {cluster} took longer than {} s", limit.as_secs()))
}

impl RuleStore for Rules {
    fn read<'a>(&'a self, vcenter: VcenterId, cluster: &'a str) -> BoxFuture<'a, Result<ClusterRules, PortError>> {
        Box::pin(async move { self.read_cluster(vcenter, &ManagedObject::new(CLUSTER, cluster)).await })
    }

    fn change<'a>(
        &'a self,
        vcenter: VcenterId,
        cluster: &'a str,
        changes: &'a [RuleChange],
    ) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async move { self.change_cluster(vcenter, &ManagedObject::new(CLUSTER, cluster), changes).await })
    }
}
