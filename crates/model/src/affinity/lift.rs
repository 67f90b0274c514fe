//! Lifting: an anti-affinity term between nodes also applies between the physical hosts they run on.
//!
//! In: settings, and how the caller reads terms. Out: which terms are lifted. Only anti-affinity is lifted, required
//! and preferred, and only for pods that did not opt out; lifting affinity would break its meaning (a socket on the
//! same node).

use std::collections::BTreeSet;

use super::Role;
use crate::labels::HOST_KEY_DEFAULT;

/// The label with the node's own name; lifted by default.
pub const HOSTNAME_KEY: &str = "kubernetes.io/hostname";

/// Shown to users when relaxed mode does not lift the terms for a pod.
pub const TOO_FEW_HOSTS: &str = "no physical host is free: anti-affinity holds between nodes only";

/// What happens if there are too few hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiftMode {
    /// The pod stays pending.
    #[default]
    Strict,
    /// The terms apply between nodes, as written.
    Relaxed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiftSettings {
    /// The label with the physical host; used for nodes whose host vSphere does not report.
    pub host_key: String,
    /// The topology keys that are lifted.
    pub lifted_keys: BTreeSet<String>,
    pub mode: LiftMode,
    /// Whether preemption may evict pods on other nodes of a physical host that lifted terms keep off it.
    pub host_preemption: bool,
}

impl Default for LiftSettings {
    fn default() -> Self {
        Self {
            host_key: HOST_KEY_DEFAULT.to_owned(),
            lifted_keys: BTreeSet::from([HOSTNAME_KEY.to_owned()]),
            mode: LiftMode::Strict,
            host_preemption: false,
        }
    }
}

/// How terms are read. While no node's host is known, no term is lifted in any reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Every term as written, as in kube-scheduler's InterPodAffinity.
    AsWritten,
    /// Every term once: lifted terms between hosts, the others as written.
    Lifting,
    /// Lifted terms only, between hosts.
    LiftedOnly,
}

/// The topology level at which a term is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Written,
    Host,
}

impl Reading {
    /// `is_lifted` depends on the term's key, its role and the pod that carries it.
    pub(crate) fn level(self, is_lifted: bool) -> Option<Level> {
        match (self, is_lifted) {
            (Self::AsWritten, _) | (Self::Lifting, false) => Some(Level::Written),
            (Self::Lifting | Self::LiftedOnly, true) => Some(Level::Host),
            (Self::LiftedOnly, false) => None,
        }
    }
}

impl Role {
    /// Whether terms in this role are lifted if their key is.
    pub(crate) fn is_anti_affinity(self) -> bool {
        matches!(self, Self::AntiAffinity | Self::PreferredAntiAffinity(_))
    }
}
