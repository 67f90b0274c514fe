//! The rule record: the rules that Bridger owns, and the waits before it changes them.
//!
//! The record is stored outside the vSphere cluster. A name is recorded before the rule is created (an intent), its
//! UUID afterwards. Invariant: Bridger owns a rule only if the rule matches the record under its name. `text`: the
//! stored form.

mod text;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::text::{RecordError, from_text, to_text};
use crate::input::ClusterKey;

/// Milliseconds since 1970: a time that is meaningful after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// A time that was not recorded.
    pub const UNKNOWN: Self = Self(0);

    /// Whether `wait` has passed since `since`.
    pub(crate) fn is_past(self, since: Self, wait: Duration) -> bool {
        u128::from(self.0.saturating_sub(since.0)) >= wait.as_millis()
    }

    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// The types of rules that Bridger creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RuleType {
    #[serde(rename = "apart")]
    VmAntiAffinity,
    #[serde(rename = "together")]
    VmAffinity,
    #[serde(rename = "onHosts")]
    VmHost,
}

impl RuleType {
    /// The text in rule names and records; never changes.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            RuleType::VmAntiAffinity => "apart",
            RuleType::VmAffinity => "together",
            RuleType::VmHost => "onHosts",
        }
    }

    /// The minimum number of members of a rule.
    pub(crate) const fn members_min(self) -> usize {
        match self {
            RuleType::VmAntiAffinity | RuleType::VmAffinity => 2,
            RuleType::VmHost => 1,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRule {
    #[serde(rename = "sort")]
    pub rule_type: RuleType,
    /// What the rule is for: a digest of the term. Keeps the rule's identity while its members change.
    pub source: String,
    /// Assigned by vCenter; `None` while only the intent is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// No pod requires the rule, or some of its members, any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwanted: Option<Unwanted>,
    /// Since when it has more members than there are hosts able to run them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outnumbered_since: Option<UnixMillis>,
    /// When Bridger recreated the rule after another client deleted it. [`UnixMillis::UNKNOWN`] in records of versions
    /// that did not store the time.
    #[serde(flatten, with = "text::restored")]
    pub restored_at: Option<UnixMillis>,
    /// The groups created for a VM-Host rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<RecordedGroups>,
}

/// The names of the two groups that belong to a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedGroups {
    pub vms: String,
    pub hosts: String,
}

impl RecordedGroups {
    pub(crate) fn of_rule(name: &str) -> Self {
        Self { vms: format!("{name}-vms"), hosts: format!("{name}-hosts") }
    }
}

/// The members that no pod requires any more, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unwanted {
    pub since: UnixMillis,
    /// The ids of the members; all of them if no pod requires the whole rule.
    pub vms: Vec<String>,
}

impl RecordedRule {
    pub fn intent(rule_type: RuleType, source: String) -> Self {
        Self { rule_type, source, uuid: None, unwanted: None, outnumbered_since: None, restored_at: None, groups: None }
    }
}

/// The rules of one cluster by name.
pub type RecordedRules = BTreeMap<String, Arc<RecordedRule>>;

/// Rules by cluster and name; cheap to copy, because unchanged parts are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub clusters: BTreeMap<ClusterKey, Arc<RecordedRules>>,
}

impl Record {
    /// The rules recorded for a cluster.
    pub fn rules(&self, cluster: &ClusterKey) -> Arc<RecordedRules> {
        self.clusters.get(cluster).cloned().unwrap_or_default()
    }

    pub fn set(&mut self, cluster: &ClusterKey, rules: Arc<RecordedRules>) {
        if rules.is_empty() {
            self.clusters.remove(cluster);
        } else {
            self.clusters.insert(cluster.clone(), rules);
        }
    }

    pub fn rule(&self, cluster: &ClusterKey, name: &str) -> Option<&RecordedRule> {
        self.clusters.get(cluster)?.get(name).map(|rule| &**rule)
    }

    /// The rule was read back after its creation.
    pub fn created(&mut self, cluster: &ClusterKey, name: &str, uuid: String) {
        if let Some(rule) = self.clusters.get_mut(cluster).and_then(|rules| Arc::make_mut(rules).get_mut(name)) {
            Arc::make_mut(rule).uuid = Some(uuid);
        }
    }

    /// The rule was deleted, and the deletion was observed.
    pub fn deleted(&mut self, cluster: &ClusterKey, name: &str) {
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
