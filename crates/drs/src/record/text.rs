//! The record of one cluster as a text, as it is kept.
//!
//! In and out: JSON with a version. What is not set is left out, so that a thousand rules stay well below the size of a
//! ConfigMap. Invariants: what was written is read back the same; a version that is not known is an error and never
//! guessed at; fields that are not known are passed over, so that a later version may add some.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Rules, UnixMillis};

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

#[derive(Deserialize)]
struct Text {
    rules: Rules,
}

#[derive(Serialize)]
struct TextRef<'r> {
    version: u64,
    rules: &'r Rules,
}

/// When a rule came back. Versions that knew no moment kept only that it did, and read no more.
pub(super) mod restored {
    use super::*;

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Restored {
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        restored: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        restored_at: Option<UnixMillis>,
    }

    pub fn serialize<S: Serializer>(at: &Option<UnixMillis>, serializer: S) -> Result<S::Ok, S::Error> {
        let known = at.filter(|at| *at != UnixMillis::UNKNOWN);
        Restored { restored: at.is_some(), restored_at: known }.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<UnixMillis>, D::Error> {
        let Restored { restored, restored_at } = Restored::deserialize(deserializer)?;
        Ok(restored_at.or(restored.then_some(UnixMillis::UNKNOWN)))
    }
}

/// The record of one cluster.
pub fn to_text(rules: &Rules) -> String {
    // Strings and numbers under string keys can always be written.
    serde_json::to_string(&TextRef { version: VERSION, rules }).unwrap_or_default()
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
    let Text { rules } = serde_json::from_str(text).map_err(malformed)?;
    Ok(rules)
}
