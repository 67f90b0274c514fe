//! What is to be told of a cluster beside its actions: rules that are not as recorded, settings that make rules useless or
//! harmful, and pairs of VMs that no rule keeps apart, with the reason.

use std::collections::BTreeSet;

use model::event::DrsBehavior;

use crate::cluster::Cluster;
use crate::explain::{PODS_NAMED_MAX, pods_wanted_apart};
use crate::finding::{Finding, PodRef};
use crate::graph::{Bits, pairs};
use crate::plan_cluster::{Assembly, NewRule};
use crate::record::RuleSort;

impl Assembly<'_> {
    pub(crate) fn tell_of_rules(&mut self, cluster: &Cluster) {
        let name = || self.context.places.name.clone();
        for rule in &cluster.outsiders {
            if cluster.recorded.contains_key(rule) {
                self.findings.push(Finding::RecordDisagrees { cluster: name(), rule: rule.clone() });
            } else if rule.starts_with(self.context.prefix) {
                self.findings.push(Finding::NotRecorded { cluster: name(), rule: rule.clone() });
            }
        }
    }

    pub(crate) fn tell_of_cluster(&mut self, rules: usize) {
        let cluster = self.context.places.name.clone();
        if rules > 0 && !self.facts.drs_enabled {
            self.findings.push(Finding::DrsOff { cluster, rules });
        } else if rules > 0 && self.facts.drs_behavior != DrsBehavior::FullyAutomated {
            self.findings.push(Finding::DrsNotAutomatic { cluster, rules });
        }
    }

    pub(crate) fn tell_of_high_availability(&mut self, cluster: &Cluster, finally: &[(&str, &[usize])]) {
        let hosts_able = cluster.guard.hosts_able;
        for (rule, members) in finally.iter().filter(|(_, members)| members.len() >= hosts_able.max(2)) {
            self.findings.push(Finding::HaMayNotRestart {
                cluster: self.context.places.name.clone(),
                rule: (*rule).to_owned(),
                members: members.len(),
                hosts_able,
            });
        }
    }

    /// Takes out the pairs that some rule keeps apart.
    pub(crate) fn close(&self, cluster: &Cluster, open: &mut Pairs, finally: &[(&str, &[usize])]) {
        let concerned = Bits::of(self.context.places.vms.len(), open.iter().flat_map(|(a, b)| [*a, *b]));
        for (_, members) in finally {
            let within: Vec<usize> = members.iter().copied().filter(|vm| concerned.contains(*vm)).collect();
            for pair in pairs(&within) {
                open.remove(&pair);
            }
        }
        open.retain(|pair| !cluster.bounds.apart.contains(pair));
    }

    /// Why pairs are not kept apart.
    pub(crate) fn tell_of_open(&mut self, cluster: &Cluster, open: &Pairs) {
        let (name, world) = (&self.context.places.name, self.context.world);
        let (hosts, reserve) = (cluster.guard.hosts, cluster.guard.reserve);
        let mut conflicts = BTreeSet::new();
        for cell in cluster.telling.iter().filter_map(|digest| cluster.cells.get(*digest)) {
            for clique in &cell.rules().too_large {
                let pairs = |out: &usize| {
                    let with = clique.members.iter().map(|member| (*member.min(out), *member.max(out)));
                    with.filter(|pair| open.contains(pair)).count()
                };
                let pairs_left = clique.left_out.iter().map(pairs).sum::<usize>();
                if pairs_left == 0 {
                    continue;
                }
                let vms = [clique.members.as_slice(), &clique.left_out].concat();
                let pods = pods_wanted_apart(world, &cell.part, &vms);
                let vms = vms.len();
                let told = Finding::Unsatisfiable { cluster: name.clone(), vms, hosts, reserve, pairs_left, pods };
                self.findings.push(told);
            }
            let forbidden = cell.rules().forbidden.iter().copied().filter(|pair| open.contains(pair));
            let (refused, others): (Vec<_>, Vec<_>) = forbidden.partition(|pair| cluster.refused.contains(pair));
            conflicts.extend(others.into_iter().filter(|(a, b)| cluster.bounds.keeps_together(*a, *b)));
            if !refused.is_empty() {
                let vms: BTreeSet<usize> = refused.iter().flat_map(|(a, b)| [*a, *b]).collect();
                let pods = pods_wanted_apart(world, &cell.part, &vms.into_iter().collect::<Vec<_>>());
                let (cluster, pairs_left) = (name.clone(), refused.len());
                self.findings.push(Finding::JointlyUnsatisfiable { cluster, hosts, reserve, pairs_left, pods });
            }
        }
        for (a, b) in conflicts {
            let mut pods: Vec<PodRef> =
                cluster.cells.wanting(a, b).flat_map(|cell| pods_wanted_apart(world, &cell.part, &[a, b])).collect();
            pods.sort_unstable();
            pods.dedup();
            pods.truncate(PODS_NAMED_MAX);
            let vms = &self.context.places.vms;
            let (vms, rival) = ((vms[a].name.clone(), vms[b].name.clone()), cluster.bounds.rival(a, b).to_owned());
            self.findings.push(Finding::Conflict { cluster: name.clone(), vms, rival, pods });
        }
    }
}

pub(crate) type Pairs = BTreeSet<(usize, usize)>;

/// The pairs that are wanted apart and that rules may not keep apart.
pub(crate) fn open_pairs(cluster: &Cluster, left_out: &[NewRule]) -> Pairs {
    let cells = cluster.telling.iter().filter_map(|digest| cluster.cells.get(*digest));
    let open = cells.flat_map(|cell| cell.rules().left.iter().chain(&cell.rules().forbidden)).copied();
    let left_out = left_out.iter().filter(|rule| rule.sort == RuleSort::Apart);
    open.chain(left_out.flat_map(|rule| pairs(&rule.members))).collect()
}
