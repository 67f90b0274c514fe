//! The pods of recent filter requests, by UID.
//!
//! A bind request only names a pod, and this process may observe a pod later than kube-scheduler. In that case the pod
//! from kube-scheduler's last filter request is used. The entry also holds whether lifted terms were relaxed.
//!
//! Invariant: bounded; the least recently requested pod is evicted first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use model::event::PodFacts;

const PODS_MAX: usize = 4096;

/// The last filter request for a pod.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) pod: Arc<PodFacts>,
    /// The lifted terms were relaxed to nodes in the response.
    pub(super) relaxed: bool,
}

/// Tenants choose the keys, hence std's keyed hash. Never iterated.
#[derive(Debug, Default)]
pub(super) struct Recent {
    pods: HashMap<String, (Asked, u64)>,
    /// UIDs with the number of the request; an entry with an older number than the pod's own is obsolete.
    turn: VecDeque<(String, u64)>,
    questions: u64,
}

impl Recent {
    pub(super) fn remember(&mut self, pod: PodFacts, relaxed: bool) {
        self.questions += 1;
        self.turn.push_back((pod.uid.clone(), self.questions));
        self.pods.insert(pod.uid.clone(), (Asked { pod: Arc::new(pod), relaxed }, self.questions));
        while self.turn.len() > PODS_MAX {
            let Some((uid, question)) = self.turn.pop_front() else { break };
            if self.pods.get(&uid).is_some_and(|(_, last)| *last == question) {
                self.pods.remove(&uid);
            }
        }
    }

    pub(super) fn find(&self, uid: &str) -> Option<Asked> {
        self.pods.get(uid).map(|(asked, _)| asked.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_requested_pod_is_evicted() {
        let pod =
            |uid: &str, name: &str| PodFacts { uid: uid.to_owned(), name: name.to_owned(), ..PodFacts::default() };
        let mut recent = Recent::default();
        recent.remember(pod("first", "a"), false);
        for number in 0..PODS_MAX - 1 {
            recent.remember(pod(&number.to_string(), "b"), false);
        }
        assert!(recent.find("first").is_some());
        recent.remember(pod("first", "c"), true);
        let again = recent.find("first").expect("requested again");
        assert!(again.pod.name == "c" && again.relaxed);
        assert!(recent.find("0").is_some());
        recent.remember(pod("last", "d"), false);
        assert!(recent.find("0").is_none() && recent.find("1").is_some());
        assert!(recent.pods.len() <= PODS_MAX && recent.turn.len() <= PODS_MAX);
    }
}
