//! A cluster of objects without machines: nodes and pods of a real API server, and rounds of scheduling on it.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Map, Value, json};
use testkit::{ControlPlane, eventually, usage};
use tokio::time::Instant;

use super::binds::{Binds, MEASURED};
use super::selection::{Load, Selection};
use super::turns;
use super::workload::{Ask, HOST, HOSTNAME, Workload, ZONE, pod};
use super::{Contender, Running, Size};

const NAMESPACE: &str = "bench";
/// Requests to the API server at once.
const AT_ONCE: usize = 32;
/// Pods of the load that avoid each other.
const LOAD_GROUP: usize = 10;
/// Of the pods measured: the last ones may wait for back-offs, and a single one would make the figure.
const COUNTED_SHARE: f64 = 0.95;
const TOLD_WITHIN: Duration = Duration::from_secs(60);
const CLEARED_WITHIN: Duration = Duration::from_secs(60);

/// When a round is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When the share that is counted is bound.
    Counted,
    /// When every pod is bound and has its Scheduled event.
    Told,
}

#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub size: Size,
    /// The schedulerName of all pods.
    pub scheduler_name: &'static str,
    pub until: Until,
}

/// What one contender did with one workload.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub pods_per_second: f64,
    pub cpu_ms_per_pod: f64,
    pub peak_mib: f64,
    /// From the last bind to the last Scheduled event, with [`Until::Told`].
    pub events_after_s: Option<f64>,
}

pub struct Cluster {
    control_plane: ControlPlane,
    setup: Setup,
    client: kube::Client,
    pods: Api<Pod>,
    events: Api<Event>,
}

impl Cluster {
    pub async fn start(setup: Setup) -> Result<Cluster> {
        let control_plane = ControlPlane::start_with(&[
            "--max-requests-inflight=0",
            "--max-mutating-requests-inflight=0",
            "--enable-priority-and-fairness=false",
            "--disable-admission-plugins=TaintNodesByCondition",
        ])
        .await?;
        control_plane.namespace(NAMESPACE).await?;
        let client = control_plane.client().await?;
        let size = setup.size;
        let nodes: Api<Node> = Api::all(client.clone());
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
        let (pods, events) = (Api::namespaced(client.clone(), NAMESPACE), Api::namespaced(client.clone(), NAMESPACE));
        Ok(Cluster { control_plane, setup, client, pods, events })
    }

    /// Every selected round. `show` gives a round's line for people, and its figures. Answers those of every turn by
    /// load, workload and contender.
    #[allow(clippy::print_stderr)]
    pub async fn rounds<C: Contender>(
        &self,
        selection: &Selection,
        workloads: &[Workload],
        show: impl Fn(&Round) -> (String, Value),
    ) -> Result<Value> {
        let mut loads = Map::new();
        for load in selection.loads() {
            if load == Load::Loaded {
                eprintln!("bench: {} running pods", self.setup.size.running);
                self.fill().await?;
            }
            let mut figures = Map::new();
            for workload in workloads {
                let mut rounds: Vec<(C, Vec<f64>, Vec<Value>)> =
                    C::ALL.iter().map(|contender| (*contender, Vec::new(), Vec::new())).collect();
                loop {
                    for (contender, rates, turns) in &mut rounds {
                        if !rates.is_empty() && !contender.takes_turns() {
                            continue;
                        }
                        let (load, workload_name, name) = (load.name(), workload.name, contender.name());
                        let round = Box::pin(self.round(*contender, workload)).await;
                        let round = round.with_context(|| format!("{load}, {workload_name}, {name}"))?;
                        let (line, figures) = show(&round);
                        eprintln!("bench: {load:<7} {workload_name:<24} {name:<15} {line}");
                        rates.push(round.pods_per_second);
                        turns.push(figures);
                    }
                    let in_turn = rounds.iter().filter(|(contender, ..)| contender.takes_turns());
                    if !turns::is_another_needed(in_turn.map(|(_, rates, _)| rates.as_slice())) {
                        break;
                    }
                }
                let rounds: Map<String, Value> = rounds
                    .into_iter()
                    .map(|(contender, _, turns)| (contender.name().to_owned(), Value::Array(turns)))
                    .collect();
                figures.insert(workload.name.to_owned(), Value::Object(rounds));
            }
            loads.insert(load.name().to_owned(), Value::Object(figures));
        }
        Ok(Value::Object(loads))
    }

    /// Pods that run already, in groups that avoid each other.
    async fn fill(&self) -> Result<()> {
        let pods = (0..self.setup.size.running).map(|number| {
            let group = format!("load-{}", number / LOAD_GROUP);
            let node = node_name(number % self.setup.size.nodes);
            pod(&format!("load-{number}"), &group, Ask::ApartByNode, self.setup.scheduler_name, Some(&node))
        });
        each(pods, |pod| create(&self.pods, pod)).await.context("creating the load")
    }

    /// Has the pods of a workload scheduled.
    async fn round<C: Contender>(&self, contender: C, workload: &Workload) -> Result<Round> {
        let beside = contender.beside(&self.control_plane).await?;
        let count = self.setup.size.measured;
        let group_pods = workload.group_pods.min(count);
        let pods = (0..count).map(|number| {
            let group = format!("measured-{}", number / group_pods);
            pod(&format!("measured-{number}"), &group, workload.ask, self.setup.scheduler_name, None)
        });
        each(pods, |pod| create(&self.pods, pod)).await.context("creating pods")?;
        let mut binds = Binds::watch(&self.client, self.pods.resource_url()).await?;

        let running = contender.start(beside, &self.control_plane).await?;
        let cpu_s = || usage::cpu_s(pid(&running)?);
        let counted = (count as f64 * COUNTED_SHARE) as usize;
        let wanted = match self.setup.until {
            Until::Counted => counted,
            Until::Told => count,
        };
        let deadline = Instant::now() + self.setup.size.limit;
        let (mut first, mut span) = (None, None);
        while binds.count() < wanted {
            match tokio::time::timeout_at(deadline, binds.next()).await {
                Ok(taken) => taken?,
                Err(_) => bail!("{} of {wanted} were bound in time:\n{}", binds.count(), running.output()),
            }
            if first.is_none() && binds.count() > 0 {
                first = Some((Instant::now(), cpu_s()?, binds.count()));
            }
            if let (None, Some((at, before_s, from)), true) = (span, first, binds.count() >= counted) {
                span = Some((at.elapsed(), cpu_s()? - before_s, binds.count() - from));
            }
        }
        let last = Instant::now();
        let events_after_s = match self.setup.until {
            Until::Counted => None,
            Until::Told => {
                self.all_told(count).await?;
                Some(last.elapsed().as_secs_f64())
            }
        };
        let peak_mib = usage::peak_mib(pid(&running)?)?;
        drop((binds, running));
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
        eventually(TOLD_WITHIN, || async {
            let told = self.events.list_metadata(&only).await?.items.len();
            ensure!(told >= count, "{told} of {count} pods have an event");
            Ok(())
        })
        .await
    }

    /// Deletes what a round made.
    async fn clear(&self) -> Result<()> {
        let only = ListParams::default().labels(MEASURED);
        let listed = self.pods.list_metadata(&only).await?;
        let names = listed.items.into_iter().map(|pod| pod.metadata.name.context("a name"));
        each(names, async |name| {
            self.pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
            Ok(())
        })
        .await?;
        eventually(CLEARED_WITHIN, || async {
            // Again each time: an event that was on its way when its sender ended may arrive after the first.
            self.events.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
            let left = self.pods.list_metadata(&only).await?.items.len();
            let told = self.events.list_metadata(&ListParams::default()).await?.items.len();
            ensure!(left + told == 0, "{left} pods and {told} events are left");
            Ok(())
        })
        .await
    }
}

fn pid(running: &impl Running) -> Result<u32> {
    running.pid().context("the scheduler has ended")
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
