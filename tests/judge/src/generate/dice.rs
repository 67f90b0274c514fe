//! Random numbers for one world, derived from the world's number alone.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

#[derive(Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Uniform in `0..bound`; 0 when the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // The modulo bias does not matter for such small bounds.
        let bound = bound.max(1) as u64;
        usize::try_from(self.0.next_u64() % bound).unwrap_or(0)
    }

    /// Uniform in `low..=high`.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True with a probability of `percent`.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// `count` different elements, in the order of the list.
    pub fn several<T: Copy>(&mut self, from: &[T], count: usize) -> Vec<T> {
        let mut indexes: Vec<usize> = (0..from.len()).collect();
        while indexes.len() > count {
            indexes.remove(self.below(indexes.len()));
        }
        indexes.into_iter().map(|index| from[index]).collect()
    }

    /// `Some` with a probability of `percent`.
    pub fn maybe<T>(&mut self, percent: usize, make: impl FnOnce(&mut Dice) -> T) -> Option<T> {
        self.chance(percent).then(|| make(self))
    }
}
