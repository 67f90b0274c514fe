//! Finding the unit that a reconfiguration stumbles over.
//!
//! In: how many units there are, and the outcome of each attempt. Out: which units to attempt next. All go out at once; a
//! fault halves what was sent until the culprit is alone, so one culprit among n costs about 2 log2(n) calls, and the
//! others go through. A unit that was a culprit before is attempted alone.
//!
//! Invariants: a unit goes through or is a culprit at most once; after a failure that is not the request's own fault
//! nothing more is attempted; so is it after [`CALLS_MAX`] calls, and what is left waits for the next pass.

use std::ops::Range;

use crate::ports::PortError;

/// How many calls one pass may take.
pub const CALLS_MAX: usize = 64;

#[derive(Debug)]
pub struct Split {
    /// Yet to be attempted, the next one last.
    waiting: Vec<Range<usize>>,
    attempted: Option<Range<usize>>,
    calls: usize,
    /// Units that went through.
    pub through: Vec<usize>,
    /// Units that can not be, with what was said of each.
    pub culprits: Vec<(usize, String)>,
}

impl Split {
    /// The first `fresh` units go together, those after them one by one.
    #[must_use]
    pub fn new(fresh: usize, total: usize) -> Split {
        let mut waiting: Vec<Range<usize>> = (fresh..total).rev().map(|unit| unit..unit + 1).collect();
        if fresh > 0 {
            waiting.push(0..fresh);
        }
        Split { waiting, attempted: None, calls: 0, through: Vec::new(), culprits: Vec::new() }
    }

    /// What to attempt next; `None` when there is nothing left, or no call left for it.
    pub fn attempt(&mut self) -> Option<Range<usize>> {
        if self.calls >= CALLS_MAX {
            return None;
        }
        self.attempted = self.waiting.pop();
        self.calls += usize::from(self.attempted.is_some());
        self.attempted.clone()
    }

    /// Takes note of how the attempt went. An error is one that ends all attempts.
    pub fn attempted(&mut self, outcome: Result<(), PortError>) -> Result<(), PortError> {
        let Some(range) = self.attempted.take() else { return Ok(()) };
        match outcome {
            Ok(()) => self.through.extend(range),
            Err(PortError::Invalid(why)) if range.len() == 1 => self.culprits.push((range.start, why)),
            Err(PortError::Invalid(_)) => {
                let middle = range.start + range.len() / 2;
                self.waiting.push(middle..range.end);
                self.waiting.push(range.start..middle);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Attempts until nothing is left; a range with a culprit in it is invalid.
    fn run(split: &mut Split, culprits: &BTreeSet<usize>) -> usize {
        let mut calls = 0;
        while let Some(range) = split.attempt() {
            calls += 1;
            let invalid = range.clone().any(|unit| culprits.contains(&unit));
            let outcome = if invalid { Err(PortError::Invalid("no such VM".to_owned())) } else { Ok(()) };
            split.attempted(outcome).expect("a fault is no reason to stop");
        }
        calls
    }

    #[test]
    fn one_culprit_among_many_is_found_in_few_calls() {
        for (units, calls_max) in [(1, 1), (2, 3), (64, 13), (1000, 21)] {
            for culprit in [0, units / 2, units - 1] {
                let mut split = Split::new(units, units);
                let calls = run(&mut split, &BTreeSet::from([culprit]));
                assert!(calls <= calls_max, "{calls} calls for {units} units");
                assert_eq!(split.culprits, [(culprit, "no such VM".to_owned())]);
                assert_eq!(split.through.len(), units - 1);
            }
        }
    }

    #[test]
    fn what_is_not_the_requests_own_fault_ends_all_attempts() {
        for error in [
            PortError::Transient(String::new()),
            PortError::Permanent(String::new()),
            PortError::NotFound(String::new()),
        ] {
            let mut split = Split::new(8, 8);
            split.attempt();
            split.attempted(Err(PortError::Invalid(String::new()))).expect("halved");
            assert_eq!(split.attempt(), Some(0..4));
            assert_eq!(split.attempted(Err(error.clone())), Err(error));
        }
    }

    proptest! {
        #[test]
        fn every_unit_goes_through_or_is_a_culprit_unless_the_calls_are_used_up(
            fresh in 0usize..300,
            known in 0usize..10,
            picks in proptest::collection::btree_set(0usize..310, 0..20),
        ) {
            let total = fresh + known;
            let culprits: BTreeSet<usize> = picks.into_iter().filter(|unit| *unit < total).collect();
            let mut split = Split::new(fresh, total);
            let calls = run(&mut split, &culprits);
            prop_assert!(calls <= CALLS_MAX);
            let through: BTreeSet<usize> = split.through.iter().copied().collect();
            let found: BTreeSet<usize> = split.culprits.iter().map(|(unit, _)| *unit).collect();
            prop_assert_eq!(through.len() + found.len(), split.through.len() + split.culprits.len());
            prop_assert!(found.is_subset(&culprits) && through.is_disjoint(&culprits));
            if calls < CALLS_MAX {
                prop_assert_eq!(found, culprits);
                prop_assert_eq!(through.len() + split.culprits.len(), total);
            }
        }
    }
}
