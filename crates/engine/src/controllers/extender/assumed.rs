//! The assumed pods: placed here, and not yet shown as bound by the watch.
//!
//! In: bindings as they start and end, and the time. Out: whether a binding may start, and which assumptions have
//! expired. The world counts an assumed pod as placed; this module tracks for how long.
//!
//! Invariants: one binding of a pod at a time. An assumption ends immediately if its binding certainly failed. If the
//! outcome is unclear it is kept for a while, because the pod may be bound. None expires while pods are not watched,
//! because then the watch shows nothing.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// How long a bound pod stays assumed without being shown by the watch. Longer than any watch lags.
const SEEN_WITHIN: Duration = Duration::from_secs(120);
/// How long a binding without a response may still take effect.
const UNCLEAR_FOR: Duration = Duration::from_secs(30);
/// How long after a list of pods nothing expires: a pod that was bound during the list is shown by the watch after it.
const SHOWN_AFTER_LIST: Duration = Duration::from_secs(30);
/// How many assumptions are checked for expiry with each new one.
const CHECKED_PER_SWEEP: usize = 4;

/// Namespace and name.
pub type PodKey = (String, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssumptionStage {
    Binding,
    Bound,
    Unclear,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    pub uid: String,
    pub node: String,
    pub stage: AssumptionStage,
    /// When it expires if nothing else happens; `None` while the binding is in flight.
    until: Option<Instant>,
    /// An earlier binding of the pod to this node got no response, and may take effect until this moment.
    unclear_until: Option<Instant>,
}

/// Why a binding may not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Busy {
    UnderWay,
    /// The pod is bound, but the watch does not show it yet.
    Bound {
        node: String,
    },
    /// An earlier binding to another node may still take effect.
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
    /// Every key once, the least recently checked first.
    turn: VecDeque<PodKey>,
    /// Pods are not watched.
    is_suspended: bool,
    /// Nothing expires before this moment.
    resumes_at: Option<Instant>,
}

impl Assumptions {
    /// From now on pods are not watched: nothing expires.
    pub fn suspend(&mut self) {
        self.is_suspended = true;
    }

    /// Pods were listed, and are watched again. Returns when the first assumption may expire.
    pub fn resume(&mut self, now: Instant) -> Instant {
        self.is_suspended = false;
        *self.resumes_at.insert(now + SHOWN_AFTER_LIST)
    }

    fn is_over(&self, one: &Assumption, now: Instant) -> bool {
        !self.is_suspended && [one.until, self.resumes_at.or(one.until)].iter().all(|it| it.is_some_and(|it| it <= now))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Whether a binding of this pod to this node may start.
    pub fn may_begin(&self, key: &PodKey, uid: &str, node: &str, now: Instant) -> Result<(), Busy> {
        match self.pods.get(key) {
            Some(one) if one.uid != uid || self.is_over(one, now) => Ok(()),
            Some(one) if one.stage == AssumptionStage::Binding => Err(Busy::UnderWay),
            Some(one) if one.stage == AssumptionStage::Bound => Err(Busy::Bound { node: one.node.clone() }),
            Some(one) if one.stage == AssumptionStage::Unclear && one.node != node => {
                Err(Busy::Unclear { node: one.node.clone() })
            }
            _ => Ok(()),
        }
    }

    pub fn begin(&mut self, key: PodKey, uid: String, node: String) {
        let before = self.pods.get(&key).filter(|one| one.uid == uid && one.node == node);
        let unclear_until = before.and_then(|one| one.unclear_until);
        let one = Assumption { uid, node, stage: AssumptionStage::Binding, until: None, unclear_until };
        if self.pods.insert(key.clone(), one).is_none() {
            self.turn.push_back(key);
        }
    }

    /// Returns whether the pod must be forgotten now.
    pub fn end(&mut self, key: &PodKey, uid: &str, ending: Ending, now: Instant) -> bool {
        let Some(one) = self.pods.get_mut(key).filter(|one| one.uid == uid) else { return false };
        (one.stage, one.until) = match ending {
            Ending::Bound => (AssumptionStage::Bound, Some(now + SEEN_WITHIN)),
            Ending::Unclear => {
                one.unclear_until = Some(now + UNCLEAR_FOR);
                (AssumptionStage::Unclear, one.unclear_until)
            }
            // The outcome of the earlier binding is still unclear.
            Ending::Failed if one.unclear_until.is_some_and(|until| until > now) => {
                (AssumptionStage::Unclear, one.unclear_until)
            }
            Ending::Failed => {
                self.remove(key);
                return true;
            }
        };
        false
    }

    /// When the first assumption expires if nothing else happens.
    #[must_use]
    pub fn next_over(&self) -> Option<Instant> {
        if self.is_suspended {
            return None;
        }
        let first = self.pods.values().filter_map(|one| one.until).min()?;
        Some(self.resumes_at.map_or(first, |resumes_at| first.max(resumes_at)))
    }

    /// Checks a few assumptions, the least recently checked first. An assumption is dropped if `confirmed` returns
    /// true: the watched state has made it obsolete. Returns the assumptions that expired without that, to be
    /// forgotten.
    pub fn sweep(
        &mut self,
        now: Instant,
        confirmed: impl Fn(&PodKey, &Assumption) -> bool,
    ) -> Vec<(PodKey, Assumption)> {
        self.check(CHECKED_PER_SWEEP, now, confirmed)
    }

    /// Like [`Assumptions::sweep`], for all assumptions.
    pub fn sweep_all(
        &mut self,
        now: Instant,
        confirmed: impl Fn(&PodKey, &Assumption) -> bool,
    ) -> Vec<(PodKey, Assumption)> {
        self.check(usize::MAX, now, confirmed)
    }

    fn check(
        &mut self,
        at_most: usize,
        now: Instant,
        confirmed: impl Fn(&PodKey, &Assumption) -> bool,
    ) -> Vec<(PodKey, Assumption)> {
        let mut over = Vec::new();
        for _ in 0..at_most.min(self.turn.len()) {
            let Some(key) = self.turn.pop_front() else { break };
            let Some(one) = self.pods.get(&key) else { continue };
            let binding = one.stage == AssumptionStage::Binding;
            if !binding && confirmed(&key, one) {
                self.pods.remove(&key);
            } else if !binding && self.is_over(one, now) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> PodKey {
        ("ns".to_owned(), name.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn number_3_nothing_expires_while_pods_are_not_watched_nor_right_after_their_list() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let never = |_: &PodKey, _: &Assumption| false;
        let mut assumptions = Assumptions::default();
        for (name, ending) in [("bound", Ending::Bound), ("unclear", Ending::Unclear)] {
            assumptions.begin(key(name), "u".to_owned(), "n1".to_owned());
            assert!(!assumptions.end(&key(name), "u", ending, at(0)));
        }
        assumptions.suspend();
        assert_eq!((assumptions.sweep_all(at(9000), never).len(), assumptions.next_over()), (0, None));
        let elsewhere = assumptions.may_begin(&key("unclear"), "u", "n2", at(9000));
        assert_eq!(elsewhere, Err(Busy::Unclear { node: "n1".to_owned() }));
        let expire_from = assumptions.resume(at(9000));
        assert!(expire_from > at(9000) && assumptions.next_over() == Some(expire_from));
        assert!(assumptions.sweep_all(at(9001), never).is_empty());
        assert_eq!(assumptions.sweep_all(expire_from, never).len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn one_binding_at_a_time_and_the_expiry_depends_on_how_it_ended() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let never = |_: &PodKey, _: &Assumption| false;
        let mut assumptions = Assumptions::default();
        assumptions.begin(key("a"), "u1".to_owned(), "n1".to_owned());
        assert_eq!(assumptions.may_begin(&key("a"), "u1", "n1", at(0)), Err(Busy::UnderWay));
        assert_eq!(assumptions.may_begin(&key("a"), "u2", "n1", at(0)), Ok(()), "another pod of that name");
        assert!(assumptions.sweep(at(9999), never).is_empty(), "a binding under way is never over");

        assert!(!assumptions.end(&key("a"), "u1", Ending::Unclear, at(0)));
        assert_eq!(assumptions.may_begin(&key("a"), "u1", "n1", at(1)), Ok(()));
        let elsewhere = assumptions.may_begin(&key("a"), "u1", "n2", at(1));
        assert_eq!(elsewhere, Err(Busy::Unclear { node: "n1".to_owned() }));
        assert!(assumptions.sweep(at(29), never).is_empty());
        assert_eq!(assumptions.next_over(), Some(at(30)));
        assert_eq!(assumptions.may_begin(&key("a"), "u1", "n2", at(30)), Ok(()));
        assert_eq!(assumptions.sweep(at(30), never).len(), 1);
        assert!(assumptions.is_empty());

        assumptions.begin(key("a"), "u1".to_owned(), "n1".to_owned());
        assert!(!assumptions.end(&key("a"), "u1", Ending::Unclear, at(0)));
        assumptions.begin(key("a"), "u1".to_owned(), "n1".to_owned());
        assert!(!assumptions.end(&key("a"), "u1", Ending::Failed, at(10)), "the first one may still take effect");
        assert_eq!(assumptions.next_over(), Some(at(30)));
        assert_eq!(assumptions.sweep(at(30), never).len(), 1);

        assumptions.begin(key("b"), "u1".to_owned(), "n1".to_owned());
        assert!(assumptions.end(&key("b"), "u1", Ending::Failed, at(0)));
        assert!(assumptions.is_empty() && assumptions.turn.is_empty());

        assumptions.begin(key("c"), "u1".to_owned(), "n1".to_owned());
        assert!(!assumptions.end(&key("c"), "u1", Ending::Bound, at(0)));
        let again = assumptions.may_begin(&key("c"), "u1", "n2", at(1));
        assert_eq!(again, Err(Busy::Bound { node: "n1".to_owned() }));
        assert!(assumptions.sweep(at(100), never).is_empty());
        assert!(assumptions.sweep(at(100), |_, _| true).is_empty());
        assert!(assumptions.is_empty(), "shown as bound");
    }
}
