//! How a digest is written in records and names: of a term, of a group of VMs, of hosts.

/// As it is recorded and part of names.
pub(crate) fn digest_text(digest: u64) -> String {
    format!("{digest:016x}")
}

pub(crate) fn parse_digest(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?
}
