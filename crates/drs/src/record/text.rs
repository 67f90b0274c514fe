//! The stored form of the record of one cluster.
//!
//! In and out: JSON with a version. Unset fields are omitted, so that a thousand rules stay well below the size of a
//! ConfigMap. Invariants: a written record is read back the same; an unknown version is an error and never guessed;
//! unknown fields are ignored, so that a later version may add some.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{RecordedRules, UnixMillis};

/// The version that Bridger writes, and the only one it reads.
const VERSION: u64 = 1;
/// Kubernetes stores no object larger than this.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RecordError {
    #[error("the record has {bytes} bytes, and at most {TEXT_BYTES_MAX} are read")]
    TooLarge { bytes: usize },
    #[error(
        "the record has version {version}, and this Bridger knows only version {VERSION}: use the Bridger that wrote it"
    )]
    UnknownVersion { version: u64 },
    #[error("the record cannot be read: {0}")]
    Malformed(String),
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u64,
}

#[derive(Deserialize)]
struct Text {
    rules: RecordedRules,
}

#[derive(Serialize)]
struct TextRef<'r> {
    version: u64,
    rules: &'r RecordedRules,
}

/// When a rule was recreated. Older versions stored only a flag instead of the time, and read only the flag.
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
pub fn to_text(rules: &RecordedRules) -> String {
    // Serializing strings and numbers under string keys cannot fail.
    serde_json::to_string(&TextRef { version: VERSION, rules }).unwrap_or_default()
}

pub fn from_text(text: &str) -> Result<RecordedRules, RecordError> {
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
