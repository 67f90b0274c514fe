//! Lists and watches objects of which only a few fields are parsed, because whoever watches shares the CPU with what is
//! measured.

use anyhow::Result;
use futures::stream::{BoxStream, StreamExt};
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// How long the server keeps a watch open.
const WATCH_SECONDS: u32 = 290;

#[derive(Debug, Deserialize)]
pub struct Listed<T> {
    pub metadata: Version,
    pub items: Vec<T>,
}

/// From where a watch goes on.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    resource_version: String,
}

pub type Events<T> = BoxStream<'static, kube::Result<WatchEvent<T>>>;

pub async fn list<T: DeserializeOwned>(
    client: &Client,
    requests: &Request,
    parameters: &ListParams,
) -> Result<Listed<T>> {
    Ok(client.request(requests.list(parameters)?).await?)
}

/// `labels` select objects; empty for all.
pub async fn watch<T>(client: &Client, requests: &Request, labels: &str, from: &Version) -> Result<Events<T>>
where
    T: Clone + DeserializeOwned + Send + 'static,
{
    let parameters = WatchParams::default().labels(labels).timeout(WATCH_SECONDS);
    let events = client.request_events(requests.watch(&parameters, &from.resource_version)?).await?;
    Ok(events.boxed())
}
