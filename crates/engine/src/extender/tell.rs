//! Which pod on which host is in the way: once, as an event on the pod that waits.
//!
//! kube-scheduler's own event only counts nodes by reason. An event is posted when no node fits, when what stands in the
//! way has changed, and not too soon after the last one, because a pod that waits is asked about again and again.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use model::event::PodFacts;
use tokio::time::Instant;

use super::judge::Judge;
use super::{Extender, NodeVerdict, lock};
use crate::ports::{Notice, NoticeSubject, Severity};

/// The same is not told again within this time, and something else not within the second one.
const SAME_AFTER: Duration = Duration::from_secs(3600);
const OTHER_AFTER: Duration = Duration::from_secs(30);
/// Pods that are remembered; the longest not told of is forgotten first.
const PODS_MAX: usize = 4096;
/// Nodes that are named.
const NODES_NAMED_MAX: usize = 3;

/// What was told last of each pod, by UID.
#[derive(Debug, Default)]
pub(super) struct Teller {
    told: BTreeMap<String, (String, Instant)>,
    turn: VecDeque<String>,
}

impl Teller {
    /// Whether anything may be told of the pod now.
    fn is_open(&self, uid: &str, now: Instant) -> bool {
        self.told.get(uid).is_none_or(|(_, at)| now.saturating_duration_since(*at) >= OTHER_AFTER)
    }

    /// Whether this is to be told now; if so it counts as told.
    fn take(&mut self, uid: &str, message: &str, now: Instant) -> bool {
        match self.told.get_mut(uid) {
            Some((last, at)) => {
                let wait = if last == message { SAME_AFTER } else { OTHER_AFTER };
                if now.saturating_duration_since(*at) < wait {
                    return false;
                }
                (*last, *at) = (message.to_owned(), now);
            }
            None => {
                if self.told.len() >= PODS_MAX
                    && let Some(oldest) = self.turn.pop_front()
                {
                    self.told.remove(&oldest);
                }
                self.told.insert(uid.to_owned(), (message.to_owned(), now));
                self.turn.push_back(uid.to_owned());
            }
        }
        true
    }
}

/// What stands in the way on the first few nodes, one of each host.
pub(super) fn obstacles(judge: &Judge<'_>, nodes: &[&str], verdicts: &[NodeVerdict]) -> String {
    let mut text = String::from("no node fits:");
    let mut named = 0;
    let mut hosts = Vec::new();
    for (name, verdict) in nodes.iter().zip(verdicts) {
        let NodeVerdict::Fails(reason) = verdict else { continue };
        let host = judge.host_of(name);
        if host.as_ref().is_some_and(|host| hosts.contains(host)) {
            continue;
        }
        if named == NODES_NAMED_MAX {
            break;
        }
        let separator = if named == 0 { " " } else { "; " };
        named += 1;
        let _ = write!(text, "{separator}{name}");
        if let Some(host) = host {
            let _ = write!(text, " on {host}");
            hosts.push(host);
        }
        match judge.blocker(name) {
            Some(blocker) => {
                let _ = write!(text, ": {blocker}");
            }
            None => {
                let _ = write!(text, ": {}", reason.text());
            }
        }
    }
    if nodes.len() > named {
        let _ = write!(text, "; {} nodes in all", nodes.len());
    }
    text
}

impl Extender {
    pub(super) fn may_tell(&self, pod: &PodFacts) -> bool {
        !self.settings.dry_run && lock(&self.teller).is_open(&pod.uid, Instant::now())
    }

    pub(super) fn tell(&self, pod: &PodFacts, message: String) {
        if self.settings.dry_run || !lock(&self.teller).take(&pod.uid, &message, Instant::now()) {
            return;
        }
        let Ok(place) = self.telling.clone().try_acquire_owned() else {
            self.counts.notices_lost.add(1);
            return;
        };
        let about =
            NoticeSubject::Pod { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() };
        let notice = Notice { about, severity: Severity::Warning, reason: "NoHostFits", message };
        let (board, counts) = (Arc::clone(&self.ports.notices), Arc::clone(&self.counts));
        tokio::spawn(async move {
            let _place = place;
            match board.post(&notice).await {
                Ok(()) => counts.notices_posted.add(1),
                Err(error) => {
                    counts.notices_lost.add(1);
                    tracing::debug!(%error, "a notice could not be posted");
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_told_of_once_and_again_when_something_else_is_in_the_way() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut teller = Teller::default();
        assert!(teller.take("u1", "a", at(0)));
        assert!(!teller.take("u1", "a", at(600)));
        assert!(teller.take("u2", "a", at(600)));
        assert!(teller.take("u1", "b", at(600)));
        assert!(!teller.is_open("u1", at(610)) && teller.is_open("u1", at(640)) && teller.is_open("u3", at(0)));
        assert!(!teller.take("u1", "a", at(610)), "not too soon after the last");
        assert!(teller.take("u1", "a", at(640)));
        assert!(teller.take("u1", "a", at(640 + 3600)));
        for number in 0..2 * PODS_MAX {
            assert!(teller.take(&format!("p{number}"), "a", at(0)));
        }
        assert_eq!((teller.told.len(), teller.turn.len()), (PODS_MAX, PODS_MAX));
    }
}
