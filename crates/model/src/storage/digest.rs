//! Digests of content that are the same in every process: 64 bits of a SHA-256 hash.

use sha2::{Digest, Sha256};

/// Hashes each part with its length, so that two different lists of parts never hash the same bytes.
pub fn digest(parts: &[&str]) -> u64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}
