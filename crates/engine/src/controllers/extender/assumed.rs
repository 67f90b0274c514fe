//! The assumed pods: placed here, and not yet shown as bound by the watch.
//!
//! In: bindings as they start and end, and the time. Out: whether a binding may start, and which assumptions have
//! expired. The world counts an assumed pod as placed; this module tracks for how long.
//!
//! Invariants: one binding of a pod at a time. An assumption is kept until it is known how the binding ended, however
//! long that takes: until then the pod may be bound. If the binding failed, the assumption ends at once. None expires
//! while pods are not watched, because then the watch shows nothing.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// How long a bound pod stays assumed without being shown by the watch. Longer than a dead watch can go unnoticed
/// (95 s); from then on nothing expires.
const SEEN_WITHIN: Duration = Duration::from_secs(120);
/// How long after a list of pods nothing expires: a pod that was bound during the list is shown by the watch after it.
const SHOWN_AFTER_LIST: Duration = Duration::from_secs(30);
/// How many assumptions are checked for expiry with each new one.
const CHECKED_PER_SWEEP: usize = 4;

/// Namespace and name.
pub type PodKey = (String, String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    pub uid: String,
    pub node: String,
    /// When it expires if the watch does not show the bound pod; `None` while it is not known how the binding ended.
    until: Option<Instant>,
}

/// Why a binding may not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Busy {
    /// An earlier binding has not ended, or it is not known yet how.
    UnderWay,
    /// The pod is bound, but the watch does not show it yet.
    Bound { node: String },
}

/// How a binding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Bound,
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

    /// Whether this pod was assumed here, and not by another controller.
    #[must_use]
    pub fn has(&self, key: &PodKey, uid: &str) -> bool {
        self.pods.get(key).is_some_and(|one| one.uid == uid)
    }

    /// Whether a binding of this pod may start.
    pub fn may_begin(&self, key: &PodKey, uid: &str, now: Instant) -> Result<(), Busy> {
        match self.pods.get(key) {
            Some(one) if one.uid != uid || self.is_over(one, now) => Ok(()),
            Some(one) if one.until.is_none() => Err(Busy::UnderWay),
            Some(one) => Err(Busy::Bound { node: one.node.clone() }),
            None => Ok(()),
        }
    }

    pub fn begin(&mut self, key: PodKey, uid: String, node: String) {
        if self.pods.insert(key.clone(), Assumption { uid, node, until: None }).is_none() {
            self.turn.push_back(key);
        }
    }

    /// Returns whether the pod must be forgotten now.
    pub fn end(&mut self, key: &PodKey, uid: &str, ending: Ending, now: Instant) -> bool {
        let Some(one) = self.pods.get_mut(key).filter(|one| one.uid == uid) else { return false };
        match ending {
            Ending::Bound => {
                one.until = Some(now + SEEN_WITHIN);
                false
            }
            Ending::Failed => {
                self.remove(key);
                true
            }
        }
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
            let has_ended = one.until.is_some();
            if has_ended && confirmed(&key, one) {
                self.pods.remove(&key);
            } else if has_ended && self.is_over(one, now) {
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
        for name in ["one", "other"] {
            assumptions.begin(key(name), "u".to_owned(), "n1".to_owned());
            assert!(!assumptions.end(&key(name), "u", Ending::Bound, at(0)));
        }
        assumptions.suspend();
        assert_eq!((assumptions.sweep_all(at(9000), never).len(), assumptions.next_over()), (0, None));
        let again = assumptions.may_begin(&key("one"), "u", at(9000));
        assert_eq!(again, Err(Busy::Bound { node: "n1".to_owned() }));
        let expire_from = assumptions.resume(at(9000));
        assert!(expire_from > at(9000) && assumptions.next_over() == Some(expire_from));
        assert!(assumptions.sweep_all(at(9001), never).is_empty());
        assert_eq!(assumptions.sweep_all(expire_from, never).len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn one_binding_at_a_time_and_none_is_over_before_it_is_known_how_it_ended() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let never = |_: &PodKey, _: &Assumption| false;
        let mut assumptions = Assumptions::default();
        assumptions.begin(key("a"), "u1".to_owned(), "n1".to_owned());
        assert_eq!(assumptions.may_begin(&key("a"), "u1", at(9999)), Err(Busy::UnderWay));
        assert_eq!(assumptions.may_begin(&key("a"), "u2", at(0)), Ok(()), "another pod of that name");
        assert!(assumptions.has(&key("a"), "u1") && !assumptions.has(&key("a"), "u2"));
        assert!(assumptions.sweep(at(9999), never).is_empty() && assumptions.next_over().is_none());
        assert!(assumptions.sweep(at(9999), |_, _| true).is_empty() && assumptions.len() == 1);

        assert!(!assumptions.end(&key("a"), "u2", Ending::Failed, at(0)), "another pod of that name");
        assert!(assumptions.end(&key("a"), "u1", Ending::Failed, at(0)));
        assert!(assumptions.is_empty() && assumptions.turn.is_empty());

        assumptions.begin(key("b"), "u1".to_owned(), "n1".to_owned());
        assert!(!assumptions.end(&key("b"), "u1", Ending::Bound, at(0)));
        assert_eq!(assumptions.may_begin(&key("b"), "u1", at(1)), Err(Busy::Bound { node: "n1".to_owned() }));
        assert!(assumptions.sweep(at(100), never).is_empty());
        assert!(assumptions.sweep(at(100), |_, _| true).is_empty());
        assert!(assumptions.is_empty(), "shown as bound");

        assumptions.begin(key("c"), "u1".to_owned(), "n1".to_owned());
        assert!(!assumptions.end(&key("c"), "u1", Ending::Bound, at(0)));
        assert_eq!(assumptions.next_over(), Some(at(120)));
        assert_eq!(assumptions.may_begin(&key("c"), "u1", at(120)), Ok(()));
        assert_eq!(assumptions.sweep(at(120), never).len(), 1);
        assert!(assumptions.is_empty() && assumptions.turn.is_empty());
    }
}
