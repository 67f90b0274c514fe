//! What Bridger owns: the rules it made, and what it is waiting for before it changes them.
//!
//! The record lives outside the cluster that it speaks of. A name is recorded before the rule is created (an intent), its
//! UUID after. Invariant: a rule is Bridger's only where name and record agree.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::event::VcenterId;
use serde::Serialize;

pub use crate::record_text::{RecordError, from_text, to_text};

/// Milliseconds since 1970: moments that outlive a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// Whether this much has passed since then.
    pub(crate) fn is_past(self, since: Self, wait: Duration) -> bool {
        u128::from(self.0.saturating_sub(since.0)) >= wait.as_millis()
    }

    /// This much later.
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RuleSort {
    /// VMs that never share a host.
    Apart,
    /// VMs that always share one.
    Together,
    /// VMs that run on certain hosts.
    OnHosts,
}

/// A cluster: its vCenter and the id within that.
pub type ClusterName = (VcenterId, String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRule {
    pub sort: RuleSort,
    /// What the rule is for: a digest of the term. Keeps the rule's identity while its members change.
    pub source: String,
    /// As the vCenter gave it; `None` while only the intent is recorded.
    pub uuid: Option<String>,
    /// Nothing wants the rule, or some of its members, any more.
    pub unwanted: Option<Unwanted>,
    /// It has more members than there are hosts able to run them, since then.
    pub outnumbered_since: Option<UnixMillis>,
    /// Somebody deleted it once, and it came back.
    pub restored: bool,
    /// The groups that were made for it, of a rule that binds VMs to hosts.
    pub groups: Option<OwnedGroups>,
}

/// The names of the two groups that belong to a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedGroups {
    pub vms: String,
    pub hosts: String,
}

impl OwnedGroups {
    pub(crate) fn of_rule(name: &str) -> Self {
        Self { vms: format!("{name}-vms"), hosts: format!("{name}-hosts") }
    }
}

/// What nothing wants any more, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwanted {
    pub since: UnixMillis,
    /// The ids of the members; all of them when the whole rule is meant.
    pub vms: Vec<String>,
}

impl OwnedRule {
    pub fn intent(sort: RuleSort, source: String) -> Self {
        Self { sort, source, uuid: None, unwanted: None, outnumbered_since: None, restored: false, groups: None }
    }
}

/// The rules of one cluster by name.
pub type Rules = BTreeMap<String, Arc<OwnedRule>>;

/// Rules by cluster and name; cheap to copy, because what does not change is shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owned {
    pub clusters: BTreeMap<ClusterName, Arc<Rules>>,
}

impl Owned {
    pub fn rule(&self, cluster: &ClusterName, name: &str) -> Option<&OwnedRule> {
        self.clusters.get(cluster)?.get(name).map(|rule| &**rule)
    }

    /// The rule was read back after its creation.
    pub fn created(&mut self, cluster: &ClusterName, name: &str, uuid: String) {
        if let Some(rule) = self.clusters.get_mut(cluster).and_then(|rules| Arc::make_mut(rules).get_mut(name)) {
            Arc::make_mut(rule).uuid = Some(uuid);
        }
    }

    /// The rule was deleted, and is seen to be gone.
    pub fn deleted(&mut self, cluster: &ClusterName, name: &str) {
        if let Some(rules) = self.clusters.get_mut(cluster) {
            Arc::make_mut(rules).remove(name);
            if rules.is_empty() {
                self.clusters.remove(cluster);
            }
        }
    }

    pub fn len(&self) -> usize {
        self.clusters.values().map(|rules| rules.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty()
    }
}
