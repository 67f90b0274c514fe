//! A cluster with an unchanged fingerprint has an unchanged plan, regardless of the events in between. A copy made in steps while the
//! world changes is as good as one made at once.

mod support;

use std::collections::BTreeMap;

use drs::{
    AcrossNamespaces, ClusterCopy, ClusterKey, ClusterView, DrsSettings, Fingerprint, NodeCopies, Pinning, PlanScope,
    Record, Surroundings, UnixMillis, plan, plan_cluster,
};
use model::event::*;
use model::{ClusterId, World};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use support::generate::{NODES_MAX, at_once, cases, change, changes, namespace, pod, site};
use support::{Site, VCENTER, labelled, node_name, vm_id};

/// Each cluster's fingerprint and its plan as text.
type Plans = BTreeMap<ClusterKey, (Fingerprint, String)>;

fn plans(world: &World, record: &Record, settings: &DrsSettings) -> Plans {
    let Some(surroundings) = Surroundings::of(world, record, settings) else { return Plans::new() };
    let clusters = world.cluster_ids().filter_map(|id| {
        let (vcenter, facts) = world.cluster(id)?;
        let rules = record.rules(&ClusterKey::new(vcenter, facts.id.clone()));
        let scope = PlanScope { cluster: id, rules: &rules, surroundings: &surroundings, settings };
        let view = ClusterView::of(world, scope)?;
        let fingerprint = Fingerprint::of(world, scope);
        Some((view.key().clone(), (fingerprint, planned(&view, record, settings))))
    });
    clusters.collect()
}

fn planned(view: &ClusterView, record: &Record, settings: &DrsSettings) -> String {
    let plan = plan_cluster(view, &record.rules(view.key()), settings, UnixMillis(0));
    format!("{:#?}", plan.map(|plan| (plan.actions, plan.findings, plan.rules)))
}

/// Copies of all clusters, a node at a time.
struct Copying {
    copies: BTreeMap<ClusterId, NodeCopies>,
    settings: DrsSettings,
}

impl Copying {
    fn step(&mut self, world: &World, record: &Record, surroundings: &Surroundings, pods_max: usize) {
        for id in world.cluster_ids() {
            let Some((vcenter, facts)) = world.cluster(id) else { continue };
            let rules = record.rules(&ClusterKey::new(vcenter, facts.id.clone()));
            let scope = PlanScope { cluster: id, rules: &rules, surroundings, settings: &self.settings };
            self.copies.entry(id).or_default().refresh(world, scope, pods_max);
        }
    }

    /// The plans of all clusters, from what was copied.
    fn plans(&mut self, world: &World, record: &Record) -> BTreeMap<ClusterKey, String> {
        let settings = self.settings.clone();
        let Some(surroundings) = Surroundings::of(world, record, &settings) else { return BTreeMap::new() };
        self.step(world, record, &surroundings, usize::MAX);
        let clusters = self.copies.iter().filter_map(|(&id, copies)| {
            let (vcenter, facts) = world.cluster(id)?;
            let rules = record.rules(&ClusterKey::new(vcenter, facts.id.clone()));
            let scope = PlanScope { cluster: id, rules: &rules, surroundings: &surroundings, settings: &settings };
            let view = ClusterView::from_copy(ClusterCopy::of(world, scope, copies)?, scope);
            Some((view.key().clone(), planned(&view, record, &settings)))
        });
        clusters.collect()
    }
}

/// Events in addition to those from a change of the site.
fn odd_event() -> impl Strategy<Value = Event> {
    let node = || 0..NODES_MAX;
    let name = || (0..12usize).prop_map(|number| format!("pod-{number}"));
    let namespace = prop_oneof![namespace("bank"), namespace("shop")].prop_map(Event::NamespaceApplied);
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

/// With labels of namespaces that matter to rules, or without.
fn settings() -> impl Strategy<Value = DrsSettings> {
    let labelled = DrsSettings {
        across_namespaces: AcrossNamespaces::Labelled,
        pinning: Pinning::Must,
        rules_per_namespace_max: 2,
        ..at_once()
    };
    select(vec![at_once(), labelled])
}

#[test]
fn number_9_a_change_of_the_label_of_a_namespace_makes_a_plan_due() {
    let settings = DrsSettings { pinning: Pinning::Must, ..at_once() };
    let site = Site::new(2, &[0, 1]);
    let (mut world, record) = (site.world(), Record::default());
    let fingerprint = |world: &World| {
        let plans = plans(world, &record, &settings);
        plans.into_values().map(|(fingerprint, _)| fingerprint).collect::<Vec<_>>()
    };
    let mut before = fingerprint(&world);
    let apply = |namespace| Event::NamespaceApplied(namespace);
    let other = NamespaceFacts { labels: model::testing::labels(&[("team", "a")]), ..labelled("shop", "cluster") };
    for (event, is_due) in [
        (apply(labelled("shop", "cluster")), true),
        (apply(labelled("shop", "cluster")), false),
        (apply(other.clone()), true),
        (apply(NamespaceFacts { labels: Labels::new(), ..other }), false),
        (apply(labelled("shop", "cluster")), true),
        (Event::NamespaceDeleted { name: "shop".to_owned() }, true),
    ] {
        let change = world.apply(event.clone());
        let after = fingerprint(&world);
        assert_eq!(before != after, is_due, "{event:?} {change:?}");
        before = after;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn clusters_with_the_same_fingerprint_have_the_same_plan(
        mut site in site(), changes in changes(), odd in vec(odd_event(), 1..12), settings in settings(),
    ) {
        let planned = plan(&site.world(), &Record::default(), UnixMillis(0), &settings);
        let mut world = site.world();
        let record = site.execute(&planned);
        rules_of(&site).for_each(|event| drop(world.apply(event)));
        let mut before = plans(&world, &record, &settings);
        change(&mut site, &changes[0]);
        for event in site.events().into_iter().chain(odd) {
            world.apply(event.clone());
            let after = plans(&world, &record, &settings);
            for (key, (fingerprint, plan)) in &after {
                if let Some((known, plan_before)) = before.get(key) && known == fingerprint {
                    prop_assert_eq!(plan_before, plan, "{:?}", event);
                }
            }
            before = after;
        }
    }

    #[test]
    fn a_copy_made_in_steps_while_the_world_changes_gives_the_same_plan(
        mut site in site(), changes in changes(), odd in vec(odd_event(), 1..12), every in 1..4usize,
        settings in settings(),
    ) {
        let planned = plan(&site.world(), &Record::default(), UnixMillis(0), &settings);
        let mut world = site.world();
        let record = site.execute(&planned);
        rules_of(&site).for_each(|event| drop(world.apply(event)));
        let mut copying = Copying { copies: BTreeMap::new(), settings: settings.clone() };
        // Surroundings of an earlier moment choose the nodes, as in the running service.
        let outdated = Surroundings::of(&world, &record, &settings);
        change(&mut site, &changes[0]);
        let events: Vec<Event> = site.events().into_iter().chain(odd).collect();
        let total = events.len();
        for (number, event) in events.into_iter().enumerate() {
            world.apply(event);
            if let Some(outdated) = &outdated && number % every == 0 {
                copying.step(&world, &record, outdated, 0);
            }
            // Copies are kept from plan to plan.
            if number % (5 * every) == 0 || number + 1 == total {
                let fresh = plans(&world, &record, &settings).into_iter().map(|(key, (_, plan))| (key, plan));
                prop_assert_eq!(copying.plans(&world, &record), fresh.collect::<BTreeMap<_, _>>());
            }
        }
    }
}
