//! The record of one cluster as a text, as it is kept.
//!
//! In and out: JSON with a version. What is not set is left out, so that a thousand rules stay well below the size of a
//! ConfigMap. Invariants: what was written is read back the same; a version that is not known is an error and never
//! guessed at; fields that are not known are passed over, so that a later version may add some.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::record::{OwnedGroups, OwnedRule, RuleSort, Rules, UnixMillis, Unwanted};

/// What this program writes, and the only thing it reads.
const VERSION: u64 = 1;
/// Kubernetes keeps no object larger than this.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RecordError {
    #[error("the record has {bytes} bytes, and at most {TEXT_BYTES_MAX} are read")]
    TooLarge { bytes: usize },
    #[error("the record has version {version}, and only version {VERSION} is known")]
    UnknownVersion { version: u64 },
    #[error("the record can not be read: {0}")]
    Malformed(String),
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u64,
}

#[derive(Serialize, Deserialize)]
struct Text {
    version: u64,
    rules: BTreeMap<String, RuleText>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RuleText {
    sort: SortText,
    source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unwanted: Option<UnwantedText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outnumbered_since: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    restored: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    groups: Option<GroupsText>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum SortText {
    Apart,
    Together,
    OnHosts,
}

#[derive(Serialize, Deserialize)]
struct UnwantedText {
    since: u64,
    vms: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct GroupsText {
    vms: String,
    hosts: String,
}

/// The record of one cluster.
pub fn to_text(rules: &Rules) -> String {
    let rules = rules.iter().map(|(name, rule)| (name.clone(), RuleText::from(&**rule))).collect();
    // Strings and numbers under string keys can always be written.
    serde_json::to_string(&Text { version: VERSION, rules }).unwrap_or_default()
}

pub fn from_text(text: &str) -> Result<Rules, RecordError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(RecordError::TooLarge { bytes: text.len() });
    }
    let malformed = |error: serde_json::Error| RecordError::Malformed(error.to_string());
    let VersionOnly { version } = serde_json::from_str(text).map_err(malformed)?;
    if version != VERSION {
        return Err(RecordError::UnknownVersion { version });
    }
    let text: Text = serde_json::from_str(text).map_err(malformed)?;
    Ok(text.rules.into_iter().map(|(name, rule)| (name, Arc::new(OwnedRule::from(rule)))).collect())
}

impl From<&OwnedRule> for RuleText {
    fn from(rule: &OwnedRule) -> Self {
        let unwanted = |unwanted: &Unwanted| UnwantedText { since: unwanted.since.0, vms: unwanted.vms.clone() };
        let groups = |groups: &OwnedGroups| GroupsText { vms: groups.vms.clone(), hosts: groups.hosts.clone() };
        Self {
            sort: match rule.sort {
                RuleSort::Apart => SortText::Apart,
                RuleSort::Together => SortText::Together,
                RuleSort::OnHosts => SortText::OnHosts,
            },
            source: rule.source.clone(),
            uuid: rule.uuid.clone(),
            unwanted: rule.unwanted.as_ref().map(unwanted),
            outnumbered_since: rule.outnumbered_since.map(|since| since.0),
            restored: rule.restored,
            groups: rule.groups.as_ref().map(groups),
        }
    }
}

impl From<RuleText> for OwnedRule {
    fn from(text: RuleText) -> Self {
        let unwanted = |text: UnwantedText| Unwanted { since: UnixMillis(text.since), vms: text.vms };
        Self {
            sort: match text.sort {
                SortText::Apart => RuleSort::Apart,
                SortText::Together => RuleSort::Together,
                SortText::OnHosts => RuleSort::OnHosts,
            },
            source: text.source,
            uuid: text.uuid,
            unwanted: text.unwanted.map(unwanted),
            outnumbered_since: text.outnumbered_since.map(UnixMillis),
            restored: text.restored,
            groups: text.groups.map(|groups| OwnedGroups { vms: groups.vms, hosts: groups.hosts }),
        }
    }
}
