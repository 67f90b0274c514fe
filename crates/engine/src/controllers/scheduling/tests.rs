//! Tests the controller with a scripted API server, in virtual time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::future::BoxFuture;
use model::event::{Event, NodeFacts, PodFacts, Source, VcenterId};
use model::scheduling::{NodeSchedulingFacts, PodSchedulingFacts};
use model::{Parts, World};
use scheduler::{AttemptResult, Configuration, Figures, plugins};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Attempt, Scheduling, SchedulingExecutor, SchedulingMetrics, SchedulingPorts, SchedulingSettings};
use crate::ports::{
    Binder, Binding, EventRecord, EventSink, PodLookup, PodName, PodStatusWriter, PortError, Regarding,
};
use crate::runtime::{Lease, Rate, Runtime, RuntimeSettings, STALE_MAX};

/// What the server does with a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bind {
    Succeeds,
    /// Takes effect without a response.
    SucceedsSilently,
    /// The same, and then the server refuses to show the pod for a while, as it does until it has read its roles.
    SucceedsUnseen,
    /// Takes effect a second later, without a response.
    SucceedsLate,
    /// No effect, no response.
    Fails,
    /// Another client bound the pod first.
    BoundElsewhere,
    /// The pod was deleted.
    Deleted,
}

#[derive(Default)]
struct State {
    /// The outcomes of the first bindings of a pod, in order; all others succeed.
    script: BTreeMap<String, Vec<Bind>>,
    /// The node of each pod, as stored by the server.
    nodes: BTreeMap<String, Option<String>>,
    /// Bindings that take effect later.
    late: BTreeMap<String, (Instant, String)>,
    /// Pods that the server does not show yet.
    unseen_until: BTreeMap<String, Instant>,
    binds: Vec<(String, String)>,
    in_flight: usize,
    in_flight_max: usize,
    posted: Vec<(String, &'static str)>,
    conditions: Vec<(String, String)>,
    /// Nominations and evictions that have taken effect.
    preemption: Vec<String>,
    /// How long the server takes for a condition, and how often it fails first.
    condition_takes: Duration,
    condition_failures: usize,
    results: Vec<AttemptResult>,
    figures: Vec<Figures>,
}

struct Api {
    state: Mutex<State>,
    events: mpsc::Sender<Event>,
}

impl Api {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the lock is not poisoned")
    }

    fn take_effect(&self, binding: &Binding, what: Bind) {
        let mut state = self.state();
        state.in_flight -= 1;
        let name = binding.pod.clone();
        match what {
            Bind::Succeeds | Bind::SucceedsSilently => drop(state.nodes.insert(name, Some(binding.node.clone()))),
            Bind::SucceedsUnseen => {
                state.unseen_until.insert(name.clone(), Instant::now() + Duration::from_secs(20));
                state.nodes.insert(name, Some(binding.node.clone()));
            }
            Bind::BoundElsewhere => drop(state.nodes.insert(name, Some("elsewhere".to_owned()))),
            Bind::Deleted => drop(state.nodes.remove(&name)),
            Bind::SucceedsLate => {
                let at = Instant::now() + Duration::from_secs(1);
                state.late.insert(name, (at, binding.node.clone()));
            }
            Bind::Fails => {}
        }
    }

    async fn watch_shows(&self, pod: PodFacts) {
        self.events.send(Event::PodApplied(pod)).await.expect("the runtime runs");
    }
}

impl Binder for Api {
    fn bind<'a>(&'a self, binding: &'a Binding) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async move {
            let what = {
                let mut state = self.state();
                state.in_flight += 1;
                state.in_flight_max = state.in_flight_max.max(state.in_flight);
                state.binds.push((binding.pod.clone(), binding.node.clone()));
                let script = state.script.entry(binding.pod.clone()).or_default();
                if script.is_empty() { Bind::Succeeds } else { script.remove(0) }
            };
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.take_effect(binding, what);
            match what {
                Bind::Succeeds => {
                    self.watch_shows(pod(&binding.pod, Some(&binding.node))).await;
                    Ok(())
                }
                Bind::SucceedsSilently | Bind::SucceedsUnseen | Bind::SucceedsLate | Bind::Fails => {
                    Err(PortError::Transient("no answer".to_owned()))
                }
                Bind::BoundElsewhere => Err(PortError::Invalid("it is bound".to_owned())),
                Bind::Deleted => Err(PortError::NotFound(binding.pod.clone())),
            }
        })
    }
}

impl PodLookup for Api {
    fn read<'a>(&'a self, _: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<PodFacts>, PortError>> {
        let mut state = self.state();
        if state.late.get(name).is_some_and(|(at, _)| *at <= Instant::now())
            && let Some((_, node)) = state.late.remove(name)
        {
            state.nodes.insert(name.to_owned(), Some(node));
        }
        let found = state.nodes.get(name).map(|node| pod(name, node.as_deref()));
        let is_unseen = state.unseen_until.get(name).is_some_and(|until| Instant::now() < *until);
        Box::pin(async move { if is_unseen { Err(PortError::Permanent("HTTP 403".to_owned())) } else { Ok(found) } })
    }
}

impl PodStatusWriter for Api {
    fn not_scheduled<'a>(
        &'a self,
        pod: &'a PodName,
        _: &'a str,
        message: &'a str,
        nominated: Option<Option<&'a str>>,
    ) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async move {
            let takes = {
                let mut state = self.state();
                if let Some(left) = state.condition_failures.checked_sub(1) {
                    state.condition_failures = left;
                    return Err(PortError::Transient("busy".to_owned()));
                }
                state.conditions.push((pod.name.clone(), message.to_owned()));
                state.condition_takes
            };
            tokio::time::sleep(takes).await;
            if let Some(Some(node)) = nominated {
                self.state().preemption.push(format!("{} is nominated to {node}", pod.name));
            }
            Ok(())
        })
    }

    fn nominate<'a>(&'a self, _: &'a PodName, _: Option<&'a str>) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }

    fn disrupt<'a>(&'a self, pod: &'a PodName, _: &'a str) -> BoxFuture<'a, Result<(), PortError>> {
        self.state().preemption.push(format!("{} is marked", pod.name));
        Box::pin(async { Ok(()) })
    }

    fn delete<'a>(&'a self, pod: &'a PodName) -> BoxFuture<'a, Result<(), PortError>> {
        self.state().preemption.push(format!("{} is deleted", pod.name));
        Box::pin(async { Ok(()) })
    }
}

impl EventSink for Api {
    fn post<'a>(&'a self, record: &'a EventRecord) -> BoxFuture<'a, Result<(), PortError>> {
        let name = match &record.occurrence.regarding {
            Regarding::Pod { name, .. } | Regarding::Node { name, .. } => name.clone(),
        };
        self.state().posted.push((name, record.occurrence.reason));
        Box::pin(async { Ok(()) })
    }
}

impl SchedulingMetrics for Api {
    fn attempted(&self, attempt: &Attempt<'_>) {
        self.state().results.push(attempt.result);
    }
    fn decided(&self, _: Duration) {}
    fn figures(&self, figures: &Figures) {
        self.state().figures.push(figures.clone());
    }
    fn preempted(&self, _: usize) {}

    fn doubted(&self, _: &'static str) {}

    fn status_dropped(&self) {
        panic!("a status was dropped");
    }
}

fn pod(name: &str, node: Option<&str>) -> PodFacts {
    let facts = PodSchedulingFacts {
        scheduler_name: "bridger".to_owned(),
        container_count: 1,
        ..PodSchedulingFacts::default()
    };
    PodFacts {
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        node: node.map(str::to_owned),
        scheduling: Some(Arc::new(facts)),
        ..PodFacts::default()
    }
}

fn node(name: &str, allowed_pods: u32) -> Event {
    let facts = NodeSchedulingFacts { allowed_pods: allowed_pods.into(), ..NodeSchedulingFacts::default() };
    Event::NodeApplied(NodeFacts {
        name: name.to_owned(),
        ready: true,
        scheduling: Some(Arc::new(facts)),
        ..NodeFacts::default()
    })
}

fn sources() -> Vec<Source> {
    model::sources_for(Parts::SCHEDULING).map(|row| row.source).collect()
}

struct Stage {
    api: Arc<Api>,
    events: mpsc::Sender<Event>,
}

impl Stage {
    /// Starts a scheduler with these nodes and pods; all sources are in sync except the last.
    async fn start(nodes: &[(&str, u32)], pods: &[&str], script: &[(&str, &[Bind])]) -> Stage {
        Stage::start_with(&SchedulingSettings::default(), nodes, pods, script).await
    }

    async fn start_with(
        settings: &SchedulingSettings,
        nodes: &[(&str, u32)],
        pods: &[&str],
        script: &[(&str, &[Bind])],
    ) -> Stage {
        let (events, received) = mpsc::channel(100_000);
        let script = script.iter().map(|(pod, binds)| ((*pod).to_owned(), binds.to_vec())).collect();
        let state =
            State { script, nodes: pods.iter().map(|pod| ((*pod).to_owned(), None)).collect(), ..State::default() };
        let api = Arc::new(Api { state: Mutex::new(state), events: events.clone() });
        let executor = SchedulingExecutor(SchedulingPorts { binder: api.clone(), pods: api.clone() });
        let configuration = Configuration::with_name("bridger", &plugins::standard()).expect("the default profile");
        let mut runtime = Runtime::new(World::default(), &RuntimeSettings::default(), api.clone());
        let scheduling = Scheduling::new(configuration, settings.clone(), api.clone(), Instant::now());
        runtime.add(scheduling, Arc::new(executor), Lease::always());
        tokio::spawn(runtime.run(received));
        let stage = Stage { api, events };
        let all = sources();
        for source in &all {
            stage.send(Event::RelistBegan(*source)).await;
        }
        for (name, allowed) in nodes {
            stage.send(node(name, *allowed)).await;
        }
        for name in pods {
            stage.send(Event::PodApplied(pod(name, None))).await;
        }
        for source in &all[..all.len() - 1] {
            stage.send(Event::RelistEnded(*source)).await;
        }
        stage
    }

    async fn in_sync(&self) {
        let last = *sources().last().expect("there are sources");
        self.send(Event::RelistEnded(last)).await;
    }

    async fn send(&self, event: Event) {
        self.events.send(event).await.expect("the runtime runs");
    }

    async fn after(&self, seconds: u64) -> MutexGuard<'_, State> {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.api.state()
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_bound_before_all_sources_are_in_sync_and_then_bindings_in_flight_are_bounded() {
    let names: Vec<String> = (0..500).map(|number| format!("p{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let stage = Stage::start(&[("n1", 300), ("n2", 300)], &names, &[]).await;
    assert_eq!(stage.after(60).await.binds.len(), 0);
    stage.in_sync().await;
    let state = stage.after(60).await;
    assert_eq!(state.binds.len(), 500, "each pod once");
    assert_eq!(state.in_flight_max, SchedulingSettings::default().binds_in_flight_max);
    assert!(state.posted.iter().all(|(_, reason)| *reason == "Scheduled"));
    assert_eq!((state.posted.len(), state.results.len()), (500, 500));
    assert!(state.nodes.values().all(Option::is_some));
}

#[tokio::test(start_paused = true)]
async fn bindings_keep_to_the_rate_of_writes() {
    let names: Vec<String> = (0..500).map(|number| format!("p{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let writes = Some(Rate { per_second: 10, burst: 20 });
    let settings = SchedulingSettings { writes, ..SchedulingSettings::default() };
    let stage = Stage::start_with(&settings, &[("n1", 1000)], &names, &[]).await;
    stage.in_sync().await;
    // The burst, then ten per second.
    for (after, expected) in [(1, 30), (1, 40), (8, 120)] {
        let bound = stage.after(after).await.binds.len();
        assert!((expected - 2..=expected + 2).contains(&bound), "{bound} bindings, {expected} expected");
    }
    assert_eq!(stage.after(60).await.binds.len(), 500);
}

#[tokio::test(start_paused = true)]
async fn after_a_failed_binding_the_pod_is_read_again_before_anything_is_decided() {
    for (first, binds, scheduled, ends_at) in [
        (Bind::Succeeds, 1, 1, Some(Some("n1"))),
        (Bind::SucceedsSilently, 1, 1, Some(Some("n1"))),
        (Bind::SucceedsUnseen, 1, 1, Some(Some("n1"))),
        (Bind::SucceedsLate, 1, 1, Some(Some("n1"))),
        (Bind::Fails, 2, 1, Some(Some("n1"))),
        (Bind::BoundElsewhere, 1, 0, Some(Some("elsewhere"))),
        (Bind::Deleted, 1, 0, None),
    ] {
        let stage = Stage::start(&[("n1", 10)], &["p"], &[("p", &[first])]).await;
        stage.in_sync().await;
        let state = stage.after(120).await;
        assert_eq!(state.binds.len(), binds, "{first:?}");
        let reported = state.posted.iter().filter(|(_, reason)| *reason == "Scheduled").count();
        assert_eq!(reported, scheduled, "{first:?}");
        assert_eq!(state.nodes.get("p").map(Option::as_deref), ends_at, "{first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_binding_frees_the_node_for_other_pods() {
    // The node has room for one pod. The pod that is scheduled first is bound elsewhere, so the other pod gets the
    // room.
    let script: &[(&str, &[Bind])] = &[("a", &[Bind::BoundElsewhere])];
    let stage = Stage::start(&[("n1", 1)], &["a", "b"], script).await;
    stage.in_sync().await;
    let state = stage.after(600).await;
    assert_eq!(state.nodes["a"].as_deref(), Some("elsewhere"));
    assert_eq!(state.nodes["b"].as_deref(), Some("n1"));
}

#[tokio::test(start_paused = true)]
async fn number_3_a_place_stays_taken_while_it_is_not_known_whether_its_pod_was_bound() {
    // The node has room for one pod.
    let script: &[(&str, &[Bind])] = &[("a", &[Bind::SucceedsUnseen])];
    let stage = Stage::start(&[("n1", 1)], &["a", "b"], script).await;
    stage.in_sync().await;
    assert_eq!(stage.after(600).await.binds, [("a".to_owned(), "n1".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn an_unschedulable_pod_is_reported_once_and_bound_when_a_node_is_added() {
    let stage = Stage::start(&[("n1", 0)], &["p"], &[]).await;
    stage.in_sync().await;
    {
        let state = stage.after(30).await;
        assert_eq!(state.binds.len(), 0);
        assert_eq!(state.conditions.len(), 1);
        assert_eq!(
            state.conditions[0].1,
            "0/1 nodes are available: 1 Too many pods. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        );
        assert_eq!(state.posted, [("p".to_owned(), "FailedScheduling")]);
    }
    stage.send(node("n2", 1)).await;
    let state = stage.after(30).await;
    assert_eq!(state.nodes["p"].as_deref(), Some("n2"));
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_cannot_be_written_is_repeated_at_once_and_with_the_next_attempt() {
    let reported = async |failures: usize, seconds: u64| {
        let stage = Stage::start(&[("n1", 0)], &["p"], &[]).await;
        stage.api.state().condition_failures = failures;
        stage.in_sync().await;
        stage.after(seconds).await.conditions.len()
    };
    assert_eq!(reported(3, 1).await, 1);
    // The pod is tried again after five minutes at the latest. Its message is the same then.
    assert_eq!(reported(4, 60).await, 0);
    assert_eq!(reported(4, 600).await, 1);
    assert_eq!(reported(0, 600).await, 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_evicted_before_the_nomination_is_written() {
    let stage = Stage::start(&[("n1", 1)], &[], &[]).await;
    stage.api.state().condition_takes = Duration::from_secs(1);
    stage.send(Event::PodApplied(pod("low", Some("n1")))).await;
    let mut high = pod("high", None);
    let facts = high.scheduling.as_deref().cloned().expect("it has facts");
    high.scheduling = Some(Arc::new(PodSchedulingFacts { priority: 10, ..facts }));
    stage.send(Event::PodApplied(high)).await;
    stage.in_sync().await;
    let state = stage.after(10).await;
    assert_eq!(state.preemption, ["high is nominated to n1", "low is marked", "low is deleted"]);
}

#[tokio::test(start_paused = true)]
async fn number_3_pods_are_placed_from_the_last_known_state_while_a_source_is_lost_or_listed_again_but_not_forever() {
    let stage = Stage::start(&[("n1", 10)], &[], &[]).await;
    stage.in_sync().await;
    drop(stage.after(1).await);
    let arrives = async |name: &str| {
        stage.api.state().nodes.insert(name.to_owned(), None);
        stage.send(Event::PodApplied(pod(name, None))).await;
    };
    // As after 410 Gone: the watch is lost, and no node is listed yet.
    stage.send(Event::Lost(Source::Nodes)).await;
    arrives("while-lost").await;
    assert_eq!(stage.after(1).await.binds.len(), 1);
    stage.send(Event::RelistBegan(Source::Nodes)).await;
    arrives("while-listed").await;
    assert_eq!(stage.after(1).await.nodes["while-listed"].as_deref(), Some("n1"));
    // The end of the list replaces what was known: n1 is gone.
    stage.send(node("n2", 10)).await;
    stage.send(Event::RelistEnded(Source::Nodes)).await;
    arrives("after-the-list").await;
    assert_eq!(stage.after(1).await.nodes["after-the-list"].as_deref(), Some("n2"));

    stage.send(Event::Lost(Source::Nodes)).await;
    drop(stage.after(STALE_MAX.as_secs() + 1).await);
    arrives("much-later").await;
    assert_eq!(stage.after(60).await.binds.len(), 3, "the last known state is too old");
    stage.send(Event::RelistBegan(Source::Nodes)).await;
    stage.send(node("n2", 10)).await;
    stage.send(Event::RelistEnded(Source::Nodes)).await;
    assert_eq!(stage.after(1).await.binds.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_first_decision_waits_for_vcenters_but_not_forever() {
    let vcenter = Source::Vcenter(VcenterId(0));
    let settings = SchedulingSettings { vcenters: vec![VcenterId(0)], ..SchedulingSettings::default() };
    let wait_max = settings.vcenter_wait_max.as_secs();
    let stage = Stage::start_with(&settings, &[("n1", 10)], &["p"], &[]).await;
    stage.in_sync().await;
    assert_eq!(stage.after(wait_max / 2).await.binds.len(), 0, "the vCenter has not been read");
    stage.send(Event::RelistBegan(vcenter)).await;
    stage.send(Event::RelistEnded(vcenter)).await;
    assert_eq!(stage.after(1).await.binds.len(), 1);

    let silent = Stage::start_with(&settings, &[("n1", 10)], &["p"], &[]).await;
    silent.in_sync().await;
    assert_eq!(silent.after(wait_max - 1).await.binds.len(), 0);
    assert_eq!(silent.after(2).await.binds.len(), 1, "the vCenter does not respond");

    // The end of the wait does not replace the sync with Kubernetes.
    let early = Stage::start_with(&settings, &[("n1", 10)], &["p"], &[]).await;
    assert_eq!(early.after(2 * wait_max).await.binds.len(), 0);
    early.in_sync().await;
    assert_eq!(early.after(1).await.binds.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn figures_are_published_soon_after_a_change_but_not_for_each_change() {
    let names: Vec<String> = (0..500).map(|number| format!("p{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let stage = Stage::start(&[("n1", 300)], &names, &[]).await;
    stage.in_sync().await;
    let reported = {
        let state = stage.after(60).await;
        let last = state.figures.last().expect("figures");
        assert_eq!((last.pending.unschedulable, last.binding, last.cache.pods), (200, 0, 300));
        state.figures.len()
    };
    assert!(reported < 20, "{reported} times for 500 pods");
    assert_eq!(stage.after(60).await.figures.len(), reported, "nothing happens any more");
}
