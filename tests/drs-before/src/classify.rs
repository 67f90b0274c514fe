//! The rules that a cluster has, in numbers of VMs; which are Bridger's; and what the others mean for it.
//!
//! In: the cluster's rules and groups, the record. Out: each rule as [`Seen`], and [`Bounds`]: what others keep apart and
//! together, and which VMs are bound to few hosts. Invariant: a rule is Bridger's only where its name, its kind and its
//! UUID are those recorded, and its groups too.

use std::collections::{BTreeMap, BTreeSet};

use model::event::{ClusterFacts, GroupKind, RuleKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::pairs;
use crate::places::ClusterPlaces;
use crate::record::{OwnedGroups, OwnedRule, RuleSort};

/// A rule as the cluster has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) key: i32,
    pub(crate) uuid: Option<String>,
    pub(crate) enabled: bool,
    pub(crate) mandatory: bool,
    /// `None` for a kind that Bridger makes no use of.
    pub(crate) sort: Option<RuleSort>,
    /// Node VMs, sorted.
    pub(crate) members: Vec<usize>,
    /// Ids of members that are no node VMs of this cluster.
    pub(crate) others: Vec<String>,
    pub(crate) groups: Option<OwnedGroups>,
    /// Ids of the hosts it binds its VMs to, sorted.
    pub(crate) hosts: Vec<String>,
}

/// By name; never iterated where the order matters.
pub(crate) type SeenRules = FxHashMap<String, Seen>;

pub(crate) fn see(facts: &ClusterFacts, places: &ClusterPlaces) -> SeenRules {
    let groups: FxHashMap<&str, &GroupKind> =
        facts.groups.iter().map(|group| (group.name.as_str(), &group.kind)).collect();
    let mut seen = SeenRules::with_capacity_and_hasher(facts.rules.len(), Default::default());
    for rule in &facts.rules {
        let (sort, vms, groups, hosts): (_, &[String], _, &[String]) = match &rule.kind {
            RuleKind::VmsApart(vms) => (Some(RuleSort::Apart), vms, None, &[]),
            RuleKind::VmsTogether(vms) => (Some(RuleSort::Together), vms, None, &[]),
            RuleKind::VmsOnHosts { vm_group, affine_hosts: Some(host_group), anti_affine_hosts: None } => {
                let vms = match groups.get(vm_group.as_str()) {
                    Some(GroupKind::Vms(vms)) => vms.as_slice(),
                    _ => &[],
                };
                let hosts = match groups.get(host_group.as_str()) {
                    Some(GroupKind::Hosts(hosts)) => hosts.as_slice(),
                    _ => &[],
                };
                let names = OwnedGroups { vms: vm_group.clone(), hosts: host_group.clone() };
                (Some(RuleSort::OnHosts), vms, Some(names), hosts)
            }
            RuleKind::VmsOnHosts { .. } | RuleKind::Dependency { .. } | RuleKind::Other(_) => (None, &[], None, &[]),
        };
        let (mut members, mut others) = (Vec::with_capacity(vms.len()), Vec::new());
        for vm in vms {
            match places.find(vm) {
                Some(member) => members.push(member),
                None => others.push(vm.clone()),
            }
        }
        members.sort_unstable();
        members.dedup();
        let mut hosts = hosts.to_vec();
        hosts.sort_unstable();
        let (key, uuid, enabled, mandatory) = (rule.key, rule.uuid.clone(), rule.enabled, rule.mandatory);
        let rule_seen = Seen { key, uuid, enabled, mandatory, sort, members, others, groups, hosts };
        seen.insert(rule.name.clone(), rule_seen);
    }
    seen
}

/// Whether the rule of a recorded name is the one that was recorded.
pub(crate) fn is_recorded(seen: &Seen, recorded: &OwnedRule) -> bool {
    seen.sort == Some(recorded.sort)
        && (recorded.uuid.is_none() || recorded.uuid == seen.uuid)
        && (recorded.groups.is_none() || recorded.groups == seen.groups)
}

/// VMs that are bound to few hosts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostLimit {
    /// Sorted.
    pub(crate) vms: Vec<usize>,
    /// Ids, sorted.
    pub(crate) hosts: Vec<String>,
}

/// What rules that are not Bridger's to change mean for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bounds {
    /// Pairs that enabled rules of others keep apart.
    pub(crate) apart: FxHashSet<(usize, usize)>,
    /// VMs that enabled rules of others keep together, with the rule's name.
    pub(crate) together: Vec<(String, Vec<usize>)>,
    /// By VM: one number for all that end up together.
    together_with: BTreeMap<usize, usize>,
    /// Of their mandatory rules. Bridger's own follow from what pods want, as all its rules do, and bind nothing before that.
    pub(crate) limits: Vec<HostLimit>,
}

impl Bounds {
    pub(crate) fn of(seen: &SeenRules, is_own: impl Fn(&str) -> bool) -> Self {
        let mut bounds = Self::default();
        let means_something = |(name, rule): &(&String, &Seen)| rule.enabled && !is_own(name);
        let mut rules: Vec<(&String, &Seen)> = seen.iter().filter(means_something).collect();
        rules.sort_unstable_by_key(|(name, _)| *name);
        for (name, rule) in rules {
            match rule.sort {
                // One that names no host at all contradicts itself, whatever we do.
                Some(RuleSort::OnHosts) if rule.mandatory && !rule.hosts.is_empty() => {
                    let (vms, hosts) = (rule.members.clone(), rule.hosts.clone());
                    bounds.limits.push(HostLimit { vms, hosts });
                }
                Some(RuleSort::Apart) => bounds.apart.extend(pairs(&rule.members)),
                Some(RuleSort::Together) => {
                    bounds.together.push((name.clone(), rule.members.clone()));
                }
                _ => (),
            }
        }
        bounds.unite();
        bounds
    }

    /// Rules that share a VM keep all of theirs together.
    fn unite(&mut self) {
        for (_, members) in &self.together {
            let of = members.iter().filter_map(|vm| self.together_with.get(vm)).copied().collect::<BTreeSet<usize>>();
            let Some(number) = of.first().copied().or(members.first().copied()) else { continue };
            self.together_with.values_mut().filter(|with| of.contains(with)).for_each(|with| *with = number);
            self.together_with.extend(members.iter().map(|vm| (*vm, number)));
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
