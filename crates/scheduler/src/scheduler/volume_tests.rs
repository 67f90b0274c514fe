//! Pods with claims, from the queue to their binding.

use std::time::Duration;

use model::World;
use model::event::Event;
use model::volumes::{ClaimFacts, VolumeObject};

use super::*;
use crate::config::Configuration;
use crate::plugins::{self, VolumeWork};
use crate::testing::volumes::{DRIVER, WAITS, applied, claim, claims, local, pod_using, waits, world_of};
use crate::testing::{apply, everything, id, node, of_filters};

struct Stage {
    world: World,
    scheduler: Scheduler,
    now: Duration,
}

impl Stage {
    fn new(events: Vec<Event>) -> Self {
        let world = world_of(vec![node("n1"), node("n2")], events);
        let configuration =
            Configuration::with_name("bridger", &plugins::standard()).expect("the default profile works");
        let mut scheduler = Scheduler::new(configuration, 1);
        scheduler.observe(Duration::ZERO, &world, &everything());
        Self { world, scheduler, now: Duration::from_secs(1) }
    }

    fn event(&mut self, event: Event) {
        let changes = apply(&mut self.world, event);
        self.scheduler.observe(self.now, &self.world, &changes);
    }

    fn input(&mut self, input: Input) -> Vec<Effect> {
        self.scheduler.step(self.now, &mut self.world, input)
    }

    fn place(&mut self, name: &str, claim: &str) -> Vec<Effect> {
        self.event(Event::PodApplied(pod_using(name, claims(&[claim]), None)));
        self.input(Input::Schedule { at_most: 10 })
    }

    fn reference(&self, name: &str) -> PodRef {
        Scheduler::pod_ref(&self.world, id(&self.world, name)).expect("the pod is known")
    }

    /// The node that is selected for the claim, as the scheduler assumes.
    fn selected(&self, name: &str) -> Option<String> {
        self.world.volumes().claim("default", name).and_then(|claim| claim.selected_node.clone())
    }
}

fn work(effects: &[Effect]) -> Option<(&str, &VolumeWork)> {
    effects.iter().find_map(|effect| match effect {
        Effect::PreBind { node, plugin: "VolumeBinding", work, .. } => Some((node.as_str(), work.get::<VolumeWork>()?)),
        _ => None,
    })
}

fn message(effects: &[Effect]) -> Option<&str> {
    effects.iter().find_map(|effect| match effect {
        Effect::SetCondition { message, .. } => Some(of_filters(message)),
        _ => None,
    })
}

fn is_bound(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Bind { .. }))
}

#[test]
fn volumes_are_bound_before_the_pod_and_given_to_no_other_pod_meanwhile() {
    let mut stage = Stage::new(vec![
        applied(waits("kubernetes.io/no-provisioner")),
        applied(claim("a", WAITS)),
        applied(claim("b", WAITS)),
        applied(local("pv", WAITS, "n2")),
    ]);
    let effects = stage.place("first", "a");
    let (node, volumes) = work(&effects).expect("there is work");
    assert_eq!((node, volumes.bindings[0].volume.as_str(), volumes.provisions.len()), ("n2", "pv", 0));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Nominate { node: Some(node), .. } if node == "n2")));
    assert!(!is_bound(&effects));
    let refused = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind.";
    assert_eq!(message(&stage.place("second", "b")), Some(refused));

    // The work fails: the volume is free again.
    stage.input(Input::Failed { pod: stage.reference("first"), error: "conflict".to_owned() });
    assert!(stage.world.volumes().volume("pv").is_some_and(|volume| volume.claim.is_none()));
    stage.event(Event::PodDeleted { namespace: "default".to_owned(), name: "first".to_owned() });
    stage.event(applied(ClaimFacts { version: "2".to_owned(), ..claim("b", WAITS) }));
    stage.now += Duration::from_secs(20);
    stage.input(Input::Time);
    let effects = stage.input(Input::Schedule { at_most: 10 });
    assert_eq!(work(&effects).map(|(node, _)| node), Some("n2"));
    let pod = stage.reference("second");
    assert!(is_bound(&stage.input(Input::PreBound { pod, plugin: "VolumeBinding" })));
}

#[test]
fn what_is_assumed_ends_with_the_pod_and_with_the_lease() {
    let events = || vec![applied(waits(DRIVER)), applied(claim("a", WAITS))];
    let mut stage = Stage::new(events());
    let effects = stage.place("p", "a");
    let (node, _) = work(&effects).expect("there is work");
    assert_eq!(stage.selected("a").as_deref(), Some(node));
    let selected = applied(ClaimFacts { version: "2".to_owned(), ..claim("a", WAITS) });
    stage.event(selected);
    assert_eq!(stage.selected("a"), None, "the watch shows a newer version");

    let ends: [fn(&mut Stage); 2] = [
        |stage| drop(stage.input(Input::LeaseLost)),
        |stage| stage.event(Event::PodDeleted { namespace: "default".to_owned(), name: "p".to_owned() }),
    ];
    for end in ends {
        let mut stage = Stage::new(events());
        assert!(work(&stage.place("p", "a")).is_some() && stage.selected("a").is_some());
        end(&mut stage);
        assert_eq!(stage.selected("a"), None);
    }
}

#[test]
fn a_pod_whose_claims_are_bound_needs_no_work() {
    let bound = ClaimFacts { volume: Some("pv".to_owned()), bind_completed: true, ..claim("a", WAITS) };
    let mut stage = Stage::new(vec![applied(bound), applied(local("pv", WAITS, "n1"))]);
    let effects = stage.place("p", "a");
    assert!(is_bound(&effects) && work(&effects).is_none());
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Nominate { .. })));
}

#[test]
fn a_missing_claim_is_reported_by_name_and_wakes_its_pod_when_it_is_created() {
    let mut stage = Stage::new(vec![applied(waits(DRIVER))]);
    let effects = stage.place("p", "a");
    let expected = "0/2 nodes are available: persistentvolumeclaim \"a\" not found.";
    assert_eq!(message(&effects), Some(expected));
    for (created, is_tried) in [("b", false), ("a", true)] {
        stage.event(Event::VolumeApplied(VolumeObject::Claim(Arc::new(claim(created, WAITS)))));
        stage.now += Duration::from_secs(20);
        stage.input(Input::Time);
        let effects = stage.input(Input::Schedule { at_most: 10 });
        assert_eq!(work(&effects).is_some(), is_tried, "{created}");
    }
}

/// Another instance starts while the first one waited for the volume.
#[test]
fn a_selected_node_is_kept_by_the_next_attempt() {
    let selected = ClaimFacts { selected_node: Some("n2".to_owned()), ..claim("a", WAITS) };
    let mut stage = Stage::new(vec![applied(waits(DRIVER)), applied(selected)]);
    let effects = stage.place("p", "a");
    assert_eq!(work(&effects).map(|(node, work)| (node, work.provisions.len())), Some(("n2", 1)));
}
