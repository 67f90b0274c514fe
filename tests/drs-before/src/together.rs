//! The rules that keep VMs together, within the plan for one cluster.
//!
//! In: pods that need company. Out: one rule per group of VMs that are tied; a group keeps the rule that has most of its
//! members. Invariants: what is wanted apart is never tied; company that a rule of others provides needs none of ours.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::{Cluster, Context};
use crate::digest::{digest, digest_text};
use crate::finding::{Finding, PodRef};
use crate::needs::Need;
use crate::places::{pod_ref, pod_refs};
use crate::plan_cluster::NewRule;
use crate::record::{OwnedRule, RuleSort};
use crate::settle::{Settled, Target};
use crate::ties::ties;

/// Whether the need is met where these VMs are together.
fn meets(group: &[usize], need: &Need) -> bool {
    group.contains(&need.vm) && need.partners.iter().any(|partner| group.contains(partner))
}

/// The pods that a tie between these VMs gives company.
pub(crate) fn pods_behind(context: Context<'_>, needs: &[Need], members: &[usize]) -> Vec<PodRef> {
    pod_refs(context.world, needs.iter().filter(|need| meets(members, need)).map(|need| need.pod))
}

impl Cluster {
    /// Settles the rules that keep VMs together, and returns new ones.
    pub(crate) fn plan_together(
        &mut self,
        context: Context<'_>,
        needs: &[Need],
        findings: &mut Vec<Finding>,
    ) -> Vec<NewRule> {
        let names = self.names_of(RuleSort::Together);
        if names.is_empty() && needs.is_empty() {
            return Vec::new();
        }
        let settling = context.settling();
        let cluster = &context.places.name;
        let mut met: Vec<Vec<usize>> = self.bounds.together.iter().map(|(_, members)| members.clone()).collect();
        let mut tied: Vec<(String, Vec<usize>)> = Vec::new();
        // Deleted twice: left alone for as long as the same VMs would be tied.
        let mut given_up: BTreeMap<String, String> = BTreeMap::new();
        for name in names {
            let Some(slot) = self.slots.get(&name) else { continue };
            match self.seen.get(&name) {
                Some(seen) if seen.enabled => tied.push((name, seen.members.clone())),
                Some(seen) => {
                    let is_wanted = needs.iter().any(|need| meets(&seen.members, need));
                    let finding = Finding::DisabledByAdministrator { cluster: cluster.clone(), rule: name.clone() };
                    met.push(seen.members.clone());
                    let settled = settling.leave(OwnedRule::clone(&slot.recorded), seen, is_wanted, finding);
                    self.set_settled(&name, settled);
                }
                None if slot.is_given_up() => {
                    given_up.insert(slot.recorded.source.clone(), name);
                }
                None => tied.push((name, Vec::new())),
            }
        }
        let needs: Vec<Need> =
            needs.iter().filter(|need| !met.iter().any(|group| meets(group, need))).cloned().collect();
        let now_tied: Vec<Vec<usize>> = tied.iter().map(|(_, members)| members.clone()).collect();
        let vms = &context.places.vms;
        let same_host = |a: usize, b: usize| vms[a].host.is_some() && vms[a].host == vms[b].host;
        let is_crowded = self.cells.may_be_crowded(self.guard, &self.bounds);
        let joint = LazyCell::new(|| self.cells.joint(self.guard, &self.bounds));
        let is_apart =
            |a: usize, b: usize| self.cells.want_apart(a, b) || self.bounds.apart.contains(&(a.min(b), a.max(b)));
        let may_share = |a: &[usize], b: &[usize]| {
            let all = [a, b].concat();
            a.iter().all(|a| b.iter().all(|b| !is_apart(*a, *b)))
                && self.has_common_host(&all)
                && (!is_crowded || joint.may_share(&all))
        };
        let found = ties(&needs, may_share, &now_tied, same_host);
        for need in &found.unmet {
            if let Some(pod) = pod_ref(context.world, need.pod) {
                let vm = vms[need.vm].name.clone();
                findings.push(Finding::AffinityUnmet { cluster: cluster.clone(), vm, pod });
            }
        }
        let mut groups = found.groups;
        let conflicts: Vec<bool> =
            now_tied.iter().map(|members| crate::graph::pairs(members).any(|(a, b)| is_apart(a, b))).collect();
        for ((name, members), urgent) in tied.into_iter().zip(conflicts) {
            let Some(slot) = self.slots.get(&name) else { continue };
            let members = take_group(context, &slot.recorded.source, &members, &mut groups);
            let target = Target { members, members_min: 2, urgent, ..Target::default() };
            let settled = settling.settle(OwnedRule::clone(&slot.recorded), self.seen.get(&name), &target);
            self.set_settled(&name, settled);
        }
        let mut new = Vec::new();
        for members in groups {
            let source = source_of_group(context, &members);
            match given_up.remove(&source) {
                Some(rule) => self.leave_given_up(context, &rule),
                None => new.push(NewRule {
                    pods: pods_behind(context, &needs, &members),
                    ..NewRule::of(RuleSort::Together, source, members)
                }),
            }
        }
        for name in given_up.into_values() {
            self.set_settled(&name, Settled::default());
        }
        new
    }

    /// Deleted twice by hand: reported, and left so.
    pub(crate) fn leave_given_up(&mut self, context: Context<'_>, name: &str) {
        let Some(slot) = self.slots.get(name) else { return };
        let finding = Finding::DeletedByHand { cluster: context.places.name.clone(), rule: name.to_owned() };
        let record = Some(Arc::clone(&slot.recorded));
        self.set_settled(name, Settled { record, finding: Some(finding), ..Settled::default() });
    }

    /// Whether mandatory rules, those that are about to be made among them, leave these VMs a host they could share.
    fn has_common_host(&self, vms: &[usize]) -> bool {
        let limits = self.bounds.limits.iter().chain(&self.bound);
        let mut binding = limits.filter(|limit| vms.iter().any(|vm| limit.vms.contains(vm)));
        let Some(first) = binding.next() else { return true };
        let rest: Vec<_> = binding.collect();
        first.hosts.iter().any(|host| rest.iter().all(|limit| limit.hosts.contains(host)))
    }
}

/// The group that has most in common with the rule, or the one it was made for; none when there is none.
fn take_group(context: Context<'_>, source: &str, members: &[usize], groups: &mut Vec<Vec<usize>>) -> Vec<usize> {
    let shared = |place: usize| groups[place].iter().filter(|vm| members.contains(vm)).count();
    let nearest = (0..groups.len()).max_by_key(|&place| (shared(place), usize::MAX - place));
    let made_for = || groups.iter().position(|group| source_of_group(context, group) == source);
    let found = nearest.filter(|&place| shared(place) > 0).or_else(made_for);
    found.map(|place| groups.remove(place)).unwrap_or_default()
}

fn source_of_group(context: Context<'_>, members: &[usize]) -> String {
    let ids: Vec<&str> = members.iter().map(|vm| context.places.vms[*vm].id.as_str()).collect();
    digest_text(digest(&ids))
}
