//! A planner that was there all the time gives what one that never planned before gives.

mod support;

use std::collections::BTreeSet;

use drs::{DrsSettings, Owned, Pinning, Plan, Planner, UnixMillis, plan};
use model::event::*;
use model::{Touched, World};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use support::generate::{cases, change, changes, pods, town};
use support::{FOREIGN_KEYS, Town, VCENTER, node_name, rule, vm_id};

/// Something that happens between two plans.
#[derive(Clone, Debug)]
enum Happening {
    /// One pod is another one now: the place of the pod, and what takes its place.
    Pod(usize, Box<PodFacts>),
    PodGone(usize),
    Terminating(usize),
    /// A VM moves to another host, or its host is not known.
    Moved(usize, Option<usize>),
    NodeGone(usize),
    Maintenance(usize),
    HostGone(usize),
    /// Somebody turns a rule on or off, by its place.
    Switched(usize),
    DeletedByHand(usize),
    ForeignRule(RuleKind),
    ForeignGone,
    Drs(bool),
    HighAvailability(bool),
    RecordLost,
    LiftOff(bool),
    /// Many things at once.
    Much(Box<support::generate::Change>),
    Nothing,
}

fn happening() -> impl Strategy<Value = Happening> {
    let vms = || vec((0..9usize).prop_map(vm_id), 2..4);
    let pod = pods().prop_filter_map("a pod", |pods| pods.into_iter().next());
    let kinds = prop_oneof![vms().prop_map(RuleKind::VmsApart), vms().prop_map(RuleKind::VmsTogether)];
    let much = changes().prop_map(|changes| Happening::Much(Box::new(changes[0].clone())));
    prop_oneof![
        6 => (0..20usize, pod).prop_map(|(place, pod)| Happening::Pod(place, Box::new(pod))),
        2 => (0..20usize).prop_map(Happening::PodGone),
        2 => (0..20usize).prop_map(Happening::Terminating),
        3 => (0..9usize, proptest::option::weighted(0.8, 0..6usize)).prop_map(|(node, host)| Happening::Moved(node, host)),
        1 => (0..9usize).prop_map(Happening::NodeGone),
        2 => (0..6usize).prop_map(Happening::Maintenance),
        1 => (0..6usize).prop_map(Happening::HostGone),
        2 => (0..9usize).prop_map(Happening::Switched),
        2 => (0..9usize).prop_map(Happening::DeletedByHand),
        1 => kinds.prop_map(Happening::ForeignRule),
        1 => Just(Happening::ForeignGone),
        1 => any::<bool>().prop_map(Happening::Drs),
        1 => any::<bool>().prop_map(Happening::HighAvailability),
        1 => Just(Happening::RecordLost),
        1 => any::<bool>().prop_map(Happening::LiftOff),
        2 => much,
        2 => Just(Happening::Nothing),
    ]
}

fn happen(town: &mut Town, owned: &mut Owned, happening: &Happening) {
    let rules = |town: &mut Town, place: usize, f: &dyn Fn(&mut Vec<RuleFacts>, usize)| {
        let rules = &mut town.clusters[0].rules;
        if !rules.is_empty() {
            let place = place % rules.len();
            f(rules, place);
        }
    };
    match happening {
        Happening::Pod(place, pod) => {
            if let Some(old) = town.pods.get_mut(*place) {
                *old = PodFacts { name: old.name.clone(), uid: old.uid.clone(), ..PodFacts::clone(pod) };
            } else {
                let name = format!("late-{}", town.pods.len());
                town.pods.push(PodFacts { name, ..PodFacts::clone(pod) });
            }
        }
        Happening::PodGone(place) if *place < town.pods.len() => drop(town.pods.remove(*place)),
        Happening::Terminating(place) => {
            if let Some(pod) = town.pods.get_mut(*place) {
                pod.terminating ^= true;
            }
        }
        Happening::Moved(node, host) if *node < town.nodes.len() => {
            town.nodes[*node] = host.filter(|host| *host < town.hosts.len());
        }
        // The numbers of the others stay.
        Happening::NodeGone(node) if *node < town.nodes.len() => {
            town.gone.insert(*node);
        }
        Happening::Maintenance(host) => {
            if let Some((host, _)) = town.hosts.get_mut(*host) {
                host.maintenance ^= true;
            }
        }
        Happening::HostGone(host) => {
            if let Some((host, _)) = town.hosts.get_mut(*host) {
                host.cluster = None;
            }
        }
        Happening::Switched(place) => rules(town, *place, &|rules, place| rules[place].enabled ^= true),
        Happening::DeletedByHand(place) => rules(town, *place, &|rules, place| drop(rules.remove(place))),
        Happening::ForeignRule(kind) => {
            let rules = &mut town.clusters[0].rules;
            let key = rules.iter().map(|rule| rule.key).max().unwrap_or(0).max(FOREIGN_KEYS) + 1;
            rules.push(rule(key, &format!("theirs-{key}"), kind.clone()));
        }
        Happening::ForeignGone => town.clusters[0].rules.retain(|rule| rule.key < FOREIGN_KEYS),
        Happening::Drs(enabled) => town.clusters[0].drs_enabled = *enabled,
        Happening::HighAvailability(enabled) => town.clusters[0].ha.enabled = *enabled,
        Happening::RecordLost => *owned = Owned::default(),
        Happening::LiftOff(lift_off) => town.namespaces.iter_mut().for_each(|namespace| namespace.lift_off = *lift_off),
        Happening::Much(much) => change(town, much),
        _ => (),
    }
}

/// Tells the world what is there now, and what is gone; returns what that touched.
fn tell(world: &mut World, before: &Town, town: &Town) -> Vec<Touched> {
    let mut events = Vec::new();
    let names: BTreeSet<_> = town.pods.iter().map(|pod| (&pod.namespace, &pod.name)).collect();
    for pod in before.pods.iter().filter(|pod| !names.contains(&(&pod.namespace, &pod.name))) {
        events.push(Event::PodDeleted { namespace: pod.namespace.clone(), name: pod.name.clone() });
    }
    for node in town.gone.difference(&before.gone) {
        events.push(Event::NodeDeleted { name: node_name(*node) });
        events.push(Event::VmRemoved { vcenter: VCENTER, id: vm_id(*node) });
    }
    events.extend(town.events());
    events.into_iter().map(|event| world.apply(event).touched.clone()).collect()
}

fn compare(kept: &Plan, fresh: &Plan) -> Result<(), TestCaseError> {
    prop_assert_eq!(&kept.findings, &fresh.findings);
    let parts = |plan: &Plan| -> Vec<_> {
        let clusters = plan.clusters.iter();
        clusters.map(|cluster| (cluster.cluster.clone(), cluster.actions.clone(), cluster.uncovered.clone())).collect()
    };
    prop_assert_eq!(parts(kept), parts(fresh));
    prop_assert_eq!(&kept.record, &fresh.record);
    prop_assert_eq!(kept.next_due, fresh.next_due);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    /// Whatever happens in between, and whether or not plans are carried out.
    #[test]
    fn what_is_kept_changes_nothing(
        mut town in town(),
        steps in vec((vec(happening(), 1..3), 0..700u64, any::<bool>(), any::<bool>()), 1..10),
        (pinning, rules_max) in (select(vec![Pinning::Should, Pinning::Must]), select(vec![2, 1000])),
    ) {
        let settings = DrsSettings { pinning, rules_max, ..DrsSettings::default() };
        let mut planner = Planner::new(settings.clone());
        let (mut owned, mut now) = (Owned::default(), UnixMillis(0));
        let mut world = town.world();
        for (happenings, seconds, carried_out, recorded) in steps {
            let before = town.clone();
            happenings.iter().for_each(|happening| happen(&mut town, &mut owned, happening));
            now.0 += seconds * 1000;
            for touched in tell(&mut world, &before, &town) {
                planner.observe(&touched);
            }
            let kept = planner.plan(&world, &owned, now);
            compare(&kept, &plan(&world, &owned, now, &settings))?;
            compare(&kept, &plan(&town.world(), &owned, now, &settings))?;
            if let Some(due) = kept.next_due {
                prop_assert!(due > now);
            }
            let before = town.clone();
            if carried_out {
                owned = town.carry_out(&kept);
            } else if recorded {
                owned = kept.record;
            }
            for touched in tell(&mut world, &before, &town) {
                planner.observe(&touched);
            }
        }
    }
}
