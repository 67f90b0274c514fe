//! Cases of upstream's `volume_binding_test.go` and `binder_test.go`; and what is done on the chosen node.

use model::World;
use model::event::{Event, NodeTermFacts, Operator, PodFacts, RequirementFacts, SelectorFacts};
use model::volumes::{
    AccessMode, BindingMode, ClaimFacts, ClaimRefFacts, CsiDriverFacts, InTreePlugin, InTreeVolume, MigratedVolume,
    PodVolume, StorageCapacityFacts, StorageClassFacts, VolumeFacts, VolumeSourceFacts,
};

use super::search::Found;
use super::work::{self, VolumeWork, WaitingFor, WrittenVersions};
use super::*;
use crate::testing::volumes::{
    DRIVER, Said, WAITS, applied, bound, claim, claims, class, csi_node, helps, labelled, labels, local, one_of,
    pod_using, rejects, said, volume, waits, world_for, world_of,
};
use crate::testing::{NAMESPACE, id};

const AFFINITY: &str = "node(s) didn't match PersistentVolume's node affinity";
const VOLUMES: &str = "node(s) didn't find available persistent volumes to bind";
const SPACE: &str = "node(s) did not have enough free storage";
const MISSING: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
const GIB: i64 = 1 << 30;

fn plugin() -> VolumeBinding {
    VolumeBinding { bind_within: BIND_WITHIN }
}

fn fits() -> Said {
    Said::Rejects(vec![])
}

/// A world with the nodes n1 in zone a and n2 in zone b, and a pod with these claims.
fn world_with(names: &[&str], events: Vec<Event>) -> World {
    world_for(&[("n1", &[("zone", "a")]), ("n2", &[("zone", "b")])], events, claims(names))
}

/// The class provisions no volumes.
fn by_hand() -> StorageClassFacts {
    waits("kubernetes.io/no-provisioner")
}

#[test]
fn claims_must_be_usable() {
    let never = |why: &str| Said::Never(why.to_owned());
    let unbound = "pod has unbound immediate PersistentVolumeClaims";
    let cases = [
        (claim("other", WAITS), never("persistentvolumeclaim \"data\" not found")),
        (
            ClaimFacts { is_lost: true, ..bound("data", WAITS, "pv") },
            never("persistentvolumeclaim \"data\" bound to non-existent persistentvolume \"pv\""),
        ),
        (
            ClaimFacts { terminating: true, ..claim("data", WAITS) },
            never("persistentvolumeclaim \"data\" is being deleted"),
        ),
        (claim("data", "immediate"), never(unbound)),
        (claim("data", ""), never(unbound)),
        (claim("data", "unknown"), never(unbound)),
        // For a certain volume, but not bound to it yet.
        (ClaimFacts { volume: Some("pv".to_owned()), ..claim("data", WAITS) }, never(unbound)),
        (claim("data", "unset"), Said::Fails("VolumeBindingMode not set for StorageClass \"unset\"".to_owned())),
        (bound("data", WAITS, "pv"), rejects(&["n1", "n2"], MISSING)),
        (claim("data", WAITS), fits()),
    ];
    for (claim, expected) in cases {
        let described = format!("{claim:?}");
        let events = vec![
            applied(waits(DRIVER)),
            applied(class("immediate", Some(BindingMode::Immediate), DRIVER)),
            applied(class("unset", None, DRIVER)),
            applied(claim),
        ];
        assert_eq!(said(&plugin(), &world_with(&["data"], events), "p"), expected, "{described}");
    }
    assert_eq!(said(&plugin(), &world_with(&[], vec![]), "p"), Said::Skips);
}

#[test]
fn the_claim_of_an_ephemeral_volume_belongs_to_the_pod() {
    let pod = pod_using("p", vec![PodVolume::Ephemeral("e".to_owned())], None);
    let not_created = "waiting for ephemeral volume controller to create the persistentvolumeclaim \"p-e\"";
    let not_owned = "PVC default/p-e was not created for pod default/p (pod is not owner)";
    let owned = |uid: Option<&str>| ClaimFacts { controller_uid: uid.map(str::to_owned), ..bound("p-e", "", "pv") };
    for (claim, expected) in [
        (claim("other", ""), Said::Never(not_created.to_owned())),
        (owned(None), Said::Never(not_owned.to_owned())),
        (owned(Some("another")), Said::Never(not_owned.to_owned())),
        (owned(Some(&pod.uid)), fits()),
    ] {
        let events = vec![applied(claim), applied(volume("pv", "")), Event::PodApplied(pod.clone())];
        assert_eq!(said(&plugin(), &world_of(vec![labelled("n1", &[])], events), "p"), expected);
    }
}

#[test]
fn the_volumes_of_bound_claims_must_be_usable_on_the_node() {
    let field =
        |operator| RequirementFacts { key: "metadata.name".to_owned(), operator, values: vec!["other".to_owned()] };
    let by_field = |operator| NodeTermFacts { expressions: vec![], fields: vec![field(operator)] };
    for (terms, expected) in [
        (None, fits()),
        (Some(vec![one_of("zone", &["a"])]), rejects(&["n2"], AFFINITY)),
        (Some(vec![one_of("zone", &["a"]), one_of("zone", &["b"])]), fits()),
        (Some(vec![NodeTermFacts::default()]), rejects(&["n1", "n2"], AFFINITY)),
        // As upstream, only labels are compared: a requirement on a field accepts every node, unless it is malformed.
        (Some(vec![by_field(Operator::In)]), fits()),
        (Some(vec![by_field(Operator::Exists)]), rejects(&["n1", "n2"], AFFINITY)),
    ] {
        let described = format!("{terms:?}");
        let volume = VolumeFacts { node_terms: terms, ..volume("pv", WAITS) };
        let events = vec![applied(bound("data", WAITS, "pv")), applied(volume)];
        assert_eq!(said(&plugin(), &world_with(&["data"], events), "p"), expected, "{described}");
    }
    // The first claim that does not fit gives the reason, together with the reason of unbound ones.
    let events = vec![
        applied(bound("elsewhere", WAITS, "pv")),
        applied(bound("gone", WAITS, "unknown")),
        applied(claim("new", WAITS)),
        applied(by_hand()),
        applied(local("pv", WAITS, "n3")),
    ];
    let both = format!("{AFFINITY}, {VOLUMES}");
    assert_eq!(said(&plugin(), &world_with(&["elsewhere", "gone", "new"], events), "p"), rejects(&["n1", "n2"], both));
}

#[test]
fn a_volume_of_a_migrated_kind_has_the_topology_of_its_driver_where_it_is_migrated() {
    let migrated = |terms| Ok(MigratedVolume { handle: "h".to_owned(), node_terms: terms });
    let terms = || Some(vec![one_of("zone", &["b"])]);
    let with = |plugin, migrated| VolumeFacts {
        source: VolumeSourceFacts::InTree(InTreeVolume { plugin, migrated }),
        ..volume("pv", WAITS)
    };
    let on_n1 = |plugin: InTreePlugin| {
        let mut node = csi_node("n1", None);
        node.migrated_plugins.insert(plugin.name().to_owned());
        applied(node)
    };
    for (plugin_kind, volume, expected) in [
        (InTreePlugin::AwsEbs, with(InTreePlugin::AwsEbs, migrated(terms())), rejects(&["n1"], AFFINITY)),
        (InTreePlugin::Cinder, with(InTreePlugin::AwsEbs, migrated(terms())), fits()),
        (InTreePlugin::AwsEbs, with(InTreePlugin::AwsEbs, migrated(None)), fits()),
        (InTreePlugin::Vsphere, with(InTreePlugin::Vsphere, migrated(terms())), fits()),
        (
            InTreePlugin::AwsEbs,
            with(InTreePlugin::AwsEbs, Err("why".to_owned())),
            rejects(&["n1"], "could not translate pv: why"),
        ),
    ] {
        let described = format!("{volume:?}");
        let events = vec![applied(bound("data", WAITS, "pv")), applied(volume), on_n1(plugin_kind)];
        assert_eq!(said(&plugin(), &world_with(&["data"], events), "p"), expected, "{described}");
    }
}

#[test]
fn a_volume_fits_a_claim_or_not() {
    let selector = |value: &str| Some(SelectorFacts { labels: labels(&[("tier", value)]), ..SelectorFacts::default() });
    let reserved = |name: &str, uid: &str| {
        Some(ClaimRefFacts { namespace: NAMESPACE.to_owned(), name: name.to_owned(), uid: uid.to_owned() })
    };
    let plain = || volume("pv", WAITS);
    let none = || rejects(&["n1", "n2"], VOLUMES);
    let modes = |modes: &[AccessMode]| modes.iter().copied().collect();
    let asks = |ask: ClaimFacts| ask;
    let cases = [
        (claim("data", WAITS), plain(), fits()),
        (claim("data", WAITS), VolumeFacts { class: "other".to_owned(), ..plain() }, none()),
        (claim("data", WAITS), VolumeFacts { available: false, ..plain() }, none()),
        (claim("data", WAITS), VolumeFacts { terminating: true, ..plain() }, none()),
        (claim("data", WAITS), VolumeFacts { capacity_bytes: GIB - 1, ..plain() }, none()),
        (claim("data", WAITS), VolumeFacts { is_block: true, ..plain() }, none()),
        (claim("data", WAITS), VolumeFacts { attributes_class: "gold".to_owned(), ..plain() }, none()),
        (claim("data", WAITS), VolumeFacts { claim: reserved("other", ""), ..plain() }, none()),
        (claim("data", WAITS), VolumeFacts { claim: reserved("data", "another"), ..plain() }, none()),
        // A volume that is reserved for the claim need not be available, nor match its selector and access modes.
        (
            asks(ClaimFacts {
                selector: selector("fast"),
                access_modes: modes(&[AccessMode::ReadWriteMany]),
                ..claim("data", WAITS)
            }),
            VolumeFacts { available: false, claim: reserved("data", ""), ..plain() },
            fits(),
        ),
        (
            claim("data", WAITS),
            VolumeFacts { claim: reserved("data", "uid-of-data"), ..local("pv", WAITS, "n1") },
            rejects(&["n2"], VOLUMES),
        ),
        (ClaimFacts { selector: selector("fast"), ..claim("data", WAITS) }, plain(), none()),
        (
            ClaimFacts { selector: selector("fast"), ..claim("data", WAITS) },
            VolumeFacts { labels: labels(&[("tier", "fast")]), ..plain() },
            fits(),
        ),
        (
            ClaimFacts { access_modes: modes(&[AccessMode::ReadWriteOnce]), ..claim("data", WAITS) },
            VolumeFacts { access_modes: modes(&[AccessMode::ReadOnlyMany]), ..plain() },
            none(),
        ),
        (
            ClaimFacts { access_modes: modes(&[AccessMode::ReadWriteOnce]), ..claim("data", WAITS) },
            VolumeFacts { access_modes: modes(&[AccessMode::ReadOnlyMany, AccessMode::ReadWriteOnce]), ..plain() },
            fits(),
        ),
    ];
    for (claim, volume, expected) in cases {
        let described = format!("{claim:?} {volume:?}");
        let events = vec![applied(by_hand()), applied(claim), applied(volume)];
        assert_eq!(said(&plugin(), &world_with(&["data"], events), "p"), expected, "{described}");
    }
}

/// The volumes that the pod's claims get on a node, by claim, and the claims whose volumes are provisioned there.
fn found(world: &World, node: &str) -> (Vec<(String, String)>, Vec<String>) {
    let cycle = Cycle::of(world, id(world, "p")).expect("it is known");
    let claims = PodClaims::of(&cycle).expect("usable").expect("claims");
    let node = world.node_id(node).expect("it is known");
    let Found { to_bind, to_provision } = Search::of(world, &claims).find(world, node).expect("it fits");
    let mut bound: Vec<_> = to_bind.iter().map(|(volume, claim)| (claim.name.clone(), volume.name.clone())).collect();
    bound.sort();
    (bound, to_provision.iter().map(|claim| claim.name.clone()).collect())
}

fn pair(claim: &str, volume: &str) -> (String, String) {
    (claim.to_owned(), volume.to_owned())
}

#[test]
fn each_claim_gets_the_smallest_volume_that_fits() {
    let sized = |name: &str, gib: i64, node: &str| {
        applied(VolumeFacts { capacity_bytes: gib * GIB, ..local(name, WAITS, node) })
    };
    let asks = |name: &str, gib: i64| applied(ClaimFacts { requested_bytes: Some(gib * GIB), ..claim(name, WAITS) });
    let events = vec![
        applied(by_hand()),
        sized("v-9", 9, "n1"),
        sized("v-2", 2, "n1"),
        sized("v-5", 5, "n1"),
        sized("w-9", 9, "n2"),
        sized("w-9-too", 9, "n2"),
        asks("large", 4),
        asks("small", 1),
    ];
    let world = world_with(&["large", "small"], events);
    assert_eq!(said(&plugin(), &world, "p"), fits());
    assert_eq!(found(&world, "n1"), (vec![pair("large", "v-5"), pair("small", "v-2")], vec![]));
    // Of equal ones the first by name.
    assert_eq!(found(&world, "n2"), (vec![pair("large", "w-9-too"), pair("small", "w-9")], vec![]));
    // A third claim gets none on n2.
    let mut world = world;
    world.apply(asks("third", 1));
    world.apply(Event::PodApplied(PodFacts {
        uid: "3".to_owned(),
        ..pod_using("p", claims(&["large", "small", "third"]), None)
    }));
    assert_eq!(said(&plugin(), &world, "p"), rejects(&["n2"], VOLUMES));
}

#[test]
fn volumes_are_provisioned_where_the_class_allows() {
    let allowed = |terms: Vec<NodeTermFacts>| StorageClassFacts { allowed_topologies: terms, ..waits(DRIVER) };
    let two = || vec![one_of("zone", &["b"]), NodeTermFacts::default()];
    for (class, expected) in [
        (allowed(vec![]), fits()),
        (allowed(two()), rejects(&["n1"], VOLUMES)),
        (allowed(vec![NodeTermFacts::default()]), rejects(&["n1", "n2"], VOLUMES)),
        (waits(""), rejects(&["n1", "n2"], VOLUMES)),
        (by_hand(), rejects(&["n1", "n2"], VOLUMES)),
    ] {
        let described = format!("{class:?}");
        let events = vec![applied(class), applied(claim("data", WAITS))];
        assert_eq!(said(&plugin(), &world_with(&["data"], events), "p"), expected, "{described}");
    }
    // A claim for which a node was selected gets its volume there, and existing volumes are not looked at.
    let selected = |node: &str| ClaimFacts { selected_node: Some(node.to_owned()), ..claim("data", WAITS) };
    for (node, expected) in [
        ("n1", rejects(&["n2"], VOLUMES)),
        ("gone", rejects(&["n1", "n2"], VOLUMES)),
        ("", rejects(&["n1", "n2"], VOLUMES)),
    ] {
        let events = vec![applied(waits(DRIVER)), applied(selected(node)), applied(volume("pv", WAITS))];
        let world = world_with(&["data"], events);
        assert_eq!(said(&plugin(), &world, "p"), expected, "{node}");
        if node == "n1" {
            assert_eq!(found(&world, "n1"), (vec![], vec!["data".to_owned()]));
        }
    }
    // What no volume fits is provisioned.
    let events = vec![
        applied(waits(DRIVER)),
        applied(claim("data", WAITS)),
        applied(claim("more", WAITS)),
        applied(local("pv", WAITS, "n1")),
    ];
    let world = world_with(&["data", "more"], events);
    assert_eq!(found(&world, "n1"), (vec![pair("data", "pv")], vec!["more".to_owned()]));
    assert_eq!(found(&world, "n2"), (vec![], vec!["data".to_owned(), "more".to_owned()]));
}

#[test]
fn a_driver_that_reports_its_capacity_must_have_room() {
    let capacity = |name: &str, class: &str, zone: &str, largest_bytes| StorageCapacityFacts {
        namespace: "anywhere".to_owned(),
        name: name.to_owned(),
        class: class.to_owned(),
        largest_bytes,
        topology: Some(SelectorFacts { labels: labels(&[("zone", zone)]), ..SelectorFacts::default() }),
    };
    let tracks = |storage_capacity| CsiDriverFacts { name: DRIVER.to_owned(), storage_capacity };
    let everywhere = |largest_bytes| StorageCapacityFacts {
        topology: Some(SelectorFacts::default()),
        ..capacity("all", WAITS, "", largest_bytes)
    };
    let none = || rejects(&["n1", "n2"], SPACE);
    let cases = [
        (tracks(true), vec![capacity("a", WAITS, "a", Some(GIB))], rejects(&["n2"], SPACE)),
        (
            tracks(true),
            vec![capacity("a", WAITS, "a", Some(GIB)), capacity("b", WAITS, "b", Some(GIB - 1))],
            rejects(&["n2"], SPACE),
        ),
        (tracks(true), vec![capacity("a", WAITS, "a", Some(GIB)), capacity("b", WAITS, "b", Some(GIB))], fits()),
        (tracks(true), vec![capacity("a", "other", "a", Some(GIB))], none()),
        (tracks(true), vec![everywhere(Some(GIB))], fits()),
        (tracks(true), vec![everywhere(None)], none()),
        (tracks(true), vec![StorageCapacityFacts { topology: None, ..everywhere(Some(GIB)) }], none()),
        (tracks(true), vec![], none()),
        (tracks(false), vec![], fits()),
        (CsiDriverFacts { name: "other".to_owned(), storage_capacity: true }, vec![], fits()),
    ];
    for (driver, capacities, expected) in cases {
        let described = format!("{driver:?} {capacities:?}");
        let mut events = vec![applied(waits(DRIVER)), applied(claim("data", WAITS)), applied(driver)];
        events.extend(capacities.into_iter().map(applied));
        assert_eq!(said(&plugin(), &world_with(&["data"], events), "p"), expected, "{described}");
    }
    let events = vec![
        applied(waits(DRIVER)),
        applied(ClaimFacts { requested_bytes: None, ..claim("data", WAITS) }),
        applied(tracks(true)),
    ];
    assert_eq!(
        said(&plugin(), &world_with(&["data"], events), "p"),
        fits(),
        "without a size there is nothing to check"
    );
}

#[test]
fn only_what_can_change_the_verdict_wakes_a_pod() {
    let mut world = world_with(&["data"], vec![applied(waits(DRIVER)), applied(claim("data", WAITS))]);
    let mut helps = |event| helps(&plugin(), &mut world, "p", event);
    assert!(helps(applied(ClaimFacts { version: "2".to_owned(), ..claim("data", WAITS) })));
    assert!(!helps(applied(claim("other", WAITS))));
    assert!(
        helps(applied(volume("pv", WAITS))) && helps(applied(VolumeFacts { available: false, ..volume("pv", "") }))
    );
    assert!(!helps(applied(waits("other"))));
    let allowed = StorageClassFacts { allowed_topologies: vec![one_of("zone", &["a"])], ..waits("other") };
    assert!(helps(applied(allowed)));
    assert!(helps(applied(csi_node("n1", None))) && !helps(applied(csi_node("n1", Some(3)))));
    let mut migrated = csi_node("n1", Some(3));
    migrated.migrated_plugins.insert("kubernetes.io/cinder".to_owned());
    assert!(helps(applied(migrated)));
    let tracks = |storage_capacity| applied(CsiDriverFacts { name: DRIVER.to_owned(), storage_capacity });
    assert!(!helps(tracks(true)) && !helps(tracks(false)));
    let capacity = |largest_bytes| {
        applied(StorageCapacityFacts { name: "c".to_owned(), largest_bytes, ..StorageCapacityFacts::default() })
    };
    let steps = [(None, true), (Some(1), true), (Some(2), true), (Some(1), false), (None, false)];
    assert_eq!(steps.map(|(size, _)| helps(capacity(size))), steps.map(|(_, expected)| expected));
    assert!(helps(Event::NodeApplied(labelled("n1", &[("zone", "c")]))));
    assert!(!helps(Event::PodDeleted { namespace: NAMESPACE.to_owned(), name: "unknown".to_owned() }));
}

/// The work for the pod on n1, and the world in which it is assumed.
fn planned(mut world: World) -> (VolumeWork, World) {
    let pod = id(&world, "p");
    let (work, objects) = {
        let cycle = Cycle::of(&world, pod).expect("it is known");
        let claims = PodClaims::of(&cycle).expect("usable").expect("claims");
        let node = world.node_id("n1").expect("it is known");
        let found = Search::of(&world, &claims).find(&world, node).expect("it fits");
        work::plan(&found, "n1", BIND_WITHIN)
    };
    let facts = pod_using("p", vec![], None);
    let PodFacts { namespace, name, uid, .. } = facts.clone();
    world.apply(Event::PodAssumed { pod: Box::new(facts), node: "n1".to_owned() });
    world.apply(Event::VolumesAssumed { namespace, name, uid, objects });
    (work, world)
}

#[test]
fn what_one_pod_gets_is_not_given_to_another() {
    let events = vec![
        applied(by_hand()),
        applied(claim("data", WAITS)),
        applied(claim("more", WAITS)),
        applied(volume("pv", WAITS)),
    ];
    let (work, mut world) = planned(world_with(&["data"], events));
    assert_eq!((work.bindings.len(), work.provisions.len()), (1, 0));
    assert!(work.bindings[0].sets_claim && work.bindings[0].sets_mark);
    world.apply(Event::PodApplied(pod_using("q", claims(&["more"]), None)));
    assert_eq!(said(&plugin(), &world, "q"), rejects(&["n1", "n2"], VOLUMES));
    let pod = pod_using("p", vec![], None);
    world.apply(Event::PodForgotten { namespace: pod.namespace, name: pod.name, uid: pod.uid });
    assert_eq!(said(&plugin(), &world, "q"), fits());
}

#[test]
fn the_node_of_a_claim_counts_for_other_pods_that_use_it() {
    let events = vec![applied(waits(DRIVER)), applied(claim("data", WAITS))];
    let (work, mut world) = planned(world_with(&["data"], events));
    assert_eq!(
        work.provisions,
        [work::ProvisionWork { namespace: NAMESPACE.into(), claim: "data".into(), version: "1".into() }]
    );
    world.apply(Event::PodApplied(pod_using("q", claims(&["data"]), None)));
    assert_eq!(said(&plugin(), &world, "q"), rejects(&["n2"], VOLUMES));
}

#[test]
fn a_volume_that_refers_to_the_claim_is_not_written_again() {
    let claimed = |uid: &str, bound_by_controller| VolumeFacts {
        claim: Some(ClaimRefFacts { namespace: NAMESPACE.into(), name: "data".into(), uid: uid.into() }),
        bound_by_controller,
        ..volume("pv", WAITS)
    };
    for (volume, expected) in [
        (volume("pv", WAITS), (true, true)),
        (VolumeFacts { bound_by_controller: true, ..volume("pv", WAITS) }, (true, false)),
        // Reserved by a user, by name.
        (claimed("", false), (true, false)),
        (claimed("uid-of-data", true), (false, false)),
    ] {
        let described = format!("{volume:?}");
        let events = vec![applied(by_hand()), applied(claim("data", WAITS)), applied(volume)];
        let (work, _) = planned(world_with(&["data"], events));
        assert_eq!((work.bindings[0].sets_claim, work.bindings[0].sets_mark), expected, "{described}");
    }
}

fn progress(world: &World, work: &VolumeWork, version: &str) -> Result<bool, String> {
    let PodFacts { namespace, name, uid, .. } = pod_using("p", vec![], None);
    let waiting = WaitingFor { namespace: &namespace, pod: &name, uid: &uid, node: "n1" };
    let versions = |count| vec![version.to_owned(); count];
    let written = WrittenVersions { volumes: versions(work.bindings.len()), claims: versions(work.provisions.len()) };
    work.is_done(world, waiting, &written)
}

#[test]
fn a_binding_is_done_when_the_watch_shows_it() {
    let events = vec![applied(by_hand()), applied(claim("data", WAITS)), applied(volume("pv", WAITS))];
    let (work, mut world) = planned(world_with(&["data"], events));
    let claimed = |version: &str, uid: &str| VolumeFacts {
        version: version.to_owned(),
        claim: Some(ClaimRefFacts { namespace: NAMESPACE.into(), name: "data".into(), uid: uid.into() }),
        ..volume("pv", WAITS)
    };
    assert_eq!(progress(&world, &work, "9"), Ok(false), "the watch shows an older version");
    world.apply(applied(claimed("10", "uid-of-data")));
    assert_eq!(progress(&world, &work, "9"), Ok(false), "the claim is not bound yet");
    world.apply(applied(bound("data", WAITS, "pv")));
    assert_eq!(progress(&world, &work, "9"), Ok(true));

    let elsewhere = VolumeFacts { node_terms: Some(vec![one_of("zone", &["b"])]), ..claimed("11", "uid-of-data") };
    let gone = Event::VolumeDeleted {
        kind: model::volumes::VolumeKind::Volume,
        namespace: String::new(),
        name: "pv".to_owned(),
    };
    for (event, expected) in [
        (applied(claimed("11", "")), "ClaimRef got reset for pv \"pv\""),
        (applied(VolumeFacts { version: "12".to_owned(), ..volume("pv", WAITS) }), "ClaimRef got reset for pv \"pv\""),
        (applied(elsewhere), "pv \"pv\" node affinity doesn't match node \"n1\": no matching NodeSelectorTerms"),
        (gone, "failed to check binding: persistentvolumes \"pv\" not found"),
        (
            Event::PodDeleted { namespace: NAMESPACE.to_owned(), name: "p".to_owned() },
            "pod does not exist any more: pod \"p\" not found",
        ),
        (Event::NodeDeleted { name: "n1".to_owned() }, "failed to get node \"n1\": node \"n1\" not found"),
    ] {
        world.apply(event);
        assert_eq!(progress(&world, &work, "9"), Err(expected.to_owned()));
    }
}

#[test]
fn a_provisioning_is_done_when_the_watch_shows_it() {
    let events = vec![applied(waits(DRIVER)), applied(claim("data", WAITS))];
    let (work, mut world) = planned(world_with(&["data"], events));
    let selected = |version: &str| ClaimFacts {
        version: version.to_owned(),
        selected_node: Some("n1".to_owned()),
        ..claim("data", WAITS)
    };
    let with_volume = |version: &str, bind_completed| ClaimFacts {
        volume: Some("pv".to_owned()),
        bind_completed,
        ..selected(version)
    };
    for (event, expected) in [
        (applied(selected("8")), Ok(false)),
        (applied(selected("9")), Ok(false)),
        (applied(with_volume("10", true)), Ok(false)),
        (applied(volume("pv", WAITS)), Ok(true)),
        (applied(with_volume("11", false)), Ok(false)),
        (
            applied(VolumeFacts { node_terms: Some(vec![one_of("zone", &["b"])]), ..volume("pv", WAITS) }),
            Err("pv \"pv\" node affinity doesn't match node \"n1\": no matching NodeSelectorTerms"),
        ),
        (
            applied(ClaimFacts { version: "12".to_owned(), ..claim("data", WAITS) }),
            Err("provisioning failed for PVC \"data\""),
        ),
    ] {
        let described = format!("{event:?}");
        world.apply(event);
        assert_eq!(progress(&world, &work, "9"), expected.map_err(str::to_owned), "{described}");
    }
}
