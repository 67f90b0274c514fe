//! Records the placements of pods from a watch.
//!
//! In: every change of every pod, from before the first is created. Out: all nodes on which each pod was ever observed.
//! Periodic lists would not show a node that was set for a moment, nor a pod that was recreated under the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use testkit::eventually;

/// The maximum delay of the watch.
const SHOWN_WITHIN: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Observed {
    /// The UIDs and nodes with which each pod was observed, by name. There should be one of each.
    placements: BTreeMap<String, BTreeSet<(String, String)>>,
    /// Pod names in the order of placement.
    order: Vec<String>,
}

/// Follows all pods of the default namespace until it is dropped.
pub struct Following {
    observed: Arc<Mutex<Observed>>,
    task: tokio::task::JoinHandle<Result<()>>,
}

impl Following {
    pub async fn start(pods: &Api<Pod>) -> Result<Following> {
        let listed = pods.list(&ListParams::default().limit(1)).await?;
        let version = listed.metadata.resource_version.unwrap_or_default();
        let observed = Arc::<Mutex<Observed>>::default();
        let task = tokio::spawn(follow(pods.clone(), version, observed.clone()));
        Ok(Following { observed, task })
    }

    /// Waits until `count` pods were placed. Fails if a pod was placed more than once or is not where it was placed.
    /// Returns their names in the order of placement.
    pub async fn each_placed_once(&self, pods: &Api<Pod>, count: usize) -> Result<Vec<String>> {
        eventually(SHOWN_WITHIN, || async {
            ensure!(!self.task.is_finished(), "the watch of pods has failed");
            let shown = self.observed.lock().unwrap_or_else(PoisonError::into_inner).placements.len();
            ensure!(shown >= count, "{shown} of {count} pods were placed");
            Ok(())
        })
        .await?;
        let listed: BTreeMap<String, BTreeSet<(String, String)>> =
            pods.list(&ListParams::default()).await?.items.into_iter().filter_map(placement).collect();
        let observed = self.observed.lock().unwrap_or_else(PoisonError::into_inner);
        let differ: Vec<_> =
            observed.placements.iter().filter(|(name, placements)| listed.get(*name) != Some(*placements)).collect();
        ensure!(differ.is_empty(), "placed more than once, or not where it was placed: {differ:?}");
        let placed = observed.placements.len();
        ensure!(placed == count, "{placed} instead of {count} pods were placed");
        Ok(observed.order.clone())
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The name, UID and node of a pod that is on a node.
fn placement(pod: Pod) -> Option<(String, BTreeSet<(String, String)>)> {
    let node = pod.spec?.node_name?;
    Some((pod.metadata.name?, BTreeSet::from([(pod.metadata.uid?, node)])))
}

async fn follow(pods: Api<Pod>, mut version: String, observed: Arc<Mutex<Observed>>) -> Result<()> {
    loop {
        // The server ends a watch after some minutes; the next one continues where it ended.
        let mut watch = pods.watch(&WatchParams::default(), &version).await?.boxed();
        while let Some(event) = watch.next().await {
            let pod = match event? {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) | WatchEvent::Deleted(pod) => pod,
                WatchEvent::Bookmark(bookmark) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => bail!("the watch of pods: {status:?}"),
            };
            version = pod.metadata.resource_version.clone().unwrap_or_default();
            let Some((name, placement)) = placement(pod) else { continue };
            let mut observed = observed.lock().unwrap_or_else(PoisonError::into_inner);
            if !observed.placements.contains_key(&name) {
                observed.order.push(name.clone());
            }
            observed.placements.entry(name).or_default().extend(placement);
        }
    }
}
