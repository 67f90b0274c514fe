//! The rules that a cluster has: which are Bridger's, and what the others mean for it.
//!
//! In: the cluster's rules and groups, the record. Out: Bridger's own by name, and the others as constraints. Invariant: a
//! rule is Bridger's only where its name, its kind and its UUID are those recorded.

use std::collections::{BTreeMap, BTreeSet};

use model::event::{ClusterFacts, GroupKind, RuleFacts, RuleKind};

use crate::cover::Limit;
use crate::finding::Finding;
use crate::graph::{Bits, Graph};
use crate::places::ClusterPlaces;
use crate::record::{OwnedRule, RuleSort};

/// One of Bridger's rules, as the cluster has it.
#[derive(Clone, Debug)]
pub(crate) struct OwnRule<'a> {
    pub(crate) rule: &'a RuleFacts,
    /// Node VMs, sorted.
    pub(crate) members: Vec<usize>,
    /// Ids of members that are no node VMs of this cluster.
    pub(crate) others: Vec<String>,
}

pub(crate) struct Classified<'a> {
    pub(crate) own: BTreeMap<&'a str, OwnRule<'a>>,
    /// Recorded names that somebody else's rules have.
    pub(crate) usurped: BTreeSet<&'a str>,
    /// Pairs that enabled rules of others keep apart.
    pub(crate) apart: Graph,
    /// VMs that enabled rules of others keep together, with the rule's name.
    pub(crate) together: Vec<(&'a str, Vec<usize>)>,
    pub(crate) limits: Vec<Limit>,
    pub(crate) findings: Vec<Finding>,
}

pub(crate) fn classify<'a>(
    facts: &'a ClusterFacts,
    places: &ClusterPlaces,
    record: &BTreeMap<String, OwnedRule>,
    prefix: &str,
) -> Classified<'a> {
    let width = places.vms.len();
    let mut classified = Classified {
        own: BTreeMap::new(),
        usurped: BTreeSet::new(),
        apart: Graph::new(width),
        together: Vec::new(),
        limits: Vec::new(),
        findings: Vec::new(),
    };
    let cluster = || places.name.clone();
    for rule in &facts.rules {
        match record.get(&rule.name) {
            Some(recorded) if is_recorded(rule, recorded) => {
                let (members, others) = members_of(rule, places);
                classified.own.insert(&rule.name, OwnRule { rule, members, others });
                continue;
            }
            Some(_) => {
                classified.usurped.insert(&rule.name);
                classified.findings.push(Finding::RecordDisagrees { cluster: cluster(), rule: rule.name.clone() });
            }
            None if rule.name.starts_with(prefix) => {
                classified.findings.push(Finding::NotRecorded { cluster: cluster(), rule: rule.name.clone() });
            }
            None => (),
        }
        if rule.enabled {
            classified.constrain(rule, facts, places);
        }
    }
    classified
}

fn is_recorded(rule: &RuleFacts, recorded: &OwnedRule) -> bool {
    let same_kind = matches!(
        (&rule.kind, recorded.sort),
        (RuleKind::VmsApart(_), RuleSort::Apart) | (RuleKind::VmsTogether(_), RuleSort::Together)
    );
    same_kind && (recorded.uuid.is_none() || recorded.uuid == rule.uuid)
}

/// The node VMs among the members, sorted, and the ids of the other members.
fn members_of(rule: &RuleFacts, places: &ClusterPlaces) -> (Vec<usize>, Vec<String>) {
    let (RuleKind::VmsApart(vms) | RuleKind::VmsTogether(vms)) = &rule.kind else { return Default::default() };
    let (mut members, mut others) = (Vec::new(), Vec::new());
    for vm in vms {
        match places.find(vm) {
            Some(member) => members.push(member),
            None => others.push(vm.clone()),
        }
    }
    members.sort_unstable();
    members.dedup();
    (members, others)
}

impl<'a> Classified<'a> {
    fn constrain(&mut self, rule: &'a RuleFacts, facts: &ClusterFacts, places: &ClusterPlaces) {
        let (members, _) = members_of(rule, places);
        match &rule.kind {
            RuleKind::VmsApart(_) => {
                members.iter().for_each(|member| self.apart.add_star(*member, &members));
            }
            RuleKind::VmsTogether(_) => self.together.push((&rule.name, members)),
            RuleKind::VmsOnHosts { vm_group, affine_hosts: Some(hosts), .. } if rule.mandatory => {
                let group = |name: &String| facts.groups.iter().find(|group| group.name == *name);
                let (Some(vms), Some(hosts)) = (group(vm_group), group(hosts)) else { return };
                if let (GroupKind::Vms(vms), GroupKind::Hosts(hosts)) = (&vms.kind, &hosts.kind) {
                    let vms = vms.iter().filter_map(|vm| places.find(vm));
                    let vms = Bits::of(places.vms.len(), vms);
                    self.limits.push(Limit { vms, members_max: hosts.len() });
                }
            }
            RuleKind::VmsOnHosts { .. } | RuleKind::Other(_) => (),
        }
    }
}
