//! The pods whose lifted terms were relaxed to nodes in the response to their last filter request, by UID.
//!
//! A bind request only names a pod. Its check must read the terms as the filter did, or it would reject what the filter
//! accepted.
//!
//! Invariant: bounded, in bytes too; the least recently requested pod is evicted first.

use std::collections::{HashMap, VecDeque};

use super::UID_BYTES_MAX;

const PODS_MAX: usize = 4096;

/// Tenants choose the keys, hence std's keyed hash. Never iterated.
#[derive(Debug, Default)]
pub(super) struct Relaxed {
    /// With the number of the request.
    pods: HashMap<String, u64>,
    /// An entry with an older number than the pod's own is obsolete.
    order: VecDeque<(String, u64)>,
    requests: u64,
}

impl Relaxed {
    pub(super) fn note(&mut self, uid: &str, relaxed: bool) {
        // No pod has a longer UID. The report on it was dropped and counted.
        if uid.len() > UID_BYTES_MAX {
            return;
        }
        if !relaxed {
            self.pods.remove(uid);
            return;
        }
        self.requests += 1;
        self.order.push_back((uid.to_owned(), self.requests));
        self.pods.insert(uid.to_owned(), self.requests);
        while self.order.len() > PODS_MAX {
            let Some((uid, request)) = self.order.pop_front() else { break };
            if self.pods.get(&uid) == Some(&request) {
                self.pods.remove(&uid);
            }
        }
    }

    pub(super) fn contains(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_requested_pod_is_evicted() {
        let mut relaxed = Relaxed::default();
        relaxed.note("first", true);
        for number in 0..PODS_MAX - 1 {
            relaxed.note(&number.to_string(), true);
        }
        assert!(relaxed.contains("first"));
        relaxed.note("first", true);
        assert!(relaxed.contains("0"));
        relaxed.note("last", true);
        assert!(!relaxed.contains("0") && relaxed.contains("1") && relaxed.contains("first"));
        relaxed.note("first", false);
        assert!(!relaxed.contains("first"));
        assert!(relaxed.pods.len() <= PODS_MAX && relaxed.order.len() <= PODS_MAX);
    }

    #[test]
    fn a_uid_that_no_pod_can_have_is_not_kept() {
        let mut relaxed = Relaxed::default();
        let (longest, longer) = ("u".repeat(UID_BYTES_MAX), "u".repeat(UID_BYTES_MAX + 1));
        relaxed.note(&longest, true);
        relaxed.note(&longer, true);
        assert!(relaxed.contains(&longest) && !relaxed.contains(&longer));
        assert_eq!((relaxed.pods.len(), relaxed.order.len()), (1, 1));
    }
}
