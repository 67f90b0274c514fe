//! What an administrator should know besides the changes: what could not be done, and why, with the figures.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use model::labels::RULES_KEY;
use model::storage::uid::Uid;
use serde::{Serialize, Serializer};

use crate::input::ClusterKey;

/// A pod by name; cheap to store in large numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RulePod {
    #[serde(serialize_with = "displayed")]
    pub namespace: Arc<str>,
    #[serde(serialize_with = "displayed")]
    pub name: Arc<str>,
    #[serde(serialize_with = "displayed")]
    pub uid: Uid,
}

fn displayed<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

impl fmt::Display for RulePod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The maximum number of listed pods: a rule may be caused by many workloads, and no one reads hundreds of names.
pub(crate) const PODS_NAMED_MAX: usize = 50;

/// At most [`PODS_NAMED_MAX`] of the pods: no namespace is left out because another one has many.
pub(crate) fn pods_named<'p>(pods: impl IntoIterator<Item = &'p RulePod>) -> Vec<RulePod> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let numbered = pods.into_iter().map(|pod| {
        let count = counts.entry(&pod.namespace).or_default();
        *count += 1;
        (*count, pod)
    });
    let mut numbered: Vec<(usize, &RulePod)> = numbered.collect();
    numbered.sort_unstable();
    numbered.into_iter().take(PODS_NAMED_MAX).map(|(_, pod)| pod.clone()).collect()
}

/// Pairs of VMs by name that pods require on different hosts and that no rule separates, for the finding's reason.
pub type VmPairs = Arc<[(String, String)]>;

/// More VMs must run on different hosts than there are hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TooFewHosts {
    pub cluster: ClusterKey,
    /// The number of VMs that must all run on different hosts; `None` if several rules together cannot be satisfied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vms: Option<usize>,
    pub hosts: usize,
    /// Those that these VMs can use now: not in maintenance, and not excluded by mandatory rules.
    pub hosts_able: usize,
    pub reserve: usize,
    /// How many pairs of all affected VMs must run on different hosts: also VMs that need not all do so.
    pub pairs_required: usize,
    /// How many of these pairs no rule separates.
    pub pairs_left: usize,
    pub pairs: VmPairs,
    pub pods: Vec<RulePod>,
}

impl TooFewHosts {
    /// `5 hosts`, or how many of them are usable.
    #[must_use]
    pub fn hosts_text(&self) -> String {
        let Self { hosts, hosts_able, .. } = self;
        if hosts_able < hosts { format!("{hosts_able} usable of {hosts} hosts") } else { format!("{hosts} hosts") }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr, strum::VariantNames)]
#[serde(tag = "finding", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Finding {
    /// The UID of `kube-system` is unknown, so rules could not be distinguished from those of another cluster.
    NoIdentity,
    /// One term requires more VMs on different hosts than there are hosts.
    Unsatisfiable(TooFewHosts),
    /// Rules that can each be satisfied cannot be satisfied together: these pairs are left out.
    JointlyUnsatisfiable(TooFewHosts),
    /// Pods on one VM accept no common host, or no host of the cluster.
    PinnedNowhere { cluster: ClusterKey, vm: String, hosts: usize, pods: Vec<RulePod> },
    /// More VMs are restricted to these hosts, and kept on different ones by rules of others, than there are hosts.
    PinnedTooTight { cluster: ClusterKey, vms: usize, hosts: usize, pods: Vec<RulePod> },
    /// A rule that is not Bridger's keeps VMs on one host that pods require on different hosts.
    Conflict { cluster: ClusterKey, vms: (String, String), rival: String, pods: Vec<RulePod> },
    /// Two pods with anti-affinity are on one VM: no rule can separate them.
    SameVm { vm: String, node: String, pods: (RulePod, RulePod) },
    /// Pods that depend on hosts run on a node whose VM is unknown or in no cluster.
    UnknownVm { node: String, pods: usize },
    /// A VM stays in these rules, because a node may be it and it is uncertain which VM the node is.
    UncertainMember {
        cluster: ClusterKey,
        vm: String,
        #[serde(serialize_with = "displayed")]
        node: Arc<str>,
        rules: usize,
    },
    /// DRS is disabled: rules have no effect.
    DrsOff { cluster: ClusterKey, rules: usize },
    /// DRS only recommends: an administrator must apply its moves.
    DrsNotAutomatic { cluster: ClusterKey, rules: usize },
    /// If one host fails, HA finds no host for a VM of this rule.
    HaMayNotRestart { cluster: ClusterKey, rule: String, members: usize, hosts_able: usize },
    /// Preferred terms cannot be expressed as rules.
    PreferredLeftOut { terms: usize, pods: usize },
    /// An administrator disabled the rule, and it stays disabled.
    DisabledByAdministrator { cluster: ClusterKey, rule: String, pairs: VmPairs },
    /// DRS disabled the rule, because it contradicts this older rule.
    DisabledByConflict { cluster: ClusterKey, rule: String, rival: String, pairs: VmPairs },
    /// The rule was recreated recently, was deleted again, and is left alone for a while.
    DeletedByHand { cluster: ClusterKey, rule: String, pairs: VmPairs },
    /// The rule should change, but a rule that is not Bridger's uses one of its groups.
    GroupInUse { cluster: ClusterKey, rule: String, group: String, used_by: String },
    /// The rule has the prefix of this cluster's rules but is not in the record.
    NotRecorded { cluster: ClusterKey, rule: String },
    /// The rule with that name is not the one that was recorded.
    RecordDisagrees { cluster: ClusterKey, rule: String },
    /// Deleting this many rules at once must be allowed explicitly.
    DeletionsHeld { cluster: ClusterKey, due: usize, owned: usize },
    /// Rules left out because of the limit per cluster.
    RuleLimit { cluster: ClusterKey, left_out: usize, limit: usize, pairs: VmPairs, pods: Vec<RulePod> },
    /// Rules left out because of the limit per namespace.
    NamespaceRuleLimit {
        cluster: ClusterKey,
        #[serde(serialize_with = "displayed")]
        namespace: Arc<str>,
        left_out: usize,
        limit: usize,
        pairs: VmPairs,
        pods: Vec<RulePod>,
    },
    /// Pods have more required terms than become rules: these many in total are left out.
    TermLimit { cluster: ClusterKey, terms: usize, limit: usize, pods: Vec<RulePod> },
    /// Cross-namespace affinity terms that count only within the namespace of their pods, because it has no label.
    ConfinedToNamespace { cluster: ClusterKey, terms: usize, pods: Vec<RulePod> },
    /// Required affinity that cannot be satisfied without violating anti-affinity.
    AffinityUnmet { cluster: ClusterKey, vm: String, pod: RulePod },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoIdentity => f.write_str("the namespace kube-system is not known, so rules cannot be named"),
            Self::Unsatisfiable(few @ TooFewHosts { vms, reserve, pairs_left, .. }) => write!(
                f,
                "{} VMs want to be apart, {}, reserve {reserve}: {pairs_left} pairs are not kept apart",
                vms.unwrap_or_default(),
                few.hosts_text()
            ),
            Self::JointlyUnsatisfiable(few @ TooFewHosts { reserve, pairs_left, .. }) => write!(
                f,
                "{pairs_left} pairs are not kept apart: with all other rules more VMs than fit would be apart, {}, reserve {reserve}",
                few.hosts_text()
            ),
            Self::PinnedNowhere { vm, hosts, pods, .. } => {
                write!(f, "the {} pods on {vm} that accept certain hosts only leave it none of {hosts}", pods.len())
            }
            Self::PinnedTooTight { vms, hosts, .. } => {
                write!(f, "{vms} VMs accept only {hosts} hosts, and rules of others keep more of them apart")
            }
            Self::Conflict { vms: (a, b), rival, .. } => {
                write!(f, "{a} and {b} are wanted apart, and the rule {rival:?} keeps them together")
            }
            Self::SameVm { vm, node, pods: (a, b) } => {
                write!(f, "{a} and {b} want to be apart and are on one VM, {vm} (node {node})")
            }
            Self::UnknownVm { node, pods } => {
                write!(f, "{pods} pods to which the host matters are on {node}, whose VM or cluster is not known")
            }
            Self::UncertainMember { vm, node, rules, .. } => {
                write!(f, "{vm} stays in {rules} rules, because {node} may be this VM, and which VM it is is uncertain")
            }
            Self::DrsOff { rules, .. } => write!(f, "DRS is off: {rules} rules protect nothing"),
            Self::DrsNotAutomatic { rules, .. } => {
                write!(f, "DRS is not fully automated: somebody must apply the moves for {rules} rules")
            }
            Self::HaMayNotRestart { rule, members, hosts_able, .. } => write!(
                f,
                "{rule} has {members} members on {hosts_able} hosts able to run VMs: if one fails, HA may not restart its VM"
            ),
            Self::PreferredLeftOut { terms, pods } => {
                write!(f, "{terms} preferred terms of {pods} pods have no form in rules and are left out")
            }
            Self::DisabledByAdministrator { rule, .. } => write!(f, "{rule} was disabled, and stays so"),
            Self::DisabledByConflict { rule, rival, .. } => {
                write!(f, "{rule} is disabled, because {rival:?} says the opposite")
            }
            Self::DeletedByHand { rule, .. } => write!(f, "{rule} was deleted twice, and is left alone"),
            Self::GroupInUse { rule, group, used_by, .. } => {
                write!(f, "{rule} is left as it is, because {used_by:?} rests on its group {group}")
            }
            Self::NotRecorded { rule, .. } => write!(f, "{rule} has this cluster's prefix but is not in the record"),
            Self::RecordDisagrees { rule, .. } => write!(f, "{rule} is not the rule that was recorded under this name"),
            Self::DeletionsHeld { due, owned, .. } => {
                write!(f, "{due} of {owned} rules would be deleted at once, which needs to be allowed")
            }
            Self::RuleLimit { left_out, limit, .. } => {
                write!(f, "{left_out} rules are left out: the limit is {limit} per cluster")
            }
            Self::NamespaceRuleLimit { namespace, left_out, limit, .. } => write!(
                f,
                "{left_out} rules for pods of the namespace {namespace} are left out: the limit is {limit} per namespace and cluster"
            ),
            Self::TermLimit { terms, limit, .. } => {
                write!(f, "{terms} required terms are left out: the limit is {limit} per pod")
            }
            Self::ConfinedToNamespace { terms, .. } => write!(
                f,
                "{terms} cross-namespace affinity terms count only within the namespace of their pods, which has no label {RULES_KEY}"
            ),
            Self::AffinityUnmet { vm, pod, .. } => {
                write!(f, "{pod} on {vm} wants company that anti-affinity or a rule forbids")
            }
        }
    }
}

impl Finding {
    /// All values of [`Finding::name`].
    pub const NAMES: &[&str] = <Self as strum::VariantNames>::VARIANTS;

    /// The name in metrics and JSON. Never changes.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// The pairs of VMs that no rule separates because of this finding.
    pub fn pairs(&self) -> &[(String, String)] {
        match self {
            Self::Unsatisfiable(TooFewHosts { pairs, .. })
            | Self::JointlyUnsatisfiable(TooFewHosts { pairs, .. })
            | Self::DisabledByAdministrator { pairs, .. }
            | Self::DisabledByConflict { pairs, .. }
            | Self::DeletedByHand { pairs, .. }
            | Self::RuleLimit { pairs, .. }
            | Self::NamespaceRuleLimit { pairs, .. } => pairs,
            Self::Conflict { vms, .. } => std::slice::from_ref(vms),
            _ => &[],
        }
    }

    /// Where to put the pairs that no rule separates because this rule is left alone.
    pub(crate) fn pairs_of(&mut self, of_rule: &str) -> Option<&mut VmPairs> {
        match self {
            Self::DisabledByAdministrator { rule, pairs, .. }
            | Self::DisabledByConflict { rule, pairs, .. }
            | Self::DeletedByHand { rule, pairs, .. } => (rule == of_rule).then_some(pairs),
            _ => None,
        }
    }

    /// The affected pods, if the finding lists them.
    pub fn pods(&self) -> Vec<&RulePod> {
        match self {
            Self::Unsatisfiable(TooFewHosts { pods, .. })
            | Self::JointlyUnsatisfiable(TooFewHosts { pods, .. })
            | Self::PinnedNowhere { pods, .. }
            | Self::PinnedTooTight { pods, .. }
            | Self::Conflict { pods, .. }
            | Self::RuleLimit { pods, .. }
            | Self::NamespaceRuleLimit { pods, .. }
            | Self::TermLimit { pods, .. }
            | Self::ConfinedToNamespace { pods, .. } => pods.iter().collect(),
            Self::SameVm { pods: (a, b), .. } => vec![a, b],
            Self::AffinityUnmet { pod, .. } => vec![pod],
            _ => Vec::new(),
        }
    }
}
