//! The random worlds of a test: those of the run's seed, or a single one to replay.
//!
//! In: `BRIDGER_SEED` and `BRIDGER_WORLD`, which `cargo xtask test` sets from `--seed` and `--world`. Out: a range of
//! world numbers. Invariants: a seed always gives the same worlds; two seeds have no world in common; a world's number
//! alone determines its content.

use std::fmt;
use std::ops::Range;

/// The seed of `cargo xtask test` with quick counts, and of `cargo test`.
const SEED_DEFAULT: u64 = 1;
/// World numbers per seed: more than any test uses, and a decimal power, so that the number shows the seed.
const PER_SEED: u64 = 1_000_000;

/// The seed of this run.
#[must_use]
pub fn seed() -> u64 {
    number("BRIDGER_SEED").unwrap_or(SEED_DEFAULT)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worlds {
    numbers: Range<u64>,
    of: Of,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Seed(u64),
    Replay,
}

impl Worlds {
    /// `count` worlds of this run's seed.
    #[must_use]
    pub fn drawn(count: usize) -> Worlds {
        Worlds::of_seed(seed(), count)
    }

    /// `count` worlds of this run's seed, or a single world to replay.
    #[must_use]
    pub fn drawn_or_replayed(count: usize) -> Worlds {
        number("BRIDGER_WORLD").map_or_else(|| Worlds::drawn(count), Worlds::replayed)
    }

    fn of_seed(seed: u64, count: usize) -> Worlds {
        let count = count as u64;
        assert!(count <= PER_SEED, "a seed has {PER_SEED} worlds, not {count}");
        // Seeds wrap around here, far beyond the seconds of a clock.
        let start = seed % (u64::MAX / PER_SEED) * PER_SEED;
        Worlds { numbers: start..start + count, of: Of::Seed(seed) }
    }

    fn replayed(number: u64) -> Worlds {
        Worlds { numbers: number..number.saturating_add(1), of: Of::Replay }
    }

    #[must_use]
    pub fn numbers(&self) -> Range<u64> {
        self.numbers.clone()
    }

    /// Whether frequencies are meaningful. A single replayed world is not a sample.
    #[must_use]
    pub fn are_a_sample(&self) -> bool {
        self.of != Of::Replay
    }
}

impl fmt::Display for Worlds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.numbers;
        match self.of {
            Of::Seed(seed) => write!(f, "{} worlds of seed {seed}, numbered from {start}", end - start),
            Of::Replay => write!(f, "world {start} alone"),
        }
    }
}

/// The commands that show a world and that run the calling test on it alone.
#[must_use]
pub fn how_to_replay(number: u64, profile: &str) -> String {
    // libtest names a thread after its test.
    let thread = std::thread::current();
    let test = thread.name().and_then(|name| name.rsplit("::").next()).unwrap_or("NAME");
    format!(
        "to show it: cargo run -p judge --example world -- list {profile} {number}\n\
         to run it alone: cargo xtask test --tier peers --only {test} --world {number}"
    )
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is not a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_worlds_and_shares_none_with_another() {
        let last = u64::MAX / PER_SEED - 1;
        for (seed, start) in [(0, 0), (1, PER_SEED), (1_700_000_000, 1_700_000_000 * PER_SEED), (last, last * PER_SEED)]
        {
            let worlds = Worlds::of_seed(seed, 500);
            assert_eq!((worlds.numbers(), worlds.are_a_sample()), (start..start + 500, true));
            // A larger count starts with the same worlds.
            assert_eq!(Worlds::of_seed(seed, 5000).numbers().start, start);
        }
        assert_eq!(Worlds::of_seed(u64::MAX, 1).numbers().count(), 1);
        assert_eq!(Worlds::of_seed(3, 500).to_string(), "500 worlds of seed 3, numbered from 3000000");
    }

    #[test]
    fn a_world_is_replayed_alone_by_its_number() {
        let worlds = Worlds::replayed(1_000_042);
        assert_eq!((worlds.numbers().collect::<Vec<_>>(), worlds.are_a_sample()), (vec![1_000_042], false));
        assert_eq!(worlds.to_string(), "world 1000042 alone");
        let how = how_to_replay(1_000_042, "all");
        assert!(how.contains("-- list all 1000042") && how.ends_with("by_its_number --world 1000042"), "{how}");
    }
}
