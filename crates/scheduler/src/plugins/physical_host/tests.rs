//! Hosts that take no pods, loaded hosts, and lifted terms with few hosts, from vSphere events to decisions.

use std::sync::Arc;
use std::time::Duration;

use model::event::{
    Event, HostConnection, HostFacts, HostLoadFacts, NodeFacts, PodFacts, TermFacts, WeightedTermFacts,
};
use model::scheduling::NodeSchedulingFacts;
use model::{LiftMode, LiftSettings, World};

use crate::config::Configuration;
use crate::explain::{Explanation, NodeExplanation, VerdictKind, explain};
use crate::testing::{apply, everything, host, host_applied, id, node, of_filters, pod, runs_on, world_with};
use crate::{Effect, Input, PodEvent, Scheduler, plugins};

const TAKES_NO_PODS: &str = "node(s) run on a physical host that takes no pods";

fn loaded(name: &str, cpu_percent: u64, memory_percent: u64) -> HostFacts {
    let load = HostLoadFacts {
        cpu_used_mhz: cpu_percent * 20,
        cpu_capacity_mhz: 2000,
        memory_used_mib: memory_percent * 640,
        memory_capacity_mib: 64_000,
    };
    HostFacts { load: Some(load), ..host(name) }
}

fn virtual_node(name: &str, ready: bool) -> NodeFacts {
    NodeFacts { dns_names: vec![format!("{name}.example")], ready, ..node(name) }
}

/// Nodes and the hosts they run on.
fn cluster(mode: LiftMode, nodes: &[(&str, &str)]) -> World {
    let mut world = world_with(LiftSettings { mode, ..LiftSettings::default() }, &[]);
    for (node, on) in nodes {
        world.apply(host_applied(host(on)));
        world.apply(runs_on(node, on));
        world.apply(Event::NodeApplied(virtual_node(node, true)));
    }
    world
}

fn configuration() -> Configuration {
    Configuration::with_name("bridger", &plugins::standard()).expect("the default profile works")
}

fn explained(world: &World, pod: &str) -> Explanation {
    explain(world, id(world, pod), &configuration().profiles()[0]).expect("no plugin fails")
}

/// For each node: the plugin that rejects it, `None` if it is feasible.
fn refusing(world: &World, pod: &str) -> Vec<Option<String>> {
    explained(world, pod).nodes.into_iter().map(|node| node.plugin).collect()
}

fn term(app: &str) -> TermFacts {
    model::testing::term(model::testing::HOSTNAME, app)
}

/// A pod of an app whose pods have anti-affinity against each other.
fn replica(name: &str, on: Option<&str>) -> PodFacts {
    let labels = [("app".to_owned(), "web".to_owned())].into();
    PodFacts { labels, anti_affinity: vec![term("web")], node: on.map(str::to_owned), ..pod(name) }
}

/// A scheduler that follows the world.
struct Stage {
    world: World,
    scheduler: Scheduler,
    now: Duration,
}

impl Stage {
    fn of(world: World) -> Self {
        let mut scheduler = Scheduler::new(configuration(), 1);
        scheduler.observe(Duration::ZERO, &world, &everything());
        Self { world, scheduler, now: Duration::ZERO }
    }

    /// Applies the event and schedules. Returns, for the waiting pods, reasons of yielding, nodes they are bound to and
    /// messages of rejections.
    fn after(&mut self, event: Event) -> Vec<String> {
        self.now += Duration::from_secs(60);
        let changes = apply(&mut self.world, event);
        self.scheduler.observe(self.now, &self.world, &changes);
        let effects = self.scheduler.step(self.now, &mut self.world, Input::Schedule { at_most: 10 });
        let results = effects.into_iter().filter_map(|effect| match effect {
            Effect::Bind { node, .. } => Some(node),
            Effect::SetCondition { message, .. } => Some(of_filters(&message).to_owned()),
            Effect::PostEvent { event: PodEvent::Yielded(event), .. } => Some(event.reason.to_owned()),
            _ => None,
        });
        results.collect()
    }
}

#[test]
fn hosts_in_maintenance_and_unreachable_hosts_take_no_pods() {
    use HostConnection::{Connected, Disconnected, NotResponding};
    // Whether the node is ready, the connection and maintenance mode of its host; whether it takes pods.
    let cases = [
        (true, Connected, false, true),
        (true, Connected, true, false),
        (false, Connected, true, false),
        // Only vCenter has lost the connection to the host; the node still runs there.
        (true, Disconnected, false, true),
        (false, Disconnected, false, false),
        (false, NotResponding, false, false),
        // Other problems of a node are reported by its taints.
        (false, Connected, false, true),
    ];
    for case @ (ready, connection, maintenance, takes) in cases {
        let mut world = cluster(LiftMode::Strict, &[("n1", "esx-1"), ("n2", "esx-2")]);
        world.apply(host_applied(HostFacts { connection, maintenance, ..host("esx-1") }));
        world.apply(Event::NodeApplied(virtual_node("n1", ready)));
        world.apply(Event::PodApplied(pod("web")));
        let explained = explained(&world, "web");
        let NodeExplanation { verdict, plugin, reason, blocker, .. } = &explained.nodes[0];
        let expected = if takes {
            (VerdictKind::Feasible, None, None)
        } else {
            (VerdictKind::UnschedulableAndUnresolvable, Some("PhysicalHost"), Some(TAKES_NO_PODS))
        };
        assert_eq!((*verdict, plugin.as_deref(), reason.as_deref()), expected, "{case:?}");
        assert_eq!((blocker, explained.feasible), (&None, 1 + usize::from(takes)), "{case:?}");
    }
}

#[test]
fn a_waiting_pod_is_bound_when_its_host_is_available_again() {
    let waits = format!("0/1 nodes are available: 1 {TAKES_NO_PODS}.");
    let in_maintenance = || host_applied(HostFacts { maintenance: true, ..host("esx-1") });
    let mut stage = Stage::of(cluster(LiftMode::Strict, &[("n1", "esx-1")]));
    assert!(stage.after(in_maintenance()).is_empty());
    assert_eq!(stage.after(Event::PodApplied(pod("web"))), [waits.as_str()]);
    assert_eq!(stage.after(host_applied(host("esx-1"))), ["n1"]);

    let lost = || host_applied(HostFacts { connection: HostConnection::Disconnected, ..host("esx-1") });
    let mut stage = Stage::of(cluster(LiftMode::Strict, &[("n1", "esx-1")]));
    stage.after(lost());
    stage.after(Event::NodeApplied(virtual_node("n1", false)));
    assert_eq!(stage.after(Event::PodApplied(pod("web"))), [waits.as_str()]);
    // The host is still disconnected, but the node is ready again, so the host runs.
    assert_eq!(stage.after(Event::NodeApplied(virtual_node("n1", true))), ["n1"]);
}

#[test]
fn less_loaded_hosts_score_higher() {
    let nodes = [("n1", "esx-1"), ("n2", "esx-2"), ("n3", "esx-3"), ("n4", "esx-4")];
    let mut world = cluster(LiftMode::Strict, &nodes);
    world.apply(Event::PodApplied(pod("web")));
    let scores = |world: &World, pod: &str| -> Vec<Option<i64>> {
        let of = |node: &NodeExplanation| node.scores.as_ref().and_then(|scores| scores.get("PhysicalHost").copied());
        explained(world, pod).nodes.iter().map(of).collect()
    };
    assert_eq!(scores(&world, "web"), [None; 4], "the plugin skips if no load is known");
    // The scarcer of cpu and memory counts. A host with unknown load counts as half used.
    for facts in [loaded("esx-1", 90, 10), loaded("esx-2", 20, 40), loaded("esx-3", 5, 60)] {
        world.apply(host_applied(facts));
    }
    assert_eq!(scores(&world, "web"), [10, 60, 40, 50].map(Some));
    assert_eq!(explained(&world, "web").best, ["n2"]);

    // If a lifted preferred term applies too, each counts half.
    world.apply(Event::PodApplied(PodFacts { anti_affinity: Vec::new(), ..replica("there", Some("n2")) }));
    let rather_not = WeightedTermFacts { weight: 1, term: term("web") };
    world.apply(Event::PodApplied(PodFacts { preferred_anti_affinity: vec![rather_not], ..pod("shy") }));
    assert_eq!(scores(&world, "shy"), [55, 30, 70, 75].map(Some));

    let mut stage = Stage::of(cluster(LiftMode::Strict, &nodes));
    for facts in [loaded("esx-1", 30, 10), loaded("esx-2", 20, 40), loaded("esx-3", 5, 60), loaded("esx-4", 31, 0)] {
        stage.after(host_applied(facts));
    }
    assert_eq!(stage.after(Event::PodApplied(pod("web"))), ["n1"]);
}

#[test]
fn lifted_anti_affinity_follows_a_vm_to_another_host() {
    let mut world = cluster(LiftMode::Strict, &[("n1", "esx-1"), ("n2", "esx-1"), ("n3", "esx-2")]);
    world.apply(Event::PodApplied(replica("web-1", Some("n1"))));
    world.apply(Event::PodApplied(replica("web-2", None)));
    let (by_node, by_host) = (Some("InterPodAffinity".to_owned()), Some("PhysicalHost".to_owned()));
    assert_eq!(refusing(&world, "web-2"), [by_node.clone(), by_host.clone(), None]);
    let in_the_way = "pod default/web-1 on n1 (host esx-1), which this pod avoids";
    assert_eq!(explained(&world, "web-2").nodes[1].blocker.as_deref(), Some(in_the_way));
    // If the host takes no pods, no pod blocks the node.
    world.apply(host_applied(HostFacts { maintenance: true, ..host("esx-1") }));
    let second = explained(&world, "web-2").nodes.remove(1);
    assert_eq!((second.reason.as_deref(), second.blocker), (Some(TAKES_NO_PODS), None));
    world.apply(host_applied(host("esx-1")));
    world.apply(runs_on("n1", "esx-2"));
    assert_eq!(refusing(&world, "web-2"), [by_node, None, by_host]);
}

/// A node that Kubernetes marks as cordoned or not.
fn cordoned(name: &str, unschedulable: bool) -> Event {
    let mut facts = virtual_node(name, true);
    let scheduling = facts.scheduling.as_deref().cloned().unwrap_or_default();
    facts.scheduling = Some(Arc::new(NodeSchedulingFacts { unschedulable, ..scheduling }));
    Event::NodeApplied(facts)
}

#[test]
fn relaxed_terms_yield_if_they_are_the_only_reason_that_no_node_fits() {
    let nodes = [("n1", "esx-1"), ("n2", "esx-1"), ("n3", "esx-2")];
    let by = |plugin: &str| Some(plugin.to_owned());
    for (mode, of_second) in [(LiftMode::Strict, by("PhysicalHost")), (LiftMode::Relaxed, None)] {
        let mut world = cluster(mode, &nodes);
        world.apply(Event::PodApplied(replica("web-1", Some("n1"))));
        world.apply(Event::PodApplied(replica("web-2", None)));
        // While a node on another host is feasible, lifted terms apply in both modes.
        assert_eq!(refusing(&world, "web-2"), [by("InterPodAffinity"), by("PhysicalHost"), None]);
        world.apply(cordoned("n3", true));
        let expected = [by("InterPodAffinity"), of_second.clone(), by("NodeUnschedulable")];
        assert_eq!(refusing(&world, "web-2"), expected, "{mode:?}");
        // The node is schedulable again, but its host takes no pods.
        world.apply(cordoned("n3", false));
        world.apply(host_applied(HostFacts { maintenance: true, ..host("esx-2") }));
        assert_eq!(refusing(&world, "web-2"), [by("InterPodAffinity"), of_second, by("PhysicalHost")], "{mode:?}");
        // Another plugin rejects the node too, so yielding would not help.
        world.apply(cordoned("n2", true));
        let expected = [by("InterPodAffinity"), by("NodeUnschedulable"), by("PhysicalHost")];
        assert_eq!(refusing(&world, "web-2"), expected, "{mode:?}");
    }
}

#[test]
fn terms_that_yielded_apply_again_to_the_next_pod() {
    let nodes = [("n1", "esx-1"), ("n2", "esx-1"), ("n3", "esx-1"), ("n4", "esx-2")];
    let mut stage = Stage::of(cluster(LiftMode::Relaxed, &nodes));
    stage.after(cordoned("n4", true));
    stage.after(Event::PodApplied(replica("web-1", Some("n1"))));
    let mut second = stage.after(Event::PodApplied(replica("web-2", None)));
    assert_eq!(second.remove(0), "NoHostFits");
    assert!(second == ["n2"] || second == ["n3"], "{second:?}");
    // A pod of the same class, with the verdicts of the previous pod still cached.
    stage.after(cordoned("n4", false));
    assert_eq!(stage.after(Event::PodApplied(replica("web-3", None))), ["n4"]);
    let mut on_one_host = [second, stage.after(Event::PodApplied(replica("web-4", None)))].concat();
    on_one_host.sort();
    assert_eq!(on_one_host, ["NoHostFits", "n2", "n3"]);
    assert!(stage.after(Event::PodApplied(replica("web-5", None)))[0].starts_with("0/4 nodes are available"));
}
