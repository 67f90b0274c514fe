//! Counts pods per topology domain and derives verdicts and scores for nodes.
//!
//! In: the constraints of a pod, the pods that each constraint counts, by node, and the node labels. Out: for hard
//! constraints whether a domain has too many pods, for soft constraints a score. A domain is all nodes with one value
//! of the topology key.
//!
//! Invariants, as upstream: a domain counts only through nodes that have the keys of *all* hard constraints (for
//! scores: of all soft constraints) and that the constraint's policies include. Scores by host name use only each
//! node's own pods.

use std::borrow::Cow;
use std::cell::OnceCell;

use model::scheduling::{LabelColumn, SpreadFacts, SpreadGroup, TaintEffect, ValueId};
use model::storage::arena::DenseId;
use model::{NodeId, NodeSet};

use super::args::{Defaults, HOSTNAME_KEY};
use crate::framework::cycle::Cycle;
use crate::plugins::node_selection::Selection;

/// A constraint and the pods it counts.
pub(super) struct Constraint<'a> {
    pub(super) facts: Cow<'a, SpreadFacts>,
    pub(super) group: SpreadGroup<'a>,
}

/// The hard or soft constraints of a pod: its own, or the defaults if it has no constraint at all.
pub(super) fn constraints<'a>(cycle: &Cycle<'a>, defaults: &Defaults, hard: bool) -> Vec<Constraint<'a>> {
    let own = &cycle.facts().spread;
    if !own.is_empty() {
        let of_kind = own.iter().enumerate().filter(|(_, facts)| facts.hard == hard);
        return of_kind
            .filter_map(|(index, facts)| {
                let group = cycle.world.spread_group(cycle.pod_id, index, facts)?;
                Some(Constraint { facts: Cow::Borrowed(facts), group })
            })
            .collect();
    }
    if !defaults.constraints.iter().any(|facts| facts.hard == hard) {
        return Vec::new();
    }
    let Some(group) = cycle.world.siblings(cycle.pod_id) else { return Vec::new() };
    let of_kind = defaults.constraints.iter().filter(|facts| facts.hard == hard);
    of_kind.map(|facts| Constraint { facts: Cow::Owned(facts.clone()), group: group.clone() }).collect()
}

/// Versions of everything that the results for a pod depend on. Equal versions mean equal results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Basis {
    nodes_changed: u64,
    groups: Vec<u64>,
}

impl Basis {
    /// `None` if that is unknown, because a group was counted only for this query.
    pub(super) fn of(cycle: &Cycle<'_>) -> Option<Self> {
        let own = &cycle.facts().spread;
        let groups: Option<Vec<u64>> = if own.is_empty() {
            cycle.world.siblings(cycle.pod_id).into_iter().map(|group| group.changed).collect()
        } else {
            let groups = own.iter().enumerate();
            groups.map(|(index, facts)| cycle.world.spread_group(cycle.pod_id, index, facts)?.changed).collect()
        };
        Some(Self { nodes_changed: cycle.world.scheduling_nodes_changed(), groups: groups? })
    }
}

/// The nodes that the policies of a constraint include. Each set is computed at most once, on first use.
pub(super) struct Inclusion<'a> {
    cycle: Cycle<'a>,
    accepted: OnceCell<NodeSet>,
    untolerated: OnceCell<NodeSet>,
}

impl<'a> Inclusion<'a> {
    pub(super) fn new(cycle: &Cycle<'a>) -> Self {
        Self { cycle: *cycle, accepted: OnceCell::new(), untolerated: OnceCell::new() }
    }

    /// Removes the nodes that are not included.
    fn restrict(&self, facts: &SpreadFacts, nodes: &mut NodeSet) {
        let world = self.cycle.world;
        if facts.honor_node_affinity
            && let Some(node_affinity) = &self.cycle.pod.node_affinity
        {
            let accepted = || Selection::of(node_affinity, world).among(world.schedulable_nodes());
            nodes.intersect_with(self.accepted.get_or_init(accepted));
        }
        if facts.honor_taints {
            nodes.subtract(self.untolerated.get_or_init(|| self.untolerated_nodes()));
        }
    }

    fn untolerated_nodes(&self) -> NodeSet {
        let tolerations = &self.cycle.facts().tolerations;
        let mut untolerated = NodeSet::default();
        for (taints, nodes) in self.cycle.world.taints().iter() {
            let keeps_away = taints.iter().any(|taint| {
                taint.effect != TaintEffect::PreferNoSchedule && !tolerations.iter().any(|it| it.tolerates(taint))
            });
            if keeps_away {
                untolerated.union_with(nodes);
            }
        }
        untolerated
    }
}

/// The nodes that have the keys of all constraints.
fn nodes_with_all_keys(cycle: &Cycle<'_>, constraints: &[Constraint<'_>]) -> NodeSet {
    let mut nodes = cycle.world.schedulable_nodes().clone();
    for constraint in constraints {
        match cycle.world.node_label(&constraint.facts.topology_key) {
            Some(column) => nodes.intersect_with(column.nodes()),
            None => nodes.clear(),
        }
    }
    nodes
}

/// The counts that a trial adds and removes. As upstream, an added pod counts if the selector matches it, even if the
/// selector is empty or the pod is being deleted, although neither case counts once the pod is placed; and a removed pod
/// no longer counts, even if it did not because it is being deleted. The cycle's own pod, if it is placed, is no trial.
fn shifts(cycle: &Cycle<'_>, group: &SpreadGroup<'_>) -> Vec<(NodeId, i64)> {
    let world = cycle.world;
    let added = cycle.view.added().iter().filter(|(pod, _)| group.selects(world, *pod)).map(|&(_, node)| (node, 1));
    let is_own_end = |pod| pod == cycle.pod_id && world.pod(pod).is_some_and(|pod| pod.terminating);
    let removed = cycle.view.removed().iter().filter(|pod| group.counts(world, **pod) && !is_own_end(**pod));
    let removed = removed.filter_map(|pod| world.pod_node(*pod)).map(|node| (node, -1));
    added.chain(removed).collect()
}

/// A hard constraint, counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Hard {
    pub(super) topology_key: String,
    /// By value id.
    counts: Vec<i64>,
    /// A domain with more pods than this accepts no further pod.
    most: i64,
    /// By value id: whether an included node has the value.
    present: Vec<bool>,
    included: NodeSet,
    /// There are as many domains as minDomains says, so that the domain with the fewest pods counts.
    has_enough: bool,
    /// How many more pods than the least a domain may have.
    skew: i64,
}

impl Hard {
    pub(super) fn count(cycle: &Cycle<'_>, constraints: &[Constraint<'_>]) -> Vec<Self> {
        let with_keys = nodes_with_all_keys(cycle, constraints);
        let inclusion = Inclusion::new(cycle);
        constraints.iter().map(|constraint| Self::count_one(cycle, constraint, &with_keys, &inclusion)).collect()
    }

    fn count_one(
        cycle: &Cycle<'_>,
        constraint: &Constraint<'_>,
        with_keys: &NodeSet,
        inclusion: &Inclusion<'_>,
    ) -> Self {
        let (facts, group) = (&constraint.facts, &constraint.group);
        let topology_key = facts.topology_key.clone();
        let Some(column) = cycle.world.node_label(&topology_key) else {
            // No node has the key, so no count is ever read.
            return Self { topology_key, ..Self::default() };
        };
        let mut included = with_keys.clone();
        inclusion.restrict(facts, &mut included);
        let mut present = vec![false; column.width()];
        for value in included.iter().filter_map(|node| column.value_of(node)) {
            present[value.index()] = true;
        }
        let counts = counted(cycle, column, &included, group);
        let domains = present.iter().filter(|is_present| **is_present).count();
        let of_present = counts.iter().zip(&present).filter(|(_, is_present)| **is_present).map(|(count, _)| *count);
        // With fewer domains than minDomains, the global minimum is 0.
        let has_enough = i64::try_from(domains).unwrap_or(i64::MAX) >= i64::from(facts.min_domains);
        let least = if has_enough { of_present.min().unwrap_or(NO_DOMAIN) } else { 0 };
        let skew = i64::from(facts.max_skew) - i64::from(group.matches_self);
        Self { topology_key, counts, most: skew + least, present, included, has_enough, skew }
    }

    /// The two domains with the fewest pods, as value index and count.
    fn two_least(&self) -> [Option<(usize, i64)>; 2] {
        let mut least = [None, None];
        let of_present = self.counts.iter().zip(&self.present).enumerate().filter(|(_, (_, is_present))| **is_present);
        for (value, (&count, _)) in of_present {
            let is_less = |other: Option<(usize, i64)>| other.is_none_or(|(_, other)| count < other);
            if is_less(least[0]) {
                least = [Some((value, count)), least[0]];
            } else if is_less(least[1]) {
                least[1] = Some((value, count));
            }
        }
        least
    }

    pub(super) fn is_exceeded(&self, value: ValueId) -> bool {
        self.counts.get(value.index()).copied().unwrap_or(0) > self.most
    }
}

/// What the least count is without any domain, as upstream.
const NO_DOMAIN: i64 = i32::MAX as i64;

/// A hard constraint on one node, while pods come and go there. Only the count of the node's own domain changes.
pub(super) struct HardTrial<'a> {
    hard: &'a Hard,
    group: SpreadGroup<'a>,
    column: Option<&'a LabelColumn>,
    least: [Option<(usize, i64)>; 2],
}

impl<'a> HardTrial<'a> {
    pub(super) fn new(cycle: &Cycle<'a>, hard: &'a Hard, group: SpreadGroup<'a>) -> Self {
        Self { hard, group, column: cycle.world.node_label(&hard.topology_key), least: hard.two_least() }
    }

    /// Whether the node lacks the key.
    pub(super) fn lacks_key(&self, node: NodeId) -> bool {
        self.column.and_then(|column| column.value_of(node)).is_none()
    }

    /// Whether the node's domain has too many pods, with the changes of the cycle's view, which are all on the node.
    pub(super) fn is_exceeded(&self, cycle: &Cycle<'_>, node: NodeId) -> bool {
        let Some(value) = self.column.and_then(|column| column.value_of(node)) else { return false };
        let (hard, value) = (self.hard, value.index());
        let is_included = hard.included.contains(node);
        let by: i64 = if is_included { shifts(cycle, &self.group).into_iter().map(|(_, by)| by).sum() } else { 0 };
        let count = hard.counts.get(value).copied().unwrap_or(0) + by;
        let is_present = hard.present.get(value).copied().unwrap_or(false);
        let others = self.least.into_iter().flatten().find(|(other, _)| *other != value).map(|(_, least)| least);
        let least = match (hard.has_enough, is_present) {
            (false, _) => 0,
            (true, true) => others.map_or(count, |others| others.min(count)),
            (true, false) => others.unwrap_or(NO_DOMAIN),
        };
        count > hard.skew + least
    }
}

/// The number of pods on these nodes, by value id.
fn counted(cycle: &Cycle<'_>, column: &LabelColumn, nodes: &NodeSet, group: &SpreadGroup<'_>) -> Vec<i64> {
    let mut counts = vec![0; column.width()];
    let counted = group.tally.iter().map(|(node, count)| (node, i64::from(count)));
    for (node, count) in counted.chain(shifts(cycle, group)).filter(|(node, _)| nodes.contains(*node)) {
        if let Some(value) = column.value_of(node) {
            counts[value.index()] += count;
        }
    }
    counts
}

/// All soft constraints, counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Soft {
    constraints: Vec<SoftConstraint>,
    /// Feasible nodes that lack a key.
    pub(super) ignored: NodeSet,
}

#[derive(Clone, Debug)]
struct SoftConstraint {
    topology_key: String,
    max_skew: i32,
    /// Makes few large domains count as much as many small ones.
    weight: f64,
    counts: SoftCounts,
}

#[derive(Clone, Debug)]
enum SoftCounts {
    /// By value id.
    Domains(Vec<i64>),
    /// Each node's own pods, by node id.
    OwnPods(Vec<i64>),
}

impl Soft {
    pub(super) fn count(
        cycle: &Cycle<'_>,
        constraints: &[Constraint<'_>],
        feasible: &NodeSet,
        needs_all_keys: bool,
        inclusion: &Inclusion<'_>,
    ) -> Self {
        let mut ignored = NodeSet::default();
        let mut counted_nodes = Cow::Borrowed(cycle.world.schedulable_nodes());
        if needs_all_keys {
            counted_nodes = Cow::Owned(nodes_with_all_keys(cycle, constraints));
            ignored = feasible.clone();
            ignored.subtract(&counted_nodes);
        }
        let mut scored = feasible.clone();
        scored.subtract(&ignored);
        let count = |constraint: &Constraint<'_>| {
            let facts = &constraint.facts;
            let (size, counts) = if facts.topology_key == HOSTNAME_KEY {
                (scored.len(), SoftCounts::OwnPods(by_node(cycle, &constraint.group)))
            } else {
                let mut included = counted_nodes.clone().into_owned();
                inclusion.restrict(facts, &mut included);
                domains(cycle, constraint, &scored, &included)
            };
            // Sizes are far below 2^52, so the cast is exact.
            let weight = ((size + 2) as f64).ln();
            SoftConstraint { topology_key: facts.topology_key.clone(), max_skew: facts.max_skew, weight, counts }
        };
        Self { constraints: constraints.iter().map(count).collect(), ignored }
    }

    /// Raw scores: more pods give a higher score.
    pub(super) fn score(&self, cycle: &Cycle<'_>, nodes: &NodeSet, scores: &mut [i64]) {
        let columns = self.constraints.iter().map(|it| (it, cycle.world.node_label(&it.topology_key)));
        let columns: Vec<_> = columns.filter_map(|(constraint, column)| Some((constraint, column?))).collect();
        if let [(constraint, column)] = columns.as_slice()
            && let SoftCounts::Domains(counts) = &constraint.counts
        {
            // All nodes of a domain have the same score, which is rounded once.
            let of_domain: Vec<i64> = counts.iter().map(|count| constraint.score(*count).round() as i64).collect();
            nodes.iter().for_each(|node| {
                let value = column.value_of(node).map(ValueId::index);
                scores[node.index()] = value.and_then(|value| of_domain.get(value).copied()).unwrap_or(0);
            });
        } else {
            nodes.iter().for_each(|node| {
                let mut score = 0.0;
                for (constraint, column) in &columns {
                    let Some(value) = column.value_of(node) else { continue };
                    let count = match &constraint.counts {
                        SoftCounts::Domains(counts) => counts.get(value.index()).copied().unwrap_or(0),
                        SoftCounts::OwnPods(counts) => counts.get(node.index()).copied().unwrap_or(0),
                    };
                    score += constraint.score(count);
                }
                scores[node.index()] = score.round() as i64;
            });
        }
        self.ignored.common(nodes).for_each(|node| scores[node.index()] = 0);
    }
}

impl SoftConstraint {
    /// What this many pods add to the score.
    fn score(&self, count: i64) -> f64 {
        count as f64 * self.weight + f64::from(self.max_skew - 1)
    }
}

fn by_node(cycle: &Cycle<'_>, group: &SpreadGroup<'_>) -> Vec<i64> {
    let mut counts = Vec::new();
    // The tally is ordered by node id, so `resize` only grows the vector.
    for (node, count) in group.tally.iter() {
        counts.resize(node.index(), 0);
        counts.push(i64::from(count));
    }
    for (node, by) in shifts(cycle, group) {
        if counts.len() <= node.index() {
            counts.resize(node.index() + 1, 0);
        }
        counts[node.index()] += by;
    }
    counts
}

/// The number of domains among the scored nodes, and the pods in each domain. Nodes without the key form one domain.
fn domains(
    cycle: &Cycle<'_>,
    constraint: &Constraint<'_>,
    scored: &NodeSet,
    included: &NodeSet,
) -> (usize, SoftCounts) {
    let Some(column) = cycle.world.node_label(&constraint.facts.topology_key) else {
        return (usize::from(!scored.is_empty()), SoftCounts::Domains(Vec::new()));
    };
    let counts = SoftCounts::Domains(counted(cycle, column, included, &constraint.group));
    if scored == column.nodes() {
        return (column.value_count(), counts);
    }
    let mut present = vec![false; column.width()];
    let mut without_key = false;
    for node in scored.iter() {
        match column.value_of(node) {
            Some(value) => present[value.index()] = true,
            None => without_key = true,
        }
    }
    let size = present.iter().filter(|is_present| **is_present).count() + usize::from(without_key);
    (size, counts)
}
