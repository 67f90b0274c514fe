//! Preemption from the attempt to the binding: evictions, nominations, and when the pod is tried again.

use std::time::Duration;

use model::World;
use model::event::{Event, PodFacts};
use model::scheduling::ResourceSums;

use super::effect::{PodEvent, Victim};
use super::*;
use crate::config::Configuration;
use crate::plugins;
use crate::testing::{NAMESPACE, apply, everything, id, node, nomination, pod_with, world, world_with};

/// A node has 4000.
fn sized(name: &str, cpu_milli: i64, priority: i32) -> PodFacts {
    pod_with(name, |facts| {
        let sums = ResourceSums { cpu_milli, ..ResourceSums::default() };
        facts.priority = priority;
        (facts.requests.asked, facts.requests.taken, facts.requests.scored) = (sums.clone(), sums.clone(), sums);
    })
}

/// A pod that shares no physical host with another one of them.
fn replica(name: &str, priority: i32) -> PodFacts {
    let labels = [("app".to_owned(), "web".to_owned())].into();
    let anti_affinity = vec![model::testing::term(model::testing::HOSTNAME, "web")];
    PodFacts { labels, anti_affinity, ..sized(name, 100, priority) }
}

struct Stage {
    world: World,
    scheduler: Scheduler,
    now: Duration,
}

impl Stage {
    /// A full node.
    fn new() -> Self {
        let mut world = world(&["n1"]);
        for name in ["low-1", "low-2"] {
            let facts = PodFacts { node: Some("n1".to_owned()), ..sized(name, 2000, 1) };
            apply(&mut world, Event::PodApplied(facts));
        }
        Self::of(world)
    }

    /// Two nodes of one host, and pods that may not share it on the second one.
    fn on_one_host() -> Self {
        let lifting = model::LiftSettings { host_preemption: true, ..model::LiftSettings::default() };
        let mut world = world_with(lifting, &[]);
        for name in ["n1", "n2"] {
            let mut facts = node(name);
            facts.labels.insert(model::labels::HOST_KEY_DEFAULT.to_owned(), "esx-1".to_owned());
            apply(&mut world, Event::NodeApplied(facts));
        }
        for facts in [replica("low", 1), sized("full", 3900, 10)] {
            let facts = PodFacts { node: Some("n2".to_owned()), ..facts };
            apply(&mut world, Event::PodApplied(facts));
        }
        Self::of(world)
    }

    fn of(world: World) -> Self {
        let configuration = Configuration::with_name("bridger", &plugins::standard()).expect("a profile");
        let mut scheduler = Scheduler::new(configuration, 1);
        scheduler.observe(Duration::ZERO, &world, &everything());
        Self { world, scheduler, now: Duration::ZERO }
    }

    /// Later than any backoff.
    fn event(&mut self, event: Event) -> Vec<Effect> {
        self.now += Duration::from_secs(11);
        let changes = apply(&mut self.world, event);
        let mut effects = self.scheduler.observe(self.now, &self.world, &changes);
        effects.extend(self.scheduler.step(self.now, &mut self.world, Input::Time));
        effects.extend(self.scheduler.step(self.now, &mut self.world, Input::Schedule { at_most: 9 }));
        effects
    }

    fn input(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = self.scheduler.step(self.now, &mut self.world, input);
        effects.extend(self.scheduler.step(self.now, &mut self.world, Input::Schedule { at_most: 9 }));
        effects
    }

    fn deleted(&mut self, name: &str) -> Vec<Effect> {
        self.event(Event::PodDeleted { namespace: NAMESPACE.to_owned(), name: name.to_owned() })
    }

    fn evicted(&mut self, preempted: &Preempted, error: Option<&str>) -> Vec<Effect> {
        let Preempted { pod, node, victims } = preempted.clone();
        self.input(Input::Evicted { pod, node, victims, error: error.map(str::to_owned) })
    }
}

#[derive(Clone, Debug)]
struct Preempted {
    pod: PodRef,
    node: String,
    victims: Vec<Victim>,
}

fn preempted(effects: &[Effect]) -> Option<Preempted> {
    effects.iter().find_map(|effect| match effect {
        Effect::Preempt { pod, node, victims, .. } => {
            Some(Preempted { pod: pod.clone(), node: node.clone(), victims: victims.clone() })
        }
        _ => None,
    })
}

fn bound(effects: &[Effect]) -> Vec<&str> {
    let bound = effects.iter().filter_map(|effect| match effect {
        Effect::Bind { pod, .. } => Some(pod.name.as_str()),
        _ => None,
    });
    bound.collect()
}

fn events(effects: &[Effect]) -> Vec<(&str, &str)> {
    let events = effects.iter().filter_map(|effect| match effect {
        Effect::PostEvent { pod, event: PodEvent::Preempted { message }, .. } => {
            Some((pod.name.as_str(), message.as_str()))
        }
        _ => None,
    });
    events.collect()
}

#[test]
fn a_pod_is_not_tried_while_its_victims_are_evicted_and_is_bound_when_they_are_gone() {
    let mut stage = Stage::new();
    let effects = stage.event(Event::PodApplied(sized("high", 3000, 10)));
    let preemption = preempted(&effects).expect("a preemption");
    assert_eq!(
        preemption.victims.iter().map(|victim| victim.pod.name.as_str()).collect::<Vec<_>>(),
        ["low-1", "low-2"]
    );
    assert!(effects.contains(&Effect::VictimsChosen { count: 2 }), "{effects:?}");
    let nominated = |effect: &Effect| nomination(effect) == Some(("high", Some("n1")));
    assert!(effects.iter().any(nominated), "{effects:?}");
    assert_eq!(stage.scheduler.figures().preemption_attempts, 1);
    // A change that could help: without the hold the pod would choose victims again.
    let waits = stage.event(Event::PodApplied(PodFacts { terminating: true, ..gone_soon("low-1") }));
    assert_eq!((preempted(&waits).is_none(), bound(&waits).len()), (true, 0));
    assert_eq!(bound(&stage.deleted("low-1")), Vec::<&str>::new());
    assert_eq!(bound(&stage.deleted("low-2")), Vec::<&str>::new());
    // The last victim was gone before the response to its deletion arrived.
    let effects = stage.evicted(&preemption, None);
    let message = format!("Preempted by pod {} on node n1", preemption.pod.uid);
    assert_eq!(events(&effects), [("low-1", message.as_str()), ("low-2", message.as_str())]);
    assert_eq!(bound(&effects), ["high"]);
}

fn gone_soon(name: &str) -> PodFacts {
    PodFacts { node: Some("n1".to_owned()), preempted: true, ..sized(name, 2000, 1) }
}

#[test]
fn a_pod_waits_for_the_deletion_of_its_victims() {
    let mut stage = Stage::new();
    let preemption = preempted(&stage.event(Event::PodApplied(sized("high", 2000, 10)))).expect("a preemption");
    assert!(stage.evicted(&preemption, None).iter().all(|effect| !matches!(effect, Effect::Bind { .. })));
    let name = preemption.victims[0].pod.name.clone();
    // While the victim ends, nobody else is evicted for the pod.
    let ends = stage.event(Event::PodApplied(PodFacts { terminating: true, ..gone_soon(&name) }));
    assert!(preempted(&ends).is_none(), "{ends:?}");
    assert_eq!(bound(&stage.deleted(&name)), ["high"]);
}

/// As another instance left it that ended between two evictions.
#[test]
fn a_pod_whose_victims_are_gone_is_tried_again_although_the_room_is_not_enough() {
    let mut stage = Stage::new();
    stage.event(Event::PodApplied(PodFacts { terminating: true, ..gone_soon("low-1") }));
    let nominated = PodFacts { nominated_node: Some("n1".to_owned()), ..sized("high", 4000, 10) };
    let effects = stage.event(Event::PodApplied(nominated));
    assert!(preempted(&effects).is_none(), "a victim ends: {effects:?}");
    let preemption = preempted(&stage.deleted("low-1")).expect("it is tried again");
    assert_eq!(preemption.victims.iter().map(|victim| victim.pod.name.as_str()).collect::<Vec<_>>(), ["low-2"]);
}

#[test]
fn after_a_failed_eviction_the_pod_is_tried_again_after_its_backoff() {
    let mut stage = Stage::new();
    let mut preemption = preempted(&stage.event(Event::PodApplied(sized("high", 2000, 10)))).expect("a preemption");
    for backoff_s in [1, 2, 4, 8, 10, 10] {
        let failed = Preempted { victims: Vec::new(), ..preemption };
        let effects = stage.evicted(&failed, Some("the server is down"));
        assert!(events(&effects).is_empty());
        assert!(preempted(&effects).is_none(), "at once: {effects:?}");
        stage.now += Duration::from_millis(backoff_s * 1000 - 1);
        assert!(preempted(&stage.input(Input::Time)).is_none(), "before {backoff_s} s");
        stage.now += Duration::from_millis(1);
        preemption = preempted(&stage.input(Input::Time)).expect("it is tried again");
    }
}

#[test]
fn nominations_of_lower_priority_on_the_node_are_cleared() {
    let mut stage = Stage::new();
    let effects = stage.event(Event::PodApplied(sized("middle", 2000, 5)));
    let first = preempted(&effects).expect("a preemption");
    assert_eq!(first.pod.name, "middle");
    let nominated = PodFacts { nominated_node: Some("n1".to_owned()), ..sized("middle", 2000, 5) };
    stage.event(Event::PodApplied(nominated));
    let effects = stage.event(Event::PodApplied(sized("high", 4000, 10)));
    assert_eq!(preempted(&effects).expect("a preemption").pod.name, "high");
    let cleared = |effect: &Effect| nomination(effect) == Some(("middle", None));
    assert!(effects.iter().any(cleared), "{effects:?}");
    assert_eq!(stage.scheduler.nominations.node_of(id(&stage.world, "middle")), None);
}

#[test]
fn a_victim_that_is_being_deleted_is_not_evicted_again() {
    let mut stage = Stage::new();
    let ends = PodFacts { terminating: true, node: Some("n1".to_owned()), ..sized("low-1", 2000, 1) };
    stage.event(Event::PodApplied(ends));
    let effects = stage.event(Event::PodApplied(sized("high", 4000, 10)));
    let preemption = preempted(&effects).expect("a preemption");
    assert_eq!(preemption.victims.iter().map(|victim| victim.pod.name.as_str()).collect::<Vec<_>>(), ["low-2"]);
}

#[test]
fn a_preemption_that_is_answered_after_the_pod_is_gone_does_nothing() {
    let mut stage = Stage::new();
    let preemption = preempted(&stage.event(Event::PodApplied(sized("high", 2000, 10)))).expect("a preemption");
    stage.deleted("high");
    let effects = stage.evicted(&preemption, Some("late"));
    assert!(bound(&effects).is_empty() && preempted(&effects).is_none(), "{effects:?}");
}

#[test]
fn a_victim_on_another_node_of_the_host_is_evicted_and_the_pod_gets_the_room_on_its_own_node() {
    let mut stage = Stage::on_one_host();
    let effects = stage.event(Event::PodApplied(replica("high", 10)));
    let preemption = preempted(&effects).expect("a preemption");
    let victims: Vec<_> = preemption.victims.iter().map(|it| (it.pod.name.as_str(), it.node.as_str())).collect();
    assert_eq!((preemption.node.as_str(), victims), ("n1", vec![("low", "n2")]));
    assert!(effects.iter().any(|effect| nomination(effect) == Some(("high", Some("n1")))), "{effects:?}");
    stage.event(Event::PodApplied(PodFacts { nominated_node: Some("n1".to_owned()), ..replica("high", 10) }));
    let low = PodFacts { node: Some("n2".to_owned()), terminating: true, preempted: true, ..replica("low", 1) };
    stage.event(Event::PodApplied(low));
    let effects = stage.evicted(&preemption, None);
    let message = format!("Preempted by pod {} on node n1; this pod runs on node n2", preemption.pod.uid);
    assert_eq!(events(&effects), [("low", message.as_str())]);
    // While it terminates, the pod waits and evicts nobody else.
    assert_eq!((preempted(&effects).is_none(), bound(&effects).len()), (true, 0), "{effects:?}");
    // The victim's successor does not take the host: it is kept free for the nominated pod, which is bound there.
    let effects = stage.event(Event::PodApplied(replica("low-2", 1)));
    assert_eq!(bound(&effects), Vec::<&str>::new());
    let effects = stage.deleted("low");
    assert_eq!(bound(&effects), ["high"], "{effects:?}");
}

#[test]
fn a_victim_that_is_still_being_bound_is_named_with_its_node() {
    let mut stage = Stage::on_one_host();
    stage.deleted("low");
    stage.deleted("full");
    let effects = stage.event(Event::PodApplied(replica("first", 1)));
    assert_eq!(bound(&effects), ["first"]);
    let effects = stage.event(Event::PodApplied(replica("high", 10)));
    // It is being bound, so it is evicted through the API, on the node that it is bound to.
    let preemption = preempted(&effects).expect("a preemption");
    assert_eq!(preemption.victims.iter().map(|it| it.pod.name.as_str()).collect::<Vec<_>>(), ["first"]);
    let placed = stage.world.pod_node(id(&stage.world, "first")).and_then(|node| stage.world.node_name(node));
    assert_eq!(Some(preemption.victims[0].node.as_str()), placed);
}
