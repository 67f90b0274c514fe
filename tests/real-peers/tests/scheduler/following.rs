//! Who is placed where, and when, as a watch shows it.
//!
//! In: every change of every pod, from before the first is created. Out: the nodes each pod was ever seen on. Lists that are
//! read now and then would not show a node that was set for a moment, nor a pod that was made anew under its name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use testkit::eventually;

/// How far the watch may be behind a list.
const SHOWN_WITHIN: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Seen {
    /// The UIDs and nodes of each pod that was seen on a node, by name: one of each if all is well.
    placements: BTreeMap<String, BTreeSet<(String, String)>>,
    /// The names of pods as they were placed.
    order: Vec<String>,
}

/// Follows all pods of the default namespace until it is dropped.
pub struct Following {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<Result<()>>,
}

impl Following {
    pub async fn start(pods: &Api<Pod>) -> Result<Following> {
        let listed = pods.list(&ListParams::default().limit(1)).await?;
        let version = listed.metadata.resource_version.unwrap_or_default();
        let seen = Arc::<Mutex<Seen>>::default();
        let task = tokio::spawn(follow(pods.clone(), version, seen.clone()));
        Ok(Following { seen, task })
    }

    /// Waits until so many pods were seen placed, and fails if any was placed more than once, or is not where it was placed.
    /// Answers their names, in the order they were placed in.
    pub async fn each_placed_once(&self, pods: &Api<Pod>, count: usize) -> Result<Vec<String>> {
        eventually(SHOWN_WITHIN, || async {
            ensure!(!self.task.is_finished(), "the watch of pods has failed");
            let shown = self.seen.lock().unwrap_or_else(PoisonError::into_inner).placements.len();
            ensure!(shown >= count, "{shown} of {count} pods were seen placed");
            Ok(())
        })
        .await?;
        let listed: BTreeMap<String, BTreeSet<(String, String)>> =
            pods.list(&ListParams::default()).await?.items.into_iter().filter_map(placement).collect();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let differ: Vec<_> =
            seen.placements.iter().filter(|(name, placements)| listed.get(*name) != Some(*placements)).collect();
        ensure!(differ.is_empty(), "placed more than once, or elsewhere than it is: {differ:?}");
        ensure!(seen.placements.len() == count, "{} instead of {count} pods were placed", seen.placements.len());
        Ok(seen.order.clone())
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A pod that is on a node: its name, and the one UID and node it has.
fn placement(pod: Pod) -> Option<(String, BTreeSet<(String, String)>)> {
    let node = pod.spec?.node_name?;
    Some((pod.metadata.name?, BTreeSet::from([(pod.metadata.uid?, node)])))
}

async fn follow(pods: Api<Pod>, mut version: String, seen: Arc<Mutex<Seen>>) -> Result<()> {
    loop {
        // The server ends a watch after some minutes; the next one goes on where it ended.
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
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if !seen.placements.contains_key(&name) {
                seen.order.push(name.clone());
            }
            seen.placements.entry(name).or_default().extend(placement);
        }
    }
}
