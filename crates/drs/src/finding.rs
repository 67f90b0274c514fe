//! What people should know beside the actions: what could not be done, and why, with the figures.

use std::fmt;
use std::sync::Arc;

use model::uid::Uid;

use crate::record::ClusterName;

/// A pod by name; cheap to have many of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uid,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The UID of `kube-system` is not known, so no rule could be told from another cluster's.
    NoIdentity,
    /// More VMs want to be apart than there are hosts for.
    Unsatisfiable {
        cluster: ClusterName,
        /// VMs that all want to be apart from each other.
        vms: usize,
        hosts: usize,
        reserve: usize,
        /// Pairs that no rule keeps apart.
        pairs_left: usize,
        pods: Vec<PodRef>,
    },
    /// A rule that is not Bridger's keeps together what pods want apart.
    Conflict {
        cluster: ClusterName,
        vms: (String, String),
        rival: String,
        pods: Vec<PodRef>,
    },
    /// Two pods that want to be apart are on one VM: no rule can part them.
    SameVm {
        vm: String,
        node: String,
        pods: (PodRef, PodRef),
    },
    /// Pods with such terms run on a node whose VM is not known, or is in no cluster.
    UnknownVm {
        node: String,
        pods: usize,
    },
    /// Rules protect nothing here.
    DrsOff {
        cluster: ClusterName,
        rules: usize,
    },
    /// DRS only recommends: a person must apply its moves.
    DrsNotAutomatic {
        cluster: ClusterName,
        rules: usize,
    },
    /// With one host down, HA would find no host for a VM of this rule.
    HaMayNotRestart {
        cluster: ClusterName,
        rule: String,
        members: usize,
        hosts_able: usize,
    },
    /// Preferred terms have no form in rules.
    PreferredLeftOut {
        terms: usize,
        pods: usize,
    },
    DisabledByAdministrator {
        cluster: ClusterName,
        rule: String,
    },
    /// DRS turned it off, because it contradicts this older rule.
    DisabledByConflict {
        cluster: ClusterName,
        rule: String,
        rival: String,
    },
    /// Came back once, was deleted again, and is left alone.
    DeletedByHand {
        cluster: ClusterName,
        rule: String,
    },
    /// Has the name of one of this cluster's rules, but the record does not say so.
    NotRecorded {
        cluster: ClusterName,
        rule: String,
    },
    /// The rule of that name is not the one that was recorded.
    RecordDisagrees {
        cluster: ClusterName,
        rule: String,
    },
    /// So many rules at once are not deleted without being told to.
    DeletionsHeld {
        cluster: ClusterName,
        due: usize,
        owned: usize,
    },
    /// Rules left out because of the limit per cluster.
    RuleLimit {
        cluster: ClusterName,
        left_out: usize,
        limit: usize,
    },
    /// Affinity that no pod can satisfy without breaking anti-affinity.
    AffinityUnmet {
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
            Self::Conflict { vms: (a, b), rival, .. } => {
                write!(f, "{a} and {b} are wanted apart, and the rule {rival:?} keeps them together")
            }
            Self::SameVm { vm, node, pods: (a, b) } => {
                write!(f, "{a} and {b} want to be apart and are on one VM, {vm} (node {node})")
            }
            Self::UnknownVm { node, pods } => {
                write!(
                    f,
                    "{pods} pods that want to be apart or together are on {node}, whose VM or cluster is not known"
                )
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
