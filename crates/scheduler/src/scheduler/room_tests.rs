//! Nominated pods keep resources from pods of lower priority, and PostFilter plugins filter hypothetical states.

use std::sync::Arc;
use std::time::Duration;

use model::World;
use model::event::{Event, PodFacts};
use model::scheduling::{HostPort, ResourceSums};

use super::*;
use crate::config::Configuration;
use crate::framework::cycle::Cycle;
use crate::framework::handle::Handle;
use crate::framework::plugin::Plugin;
use crate::framework::points::{PostFilter, PostFilterAnswer, RejectedNodes};
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::Status;
use crate::plugins;
use crate::testing::{apply, everything, id, nomination, pod_with, world};

/// Preempts the first pod on the first node where that helps.
struct Evict;

impl Plugin for Evict {
    const NAME: &'static str = "Evict";
    type State = ();
}

impl PostFilter for Evict {
    fn post_filter(
        &self,
        cycle: &Cycle<'_>,
        (): &mut (),
        rejected: &dyn RejectedNodes,
        _: &mut Handle<'_>,
    ) -> PostFilterAnswer {
        for node in rejected.resolvable().iter() {
            for &victim in cycle.world.pods_on(node) {
                if rejected.fits_without(node, &[victim]) {
                    return PostFilterAnswer::preempt(node, vec![victim]);
                }
            }
        }
        PostFilterAnswer::nothing(Status::unschedulable("preemption: nothing helps"))
    }
}

impl Register for Evict {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.post_filter()
    }
}

fn sized(name: &str, cpu_milli: i64, priority: i32) -> PodFacts {
    pod_with(name, |facts| {
        let sums = ResourceSums { cpu_milli, ..ResourceSums::default() };
        facts.priority = priority;
        (facts.requests.asked, facts.requests.taken, facts.requests.scored) = (sums.clone(), sums.clone(), sums);
    })
}

/// Nominated to `n1` by another client, and gated, so that no failed attempt clears the nomination.
fn nominated(mut facts: PodFacts) -> PodFacts {
    Arc::make_mut(facts.scheduling.as_mut().expect("facts")).gates = vec!["quota".to_owned()];
    PodFacts { nominated_node: Some("n1".to_owned()), ..facts }
}

fn ready(world: &mut World, evicts: bool) -> Scheduler {
    // Without the preemption that every profile has.
    let enabled: &[_] = if evicts { &[serde_json::json!({"name": "Evict"})] } else { &[] };
    let post_filter = serde_json::json!({"enabled": enabled, "disabled": [{"name": "DefaultPreemption"}]});
    let document = serde_json::json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"postFilter": post_filter}}],
    });
    let configuration = Configuration::from_value(&document, &plugins::standard().with::<Evict>());
    let mut scheduler = Scheduler::new(configuration.expect("the configuration is valid"), 1);
    scheduler.observe(Duration::ZERO, world, &everything());
    scheduler
}

fn place(scheduler: &mut Scheduler, world: &mut World, facts: PodFacts) -> Vec<Effect> {
    let changes = apply(world, Event::PodApplied(facts));
    scheduler.observe(Duration::from_secs(1), world, &changes);
    scheduler.step(Duration::from_secs(1), world, Input::Schedule { at_most: 1 })
}

fn bound_to(effects: &[Effect]) -> Option<&str> {
    effects.iter().find_map(|effect| if let Effect::Bind { node, .. } = effect { Some(node.as_str()) } else { None })
}

fn condition(effects: &[Effect]) -> Option<&str> {
    effects.iter().find_map(|effect| match effect {
        Effect::SetCondition { message, .. } => Some(message.as_str()),
        _ => None,
    })
}

#[test]
fn a_node_is_filtered_with_the_nominated_pods_first() {
    let mut world = world(&["n1"]);
    let mut scheduler = ready(&mut world, false);
    let listening = |name, cpu_milli, priority| {
        let mut facts = sized(name, cpu_milli, priority);
        let port = HostPort { ip: HostPort::EVERY_ADDRESS.to_owned(), protocol: "TCP".to_owned(), port: 80 };
        Arc::make_mut(facts.scheduling.as_mut().expect("facts")).host_ports = vec![port];
        facts
    };
    // The node is full.
    apply(&mut world, Event::PodApplied(PodFacts { node: Some("n1".to_owned()), ..sized("runs", 4000, 0) }));
    scheduler.observe(Duration::ZERO, &world, &everything());
    let alone = place(&mut scheduler, &mut world, listening("alone", 500, 5));
    assert_eq!(condition(&alone), Some("0/1 nodes are available: 1 Insufficient cpu."));
    // The nominated pod uses the same port, and NodePorts runs before NodeResourcesFit.
    place(&mut scheduler, &mut world, nominated(listening("waits", 3000, 10)));
    let beside = place(&mut scheduler, &mut world, listening("beside", 500, 5));
    let free_ports = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
    assert_eq!(condition(&beside), Some(free_ports));
}

#[test]
fn a_nominated_pod_keeps_its_resources_from_pods_of_lower_priority() {
    let mut world = world(&["n1"]);
    let mut scheduler = ready(&mut world, false);
    // Too big for now, and nominated to the only node, which has 4000.
    let waits = nominated(sized("waits", 3000, 10));
    let blocked = PodFacts { node: Some("n1".to_owned()), ..sized("runs", 2000, 0) };
    apply(&mut world, Event::PodApplied(blocked));
    scheduler.observe(Duration::ZERO, &world, &everything());
    assert_eq!(bound_to(&place(&mut scheduler, &mut world, waits)), None);
    assert_eq!(scheduler.figures().nominated, 1);
    // 2000 are free, but not together with the nominated pod.
    let effects = place(&mut scheduler, &mut world, sized("small", 1500, 5));
    assert_eq!(condition(&effects), Some("0/1 nodes are available: 1 Insufficient cpu."));
    // A pod of higher priority is not rejected.
    assert_eq!(bound_to(&place(&mut scheduler, &mut world, sized("urgent", 1500, 11))), Some("n1"));
}

#[test]
fn post_filter_finds_victims_and_the_pod_is_nominated() {
    let mut world = world(&["n1", "n2"]);
    for (name, node, cpu) in [("a", "n1", 1500), ("b", "n1", 2500), ("c", "n2", 4000)] {
        let facts = PodFacts { node: Some(node.to_owned()), ..sized(name, cpu, 0) };
        apply(&mut world, Event::PodApplied(facts));
    }
    let mut scheduler = ready(&mut world, true);
    let effects = place(&mut scheduler, &mut world, sized("big", 2000, 10));
    let preempted = effects.iter().find_map(|effect| match effect {
        Effect::Preempt { node, victims, .. } => {
            Some((node.as_str(), victims.iter().map(|victim| victim.pod.name.as_str()).collect::<Vec<_>>()))
        }
        _ => None,
    });
    assert_eq!(preempted, Some(("n1", vec!["b"])));
    assert!(effects.iter().any(|effect| nomination(effect) == Some(("big", Some("n1")))));
    assert_eq!(scheduler.nominations.node_of(id(&world, "big")), world.node_id("n1"));
    // After the victim is deleted, the pod is bound to its nominated node.
    let gone = Event::PodDeleted { namespace: "default".to_owned(), name: "b".to_owned() };
    let changes = apply(&mut world, gone);
    let later = Duration::from_secs(10);
    scheduler.observe(later, &world, &changes);
    let big = Scheduler::pod_ref(&world, id(&world, "big")).expect("a pod");
    let evicted = Input::Evicted { pod: big, node: "n1".to_owned(), victims: Vec::new(), error: None };
    scheduler.step(later, &mut world, evicted);
    let effects = scheduler.step(later, &mut world, Input::Schedule { at_most: 1 });
    assert_eq!(bound_to(&effects), Some("n1"));
    // If nothing helps, the message contains the plugin's reason.
    let effects = place(&mut scheduler, &mut world, sized("huge", 9000, 10));
    let message = effects.iter().find_map(|effect| match effect {
        Effect::SetCondition { message, .. } => Some(message.as_str()),
        _ => None,
    });
    assert_eq!(message, Some("0/2 nodes are available: 2 Insufficient cpu. preemption: nothing helps"));
}

#[test]
fn a_nomination_ends_with_a_failed_attempt_if_no_plugin_could_have_made_it() {
    let mut world = world(&["n1"]);
    let mut scheduler = ready(&mut world, false);
    let huge = PodFacts { nominated_node: Some("n1".to_owned()), ..sized("huge", 9000, 10) };
    let effects = place(&mut scheduler, &mut world, huge);
    assert!(effects.iter().any(|effect| nomination(effect) == Some(("huge", None))), "{effects:?}");
    assert_eq!(scheduler.figures().nominated, 0);
    // A plugin that only says that it cannot help keeps it.
    let mut world = crate::testing::world(&["n1"]);
    let mut scheduler = ready(&mut world, true);
    let huge = PodFacts { nominated_node: Some("n1".to_owned()), ..sized("huge", 9000, 10) };
    let effects = place(&mut scheduler, &mut world, huge);
    assert!(!effects.iter().any(|effect| nomination(effect).is_some()), "{effects:?}");
    assert_eq!(scheduler.figures().nominated, 1);
}

#[test]
fn an_assumed_pod_with_a_nomination_counts_once() {
    let mut world = world(&["n1"]);
    let mut scheduler = ready(&mut world, false);
    scheduler.observe(Duration::ZERO, &world, &everything());
    let first = PodFacts { nominated_node: Some("n1".to_owned()), ..sized("first", 2000, 10) };
    assert_eq!(bound_to(&place(&mut scheduler, &mut world, first)), Some("n1"));
    // The watch has not shown the binding yet. Half of the node is still free.
    assert_eq!(bound_to(&place(&mut scheduler, &mut world, sized("second", 2000, 5))), Some("n1"));
}

#[test]
fn a_cleared_nomination_wakes_the_pods_that_wait_for_it() {
    let nominated = |node: Option<&str>| PodFacts {
        nominated_node: node.map(str::to_owned),
        ..pod_with("waits", |facts| {
            facts.priority = 10;
            facts.gates = vec!["quota".to_owned()];
            facts.requests.asked.cpu_milli = 3000;
            facts.requests.taken.cpu_milli = 3000;
        })
    };
    let terminating = PodFacts { terminating: true, ..nominated(Some("n1")) };
    let deleted = Event::PodDeleted { namespace: "default".to_owned(), name: "waits".to_owned() };
    // What happens to the nominated pod, and whether its resources are free then.
    let cases = [
        ("nothing changes", Event::PodApplied(nominated(Some("n1"))), false),
        ("it is being deleted", Event::PodApplied(terminating), false),
        ("it is gone", deleted, true),
        ("its nomination is cleared", Event::PodApplied(nominated(None)), true),
        ("it is nominated to another node", Event::PodApplied(nominated(Some("n2"))), true),
        ("it is finished", Event::PodApplied(PodFacts { finished: true, ..nominated(Some("n1")) }), true),
    ];
    for (case, event, is_free) in cases {
        let mut world = world(&["n1"]);
        let mut scheduler = ready(&mut world, false);
        assert_eq!(bound_to(&place(&mut scheduler, &mut world, nominated(Some("n1")))), None, "{case}");
        assert_eq!(bound_to(&place(&mut scheduler, &mut world, sized("small", 2000, 5))), None, "{case}");
        let later = Duration::from_secs(60);
        let changes = apply(&mut world, event);
        scheduler.observe(later, &world, &changes);
        assert_eq!(scheduler.has_work(), is_free, "{case}");
        let effects = scheduler.step(later, &mut world, Input::Schedule { at_most: 1 });
        assert_eq!(bound_to(&effects), is_free.then_some("n1"), "{case}");
    }
}
