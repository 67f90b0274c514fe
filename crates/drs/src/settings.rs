//! What can be chosen about rules.

use std::collections::BTreeSet;
use std::time::Duration;

use model::labels::HOST_KEY_DEFAULT;

/// The label of a node's own name, lifted to hosts by default.
pub const HOSTNAME_KEY: &str = "kubernetes.io/hostname";

/// What becomes of pods that accept certain physical hosts only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pinning {
    Off,
    /// DRS prefers these hosts, and leaves them where it must.
    #[default]
    Should,
    /// DRS and HA never leave these hosts, not even for maintenance or after a failure.
    Must,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DrsSettings {
    /// The node label with the physical host.
    pub host_key: String,
    /// Topology keys whose anti-affinity holds between hosts too.
    pub lifted_keys: BTreeSet<String>,
    /// How many hosts of a cluster a new rule leaves free, for maintenance and failures.
    pub reserve_hosts: usize,
    /// How long a rule, or a member of it, stays after nothing wants it any more.
    pub removal_grace: Duration,
    /// How long more members than hosts must last before a rule shrinks.
    pub shrink_hold: Duration,
    /// How long it is remembered that a rule was deleted by hand and made again: deleted once more before that is over, it is left so until
    /// then.
    pub restore_memory: Duration,
    /// How many rules may be deleted in one pass.
    pub deletions_max: usize,
    /// Deleting more than this share of its rules at once needs `allow_mass_deletion`.
    pub deletion_share_max: f64,
    pub allow_mass_deletion: bool,
    /// How many rules Bridger may have in one cluster.
    pub rules_max: usize,
    pub pinning: Pinning,
    /// The names of the clusters to plan for; `None` means every one that holds a node.
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
            pinning: Pinning::default(),
            clusters: None,
        }
    }
}

/// So few rules may always be deleted at once: a share of them says little.
pub(crate) const DELETIONS_UNQUESTIONED: usize = 5;
/// A workload in the middle of a rollout keeps its rules this many times longer.
pub(crate) const ROLLOUT_GRACE_FACTOR: u32 = 4;
