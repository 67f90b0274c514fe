//! One look at a vCenter, for the start: can it be reached, may we read it, what is there.
//!
//! Input: a configuration. Output: what the server says of itself and how much it holds, or the one error that tells
//! what to put right.
//!
//! Invariants: changes nothing there, and gives its session back also when it fails.

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

/// How long giving back the watch, and then the session, may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// How much there is to follow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InventoryCounts {
    /// By name, then by datacenter: two datacenters may have clusters of one name.
    pub clusters: Vec<ClusterFacts>,
    pub hosts: usize,
    pub vms: usize,
    /// Clusters, hosts and VMs that may be seen but not read.
    pub unreadable: usize,
}

impl InventoryCounts {
    /// Each name once, in order: what a message lists.
    #[must_use]
    pub fn cluster_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
        names.dedup();
        names
    }
}

/// Logs in, looks at everything once and logs out.
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
    let mut look = |update: &ObjectUpdate| {
        if let Some(fault) = refusal(update) {
            unreadable.insert(update.object.clone());
            refused.get_or_insert_with(|| (fault.clone(), update.object.clone()));
        }
    };
    let mut watch = Watch::start(client.clone(), &root, WATCHED).await?;
    watch
        .list(|update| {
            picture.apply(update);
            look(update);
        })
        .await?;
    let _ = tokio::time::timeout(CLOSE_LIMIT, watch.stop()).await;
    let mut watch = Watch::start(client.clone(), &root, PLACEMENTS).await?;
    watch
        .list(|update| {
            picture.place(update);
            look(update);
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
        // Who may see nothing at all is shown an empty inventory; that the root cannot be read gives it away.
        property::read(client, &root, &["name"]).await?;
    }
    Ok(counts)
}

/// Why an object that must be read cannot be.
fn refusal(update: &ObjectUpdate) -> Option<&Fault> {
    if ![CLUSTER, HOST, VM].contains(&update.object.kind.as_str()) {
        return None;
    }
    update.missing.iter().map(|(_, fault)| fault).find(|fault| fault.kind == "NoPermission")
}
