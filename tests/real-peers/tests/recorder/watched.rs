//! What the API shows of each pod while it is scheduled: conditions that are there only for a moment, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};

/// A pod, from its creation to now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The condition PodScheduled: status, reason and message, each time it changed.
    pub conditions: Vec<[String; 3]>,
    pub node: String,
    pub nominated: String,
}

/// By namespace and name.
type Pods = BTreeMap<(String, String), Shown>;

/// Follows all pods until it is dropped.
pub struct Watched {
    pods: Arc<Mutex<Pods>>,
    task: tokio::task::JoinHandle<Result<()>>,
}

impl Watched {
    pub async fn start(client: kube::Client) -> Result<Watched> {
        let all: Api<Pod> = Api::all(client);
        let version = all.list(&ListParams::default().limit(1)).await?.metadata.resource_version.unwrap_or_default();
        let pods = Arc::<Mutex<Pods>>::default();
        let task = tokio::spawn(follow(all, version, pods.clone()));
        Ok(Watched { pods, task })
    }

    pub fn of(&self, namespace: &str, pod: &str) -> Result<Shown> {
        if self.task.is_finished() {
            bail!("the watch of pods has ended");
        }
        let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(pods.get(&(namespace.to_owned(), pod.to_owned())).cloned().unwrap_or_default())
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(all: Api<Pod>, mut version: String, pods: Arc<Mutex<Pods>>) -> Result<()> {
    loop {
        let mut watch = all.watch(&WatchParams::default(), &version).await?.boxed();
        while let Some(event) = watch.next().await {
            match event? {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    version = pod.metadata.resource_version.clone().unwrap_or_default();
                    note(pod, &mut pods.lock().unwrap_or_else(PoisonError::into_inner));
                }
                WatchEvent::Deleted(pod) => version = pod.metadata.resource_version.unwrap_or_default(),
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                WatchEvent::Error(status) => bail!("the watch of pods: {status:?}"),
            }
        }
    }
}

fn note(pod: Pod, pods: &mut Pods) {
    let key = (pod.metadata.namespace.unwrap_or_default(), pod.metadata.name.unwrap_or_default());
    let shown = pods.entry(key).or_default();
    let status = pod.status.unwrap_or_default();
    shown.node = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
    shown.nominated = status.nominated_node_name.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    if let Some(condition) = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled") {
        let text = [condition.status, condition.reason.unwrap_or_default(), condition.message.unwrap_or_default()];
        if shown.conditions.last() != Some(&text) {
            shown.conditions.push(text);
        }
    }
}
