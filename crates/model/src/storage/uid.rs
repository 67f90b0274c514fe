//! The UID of a Kubernetes object, stored compactly.
//!
//! In and out: the string. In practice UIDs are UUIDs: 16 bytes instead of the 52 a string needs with its allocation,
//! and there are 150,000 of them. Kubernetes guarantees only a string, so anything else is stored as a string.

use std::fmt;

use uuid::Uuid;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Uid {
    Uuid(Uuid),
    Other(Box<str>),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        match Uuid::try_parse(text) {
            // Only the canonical spelling, because the string must round-trip unchanged.
            Ok(uuid) if uuid.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text => Self::Uuid(uuid),
            _ => Self::Other(text.into()),
        }
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uuid) => uuid.as_hyphenated().fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_string_round_trips_unchanged() {
        for text in [
            "",
            "a",
            "42030201-ab12-7d4c-9a00-1c2d3e4f5a6b",
            "42030201-AB12-7D4C-9A00-1C2D3E4F5A6B",
            "42030201ab127d4c9a001c2d3e4f5a6b",
            "{42030201-ab12-7d4c-9a00-1c2d3e4f5a6b}",
        ] {
            assert_eq!(Uid::from(text).to_string(), text);
        }
        assert!(matches!(Uid::from("42030201-ab12-7d4c-9a00-1c2d3e4f5a6b"), Uid::Uuid(_)));
    }
}
