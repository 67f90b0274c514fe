//! What was said of a pod already: the same failure is not told again at each attempt.
//!
//! In: a pod's UID, a message and the time. Out: whether to say it. Bounded: when there are too many, what is old is forgotten
//! first, and then all of it; somebody is told twice, which does no harm.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::Instant;

/// The same is said again after this time, before Kubernetes forgets the first event (an hour).
const AGAIN_AFTER: Duration = Duration::from_secs(600);
const PODS_MAX: usize = 50_000;

#[derive(Default)]
pub(super) struct Told {
    pods: HashMap<String, (u64, Instant)>,
}

impl Told {
    pub(super) fn is_news(&mut self, uid: &str, message: &str, now: Instant) -> bool {
        let is_old = |at: Instant| now.duration_since(at) >= AGAIN_AFTER;
        if self.pods.len() >= PODS_MAX && !self.pods.contains_key(uid) {
            self.pods.retain(|_, (_, at)| !is_old(*at));
            if self.pods.len() >= PODS_MAX {
                self.pods.clear();
            }
        }
        let mut hasher = DefaultHasher::new();
        message.hash(&mut hasher);
        let said = hasher.finish();
        match self.pods.entry(uid.to_owned()) {
            Entry::Occupied(known) if known.get().0 == said && !is_old(known.get().1) => false,
            Entry::Occupied(mut known) => {
                known.insert((said, now));
                true
            }
            Entry::Vacant(place) => {
                place.insert((said, now));
                true
            }
        }
    }

    /// Nothing more is to be said of the pod.
    pub(super) fn forget(&mut self, uid: &str) {
        self.pods.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_is_not_said_again_too_soon() {
        let mut told = Told::default();
        let now = Instant::now();
        assert!(told.is_news("a", "full", now));
        assert!(!told.is_news("a", "full", now + Duration::from_secs(60)));
        assert!(told.is_news("b", "full", now));
        assert!(told.is_news("a", "tainted", now), "another reason");
        assert!(told.is_news("a", "tainted", now + AGAIN_AFTER));
        told.forget("a");
        assert!(told.is_news("a", "tainted", now + AGAIN_AFTER));
    }

    #[tokio::test(start_paused = true)]
    async fn it_does_not_grow_without_end() {
        let mut told = Told::default();
        let now = Instant::now();
        for number in 0..=PODS_MAX {
            assert!(told.is_news(&number.to_string(), "full", now));
        }
        assert!(told.pods.len() <= PODS_MAX);
    }
}
