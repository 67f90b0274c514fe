//! How many turns those take whose ratio has little room.
//!
//! What else happens on a machine only ever slows a contender down, and for longer than a turn lasts: so the best turns are
//! compared, and turns go on until each contender's best is no stroke of luck, or there were enough. When to stop depends on
//! how each repeats its own figure, never on how they compare; all take equally many. Where pods come while they are bound, a machine may
//! also be lucky for a while: then two take turns as pairs, a number of them that is known before, and the middle one of the pairs' ratios
//! counts.

/// At least so many, and at most.
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

/// A second turn comes as near to the best as this.
const CONFIRMED_WITHIN: f64 = 0.04;

/// Whether those who take turns take another one. `rates` are those of each, so far.
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
