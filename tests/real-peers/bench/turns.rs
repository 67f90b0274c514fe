//! How often contenders are measured if their ratio is close to its limit.
//!
//! Other load on a machine only slows a contender down, and lasts longer than a turn. So the best turns are compared,
//! and turns continue until a second turn confirms each contender's best, or the maximum is reached. When to stop
//! depends on how well each contender repeats its own figure, never on how they compare; all take equally many turns.
//! If pods are created while others are bound, a machine may also be faster for a while. Then two contenders take a
//! fixed number of turns in pairs, and the median of the pairs' ratios counts.

/// The minimum and maximum number of turns.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    least: usize,
    most: usize,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns { least: 3, most: 8 }
    }
}

impl Turns {
    #[must_use]
    pub fn at_least(least: usize) -> Turns {
        Turns { least, most: least * 3 }
    }

    #[must_use]
    pub fn exactly(number: usize) -> Turns {
        Turns { least: number, most: number }
    }
}

/// How close a second turn must come to the best to confirm it.
const CONFIRMED_WITHIN: f64 = 0.04;

/// Whether another turn is needed. `rates` has each contender's rates so far.
#[must_use]
pub fn is_another_needed<'a>(limits: Turns, rates: impl IntoIterator<Item = &'a [f64]>) -> bool {
    let mut rates = rates.into_iter();
    rates.any(|turns| turns.len() < limits.least || (turns.len() < limits.most && !is_confirmed(turns)))
}

fn is_confirmed(turns: &[f64]) -> bool {
    let mut sorted = turns.to_vec();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    matches!(sorted.as_slice(), [best, second, ..] if *second >= *best * (1.0 - CONFIRMED_WITHIN))
}
