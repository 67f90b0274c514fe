//! The text form of digests (of a term, a group of VMs, or hosts) in records and rule names.

pub(crate) fn digest_text(digest: u64) -> String {
    format!("{digest:016x}")
}

pub(crate) fn parse_digest(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?
}
