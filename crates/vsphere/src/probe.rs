//! A single check of a vCenter at the start: whether it is reachable and readable, and how large its inventory is.
//!
//! Input: a configuration. Output: the server's [`About`] and the size of its inventory, or the one error that says
//! what to fix.
//!
//! Invariants: changes nothing on the vCenter, and logs out even on failure.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::event::{ClusterFacts, Event, VcenterId};

use crate::ManagedObject;
use crate::client::{About, Client};
use crate::config::VcenterConfig;
use crate::error::{Fault, VsphereError};
use crate::inventory::{CLUSTER, HOST, PLACEMENTS, Picture, VM, WATCHED};
use crate::property::{self, ObjectUpdate, Watch};

/// The time limit for stopping a watch, and for the logout.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// The size of the inventory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InventoryCounts {
    /// By name, then by datacenter: two datacenters may have clusters with the same name.
    pub clusters: Vec<ClusterFacts>,
    pub hosts: usize,
    pub vms: usize,
    /// Clusters, hosts and VMs that the user can see but not read.
    pub unreadable: usize,
}

impl InventoryCounts {
    /// Each name once, in order, for messages.
    #[must_use]
    pub fn cluster_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        names.dedup();
        names
    }
}

/// Logs in, reads the inventory once and logs out.
pub async fn connect_once(config: &VcenterConfig) -> Result<(About, InventoryCounts), VsphereError> {
    let client = Arc::new(config.connect().await?);
    let counts = Box::pin(count(&client)).await;
    let _ = tokio::time::timeout(CLOSE_LIMIT, client.logout()).await;
    Ok((client.about().clone(), counts?))
}

async fn count(client: &Arc<Client>) -> Result<InventoryCounts, VsphereError> {
    let root = client.content().root_folder.clone();
    let mut picture = Picture::new(VcenterId(0));
    let mut refused: Option<(Fault, ManagedObject)> = None;
    let mut unreadable: BTreeSet<ManagedObject> = BTreeSet::new();
    let mut check = |update: &ObjectUpdate| {
        if let Some(fault) = refusal(update) {
            unreadable.insert(update.object.clone());
            refused.get_or_insert_with(|| (fault.clone(), update.object.clone()));
        }
    };
    let mut watch = Watch::start(client.clone(), &root, WATCHED).await?;
    watch
        .list(|update| {
            picture.apply(update);
            check(update);
        })
        .await?;
    let _ = tokio::time::timeout(CLOSE_LIMIT, watch.stop()).await;
    let mut watch = Watch::start(client.clone(), &root, PLACEMENTS).await?;
    watch
        .list(|update| {
            picture.place(update);
            check(update);
        })
        .await?;
    let _ = tokio::time::timeout(CLOSE_LIMIT, watch.stop()).await;
    let mut counts = InventoryCounts { unreadable: unreadable.len(), ..InventoryCounts::default() };
    for event in picture.changes() {
        match event {
            Event::ClusterApplied { cluster, .. } => counts.clusters.push(cluster),
            Event::HostApplied { .. } => counts.hosts += 1,
            Event::VmApplied { .. } => counts.vms += 1,
            _ => (),
        }
    }
    counts.clusters.sort_by(|a, b| (&a.name, &a.datacenter).cmp(&(&b.name, &b.datacenter)));
    if counts.hosts == 0 || counts.vms == 0 {
        if let Some((mut fault, object)) = refused {
            fault.object.get_or_insert(object);
            return Err(VsphereError::from_fault("reading properties", fault));
        }
        // A user without any permission sees an empty inventory. Reading the root folder then fails.
        property::read(client, &root, &["name"]).await?;
    }
    Ok(counts)
}

/// Why a required object cannot be read.
fn refusal(update: &ObjectUpdate) -> Option<&Fault> {
    if ![CLUSTER, HOST, VM].contains(&update.object.kind.as_str()) {
        return None;
    }
    update.missing.iter().map(|(_, fault)| fault).find(|fault| fault.kind == "NoPermission")
}
