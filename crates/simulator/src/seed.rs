//! Randomness: one seed, and an independent stream per purpose derived from it.
//!
//! Streams are named, so that drawing more numbers in one component (for example demand) does not shift the numbers of
//! another (for example uids). Histories stay comparable when one component changes.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    #[must_use]
    pub fn stream(self, purpose: &str) -> Stream {
        let mut hash = Sha256::new();
        hash.update(self.0.to_le_bytes());
        hash.update(purpose.as_bytes());
        Stream(ChaCha8Rng::from_seed(hash.finalize().into()))
    }
}

/// The random stream of one purpose.
#[derive(Clone, Debug)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound must be positive");
        // The modulo bias is below 2^-40 for every bound used here.
        self.next_u64() % bound
    }

    /// Uniform in `0.0..1.0`.
    #[allow(clippy::cast_precision_loss)]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A version 4 UUID.
    pub fn uuid(&mut self) -> uuid::Uuid {
        let mut bytes = [0u8; 16];
        self.0.fill_bytes(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// The five characters that Kubernetes appends to a `generateName`.
    pub fn name_suffix(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| char::from(ALPHABET[usize::try_from(self.below(ALPHABET.len() as u64)).unwrap_or(0)])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_by_name_and_differ_between_names_and_seeds() {
        let draw = |seed, purpose: &str| Seed(seed).stream(purpose).next_u64();
        assert_eq!(draw(1, "demand"), draw(1, "demand"));
        assert_ne!(draw(1, "demand"), draw(1, "uid"));
        assert_ne!(draw(1, "demand"), draw(2, "demand"));
    }
}
