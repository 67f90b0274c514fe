//! Cases of upstream's `volume_zone_test.go`.

use model::event::Event;
use model::volumes::StorageClassFacts;

use super::*;
use crate::testing::volumes::{
    Said, WAITS, applied, bound, claim, claims, class, helps, labelled, labels, rejects, said, volume, waits, world_for,
};

const OTHER: &str = "node(s) had no available volume zone";

fn volume_with(pairs: &[(&str, &str)]) -> VolumeFacts {
    VolumeFacts { labels: labels(pairs), ..volume("pv", "") }
}

/// A world with a pod whose claim is bound to this volume, and a node with these labels.
fn world_with(volume: VolumeFacts, node: &[(&str, &str)]) -> World {
    world_for(&[("n1", node)], vec![applied(volume), applied(bound("data", "", "pv"))], claims(&["data"]))
}

#[test]
fn a_node_must_be_in_the_zone_and_region_of_the_volume() {
    type Labels<'a> = &'a [(&'a str, &'a str)];
    let cases: &[(Labels<'_>, Labels<'_>, bool)] = &[
        (&[(BETA_ZONE, "a")], &[], true),
        (&[(BETA_ZONE, "a")], &[(BETA_ZONE, "a"), ("other", "x")], true),
        (&[(BETA_REGION, "r")], &[(BETA_REGION, "r")], true),
        (&[(BETA_REGION, "r")], &[(BETA_REGION, "q")], false),
        (&[(BETA_ZONE, "a")], &[(BETA_ZONE, "b")], false),
        (&[(ZONE, "a")], &[(ZONE, "a")], true),
        (&[(REGION, "r")], &[(REGION, "r")], true),
        (&[(REGION, "r")], &[(REGION, "q")], false),
        (&[(ZONE, "a")], &[(ZONE, "b")], false),
        (&[(ZONE, "a"), (REGION, "r")], &[(ZONE, "a")], false),
        // A volume with the newer label does not accept a node with the older one, but the other way round.
        (&[(ZONE, "a")], &[(BETA_ZONE, "a")], false),
        (&[(BETA_ZONE, "a")], &[(ZONE, "a")], true),
        (&[(BETA_ZONE, "a")], &[(ZONE, "b")], false),
        (&[(BETA_ZONE, "a")], &[(BETA_ZONE, "b"), (ZONE, "a")], false),
        (&[(ZONE, "c__a")], &[(ZONE, "a")], true),
        (&[(ZONE, "c__a")], &[(ZONE, "b")], false),
        // A list with an empty value is ignored.
        (&[(ZONE, "c__"), (REGION, "r")], &[(ZONE, "b"), (REGION, "r")], true),
    ];
    for (of_volume, of_node, fits) in cases {
        let world = world_with(volume_with(of_volume), of_node);
        let expected = if *fits { Said::Rejects(vec![]) } else { rejects(&["n1"], OTHER) };
        assert_eq!(said(&VolumeZone, &world, "p"), expected, "{of_volume:?} {of_node:?}");
    }
    let world = world_with(volume_with(&[("other", "x")]), &[(ZONE, "a")]);
    assert_eq!(said(&VolumeZone, &world, "p"), Said::Skips);
}

#[test]
fn a_claim_without_a_volume_is_accepted_only_if_it_waits_for_the_node() {
    let not_found = |what: &str| Said::Never(format!("{what} not found"));
    let never = |why: &str| Said::Never(why.to_owned());
    let cases = [
        (claim("data", WAITS), Said::Skips),
        (claim("data", ""), never("PersistentVolumeClaim had no pv name and storageClass name")),
        (claim("data", "unknown"), not_found("storageclass.storage.k8s.io \"unknown\"")),
        (claim("data", "immediate"), never("PersistentVolume had no name")),
        (claim("data", "unset"), never("VolumeBindingMode not set for StorageClass \"unset\"")),
        (bound("data", WAITS, "gone"), not_found("persistentvolume \"gone\"")),
        (claim("other", WAITS), not_found("persistentvolumeclaim \"data\"")),
    ];
    for (claim, expected) in cases {
        let described = format!("{claim:?}");
        let events = vec![
            applied(waits("p")),
            applied(class("immediate", Some(BindingMode::Immediate), "p")),
            applied(class("unset", None, "p")),
            applied(claim),
        ];
        let world = world_for(&[("n1", &[(ZONE, "a")])], events, claims(&["data"]));
        assert_eq!(said(&VolumeZone, &world, "p"), expected, "{described}");
    }
    let world = world_for(&[], vec![], vec![]);
    assert_eq!(said(&VolumeZone, &world, "p"), Said::Skips);
}

#[test]
fn only_what_can_change_the_verdict_wakes_a_pod() {
    let mut world = world_with(volume_with(&[(ZONE, "a")]), &[(ZONE, "b")]);
    let mut helps = |event| helps(&VolumeZone, &mut world, "p", event);
    assert!(!helps(applied(VolumeFacts { version: "2".to_owned(), ..volume_with(&[(ZONE, "a")]) })));
    assert!(helps(applied(VolumeFacts { version: "3".to_owned(), ..volume_with(&[(ZONE, "b")]) })));
    assert!(helps(applied(volume("new", ""))));
    assert!(helps(applied(bound("data", "", "new"))));
    assert!(!helps(applied(bound("other", "", "new"))));
    assert!(helps(applied(waits("p"))));
    let changed = StorageClassFacts { provisioner: "q".to_owned(), ..waits("p") };
    assert!(!helps(applied(changed)));
    assert!(!helps(applied(class("immediate", Some(BindingMode::Immediate), "p"))));
    assert!(helps(Event::NodeApplied(labelled("n1", &[(ZONE, "c")]))));
}
