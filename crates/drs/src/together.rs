//! The rules that keep VMs together, within the plan for one cluster.
//!
//! In: pods that need company. Out: one rule per group of VMs that are tied; a group keeps the rule that has most of its
//! members. Invariants: what is wanted apart is never tied; company that a rule of others provides needs none of ours.

use std::collections::BTreeMap;

use crate::classify::OwnRule;
use crate::cluster::{Target, Work};
use crate::finding::{Finding, PodRef};
use crate::places::pod_ref;
use crate::plan::ActionKind;
use crate::record::{OwnedRule, RuleSort};
use crate::ties::ties;
use crate::wanted::{Need, short_digest};

/// Whether the need is met where these VMs are together.
fn meets(group: &[usize], need: &Need) -> bool {
    group.contains(&need.vm) && need.partners.iter().any(|partner| group.contains(partner))
}

impl Work<'_> {
    pub(crate) fn plan_together(&mut self) {
        let wanted = self.planning.wanted;
        // Nothing ties what is wanted apart, or what others keep apart.
        let mut apart = wanted.apart.clone();
        self.classified.apart.edges().for_each(|(a, b)| apart.add(a, b));
        let mut met: Vec<Vec<usize>> = self.classified.together.iter().map(|(_, members)| members.clone()).collect();
        let mut tied: Vec<(String, Vec<usize>)> = Vec::new();
        // Deleted twice: left alone for as long as the same VMs would be tied.
        let mut given_up: BTreeMap<String, String> = BTreeMap::new();
        for name in self.names_of(RuleSort::Together) {
            let Some(recorded) = self.rules.get(&name) else { continue };
            match self.classified.own.get(name.as_str()).cloned() {
                Some(OwnRule { rule, members, .. }) if rule.enabled => tied.push((name, members)),
                Some(OwnRule { rule, members, .. }) => {
                    self.report_disabled(rule, &members);
                    let is_wanted = wanted.needs.iter().any(|need| meets(&members, need));
                    self.wait(&name, !is_wanted, &members);
                    met.push(members);
                }
                None if recorded.restored && recorded.uuid.is_some() => {
                    given_up.insert(recorded.source.clone(), name);
                }
                None => tied.push((name, Vec::new())),
            }
        }
        let needs: Vec<Need> =
            wanted.needs.iter().filter(|need| !met.iter().any(|group| meets(group, need))).cloned().collect();
        let now_tied: Vec<Vec<usize>> = tied.iter().map(|(_, members)| members.clone()).collect();
        let vms = &self.places.vms;
        let found = ties(&needs, &apart, &now_tied, |a, b| vms[a].host.is_some() && vms[a].host == vms[b].host);
        for need in &found.unmet {
            if let Some(pod) = pod_ref(self.planning.world, need.pod) {
                let vm = vms[need.vm].name.clone();
                self.findings.push(Finding::AffinityUnmet { cluster: self.places.name.clone(), vm, pod });
            }
        }
        let mut groups = found.groups;
        for (name, members) in tied {
            let members = self.take_group(&name, &members, &mut groups);
            let target = Target { members: &members, urgent: false };
            self.settle(&name, &target, |work| work.pods_behind(&needs, &members));
        }
        for members in groups {
            let source = self.source_of_group(&members);
            if let Some(rule) = given_up.remove(&source) {
                self.findings.push(Finding::DeletedByHand { cluster: self.places.name.clone(), rule });
                continue;
            }
            let name = self.new_name("together", &source);
            self.rules.insert(name.clone(), OwnedRule::intent(RuleSort::Together, source));
            let pods = self.pods_behind(&needs, &members);
            self.act(&name, RuleSort::Together, ActionKind::Create, &members, pods);
            self.rule_count += 1;
        }
        for name in given_up.into_values() {
            self.rules.remove(&name);
        }
    }

    /// The group that has most in common with the rule, or the one it was made for; none when there is none.
    fn take_group(&self, name: &str, members: &[usize], groups: &mut Vec<Vec<usize>>) -> Vec<usize> {
        let shared = |place: usize| groups[place].iter().filter(|vm| members.contains(vm)).count();
        let nearest = (0..groups.len()).max_by_key(|&place| (shared(place), usize::MAX - place));
        let source = self.rules.get(name).map(|rule| rule.source.as_str());
        let made_for = || groups.iter().position(|group| Some(self.source_of_group(group).as_str()) == source);
        let found = nearest.filter(|&place| shared(place) > 0).or_else(made_for);
        found.map(|place| groups.remove(place)).unwrap_or_default()
    }

    fn source_of_group(&self, members: &[usize]) -> String {
        let ids: Vec<&str> = members.iter().map(|vm| self.places.vms[*vm].id.as_str()).collect();
        short_digest(&ids)
    }

    fn pods_behind(&self, needs: &[Need], members: &[usize]) -> Vec<PodRef> {
        let behind = needs.iter().filter(|need| meets(members, need));
        behind.filter_map(|need| pod_ref(self.planning.world, need.pod)).collect()
    }
}
