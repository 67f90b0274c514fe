//! What people should know beside the actions: what could not be done, and why, with the figures.

use std::fmt;
use std::sync::Arc;

use model::uid::Uid;
use serde::{Serialize, Serializer};

use crate::record::ClusterName;

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

/// A cluster for machines to read.
pub(crate) fn named_cluster<S: Serializer>(name: &ClusterName, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named<'a> {
        vcenter: u16,
        id: &'a str,
    }
    Named { vcenter: name.0.0, id: &name.1 }.serialize(serializer)
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Finding {
    /// The UID of `kube-system` is not known, so no rule could be told from another cluster's.
    NoIdentity,
    /// More VMs want to be apart than there are hosts for.
    Unsatisfiable {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        /// VMs that all want to be apart from each other.
        vms: usize,
        hosts: usize,
        reserve: usize,
        /// Pairs that no rule keeps apart.
        pairs_left: usize,
        pods: Vec<PodRef>,
    },
    /// Rules that are each fine leave DRS no way together: these pairs are left out.
    JointlyUnsatisfiable {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        hosts: usize,
        reserve: usize,
        pairs_left: usize,
        pods: Vec<PodRef>,
    },
    /// Pods on one VM accept no common host, or none of the cluster.
    PinnedNowhere {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        vm: String,
        hosts: usize,
        pods: Vec<PodRef>,
    },
    /// More VMs are bound to these hosts, and to be apart, than there are of them.
    PinnedTooTight {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        vms: usize,
        hosts: usize,
        pods: Vec<PodRef>,
    },
    /// A rule that is not Bridger's keeps together what pods want apart.
    Conflict {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        vms: (String, String),
        rival: String,
        pods: Vec<PodRef>,
    },
    /// Two pods that want to be apart are on one VM: no rule can part them.
    SameVm { vm: String, node: String, pods: (PodRef, PodRef) },
    /// Pods with such terms run on a node whose VM is not known, or is in no cluster.
    UnknownVm { node: String, pods: usize },
    /// Rules protect nothing here.
    DrsOff {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        rules: usize,
    },
    /// DRS only recommends: a person must apply its moves.
    DrsNotAutomatic {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        rules: usize,
    },
    /// With one host down, HA would find no host for a VM of this rule.
    HaMayNotRestart {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        rule: String,
        members: usize,
        hosts_able: usize,
    },
    /// Preferred terms have no form in rules.
    PreferredLeftOut { terms: usize, pods: usize },
    DisabledByAdministrator {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        rule: String,
    },
    /// DRS turned it off, because it contradicts this older rule.
    DisabledByConflict {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        rule: String,
        rival: String,
    },
    /// Came back once, was deleted again, and is left alone.
    DeletedByHand {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        rule: String,
    },
    /// Has the name of one of this cluster's rules, but the record does not say so.
    NotRecorded {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        rule: String,
    },
    /// The rule of that name is not the one that was recorded.
    RecordDisagrees {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        rule: String,
    },
    /// So many rules at once are not deleted without being told to.
    DeletionsHeld {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        due: usize,
        owned: usize,
    },
    /// Rules left out because of the limit per cluster.
    RuleLimit {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        left_out: usize,
        limit: usize,
    },
    /// Affinity that no pod can satisfy without breaking anti-affinity.
    AffinityUnmet {
        #[serde(serialize_with = "named_cluster")]
        cluster: ClusterName,
        vm: String,
        pod: PodRef,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoIdentity => f.write_str("the namespace kube-system is not known, so rules can not be named"),
            Self::Unsatisfiable { vms, hosts, reserve, pairs_left, .. } => write!(
                f,
                "{vms} VMs want to be apart, {hosts} hosts, reserve {reserve}: {pairs_left} pairs are not kept apart"
            ),
            Self::JointlyUnsatisfiable { hosts, reserve, pairs_left, .. } => write!(
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
    /// For machines: metrics, JSON. Never changes.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoIdentity => "noIdentity",
            Self::Unsatisfiable { .. } => "unsatisfiable",
            Self::JointlyUnsatisfiable { .. } => "jointlyUnsatisfiable",
            Self::PinnedNowhere { .. } => "pinnedNowhere",
            Self::PinnedTooTight { .. } => "pinnedTooTight",
            Self::Conflict { .. } => "conflict",
            Self::SameVm { .. } => "sameVm",
            Self::UnknownVm { .. } => "unknownVm",
            Self::DrsOff { .. } => "drsOff",
            Self::DrsNotAutomatic { .. } => "drsNotAutomatic",
            Self::HaMayNotRestart { .. } => "haMayNotRestart",
            Self::PreferredLeftOut { .. } => "preferredLeftOut",
            Self::DisabledByAdministrator { .. } => "disabledByAdministrator",
            Self::DisabledByConflict { .. } => "disabledByConflict",
            Self::DeletedByHand { .. } => "deletedByHand",
            Self::NotRecorded { .. } => "notRecorded",
            Self::RecordDisagrees { .. } => "recordDisagrees",
            Self::DeletionsHeld { .. } => "deletionsHeld",
            Self::RuleLimit { .. } => "ruleLimit",
            Self::AffinityUnmet { .. } => "affinityUnmet",
        }
    }

    /// The pods it concerns, as far as they are named.
    pub fn pods(&self) -> Vec<&PodRef> {
        match self {
            Self::Unsatisfiable { pods, .. }
            | Self::JointlyUnsatisfiable { pods, .. }
            | Self::PinnedNowhere { pods, .. }
            | Self::PinnedTooTight { pods, .. }
            | Self::Conflict { pods, .. } => pods.iter().collect(),
            Self::SameVm { pods: (a, b), .. } => vec![a, b],
            Self::AffinityUnmet { pod, .. } => vec![pod],
            _ => Vec::new(),
        }
    }

    /// The same for somebody who looks at one of its pods; `None` where no pod is concerned.
    pub fn notice(&self) -> Option<String> {
        Some(match self {
            Self::Unsatisfiable { vms, hosts, reserve, .. } => {
                format!("{vms} replicas want different hosts: {hosts} usable hosts, reserve {reserve}")
            }
            Self::JointlyUnsatisfiable { hosts, reserve, pairs_left, .. } => format!(
                "{pairs_left} pairs of replicas cannot be kept on different hosts beside the rules of other workloads: \
                 {hosts} usable hosts, reserve {reserve}"
            ),
            Self::PinnedNowhere { vm, hosts, pods, .. } => {
                format!("the {} pods on VM {vm} accept no host in common: {hosts} hosts in the cluster", pods.len())
            }
            Self::PinnedTooTight { vms, hosts, .. } => {
                format!("{vms} VMs are bound to {hosts} hosts, and more of them than that want different hosts")
            }
            Self::Conflict { vms: (a, b), rival, .. } => {
                format!("wants VMs {a} and {b} on different hosts, but the DRS rule {rival:?} keeps them together")
            }
            Self::SameVm { node, pods: (a, b), .. } => {
                format!("{a} and {b} want different hosts and both run on node {node}: no DRS rule can part them")
            }
            Self::AffinityUnmet { vm, .. } => {
                format!("wants company on its host that anti-affinity or a DRS rule keeps away from VM {vm}")
            }
            _ => return None,
        })
    }
}
