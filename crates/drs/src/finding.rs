//! What people should know beside the actions: what could not be done, and why, with the figures.

use std::fmt;
use std::sync::Arc;

use model::storage::uid::Uid;
use serde::{Serialize, Serializer};

use crate::input::ClusterKey;

/// A pod by name; cheap to have many of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct PodRef {
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

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Pairs of VMs by name that pods require apart and that no rule keeps apart, for the reason the finding gives.
pub type VmPairs = Arc<[(String, String)]>;

/// More VMs are to be apart than there are hosts for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TooFewHosts {
    pub cluster: ClusterKey,
    /// VMs that all want to be apart from each other; `None` where several rules together are too much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vms: Option<usize>,
    pub hosts: usize,
    pub reserve: usize,
    pub pairs_left: usize,
    pub pairs: VmPairs,
    pub pods: Vec<PodRef>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr, strum::VariantNames)]
#[serde(tag = "finding", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Finding {
    /// The UID of `kube-system` is not known, so no rule could be told from another cluster's.
    NoIdentity,
    /// One term, too many VMs.
    Unsatisfiable(TooFewHosts),
    /// Rules that are each fine leave DRS no way together: these pairs are left out.
    JointlyUnsatisfiable(TooFewHosts),
    /// Pods on one VM accept no common host, or none of the cluster.
    PinnedNowhere { cluster: ClusterKey, vm: String, hosts: usize, pods: Vec<PodRef> },
    /// More VMs are bound to these hosts, and to be apart, than there are of them.
    PinnedTooTight { cluster: ClusterKey, vms: usize, hosts: usize, pods: Vec<PodRef> },
    /// A rule that is not Bridger's keeps together what pods want apart.
    Conflict { cluster: ClusterKey, vms: (String, String), rival: String, pods: Vec<PodRef> },
    /// Two pods that want to be apart are on one VM: no rule can part them.
    SameVm { vm: String, node: String, pods: (PodRef, PodRef) },
    /// Pods with such terms run on a node whose VM is not known, or is in no cluster.
    UnknownVm { node: String, pods: usize },
    /// Rules protect nothing here.
    DrsOff { cluster: ClusterKey, rules: usize },
    /// DRS only recommends: a person must apply its moves.
    DrsNotAutomatic { cluster: ClusterKey, rules: usize },
    /// With one host down, HA would find no host for a VM of this rule.
    HaMayNotRestart { cluster: ClusterKey, rule: String, members: usize, hosts_able: usize },
    /// Preferred terms have no form in rules.
    PreferredLeftOut { terms: usize, pods: usize },
    /// Somebody disabled it, and it stays so.
    DisabledByAdministrator { cluster: ClusterKey, rule: String, pairs: VmPairs },
    /// DRS turned it off, because it contradicts this older rule.
    DisabledByConflict { cluster: ClusterKey, rule: String, rival: String, pairs: VmPairs },
    /// Came back not long ago, was deleted again, and is left alone for a while.
    DeletedByHand { cluster: ClusterKey, rule: String, pairs: VmPairs },
    /// It should change, but somebody's rule rests on one of its groups.
    GroupInUse { cluster: ClusterKey, rule: String, group: String, used_by: String },
    /// Has the name of one of this cluster's rules, but the record does not say so.
    NotRecorded { cluster: ClusterKey, rule: String },
    /// The rule of that name is not the one that was recorded.
    RecordDisagrees { cluster: ClusterKey, rule: String },
    /// So many rules at once are not deleted without being told to.
    DeletionsHeld { cluster: ClusterKey, due: usize, owned: usize },
    /// Rules left out because of the limit per cluster.
    RuleLimit { cluster: ClusterKey, left_out: usize, limit: usize, pairs: VmPairs },
    /// Affinity that no pod can satisfy without breaking anti-affinity.
    AffinityUnmet { cluster: ClusterKey, vm: String, pod: PodRef },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoIdentity => f.write_str("the namespace kube-system is not known, so rules can not be named"),
            Self::Unsatisfiable(TooFewHosts { vms, hosts, reserve, pairs_left, .. }) => write!(
                f,
                "{} VMs want to be apart, {hosts} hosts, reserve {reserve}: {pairs_left} pairs are not kept apart",
                vms.unwrap_or_default()
            ),
            Self::JointlyUnsatisfiable(TooFewHosts { hosts, reserve, pairs_left, .. }) => write!(
                f,
                "{pairs_left} pairs are not kept apart: with all other rules more VMs than fit would be apart, {hosts} hosts, reserve {reserve}"
            ),
            Self::PinnedNowhere { vm, hosts, pods, .. } => {
                write!(f, "the {} pods on {vm} that accept certain hosts only leave it none of {hosts}", pods.len())
            }
            Self::PinnedTooTight { vms, hosts, .. } => {
                write!(f, "{vms} VMs accept only {hosts} hosts, and more of them want to be apart")
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
            Self::AffinityUnmet { vm, pod, .. } => {
                write!(f, "{pod} on {vm} wants company that anti-affinity or a rule forbids")
            }
        }
    }
}

impl Finding {
    /// What [`Finding::name`] may say.
    pub const NAMES: &[&str] = <Self as strum::VariantNames>::VARIANTS;

    /// For machines: metrics, JSON. Never changes.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// The pairs that are not kept apart because of this.
    pub fn pairs(&self) -> &[(String, String)] {
        match self {
            Self::Unsatisfiable(TooFewHosts { pairs, .. })
            | Self::JointlyUnsatisfiable(TooFewHosts { pairs, .. })
            | Self::DisabledByAdministrator { pairs, .. }
            | Self::DisabledByConflict { pairs, .. }
            | Self::DeletedByHand { pairs, .. }
            | Self::RuleLimit { pairs, .. } => pairs,
            Self::Conflict { vms, .. } => std::slice::from_ref(vms),
            _ => &[],
        }
    }

    /// Where to put the pairs that are not kept apart because this rule is left alone; without one, because there are too many rules.
    pub(crate) fn pairs_of(&mut self, of_rule: Option<&str>) -> Option<&mut VmPairs> {
        match self {
            Self::RuleLimit { pairs, .. } => of_rule.is_none().then_some(pairs),
            Self::DisabledByAdministrator { rule, pairs, .. }
            | Self::DisabledByConflict { rule, pairs, .. }
            | Self::DeletedByHand { rule, pairs, .. } => (Some(rule.as_str()) == of_rule).then_some(pairs),
            _ => None,
        }
    }

    /// The pods it concerns, as far as they are named.
    pub fn pods(&self) -> Vec<&PodRef> {
        match self {
            Self::Unsatisfiable(TooFewHosts { pods, .. })
            | Self::JointlyUnsatisfiable(TooFewHosts { pods, .. })
            | Self::PinnedNowhere { pods, .. }
            | Self::PinnedTooTight { pods, .. }
            | Self::Conflict { pods, .. } => pods.iter().collect(),
            Self::SameVm { pods: (a, b), .. } => vec![a, b],
            Self::AffinityUnmet { pod, .. } => vec![pod],
            _ => Vec::new(),
        }
    }
}
