//! Watches which of the measured pods are bound.
//!
//! Only the name and the node of each pod are parsed, because the watch shares the CPU with the measured schedulers.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use futures::stream::StreamExt;
use kube::Client;
use kube::api::{ListParams, WatchEvent};
use kube::core::Request;
use serde::Deserialize;
use tokio::time::Instant;

use super::light::{self, Events, Listed};

/// The label of the measured pods.
pub(super) const MEASURED: &str = "measured=true";

#[derive(Clone, Debug, Deserialize)]
struct WatchedPod {
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

/// The pods bound since the watch started.
pub(super) struct Binds {
    client: Client,
    requests: Request,
    watch: Events<WatchedPod>,
    /// By pod name, the time at which the watch first showed the bind.
    observed: BTreeMap<String, Instant>,
}

impl Binds {
    /// `pods_url` is the path of the pods of one namespace.
    pub(super) async fn watch(client: &Client, pods_url: &str) -> Result<Binds> {
        let requests = Request::new(pods_url);
        // No scheduler runs yet: only the resource version is needed, so a limit of one pod is enough.
        let listed = list(client, &requests, &ListParams::default().limit(1)).await?;
        let watch = light::watch(client, &requests, MEASURED, &listed.metadata).await?;
        Ok(Binds { client: client.clone(), requests, watch, observed: BTreeMap::new() })
    }

    pub(super) fn count(&self) -> usize {
        self.observed.len()
    }

    /// When the watch showed the bind of this pod.
    pub(super) fn observed(&self, name: &str) -> Option<Instant> {
        self.observed.get(name).copied()
    }

    /// When the watch showed each bind.
    pub(super) fn all(&self) -> impl Iterator<Item = Instant> {
        self.observed.values().copied()
    }

    /// Processes the next watch event.
    pub(super) async fn next(&mut self) -> Result<()> {
        match self.watch.next().await.transpose()? {
            Some(WatchEvent::Modified(pod)) => self.take(pod),
            Some(WatchEvent::Error(error)) => bail!("the watch failed: {error:?}"),
            Some(_) => (),
            // The server closes a watch whose client reads too slowly.
            None => {
                let listed = list(&self.client, &self.requests, &ListParams::default()).await?;
                self.watch = light::watch(&self.client, &self.requests, MEASURED, &listed.metadata).await?;
                listed.items.into_iter().for_each(|pod| self.take(pod));
            }
        }
        Ok(())
    }

    fn take(&mut self, pod: WatchedPod) {
        if pod.spec.node_name.is_some() {
            self.observed.entry(pod.metadata.name).or_insert_with(Instant::now);
        }
    }
}

async fn list(client: &Client, requests: &Request, parameters: &ListParams) -> Result<Listed<WatchedPod>> {
    light::list(client, requests, &parameters.clone().labels(MEASURED)).await
}
