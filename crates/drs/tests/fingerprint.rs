//! A cluster with an unchanged fingerprint has an unchanged plan, regardless of the events in between.

mod support;

use std::collections::BTreeMap;

use drs::{ClusterKey, ClusterView, Fingerprint, Record, Surroundings, UnixMillis, plan, plan_cluster};
use model::World;
use model::event::*;
use proptest::collection::vec;
use proptest::prelude::*;
use support::generate::{NODES_MAX, at_once, cases, change, changes, labels, pod, site};
use support::{Site, VCENTER, node_name, vm_id};

/// Each cluster's fingerprint and its plan as text.
type Plans = BTreeMap<ClusterKey, (Fingerprint, String)>;

fn plans(world: &World, record: &Record) -> Plans {
    let settings = at_once();
    let Some(surroundings) = Surroundings::of(world, record, &settings) else { return Plans::new() };
    let clusters = world.cluster_ids().filter_map(|id| {
        let (vcenter, facts) = world.cluster(id)?;
        let rules = record.rules(&ClusterKey::new(vcenter, facts.id.clone()));
        let view = ClusterView::of(world, id, &rules, &surroundings, &settings)?;
        let plan =
            plan_cluster(&view, &rules, &settings, UnixMillis(0)).map(|plan| (plan.actions, plan.findings, plan.rules));
        let fingerprint = Fingerprint::of(world, id, &rules, &surroundings);
        Some((view.key().clone(), (fingerprint, format!("{plan:#?}"))))
    });
    clusters.collect()
}

/// Events in addition to those from a change of the site.
fn odd_event() -> impl Strategy<Value = Event> {
    let node = || 0..NODES_MAX;
    let name = || (0..12usize).prop_map(|number| format!("pod-{number}"));
    let namespace = (labels(), any::<bool>()).prop_map(|(labels, lift_off)| {
        Event::NamespaceApplied(NamespaceFacts {
            name: "bank".to_owned(),
            labels,
            lift_off,
            ..NamespaceFacts::default()
        })
    });
    let host = (0..6usize, 0..2usize, any::<bool>()).prop_map(|(number, cluster, renamed)| Event::HostApplied {
        vcenter: VCENTER,
        host: HostFacts {
            id: format!("host-{number}"),
            name: format!("esx-{number}{}", if renamed { "-new" } else { "" }),
            cluster: Some(format!("domain-c{cluster}")),
            ..HostFacts::default()
        },
    });
    let assumed = (pod(), name(), node()).prop_map(|(pod, name, node)| Event::PodAssumed {
        pod: Box::new(PodFacts { uid: name.replace("pod", "uid"), name, node: None, ..pod }),
        node: node_name(node),
    });
    let replaced = (pod(), name())
        .prop_map(|(pod, name)| Event::PodApplied(PodFacts { uid: name.replace("pod", "uid"), name, ..pod }));
    prop_oneof![
        2 => namespace,
        1 => Just(Event::NamespaceDeleted { name: "bank".to_owned() }),
        2 => host,
        1 => (0..6usize).prop_map(|number| Event::HostRemoved { vcenter: VCENTER, id: format!("host-{number}") }),
        2 => node().prop_map(|number| Event::VmRemoved { vcenter: VCENTER, id: vm_id(number) }),
        2 => node().prop_map(|number| Event::NodeDeleted { name: node_name(number) }),
        3 => assumed,
        5 => replaced,
        3 => name().prop_map(|name| Event::PodDeleted { namespace: "shop".to_owned(), name }),
    ]
}

fn rules_of(site: &Site) -> impl Iterator<Item = Event> {
    site.clusters.iter().cloned().map(|cluster| Event::ClusterApplied { vcenter: VCENTER, cluster })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn clusters_with_the_same_fingerprint_have_the_same_plan(
        mut site in site(), changes in changes(), odd in vec(odd_event(), 1..12),
    ) {
        let planned = plan(&site.world(), &Record::default(), UnixMillis(0), &at_once());
        let mut world = site.world();
        let record = site.execute(&planned);
        rules_of(&site).for_each(|event| drop(world.apply(event)));
        let mut before = plans(&world, &record);
        change(&mut site, &changes[0]);
        for event in site.events().into_iter().chain(odd) {
            world.apply(event.clone());
            let after = plans(&world, &record);
            for (key, (fingerprint, plan)) in &after {
                if let Some((known, plan_before)) = before.get(key) && known == fingerprint {
                    prop_assert_eq!(plan_before, plan, "{:?}", event);
                }
            }
            before = after;
        }
    }
}
