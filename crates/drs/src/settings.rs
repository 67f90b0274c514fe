//! Settings for rules.

use std::collections::BTreeSet;
use std::time::Duration;

use model::labels::HOST_KEY_DEFAULT;

/// The label with the node's own name; lifted to hosts by default.
pub const HOSTNAME_KEY: &str = "kubernetes.io/hostname";

/// Which VM-Host rules are made for pods with node affinity to physical hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    Off,
    /// DRS prefers these hosts, but uses others if necessary.
    #[default]
    Should,
    /// DRS and HA never use other hosts, not even for maintenance or after a failure.
    Must,
}

/// Which pods' terms become rules with pods of other namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AcrossNamespaces {
    #[default]
    All,
    /// Those in namespaces with the label `bridger.dev/rules: cluster`.
    Labelled,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DrsSettings {
    /// The node label with the physical host: that of the world's `LiftSettings`.
    pub host_key: String,
    /// Topology keys whose anti-affinity applies between hosts too; all of them lifted in the world as well.
    pub lifted_keys: BTreeSet<String>,
    /// The number of hosts that a new rule leaves free for maintenance and failures.
    pub reserve_hosts: usize,
    /// How long a rule, or a member of it, stays after no pod requires it.
    pub removal_grace: Duration,
    /// How long a rule must have more members than hosts before it shrinks.
    pub shrink_hold: Duration,
    /// How long Bridger remembers that it recreated a rule that was deleted by hand: if the rule is deleted again
    /// within this time, it stays deleted until the time is over.
    pub restore_memory: Duration,
    /// The maximum number of rules deleted in one pass.
    pub deletions_max: usize,
    /// Deleting more than this share of the owned rules at once needs `allow_mass_deletion`.
    pub deletion_share_max: f64,
    pub allow_mass_deletion: bool,
    /// The maximum number of rules Bridger may have in one cluster.
    pub rules_max: usize,
    /// The maximum number of rules in one cluster that pods of one namespace may cause.
    pub rules_per_namespace_max: usize,
    pub across_namespaces: AcrossNamespaces,
    /// With `Must`, only for pods in namespaces with the label `bridger.dev/rules: cluster`; `Should` for others.
    pub pinning: Pinning,
    /// The names of the clusters to plan for; `None` means every cluster with a node.
    pub clusters: Option<BTreeSet<String>>,
}

impl Default for DrsSettings {
    fn default() -> Self {
        Self {
            host_key: HOST_KEY_DEFAULT.to_owned(),
            lifted_keys: BTreeSet::from([HOSTNAME_KEY.to_owned()]),
            reserve_hosts: 1,
            removal_grace: Duration::from_secs(300),
            shrink_hold: Duration::from_secs(900),
            restore_memory: Duration::from_secs(24 * 3600),
            deletions_max: 20,
            deletion_share_max: 0.5,
            allow_mass_deletion: false,
            rules_max: 1_000,
            rules_per_namespace_max: 100,
            across_namespaces: AcrossNamespaces::default(),
            pinning: Pinning::default(),
            clusters: None,
        }
    }
}

/// This many rules may always be deleted at once, because a share of few rules is not meaningful.
pub(crate) const DELETIONS_UNQUESTIONED: usize = 5;
/// The maximum number of required terms of a pod that become rules, for affinity and anti-affinity each.
pub(crate) const TERMS_PER_POD_MAX: usize = 32;
/// During a rollout, a workload keeps its rules this many times longer.
pub(crate) const ROLLOUT_GRACE_FACTOR: u32 = 4;
