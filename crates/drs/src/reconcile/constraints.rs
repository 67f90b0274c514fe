//! How the rules of other clients constrain Bridger's own rules.
//!
//! In: the observed rules of other clients, of every type. Out: pairs that they keep on different hosts, VMs that they
//! keep on one host, and the hosts that mandatory VM-Host rules leave each VM; Bridger's own mandatory rules are added to
//! these. Disabled rules are ignored; "should" rules yield to VM-VM rules and limit nothing. VMs that are not nodes count
//! too if such rules name them: two nodes that are each kept on one host with the same database VM are kept on one host.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;
use rustc_hash::{FxHashMap, FxHashSet};

use super::OwnRule;
use super::observed::{Meaning, ObservedRule};
use crate::cover::graph::pairs;
use crate::cover::hosts::AllowedHosts;
use crate::input::ClusterView;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Constraints {
    /// The number of VMs: those of the view, then those that are not nodes and that rules of other clients name.
    pub(crate) width: usize,
    /// Pairs that enabled anti-affinity rules of other clients keep on different hosts.
    pub(crate) apart: FxHashSet<(usize, usize)>,
    /// VMs that enabled affinity rules of other clients keep on one host, with the rule's name.
    pub(crate) together: Vec<(String, Vec<usize>)>,
    /// By VM: one number for all VMs that are kept on one host.
    together_with: BTreeMap<usize, usize>,
    /// The hosts that mandatory rules leave: those of other clients, and those that Bridger has or is about to create.
    pub(crate) allowed: AllowedHosts,
}

impl Constraints {
    pub(crate) fn of(others: &BTreeMap<&str, ObservedRule<'_>>, own: &[OwnRule<'_>], view: &ClusterView) -> Self {
        let (vm_count, host_count) = (view.vms.len(), view.hosts.len());
        let mut constraints = Self { width: vm_count, ..Self::default() };
        let mut non_nodes: FxHashMap<&str, usize> = FxHashMap::default();
        for rule in others.values().filter(|rule| rule.facts.enabled) {
            let mut members = rule.members.clone();
            for id in &rule.others {
                let next = vm_count + non_nodes.len();
                members.push(*non_nodes.entry(*id).or_insert(next));
            }
            members.sort_unstable();
            match &rule.meaning {
                Meaning::VmAntiAffinity => constraints.apart.extend(pairs(&members)),
                Meaning::VmAffinity => constraints.together.push((rule.facts.name.clone(), members)),
                Meaning::VmHostAffinity(hosts) if rule.facts.mandatory => constraints.limit(&members, hosts),
                Meaning::VmHostAntiAffinity(hosts) if rule.facts.mandatory => {
                    let mut left = FixedBitSet::with_capacity(host_count);
                    left.insert_range(..);
                    left.difference_with(hosts);
                    constraints.limit(&members, &left);
                }
                Meaning::VmHostAffinity(_) | Meaning::VmHostAntiAffinity(_) | Meaning::Nothing => (),
            }
        }
        // Members that are kept although they are no nodes at the moment need hosts of their own, too.
        let own = own.iter().filter_map(|own| own.observed.as_ref());
        let own = own.filter(|rule| rule.facts.enabled && rule.meaning == Meaning::VmAntiAffinity);
        for rule in own.filter(|rule| !rule.uncertain.is_empty()) {
            let mut members = rule.members.clone();
            for id in &rule.uncertain {
                let next = vm_count + non_nodes.len();
                let number = *non_nodes.entry(*id).or_insert(next);
                constraints.apart.extend(members.iter().map(|member| (number.min(*member), number.max(*member))));
                members.push(number);
            }
        }
        constraints.width += non_nodes.len();
        constraints.unite();
        constraints.spread();
        constraints
    }

    /// A rule that leaves no host at all, because its host group is empty or missing, limits nothing.
    pub(super) fn limit(&mut self, members: &[usize], hosts: &FixedBitSet) {
        let members = if hosts.is_clear() { &[] } else { members };
        members.iter().for_each(|vm| self.allowed.limit(*vm, hosts));
    }

    /// Affinity rules that share a VM keep all their VMs on one host, which all of them must be allowed to run on.
    fn unite(&mut self) {
        for (_, members) in &self.together {
            let of = members.iter().filter_map(|vm| self.together_with.get(vm)).copied().collect::<BTreeSet<usize>>();
            let Some(number) = of.first().copied().or(members.first().copied()) else { continue };
            self.together_with.values_mut().filter(|with| of.contains(with)).for_each(|with| *with = number);
            self.together_with.extend(members.iter().map(|vm| (*vm, number)));
        }
    }

    /// A limit on one VM of such a set limits all of them.
    pub(super) fn spread(&mut self) {
        let mut limits = AllowedHosts::default();
        for (vm, with) in &self.together_with {
            self.allowed.of(*vm).into_iter().for_each(|hosts| limits.limit(*with, hosts));
        }
        for (vm, with) in &self.together_with {
            limits.of(*with).into_iter().for_each(|hosts| self.allowed.limit(*vm, hosts));
        }
    }

    pub(crate) fn keeps_together(&self, a: usize, b: usize) -> bool {
        self.together_with.get(&a).is_some_and(|with| self.together_with.get(&b) == Some(with))
    }

    /// One number for all VMs that rules of other clients keep on one host with this VM.
    pub(crate) fn leader(&self, vm: usize) -> usize {
        self.together_with.get(&vm).copied().unwrap_or(vm)
    }

    pub(crate) fn keeps_any_together(&self) -> bool {
        !self.together.is_empty()
    }

    /// The rule that keeps these two on one host, or the first of several that do so in combination.
    pub(crate) fn rival(&self, a: usize, b: usize) -> &str {
        let has = |members: &[usize], vm: usize| members.contains(&vm);
        let both = self.together.iter().find(|(_, members)| has(members, a) && has(members, b));
        both.or_else(|| self.together.iter().find(|(_, members)| has(members, a))).map_or("", |(name, _)| name)
    }
}
