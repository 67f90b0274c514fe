//! Decides when to write which node's labels.
//!
//! In: after every change of the world, the desired labels of a node and the differences ([`Labeller::observe`]); the
//! outcome of each write. Out: which node is due ([`Labeller::take_due`]). *What* to write is computed from the latest
//! world when a node is due, so there is no queue of old decisions.
//!
//! Invariants:
//! - A node whose labels are correct is never due.
//! - A successful write is not repeated while its echo (the watch showing the new label) is awaited. If the echo does
//!   not arrive, the node is checked again.
//! - Labels that were correct until another client changed them are restored at most [`CORRECTIONS_MAX`] times per
//!   [`CORRECTIONS_PER`] and node: two tools that disagree must not write forever at full speed.
//! - A failed write is retried with growing intervals.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use model::WantedLabels;
use tokio::time::Instant;

use crate::ports::{LabelChanges, PortError};
use crate::runtime::{Backoff, Jitter};

pub const CORRECTIONS_MAX: usize = 3;
pub const CORRECTIONS_PER: Duration = Duration::from_secs(60);
/// How long the watch may take to show a write.
const ECHO_WITHIN: Duration = Duration::from_secs(10);

/// The result of [`Labeller::observe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The labels are correct.
    Correct,
    /// A write is due, or will be.
    Due,
    /// The watch does not show the last write yet.
    AwaitingEcho,
    /// The labels were correct until another client changed them.
    ChangedByOthers,
}

#[derive(Debug, Default)]
struct NodeState {
    /// The desired labels when the node was last observed with correct labels.
    last_correct: Option<WantedLabels>,
    due: Option<Instant>,
    awaiting: Option<(LabelChanges, Instant)>,
    /// The last write, until the watch shows correct labels.
    written: Option<LabelChanges>,
    failures: u32,
    corrections: VecDeque<Instant>,
}

#[derive(Debug)]
pub struct Labeller {
    nodes: BTreeMap<String, NodeState>,
    due: BTreeSet<(Instant, String)>,
    backoff: Backoff,
    jitter: Jitter,
}

impl Labeller {
    #[must_use]
    pub fn new(backoff: Backoff, jitter: Jitter) -> Labeller {
        Labeller { nodes: BTreeMap::new(), due: BTreeSet::new(), backoff, jitter }
    }

    /// Updates a node after a change of the world.
    pub fn observe(
        &mut self,
        node: &str,
        desired: &WantedLabels,
        differences: &LabelChanges,
        now: Instant,
    ) -> Observation {
        let state = self.nodes.entry(node.to_owned()).or_default();
        if differences.is_empty() {
            state.last_correct = Some(desired.clone());
            (state.awaiting, state.written) = (None, None);
            state.failures = 0;
            self.set_due(node, None);
            return Observation::Correct;
        }
        if let Some((written, since)) = &state.awaiting {
            if written == differences && now < *since + ECHO_WITHIN {
                return Observation::AwaitingEcho;
            }
            state.awaiting = None;
            self.set_due(node, None);
        }
        let Some(state) = self.nodes.get_mut(node) else { return Observation::Due };
        if state.last_correct.as_ref() == Some(desired) {
            // Counted once; from here on the labels are merely not correct yet.
            state.last_correct = None;
            let at = correction(&mut state.corrections, now);
            self.set_due(node, Some(at));
            return Observation::ChangedByOthers;
        }
        if state.due.is_none() {
            self.set_due(node, Some(now));
        }
        Observation::Due
    }

    /// The node was deleted.
    pub fn forget(&mut self, node: &str) {
        self.set_due(node, None);
        self.nodes.remove(node);
    }

    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(moment, _)| *moment)
    }

    /// What was written and is not on the watch yet.
    #[must_use]
    pub fn written(&self, node: &str) -> Option<&LabelChanges> {
        self.nodes.get(node)?.written.as_ref()
    }

    /// How many nodes wait for a write.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.due.len()
    }

    /// Takes a node that is due. The caller recomputes its labels and writes them if they differ.
    pub fn take_due(&mut self, now: Instant) -> Option<String> {
        let (moment, node) = self.due.first()?.clone();
        if moment > now {
            return None;
        }
        self.set_due(&node, None);
        Some(node)
    }

    /// The write succeeded; the watch will show it.
    pub fn succeeded(&mut self, node: &str, changes: LabelChanges, now: Instant) {
        let Some(state) = self.nodes.get_mut(node) else { return };
        state.failures = 0;
        state.written = Some(changes.clone());
        state.awaiting = Some((changes, now));
        self.set_due(node, Some(now + ECHO_WITHIN));
    }

    pub fn failed(&mut self, node: &str, error: &PortError, now: Instant) {
        let Some(state) = self.nodes.get_mut(node) else { return };
        // Another client may have changed it since.
        state.written = None;
        match error {
            PortError::NotFound(_) => self.forget(node),
            PortError::Transient(_) => {
                state.failures = state.failures.saturating_add(1);
                let wait = self.backoff.wait(state.failures, &mut self.jitter);
                self.set_due(node, Some(now + wait));
            }
            // A quick retry does not help: an administrator must grant a permission first.
            PortError::Permanent(_) | PortError::Invalid(_) => {
                state.failures = state.failures.saturating_add(1);
                let wait = self.backoff.longest;
                self.set_due(node, Some(now + wait));
            }
        }
    }

    /// Makes the node due at this moment even if nothing happens to it.
    pub fn postpone(&mut self, node: &str, until: Instant) {
        self.set_due(node, Some(until));
    }

    fn set_due(&mut self, node: &str, due: Option<Instant>) {
        let Some(state) = self.nodes.get_mut(node) else { return };
        if let Some(before) = state.due.take() {
            self.due.remove(&(before, node.to_owned()));
        }
        if let Some(moment) = due {
            state.due = Some(moment);
            self.due.insert((moment, node.to_owned()));
        }
    }
}

/// Counts a correction and returns when it may be sent.
fn correction(corrections: &mut VecDeque<Instant>, now: Instant) -> Instant {
    while corrections.front().is_some_and(|moment| now.saturating_duration_since(*moment) >= CORRECTIONS_PER) {
        corrections.pop_front();
    }
    let at = match corrections.len() {
        fewer if fewer < CORRECTIONS_MAX => now,
        // The window is full: this correction waits until the oldest one in it has expired.
        count => corrections[count - CORRECTIONS_MAX] + CORRECTIONS_PER,
    };
    corrections.push_back(at);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labeller() -> Labeller {
        let backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(60) };
        Labeller::new(backoff, Jitter::from_seed(1))
    }

    fn desired(host: &str) -> WantedLabels {
        WantedLabels::from([("host".to_owned(), host.to_owned())])
    }

    fn changes(host: &str) -> LabelChanges {
        LabelChanges::from([("host".to_owned(), Some(host.to_owned()))])
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_written_once_and_is_then_correct() {
        let mut labeller = labeller();
        let now = Instant::now();
        assert_eq!(labeller.observe("n1", &desired("a"), &changes("a"), now), Observation::Due);
        assert_eq!(labeller.take_due(now).as_deref(), Some("n1"));
        labeller.succeeded("n1", changes("a"), now);
        // The node is touched by something else before the echo: no second write.
        assert_eq!(labeller.observe("n1", &desired("a"), &changes("a"), now), Observation::AwaitingEcho);
        assert_eq!(labeller.take_due(now), None);
        assert_eq!(labeller.observe("n1", &desired("a"), &LabelChanges::new(), now), Observation::Correct);
        assert_eq!(labeller.next_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_the_watch_never_shows_makes_the_node_due_again() {
        let mut labeller = labeller();
        let now = Instant::now();
        labeller.observe("n1", &desired("a"), &changes("a"), now);
        labeller.take_due(now);
        labeller.succeeded("n1", changes("a"), now);
        assert_eq!(labeller.take_due(now + Duration::from_secs(9)), None);
        assert_eq!(labeller.take_due(now + Duration::from_secs(10)).as_deref(), Some("n1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_move_while_the_echo_is_awaited_is_written_immediately() {
        let mut labeller = labeller();
        let now = Instant::now();
        labeller.observe("n1", &desired("a"), &changes("a"), now);
        labeller.take_due(now);
        labeller.succeeded("n1", changes("a"), now);
        assert_eq!(labeller.observe("n1", &desired("b"), &changes("b"), now), Observation::Due);
        assert_eq!(labeller.take_due(now).as_deref(), Some("n1"));
    }

    #[tokio::test(start_paused = true)]
    async fn edits_by_another_client_are_reverted_a_few_times_a_minute() {
        let mut labeller = labeller();
        let start = Instant::now();
        let mut writes = Vec::new();
        // Another client reverts every write immediately, for five minutes.
        labeller.observe("n1", &desired("a"), &LabelChanges::new(), start);
        assert_eq!(labeller.observe("n1", &desired("a"), &changes("a"), start), Observation::ChangedByOthers);
        let mut now = start;
        while now < start + Duration::from_secs(300) {
            while labeller.take_due(now).is_some() {
                writes.push(now - start);
                labeller.succeeded("n1", changes("a"), now);
                labeller.observe("n1", &desired("a"), &LabelChanges::new(), now);
                labeller.observe("n1", &desired("a"), &changes("a"), now);
            }
            now += Duration::from_secs(1);
        }
        for window in writes.windows(CORRECTIONS_MAX + 1) {
            assert!(window[CORRECTIONS_MAX] - window[0] >= CORRECTIONS_PER, "{writes:?}");
        }
        assert!(writes.len() >= 4 * CORRECTIONS_MAX, "{writes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn retries_wait_longer_after_each_failure_and_a_deleted_node_is_forgotten() {
        let mut labeller = labeller();
        let mut now = Instant::now();
        labeller.observe("n1", &desired("a"), &changes("a"), now);
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert!(labeller.take_due(now).is_some());
            labeller.failed("n1", &PortError::Transient("busy".to_owned()), now);
            let due = labeller.next_due().unwrap();
            waits.push(due - now);
            now = due;
        }
        assert!(waits[7] > waits[0] * 10, "{waits:?}");
        labeller.take_due(now);
        labeller.failed("n1", &PortError::NotFound("n1".to_owned()), now);
        assert_eq!(labeller.next_due(), None);
    }
}
