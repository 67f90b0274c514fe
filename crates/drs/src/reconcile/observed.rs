//! The observed rules of a cluster, with VMs and hosts as indexes, and which of them are Bridger's.
//!
//! In: the cluster's rules and groups, the record. Out: each rule as an [`ObservedRule`]. Invariant: Bridger owns a
//! rule only if its name, type, UUID and groups are the recorded ones.

use fixedbitset::FixedBitSet;
use model::event::{ClusterFacts, GroupKind, RuleFacts, RuleKind};
use rustc_hash::FxHashMap;

use crate::cover::graph::set_of;
use crate::input::UncertainVms;
use crate::record::{RecordedGroups, RecordedRule, RuleType};

/// What a rule requires of DRS, from any client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Meaning {
    VmAntiAffinity,
    VmAffinity,
    VmHostAffinity(FixedBitSet),
    VmHostAntiAffinity(FixedBitSet),
    /// Does not constrain where VMs run, for example a dependency between VMs.
    Nothing,
}

/// A rule observed in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObservedRule<'v> {
    pub(crate) facts: &'v RuleFacts,
    pub(crate) meaning: Meaning,
    /// Node VMs, sorted.
    pub(crate) members: Vec<usize>,
    /// The ids of members that are not node VMs of this cluster.
    pub(crate) others: Vec<&'v str>,
    /// Of an owned rule, the ids of members that may be nodes: they are not in `others`, and stay.
    pub(crate) uncertain: Vec<&'v str>,
}

impl ObservedRule<'_> {
    /// Of an owned rule.
    pub(crate) fn keep(mut self, uncertain: &UncertainVms) -> Self {
        self.uncertain = self.others.extract_if(.., |id| uncertain.contains_key(*id)).collect();
        self
    }

    /// The rule cannot stay as it is: its uncertain members are like others.
    pub(crate) fn release(&mut self) {
        self.others.append(&mut self.uncertain);
    }

    /// `None` for types that Bridger never creates.
    pub(crate) fn rule_type(&self) -> Option<RuleType> {
        match self.meaning {
            Meaning::VmAntiAffinity => Some(RuleType::VmAntiAffinity),
            Meaning::VmAffinity => Some(RuleType::VmAffinity),
            Meaning::VmHostAffinity(_) => Some(RuleType::VmHost),
            Meaning::VmHostAntiAffinity(_) | Meaning::Nothing => None,
        }
    }

    /// The hosts of a VM-Host affinity rule that are in the cluster.
    pub(crate) fn hosts(&self) -> Option<&FixedBitSet> {
        match &self.meaning {
            Meaning::VmHostAffinity(hosts) => Some(hosts),
            _ => None,
        }
    }

    /// Whether it is the rule recorded under its name.
    pub(crate) fn is_recorded(&self, recorded: &RecordedRule) -> bool {
        let has_groups =
            |names: &RecordedGroups| self.facts.kind.groups().eq([names.vms.as_str(), names.hosts.as_str()]);
        self.rule_type() == Some(recorded.rule_type)
            && (recorded.uuid.is_none() || recorded.uuid == self.facts.uuid)
            && recorded.groups.as_ref().is_none_or(has_groups)
    }
}

/// Another rule that uses this group, besides the one it was created for.
pub(crate) fn other_user<'f>(facts: &'f ClusterFacts, group: &str, made_for: &str) -> Option<&'f str> {
    let uses = |rule: &&RuleFacts| rule.name != made_for && rule.kind.groups().any(|name| name == group);
    facts.rules.iter().find(uses).map(|rule| rule.name.as_str())
}

/// The observed rules by name. Names are unique in a cluster; if two rules share a name, the later one counts.
///
/// `vms` and `hosts` map ids to indexes.
pub(crate) fn observe<'v>(
    facts: &'v ClusterFacts,
    vms: &FxHashMap<&str, usize>,
    hosts: &FxHashMap<&str, usize>,
) -> FxHashMap<&'v str, ObservedRule<'v>> {
    let groups: FxHashMap<&str, &GroupKind> =
        facts.groups.iter().map(|group| (group.name.as_str(), &group.kind)).collect();
    let vms_of = |name: &str| match groups.get(name) {
        Some(GroupKind::Vms(ids)) => ids.as_slice(),
        _ => &[],
    };
    let hosts_of = |name: &str| match groups.get(name) {
        Some(GroupKind::Hosts(ids)) => set_of(hosts.len(), ids.iter().filter_map(|id| hosts.get(id.as_str())).copied()),
        _ => FixedBitSet::with_capacity(hosts.len()),
    };
    let observe = |rule: &'v RuleFacts| {
        let (meaning, ids) = match &rule.kind {
            RuleKind::VmAntiAffinity(ids) => (Meaning::VmAntiAffinity, ids.as_slice()),
            RuleKind::VmAffinity(ids) => (Meaning::VmAffinity, ids.as_slice()),
            RuleKind::VmHost { vm_group, affine_hosts: Some(hosts), anti_affine_hosts: None } => {
                (Meaning::VmHostAffinity(hosts_of(hosts)), vms_of(vm_group))
            }
            RuleKind::VmHost { vm_group, affine_hosts, anti_affine_hosts } => {
                let mut others = hosts_of(affine_hosts.as_deref().unwrap_or_default());
                if !others.is_clear() {
                    others.toggle_range(..);
                }
                others.union_with(&hosts_of(anti_affine_hosts.as_deref().unwrap_or_default()));
                (Meaning::VmHostAntiAffinity(others), vms_of(vm_group))
            }
            RuleKind::Dependency { .. } | RuleKind::Other(_) => (Meaning::Nothing, &[][..]),
        };
        let (mut members, mut others) = (Vec::with_capacity(ids.len()), Vec::new());
        for id in ids {
            match vms.get(id.as_str()) {
                Some(member) => members.push(*member),
                None => others.push(id.as_str()),
            }
        }
        members.sort_unstable();
        members.dedup();
        (rule.name.as_str(), ObservedRule { facts: rule, meaning, members, others, uncertain: Vec::new() })
    };
    facts.rules.iter().map(observe).collect()
}
