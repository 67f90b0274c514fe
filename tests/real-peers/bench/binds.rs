//! Which of the measured pods are bound, as a watch shows it.
//!
//! Of each pod only the name and the node are read: whoever watches shares the cores with those who are measured.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use futures::stream::{BoxStream, StreamExt};
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde::Deserialize;
use tokio::time::Instant;

/// The label of the pods that are measured.
pub(super) const MEASURED: &str = "measured=true";
/// As long as the server keeps a watch open; beyond it the watch begins anew.
const WATCH_SECONDS: u32 = 290;

#[derive(Clone, Debug, Deserialize)]
struct PodSeen {
    metadata: Name,
    spec: BoundSpec,
}

#[derive(Clone, Debug, Deserialize)]
struct Name {
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BoundSpec {
    node_name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Listed {
    metadata: Version,
    items: Vec<PodSeen>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: String,
}

/// The pods that are bound, from now on.
pub(super) struct Binds {
    client: Client,
    requests: Request,
    watch: BoxStream<'static, kube::Result<WatchEvent<PodSeen>>>,
    /// By name, with the moment it was first seen.
    seen: BTreeMap<String, Instant>,
}

impl Binds {
    /// `pods_url` is the path of the pods of one namespace.
    pub(super) async fn watch(client: &Client, pods_url: &str) -> Result<Binds> {
        let requests = Request::new(pods_url);
        // Nobody schedules yet: only the version counts, and one pod is enough for that.
        let listed = list(client, &requests, &ListParams::default().limit(1)).await?;
        let watch = watch(client, &requests, &listed.metadata).await?;
        Ok(Binds { client: client.clone(), requests, watch, seen: BTreeMap::new() })
    }

    pub(super) fn count(&self) -> usize {
        self.seen.len()
    }

    /// When the bind of this pod was seen.
    pub(super) fn seen(&self, name: &str) -> Option<Instant> {
        self.seen.get(name).copied()
    }

    /// Takes in what the server says next.
    pub(super) async fn next(&mut self) -> Result<()> {
        match self.watch.next().await.transpose()? {
            Some(WatchEvent::Modified(pod)) => self.take(pod),
            Some(WatchEvent::Error(error)) => bail!("the watch failed: {error:?}"),
            Some(_) => (),
            // The server lets go of who reads too slowly for a moment.
            None => {
                let listed = list(&self.client, &self.requests, &ListParams::default()).await?;
                self.watch = watch(&self.client, &self.requests, &listed.metadata).await?;
                listed.items.into_iter().for_each(|pod| self.take(pod));
            }
        }
        Ok(())
    }

    fn take(&mut self, pod: PodSeen) {
        if pod.spec.node_name.is_some() {
            self.seen.entry(pod.metadata.name).or_insert_with(Instant::now);
        }
    }
}

async fn list(client: &Client, requests: &Request, parameters: &ListParams) -> Result<Listed> {
    Ok(client.request(requests.list(&parameters.clone().labels(MEASURED))?).await?)
}

async fn watch(
    client: &Client,
    requests: &Request,
    from: &Version,
) -> Result<BoxStream<'static, kube::Result<WatchEvent<PodSeen>>>> {
    let parameters = WatchParams::default().labels(MEASURED).timeout(WATCH_SECONDS);
    let events = client.request_events(requests.watch(&parameters, &from.resource_version)?).await?;
    Ok(events.boxed())
}
