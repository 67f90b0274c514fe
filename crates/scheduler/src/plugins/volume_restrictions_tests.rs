//! Cases of upstream's `volume_restrictions_test.go`.

use model::View;
use model::event::{Event, PodFacts};
use model::volumes::{ClaimFacts, Disk, PodVolume};

use super::*;
use crate::testing::NAMESPACE;
use crate::testing::volumes::{
    N1_AND_N2, Said, applied, claim, claims, helps, labelled, pod_using, rejects_for_now, said, there, world_for,
};

const DISK: &str = "node(s) had no available disk";
const IN_USE: &str =
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";

fn gce(name: &str, read_only: bool) -> Vec<PodVolume> {
    vec![PodVolume::Disk(Disk::GcePd { name: name.to_owned(), read_only })]
}

fn aws(volume: &str) -> Vec<PodVolume> {
    vec![PodVolume::Disk(Disk::AwsEbs { volume: volume.to_owned() })]
}

fn iscsi(iqn: &str, read_only: bool) -> Vec<PodVolume> {
    vec![PodVolume::Disk(Disk::Iscsi { iqn: iqn.to_owned(), read_only })]
}

fn rbd(monitors: &[&str], image: &str, read_only: bool) -> Vec<PodVolume> {
    let monitors = monitors.iter().map(|monitor| (*monitor).to_owned()).collect();
    vec![PodVolume::Disk(Disk::Rbd { monitors, pool: "pool".to_owned(), image: image.to_owned(), read_only })]
}

#[test]
fn two_pods_on_a_node_share_a_disk_only_to_read_it() {
    let cases = [
        (gce("a", false), gce("b", false), false),
        (gce("a", false), gce("a", false), true),
        (gce("a", true), gce("a", false), true),
        (gce("a", true), gce("a", true), false),
        (aws("a"), aws("b"), false),
        (aws("a"), aws("a"), true),
        (iscsi("a", false), iscsi("b", false), false),
        (iscsi("a", false), iscsi("a", true), true),
        (iscsi("a", true), iscsi("a", true), false),
        (rbd(&["a", "b"], "i", false), rbd(&["c", "b"], "i", false), true),
        (rbd(&["a", "b"], "i", false), rbd(&["c", "d"], "i", false), false),
        (rbd(&["a"], "i", false), rbd(&["a"], "j", false), false),
        (rbd(&["a"], "i", true), rbd(&["a"], "i", true), false),
        (gce("a", false), aws("a"), false),
        (gce("a", false), vec![], false),
    ];
    for (wanted, used, is_in_conflict) in cases {
        let world = world_for(N1_AND_N2, vec![there("there", used.clone())], wanted.clone());
        let expected = if is_in_conflict { rejects_for_now(&["n1"], DISK) } else { Said::Rejects(vec![]) };
        assert_eq!(said(&VolumeRestrictions, &world, "p"), expected, "{wanted:?} {used:?}");
    }
}

fn exclusive(name: &str) -> ClaimFacts {
    ClaimFacts { access_modes: [AccessMode::ReadWriteOncePod].into(), ..claim(name, "") }
}

#[test]
fn an_exclusive_claim_has_room_for_one_pod() {
    let (used, other) = (|on| pod_using("there", claims(&["data"]), on), "elsewhere");
    let shared = ClaimFacts { access_modes: [AccessMode::ReadWriteOnce].into(), ..claim("data", "") };
    let in_other_namespace = PodFacts { namespace: other.to_owned(), ..used(Some("n1")) };
    let cases = [
        (exclusive("data"), used(Some("n1")), rejects_for_now(&["n1", "n2"], IN_USE)),
        (exclusive("data"), used(None), Said::Skips),
        (exclusive("data"), used(Some("unknown")), Said::Skips),
        (exclusive("data"), in_other_namespace, Said::Skips),
        (shared, used(Some("n1")), Said::Skips),
        (exclusive("other"), used(Some("n1")), Said::Never("persistentvolumeclaim \"data\" not found".to_owned())),
    ];
    for (claim, there, expected) in cases {
        let described = format!("{claim:?} {there:?}");
        let world = world_for(N1_AND_N2, vec![applied(claim), Event::PodApplied(there)], claims(&["data"]));
        assert_eq!(said(&VolumeRestrictions, &world, "p"), expected, "{described}");
    }
}

#[test]
fn a_trial_counts_the_pods_that_it_adds_and_removes() {
    let events = vec![
        applied(exclusive("data")),
        there("there", claims(&["data"])),
        Event::PodApplied(pod_using("nominated", claims(&["data"]), None)),
    ];
    let world = world_for(&[("n1", &[])], events, claims(&["data"]));
    let id = |name: &str| world.pod_id(NAMESPACE, name).expect("a pod");
    let node = world.node_id("n1").expect("a node");
    for (view, uses) in [
        (View::default(), 1),
        (View::default().without(id("there")), 0),
        (View::default().with(id("nominated"), node), 2),
        (View::default().without(id("there")).with(id("nominated"), node), 1),
    ] {
        let cycle = Cycle { view: &view, ..Cycle::of(&world, id("p")).expect("a cycle") };
        let mut state = State::default();
        let skips = VolumeRestrictions.pre_filter(&cycle, &mut state) == Err(Status::Skip);
        assert_eq!((state.uses, skips), (uses, uses == 0), "{view:?}");
        // A second time changes nothing.
        let status = VolumeRestrictions.add_pod(&cycle, &mut state, id("nominated"), node);
        assert_eq!((state.uses, status == Status::Skip), (uses, uses == 0), "{view:?}");
    }
    // A pod that runs is explained as if it did not.
    let view = View::default().without(id("there"));
    let cycle = Cycle { view: &view, ..Cycle::of(&world, id("there")).expect("a cycle") };
    assert_eq!(VolumeRestrictions.pre_filter(&cycle, &mut State::default()), Err(Status::Skip));
}

#[test]
fn only_related_pods_and_own_claims_wake_a_pod() {
    let plugin = VolumeRestrictions;
    let wanted = claims(&["data"]).into_iter().chain(gce("a", false)).collect();
    let mut world = world_for(&[("n1", &[])], vec![], wanted);
    for (name, volumes, expected) in [
        ("same-claim", claims(&["data"]), true),
        ("other-claim", claims(&["other"]), false),
        ("same-disk", gce("a", true), true),
        ("other-disk", gce("b", false), false),
        ("none", vec![], false),
    ] {
        world.apply(there(name, volumes));
        let deleted = Event::PodDeleted { namespace: NAMESPACE.to_owned(), name: name.to_owned() };
        assert_eq!(helps(&plugin, &mut world, "p", deleted), expected, "{name}");
    }
    assert!(helps(&plugin, &mut world, "p", applied(exclusive("data"))));
    let changed = ClaimFacts { version: "2".to_owned(), ..exclusive("data") };
    assert!(!helps(&plugin, &mut world, "p", applied(changed)));
    assert!(!helps(&plugin, &mut world, "p", applied(exclusive("other"))));
    assert!(helps(&plugin, &mut world, "p", Event::NodeApplied(labelled("n2", &[]))));
}
