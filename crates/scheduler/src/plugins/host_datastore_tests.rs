//! Volumes whose datastore a host does not mount, from vSphere events to reports and rejections.

use std::sync::Arc;
use std::time::Duration;

use model::World;
use model::event::{DatastoreFacts, Event, HostFacts, PodFacts};
use model::volumes::{PodVolume, VolumeFacts};
use serde_json::json;

use crate::config::Configuration;
use crate::explain::{Explanation, explain};
use crate::testing::volumes::{applied, claim, volume};
use crate::testing::{apply, everything, host, host_applied, id, node, of_filters, pod, runs_on, world};
use crate::{Effect, Input, PodEvent, Scheduler, plugins};

const URL: &str = "ds:///vmfs/volumes/local/";
const REJECTED: &str = "node(s) run on a physical host that does not mount the datastore of a volume";

fn lacking(name: &str, lacks: bool) -> HostFacts {
    let local = Arc::new(DatastoreFacts { name: "local".to_owned(), url: URL.to_owned() });
    HostFacts { datastores_missing: if lacks { vec![local] } else { Vec::new() }, ..host(name) }
}

/// n1 runs on a host that does not mount `local`, n2 on one that does, and nothing is known of n3.
fn cluster() -> World {
    let mut world = world(&["n3"]);
    for (name, on, lacks) in [("n1", "esx-1", true), ("n2", "esx-2", false)] {
        apply(&mut world, host_applied(lacking(on, lacks)));
        apply(&mut world, runs_on(name, on));
        let facts = model::event::NodeFacts { dns_names: vec![format!("{name}.example")], ..node(name) };
        apply(&mut world, Event::NodeApplied(facts));
    }
    world
}

fn configuration(unmounted: &str) -> Configuration {
    let file = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{ "schedulerName": "bridger",
            "pluginConfig": [{ "name": "HostDatastore", "args": { "unmounted": unmounted } }] }],
    });
    Configuration::from_value(&file, &plugins::standard()).expect("the configuration is valid")
}

fn uses(name: &str, volumes: Vec<PodVolume>) -> PodFacts {
    PodFacts { volumes, ..pod(name) }
}

fn explained(world: &World, unmounted: &str, name: &str) -> Explanation {
    explain(world, id(world, name), &configuration(unmounted).profiles()[0]).expect("no plugin fails")
}

/// A bound claim `data` whose volume names this datastore.
fn with_volume(world: &mut World, datastore: Option<&str>) {
    let facts = VolumeFacts { datastore: datastore.map(str::to_owned), ..volume("pv", "") };
    apply(world, applied(facts));
    let bound = model::volumes::ClaimFacts { volume: Some("pv".to_owned()), bind_completed: true, ..claim("data", "") };
    apply(world, applied(bound));
}

/// The nodes that are rejected for the datastore, and those that are doubtful.
fn judged(explanation: &Explanation) -> (Vec<&str>, Vec<&str>) {
    let rejected = explanation.nodes.iter().filter(|node| node.reason.as_deref() == Some(REJECTED));
    let doubtful = explanation.nodes.iter().filter(|node| !node.doubts.is_empty());
    (rejected.map(|node| node.name.as_str()).collect(), doubtful.map(|node| node.name.as_str()).collect())
}

#[test]
fn only_what_is_known_for_certain_is_reported_or_rejected() {
    for (datastore, is_missing) in [
        (Some("local"), true),
        (Some(URL), true),
        (Some("another"), false),
        (Some("ds:///vmfs/volumes/another/"), false),
        (None, false),
    ] {
        let mut world = cluster();
        with_volume(&mut world, datastore);
        apply(&mut world, Event::PodApplied(uses("web", vec![PodVolume::Claim("data".to_owned())])));
        let expected: Vec<&str> = is_missing.then_some("n1").into_iter().collect();
        let reported = explained(&world, "Report", "web");
        assert_eq!(judged(&reported), (vec![], expected.clone()), "{datastore:?}: {reported:?}");
        assert_eq!(reported.feasible, 3, "{datastore:?}");
        let rejected = explained(&world, "Reject", "web");
        assert_eq!(judged(&rejected), (expected, vec![]), "{datastore:?}: {rejected:?}");
    }
}

#[test]
fn a_disk_that_the_pod_names_itself_counts_and_a_claim_without_a_volume_does_not() {
    let mut world = cluster();
    apply(&mut world, Event::PodApplied(uses("inline", vec![PodVolume::Datastore("local".to_owned())])));
    assert_eq!(judged(&explained(&world, "Reject", "inline")).0, ["n1"]);
    let reported = explained(&world, "Report", "inline");
    let expected = "host esx-1 of node n1 does not mount datastore local of a disk";
    assert_eq!(reported.nodes[0].doubts, [expected]);
    apply(&mut world, applied(claim("data", "")));
    apply(&mut world, Event::PodApplied(uses("web", vec![PodVolume::Claim("data".to_owned())])));
    assert_eq!(judged(&explained(&world, "Reject", "web")), (vec![], vec![]));
}

#[test]
fn an_unknown_argument_is_rejected() {
    let file = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{ "pluginConfig": [{ "name": "HostDatastore", "args": { "unmounted": "Ignore" } }] }],
    });
    let error = Configuration::from_value(&file, &plugins::standard()).err().map(|error| error.to_string());
    assert!(error.is_some_and(|error| error.contains("Ignore")));
}

/// The node that the pod is bound to, the message of its rejection, and the doubts that are reported.
fn outcome(effects: &[Effect]) -> (Option<&str>, Option<&str>, Vec<&str>) {
    let bound = effects.iter().find_map(|effect| match effect {
        Effect::Bind { node, .. } => Some(node.as_str()),
        _ => None,
    });
    let message = effects.iter().find_map(|effect| match effect {
        Effect::SetCondition { message, .. } => Some(of_filters(message)),
        _ => None,
    });
    let doubts = effects.iter().filter_map(|effect| match effect {
        Effect::PostEvent { event: PodEvent::Doubtful(doubt), .. } => Some(doubt.message.as_str()),
        _ => None,
    });
    (bound, message, doubts.collect())
}

#[test]
fn the_event_is_on_the_pod_that_is_placed_and_a_rejected_pod_is_tried_when_the_host_mounts_the_datastore() {
    for (unmounted, places) in [("Report", true), ("Reject", false)] {
        let mut world = cluster();
        for name in ["n2", "n3"] {
            apply(&mut world, Event::NodeDeleted { name: name.to_owned() });
        }
        with_volume(&mut world, Some("local"));
        apply(&mut world, Event::PodApplied(uses("web", vec![PodVolume::Claim("data".to_owned())])));
        let mut scheduler = Scheduler::new(configuration(unmounted), 1);
        scheduler.observe(Duration::ZERO, &world, &everything());
        let effects = scheduler.step(Duration::ZERO, &mut world, Input::Schedule { at_most: 1 });
        let doubt = "host esx-1 of node n1 does not mount datastore local of volume pv";
        if places {
            assert_eq!(outcome(&effects), (Some("n1"), None, vec![doubt]));
            continue;
        }
        let message = format!("0/1 nodes are available: 1 {REJECTED}.");
        assert_eq!(outcome(&effects), (None, Some(message.as_str()), vec![]));
        let changes = apply(&mut world, host_applied(lacking("esx-1", false)));
        let later = Duration::from_secs(60);
        scheduler.observe(later, &world, &changes);
        let effects = scheduler.step(later, &mut world, Input::Schedule { at_most: 1 });
        assert_eq!(outcome(&effects), (Some("n1"), None, vec![]));
    }
}
