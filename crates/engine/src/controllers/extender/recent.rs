//! The pods that were asked about lately, by UID.
//!
//! A binding names a pod and brings none, and the watch may show a pod a moment later to this process than to
//! kube-scheduler: then what kube-scheduler sent with its last question serves. Beside it stands whether lifted terms yielded.
//!
//! Invariant: bounded; the longest not asked about is forgotten first.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use model::event::PodFacts;

const PODS_MAX: usize = 4096;

/// What was asked about a pod last.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) pod: Arc<PodFacts>,
    /// The answer took lifted terms as they are written.
    pub(super) relaxed: bool,
}

/// Tenants choose the keys, hence std's keyed hash. Never iterated.
#[derive(Debug, Default)]
pub(super) struct Recent {
    pods: HashMap<String, (Asked, u64)>,
    /// With the number of the question; an older number than the pod's own is out of date.
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
    fn the_longest_not_asked_about_is_forgotten() {
        let pod =
            |uid: &str, name: &str| PodFacts { uid: uid.to_owned(), name: name.to_owned(), ..PodFacts::default() };
        let mut recent = Recent::default();
        recent.remember(pod("first", "a"), false);
        for number in 0..PODS_MAX - 1 {
            recent.remember(pod(&number.to_string(), "b"), false);
        }
        assert!(recent.find("first").is_some());
        recent.remember(pod("first", "c"), true);
        let again = recent.find("first").expect("asked about again");
        assert!(again.pod.name == "c" && again.relaxed);
        assert!(recent.find("0").is_some());
        recent.remember(pod("last", "d"), false);
        assert!(recent.find("0").is_none() && recent.find("1").is_some());
        assert!(recent.pods.len() <= PODS_MAX && recent.turn.len() <= PODS_MAX);
    }
}
