//! Which VM-VM rules contradict each other: of two that do, the older stays enabled.
//!
//! Affinity is transitive: with a-b and b-c tied, a rule that parts a and c contradicts them.

use std::collections::BTreeMap;

use crate::vcenter::inventory::{Rule, RuleKind, VmId};

/// The indexes of the enabled rules that contradict older enabled ones, given rules in the order they were made.
pub(super) fn contradicting(rules: &[Rule]) -> Vec<usize> {
    let mut ties = Ties::default();
    let mut parted: Vec<&[VmId]> = Vec::new();
    let mut losers = Vec::new();
    for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.enabled) {
        match &rule.kind {
            RuleKind::AntiAffinity { vms } => {
                if ties.tie_any(vms) {
                    losers.push(index);
                } else {
                    parted.push(vms);
                }
            }
            RuleKind::Affinity { vms } => {
                let mut tied = ties.clone();
                tied.tie(vms);
                if parted.iter().any(|vms| tied.tie_any(vms)) {
                    losers.push(index);
                } else {
                    ties = tied;
                }
            }
            RuleKind::VmHost { .. } | RuleKind::Dependency { .. } => (),
        }
    }
    losers
}

/// Disjoint sets of VMs that are tied together.
#[derive(Clone, Default)]
struct Ties {
    parents: BTreeMap<VmId, VmId>,
}

impl Ties {
    fn root(&self, mut vm: VmId) -> VmId {
        while let Some(parent) = self.parents.get(&vm) {
            vm = *parent;
        }
        vm
    }

    fn tie(&mut self, vms: &[VmId]) {
        let Some(first) = vms.first() else { return };
        for vm in vms {
            let (root, other) = (self.root(*first), self.root(*vm));
            if root != other {
                self.parents.insert(other, root);
            }
        }
    }

    /// Two of these VMs are tied together.
    fn tie_any(&self, vms: &[VmId]) -> bool {
        let mut roots: Vec<VmId> = vms.iter().map(|vm| self.root(*vm)).collect();
        roots.sort_unstable();
        roots.windows(2).any(|pair| pair[0] == pair[1])
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
        let cases: [Case<'_>; 7] = [
            (&[('+', true, &[1, 2]), ('-', true, &[1, 2])], &[1]),
            (&[('-', true, &[1, 2]), ('+', true, &[1, 2])], &[1]),
            (&[('-', true, &[1, 2, 3]), ('+', true, &[3, 4, 1])], &[1]),
            (&[('+', true, &[1, 2]), ('+', true, &[2, 3]), ('-', true, &[1, 3])], &[2]),
            (&[('-', true, &[1, 3]), ('+', true, &[1, 2]), ('+', true, &[2, 3])], &[2]),
            (&[('-', false, &[1, 2]), ('+', true, &[1, 2])], &[]),
            (&[('-', true, &[1, 2]), ('+', true, &[2, 3]), ('-', true, &[3, 4])], &[]),
        ];
        for (spec, losers) in cases {
            assert_eq!(contradicting(&rules(spec)), losers, "{spec:?}");
        }
    }
}
