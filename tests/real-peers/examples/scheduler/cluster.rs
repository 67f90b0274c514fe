//! A cluster of objects without machines: nodes and pods of a real API server, and rounds of scheduling on it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use testkit::{ControlPlane, eventually};
use tokio::time::Instant;

use super::Size;
use super::contestant::{Contestant, Kind, SCHEDULER_NAME};

const HOST: &str = "alpha.cna.vmware.com/host";
const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const NAMESPACE: &str = "bench";
/// Requests to the API server at once.
const AT_ONCE: usize = 32;
/// Pods of the load that avoid each other.
const LOAD_GROUP: usize = 10;
/// Of the pods measured: the last ones may wait for back-offs, and a single one would make the figure.
const COUNTED_SHARE: f64 = 0.95;
const MEASURED: &str = "measured=true";

/// What the pods that are measured ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    Basic,
    ApartByNode,
    ApartByHost,
    SmallServices,
    TogetherByZone,
    PreferredApart,
    Spread,
}

impl Workload {
    pub const ALL: [Workload; 7] = [
        Workload::Basic,
        Workload::ApartByNode,
        Workload::ApartByHost,
        Workload::SmallServices,
        Workload::TogetherByZone,
        Workload::PreferredApart,
        Workload::Spread,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Workload::Basic => "basic",
            Workload::ApartByNode => "anti-affinity by node",
            Workload::ApartByHost => "anti-affinity by host",
            Workload::SmallServices => "small services by host",
            Workload::TogetherByZone => "affinity by zone",
            Workload::PreferredApart => "preferred anti-affinity",
            Workload::Spread => "topology spread",
        }
    }

    /// How many pods form a group; there must be places for all of them.
    fn group_size(self, size: &Size) -> usize {
        match self {
            Workload::ApartByNode => size.nodes / 2,
            Workload::ApartByHost => size.hosts / 2,
            Workload::SmallServices => 5,
            _ => usize::MAX,
        }
    }

    /// Adds to the spec what the workload asks for.
    fn ask(self, spec: &mut Value, group: &str) {
        let selector = json!({ "matchLabels": { "group": group } });
        let term = |key: &str| json!({ "topologyKey": key, "labelSelector": selector });
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        let affinity = match self {
            Workload::Basic => return,
            Workload::Spread => {
                spec["topologySpreadConstraints"] = json!([{ "maxSkew": 1, "topologyKey": ZONE,
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector }]);
                return;
            }
            Workload::ApartByNode => json!({ "podAntiAffinity": { required: [term(HOSTNAME)] } }),
            Workload::ApartByHost | Workload::SmallServices => json!({ "podAntiAffinity": { required: [term(HOST)] } }),
            Workload::TogetherByZone => json!({ "podAffinity": { required: [term(ZONE)] } }),
            Workload::PreferredApart => {
                json!({ "podAntiAffinity": { preferred: [{ "weight": 100, "podAffinityTerm": term(HOSTNAME) }] } })
            }
        };
        spec["affinity"] = affinity;
    }
}

/// What one scheduler did with one workload.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub pods_per_second: f64,
    pub cpu_ms_per_pod: f64,
    pub peak_mib: f64,
    /// From the last bind to the last Scheduled event.
    pub events_after_s: f64,
}

impl Round {
    pub fn to_json(self) -> Value {
        json!({ "pods_per_second": self.pods_per_second, "cpu_ms_per_pod": self.cpu_ms_per_pod,
            "peak_mib": self.peak_mib, "events_after_s": self.events_after_s })
    }
}

pub struct Cluster {
    control_plane: ControlPlane,
    size: Size,
    pods: Api<Pod>,
    events: Api<Event>,
}

fn pod(name: &str, group: &str, workload: Workload, node: Option<&str>) -> Result<Pod> {
    let mut spec = json!({
        "nodeName": node,
        "schedulerName": SCHEDULER_NAME,
        "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "main", "image": "none",
            "resources": { "requests": { "cpu": "100m", "memory": "500Mi" } } }],
    });
    workload.ask(&mut spec, group);
    let labels = json!({ "group": group, "measured": node.is_none().to_string() });
    Ok(serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels }, "spec": spec }))?)
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
        let (pods, events) = (Api::namespaced(client.clone(), NAMESPACE), Api::namespaced(client, NAMESPACE));
        let objects = (0..size.nodes).map(|number| {
            let name = node_name(number);
            let (host, zone) = (format!("esx-{}", number % size.hosts), format!("zone-{}", number % size.zones));
            let capacity = json!({ "cpu": "4", "memory": "32Gi", "pods": "110" });
            let ready = json!([{ "type": "Ready", "status": "True", "reason": "Bench", "message": "",
                "lastHeartbeatTime": null, "lastTransitionTime": null }]);
            Ok::<Node, anyhow::Error>(serde_json::from_value(json!({
                "metadata": { "name": name, "labels": { HOSTNAME: name, HOST: host, ZONE: zone } },
                "status": { "capacity": capacity, "allocatable": capacity, "conditions": ready },
            }))?)
        });
        each(objects, |node| create(&nodes, node)).await.context("creating nodes")?;
        Ok(Cluster { control_plane, size, pods, events })
    }

    /// Pods that run already, in groups that avoid each other.
    pub async fn fill(&self) -> Result<()> {
        let pods = (0..self.size.running).map(|number| {
            let group = format!("load-{}", number / LOAD_GROUP);
            let node = node_name(number % self.size.nodes);
            pod(&format!("load-{number}"), &group, Workload::ApartByNode, Some(&node))
        });
        each(pods, |pod| create(&self.pods, pod)).await.context("creating the load")
    }

    /// Schedules the pods of a workload.
    pub async fn round(&self, kind: Kind, workload: Workload) -> Result<Round> {
        let count = self.size.measured;
        let group_size = workload.group_size(&self.size).min(count);
        let pods = (0..count).map(|number| {
            let group = format!("measured-{}", number / group_size);
            pod(&format!("measured-{number}"), &group, workload, None)
        });
        each(pods, |pod| create(&self.pods, pod)).await.context("creating pods")?;
        let listed = self.pods.list_metadata(&ListParams::default().labels(MEASURED).limit(1)).await?;
        let version = listed.metadata.resource_version;
        let parameters = WatchParams::default().labels(MEASURED).timeout(290);
        let mut watch = self.pods.watch(&parameters, version.as_deref().unwrap_or("0")).await?.boxed();

        let contestant = Contestant::start(kind, &self.control_plane).await?;
        let wanted = (count as f64 * COUNTED_SHARE) as usize;
        let deadline = Instant::now() + self.size.limit;
        let mut bound = BTreeSet::new();
        let (mut first, mut span) = (None, None);
        while bound.len() < count {
            let Ok(event) = tokio::time::timeout_at(deadline, watch.next()).await else {
                bail!("{} of {count} were bound in time:\n{}", bound.len(), contestant.output())
            };
            match event.transpose()? {
                Some(WatchEvent::Modified(pod)) if is_bound(&pod) => {
                    bound.insert(pod.metadata.name);
                }
                Some(WatchEvent::Error(error)) => bail!("the watch failed: {error:?}"),
                Some(_) => (),
                // The server lets go of who reads too slowly for a moment.
                None => {
                    let listed = self.pods.list(&ListParams::default().labels(MEASURED)).await?;
                    bound.extend(listed.items.into_iter().filter(is_bound).map(|pod| pod.metadata.name));
                    let version = listed.metadata.resource_version;
                    watch = self.pods.watch(&parameters, version.as_deref().unwrap_or("0")).await?.boxed();
                }
            }
            if first.is_none() && !bound.is_empty() {
                first = Some((Instant::now(), contestant.cpu_s()?, bound.len()));
            }
            if let (None, Some((at, cpu_s, from)), true) = (span, first, bound.len() >= wanted) {
                span = Some((at.elapsed(), contestant.cpu_s()? - cpu_s, bound.len() - from));
            }
        }
        let last = Instant::now();
        self.all_told(count).await?;
        let events_after_s = last.elapsed().as_secs_f64();
        let peak_mib = contestant.peak_mib()?;
        drop((watch, contestant));
        self.clear().await?;
        let (took, cpu_s, pods) = span.context("nothing was measured")?;
        let pods = pods.max(1) as f64;
        Ok(Round {
            pods_per_second: pods / took.as_secs_f64(),
            cpu_ms_per_pod: cpu_s * 1000.0 / pods,
            peak_mib,
            events_after_s,
        })
    }

    /// Waits for the Scheduled event of each pod.
    async fn all_told(&self, count: usize) -> Result<()> {
        let only = ListParams::default().fields("reason=Scheduled");
        eventually(Duration::from_secs(60), || async {
            let told = self.events.list_metadata(&only).await?.items.len();
            ensure!(told >= count, "{told} of {count} pods have an event");
            Ok(())
        })
        .await
    }

    async fn clear(&self) -> Result<()> {
        let only = ListParams::default().labels(MEASURED);
        let listed = self.pods.list_metadata(&only).await?;
        let names = listed.items.into_iter().map(|pod| pod.metadata.name.context("a name"));
        each(names, async |name| {
            self.pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
            Ok(())
        })
        .await?;
        self.events.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        eventually(Duration::from_secs(60), || async {
            let left = self.pods.list_metadata(&only).await?.items.len();
            let told = self.events.list_metadata(&ListParams::default()).await?.items.len();
            ensure!(left + told == 0, "{left} pods and {told} events are left");
            Ok(())
        })
        .await
    }
}

fn is_bound(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
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
