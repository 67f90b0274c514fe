//! Claims and volumes: as observed, and as assumed for a pod.

use std::sync::Arc;

use crate::event::{Event, PodFacts, Source};
use crate::testing::{node, pod};
use crate::volumes::{
    AttachmentFacts, ClaimFacts, ClaimRefFacts, CsiNodeFacts, StorageCapacityFacts, VolumeFacts, VolumeKind,
    VolumeObject,
};
use crate::{Subject, World};

const NAMESPACE: &str = "shop";

fn claim(version: &str) -> ClaimFacts {
    ClaimFacts {
        namespace: NAMESPACE.to_owned(),
        name: "data".to_owned(),
        version: version.to_owned(),
        ..ClaimFacts::default()
    }
}

fn volume(name: &str, class: &str) -> VolumeFacts {
    VolumeFacts { name: name.to_owned(), class: class.to_owned(), version: "1".to_owned(), ..VolumeFacts::default() }
}

fn applied(object: VolumeObject) -> Event {
    Event::VolumeApplied(object)
}

fn claim_applied(version: &str) -> Event {
    applied(VolumeObject::Claim(Arc::new(claim(version))))
}

fn selected(version: &str) -> VolumeObject {
    VolumeObject::Claim(Arc::new(ClaimFacts { selected_node: Some("node-1".to_owned()), ..claim(version) }))
}

fn waiting() -> PodFacts {
    pod(NAMESPACE, "p", "app")
}

fn assumed(version: &str) -> Event {
    let PodFacts { namespace, name, uid, .. } = waiting();
    Event::VolumesAssumed { namespace, name, uid, objects: vec![selected(version)] }
}

/// The node that is selected for the claim: as assumed, and as observed.
fn selections(world: &World) -> [Option<&str>; 2] {
    let volumes = world.volumes();
    [volumes.claim(NAMESPACE, "data"), volumes.observed_claim(NAMESPACE, "data")]
        .map(|claim| claim.and_then(|claim| claim.selected_node.as_deref()))
}

/// A world in which a pod is assumed on a node, and its claim is assumed to select that node.
fn world_with_an_assumption() -> World {
    let mut world = World::default();
    world.apply(Event::NodeApplied(node(1)));
    world.apply(claim_applied("7"));
    world.apply(Event::PodApplied(waiting()));
    world.apply(Event::PodAssumed { pod: Box::new(waiting()), node: "node-1".to_owned() });
    world.apply(assumed("7"));
    assert_eq!(selections(&world), [Some("node-1"), None]);
    world
}

#[test]
fn an_assumption_ends_with_a_newer_version_or_with_its_pod() {
    let PodFacts { namespace, name, uid, .. } = waiting();
    let ends = [
        claim_applied("8"),
        Event::PodForgotten { namespace: namespace.clone(), name: name.clone(), uid },
        Event::PodDeleted { namespace, name },
        Event::PodApplied(PodFacts { uid: "another".to_owned(), ..waiting() }),
        Event::PodApplied(PodFacts { finished: true, ..waiting() }),
        Event::PodApplied(PodFacts { node: Some("node-1".to_owned()), ..waiting() }),
        Event::VolumeDeleted { kind: VolumeKind::Claim, namespace: NAMESPACE.to_owned(), name: "data".to_owned() },
    ];
    for end in ends {
        let mut world = world_with_an_assumption();
        let changes = world.volumes().changes();
        world.apply(end.clone());
        assert_eq!(selections(&world), [None, None], "{end:?}");
        assert!(world.volumes().changes() > changes, "{end:?}");
        world.apply(Event::PodDeleted { namespace: NAMESPACE.to_owned(), name: "p".to_owned() });
        assert_eq!(world.volumes.assumed_count(), 0, "{end:?}");
    }
}

#[test]
fn an_assumption_survives_what_does_not_change_its_object() {
    for event in [claim_applied("7"), Event::PodApplied(waiting())] {
        let mut world = world_with_an_assumption();
        world.apply(event);
        assert_eq!(selections(&world), [Some("node-1"), None]);
    }
}

#[test]
fn an_assumption_about_another_version_or_for_a_pod_without_a_node_has_no_effect() {
    let mut world = World::default();
    world.apply(claim_applied("7"));
    world.apply(Event::PodApplied(waiting()));
    world.apply(assumed("7"));
    assert_eq!(selections(&world), [None, None]);
    world.apply(Event::PodAssumed { pod: Box::new(waiting()), node: "node-1".to_owned() });
    world.apply(assumed("6"));
    assert_eq!(selections(&world), [None, None]);
}

#[test]
fn a_node_has_the_csi_drivers_of_its_name() {
    let drivers = || CsiNodeFacts { name: "node-1".to_owned(), ..CsiNodeFacts::default() };
    let known = |world: &World| world.node_id("node-1").and_then(|node| world.csi_node(node)).is_some();
    let deleted =
        Event::VolumeDeleted { kind: VolumeKind::CsiNode, namespace: String::new(), name: "node-1".to_owned() };
    let mut world = World::default();
    for (event, expected) in [
        (applied(VolumeObject::CsiNode(Arc::new(drivers()))), false),
        (Event::NodeApplied(node(1)), true),
        (Event::NodeDeleted { name: "node-1".to_owned() }, false),
        // Another node gets the id of the one that is gone.
        (Event::NodeApplied(node(2)), false),
        (Event::NodeApplied(node(1)), true),
        (deleted, false),
        (applied(VolumeObject::CsiNode(Arc::new(drivers()))), true),
    ] {
        world.apply(event.clone());
        assert_eq!(known(&world), expected, "{event:?}");
        assert!(world.node_id("node-2").is_none_or(|node| world.csi_node(node).is_none()));
    }
    world.apply(Event::RelistBegan(Source::Volume(VolumeKind::CsiNode)));
    world.apply(Event::RelistEnded(Source::Volume(VolumeKind::CsiNode)));
    assert!(!known(&world));
}

#[test]
fn objects_are_found_by_what_they_refer_to() {
    let mut world = World::default();
    let volumes = [volume("b", "fast"), volume("a", "fast"), volume("c", "slow")];
    for volume in volumes {
        world.apply(applied(VolumeObject::Volume(Arc::new(volume))));
    }
    let names = |world: &World, class: &str| -> Vec<String> {
        world.volumes().volumes_of_class(class).map(|volume| volume.name.clone()).collect()
    };
    assert_eq!((names(&world, "fast"), names(&world, "slow")), (vec!["a".into(), "b".into()], vec!["c".into()]));
    let claimed = VolumeFacts { claim: Some(ClaimRefFacts::default()), ..volume("a", "slow") };
    let change = world.apply(applied(VolumeObject::Volume(Arc::new(claimed))));
    let Subject::Volume { before: Some(VolumeObject::Volume(before)), after: Some(VolumeObject::Volume(after)) } =
        &change.subject
    else {
        panic!("{change:?}");
    };
    assert_eq!((before.class.as_str(), after.class.as_str()), ("fast", "slow"));
    assert_eq!((names(&world, "fast"), names(&world, "slow")), (vec!["b".into()], vec!["a".into(), "c".into()]));

    let attachment = |node: &str| AttachmentFacts { name: "x".into(), node: node.into(), ..AttachmentFacts::default() };
    let on = |world: &World| ["n1", "n2"].map(|node| world.volumes().attachments_on(node).count());
    for (node, expected) in [("n1", [1, 0]), ("n2", [0, 1])] {
        world.apply(applied(VolumeObject::Attachment(Arc::new(attachment(node)))));
        assert_eq!(on(&world), expected);
    }
    let capacity = StorageCapacityFacts { name: "x".into(), class: "fast".into(), ..StorageCapacityFacts::default() };
    for namespace in ["one", "two"] {
        let capacity = StorageCapacityFacts { namespace: namespace.into(), ..capacity.clone() };
        world.apply(applied(VolumeObject::StorageCapacity(Arc::new(capacity))));
    }
    assert_eq!(world.volumes().capacities_of_class("fast").count(), 2);
    for kind in VolumeKind::ALL {
        world.apply(Event::RelistBegan(Source::Volume(kind)));
        world.apply(Event::RelistEnded(Source::Volume(kind)));
        assert_eq!(world.volumes().count(kind), 0);
    }
    assert!(names(&world, "slow").is_empty() && on(&world) == [0, 0]);
    assert_eq!(world.volumes().capacities_of_class("fast").count(), 0);
}
