//! A cluster without kubelets: node and pod objects in a real API server, and scheduling rounds on it.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future;
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Map, Value, json};
use testkit::{ControlPlane, eventually, usage};
use tokio::time::Instant;

use super::arrival::{Arrival, Waits};
use super::attempts;
use super::binds::{Binds, MEASURED};
use super::selection::{Load, Selection};
use super::turns;
use super::workload::{Constraint, HOST, HOSTNAME, Scene, Workload, ZONE, pod};
use super::{Contender, Running, Size};

pub(super) const NAMESPACE: &str = "bench";
/// Concurrent requests to the API server.
const AT_ONCE: usize = 32;
/// The number of load pods in a group with anti-affinity to each other.
const LOAD_GROUP: usize = 10;
/// If nodes are VMs, one in this many groups has anti-affinity by host: a few hundred DRS rules, below the limit of
/// 1000.
const BY_HOST_EVERY: usize = 10;
/// The share of measured pods after which a second time is taken: the last pods may wait for a back-off.
pub(super) const MOST_SHARE: f64 = 0.95;
const EVENTS_WITHIN: Duration = Duration::from_secs(60);
const CLEARED_WITHIN: Duration = Duration::from_secs(60);

/// When a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When every pod is bound.
    Bound,
    /// When every pod is bound and has its Scheduled event.
    EventsPosted,
}

#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub size: Size,
    /// The `schedulerName` of all pods.
    pub scheduler_name: &'static str,
    pub until: Until,
    pub arrival: Arrival,
}

/// The result of one contender on one workload.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// From the first bind to the last.
    pub pods_per_second: f64,
    /// From the first bind to the last, and to that of 95 % of the pods.
    pub took_s: f64,
    pub most_took_s: f64,
    /// Attempts that did not place their pod: see [`attempts`].
    pub failed_attempts: usize,
    pub cpu_ms_per_pod: f64,
    pub peak_mib: f64,
    /// From the last bind to the last Scheduled event, with [`Until::EventsPosted`].
    pub events_after_s: Option<f64>,
    /// Of the pods created at a constant rate, with [`Arrival::During`].
    pub waits: Option<Waits>,
}

pub struct Cluster {
    control_plane: ControlPlane,
    pub(super) setup: Setup,
    /// Nodes are VMs. A measured contender labels them with their hosts.
    on_machines: bool,
    pub(super) client: kube::Client,
    pub(super) pods: Api<Pod>,
    events: Api<Event>,
}

impl Cluster {
    pub async fn start(setup: Setup) -> Result<Cluster> {
        Cluster::start_on(setup, &[]).await
    }

    /// With nodes that are VMs of a vCenter, one per system UUID. They have no host labels yet.
    pub async fn start_on(setup: Setup, system_uuids: &[String]) -> Result<Cluster> {
        let on_machines = !system_uuids.is_empty();
        ensure!(
            !on_machines || system_uuids.len() == setup.size.nodes,
            "{} VMs for {} nodes",
            system_uuids.len(),
            setup.size.nodes
        );
        let control_plane = ControlPlane::start_with(&[
            "--max-requests-inflight=0",
            "--max-mutating-requests-inflight=0",
            "--enable-priority-and-fairness=false",
            // Claims and volumes can be deleted between rounds without the controller that checks whether they are in use.
            "--disable-admission-plugins=TaintNodesByCondition,StorageObjectInUseProtection",
        ])
        .await?;
        control_plane.namespace(NAMESPACE).await?;
        let client = control_plane.client().await?;
        let size = setup.size;
        let nodes: Api<Node> = Api::all(client.clone());
        let objects = (0..size.nodes).map(|number| {
            let name = node_name(number);
            let capacity = json!({ "cpu": "4", "memory": "32Gi", "pods": "110" });
            let ready = json!([{ "type": "Ready", "status": "True", "reason": "Bench", "message": "",
                "lastHeartbeatTime": null, "lastTransitionTime": null }]);
            let mut node = json!({
                "metadata": { "name": name, "labels": { HOSTNAME: name, ZONE: format!("zone-{}", number % size.zones) } },
                "status": { "capacity": capacity, "allocatable": capacity, "conditions": ready },
            });
            match system_uuids.get(number) {
                Some(uuid) => node["status"]["nodeInfo"] = node_info(uuid),
                None => node["metadata"]["labels"][HOST] = json!(format!("esx-{}", number % size.hosts)),
            }
            Ok::<Node, anyhow::Error>(serde_json::from_value(node)?)
        });
        each(objects, |node| create(&nodes, node)).await.context("creating nodes")?;
        let (pods, events) = (Api::namespaced(client.clone(), NAMESPACE), Api::namespaced(client.clone(), NAMESPACE));
        Ok(Cluster { control_plane, setup, on_machines, client, pods, events })
    }

    #[must_use]
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// Runs every selected round, the contenders in turn. `show` formats a round's line for people and its figures.
    /// Returns the figures of every turn by load, workload and contender.
    #[allow(clippy::print_stderr)]
    pub async fn rounds<C: Contender>(
        &self,
        contenders: &[C],
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
            for workload in workloads.iter().filter(|workload| workload.is_measured_in(load)) {
                let taking_part = contenders.iter().filter(|contender| contender.takes_part(workload));
                let mut rounds: Vec<(C, Vec<f64>, Vec<Value>)> =
                    taking_part.map(|contender| (*contender, Vec::new(), Vec::new())).collect();
                self.prepare(workload.scene).await.with_context(|| format!("preparing {}", workload.name))?;
                loop {
                    for (contender, rates, turns) in &mut rounds {
                        if !rates.is_empty() && !contender.takes_turns() {
                            continue;
                        }
                        let (load, workload_name, name) = (load.name(), workload.name, contender.name());
                        let round = match workload.scene {
                            Scene::Plain => Box::pin(self.round(*contender, workload)).await,
                            scene => Box::pin(self.round_of(*contender, workload, scene)).await,
                        };
                        let round = round.with_context(|| format!("{load}, {workload_name}, {name}"))?;
                        let (line, figures) = show(&round);
                        eprintln!("bench: {load:<7} {workload_name:<24} {name:<15} {line}");
                        rates.push(round.pods_per_second);
                        turns.push(figures);
                    }
                    let in_turn = rounds.iter().filter(|(contender, ..)| contender.takes_turns());
                    let in_turn = in_turn.map(|(_, rates, _)| rates.as_slice());
                    if !turns::is_another_needed(selection.turns(), in_turn) {
                        break;
                    }
                }
                self.remove(workload.scene).await.with_context(|| format!("after {}", workload.name))?;
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

    /// Creates the pods that already run, in groups with anti-affinity.
    async fn fill(&self) -> Result<()> {
        let pods = (0..self.setup.size.running).map(|number| {
            let group = format!("load-{}", number / LOAD_GROUP);
            let node = node_name(number % self.setup.size.nodes);
            let by_host = self.on_machines && (number / LOAD_GROUP).is_multiple_of(BY_HOST_EVERY);
            let constraint = if by_host { Constraint::AntiAffinityByHost } else { Constraint::AntiAffinityByNode };
            pod(&format!("load-{number}"), &group, constraint, self.setup.scheduler_name, Some(&node))
        });
        each(pods, |pod| create(&self.pods, pod)).await.context("creating the load")
    }

    /// Lets the contender schedule the pods of a workload.
    async fn round<C: Contender>(&self, contender: C, workload: &Workload) -> Result<Round> {
        let beside = contender.beside(&self.control_plane).await?;
        let count = self.setup.size.measured;
        let all_at_once = || each(self.measured(workload, 0..count), |pod| create(&self.pods, pod));
        if self.setup.arrival == Arrival::Before {
            all_at_once().await.context("creating pods")?;
        }
        let mut binds = Binds::watch(&self.client, self.pods.resource_url()).await?;

        let running = contender.start(beside, &self.control_plane).await?;
        let coming = async {
            match self.setup.arrival {
                Arrival::Before => Ok(()),
                Arrival::During { .. } => all_at_once().await.context("creating pods"),
            }
        };
        let (span, ()) = future::try_join(self.span(&mut binds, &running), coming).await?;
        let last = Instant::now();
        let events_after_s = match self.setup.until {
            Until::Bound => None,
            Until::EventsPosted => {
                self.all_events_posted(count).await?;
                Some(last.elapsed().as_secs_f64())
            }
        };
        let waits = match self.setup.arrival {
            Arrival::Before => None,
            Arrival::During { evenly, per_second } => {
                let pods = self.measured(workload, count..count + evenly);
                let waits = self.waits(&mut binds, pods, count + evenly, per_second);
                Some(waits.await.with_context(|| running.output())?)
            }
        };
        let peak_mib = usage::peak_mib(pid(&running)?)?;
        // After everything that is measured: the contender needs CPU time and memory to answer.
        let metrics = running.metrics().await.context("reading metrics")?;
        let failed_attempts = metrics.as_deref().map_or(Ok(0), attempts::failed)?;
        drop((binds, running));
        self.clear().await?;
        let pods = span.pods.max(1) as f64;
        Ok(Round {
            pods_per_second: pods / span.took.as_secs_f64(),
            took_s: span.took.as_secs_f64(),
            most_took_s: span.most_took.as_secs_f64(),
            failed_attempts,
            cpu_ms_per_pod: span.cpu_s * 1000.0 / pods,
            peak_mib,
            events_after_s,
            waits,
        })
    }

    /// The pods of a workload with these numbers.
    pub(super) fn measured(&self, workload: &Workload, numbers: Range<usize>) -> impl Iterator<Item = Result<Pod>> {
        let (constraint, scheduler_name) = (workload.constraint, self.setup.scheduler_name);
        let group_pods = workload.group_pods.min(self.setup.size.measured);
        numbers.map(move |number| {
            let group = format!("measured-{}", number / group_pods);
            pod(&format!("measured-{number}"), &group, constraint, scheduler_name, None)
        })
    }

    /// Watches until every pod is bound. Measures from the first bind.
    async fn span(&self, binds: &mut Binds, running: &impl Running) -> Result<Span> {
        let cpu_s = || usage::cpu_s(pid(running)?);
        let count = self.setup.size.measured;
        let most = (count as f64 * MOST_SHARE) as usize;
        let deadline = Instant::now() + self.setup.size.limit;
        let (mut first, mut most_took) = (None, None);
        while binds.count() < count {
            match tokio::time::timeout_at(deadline, binds.next()).await {
                Ok(taken) => taken?,
                Err(_) => bail!("{} of {count} were bound in time:\n{}", binds.count(), running.output()),
            }
            if first.is_none() && binds.count() > 0 {
                first = Some((Instant::now(), cpu_s()?, binds.count()));
            }
            if let (None, Some((at, ..))) = (most_took, first)
                && binds.count() >= most
            {
                most_took = Some(at.elapsed());
            }
        }
        let (at, before_s, from) = first.context("nothing was measured")?;
        let took = at.elapsed();
        let most_took = most_took.unwrap_or(took);
        Ok(Span { took, most_took, cpu_s: cpu_s()? - before_s, pods: binds.count() - from })
    }

    /// How long pods created one after the other wait: from the reply to the creation to the bind in the watch.
    async fn waits(
        &self,
        binds: &mut Binds,
        pods: impl Iterator<Item = Result<Pod>>,
        wanted: usize,
        per_second: u32,
    ) -> Result<Waits> {
        let start = Instant::now();
        let coming = pods.zip(0u32..).map(|(pod, index)| async move {
            let pod = pod?;
            let name = pod.metadata.name.clone().context("a name")?;
            tokio::time::sleep_until(start + Duration::from_secs(1) / per_second * index).await;
            create(&self.pods, pod).await?;
            Ok((name, Instant::now()))
        });
        let deadline = start + self.setup.size.limit;
        let binding = async {
            while binds.count() < wanted {
                match tokio::time::timeout_at(deadline, binds.next()).await {
                    Ok(taken) => taken?,
                    Err(_) => bail!("{} of {wanted} were bound in time", binds.count()),
                }
            }
            Ok(())
        };
        let (created, ()) = future::try_join(future::try_join_all(coming), binding).await?;
        let waits = created.into_iter().map(|(name, at)| {
            // If the bind was observed before the reply, the wait is zero.
            Ok(binds.observed(&name).context("a bind")?.saturating_duration_since(at))
        });
        Waits::of(waits.collect::<Result<_>>()?)
    }

    /// Waits for the Scheduled event of each pod.
    pub(super) async fn all_events_posted(&self, count: usize) -> Result<()> {
        let only = ListParams::default().fields("reason=Scheduled");
        eventually(EVENTS_WITHIN, || async {
            let events = self.events.list_metadata(&only).await?.items.len();
            ensure!(events >= count, "{events} of {count} pods have an event");
            Ok(())
        })
        .await
    }

    /// Deletes the pods and events of a round.
    pub(super) async fn clear(&self) -> Result<()> {
        let only = ListParams::default().labels(MEASURED);
        let listed = self.pods.list_metadata(&only).await?;
        let names = listed.items.into_iter().map(|pod| pod.metadata.name.context("a name"));
        each(names, async |name| {
            self.pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
            Ok(())
        })
        .await?;
        eventually(CLEARED_WITHIN, || async {
            // Repeated, because an event still in flight when its sender exited may arrive after the first deletion.
            self.events.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
            let left = self.pods.list_metadata(&only).await?.items.len();
            let events = self.events.list_metadata(&ListParams::default()).await?.items.len();
            ensure!(left + events == 0, "{left} pods and {events} events are left");
            Ok(())
        })
        .await
    }
}

/// The span from the first bind to the last.
struct Span {
    took: Duration,
    most_took: Duration,
    cpu_s: f64,
    pods: usize,
}

/// A node's `nodeInfo` with only the system UUID.
fn node_info(system_uuid: &str) -> Value {
    let mut info = json!({ "systemUUID": system_uuid });
    for member in [
        "machineID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ] {
        info[member] = json!("");
    }
    info
}

pub(super) fn pid(running: &impl Running) -> Result<u32> {
    running.pid().context("the scheduler has exited")
}

pub(super) fn node_name(number: usize) -> String {
    format!("node-{number:05}")
}

/// Applies `work` to every item, concurrently.
pub(super) async fn each<T, F: Future<Output = Result<()>>>(
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

pub(super) async fn create<K>(api: &Api<K>, object: K) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}
