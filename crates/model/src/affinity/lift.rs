//! Lifting: an anti-affinity term between nodes, taken to hold between the physical hosts they run on.
//!
//! In: settings, and how a caller wants terms read. Out: which terms are lifted. Only anti-affinity is, required and
//! preferred, and only of pods that did not opt out; the meaning of affinity (a socket on the same node) would break.

use std::collections::BTreeSet;

use super::Role;
use crate::labels::HOST_KEY_DEFAULT;

/// The label of a node's own name, lifted unless configured otherwise.
pub const HOSTNAME_KEY: &str = "kubernetes.io/hostname";

/// For people: relaxed terms have yielded for a pod.
pub const TOO_FEW_HOSTS: &str = "no physical host is free: anti-affinity holds between nodes only";

/// What happens where there are too few hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiftMode {
    /// The pod waits.
    #[default]
    Strict,
    /// The terms hold between nodes then, as they are written.
    Relaxed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiftSettings {
    /// The label with the physical host: what is known of hosts where vSphere does not tell.
    pub host_key: String,
    /// The topology keys that are lifted.
    pub lifted_keys: BTreeSet<String>,
    pub mode: LiftMode,
}

impl Default for LiftSettings {
    fn default() -> Self {
        Self {
            host_key: HOST_KEY_DEFAULT.to_owned(),
            lifted_keys: BTreeSet::from([HOSTNAME_KEY.to_owned()]),
            mode: LiftMode::Strict,
        }
    }
}

/// How terms are read. Where no node's host is known nothing is lifted, and each reading follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Every term as it is written: what kube-scheduler's InterPodAffinity says.
    AsWritten,
    /// Every term once: the lifted ones between hosts, the others as written.
    Lifting,
    /// The lifted terms alone, between hosts.
    LiftedOnly,
}

/// Under what a term of a pod is looked at, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Written,
    Host,
}

impl Reading {
    /// `is_lifted`: the term's key, its role and the pod that has it say so.
    pub(crate) fn level(self, is_lifted: bool) -> Option<Level> {
        match (self, is_lifted) {
            (Self::AsWritten, _) | (Self::Lifting, false) => Some(Level::Written),
            (Self::Lifting | Self::LiftedOnly, true) => Some(Level::Host),
            (Self::LiftedOnly, false) => None,
        }
    }
}

impl Role {
    /// Whether terms in this role are lifted, where their key is.
    pub(crate) fn is_anti_affinity(self) -> bool {
        matches!(self, Self::AntiAffinity | Self::PreferredAntiAffinity(_))
    }
}
