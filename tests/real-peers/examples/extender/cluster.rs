//! A cluster of objects without machines: nodes and pods of a real API server, and rounds of scheduling on it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use testkit::{ControlPlane, Scheduler, eventually};
use tokio::time::Instant;

use super::Size;
use super::ways::{Running, Way};

pub const HOST_KEY: &str = "alpha.cna.vmware.com/host";
const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const NAMESPACE: &str = "bench";
/// Requests to the API server at once.
const AT_ONCE: usize = 32;
/// Pods of the load that avoid each other.
const LOAD_GROUP: usize = 10;
/// Of the pods measured: the last ones wait for back-offs, and a single one would make the figure.
const COUNTED_SHARE: f64 = 0.95;

/// What the pods that are measured ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    ApartByNode,
    ApartByHost,
    TogetherByZone,
    Preferred,
}

impl Workload {
    pub const ALL: [Workload; 4] =
        [Workload::ApartByNode, Workload::ApartByHost, Workload::TogetherByZone, Workload::Preferred];

    pub const fn name(self) -> &'static str {
        match self {
            Workload::ApartByNode => "anti-affinity by node",
            Workload::ApartByHost => "anti-affinity by host",
            Workload::TogetherByZone => "affinity by zone",
            Workload::Preferred => "preferred",
        }
    }

    /// How many pods form a group; there must be places for all of them.
    const fn group(self) -> usize {
        match self {
            Workload::ApartByNode | Workload::TogetherByZone | Workload::Preferred => usize::MAX,
            Workload::ApartByHost => 40,
        }
    }

    fn affinity(self, group: &str) -> Value {
        let term = |key: &str| json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "group": group } } });
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        match self {
            Workload::ApartByNode => json!({ "podAntiAffinity": { required: [term(HOSTNAME)] } }),
            Workload::ApartByHost => json!({ "podAntiAffinity": { required: [term(HOST_KEY)] } }),
            Workload::TogetherByZone => json!({ "podAffinity": { required: [term(ZONE)] } }),
            Workload::Preferred => json!({
                "podAntiAffinity": { preferred: [{ "weight": 100, "podAffinityTerm": term(HOSTNAME) }] },
                "podAffinity": { preferred: [{ "weight": 50, "podAffinityTerm": term(ZONE) }] },
            }),
        }
    }
}

pub struct Cluster {
    control_plane: ControlPlane,
    size: Size,
    pods: Api<Pod>,
}

fn pod(name: &str, group: &str, affinity: &Value, node: Option<&str>) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "group": group, "measured": node.is_none().to_string() } },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "affinity": affinity,
            "containers": [{ "name": "main", "image": "none",
                "resources": { "requests": { "cpu": "100m", "memory": "500Mi" } } }],
        },
    }))?)
}

impl Cluster {
    pub async fn start(size: Size) -> Result<Cluster> {
        let control_plane = ControlPlane::start_with(&[
            "--max-requests-inflight=0",
            "--max-mutating-requests-inflight=0",
            "--enable-priority-and-fairness=false",
            "--disable-admission-plugins=TaintNodesByCondition",
        ])
        .await?;
        control_plane.namespace(NAMESPACE).await?;
        let client = control_plane.client().await?;
        let nodes: Api<Node> = Api::all(client.clone());
        let cluster = Cluster { control_plane, size, pods: Api::namespaced(client, NAMESPACE) };
        let objects = (0..size.nodes).map(|number| {
            let name = node_name(number);
            let (host, zone) = (format!("esx-{}", number % size.hosts), format!("zone-{}", number % size.zones));
            let capacity = json!({ "cpu": "4", "memory": "32Gi", "pods": "110" });
            let ready = json!([{ "type": "Ready", "status": "True", "reason": "Bench", "message": "",
                "lastHeartbeatTime": null, "lastTransitionTime": null }]);
            let node = json!({
                "metadata": { "name": name, "labels": { HOSTNAME: name, HOST_KEY: host, ZONE: zone } },
                "status": { "capacity": capacity, "allocatable": capacity, "conditions": ready },
            });
            Ok::<Node, anyhow::Error>(serde_json::from_value(node)?)
        });
        each(objects, |node| create(&nodes, node)).await.context("creating nodes")?;
        Ok(cluster)
    }

    /// Pods that run already, in groups that avoid each other.
    pub async fn fill(&self) -> Result<()> {
        let pods = (0..self.size.running).map(|number| {
            let group = format!("load-{}", number / LOAD_GROUP);
            let node = node_name(number % self.size.nodes);
            pod(&format!("load-{number}"), &group, &Workload::ApartByNode.affinity(&group), Some(&node))
        });
        each(pods, |pod| create(&self.pods, pod)).await.context("creating the load")
    }

    /// Schedules the pods of a workload in one of the ways; answers pods per second.
    pub async fn round(&self, way: Way, workload: Workload) -> Result<f64> {
        let running = Running::start(way, &self.control_plane).await?;
        let count = self.size.measured;
        let group_size = workload.group().min(count);
        let pods = (0..count).map(|number| {
            let group = format!("measured-{}", number / group_size);
            pod(&format!("measured-{number}"), &group, &workload.affinity(&group), None)
        });
        each(pods, |pod| create(&self.pods, pod)).await.context("creating pods")?;
        let only = "measured=true";
        let version = self.pods.list(&ListParams::default().labels(only).limit(1)).await?.metadata.resource_version;
        let mut watch = self
            .pods
            .watch(&WatchParams::default().labels(only).timeout(290), version.as_deref().unwrap_or("0"))
            .await?
            .boxed();
        let scheduler = Scheduler::start(&self.control_plane, Some(running.scheduler_config())).await?;
        let wanted = (count as f64 * COUNTED_SHARE) as usize;
        let (mut bound, mut first) = (std::collections::BTreeSet::new(), None);
        let deadline = Instant::now() + self.size.limit;
        while bound.len() < wanted {
            let Ok(event) = tokio::time::timeout_at(deadline, watch.next()).await else {
                bail!("{} of {wanted} were bound in time:\n{}\n{}", bound.len(), scheduler.log_tail(), running.output())
            };
            match event.context("the watch ended")?? {
                WatchEvent::Modified(pod) if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) => {
                    first.get_or_insert_with(Instant::now);
                    bound.insert(pod.metadata.name);
                }
                WatchEvent::Error(error) => bail!("the watch failed: {error:?}"),
                _ => (),
            }
        }
        let took = first.context("a bind")?.elapsed();
        drop((watch, scheduler, running));
        self.clear(only).await?;
        Ok((wanted - 1) as f64 / took.as_secs_f64())
    }

    async fn clear(&self, labels: &str) -> Result<()> {
        let listed = self.pods.list_metadata(&ListParams::default().labels(labels)).await?;
        let names = listed.items.into_iter().map(|pod| pod.metadata.name.context("a name"));
        each(names, async |name| {
            self.pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
            Ok(())
        })
        .await?;
        eventually(Duration::from_secs(60), || async {
            let left = self.pods.list_metadata(&ListParams::default().labels(labels)).await?.items.len();
            anyhow::ensure!(left == 0, "{left} pods are left");
            Ok(())
        })
        .await
    }
}

fn node_name(number: usize) -> String {
    format!("node-{number:05}")
}

/// Does something with each, many at once.
async fn each<T, F: Future<Output = Result<()>>>(
    items: impl IntoIterator<Item = Result<T>>,
    work: impl Fn(T) -> F,
) -> Result<()> {
    stream::iter(items)
        .map(|item| {
            let work = &work;
            async move { work(item?).await }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await
}

async fn create<K>(api: &Api<K>, object: K) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}
