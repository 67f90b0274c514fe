//! Finds the change that makes a reconfiguration fail (the culprit).
//!
//! In: the number of changes, and the outcome of each attempt. Out: which changes to attempt next. The first attempt
//! has all changes. An invalid request is halved until the culprit is alone, so one culprit among n changes costs about
//! 2 log2(n) calls, and the others are applied. A change that was a culprit before is attempted alone.
//!
//! Invariants: each change is applied or found to be a culprit at most once. Nothing more is attempted after an error
//! other than [`PortError::Invalid`], nor after [`CALLS_MAX`] calls; the remaining changes wait for the next pass.

use std::ops::Range;

use crate::ports::PortError;

/// How many calls one pass may take.
pub const CALLS_MAX: usize = 64;

#[derive(Debug)]
pub struct Split {
    /// The ranges not yet attempted; the next one is last.
    waiting: Vec<Range<usize>>,
    attempted: Option<Range<usize>>,
    calls: usize,
    /// The indexes of the applied changes.
    pub applied: Vec<usize>,
    /// The indexes of the invalid changes, each with the error.
    pub culprits: Vec<(usize, String)>,
}

impl Split {
    /// The first `fresh` changes are attempted together, the others one by one.
    #[must_use]
    pub fn new(fresh: usize, total: usize) -> Split {
        let mut waiting: Vec<Range<usize>> = (fresh..total).rev().map(|index| index..index + 1).collect();
        if fresh > 0 {
            waiting.push(0..fresh);
        }
        Split { waiting, attempted: None, calls: 0, applied: Vec::new(), culprits: Vec::new() }
    }

    /// The changes to attempt next; `None` if none are left or the calls are used up.
    pub fn attempt(&mut self) -> Option<Range<usize>> {
        if self.calls >= CALLS_MAX {
            return None;
        }
        self.attempted = self.waiting.pop();
        self.calls += usize::from(self.attempted.is_some());
        self.attempted.clone()
    }

    /// Takes the outcome of the attempt. Returns an error if it ends all attempts.
    pub fn attempted(&mut self, outcome: Result<(), PortError>) -> Result<(), PortError> {
        let Some(range) = self.attempted.take() else { return Ok(()) };
        match outcome {
            Ok(()) => self.applied.extend(range),
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

    /// Attempts until nothing is left; a range that contains a culprit is invalid.
    fn run(split: &mut Split, culprits: &BTreeSet<usize>) -> usize {
        let mut calls = 0;
        while let Some(range) = split.attempt() {
            calls += 1;
            let invalid = range.clone().any(|index| culprits.contains(&index));
            let outcome = if invalid { Err(PortError::Invalid("no such VM".to_owned())) } else { Ok(()) };
            split.attempted(outcome).expect("an invalid request does not end the attempts");
        }
        calls
    }

    #[test]
    fn one_culprit_among_many_is_found_in_few_calls() {
        for (changes, calls_max) in [(1, 1), (2, 3), (64, 13), (1000, 21)] {
            for culprit in [0, changes / 2, changes - 1] {
                let mut split = Split::new(changes, changes);
                let calls = run(&mut split, &BTreeSet::from([culprit]));
                assert!(calls <= calls_max, "{calls} calls for {changes} changes");
                assert_eq!(split.culprits, [(culprit, "no such VM".to_owned())]);
                assert_eq!(split.applied.len(), changes - 1);
            }
        }
    }

    #[test]
    fn an_error_other_than_invalid_ends_all_attempts() {
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
        fn every_change_is_applied_or_is_a_culprit_unless_the_calls_are_used_up(
            fresh in 0usize..300,
            known in 0usize..10,
            picks in proptest::collection::btree_set(0usize..310, 0..20),
        ) {
            let total = fresh + known;
            let culprits: BTreeSet<usize> = picks.into_iter().filter(|index| *index < total).collect();
            let mut split = Split::new(fresh, total);
            let calls = run(&mut split, &culprits);
            prop_assert!(calls <= CALLS_MAX);
            let applied: BTreeSet<usize> = split.applied.iter().copied().collect();
            let found: BTreeSet<usize> = split.culprits.iter().map(|(index, _)| *index).collect();
            prop_assert_eq!(applied.len() + found.len(), split.applied.len() + split.culprits.len());
            prop_assert!(found.is_subset(&culprits) && applied.is_disjoint(&culprits));
            if calls < CALLS_MAX {
                prop_assert_eq!(found, culprits);
                prop_assert_eq!(applied.len() + split.culprits.len(), total);
            }
        }
    }
}
