//! VM-VM affinity rules, so that each pod with required affinity has a matching pod on its host.
//!
//! One rule per group of VMs; a group keeps the rule that has most of its members. Invariants: VMs that pods require on
//! different hosts are never in one group; no rule is created for affinity that another client's rule already
//! satisfies.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::observed::ObservedRule;
use super::settle::{Settled, Target};
use super::{DesiredRule, Reconciled};
use crate::cover::graph::pairs;
use crate::cover::groups::affinity_groups;
use crate::finding::{Finding, RulePod};
use crate::input::digest::digest_text;
use crate::input::{ClusterView, Company};
use crate::record::RuleType;

/// Whether the pod's affinity is satisfied if these VMs share a host.
fn meets(group: &[usize], company: &Company) -> bool {
    group.contains(&company.vm) && company.partners.iter().any(|partner| group.contains(partner))
}

/// The pods whose affinity is satisfied because these VMs share a host.
pub(crate) fn pods_in_company(view: &ClusterView, members: &[usize]) -> Vec<RulePod> {
    view.pod_refs(view.company.iter().filter(|company| meets(members, company)).map(|company| company.pod))
}

impl Reconciled<'_> {
    pub(super) fn affinity(&mut self) {
        let own = self.of_type(RuleType::VmAffinity);
        if own.is_empty() && self.view.company.is_empty() {
            return;
        }
        let (view, settling) = (self.view, self.settling);
        let mut met: Vec<Vec<usize>> = self.constraints.together.iter().map(|(_, members)| members.clone()).collect();
        let mut current: Vec<(usize, Vec<usize>)> = Vec::new();
        // Left alone as long as the same VMs would be in the group.
        let mut given_up: BTreeMap<String, usize> = BTreeMap::new();
        for at in own {
            let is_apart = |(a, b)| self.terms.separate(a, b) || self.constraints.apart.contains(&(a, b));
            let contradicts = pairs(self.own[at].members()).any(is_apart);
            let own = &mut self.own[at];
            own.settled = Settled::default();
            if contradicts {
                own.observed.iter_mut().for_each(ObservedRule::release);
            }
            match &own.observed {
                Some(observed) if !observed.facts.enabled => {
                    let is_required = view.company.iter().any(|company| meets(&observed.members, company));
                    met.push(observed.members.clone());
                    let finding = settling.disabled(own.name);
                    own.settled = settling.leave(Arc::clone(&own.prepared), observed, is_required, finding);
                }
                Some(observed) if !observed.uncertain.is_empty() => {
                    // With other members it would keep the uncertain ones with these.
                    met.push(observed.members.clone());
                    own.settled = settling.settle(Arc::clone(&own.prepared), Some(observed), &Target::default());
                }
                None if settling.is_given_up(own) => drop(given_up.insert(own.recorded.source.clone(), at)),
                _ => current.push((at, own.members().to_vec())),
            }
        }
        let unmet = view.company.iter().filter(|company| !met.iter().any(|group| meets(group, company)));
        let company: Vec<Company> = unmet.cloned().collect();
        let (mut groups, conflicts) = self.groups(&company, &current);
        for ((at, members), urgent) in current.into_iter().zip(conflicts) {
            let own = &mut self.own[at];
            let members = take_group(view, &own.recorded.source, &members, &mut groups);
            if !members.is_empty() {
                Arc::make_mut(&mut own.prepared).source = source_of(view, &members);
            }
            let target = Target { members, urgent, reshaped: false };
            own.settled = settling.settle(Arc::clone(&own.prepared), own.observed.as_ref(), &target);
        }
        for members in groups {
            let source = source_of(view, &members);
            match given_up.remove(&source) {
                Some(at) => self.give_up(at),
                None => {
                    let pods = pods_in_company(view, &members);
                    self.new.push(DesiredRule { pods, ..DesiredRule::new(RuleType::VmAffinity, source, members) });
                }
            }
        }
    }

    /// The groups of VMs to keep on one host, and for each current rule whether it violates anti-affinity.
    fn groups(&mut self, company: &[Company], current: &[(usize, Vec<usize>)]) -> (Vec<Vec<usize>>, Vec<bool>) {
        let (vms, limits) = (&self.view.vms, self.limits());
        let same_host = |a: usize, b: usize| vms[a].host.is_some() && vms[a].host == vms[b].host;
        let is_crowded = self.terms.may_be_crowded(limits);
        let joint = LazyCell::new(|| self.terms.joint(limits));
        let is_apart =
            |a: usize, b: usize| self.terms.separate(a, b) || self.constraints.apart.contains(&(a.min(b), a.max(b)));
        let may_share = |a: &[usize], b: &[usize]| {
            let all = [a, b].concat();
            a.iter().all(|a| b.iter().all(|b| !is_apart(*a, *b)))
                && self.constraints.allowed.common(&all).is_none_or(|common| !common.is_clear())
                && (!is_crowded || joint.may_share(&all))
        };
        let now: Vec<Vec<usize>> = current.iter().map(|(_, members)| members.clone()).collect();
        let found = affinity_groups(company, may_share, &now, same_host);
        let unmet = found.unmet.iter().map(|company| Finding::AffinityUnmet {
            cluster: self.view.key.clone(),
            vm: vms[company.vm].name.clone(),
            pod: self.view.pods[company.pod].clone(),
        });
        let unmet: Vec<Finding> = unmet.collect();
        let conflicts = now.iter().map(|members| pairs(members).any(|(a, b)| is_apart(a, b))).collect();
        let groups = found.groups;
        drop(joint);
        self.findings.extend(unmet);
        (groups, conflicts)
    }
}

/// Takes the group that shares most members with the rule, or the one it was made for; empty if there is none.
fn take_group(view: &ClusterView, source: &str, members: &[usize], groups: &mut Vec<Vec<usize>>) -> Vec<usize> {
    let shared = |index: usize| groups[index].iter().filter(|vm| members.contains(vm)).count();
    let nearest = (0..groups.len()).max_by_key(|&index| (shared(index), usize::MAX - index));
    let made_for = || groups.iter().position(|group| source_of(view, group) == source);
    let found = nearest.filter(|&index| shared(index) > 0).or_else(made_for);
    found.map(|index| groups.remove(index)).unwrap_or_default()
}

fn source_of(view: &ClusterView, members: &[usize]) -> String {
    let ids: Vec<&str> = members.iter().map(|vm| view.vms[*vm].id.as_str()).collect();
    digest_text(model::digest(&ids))
}
