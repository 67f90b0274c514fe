//! Finds contradicting VM-VM rules. Of two such rules, the older one stays enabled.
//!
//! Affinity is transitive: with affinity rules for a-b and b-c, an anti-affinity rule for a and c contradicts them.

use std::collections::{BTreeMap, BTreeSet};

use crate::vcenter::inventory::{Rule, RuleKind, VmId};

/// The indices of the enabled rules that contradict older enabled ones, given rules in creation order.
pub(super) fn contradicting(rules: &[Rule]) -> Vec<usize> {
    let mut affine = AffinitySets::default();
    let mut anti_affine: Vec<&[VmId]> = Vec::new();
    let mut losers = Vec::new();
    for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.enabled) {
        match &rule.kind {
            RuleKind::AntiAffinity { vms } => {
                if affine.has_two_of_one_set(vms) {
                    losers.push(index);
                } else {
                    anti_affine.push(vms);
                }
            }
            RuleKind::Affinity { vms } => {
                // No anti-affinity rule is violated so far: only the set that this rule creates can contradict one.
                let merged = affine.with(vms);
                if anti_affine.iter().any(|vms| vms.iter().filter(|vm| merged.contains(vm)).nth(1).is_some()) {
                    losers.push(index);
                } else {
                    affine.merge(merged);
                }
            }
            RuleKind::VmHost { .. } | RuleKind::Dependency { .. } => (),
        }
    }
    losers
}

/// Disjoint sets of VMs that affinity rules connect.
#[derive(Default)]
struct AffinitySets {
    set_of: BTreeMap<VmId, usize>,
    sets: Vec<BTreeSet<VmId>>,
}

impl AffinitySets {
    /// These VMs and all that affinity rules connect to any of them.
    fn with(&self, vms: &[VmId]) -> BTreeSet<VmId> {
        let sets: BTreeSet<usize> = vms.iter().filter_map(|vm| self.set_of.get(vm).copied()).collect();
        vms.iter().chain(sets.into_iter().flat_map(|set| &self.sets[set])).copied().collect()
    }

    fn merge(&mut self, vms: BTreeSet<VmId>) {
        for vm in &vms {
            if let Some(before) = self.set_of.insert(*vm, self.sets.len()) {
                self.sets[before].clear();
            }
        }
        self.sets.push(vms);
    }

    /// Whether two of these VMs are in the same set.
    fn has_two_of_one_set(&self, vms: &[VmId]) -> bool {
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
