//! Which VM-VM rules contradict each other: of two that do, the older stays enabled.
//!
//! Affinity is transitive: with a-b and b-c tied, a rule that parts a and c contradicts them.

use std::collections::{BTreeMap, BTreeSet};

use crate::vcenter::inventory::{Rule, RuleKind, VmId};

/// The indexes of the enabled rules that contradict older enabled ones, given rules in the order they were made.
pub(super) fn contradicting(rules: &[Rule]) -> Vec<usize> {
    let mut ties = Ties::default();
    let mut parted: Vec<&[VmId]> = Vec::new();
    let mut losers = Vec::new();
    for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.enabled) {
        match &rule.kind {
            RuleKind::AntiAffinity { vms } => {
                if ties.has_tied(vms) {
                    losers.push(index);
                } else {
                    parted.push(vms);
                }
            }
            RuleKind::Affinity { vms } => {
                // Nothing parted is tied so far: only what this rule brings together can contradict.
                let together = ties.with(vms);
                if parted.iter().any(|vms| vms.iter().filter(|vm| together.contains(vm)).nth(1).is_some()) {
                    losers.push(index);
                } else {
                    ties.tie(together);
                }
            }
            RuleKind::VmHost { .. } | RuleKind::Dependency { .. } => (),
        }
    }
    losers
}

/// Disjoint sets of VMs that are tied together.
#[derive(Default)]
struct Ties {
    set_of: BTreeMap<VmId, usize>,
    sets: Vec<BTreeSet<VmId>>,
}

impl Ties {
    /// These VMs and all that are tied to any of them.
    fn with(&self, vms: &[VmId]) -> BTreeSet<VmId> {
        let sets: BTreeSet<usize> = vms.iter().filter_map(|vm| self.set_of.get(vm).copied()).collect();
        vms.iter().chain(sets.into_iter().flat_map(|set| &self.sets[set])).copied().collect()
    }

    fn tie(&mut self, vms: BTreeSet<VmId>) {
        for vm in &vms {
            if let Some(before) = self.set_of.insert(*vm, self.sets.len()) {
                self.sets[before].clear();
            }
        }
        self.sets.push(vms);
    }

    /// Two of these VMs are tied together.
    fn has_tied(&self, vms: &[VmId]) -> bool {
        let mut seen = BTreeSet::new();
        vms.iter().filter_map(|vm| self.set_of.get(vm)).any(|set| !seen.insert(*set))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(spec: &[(char, bool, &[u32])]) -> Vec<Rule> {
        let rule = |(key, (kind, enabled, vms)): (usize, &(char, bool, &[u32]))| {
            let vms = vms.iter().copied().map(VmId).collect();
            Rule {
                key: i32::try_from(key).unwrap(),
                uuid: uuid::Uuid::nil(),
                name: format!("rule-{key}"),
                enabled: *enabled,
                mandatory: false,
                user_created: true,
                kind: if *kind == '+' { RuleKind::Affinity { vms } } else { RuleKind::AntiAffinity { vms } },
            }
        };
        spec.iter().enumerate().map(rule).collect()
    }

    #[test]
    fn the_newer_of_two_contradicting_rules_loses() {
        type Case<'a> = (&'a [(char, bool, &'a [u32])], &'a [usize]);
        let cases: [Case<'_>; 9] = [
            (&[('+', true, &[1, 2]), ('-', true, &[1, 2])], &[1]),
            (&[('-', true, &[1, 2]), ('+', true, &[1, 2])], &[1]),
            (&[('-', true, &[1, 2, 3]), ('+', true, &[3, 4, 1])], &[1]),
            (&[('+', true, &[1, 2]), ('+', true, &[2, 3]), ('-', true, &[1, 3])], &[2]),
            (&[('-', true, &[1, 3]), ('+', true, &[1, 2]), ('+', true, &[2, 3])], &[2]),
            (&[('+', true, &[1, 2]), ('+', true, &[3, 4]), ('-', true, &[1, 4]), ('+', true, &[2, 3])], &[3]),
            (&[('-', true, &[1, 4]), ('+', true, &[1, 2]), ('+', true, &[2, 4]), ('+', true, &[2, 3])], &[2]),
            (&[('-', false, &[1, 2]), ('+', true, &[1, 2])], &[]),
            (&[('-', true, &[1, 2]), ('+', true, &[2, 3]), ('-', true, &[3, 4])], &[]),
        ];
        for (spec, losers) in cases {
            assert_eq!(contradicting(&rules(spec)), losers, "{spec:?}");
        }
    }
}
