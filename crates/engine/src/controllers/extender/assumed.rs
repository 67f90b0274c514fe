//! Which pods were placed here and not seen bound yet.
//!
//! In: bindings as they begin and end, and the time. Out: whether a binding may begin, and which assumptions are over. The
//! world itself counts an assumed pod as placed; this remembers for how long it may.
//!
//! Invariants: one binding of a pod at a time; an assumption whose binding failed for sure ends at once, one whose outcome
//! is unclear is kept for a while, because the pod may be bound all the same.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// How long a pod that was bound is taken to be there without having been seen so. Longer than any watch lags.
const SEEN_WITHIN: Duration = Duration::from_secs(120);
/// How long a binding without an answer may still take effect.
const UNCLEAR_FOR: Duration = Duration::from_secs(30);
/// How many assumptions each new one looks at, to let go of those that are over.
const LOOKED_AT: usize = 4;

/// Namespace and name.
pub type PodKey = (String, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Binding,
    Bound,
    Unclear,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    pub uid: String,
    pub node: String,
    pub stage: Stage,
    /// When it is over if nothing else is heard; never while the binding runs.
    until: Option<Instant>,
    /// An earlier binding of the pod to this node was not answered, and may take effect until then.
    unclear_until: Option<Instant>,
}

/// Why a binding may not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Busy {
    UnderWay,
    /// It is done, though no watch has told so yet.
    Bound {
        node: String,
    },
    /// An earlier one to another node may still take effect.
    Unclear {
        node: String,
    },
}

/// How a binding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Bound,
    Unclear,
    Failed,
}

#[derive(Debug, Default)]
pub struct Assumptions {
    pods: BTreeMap<PodKey, Assumption>,
    /// Every key once, the longest not looked at first.
    turn: VecDeque<PodKey>,
}

impl Assumptions {
    #[must_use]
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Whether a binding of this pod to this node may begin.
    pub fn may_begin(&self, key: &PodKey, uid: &str, node: &str, now: Instant) -> Result<(), Busy> {
        match self.pods.get(key) {
            Some(one) if one.uid != uid || one.is_over(now) => Ok(()),
            Some(one) if one.stage == Stage::Binding => Err(Busy::UnderWay),
            Some(one) if one.stage == Stage::Bound => Err(Busy::Bound { node: one.node.clone() }),
            Some(one) if one.stage == Stage::Unclear && one.node != node => {
                Err(Busy::Unclear { node: one.node.clone() })
            }
            _ => Ok(()),
        }
    }

    pub fn begin(&mut self, key: PodKey, uid: String, node: String) {
        let before = self.pods.get(&key).filter(|one| one.uid == uid && one.node == node);
        let unclear_until = before.and_then(|one| one.unclear_until);
        let one = Assumption { uid, node, stage: Stage::Binding, until: None, unclear_until };
        if self.pods.insert(key.clone(), one).is_none() {
            self.turn.push_back(key);
        }
    }

    /// Answers whether the pod is to be forgotten now.
    pub fn end(&mut self, key: &PodKey, uid: &str, ending: Ending, now: Instant) -> bool {
        let Some(one) = self.pods.get_mut(key).filter(|one| one.uid == uid) else { return false };
        (one.stage, one.until) = match ending {
            Ending::Bound => (Stage::Bound, Some(now + SEEN_WITHIN)),
            Ending::Unclear => {
                one.unclear_until = Some(now + UNCLEAR_FOR);
                (Stage::Unclear, one.unclear_until)
            }
            // What came of the one before is as unclear as it was.
            Ending::Failed if one.unclear_until.is_some_and(|until| until > now) => (Stage::Unclear, one.unclear_until),
            Ending::Failed => {
                self.remove(key);
                return true;
            }
        };
        false
    }

    /// When the first is over, if nothing else is heard of it.
    #[must_use]
    pub fn next_over(&self) -> Option<Instant> {
        self.pods.values().filter_map(|one| one.until).min()
    }

    /// Looks at a few that have not been looked at for long. `confirmed` answers whether the world has its own word on the
    /// pod by now: then the assumption is dropped. Answers those that are over without that, to be forgotten.
    pub fn sweep(
        &mut self,
        now: Instant,
        confirmed: impl Fn(&PodKey, &Assumption) -> bool,
    ) -> Vec<(PodKey, Assumption)> {
        self.look_at(LOOKED_AT, now, confirmed)
    }

    /// The same of all of them.
    pub fn sweep_all(
        &mut self,
        now: Instant,
        confirmed: impl Fn(&PodKey, &Assumption) -> bool,
    ) -> Vec<(PodKey, Assumption)> {
        self.look_at(usize::MAX, now, confirmed)
    }

    fn look_at(
        &mut self,
        at_most: usize,
        now: Instant,
        confirmed: impl Fn(&PodKey, &Assumption) -> bool,
    ) -> Vec<(PodKey, Assumption)> {
        let mut over = Vec::new();
        for _ in 0..at_most.min(self.turn.len()) {
            let Some(key) = self.turn.pop_front() else { break };
            let Some(one) = self.pods.get(&key) else { continue };
            let binding = one.stage == Stage::Binding;
            if !binding && confirmed(&key, one) {
                self.pods.remove(&key);
            } else if !binding && one.is_over(now) {
                if let Some(one) = self.pods.remove(&key) {
                    over.push((key, one));
                }
            } else {
                self.turn.push_back(key);
            }
        }
        over
    }

    fn remove(&mut self, key: &PodKey) {
        self.pods.remove(key);
        self.turn.retain(|other| other != key);
    }
}

impl Assumption {
    fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> PodKey {
        ("ns".to_owned(), name.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn one_binding_at_a_time_and_each_ending_has_its_own_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let never = |_: &PodKey, _: &Assumption| false;
        let mut book = Assumptions::default();
        book.begin(key("a"), "u1".to_owned(), "n1".to_owned());
        assert_eq!(book.may_begin(&key("a"), "u1", "n1", at(0)), Err(Busy::UnderWay));
        assert_eq!(book.may_begin(&key("a"), "u2", "n1", at(0)), Ok(()), "another pod of that name");
        assert!(book.sweep(at(9999), never).is_empty(), "a binding under way is never over");

        assert!(!book.end(&key("a"), "u1", Ending::Unclear, at(0)));
        assert_eq!(book.may_begin(&key("a"), "u1", "n1", at(1)), Ok(()));
        let elsewhere = book.may_begin(&key("a"), "u1", "n2", at(1));
        assert_eq!(elsewhere, Err(Busy::Unclear { node: "n1".to_owned() }));
        assert!(book.sweep(at(29), never).is_empty());
        assert_eq!(book.next_over(), Some(at(30)));
        assert_eq!(book.may_begin(&key("a"), "u1", "n2", at(30)), Ok(()));
        assert_eq!(book.sweep(at(30), never).len(), 1);
        assert!(book.is_empty());

        book.begin(key("a"), "u1".to_owned(), "n1".to_owned());
        assert!(!book.end(&key("a"), "u1", Ending::Unclear, at(0)));
        book.begin(key("a"), "u1".to_owned(), "n1".to_owned());
        assert!(!book.end(&key("a"), "u1", Ending::Failed, at(10)), "the first one may still take effect");
        assert_eq!(book.next_over(), Some(at(30)));
        assert_eq!(book.sweep(at(30), never).len(), 1);

        book.begin(key("b"), "u1".to_owned(), "n1".to_owned());
        assert!(book.end(&key("b"), "u1", Ending::Failed, at(0)));
        assert!(book.is_empty() && book.turn.is_empty());

        book.begin(key("c"), "u1".to_owned(), "n1".to_owned());
        assert!(!book.end(&key("c"), "u1", Ending::Bound, at(0)));
        let again = book.may_begin(&key("c"), "u1", "n2", at(1));
        assert_eq!(again, Err(Busy::Bound { node: "n1".to_owned() }));
        assert!(book.sweep(at(100), never).is_empty());
        assert!(book.sweep(at(100), |_, _| true).is_empty());
        assert!(book.is_empty(), "seen bound");
    }
}
