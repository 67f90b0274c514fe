//! Which hosts mandatory VM-Host rules leave each VM, and whether VMs can all be on different hosts.
//!
//! In: the hosts each VM may run on. Out: whether a set of VMs that must not share a host has a host for each; exact,
//! by a bipartite matching of VMs and hosts. A VM that is left no host at all has contradictory rules that Bridger
//! cannot fix: it counts as not limited. Invariant: a VM that is not limited never blocks others, because the guard
//! limits the number of members.

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AllowedHosts {
    /// Limited VMs only.
    by_vm: FxHashMap<usize, FixedBitSet>,
}

impl AllowedHosts {
    /// Limits the VM to these hosts, in addition to earlier limits.
    pub(crate) fn limit(&mut self, vm: usize, hosts: &FixedBitSet) {
        self.by_vm.entry(vm).and_modify(|allowed| allowed.intersect_with(hosts)).or_insert_with(|| hosts.clone());
    }

    /// The hosts the VM may run on, if it is limited.
    pub(crate) fn of(&self, vm: usize) -> Option<&FixedBitSet> {
        self.by_vm.get(&vm).filter(|hosts| !hosts.is_clear())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_vm.is_empty()
    }

    /// Each set of hosts that some VM is limited to, with all VMs that may run only on these hosts.
    pub(crate) fn limits(&self) -> Vec<(FixedBitSet, Vec<usize>)> {
        let mut sets: Vec<&FixedBitSet> = self.by_vm.values().filter(|hosts| !hosts.is_clear()).collect();
        sets.sort_unstable();
        sets.dedup();
        let within = |hosts: &FixedBitSet| -> Vec<usize> {
            let mut vms: Vec<usize> = self
                .by_vm
                .iter()
                .filter(|(_, allowed)| !allowed.is_clear() && allowed.is_subset(hosts))
                .map(|(vm, _)| *vm)
                .collect();
            vms.sort_unstable();
            vms
        };
        sets.into_iter().map(|hosts| (hosts.clone(), within(hosts))).collect()
    }

    /// The hosts that all of these VMs may run on; `None` if none of them is limited.
    pub(crate) fn common(&self, vms: &[usize]) -> Option<FixedBitSet> {
        let mut limited = vms.iter().filter_map(|vm| self.of(*vm));
        let mut common = limited.next()?.clone();
        limited.for_each(|allowed| common.intersect_with(allowed));
        Some(common)
    }

    /// The members that leave this VM no host of its own; `None` if there is one.
    pub(crate) fn rivals(&self, members: &[usize], vm: usize) -> Option<Vec<usize>> {
        let of_vm = self.of(vm)?;
        let mut matching = Matching { allowed: self, on_host: FxHashMap::default() };
        for &member in members {
            matching.find_host(member, &mut FixedBitSet::with_capacity(of_vm.len()));
        }
        let mut tried = FixedBitSet::with_capacity(of_vm.len());
        if matching.find_host(vm, &mut tried) {
            return None;
        }
        // These VMs occupy all hosts that any reassignment could free for it.
        let mut rivals: Vec<usize> = tried.ones().filter_map(|host| matching.on_host.get(&host)).copied().collect();
        rivals.sort_unstable();
        Some(rivals)
    }
}

struct Matching<'a> {
    allowed: &'a AllowedHosts,
    /// The VM assigned to each host.
    on_host: FxHashMap<usize, usize>,
}

impl Matching<'_> {
    /// Assigns the VM a host, reassigning others if necessary; adds the visited hosts to `tried`.
    fn find_host(&mut self, vm: usize, tried: &mut FixedBitSet) -> bool {
        let Some(allowed) = self.allowed.of(vm) else { return true };
        for host in allowed.ones() {
            if tried.put(host) {
                continue;
            }
            let holder = self.on_host.get(&host).copied();
            if holder.is_none_or(|holder| self.find_host(holder, tried)) {
                self.on_host.insert(host, vm);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cover::graph::set_of;

    fn allowed(of: &[(usize, &[usize])]) -> AllowedHosts {
        let mut allowed = AllowedHosts::default();
        of.iter().for_each(|(vm, hosts)| allowed.limit(*vm, &set_of(6, hosts.iter().copied())));
        allowed
    }

    #[test]
    fn each_vm_has_a_host_or_its_rivals_are_returned() {
        let two = allowed(&[(0, &[0, 1]), (1, &[0, 1]), (2, &[0, 1]), (3, &[1, 2])]);
        for (members, vm, expected) in [
            (&[][..], 0, None),
            (&[0], 1, None),
            (&[0, 1], 2, Some(vec![0, 1])),
            // One of the members can use another host.
            (&[0, 3], 1, None),
            (&[0, 1, 3], 2, Some(vec![0, 1])),
            // The VM is not limited.
            (&[0, 1, 2], 9, None),
        ] {
            assert_eq!(two.rivals(members, vm), expected, "{members:?} and {vm}");
        }
        let nowhere = allowed(&[(0, &[0]), (0, &[1])]);
        assert_eq!(nowhere.rivals(&[], 0), None);
    }
}
