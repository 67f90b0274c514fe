//! Properties that hold for any sequence of events.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::description::{describe_node, describe_nodes, describe_pods};
use super::generate::{NODE_NAMES, events};
use super::policy::describe_policy;
use super::reference::Reference;
use crate::event::{Event, Source, VcenterId};
use crate::{Match, NodeId, World};

const SOURCES: [Source; 5] =
    [Source::Nodes, Source::Pods, Source::Namespaces, Source::Vcenter(VcenterId(0)), Source::Vcenter(VcenterId(1))];

/// The number of random sequences per property.
pub(super) fn cases() -> u32 {
    if std::env::var("BRIDGER_TEST_COUNTS").is_ok_and(|counts| counts == "full") { 5_000 } else { 600 }
}

pub(super) fn world_after(events: &[Event]) -> World {
    let mut world = World::default();
    for event in events {
        world.apply(event.clone());
    }
    world
}

pub(super) fn reference_after(events: &[Event]) -> Reference {
    let mut reference = Reference::default();
    for event in events {
        reference.apply(event);
    }
    reference
}

fn descriptions_by_id(world: &World) -> BTreeMap<NodeId, super::description::NodeDescription> {
    world.node_ids().map(|node| (node, describe_node(world, node))).collect()
}

/// A history, and its final state as events in a random order.
fn history_and_final_state() -> impl Strategy<Value = (Vec<Event>, Vec<Event>)> {
    events().prop_flat_map(|history| {
        let final_state = Just(reference_after(&history).facts()).prop_shuffle();
        (Just(history), final_state)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn any_history_gives_the_same_world_as_its_final_state((history, final_state) in history_and_final_state()) {
        let lived = world_after(&history);
        let fresh = world_after(&final_state);
        let reference = reference_after(&history);

        let expected = reference.describe_nodes();
        prop_assert_eq!(&describe_nodes(&lived), &expected);
        prop_assert_eq!(&describe_nodes(&fresh), &expected);

        let pods: BTreeMap<_, _> =
            NODE_NAMES.iter().map(|name| ((*name).to_owned(), reference.pods_bound_to(name))).collect();
        prop_assert_eq!(&describe_pods(&lived, NODE_NAMES.into_iter()), &pods);
        prop_assert_eq!(&describe_pods(&fresh, NODE_NAMES.into_iter()), &pods);
        for world in [&lived, &fresh] {
            prop_assert_eq!(world.pod_count(), reference.pods().len());
            prop_assert_eq!(world.namespace_count(), reference.facts_of(Source::Namespaces).len());
        }
        prop_assert_eq!(lived.kubernetes_uid(), fresh.kubernetes_uid());

        for source in SOURCES {
            prop_assert_eq!(lived.source(source), reference.state(source));
        }
        // Nothing is stored that the final state does not need.
        prop_assert_eq!(lived.interner().len(), fresh.interner().len());
        prop_assert_eq!(lived.identity.kept(), fresh.identity.kept());
        prop_assert_eq!(lived.affinity.kept(), fresh.affinity.kept());
        prop_assert_eq!(lived.pods.kept(), fresh.pods.kept());
        for node in lived.node_ids() {
            let expected = reference.is_refused(lived.node_name(node).expect("known"));
            prop_assert_eq!(lived.nodes_refused().contains(node), expected);
            let idle_percent = lived.host_of(node).and_then(|host| host.idle_percent());
            prop_assert_eq!(lived.host_idle().percent(node), idle_percent);
        }
        let is_idle_known = |world: &World| world.node_ids().any(|node| world.host_idle().percent(node).is_some());
        prop_assert_eq!(lived.host_idle().is_empty(), !is_idle_known(&lived));
        prop_assert_eq!(lived.nodes_refused().len(), fresh.nodes_refused().len());

        let policy = reference.describe_policy();
        prop_assert_eq!(&describe_policy(&lived), &policy);
        prop_assert_eq!(&describe_policy(&fresh), &policy);
    }

    #[test]
    fn untouched_nodes_have_not_changed(history in events()) {
        let mut world = World::default();
        let mut before = descriptions_by_id(&world);
        for event in history {
            let touched = world.apply(event.clone()).touched.clone();
            let after = descriptions_by_id(&world);
            for (node, description) in &after {
                if !touched.contains(*node) {
                    prop_assert_eq!(before.get(node), Some(description), "{:?}", event);
                }
            }
            let gone: BTreeSet<NodeId> = before.keys().filter(|node| !after.contains_key(node)).copied().collect();
            prop_assert_eq!(touched.removed().collect::<BTreeSet<_>>(), gone);
            prop_assert!(touched.nodes().all(|node| after.contains_key(&node)), "touched a node that does not exist");
            before = after;
        }
    }

    #[test]
    fn a_vm_is_matched_by_at_most_one_node(history in events()) {
        let world = world_after(&history);
        let mut taken = BTreeSet::new();
        for node in world.node_ids() {
            if let Match::Matched { vm, .. } = world.match_of(node) {
                prop_assert!(taken.insert(vm));
            }
        }
    }

    #[test]
    fn a_relist_of_the_same_content_touches_nothing(history in events(), source in proptest::sample::select(&SOURCES)) {
        let mut world = world_after(&history);
        let before = descriptions_by_id(&world);
        let mut relist = vec![Event::RelistBegan(source)];
        relist.extend(reference_after(&history).facts_of(source));
        relist.push(Event::RelistEnded(source));
        for event in relist {
            let touched = world.apply(event).touched.clone();
            // An ambiguous node may be touched without a change, but no keys change here.
            prop_assert!(touched.is_empty(), "{:?}", touched);
        }
        prop_assert!(world.in_sync(source));
        prop_assert_eq!(descriptions_by_id(&world), before);
    }

    #[test]
    fn reports_agree_with_the_matches(history in events()) {
        let world = world_after(&history);
        let report = world.matches();
        prop_assert_eq!(report.matched() + report.problems.len(), world.node_count());
        prop_assert_eq!(report.unmatched + report.ambiguous + report.contested + report.unconfirmed, report.problems.len());
        prop_assert_eq!(world.summary().nodes_matched, report.matched());
        for problem in &report.problems {
            prop_assert_eq!(&problem.explanation, &world.explain_match(problem.node));
        }
    }
}
