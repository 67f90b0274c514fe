//! Several profiles in one process: each pod is scheduled with the plugins and weights of its own profile.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::event::{Event, NodeFacts, PodFacts};
use model::scheduling::{NodeSchedulingFacts, ResourceSums};
use serde_json::{Value, json};

use super::*;
use crate::plugins;
use crate::scheduler::effect::AttemptResult;
use crate::testing::{apply, everything, node, of_filters, pod_with, world};

fn scheduler(profiles: &Value) -> Scheduler {
    let document = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": profiles,
    });
    Scheduler::new(Configuration::from_value(&document, &plugins::standard()).expect("the configuration is valid"), 1)
}

/// A pod that requests one of a node's four cpus.
fn asking(name: &str, scheduler: &str) -> PodFacts {
    pod_with(name, |facts| {
        let sums = ResourceSums { cpu_milli: 1000, ..ResourceSums::default() };
        facts.requests.taken_non_zero.cpu_milli = sums.cpu_milli;
        (facts.requests.asked, facts.requests.taken, facts.requests.scored) = (sums.clone(), sums.clone(), sums);
        facts.scheduler_name = scheduler.to_owned();
    })
}

/// Applies the events and schedules. Returns for each pod its node, or why it has none.
fn step(scheduler: &mut Scheduler, world: &mut World, now: Duration, events: Vec<Event>) -> BTreeMap<String, String> {
    for event in events {
        let changes = apply(world, event);
        scheduler.observe(now, world, &changes);
    }
    let effects = scheduler.step(now, world, Input::Schedule { at_most: 100 });
    let results = effects.into_iter().filter_map(|effect| match effect {
        Effect::Bind { pod, node, .. } => Some((pod.name, node)),
        Effect::SetCondition { pod, message, .. } => Some((pod.name, message)),
        _ => None,
    });
    results.collect()
}

#[test]
fn each_pod_is_scheduled_with_the_weights_of_its_own_profile() {
    let most = json!({"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]});
    let mut scheduler = scheduler(&json!([
        {
            "schedulerName": "packed",
            "plugins": {"multiPoint": {"enabled": [{"name": "NodeResourcesFit", "weight": 10}]}},
            "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": most}}],
        },
        {"schedulerName": "spread"},
    ]));
    let weights: Vec<_> = scheduler.profiles().iter().map(|profile| profile.weight("NodeResourcesFit")).collect();
    assert_eq!(weights, [Some(10), Some(1)]);
    let mut world = world(&["n1", "n2", "n3"]);
    apply(&mut world, Event::PodApplied(PodFacts { node: Some("n1".to_owned()), ..asking("there", "elsewhere") }));
    scheduler.observe(Duration::ZERO, &world, &everything());
    // Pods that differ only in the profile, in turns: cached verdicts of one profile must not be used for the other.
    let names = ["packed-1", "spread-1", "other-1", "packed-2", "spread-2", "packed-3"];
    let pods = names.map(|name| Event::PodApplied(asking(name, name.split('-').next().unwrap_or_default())));
    let placed = step(&mut scheduler, &mut world, Duration::from_secs(1), pods.into());
    for (pod, node) in &placed {
        assert_eq!(pod.starts_with("packed"), node == "n1", "{placed:?}");
    }
    assert_ne!(placed["spread-1"], placed["spread-2"], "{placed:?}");
    // A pod with another schedulerName is ignored.
    assert_eq!(placed.keys().collect::<Vec<_>>(), ["packed-1", "packed-2", "packed-3", "spread-1", "spread-2"]);
    assert_eq!(scheduler.figures().pending, Pending::default());
    // The node is full now.
    let fourth = vec![Event::PodApplied(asking("packed-4", "packed"))];
    assert_ne!(step(&mut scheduler, &mut world, Duration::from_secs(2), fourth)["packed-4"], "n1");
    // Attempts are counted under the profile's name.
    for (pod, profile) in [("packed-1", "packed"), ("spread-1", "spread")] {
        let pod = Scheduler::pod_ref(&world, crate::testing::id(&world, pod)).expect("the pod is known");
        let effects = scheduler.step(Duration::from_secs(3), &mut world, Input::Bound { pod });
        let concluded = effects.iter().find_map(|effect| match effect {
            Effect::Concluded { profile, result: AttemptResult::Scheduled, .. } => Some(profile.as_str()),
            _ => None,
        });
        assert_eq!(concluded, Some(profile));
    }
}

#[test]
fn a_plugin_disabled_in_one_profile_stays_enabled_in_the_other() {
    let mut scheduler = scheduler(&json!([
        {"schedulerName": "bold", "plugins": {"filter": {"disabled": [{"name": "NodeUnschedulable"}]}}},
        {"schedulerName": "careful"},
    ]));
    let mut world = world(&[]);
    let cordoned = |unschedulable| {
        let facts = node("n1");
        let scheduling = facts.scheduling.as_deref().cloned().unwrap_or_default();
        let scheduling = Some(Arc::new(NodeSchedulingFacts { unschedulable, ..scheduling }));
        Event::NodeApplied(NodeFacts { scheduling, ..facts })
    };
    world.apply(cordoned(true));
    scheduler.observe(Duration::ZERO, &world, &everything());
    let pods = ["careful", "bold"].map(|profile| Event::PodApplied(asking(profile, profile)));
    let results = step(&mut scheduler, &mut world, Duration::from_secs(1), pods.into());
    assert_eq!(results["bold"], "n1");
    assert_eq!(of_filters(&results["careful"]), "0/1 nodes are available: 1 node(s) were unschedulable.");
    let waiting = UnschedulableBy { profile: "careful".to_owned(), plugin: "NodeUnschedulable", pods: 1 };
    assert_eq!(scheduler.figures().unschedulable, [waiting]);
    // The plugins of the waiting pod's own profile decide whether a change helps.
    let results = step(&mut scheduler, &mut world, Duration::from_secs(60), vec![cordoned(false)]);
    assert_eq!(results["careful"], "n1");
}
