//! Reads and changes DRS rules and groups: the engine's `RuleStore` on this side.
//!
//! Input: cluster ids and changes in the engine's words. Output: what a cluster has, or that a change is done.
//!
//! - `connection`: one session per vCenter, begun when it is first needed. `spec`: changes as the wire has them.
//! - `task`: how a change that was begun ends. `failure`: what a failure means to the engine.
//!
//! Invariants: a change is one reconfiguration, and names nothing but what the changes name, so that a rule of somebody
//! else's cannot be part of it. It is sent again only after a refusal for want of a session, never when it may have been
//! carried out. Every call has a time limit; after a time-out nobody knows whether the change was made, and reading again
//! tells. What is read is read by the same code as the inventory, so that equal rules are equal facts.

mod connection;
mod failure;
mod spec;
mod task;

use std::collections::BTreeMap;
use std::time::Duration;

use engine::ports::{Change, ClusterRules, PortError, RuleStore};
use futures::future::{BoxFuture, join_all};
use model::event::VcenterId;
use tokio::time::timeout;

use self::connection::Connection;
use self::failure::port_error;
use crate::ManagedObject;
use crate::config::VcenterConfig;
use crate::inventory::{CLUSTER, ClusterSettings};
use crate::property;

/// How long reading may take, with a login if it needs one.
const READ_LIMIT: Duration = Duration::from_secs(60);
/// How long a change may take until its task has ended.
const CHANGE_LIMIT: Duration = Duration::from_secs(180);

/// The rules of all clusters of some vCenters.
#[derive(Debug)]
pub struct Rules {
    connections: BTreeMap<VcenterId, Connection>,
}

impl Rules {
    /// Nothing is connected yet.
    #[must_use]
    pub fn new(vcenters: impl IntoIterator<Item = (VcenterId, VcenterConfig)>) -> Rules {
        Rules { connections: vcenters.into_iter().map(|(id, config)| (id, Connection::new(config))).collect() }
    }

    /// Gives all sessions back, within a few seconds. A later call would begin a new one.
    pub async fn close(&self) {
        join_all(self.connections.values().map(Connection::close)).await;
    }

    fn connection(&self, vcenter: VcenterId) -> Result<&Connection, PortError> {
        let unknown = || PortError::Permanent(format!("there is no vCenter {}", vcenter.0));
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
        // Rules that could not be seen are not the same as none.
        let config = found.iter().find_map(|change| change.value.as_ref());
        let config = config.ok_or_else(|| PortError::Transient(format!("{cluster} shows no configuration")))?;
        let ClusterSettings { rules, groups, .. } = ClusterSettings::read(config);
        Ok(ClusterRules { rules, groups })
    }

    async fn change_cluster(
        &self,
        vcenter: VcenterId,
        cluster: &ManagedObject,
        changes: &[Change],
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
        changes: &'a [Change],
    ) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async move { self.change_cluster(vcenter, &ManagedObject::new(CLUSTER, cluster), changes).await })
    }
}
