//! Which new rules are created if the limits leave no room for all of them.
//!
//! In: the rules that stay, the new rules, the limits per cluster and per namespace. Out: the rules to create, and those
//! left out.
//!
//! - A rule counts for one namespace: one whose pods require it and that has room, if there is any. A namespace for
//!   whose pods the rules before it separate the same VMs is none of these. So no one can use up the rules of others by
//!   requiring the same rules.
//! - At the limit of the cluster, each place goes to the namespace with the fewest rules; rules that are violated now come
//!   first within their namespace.
//! - If there is not room for all, no place is used for a rule whose VMs the others separate.
//! - A term that needed no rule of its own, because a rule that is now left out would have separated its VMs, gets one.
//!   So does what was not possible together with a rule that is now left out.
//!
//! Invariants: existing rules stay, whatever the limits are. With the chosen rules created, the next plans undo nothing
//! and create nothing else, until a rule is deleted, or takes in VMs of one that was left out (then another one may count
//! for fewer namespaces): a rule is left out for a namespace only if no distribution of all rules leaves room for it, and
//! the chosen rules stay in the order of their terms, which decides which of two terms needs no rule of its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::affinity::pods_in_company;
use super::anti_affinity::namespaces_separating;
use super::constraints::Constraints;
use super::{DesiredRule, OwnRule, Reconciled};
use crate::cover::graph::pairs;
use crate::cover::terms::{NO_KEY, TermRules};
use crate::finding::{Finding, RulePod};
use crate::input::digest::parse_digest;
use crate::plan::ChangeKind;
use crate::record::RuleType;
use crate::settings::DrsSettings;

/// The maximum number of rounds: each leaves out rules, and rules that are needed instead of them are rare.
const ROUNDS_MAX: usize = 100;

/// The namespaces whose pods require a rule.
pub(super) type Namespaces = BTreeSet<Arc<str>>;

/// Why a new rule is not created.
#[derive(Default)]
pub(crate) struct Refusal {
    /// The namespaces whose pods require it; none if other rules separate its VMs.
    pub(crate) namespaces: Namespaces,
    /// The cluster has no room; else none of the namespaces has.
    pub(crate) of_cluster: bool,
}

impl Reconciled<'_> {
    /// Adds the new anti-affinity rules to the others, and leaves out those without a place.
    pub(super) fn share(&mut self) {
        for _ in 0..ROUNDS_MAX {
            self.terms.find_redundant(&self.constraints);
            let new = self.new_anti_affinity();
            self.new.retain(|rule| rule.rule_type != RuleType::VmAntiAffinity);
            self.new.extend(new);
            self.new.sort_by_key(|rule| rule.rule_type);
            let refused = self.refused();
            if refused.is_empty() {
                break;
            }
            self.leave_out(refused);
        }
    }

    fn leave_out(&mut self, mut refused: FxHashMap<usize, Refusal>) {
        let (new, mut refusals) = (std::mem::take(&mut self.new), Vec::new());
        for (at, rule) in new.into_iter().enumerate() {
            match refused.remove(&at) {
                Some(refusal) => refusals.push((refusal, rule)),
                None => self.new.push(rule),
            }
        }
        // The rules that terms will want as soon as others no longer separate their VMs would be refused too.
        let mut full = [Namespaces::new(), Namespaces::new()];
        for (Refusal { namespaces, of_cluster }, _) in &refusals {
            full[usize::from(*of_cluster)].extend(namespaces.iter().cloned());
        }
        for TermRules { term, cover, .. } in self.terms.all.iter().filter(|rules| rules.is_redundant) {
            for members in &cover.new {
                let namespaces = namespaces_separating(self.view, term, members, |_, _| true);
                if let Some(kind) = full.iter().position(|full| namespaces.is_subset(full)) {
                    refusals.push((Refusal { namespaces, of_cluster: kind > 0 }, self.desired(term, members)));
                }
            }
        }
        self.terms.leave_out(refusals.iter().filter_map(|(refusal, rule)| {
            Some((parse_digest(&rule.source)?, rule.members.clone(), !refusal.namespaces.is_empty()))
        }));
        refusals.retain(|(refusal, _)| !refusal.namespaces.is_empty());
        let makes_way = refusals.iter().any(|(_, rule)| rule.mandatory || rule.rule_type == RuleType::VmAntiAffinity);
        self.left_out.extend(refusals);
        if makes_way {
            self.cover_again();
        }
    }

    /// What was not possible together with the rules that are now left out may be possible.
    fn cover_again(&mut self) {
        let is_other = |rule: &DesiredRule| rule.rule_type != RuleType::VmAffinity;
        self.new.retain(is_other);
        self.left_out.retain(|(_, rule)| is_other(rule));
        self.findings.retain(|finding| !matches!(finding, Finding::AffinityUnmet { .. }));
        self.constraints = Constraints::of(&self.foreign, &self.own, self.view);
        self.limit_hosts();
        self.cover();
        self.affinity();
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
                refused.extend(separated.into_iter().map(|at| (at, Refusal::default())));
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
        let mut existing: Vec<&OwnRule<'_>> = self.own.iter().filter(|own| self.will_exist(own)).collect();
        let mut room = rules_max.saturating_sub(existing.len());
        let mut refused = FxHashMap::default();
        if self.new.len() <= room && existing.len() + self.new.len() <= rules_per_namespace_max || self.new.is_empty() {
            return refused;
        }
        let mut places = Places { limit: rules_per_namespace_max, ..Places::default() };
        // In the order in which they were created, so that the next plan counts the rules of this one in the same order.
        existing.sort_by_key(|own| own.observed.as_ref().map_or(NO_KEY, |rule| rule.facts.key));
        let mut of_existing = self.required_by(&existing, separated);
        let required_by = of_existing.split_off(existing.len());
        for of in of_existing {
            if let Some(place) = places.find(&of) {
                places.take(of, place);
            }
        }
        let mut order: Vec<usize> = (0..self.new.len()).filter(|at| !separated.contains(at)).collect();
        order.sort_by_cached_key(|at| Reverse(self.new[*at].moves(self.view).len()));
        let mut waiting: BTreeMap<&Arc<str>, VecDeque<usize>> = BTreeMap::new();
        for at in order {
            if required_by[at].is_empty() {
                refused.insert(at, Refusal::default());
            }
            required_by[at].iter().for_each(|namespace| waiting.entry(namespace).or_default().push_back(at));
        }
        let mut by_count: BTreeSet<(usize, &Arc<str>)> = waiting.keys().map(|of| (places.count(of), *of)).collect();
        let mut decided = FxHashSet::default();
        while let Some((count, namespace)) = by_count.pop_first() {
            // A rule that another namespace requires too may count for this one by now.
            let is_current = count == places.count(namespace);
            let next = waiting.get_mut(namespace).filter(|_| is_current).map(VecDeque::pop_front);
            if let Some(at) = next.flatten().filter(|at| decided.insert(*at)) {
                let namespaces = required_by[at].clone();
                match places.find(&namespaces) {
                    Some(place) if room > 0 => {
                        places.take(namespaces, place);
                        room -= 1;
                    }
                    found => drop(refused.insert(at, Refusal { namespaces, of_cluster: found.is_some() })),
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

    /// The namespaces that each rule can count for: the existing rules first, then the new ones.
    fn required_by(&self, existing: &[&OwnRule<'_>], separated: &FxHashSet<usize>) -> Vec<Namespaces> {
        let own = existing.iter().map(|own| {
            let pods = match (own.recorded.rule_type, &own.bound) {
                (RuleType::VmAffinity, _) => pods_in_company(self.view, &own.settled.becomes),
                (RuleType::VmHost, Some(bound)) => self.view.pod_refs(bound.pods.iter().copied()),
                _ => Vec::new(),
            };
            (own.term, self.kept(own), namespaces(&pods))
        });
        let new = self.new.iter().enumerate().map(|(at, rule)| {
            let digest = parse_digest(&rule.source).filter(|_| rule.rule_type == RuleType::VmAntiAffinity);
            let members = if separated.contains(&at) { &[] } else { rule.members.as_slice() };
            (digest.and_then(|digest| self.terms.find(digest)), members, namespaces(&rule.pods))
        });
        let mut rules: Vec<(Option<usize>, &[usize], Namespaces)> = own.chain(new).collect();
        let mut sharing = Namespaces::new();
        for (term, members, of) in &mut rules {
            let Some(term) = term else { continue };
            *of = namespaces_separating(self.view, self.terms.all[*term].term, members, |_, _| true);
            sharing.extend(of.iter().filter(|_| of.len() > 1).cloned());
        }
        let mut before = FxHashSet::default();
        for (term, members, of) in &mut rules {
            let Some(term) = term.filter(|_| !of.is_disjoint(&sharing)) else { continue };
            let first = namespaces_separating(self.view, self.terms.all[term].term, members, |namespace, pair| {
                sharing.contains(namespace) && before.insert((namespace, pair))
            });
            if of.len() > 1 {
                *of = first;
            }
        }
        rules.into_iter().map(|(.., of)| of).collect()
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
