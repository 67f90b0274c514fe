//! Cases of upstream's `csi_test.go`.

use model::event::{Event, PodFacts};
use model::volumes::{
    CsiNodeDriverFacts, InTreePlugin, InTreeVolume, MigratedVolume, VolumeFacts, VolumeKind, VolumeSourceFacts,
};

use super::*;
use crate::testing::NAMESPACE;
use crate::testing::volumes::{
    self, DRIVER, N1_AND_N2, Said, WAITS, applied, attachment, bound, claim, claims, csi_node, helps, pod_using,
    rejects, rejects_for_now, said, volume, waits, world_for,
};

const FULL: &str = "node(s) exceed max volume count";

fn in_tree(plugin: InTreePlugin, handle: &str) -> InTreeVolume {
    InTreeVolume { plugin, migrated: Ok(MigratedVolume { handle: handle.to_owned(), node_terms: None }) }
}

/// Claims a to e are bound to volumes of the same names; claim `new` is unbound, of a class of the driver.
fn objects() -> Vec<Event> {
    let names = ["a", "b", "c", "d", "e"];
    let claims = names.iter().map(|name| applied(bound(name, WAITS, name)));
    let volumes = names.iter().map(|name| applied(volume(name, WAITS)));
    claims.chain(volumes).chain([applied(waits(DRIVER)), applied(claim("new", WAITS))]).collect()
}

fn world_with(limit: Option<i32>, there: &[Vec<PodVolume>], wanted: Vec<PodVolume>, more: Vec<Event>) -> World {
    let mut events = objects();
    events.push(applied(csi_node("n1", limit)));
    for (number, volumes) in there.iter().enumerate() {
        events.push(volumes::there(&format!("there-{number}"), volumes.clone()));
    }
    events.extend(more);
    world_for(N1_AND_N2, events, wanted)
}

#[test]
fn a_driver_attaches_only_so_many_volumes_to_a_node() {
    let fits = || Said::Rejects(vec![]);
    let full = || rejects_for_now(&["n1"], FULL);
    // The limit, the volumes of each pod on the node, those of the new pod, and what is said.
    let cases = [
        (Some(4), vec![claims(&["a"]), claims(&["b", "c"])], claims(&["d"]), fits()),
        (Some(3), vec![claims(&["a"]), claims(&["b", "c"])], claims(&["d"]), full()),
        (None, vec![claims(&["a"]), claims(&["b", "c"])], claims(&["d"]), fits()),
        (Some(0), vec![], claims(&["a"]), full()),
        // A volume counts once, whoever uses it.
        (Some(1), vec![claims(&["a"]), claims(&["a"])], claims(&["a"]), fits()),
        (Some(2), vec![claims(&["a"]), claims(&["a"])], claims(&["b"]), fits()),
        // An unbound claim counts as the volume that it will get.
        (Some(1), vec![claims(&["a"])], claims(&["new"]), full()),
        (Some(2), vec![claims(&["a"])], claims(&["new"]), fits()),
        (Some(1), vec![claims(&["new"])], claims(&["new"]), fits()),
        (Some(1), vec![claims(&["new"])], claims(&["a"]), full()),
        // A missing claim of a pod that is there does not count.
        (Some(1), vec![claims(&["missing"])], claims(&["a"]), fits()),
    ];
    for (limit, there, wanted, expected) in cases {
        let world = world_with(limit, &there, wanted.clone(), vec![]);
        assert_eq!(said(&NodeVolumeLimits, &world, "p"), expected, "{limit:?} {there:?} {wanted:?}");
    }
    let world = world_with(Some(0), &[], vec![PodVolume::Csi(DRIVER.to_owned())], vec![]);
    assert_eq!(said(&NodeVolumeLimits, &world, "p"), Said::Skips);
    let world = world_with(Some(0), &[], claims(&["missing"]), vec![]);
    let missing = "looking up PVC default/missing: persistentvolumeclaim \"missing\" not found";
    assert_eq!(said(&NodeVolumeLimits, &world, "p"), rejects(&["n1", "n2"], missing));
}

#[test]
fn attached_volumes_count_until_they_are_detached() {
    let there = vec![claims(&["a"])];
    for (limit, attached, expected) in [
        // The volume of the pod that is there is not counted twice.
        (2, vec![attachment("x", "n1", "a")], Said::Rejects(vec![])),
        (2, vec![attachment("x", "n1", "a"), attachment("y", "n1", "c")], rejects_for_now(&["n1"], FULL)),
        (2, vec![attachment("y", "n2", "c")], Said::Rejects(vec![])),
        (2, vec![attachment("y", "n1", "unknown")], Said::Rejects(vec![])),
        // Of another driver.
        (
            2,
            vec![AttachmentFacts { attacher: "other".to_owned(), ..attachment("y", "n1", "c") }],
            Said::Rejects(vec![]),
        ),
        // The volume of the new pod itself, still attached, counts besides it.
        (2, vec![attachment("y", "n1", "b")], rejects_for_now(&["n1"], FULL)),
    ] {
        let more = attached.iter().cloned().map(applied).collect();
        let world = world_with(Some(limit), &there, claims(&["b"]), more);
        assert_eq!(said(&NodeVolumeLimits, &world, "p"), expected, "{attached:?}");
    }
}

use model::volumes::AttachmentFacts;

#[test]
fn volumes_of_migrated_kinds_count_for_their_driver() {
    let driver = |plugin: InTreePlugin, volumes_max| CsiNodeFacts {
        name: "n1".to_owned(),
        drivers: vec![CsiNodeDriverFacts { name: plugin.driver().to_owned(), volumes_max: Some(volumes_max) }],
        ..CsiNodeFacts::default()
    };
    for plugin in InTreePlugin::ALL {
        let source = VolumeSourceFacts::InTree(in_tree(plugin, "1"));
        let persistent = VolumeFacts { source, ..volume("old", "") };
        let wanted = vec![PodVolume::InTree(in_tree(plugin, "2"))];
        let more = vec![applied(persistent), applied(bound("old", "", "old")), applied(driver(plugin, 1))];
        let world = world_with(None, &[claims(&["old"])], wanted, more);
        let expected = if plugin.is_migrated() { rejects_for_now(&["n1"], FULL) } else { Said::Rejects(vec![]) };
        assert_eq!(said(&NodeVolumeLimits, &world, "p"), expected, "{plugin:?}");
    }
    let broken = PodVolume::InTree(InTreeVolume { plugin: InTreePlugin::AwsEbs, migrated: Err("why".to_owned()) });
    let world = world_with(None, &[], vec![broken], vec![]);
    assert_eq!(said(&NodeVolumeLimits, &world, "p"), rejects(&["n1"], "why"));
}

#[test]
fn an_ephemeral_volume_counts_for_its_own_pod() {
    let ephemeral = |name: &str, on: Option<&str>| pod_using(name, vec![PodVolume::Ephemeral("e".to_owned())], on);
    let PodFacts { uid, .. } = ephemeral("there", None);
    for (owner, expected) in [(Some(uid), rejects_for_now(&["n1"], FULL)), (None, Said::Rejects(vec![]))] {
        let there = model::volumes::ClaimFacts { controller_uid: owner, ..bound("there-e", WAITS, "a") };
        let more = vec![applied(there), Event::PodApplied(ephemeral("there", Some("n1")))];
        let world = world_with(Some(1), &[], claims(&["b"]), more);
        assert_eq!(said(&NodeVolumeLimits, &world, "p"), expected);
    }
}

#[test]
fn only_what_makes_room_wakes_a_pod() {
    let mut world = world_with(Some(1), &[claims(&["a"])], claims(&["b"]), vec![applied(attachment("x", "n1", "c"))]);
    world.apply(volumes::there("without", vec![]));
    let mut helps = |event| helps(&NodeVolumeLimits, &mut world, "p", event);
    let deleted = |name: &str| Event::PodDeleted { namespace: NAMESPACE.to_owned(), name: name.to_owned() };
    assert!(!helps(deleted("without")));
    assert!(helps(deleted("there-0")));
    assert!(!helps(applied(csi_node("n1", Some(1)))));
    assert!(!helps(applied(csi_node("n1", Some(0)))));
    assert!(helps(applied(csi_node("n1", Some(1)))));
    assert!(!helps(applied(csi_node("n1", None))), "no limit counts as 0, as upstream");
    assert!(helps(applied(csi_node("n2", Some(0)))));
    assert!(!helps(applied(claim("other", WAITS))));
    let gone = |kind, name: &str| Event::VolumeDeleted { kind, namespace: String::new(), name: name.to_owned() };
    assert!(helps(gone(VolumeKind::Attachment, "x")));
    assert!(!helps(gone(VolumeKind::CsiNode, "n2")));
}
