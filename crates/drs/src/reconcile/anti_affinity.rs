//! VM-VM anti-affinity rules.
//!
//! Each recorded rule is assigned to the term it was made for. If that term no longer exists (it may only have been
//! written differently), the term with most of the rule's members takes its place. Then terms are covered, as far as
//! mandatory VM-Host rules allow, and each rule is settled.

use std::sync::Arc;

use super::settle::{Settled, Target};
use super::shares::Namespaces;
use super::{DesiredRule, OwnRule, Reconciled};
use crate::cover::graph::pairs;
use crate::cover::terms::ExistingRule;
use crate::finding::{Finding, PODS_NAMED_MAX, RulePod, pods_named};
use crate::input::digest::{digest_text, parse_digest};
use crate::input::{ClusterView, PodOn, Term};
use crate::record::RuleType;

impl Reconciled<'_> {
    pub(super) fn anti_affinity(&mut self) {
        let own = self.of_type(RuleType::VmAntiAffinity);
        own.iter().for_each(|at| self.assign(*at));
        let off = own.iter().map(|at| &self.own[*at]).filter(|own| own.is_disabled());
        let off = off.filter(|own| self.is_required(own.members()));
        self.turned_off = off.map(|own| (own.name, own.members().to_vec())).collect();
        self.cover();
    }

    pub(super) fn cover(&mut self) {
        let mut terms = std::mem::take(&mut self.terms);
        terms.cover(self.limits());
        self.terms = terms;
    }

    /// After the new rules are known: a rule goes only if another one really separates its VMs.
    pub(super) fn settle_all_anti_affinity(&mut self) {
        for at in self.of_type(RuleType::VmAntiAffinity) {
            self.own[at].settled = self.settle_anti_affinity(&self.own[at]);
        }
    }

    /// The members that the rule of a term should have; empty if its term needs none.
    pub(super) fn kept(&self, own: &OwnRule<'_>) -> &[usize] {
        let rules = own.term.map(|position| &self.terms.all[position]).filter(|rules| !rules.is_redundant);
        let kept = rules.and_then(|rules| rules.cover.kept.iter().find(|(of, _)| *of == own.name));
        kept.map_or(&[], |(_, members)| members)
    }

    /// Assigns a rule to its term.
    fn assign(&mut self, at: usize) {
        let (own, settling) = (&mut self.own[at], self.settling);
        let made_for = parse_digest(&own.recorded.source).and_then(|digest| self.terms.find(digest));
        // For another term its uncertain members would stay as well, and they may not be of that one.
        let nearest = || self.terms.nearest(own.members()).filter(|_| own.uncertain().is_empty());
        let Some(position) = made_for.or_else(nearest) else { return };
        own.term = Some(position);
        let rules = &mut self.terms.all[position];
        if settling.is_given_up(own) || own.is_disabled() {
            rules.is_abandoned = true;
            return;
        }
        if made_for.is_none() {
            // The rule now belongs to another workload: its wait was for the previous one.
            let prepared = Arc::make_mut(&mut own.prepared);
            (prepared.source, prepared.unwanted) = (digest_text(rules.term.digest), None);
        }
        if let Some(rule) = &own.observed {
            rules.oldest_key = rules.oldest_key.min(rule.facts.key);
            let kept_max = self.guard.members_kept_max();
            own.may_shrink = settling.is_outnumbered(&mut own.prepared, rule.members.len(), kept_max);
        }
        let (name, members, may_shrink) = (own.name, own.members().to_vec(), own.may_shrink);
        let uncertain = own.uncertain().len();
        rules.existing.push(ExistingRule { name, members, uncertain, may_shrink });
    }

    /// Whether pods require any two of these on different hosts, and no other client's rule keeps those two on one
    /// host.
    fn is_required(&self, members: &[usize]) -> bool {
        pairs(members).any(|(a, b)| !self.constraints.keeps_together(a, b) && self.terms.separate(a, b))
    }

    fn settle_anti_affinity(&self, own: &OwnRule<'_>) -> Settled {
        let settling = self.settling;
        let rules = own.term.map(|position| &self.terms.all[position]);
        match &own.observed {
            Some(observed) if !observed.facts.enabled => {
                let finding = self.disabled_finding(own.name, &observed.members);
                settling.leave(Arc::clone(&own.prepared), observed, self.is_required(&observed.members), finding)
            }
            None if settling.is_given_up(own) => rules.map(|_| settling.give_up(own)).unwrap_or_default(),
            observed => {
                let is_required = |a, b| rules.is_some_and(|rules| rules.term.separates(a, b));
                let contradicts =
                    || pairs(own.members()).any(|(a, b)| self.limits().forbids(a, b) && is_required(a, b));
                let urgent = own.may_shrink || contradicts();
                let target = Target { members: self.kept(own).to_vec(), urgent, reshaped: false };
                settling.settle(Arc::clone(&own.prepared), observed.as_ref(), &target)
            }
        }
    }

    fn disabled_finding(&self, name: &str, members: &[usize]) -> Finding {
        match pairs(members).find(|(a, b)| self.constraints.keeps_together(*a, *b)) {
            Some((a, b)) => Finding::DisabledByConflict {
                cluster: self.view.key.clone(),
                rule: name.to_owned(),
                rival: self.constraints.rival(a, b).to_owned(),
                pairs: [].into(),
            },
            None => self.settling.disabled(name),
        }
    }

    /// Sorted by rank, so that the order of rule keys is the same.
    pub(super) fn new_anti_affinity(&self) -> Vec<DesiredRule> {
        let mut terms: Vec<_> =
            self.terms.all.iter().filter(|rules| !rules.is_redundant && !rules.cover.new.is_empty()).collect();
        terms.sort_by_key(|rules| rules.rank());
        let new = terms.into_iter().flat_map(|rules| rules.cover.new.iter().map(|members| (rules.term, members)));
        new.map(|(term, members)| self.desired(term, members)).collect()
    }

    pub(super) fn desired(&self, term: &Term, members: &[usize]) -> DesiredRule {
        let (source, pods) = (digest_text(term.digest), pods_separated(self.view, term, members));
        DesiredRule { pods, ..DesiredRule::new(RuleType::VmAntiAffinity, source, members.to_vec()) }
    }
}

/// The pods on these VMs whose anti-affinity matches each other across VMs, by name, at most [`PODS_NAMED_MAX`].
pub(crate) fn pods_separated(view: &ClusterView, term: &Term, members: &[usize]) -> Vec<RulePod> {
    let Term { carriers, matches, .. } = term;
    let mut pods = view.pod_refs(across(carriers, matches, members).chain(across(matches, carriers, members)));
    if pods.len() > PODS_NAMED_MAX {
        pods = pods_named(&pods);
    }
    pods
}

/// The namespaces whose pods require by the term any two of these VMs on different hosts; of the pairs of a namespace
/// only those that count.
pub(super) fn namespaces_separating<'v>(
    view: &'v ClusterView,
    term: &Term,
    members: &[usize],
    mut counts: impl FnMut(&'v str, (usize, usize)) -> bool,
) -> Namespaces {
    let is_within = |(vm, _): &&PodOn| members.binary_search(vm).is_ok();
    let mut matching: Vec<usize> = term.matches.iter().filter(is_within).map(|(vm, _)| *vm).collect();
    matching.dedup();
    let mut found = Namespaces::new();
    for (vm, pod) in term.carriers.iter().filter(is_within) {
        let namespace = &view.pods[*pod].namespace;
        let pairs = matching.iter().filter(|other| *other != vm).map(|other| (*vm.min(other), *vm.max(other)));
        if pairs.filter(|pair| counts(namespace, *pair)).count() > 0 {
            found.insert(Arc::clone(namespace));
        }
    }
    found
}

/// Those of the pods on these VMs for which one of the others is on another of them.
fn across<'a>(pods: &'a [PodOn], others: &'a [PodOn], members: &'a [usize]) -> impl Iterator<Item = usize> + 'a {
    let is_within = move |(vm, _): &&PodOn| members.binary_search(vm).is_ok();
    // Sorted by VM: if the first and the last are on one VM, all are.
    let ends = [others.iter().find(is_within), others.iter().rfind(is_within)];
    let has_other = move |vm: usize| ends.into_iter().flatten().any(|(other, _)| *other != vm);
    pods.iter().filter(is_within).filter(move |(vm, _)| has_other(*vm)).map(|(_, pod)| *pod)
}
