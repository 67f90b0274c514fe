//! Claims whose volumes are bound or provisioned when their pod has a node, and a stand-in for the controllers that do it.
//!
//! The stand-in does what a scheduler waits for, and as few requests as possible: a claim is bound to the volume that the
//! scheduler reserved for it, or to a new volume on the node that the scheduler selected. It is the same for every
//! contender.

use std::collections::{BTreeMap, HashSet, VecDeque};

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent};
use kube::core::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use super::cluster::{Cluster, NAMESPACE, create, each, node_name};
use super::light::{self, Events, Listed};
use super::workload::{HOSTNAME, Source};

const SELECTED: &str = "volume.kubernetes.io/selected-node";
const LOCAL: &str = "local";
const PROVISIONED: &str = "provisioned";
const DRIVER: &str = "csi.example.com";
/// Concurrent requests of the stand-in.
const AT_ONCE: usize = 32;

impl Source {
    const fn class(self) -> &'static str {
        match self {
            Source::Local { .. } => LOCAL,
            Source::Provisioned => PROVISIONED,
        }
    }
}

/// The pod with a volume: the claim of its name.
pub(super) fn with_claim(mut pod: Pod) -> Result<Pod> {
    let name = pod.metadata.name.clone().context("a name")?;
    let volume: Volume =
        serde_json::from_value(json!({ "name": "data", "persistentVolumeClaim": { "claimName": name } }))?;
    pod.spec.as_mut().context("a spec")?.volumes = Some(vec![volume]);
    Ok(pod)
}

fn on_node(node: &str) -> Value {
    json!({ "required": { "nodeSelectorTerms": [
        { "matchExpressions": [{ "key": HOSTNAME, "operator": "In", "values": [node] }] }] } })
}

/// A volume on this node, of one GiB as every claim.
fn volume(name: &str, class: &str, node: &str, source: (&str, Value)) -> Value {
    let mut volume = json!({ "metadata": { "name": name }, "spec": { "storageClassName": class,
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "nodeAffinity": on_node(node) } });
    volume["spec"][source.0] = source.1;
    volume
}

impl Cluster {
    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub(super) async fn create_classes(&self) -> Result<()> {
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        for (name, provisioner) in [(LOCAL, "kubernetes.io/no-provisioner"), (PROVISIONED, DRIVER)] {
            let class = json!({ "metadata": { "name": name }, "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer" });
            classes.create(&PostParams::default(), &serde_json::from_value(class)?).await?;
        }
        Ok(())
    }

    pub(super) async fn remove_classes(&self) -> Result<()> {
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        classes.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        Ok(())
    }

    /// Nodes with volumes are spread evenly over the cluster.
    pub(super) async fn create_volumes(&self, source: Source) -> Result<()> {
        let Source::Local { nodes } = source else { return Ok(()) };
        let (volumes, every) = (self.volumes(), self.setup.size.nodes / nodes);
        let objects = (0..nodes).map(|number| {
            let local = volume(
                &format!("local-{number}"),
                LOCAL,
                &node_name(number * every),
                ("local", json!({ "path": "/disk" })),
            );
            Ok::<PersistentVolume, anyhow::Error>(serde_json::from_value(local)?)
        });
        each(objects, async |object| {
            let created = volumes.create(&PostParams::default(), &object).await?;
            let available = Patch::Merge(json!({ "status": { "phase": "Available" } }));
            let name = created.metadata.name.context("a name")?;
            volumes.patch_status(&name, &PatchParams::default(), &available).await?;
            Ok(())
        })
        .await
    }

    pub(super) async fn create_claims(&self, source: Source, count: usize) -> Result<()> {
        let claims = self.claims();
        let objects = (0..count).map(|number| {
            let claim = json!({ "metadata": { "name": format!("measured-{number}") }, "spec": {
                "storageClassName": source.class(), "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } } } });
            Ok::<PersistentVolumeClaim, anyhow::Error>(serde_json::from_value(claim)?)
        });
        each(objects, |claim| create(&claims, claim)).await
    }

    pub(super) async fn remove_volumes(&self) -> Result<()> {
        let (delete, all) = (DeleteParams::default(), ListParams::default());
        self.claims().delete_collection(&delete, &all).await?;
        self.volumes().delete_collection(&delete, &all).await?;
        Ok(())
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Name {
    name: String,
    uid: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
struct WatchedClaim {
    metadata: Name,
    spec: ClaimSpec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSpec {
    volume_name: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct WatchedVolume {
    metadata: Name,
    spec: VolumeSpec,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeSpec {
    claim_ref: Option<ClaimRef>,
}

#[derive(Clone, Debug, Deserialize)]
struct ClaimRef {
    name: String,
}

/// Binds and provisions until a request fails.
pub(super) async fn controller(client: &Client, source: Source) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let mut of_claims: Watch<WatchedClaim> = Watch::start(client, claims.resource_url()).await?;
    let mut of_volumes: Watch<WatchedVolume> = Watch::start(client, volumes.resource_url()).await?;
    let (mut known, mut waiting) = (HashSet::new(), VecDeque::<BoxFuture<'_, Result<()>>>::new());
    let mut in_flight: FuturesUnordered<BoxFuture<'_, Result<()>>> = FuturesUnordered::new();
    loop {
        while in_flight.len() < AT_ONCE
            && let Some(next) = waiting.pop_front()
        {
            in_flight.push(next);
        }
        tokio::select! {
            Some(done) = in_flight.next(), if !in_flight.is_empty() => done?,
            claim = of_claims.next() => {
                let claim = claim?;
                if source == Source::Provisioned
                    && claim.spec.volume_name.is_none()
                    && let Some(node) = claim.metadata.annotations.get(SELECTED)
                    && known.insert(claim.metadata.uid.clone())
                {
                    let Name { name, uid, .. } = claim.metadata.clone();
                    waiting.push_back(Box::pin(provision(&volumes, &claims, name, uid, node.clone())));
                }
            }
            volume = of_volumes.next() => {
                let volume = volume?;
                if source != Source::Provisioned
                    && let Some(claim) = volume.spec.claim_ref
                    && known.insert(volume.metadata.uid)
                {
                    waiting.push_back(Box::pin(bind(&claims, claim.name, volume.metadata.name)));
                }
            }
        }
    }
}

async fn provision(
    volumes: &Api<PersistentVolume>,
    claims: &Api<PersistentVolumeClaim>,
    claim: String,
    uid: String,
    node: String,
) -> Result<()> {
    let name = format!("of-{claim}");
    let csi = ("csi", json!({ "driver": DRIVER, "volumeHandle": name }));
    let mut object = volume(&name, PROVISIONED, &node, csi);
    object["spec"]["claimRef"] = json!({ "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": NAMESPACE,
        "name": claim, "uid": uid });
    volumes.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    bind(claims, claim, name).await
}

async fn bind(claims: &Api<PersistentVolumeClaim>, claim: String, volume: String) -> Result<()> {
    let bound = json!({ "metadata": { "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
        "spec": { "volumeName": volume } });
    claims.patch(&claim, &PatchParams::default(), &Patch::Merge(bound)).await?;
    Ok(())
}

/// Objects as they are at first, and after each change.
struct Watch<T> {
    client: Client,
    requests: Request,
    listed: VecDeque<T>,
    events: Events<T>,
}

impl<T> Watch<T>
where
    T: Clone + serde::de::DeserializeOwned + Send + 'static,
{
    async fn start(client: &Client, url: &str) -> Result<Watch<T>> {
        let requests = Request::new(url);
        let listed: Listed<T> = light::list(client, &requests, &ListParams::default()).await?;
        let events = light::watch(client, &requests, "", &listed.metadata).await?;
        Ok(Watch { client: client.clone(), requests, listed: listed.items.into(), events })
    }

    async fn next(&mut self) -> Result<T> {
        loop {
            if let Some(object) = self.listed.pop_front() {
                return Ok(object);
            }
            match self.events.next().await.transpose()? {
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => return Ok(object),
                Some(WatchEvent::Error(error)) => anyhow::bail!("the watch failed: {error:?}"),
                Some(_) => (),
                // The server closes a watch whose client reads too slowly.
                None => *self = Watch::start(&self.client, &self.requests.url_path).await?,
            }
        }
    }
}
