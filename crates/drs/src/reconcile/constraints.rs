//! What rules that are not Bridger's to change mean for its own.
//!
//! In: the observed rules of others, of every kind. Out: pairs that they part, VMs that they keep together, and the hosts that mandatory
//! VM-Host rules leave each VM. Rules that somebody disabled mean nothing; rules that DRS only should follow give way to VM-VM rules, and
//! limit nothing. VMs that are no nodes count too, as far as such rules name them: two nodes that are each kept with the same database are
//! kept together.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;
use rustc_hash::{FxHashMap, FxHashSet};

use super::observed::{Meaning, ObservedRule};
use crate::cover::graph::pairs;
use crate::cover::hosts::AllowedHosts;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Constraints {
    /// How many VMs there are: the view's, then those that are no nodes and that rules of others name.
    pub(crate) width: usize,
    /// Pairs that enabled rules of others part.
    pub(crate) apart: FxHashSet<(usize, usize)>,
    /// VMs that enabled rules of others keep together, with the rule's name.
    pub(crate) together: Vec<(String, Vec<usize>)>,
    /// By VM: one number for all that end up together.
    together_with: BTreeMap<usize, usize>,
    /// What mandatory rules of others leave. Bridger's own follow from what pods require, as all its rules do, and limit nothing before.
    pub(crate) allowed: AllowedHosts,
}

impl Constraints {
    /// `others` in the order of their names.
    pub(crate) fn of<'a>(
        others: impl Iterator<Item = &'a ObservedRule<'a>>,
        vm_count: usize,
        host_count: usize,
    ) -> Self {
        let mut constraints = Self { width: vm_count, ..Self::default() };
        let mut no_nodes: FxHashMap<&str, usize> = FxHashMap::default();
        for rule in others.filter(|rule| rule.facts.enabled) {
            let mut members = rule.members.clone();
            for id in &rule.others {
                let next = vm_count + no_nodes.len();
                members.push(*no_nodes.entry(*id).or_insert(next));
            }
            members.sort_unstable();
            match &rule.meaning {
                Meaning::Apart => constraints.apart.extend(pairs(&members)),
                Meaning::Together => constraints.together.push((rule.facts.name.clone(), members)),
                Meaning::OnHosts(hosts) if rule.facts.mandatory => constraints.limit(&members, hosts),
                Meaning::NotOnHosts(hosts) if rule.facts.mandatory => {
                    let mut left = FixedBitSet::with_capacity(host_count);
                    left.insert_range(..);
                    left.difference_with(hosts);
                    constraints.limit(&members, &left);
                }
                Meaning::OnHosts(_) | Meaning::NotOnHosts(_) | Meaning::Nothing => (),
            }
        }
        constraints.width += no_nodes.len();
        constraints.unite();
        constraints
    }

    /// A rule that leaves no host at all, because its group is empty or missing, limits nothing.
    fn limit(&mut self, members: &[usize], hosts: &FixedBitSet) {
        let members = if hosts.is_clear() { &[] } else { members };
        members.iter().for_each(|vm| self.allowed.limit(*vm, hosts));
    }

    /// Rules that share a VM keep all of theirs together, on the hosts that all of them may run on.
    fn unite(&mut self) {
        for (_, members) in &self.together {
            let of = members.iter().filter_map(|vm| self.together_with.get(vm)).copied().collect::<BTreeSet<usize>>();
            let Some(number) = of.first().copied().or(members.first().copied()) else { continue };
            self.together_with.values_mut().filter(|with| of.contains(with)).for_each(|with| *with = number);
            self.together_with.extend(members.iter().map(|vm| (*vm, number)));
        }
        // What limits one of them limits all.
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

    /// One number for all VMs that rules of others keep together with this one.
    pub(crate) fn leader(&self, vm: usize) -> usize {
        self.together_with.get(&vm).copied().unwrap_or(vm)
    }

    pub(crate) fn keeps_any_together(&self) -> bool {
        !self.together.is_empty()
    }

    /// The rule that keeps these together, or the first of several that do so with each other's help.
    pub(crate) fn rival(&self, a: usize, b: usize) -> &str {
        let has = |members: &[usize], vm: usize| members.contains(&vm);
        let both = self.together.iter().find(|(_, members)| has(members, a) && has(members, b));
        both.or_else(|| self.together.iter().find(|(_, members)| has(members, a))).map_or("", |(name, _)| name)
    }
}
