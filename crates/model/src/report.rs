//! Reports for users: object counts, which nodes are matched, and why others are not.
//!
//! In: the world. Out: counts and sentences. Invariants: the same world gives the same report; a sentence names the
//! objects it is about, and stays short however many they are.

use std::collections::BTreeMap;

use crate::event::{Source, VcenterId};
use crate::identity::{Evidence, Match};
use crate::placement::Placement;
use crate::storage::arena::{NodeId, VmId};
use crate::world::World;

/// How many names a sentence lists before it only counts.
const NAMES_LISTED_MAX: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProblemKind {
    Unmatched,
    Ambiguous,
    Contested,
    Unconfirmed,
}

/// A node whose VM is not certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchProblem {
    pub node: NodeId,
    pub node_name: String,
    pub kind: ProblemKind,
    /// One sentence for users.
    pub explanation: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MatchReport {
    /// Matched nodes, by the evidence that matched them.
    pub matched_by: BTreeMap<Evidence, usize>,
    pub unmatched: usize,
    pub ambiguous: usize,
    pub contested: usize,
    pub unconfirmed: usize,
    /// The nodes that are not matched, by name.
    pub problems: Vec<MatchProblem>,
}

impl MatchReport {
    pub fn matched(&self) -> usize {
        self.matched_by.values().sum()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VcenterSummary {
    pub clusters: usize,
    pub hosts: usize,
    pub vms: usize,
}

/// Counts of known objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub vcenters: BTreeMap<VcenterId, VcenterSummary>,
    pub nodes: usize,
    /// Nodes whose VM is certain.
    pub nodes_matched: usize,
    /// Nodes whose physical host is known.
    pub nodes_placed: usize,
    pub pods: usize,
    pub namespaces: usize,
}

impl World {
    /// Which nodes are matched, and why the others are not.
    pub fn matches(&self) -> MatchReport {
        let mut report = MatchReport::default();
        for node in self.node_ids() {
            let found = self.match_of(node);
            let kind = match &found {
                Match::Matched { by, .. } => {
                    *report.matched_by.entry(*by).or_default() += 1;
                    continue;
                }
                Match::Unmatched => {
                    report.unmatched += 1;
                    ProblemKind::Unmatched
                }
                Match::Ambiguous { .. } => {
                    report.ambiguous += 1;
                    ProblemKind::Ambiguous
                }
                Match::Contested { .. } => {
                    report.contested += 1;
                    ProblemKind::Contested
                }
                Match::Unconfirmed { .. } => {
                    report.unconfirmed += 1;
                    ProblemKind::Unconfirmed
                }
            };
            report.problems.push(MatchProblem {
                node,
                node_name: self.node_name(node).unwrap_or_default().to_owned(),
                kind,
                explanation: self.explain(&found),
            });
        }
        report.problems.sort_by(|a, b| a.node_name.cmp(&b.node_name));
        report
    }

    /// The node's match, as one sentence for users.
    pub fn explain_match(&self, node: NodeId) -> String {
        self.explain(&self.match_of(node))
    }

    fn explain(&self, found: &Match) -> String {
        match found {
            Match::Matched { vm, by } => {
                format!("is the VM {}, recognised by its {}", self.describe_vm(*vm), by.name())
            }
            Match::Unmatched => {
                "no VM has its system UUID, provider ID, IP address or DNS name; its labels are left as they are"
                    .to_owned()
            }
            Match::Ambiguous { by, candidates } => format!(
                "{} VMs have its {}: {}; the VM cannot be determined, and its labels are left as they are",
                candidates.len(),
                by.name(),
                listed(candidates.iter().map(|&vm| self.describe_vm(vm)).collect()),
            ),
            Match::Unconfirmed { vm, by } => format!(
                "the VM {} has its {}, but neither its provider ID nor its addresses and names; its labels are left as \
                 they are",
                self.describe_vm(*vm),
                by.name(),
            ),
            Match::Contested { vm, by, rivals } => {
                let rivals = rivals.iter().map(|&node| self.node_name(node).unwrap_or_default().to_owned()).collect();
                format!(
                    "the VM {} has its {}, but matches as well or better: {}; its labels are left as they are",
                    self.describe_vm(*vm),
                    by.name(),
                    listed(rivals),
                )
            }
        }
    }

    /// Names are not unique in a vCenter, so the text includes the id.
    fn describe_vm(&self, vm: VmId) -> String {
        self.vm(vm).map_or_else(String::new, |(_, facts)| format!("{} ({})", facts.name, facts.id))
    }

    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            nodes: self.node_count(),
            pods: self.pod_count(),
            namespaces: self.namespace_count(),
            ..Summary::default()
        };
        for (source, _) in self.sources() {
            if let Source::Vcenter(vcenter) = source {
                let counts = VcenterSummary {
                    clusters: self.inventory.clusters.count(vcenter),
                    hosts: self.inventory.hosts.count(vcenter),
                    vms: self.inventory.vms.count(vcenter),
                };
                summary.vcenters.insert(vcenter, counts);
            }
        }
        for node in self.node_ids() {
            summary.nodes_matched += usize::from(matches!(self.match_of(node), Match::Matched { .. }));
            summary.nodes_placed += usize::from(matches!(self.placement(node), Placement::On { .. }));
        }
        summary
    }
}

fn listed(mut names: Vec<String>) -> String {
    names.sort();
    let more = names.len().saturating_sub(NAMES_LISTED_MAX);
    names.truncate(NAMES_LISTED_MAX);
    let names = names.join(", ");
    if more == 0 { names } else { format!("{names} and {more} more") }
}
