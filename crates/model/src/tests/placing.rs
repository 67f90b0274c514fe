//! Verdicts, scores and blockers for incoming pods, after every event of random histories, compared with
//! kube-scheduler's own algorithm on the plain facts. Lifting is modelled as the same algorithm on a world where nodes
//! have the host as a label and the terms name that label.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::placing_worlds::{HOST_LABEL, HOSTNAME, NODES, VCENTER, history, pod, settings};
use super::properties::cases;
use super::reference::Reference;
use super::upstream::{Cluster, Filter, NodeInfo, Status, score};
use crate::affinity::{Obstacle, Refusal, Refusals, Stamp};
use crate::event::*;
use crate::{Incoming, LiftMode, NodeId, NodeSet, PodId, Reading, ScoreSettings, Scores, Verdicts, View, World};

/// The topology key that lifted terms are rewritten to.
const LIFTED: &str = "lifted";
const READINGS: [Reading; 3] = [Reading::AsWritten, Reading::Lifting, Reading::LiftedOnly];
const BLOCKERS_MAX: usize = 3;

type PodName = (String, String);

fn name_of(pod: &PodFacts) -> PodName {
    (pod.namespace.clone(), pod.name.clone())
}

/// The plain facts as kube-scheduler would see them, with the value of the lifted key as an additional label.
struct Plain {
    cluster: Cluster,
    opted_out: BTreeSet<String>,
    lifts: bool,
}

impl Plain {
    fn new(reference: &Reference, added: &[(PodFacts, String)], removed: &BTreeSet<PodName>) -> Self {
        let pods = reference.pods();
        let namespaces = reference.namespaces();
        let mut lifts = false;
        let nodes = reference.nodes().into_iter().map(|node| {
            let live = reference.host_of(node).and_then(|host| reference.host_label(&host));
            let host = live.or_else(|| node.labels.get(HOST_LABEL).cloned());
            lifts |= host.is_some();
            let mut labels = node.labels.clone();
            if let Some(value) = host.or_else(|| node.labels.get(HOSTNAME).cloned()) {
                labels.insert(LIFTED.to_owned(), value);
            }
            let there = |pod: &&PodFacts| pod.node.as_deref() == Some(&node.name) && !removed.contains(&name_of(pod));
            let placed = pods.iter().filter(there).cloned();
            let more = added.iter().filter(|(_, on)| *on == node.name).map(|(pod, _)| pod.clone());
            let pods = placed.chain(more).filter(|pod| !pod.finished).collect();
            NodeInfo { name: node.name.clone(), labels, pods }
        });
        let nodes = nodes.collect();
        let opted_out = namespaces.iter().filter(|of| of.lift_off).map(|of| of.name.clone()).collect();
        let namespaces = namespaces.into_iter().map(|of| (of.name, of.labels)).collect();
        Self { cluster: Cluster { nodes, namespaces }, opted_out, lifts }
    }

    /// The pod with the terms of one part: as written, or between hosts with the lifted key.
    fn part(&self, pod: &PodFacts, reading: Reading, on_hosts: bool) -> PodFacts {
        let may_lift = self.lifts && !pod.lift_off && !self.opted_out.contains(&pod.namespace);
        let read = |term: &TermFacts, is_anti: bool| -> Option<TermFacts> {
            let is_lifted = reading != Reading::AsWritten && may_lift && is_anti && term.topology_key == HOSTNAME;
            if is_lifted != on_hosts || (reading == Reading::LiftedOnly && !is_lifted) {
                return None;
            }
            let key = if is_lifted { LIFTED } else { &term.topology_key };
            Some(TermFacts { topology_key: key.to_owned(), ..term.clone() })
        };
        let required = |terms: &[TermFacts], is_anti| terms.iter().filter_map(|term| read(term, is_anti)).collect();
        let weighted = |terms: &[WeightedTermFacts], is_anti| {
            let read =
                |of: &WeightedTermFacts| Some(WeightedTermFacts { term: read(&of.term, is_anti)?, ..of.clone() });
            terms.iter().filter_map(read).collect()
        };
        PodFacts {
            affinity: required(&pod.affinity, false),
            anti_affinity: required(&pod.anti_affinity, true),
            preferred_affinity: weighted(&pod.preferred_affinity, false),
            preferred_anti_affinity: weighted(&pod.preferred_anti_affinity, true),
            ..pod.clone()
        }
    }

    fn cluster(&self, reading: Reading, on_hosts: bool) -> Cluster {
        let mut cluster = self.cluster.clone();
        for pod in cluster.nodes.iter_mut().flat_map(|node| &mut node.pods) {
            *pod = self.part(pod, reading, on_hosts);
        }
        cluster
    }

    /// Every term once, at either level.
    fn cluster_of_both(&self, reading: Reading) -> Cluster {
        let mut cluster = self.cluster.clone();
        for pod in cluster.nodes.iter_mut().flat_map(|node| &mut node.pods) {
            *pod = self.both(pod, reading);
        }
        cluster
    }

    fn both(&self, pod: &PodFacts, reading: Reading) -> PodFacts {
        let [mut one, other] = [false, true].map(|on_hosts| self.part(pod, reading, on_hosts));
        one.anti_affinity.extend(other.anti_affinity);
        one.preferred_anti_affinity.extend(other.preferred_anti_affinity);
        one
    }

    /// Per node, the statuses of both parts.
    fn statuses(&self, pod: &PodFacts, reading: Reading) -> BTreeMap<String, [Status; 2]> {
        let parts = [false, true].map(|on_hosts| {
            let cluster = self.cluster(reading, on_hosts);
            let filter = Filter::new(&cluster, &self.part(pod, reading, on_hosts));
            cluster.nodes.iter().map(|node| filter.status(node)).collect::<Vec<_>>()
        });
        let [written, hosts] = parts;
        let names = self.cluster.nodes.iter().map(|node| node.name.clone());
        names.zip(written.into_iter().zip(hosts).map(|(one, other)| [one, other])).collect()
    }

    /// Like [`Incoming::verdicts`], with the fallback of relaxed mode.
    fn verdicts(&self, pod: &PodFacts, reading: Reading, mode: LiftMode) -> (BTreeMap<String, [Status; 2]>, bool) {
        let strict = self.statuses(pod, reading);
        let takes_some =
            |statuses: &BTreeMap<String, [Status; 2]>| statuses.values().any(|of| *of == [Status::Success; 2]);
        let by_host = strict.values().any(|[_, host]| *host != Status::Success);
        if mode == LiftMode::Strict || reading != Reading::Lifting || !by_host || takes_some(&strict) {
            return (strict, false);
        }
        let relaxed = self.statuses(pod, Reading::AsWritten);
        if takes_some(&relaxed) { (relaxed, true) } else { (strict, false) }
    }
}

fn status(refusals: &Refusals, node: NodeId) -> Status {
    let sets = [&refusals.affinity, &refusals.anti_affinity, &refusals.existing_anti_affinity];
    let statuses = [Status::Affinity, Status::AntiAffinity, Status::ExistingAntiAffinity];
    let found: Vec<Status> =
        sets.into_iter().zip(statuses).filter(|(set, _)| set.contains(node)).map(|of| of.1).collect();
    assert!(found.len() <= 1, "more than one reason");
    found.first().copied().unwrap_or(Status::Success)
}

/// Compares all answers for one pod.
fn compare(
    world: &World,
    plain: &Plain,
    view: &View,
    incoming: &Incoming,
    pod: &PodFacts,
) -> Result<(), TestCaseError> {
    let nodes: Vec<NodeId> =
        plain.cluster.nodes.iter().map(|node| world.node_id(&node.name).expect("a node that is known")).collect();
    let mode = world.lifting().mode;
    for reading in READINGS {
        let (expected, relaxed) = plain.verdicts(pod, reading, mode);
        let verdicts = incoming.verdicts(world, view, reading, None);
        let actual: BTreeMap<String, [Status; 2]> = nodes
            .iter()
            .map(|&node| {
                let name = world.node_name(node).expect("known").to_owned();
                (name, [status(&verdicts.inter_pod, node), status(&verdicts.physical_host, node)])
            })
            .collect();
        prop_assert_eq!(&actual, &expected, "{:?} {:?}", reading, pod);
        prop_assert_eq!(verdicts.relaxed, relaxed);
        let feasible: NodeSet = nodes.iter().copied().filter(|&node| verdicts.refusal(node).is_none()).collect();
        prop_assert_eq!(&verdicts.feasible, &feasible);
        for (node, statuses) in nodes.iter().zip(expected.values()) {
            prop_assert_eq!(verdicts.refusal(*node).is_none(), *statuses == [Status::Success; 2]);
        }

        for (hard_pod_affinity_weight, ignore_preferred_terms_of_existing_pods) in [(1, false), (0, true)] {
            let settings = ScoreSettings { hard_pod_affinity_weight, ignore_preferred_terms_of_existing_pods };
            let scores = incoming.scores(world, view, reading, &settings, &nodes);
            let ignored = ignore_preferred_terms_of_existing_pods
                && pod.preferred_affinity.is_empty()
                && pod.preferred_anti_affinity.is_empty();
            let cluster = plain.cluster_of_both(reading);
            let both = plain.both(pod, reading);
            let expected = score(&cluster, &both, hard_pod_affinity_weight.into(), false).filter(|_| !ignored);
            let expected =
                Scores { is_silent: expected.is_none(), raw: expected.unwrap_or_else(|| vec![0; nodes.len()]) };
            prop_assert_eq!(scores, expected, "{:?} {:?}", reading, pod);
        }
        blockers_are_causes(world, plain, view, incoming, pod, reading, &verdicts)?;
    }
    Ok(())
}

fn blockers_are_causes(
    world: &World,
    plain: &Plain,
    view: &View,
    incoming: &Incoming,
    pod: &PodFacts,
    reading: Reading,
    verdicts: &Verdicts,
) -> Result<(), TestCaseError> {
    let both = plain.both(pod, reading);
    let firsts = incoming.first_blockers(world, view, reading, &world.node_ids().collect());
    for node in world.node_ids() {
        let name = |pod: PodId| world.pod(pod).map(|pod| (world.interner().text(pod.namespace), pod.name.to_string()));
        let every = incoming.blockers(world, view, reading, node, usize::MAX);
        let expected = every.iter().map(|blocker| (blocker.obstacle, name(blocker.pod))).min();
        let first = firsts.iter().find(|(of, _)| *of == node);
        prop_assert_eq!(first.map(|(_, blocker)| (blocker.obstacle, name(blocker.pod))), expected);
        let blockers = incoming.blockers(world, view, reading, node, BLOCKERS_MAX);
        prop_assert!(blockers.len() <= BLOCKERS_MAX);
        let is_blocked = verdicts.refusal(node).is_some_and(|refusal| refusal != Refusal::Affinity);
        prop_assert!(!is_blocked || !blockers.is_empty(), "no blocker on {:?}", node);
        for blocker in blockers {
            let kept = world.pod(blocker.pod).expect("known");
            let name = (world.interner().text(kept.namespace).to_owned(), kept.name.to_string());
            let mut alone = plain.cluster_of_both(reading);
            alone.nodes.iter_mut().for_each(|node| node.pods.retain(|pod| name_of(pod) == name));
            let node = alone.nodes.iter().find(|of| Some(of.name.as_str()) == world.node_name(node)).expect("known");
            let without_affinity = PodFacts { affinity: Vec::new(), ..both.clone() };
            let expected = match blocker.obstacle {
                Obstacle::Avoided => [Status::AntiAffinity, Status::AntiAffinity],
                Obstacle::Avoiding => [Status::ExistingAntiAffinity, Status::AntiAffinity],
            };
            prop_assert!(expected.contains(&Filter::new(&alone, &without_affinity).status(node)));
        }
    }
    Ok(())
}

/// Answers, to be compared with later answers under the same stamp.
struct Kept {
    incoming: Incoming,
    stamp: Stamp,
    answers: Vec<(Verdicts, Scores)>,
}

fn answers(world: &World, incoming: &Incoming) -> Vec<(Verdicts, Scores)> {
    let nodes: Vec<NodeId> = (0..NODES as u32).map(crate::storage::arena::DenseId::from_index).collect();
    let answer = |reading| {
        let scores = incoming.scores(world, &View::default(), reading, &ScoreSettings::default(), &nodes);
        (incoming.verdicts(world, &View::default(), reading, None), scores)
    };
    READINGS.map(answer).into()
}

/// A pod id for a number, so that views can be generated before the world exists.
fn nth_pod(world: &World, number: usize) -> Option<PodId> {
    world.pods().nth(number).map(|(id, _)| id)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases() / 3))]

    #[test]
    fn answers_equal_those_of_kube_scheduler_after_every_event(
        history in history(),
        strangers in vec(pod(), 1..3),
        moves in vec((0..6usize, 0..NODES), 0..3),
        mode in select(vec![LiftMode::Strict, LiftMode::Relaxed]),
        order in any::<Index>(),
    ) {
        let mut world = World::with_lifting(settings(mode));
        let mut reference = Reference::default();
        let mut kept: Vec<Kept> = Vec::new();
        for (step, event) in history.into_iter().enumerate() {
            reference.apply(&event);
            world.apply(event);
            let plain = Plain::new(&reference, &[], &BTreeSet::new());
            for kept in &mut kept {
                if kept.incoming.is_current(&world) && kept.incoming.stamp(&world) == kept.stamp {
                    prop_assert_eq!(&answers(&world, &kept.incoming), &kept.answers);
                }
            }
            kept.clear();
            for stranger in &strangers {
                let stranger = PodFacts { name: "stranger".to_owned(), finished: false, ..stranger.clone() };
                let incoming = Incoming::of(&world, &stranger);
                prop_assert!(incoming.is_current(&world));
                compare(&world, &plain, &View::default(), &incoming, &stranger)?;
                let (stamp, answers) = (incoming.stamp(&world), answers(&world, &incoming));
                kept.push(Kept { incoming, stamp, answers });
            }
            // One of the existing pods, a different one each time.
            let pods: Vec<PodFacts> = reference.pods().into_iter().filter(|pod| !pod.finished).collect();
            if let Some(pod) = (!pods.is_empty()).then(|| &pods[step % pods.len()]) {
                let id = world.pod_id(&pod.namespace, &pod.name).expect("known");
                let known = Incoming::of_pod(&world, id).expect("known");
                let by_facts = Incoming::of(&world, pod);
                prop_assert!(known.is_current(&world) && by_facts.is_current(&world));
                prop_assert_eq!(known.stamp(&world), by_facts.stamp(&world));
                compare(&world, &plain, &View::default(), &by_facts, pod)?;
                compare(&world, &plain, &View::default(), &known, pod)?;
                prop_assert_eq!(known.is_indifferent(&world), Filter::new(&plain.cluster, pod).skipped);

                // The same with pods moved to other nodes.
                let mut view = View::default().without(id);
                let mut removed = BTreeSet::from([name_of(pod)]);
                let mut added = Vec::new();
                for &(number, node) in &moves {
                    let on = format!("n{node}");
                    let (Some(other), Some(node)) = (nth_pod(&world, number), world.node_id(&on)) else { continue };
                    let of = world.pod(other).expect("known");
                    let name = (world.interner().text(of.namespace).to_owned(), of.name.to_string());
                    let facts = reference.pods().into_iter().find(|pod| name_of(pod) == name).expect("known");
                    if removed.insert(name) {
                        view = view.without(other).with(other, node);
                        added.push((facts, on));
                    }
                }
                let plain = Plain::new(&reference, &added, &removed);
                compare(&world, &plain, &view, &known, pod)?;
                compare(&world, &plain, &view, &by_facts, pod)?;

                let (stamp, answers) = (known.stamp(&world), answers(&world, &known));
                kept.push(Kept { incoming: known, stamp, answers });
            }
        }
        // The same state reached by another order of events gives the same answers.
        let mut facts = reference.facts();
        let middle = order.index(facts.len());
        facts.rotate_left(middle);
        facts[..middle].reverse();
        let mut fresh = World::with_lifting(settings(mode));
        facts.into_iter().for_each(|event| {
            fresh.apply(event);
        });
        let plain = Plain::new(&reference, &[], &BTreeSet::new());
        for stranger in &strangers {
            let stranger = PodFacts { finished: false, ..stranger.clone() };
            compare(&fresh, &plain, &View::default(), &Incoming::of(&fresh, &stranger), &stranger)?;
        }
    }

    #[test]
    fn nothing_is_left_after_everything_is_deleted(history in history(), order in any::<bool>()) {
        let mut world = World::with_lifting(settings(LiftMode::Strict));
        let mut reference = Reference::default();
        for event in history {
            reference.apply(&event);
            world.apply(event);
        }
        let mut last: Vec<Event> = Vec::new();
        last.extend(reference.pods().into_iter().map(|pod| Event::PodDeleted { namespace: pod.namespace, name: pod.name }));
        last.extend(reference.nodes().into_iter().map(|node| Event::NodeDeleted { name: node.name.clone() }));
        last.extend(reference.namespaces().into_iter().map(|of| Event::NamespaceDeleted { name: of.name }));
        last.extend((0..NODES).map(|number| Event::VmRemoved { vcenter: VCENTER, id: format!("vm-{number}") }));
        last.extend(["h1", "h2", "h3"].map(|id| Event::HostRemoved { vcenter: VCENTER, id: id.to_owned() }));
        if order {
            last.reverse();
        }
        last.into_iter().for_each(|event| { world.apply(event); });
        prop_assert_eq!(world.affinity.kept(), ([0; 4], [0; 3], [0; 5]));
        prop_assert_eq!((world.interner().len(), world.pods.kept(), world.nodes_refused().len()), (0, [0; 3], 0));
    }
}
