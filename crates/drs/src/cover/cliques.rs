//! Covers the edges of one term with rules: a greedy clique cover that keeps existing rules.
//!
//! In: the graph of VMs that the term requires on different hosts, the rules made for it, the guard. Out: the desired
//! members of each existing rule, new rules, and the pairs that no rule separates. VMs are numbered within the term.
//!
//! Existing rules come first: each keeps those of its members that must still all run on different hosts, then grows by
//! what the term requires. New rules cover the remaining edges.
//!
//! Invariants: the members of a rule must all run on different hosts; every edge is within a rule or in `left`; a rule
//! grows no further than the guard allows. If a clique is too large, the part that fits is one rule and the rest go
//! into further rules, so that the rules can be satisfied together.

use super::graph::{Graph, pairs};
use super::guard::Guard;

/// A rule that exists or is about to be created.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Existing {
    pub(crate) members: Vec<usize>,
    /// The number of its members, including those that its term does not cover.
    pub(crate) held: usize,
    /// How many members stay in it besides.
    pub(crate) uncertain: usize,
    /// It had more members than hosts for so long that it may shrink.
    pub(crate) may_shrink: bool,
}

#[derive(Debug)]
pub(crate) struct Cover {
    /// Members per existing rule, sorted; fewer than two if no pod requires it.
    pub(crate) kept: Vec<Vec<usize>>,
    pub(crate) new: Vec<Vec<usize>>,
    /// The pairs that the guard leaves uncovered.
    pub(crate) left: Graph,
    /// Cliques that are too large: the members of the rule, and the VMs left out of it.
    pub(crate) too_large: Vec<TooLarge>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TooLarge {
    pub(crate) members: Vec<usize>,
    pub(crate) left_out: Vec<usize>,
}

pub(crate) struct Covering<'a, F> {
    pub(crate) apart: &'a Graph,
    pub(crate) guard: Guard,
    /// Returns the members of a rule that leave a VM no host of its own, if mandatory rules restrict the VM to few
    /// hosts.
    pub(crate) rivals: Option<F>,
    /// No new rule is created, because a rule of the term is disabled or was deleted twice.
    pub(crate) abandoned: bool,
}

impl<F: Fn(&[usize], usize) -> Option<Vec<usize>>> Covering<'_, F> {
    pub(crate) fn cover(&self, existing: &[Existing]) -> Cover {
        let width = self.apart.width();
        let mut state = State {
            apart: self.apart.clone(),
            uncovered: self.apart.clone(),
            left: Graph::new(width),
            too_large: Vec::new(),
        };
        // First compute what stays of all rules: no rule takes over pairs that another rule already covers.
        let mut kept = Vec::new();
        for rule in existing {
            let mut clique = self.still_apart(&rule.members, &state.apart);
            if rule.may_shrink {
                clique.truncate(self.guard.members_kept_max());
            }
            kept.push(clique);
        }
        drop_redundant(&mut kept, width);
        kept.iter().for_each(|clique| state.uncovered.remove_within(clique));
        // Then give up what cannot be covered, before any rule grows into it.
        for (rule, clique) in existing.iter().zip(&kept).filter(|(_, clique)| clique.len() > 1) {
            self.give_up_around(clique, self.members_max(rule), &mut state);
        }
        for (rule, clique) in existing.iter().zip(&mut kept).filter(|(_, clique)| !clique.is_empty()) {
            self.grow(clique, self.members_max(rule), &mut state);
            state.uncovered.remove_within(clique);
            clique.sort_unstable();
        }
        let mut new = Vec::new();
        // A rule that lost all its members is reused for the current VMs of its term, rather than creating another
        // name.
        let is_free = |index: &usize| kept[*index].len() < 2 && existing[*index].uncertain == 0;
        let mut free = (0..kept.len()).filter(is_free).collect::<Vec<_>>().into_iter();
        // Edges are only ever removed, so VMs already scanned need no second look.
        let mut from = if self.abandoned { width } else { 0 };
        while let Some((a, b)) = next_edge(&mut from, &state.uncovered) {
            let mut clique = vec![a];
            self.grow(&mut clique, self.guard.members_grown_max(), &mut state);
            if clique.len() < 2 {
                // Not even two VMs fit.
                state.give_up(&[a], b);
                continue;
            }
            state.uncovered.remove_within(&clique);
            clique.sort_unstable();
            match free.next() {
                Some(index) => kept[index] = clique,
                None => new.push(clique),
            }
        }
        for (a, b) in state.uncovered.edges() {
            state.left.add(a, b);
        }
        // Check the new rules first, so that existing rules stay if possible.
        let new_count = new.len();
        new.append(&mut kept);
        drop_redundant(&mut new, width);
        let kept = new.split_off(new_count);
        new.retain(|clique| clique.len() > 1);
        Cover { kept, new, left: state.left, too_large: state.too_large }
    }

    /// The largest subset of the members, found by a greedy search, that must still all run on different hosts.
    fn still_apart(&self, members: &[usize], apart: &Graph) -> Vec<usize> {
        let degree = |member: &usize| members.iter().filter(|other| apart.has(*member, **other)).count();
        let mut order: Vec<usize> = members.to_vec();
        order.sort_by_cached_key(|member| (std::cmp::Reverse(degree(member)), *member));
        let mut clique: Vec<usize> = Vec::new();
        for member in order {
            if clique.iter().all(|other| apart.has(member, *other)) && self.has_host(&clique, member) {
                clique.push(member);
            }
        }
        clique
    }

    fn rivals(&self, clique: &[usize], next: usize) -> Option<Vec<usize>> {
        self.rivals.as_ref().and_then(|rivals| rivals(clique, next))
    }

    fn has_host(&self, clique: &[usize], next: usize) -> bool {
        self.rivals(clique, next).is_none()
    }

    /// How far an existing rule may grow, without its uncertain members: it may always replace the members it has.
    fn members_max(&self, rule: &Existing) -> usize {
        let held = if rule.may_shrink { 0 } else { rule.held };
        self.guard.members_new_max().min(self.guard.members_kept_max().max(held)).saturating_sub(rule.uncertain)
    }

    /// Adds VMs that must run on a different host than every member, those that cover most edges first, as far as the
    /// guard allows; gives up what does not fit.
    fn grow(&self, clique: &mut Vec<usize>, members_max: usize, state: &mut State) {
        // The VMs that may join, each with the number of uncovered pairs with the members it would cover.
        let mut candidates: Vec<(usize, usize)> = (0..state.apart.width())
            .filter(|vm| clique.iter().all(|member| state.apart.has(*member, *vm)))
            .map(|vm| (vm, clique.iter().filter(|member| state.uncovered.has(**member, vm)).count()))
            .collect();
        while clique.len() < members_max && !candidates.is_empty() {
            let fits = |(vm, _): &&(usize, usize)| self.has_host(clique, *vm);
            let covering = candidates.iter().filter(|(_, gain)| *gain > 0).filter(fits);
            let covering = covering.max_by_key(|(vm, gain)| (*gain, usize::MAX - *vm));
            // A VM that covers no pair with the members may cover one with later candidates: one rule instead of two.
            let promising = || {
                let promise =
                    |vm: usize| candidates.iter().filter(|(other, _)| state.uncovered.has(vm, *other)).count();
                let best = candidates.iter().filter(fits).max_by_key(|(vm, _)| (promise(*vm), usize::MAX - *vm));
                best.filter(|(vm, _)| promise(*vm) > 0)
            };
            let Some(&(next, _)) = covering.or_else(promising) else { break };
            clique.push(next);
            candidates.retain(|(vm, _)| state.apart.has(next, *vm));
            candidates.iter_mut().for_each(|(vm, gain)| *gain += usize::from(state.uncovered.has(next, *vm)));
        }
        self.give_up_around(clique, members_max, state);
    }

    /// For VMs that belong in the rule but do not fit, leaves their pairs with the members that block them uncovered.
    /// Uses all required pairs, not only the remaining ones, so that the order of rules does not matter.
    fn give_up_around(&self, clique: &[usize], members_max: usize, state: &mut State) {
        let is_full = clique.len() >= members_max;
        if !is_full && self.rivals.is_none() {
            return;
        }
        let belongs = |vm: &usize| clique.iter().all(|member| self.apart.has(*member, *vm));
        let rivals = |vm: usize| -> Vec<usize> {
            if is_full { clique.to_vec() } else { self.rivals(clique, vm).unwrap_or_default() }
        };
        let outside = (0..self.apart.width()).filter(belongs);
        let left_out: Vec<usize> = outside.filter(|vm| state.give_up(&rivals(*vm), *vm)).collect();
        if !left_out.is_empty() {
            state.too_large.push(TooLarge { members: clique.to_vec(), left_out });
        }
    }
}

struct State {
    /// The required pairs, without those given up.
    apart: Graph,
    uncovered: Graph,
    left: Graph,
    too_large: Vec<TooLarge>,
}

impl State {
    /// Returns whether anything was given up: a pair that a rule covers stays covered.
    fn give_up(&mut self, clique: &[usize], other: usize) -> bool {
        let mut any = false;
        for &member in clique.iter().filter(|member| **member != other) {
            if self.uncovered.has(member, other) {
                self.uncovered.remove(member, other);
                self.apart.remove(member, other);
                self.left.add(member, other);
                any = true;
            }
        }
        any
    }
}

/// Empties each clique whose pairs are all in other cliques too, one after the other.
fn drop_redundant(cliques: &mut [Vec<usize>], width: usize) {
    let mut with_vm: Vec<Vec<usize>> = vec![Vec::new(); width];
    for (index, clique) in cliques.iter().enumerate().filter(|(_, clique)| clique.len() > 1) {
        clique.iter().for_each(|vm| with_vm[*vm].push(index));
    }
    for (index, clique) in cliques.iter_mut().enumerate() {
        let is_elsewhere = |a: usize, b: usize| {
            // Both lists are sorted.
            let mut others = with_vm[b].iter().peekable();
            with_vm[a].iter().filter(|other| **other != index).any(|other| {
                while others.next_if(|of_b| *of_b < other).is_some() {}
                others.peek() == Some(&other)
            })
        };
        if clique.len() > 1 && pairs(clique).all(|(a, b)| is_elsewhere(a, b)) {
            for vm in std::mem::take(clique) {
                with_vm[vm].retain(|other| *other != index);
            }
        }
    }
}

/// The next edge, starting at the given VM.
fn next_edge(from: &mut usize, graph: &Graph) -> Option<(usize, usize)> {
    while *from < graph.width() {
        let next = graph.neighbours(*from).ones().find(|other| other > from);
        if let Some(other) = next {
            return Some((*from, other));
        }
        *from += 1;
    }
    None
}
