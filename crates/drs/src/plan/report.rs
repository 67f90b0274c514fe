//! The findings of a cluster besides the changes: rules that differ from the record, settings that make rules useless
//! or harmful, and pairs of VMs that no rule separates, each with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::event::DrsBehavior;

use crate::cover::cliques::TooLarge;
use crate::cover::graph::{pairs, set_of};
use crate::cover::guard::Guard;
use crate::cover::terms::{Pairs, TermRules};
use crate::finding::{Finding, PODS_NAMED_MAX, RulePod, TooFewHosts, VmPairs, pods_named};
use crate::input::UncertainVm;
use crate::reconcile::Reconciled;
use crate::reconcile::anti_affinity::pods_separated;
use crate::reconcile::shares::Refusal;
use crate::record::{RecordedRules, RuleType};

pub(super) struct Report<'r> {
    pub(super) reconciled: &'r Reconciled<'r>,
    /// Pairs that no rule will separate.
    pub(super) open: &'r Pairs,
    pub(super) findings: &'r mut Vec<Finding>,
}

/// Anti-affinity rules by name, with the members they have after the changes.
pub(super) type Planned = Vec<(String, Vec<usize>)>;

impl Report<'_> {
    pub(super) fn cluster(&mut self, rules: usize, planned: &Planned) {
        let Reconciled { view, guard, .. } = self.reconciled;
        let cluster = || view.key.clone();
        if rules > 0 && !view.facts.drs_enabled {
            self.findings.push(Finding::DrsOff { cluster: cluster(), rules });
        } else if rules > 0 && view.facts.drs_behavior != DrsBehavior::FullyAutomated {
            self.findings.push(Finding::DrsNotAutomatic { cluster: cluster(), rules });
        }
        if !(view.facts.ha.enabled && view.facts.ha.respects_vm_anti_affinity) {
            return;
        }
        let hosts_able = guard.hosts_able;
        for (rule, members) in planned.iter().filter(|(_, members)| members.len() >= hosts_able.max(2)) {
            let (rule, members) = (rule.clone(), members.len());
            self.findings.push(Finding::HaMayNotRestart { cluster: cluster(), rule, members, hosts_able });
        }
    }

    /// Reports the members that stay because they may be nodes.
    pub(super) fn uncertain(&mut self) {
        let Reconciled { view, own, .. } = self.reconciled;
        let mut rules: BTreeMap<&str, usize> = BTreeMap::new();
        own.iter().flat_map(|own| own.uncertain()).for_each(|id| *rules.entry(id).or_default() += 1);
        self.findings.extend(rules.into_iter().filter_map(|(id, rules)| {
            let UncertainVm { name, node } = view.uncertain.get(id)?;
            let (vm, node) = (name.clone(), Arc::clone(node));
            Some(Finding::UncertainMember { cluster: view.key.clone(), vm, node, rules })
        }));
    }

    /// Reports the rules for which there is no room: those of each namespace, and those of the cluster.
    pub(super) fn left_out(&mut self) {
        let Reconciled { view, settling, left_out, .. } = self.reconciled;
        let mut found = BTreeMap::<Option<&Arc<str>>, (usize, Pairs, BTreeSet<&RulePod>)>::new();
        // The last ones first: what the terms want now. Several terms may want the same rule.
        for (Refusal { namespaces, of_cluster }, rule) in left_out.iter().rev() {
            let is_apart = rule.rule_type == RuleType::VmAntiAffinity;
            let open = pairs(&rule.members).filter(|pair| is_apart && self.open.contains(pair));
            let open: Vec<(usize, usize)> = open.collect();
            if is_apart && open.is_empty() {
                // Other rules separate its VMs by now.
                continue;
            }
            let full = if *of_cluster { vec![None] } else { namespaces.iter().map(Some).collect() };
            for namespace in full {
                let (count, missed, pods) = found.entry(namespace).or_default();
                let adds = open.iter().filter(|pair| missed.insert(**pair)).count() > 0;
                *count += usize::from(adds || !is_apart);
                pods.extend(rule.pods.iter().filter(|pod| namespace.is_none_or(|of| pod.namespace == *of)));
            }
        }
        for (namespace, (left_out, open, pods)) in found {
            let (pairs, pods) = (self.named(open), pods_named(pods));
            let (cluster, settings) = (view.key.clone(), settling.settings);
            self.findings.push(match namespace.cloned() {
                Some(namespace) => {
                    let limit = settings.rules_per_namespace_max;
                    Finding::NamespaceRuleLimit { cluster, namespace, left_out, limit, pairs, pods }
                }
                None => Finding::RuleLimit { cluster, left_out, limit: settings.rules_max, pairs, pods },
            });
        }
    }

    /// Adds each open pair to the finding that says why it is open.
    pub(super) fn pairs(&mut self) {
        let Reconciled { view, constraints, terms, turned_off, .. } = self.reconciled;
        let mut conflicts = Pairs::new();
        // By the rule that is left alone.
        let mut excused: BTreeMap<&str, Pairs> = BTreeMap::new();
        for (position, rules) in terms.all.iter().enumerate() {
            self.too_large(rules);
            let forbidden = rules.cover.forbidden.iter().copied().filter(|pair| self.open.contains(pair));
            let (refused, others): (Vec<_>, Vec<_>) = forbidden.partition(|pair| terms.refused.contains(pair));
            self.refused(rules, &refused);
            for (a, b) in others {
                if constraints.keeps_together(a, b) {
                    conflicts.insert((a, b));
                } else if let Some((rule, _)) = turned_off.iter().find(|(_, off)| off.contains(&a) && off.contains(&b))
                {
                    excused.entry(rule).or_default().insert((a, b));
                }
            }
            if rules.is_abandoned {
                let left = rules.cover.left.iter().copied().filter(|pair| self.open.contains(pair));
                let mut of_term = self.reconciled.own.iter().filter(|own| own.term == Some(position));
                if let Some(own) = of_term.find(|own| own.settled.finding.is_some()) {
                    excused.entry(own.name).or_default().extend(left);
                }
            }
        }
        for (a, b) in conflicts {
            let terms = terms.separating(a, b).map(|position| terms.all[position].term);
            let mut pods: Vec<RulePod> = terms.flat_map(|term| pods_separated(view, term, &[a, b])).collect();
            pods.sort_unstable();
            pods.dedup();
            pods.truncate(PODS_NAMED_MAX);
            let vms = (view.vms[a].name.clone(), view.vms[b].name.clone());
            let rival = constraints.rival(a, b).to_owned();
            self.findings.push(Finding::Conflict { cluster: view.key.clone(), vms, rival, pods });
        }
        for (rule, pairs) in excused {
            let pairs = self.named(pairs);
            if let Some(of_rule) = self.findings.iter_mut().find_map(|finding| finding.pairs_of(rule)) {
                *of_rule = pairs;
            }
        }
    }

    fn named(&self, pairs: impl IntoIterator<Item = (usize, usize)>) -> VmPairs {
        let name = |vm: usize| self.reconciled.view.vms[vm].name.clone();
        pairs.into_iter().map(|(a, b)| (name(a), name(b))).collect()
    }

    /// Reports cliques with more VMs than there are hosts, each pair once: the VMs that one rule leaves out are often too
    /// many for the next one too.
    fn too_large(&mut self, rules: &TermRules<'_>) {
        let (open, allowed) = (self.open, &self.reconciled.constraints.allowed);
        let mut left: Vec<_> = rules.cover.left.iter().copied().filter(|pair| open.contains(pair)).collect();
        for TooLarge { members, left_out } in &rules.cover.too_large {
            let mut vms = [members.as_slice(), left_out].concat();
            vms.sort_unstable();
            let has = |vm: &usize| vms.binary_search(vm).is_ok();
            let pairs: Vec<(usize, usize)> = left.extract_if(.., |(a, b)| has(a) && has(b)).collect();
            if pairs.is_empty() {
                continue;
            }
            let mut found = self.too_few_hosts(rules, pairs, &vms);
            // The left out VMs need not all be apart from each other.
            let mut apart = members.clone();
            for vm in left_out {
                if apart.iter().all(|other| rules.term.separates(*other, *vm)) {
                    apart.push(*vm);
                }
            }
            found.vms = Some(apart.len());
            if let Some(rivals) = left_out.iter().find_map(|vm| allowed.rivals(members, *vm)) {
                (found.vms, found.hosts_able) = (Some(rivals.len() + 1), rivals.len());
            }
            self.findings.push(Finding::Unsatisfiable(found));
        }
    }

    /// Reports pairs that cannot be separated in addition to all the others.
    fn refused(&mut self, rules: &TermRules<'_>, refused: &[(usize, usize)]) {
        if !refused.is_empty() {
            let vms: BTreeSet<usize> = refused.iter().flat_map(|(a, b)| [*a, *b]).collect();
            let vms: Vec<usize> = vms.into_iter().collect();
            let found = self.too_few_hosts(rules, refused.to_vec(), &vms);
            let pairs_left = refused.len();
            self.findings.push(Finding::JointlyUnsatisfiable(TooFewHosts { pairs_left, ..found }));
        }
    }

    fn too_few_hosts(&self, rules: &TermRules<'_>, left: Vec<(usize, usize)>, vms: &[usize]) -> TooFewHosts {
        let Reconciled { view, guard: Guard { hosts, hosts_able, reserve }, .. } = *self.reconciled;
        let (cluster, pods) = (view.key.clone(), pods_separated(view, rules.term, vms));
        let required: Vec<_> = pairs(vms).filter(|(a, b)| rules.term.separates(*a, *b)).collect();
        let pairs_left = required.iter().filter(|pair| self.open.contains(pair)).count();
        let (pairs_required, pairs) = (required.len(), self.named(left));
        TooFewHosts { cluster, vms: None, hosts, hosts_able, reserve, pairs_required, pairs_left, pairs, pods }
    }
}

/// Rules that look like Bridger's but are not.
pub(super) fn rules_of_others<'r>(
    reconciled: &'r Reconciled<'_>,
    recorded: &'r RecordedRules,
) -> impl Iterator<Item = Finding> + 'r {
    let Reconciled { view, foreign, .. } = reconciled;
    foreign.keys().filter_map(|rule| {
        let (cluster, rule) = (view.key.clone(), rule.to_string());
        match () {
            () if recorded.contains_key(&rule) => Some(Finding::RecordDisagrees { cluster, rule }),
            () if rule.starts_with(&*view.prefix) => Some(Finding::NotRecorded { cluster, rule }),
            () => None,
        }
    })
}

/// The pairs that pods require on different hosts and that no rule will separate.
pub(super) fn open_pairs(reconciled: &Reconciled<'_>, planned: &Planned) -> Pairs {
    let covers = reconciled.terms.all.iter().map(|rules| &rules.cover);
    let open = covers.flat_map(|cover| cover.left.iter().chain(&cover.forbidden)).copied();
    let left_out = reconciled.left_out.iter().filter(|(_, rule)| rule.rule_type == RuleType::VmAntiAffinity);
    let mut open: Pairs = open.chain(left_out.flat_map(|(_, rule)| pairs(&rule.members))).collect();
    let concerned = set_of(reconciled.view.vms.len(), open.iter().flat_map(|(a, b)| [*a, *b]));
    for (_, members) in planned {
        let within: Vec<usize> = members.iter().copied().filter(|vm| concerned.contains(*vm)).collect();
        for pair in pairs(&within) {
            open.remove(&pair);
        }
    }
    open.retain(|pair| !reconciled.constraints.apart.contains(pair));
    open
}
