//! Which new rules are created if the limits leave no room for all of them.
//!
//! In: the rules that stay, the new rules, the limits per cluster and per namespace. Out: the rules to create, and those
//! left out.
//!
//! - A rule counts for one namespace: one whose pods require it and that has room, if there is any. So no one can use up
//!   the rules of others by requiring the same rule.
//! - At the limit of the cluster, each place goes to the namespace with the fewest rules; rules that are violated now come
//!   first within their namespace.
//! - If there is not room for all, no place is used for a rule whose VMs the others separate.
//! - A term that needed no rule of its own, because a rule that is now left out would have separated its VMs, gets one.
//!
//! Invariants: existing rules stay, whatever the limits are. With the chosen rules created, the next plans undo nothing
//! and create nothing else, until a rule is deleted (a rule may take in VMs of one that was left out): a rule is left out
//! for a namespace only if no distribution of all rules leaves room for it, and the chosen rules stay in the order of
//! their terms, which decides which of two terms needs no rule of its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::affinity::pods_in_company;
use super::anti_affinity::namespaces_separating;
use super::{DesiredRule, OwnRule, Reconciled};
use crate::cover::graph::pairs;
use crate::finding::RulePod;
use crate::input::digest::parse_digest;
use crate::plan::ChangeKind;
use crate::record::RuleType;
use crate::settings::DrsSettings;

/// The maximum number of rounds: each leaves out a rule, and rules that are needed instead of it are rare.
const ROUNDS_MAX: usize = 100;

/// The namespaces whose pods require a rule.
pub(super) type Namespaces = BTreeSet<Arc<str>>;

/// A rule left out, and the namespace that has no room; `None` if the cluster has none.
pub(crate) type LeftOut = (Option<Arc<str>>, DesiredRule);

/// Why a new rule is not created.
enum Refusal {
    /// The namespace has no room.
    Namespace(Arc<str>),
    /// The cluster has no room.
    Cluster,
    /// There is not room for all, and other rules separate its VMs.
    Separated,
}

impl Reconciled<'_> {
    /// Adds the new anti-affinity rules to the others, and leaves out those without a place.
    pub(super) fn share(&mut self) {
        let mut others = std::mem::take(&mut self.new);
        for _ in 0..ROUNDS_MAX {
            self.terms.find_redundant(&self.constraints);
            self.new = self.new_anti_affinity();
            self.new.append(&mut others);
            let refused = self.refused();
            if refused.is_empty() {
                break;
            }
            let (mut chosen, mut refusals) = (Vec::new(), Vec::new());
            for (at, rule) in std::mem::take(&mut self.new).into_iter().enumerate() {
                match refused.get(&at) {
                    Some(refusal) => refusals.push((refusal, rule)),
                    None => chosen.push(rule),
                }
            }
            let digest = |rule: &DesiredRule| parse_digest(&rule.source);
            let of_terms = refusals.iter().filter(|(_, rule)| rule.rule_type == RuleType::VmAntiAffinity);
            let of_terms = of_terms.filter_map(|(_, rule)| Some((digest(rule)?, rule.members.as_slice())));
            self.terms.leave_out(&of_terms.collect::<FxHashSet<_>>());
            self.left_out.extend(refusals.into_iter().filter_map(|(refusal, rule)| match refusal {
                Refusal::Namespace(namespace) => Some((Some(Arc::clone(namespace)), rule)),
                Refusal::Cluster => Some((None, rule)),
                Refusal::Separated => None,
            }));
            others = chosen.iter().filter(|rule| rule.rule_type != RuleType::VmAntiAffinity).cloned().collect();
            self.new = chosen;
        }
    }

    /// The indexes of the new rules that are not created, and why: none if there is room for all.
    fn refused(&self) -> FxHashMap<usize, Refusal> {
        let mut separated = FxHashSet::default();
        loop {
            let mut refused = self.without_place(&separated);
            if refused.is_empty() && separated.is_empty() {
                return refused;
            }
            // If places are few, none is for a rule that others make unnecessary.
            let more = self.separated_by_others(|at| !refused.contains_key(&at) && !separated.contains(&at));
            if more.is_empty() {
                refused.extend(separated.into_iter().map(|at| (at, Refusal::Separated)));
                return refused;
            }
            separated.extend(more);
        }
    }

    /// Of the chosen anti-affinity rules, those whose VMs the rest and the existing rules separate: the last ones first,
    /// because the first ones stay.
    fn separated_by_others(&self, is_chosen: impl Fn(usize) -> bool) -> Vec<usize> {
        let is_chosen =
            |(at, rule): &(usize, &DesiredRule)| is_chosen(*at) && rule.rule_type == RuleType::VmAntiAffinity;
        let chosen: Vec<(usize, &DesiredRule)> = self.new.iter().enumerate().filter(is_chosen).collect();
        let in_force = self.own.iter().filter(|own| own.observed.is_some() && !own.is_disabled());
        let members = in_force.map(|own| self.kept(own)).chain(chosen.iter().map(|(_, rule)| &*rule.members));
        let mut times: FxHashMap<(usize, usize), usize> = FxHashMap::default();
        members.flat_map(pairs).for_each(|pair| *times.entry(pair).or_default() += 1);
        let mut found = Vec::new();
        for (at, rule) in chosen.into_iter().rev() {
            if pairs(&rule.members).all(|pair| times[&pair] > 1) {
                pairs(&rule.members).for_each(|pair| *times.entry(pair).or_default() -= 1);
                found.push(at);
            }
        }
        found
    }

    /// The indexes of the new rules without a place. Those that are separated need none.
    fn without_place(&self, separated: &FxHashSet<usize>) -> FxHashMap<usize, Refusal> {
        let DrsSettings { rules_max, rules_per_namespace_max, .. } = *self.settling.settings;
        let existing: Vec<&OwnRule<'_>> = self.own.iter().filter(|own| self.will_exist(own)).collect();
        let mut room = rules_max.saturating_sub(existing.len());
        let mut refused = FxHashMap::default();
        if self.new.len() <= room && existing.len() + self.new.len() <= rules_per_namespace_max || self.new.is_empty() {
            return refused;
        }
        let mut places = Places { limit: rules_per_namespace_max, ..Places::default() };
        for own in existing {
            let of = self.requiring(own);
            if let Some(place) = places.find(&of) {
                places.take(of, place);
            }
        }
        let mut order: Vec<usize> = (0..self.new.len()).filter(|at| !separated.contains(at)).collect();
        order.sort_by_cached_key(|at| Reverse(self.new[*at].moves(self.view).len()));
        let required_by: Vec<Namespaces> = self.new.iter().map(|rule| self.namespaces_of(rule)).collect();
        let mut waiting: BTreeMap<&Arc<str>, VecDeque<usize>> = BTreeMap::new();
        for at in order {
            required_by[at].iter().for_each(|namespace| waiting.entry(namespace).or_default().push_back(at));
        }
        let mut by_count: BTreeSet<(usize, &Arc<str>)> = waiting.keys().map(|of| (places.count(of), *of)).collect();
        let mut decided = FxHashSet::default();
        while let Some((count, namespace)) = by_count.pop_first() {
            // A rule that another namespace requires too may count for this one by now.
            let is_current = count == places.count(namespace);
            let next = waiting.get_mut(namespace).filter(|_| is_current).map(VecDeque::pop_front);
            if let Some(at) = next.flatten().filter(|at| decided.insert(*at)) {
                match places.find(&required_by[at]) {
                    None => drop(refused.insert(at, Refusal::Namespace(Arc::clone(namespace)))),
                    Some(_) if room == 0 => drop(refused.insert(at, Refusal::Cluster)),
                    Some(place) => {
                        places.take(required_by[at].clone(), place);
                        room -= 1;
                    }
                }
            }
            if next != Some(None) {
                by_count.insert((places.count(namespace), namespace));
            }
        }
        refused
    }

    /// Whether the rule is in the cluster after this plan, unless it is deleted.
    fn will_exist(&self, own: &OwnRule<'_>) -> bool {
        own.observed.is_some()
            || match own.recorded.rule_type {
                RuleType::VmAntiAffinity => self.kept(own).len() > 1,
                _ => matches!(own.settled.change, Some((ChangeKind::Create, _))),
            }
    }

    /// The namespaces whose pods require an existing rule; none if no pod does any more.
    fn requiring(&self, own: &OwnRule<'_>) -> Namespaces {
        match (own.recorded.rule_type, own.term, &own.bound) {
            (RuleType::VmAntiAffinity, Some(term), _) => {
                namespaces_separating(self.view, self.terms.all[term].term, self.kept(own))
            }
            (RuleType::VmAffinity, ..) => namespaces(&pods_in_company(self.view, &own.settled.becomes)),
            (RuleType::VmHost, _, Some(bound)) => {
                bound.pods.iter().map(|pod| Arc::clone(&self.view.pods[*pod].namespace)).collect()
            }
            _ => Namespaces::new(),
        }
    }

    fn namespaces_of(&self, rule: &DesiredRule) -> Namespaces {
        let term = parse_digest(&rule.source).filter(|_| rule.rule_type == RuleType::VmAntiAffinity);
        match term.and_then(|digest| self.terms.find(digest)) {
            Some(term) => namespaces_separating(self.view, self.terms.all[term].term, &rule.members),
            None => namespaces(&rule.pods),
        }
    }
}

fn namespaces(pods: &[RulePod]) -> Namespaces {
    pods.iter().map(|pod| Arc::clone(&pod.namespace)).collect()
}

/// For how many rules each namespace counts.
#[derive(Default)]
struct Places {
    limit: usize,
    /// The rules that several namespaces require.
    shared: Vec<Namespaces>,
    held: BTreeMap<Arc<str>, Held>,
}

#[derive(Default)]
struct Held {
    count: usize,
    /// Indexes of the shared rules that count for the namespace.
    shared: Vec<usize>,
}

/// The namespace that a rule can count for, and the shared rules that then count for another namespace: from, to.
struct Place {
    namespace: Arc<str>,
    moved: Vec<(usize, Arc<str>, Arc<str>)>,
}

impl Places {
    fn count(&self, namespace: &Arc<str>) -> usize {
        self.held.get(namespace).map_or(0, |held| held.count)
    }

    /// A breadth-first search for a namespace with room, through the rules that can count for another one.
    fn find(&self, of: &Namespaces) -> Option<Place> {
        // Each namespace, with the position of the one before it here and the rule that would leave that one.
        let mut reached: Vec<(_, Option<(usize, usize)>)> = of.iter().map(|namespace| (namespace, None)).collect();
        reached.sort_by_key(|(namespace, _)| self.count(namespace));
        let mut seen: BTreeSet<&Arc<str>> = of.iter().collect();
        let mut at = 0;
        while self.count(reached.get(at)?.0) >= self.limit {
            for &rule in self.held.get(reached[at].0).iter().flat_map(|held| &held.shared) {
                let others = self.shared[rule].iter().filter(|other| seen.insert(other));
                reached.extend(others.map(|other| (other, Some((at, rule)))));
            }
            at += 1;
        }
        let mut moved = Vec::new();
        while let (to, Some((before, rule))) = reached[at] {
            moved.push((rule, Arc::clone(reached[before].0), Arc::clone(to)));
            at = before;
        }
        Some(Place { namespace: Arc::clone(reached[at].0), moved })
    }

    fn take(&mut self, of: Namespaces, Place { namespace, moved }: Place) {
        for (rule, from, to) in moved {
            let held = self.held.entry(from).or_default();
            held.count -= 1;
            held.shared.retain(|other| *other != rule);
            let held = self.held.entry(to).or_default();
            held.count += 1;
            held.shared.push(rule);
        }
        let held = self.held.entry(namespace).or_default();
        held.count += 1;
        if of.len() > 1 {
            held.shared.push(self.shared.len());
            self.shared.push(of);
        }
    }
}
