//! When to write which node's labels.
//!
//! Input: after every change of the world, what a node's labels shall be and how they differ ([`Labeller::observe`]); the
//! outcome of each write. Output: which node is due ([`Labeller::take_due`]). *What* to write is worked out anew from the
//! latest world when a node is due, so a queue of old decisions cannot exist.
//!
//! Invariants:
//! - A node whose labels are right is never due.
//! - A write that succeeded is not repeated while its echo (the watch showing the new label) is on its way, but is looked
//!   at again if the echo does not come.
//! - Labels that were right and that somebody else changed are put right at most [`CORRECTIONS_MAX`] times per
//!   [`CORRECTIONS_PER`] and node: two tools that disagree must not write for ever at full speed.
//! - A failed write is tried again later and later.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use model::WantedLabels;
use tokio::time::Instant;

use crate::ports::{LabelChanges, PortError};
use crate::runtime::{Backoff, Jitter};

pub const CORRECTIONS_MAX: usize = 3;
pub const CORRECTIONS_PER: Duration = Duration::from_secs(60);
/// How long the watch may take to show what was written.
const ECHO_WITHIN: Duration = Duration::from_secs(10);

/// What [`Labeller::observe`] made of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The labels are right.
    Settled,
    /// A write is due, or will be.
    Due,
    /// What was written has not shown yet.
    AwaitingEcho,
    /// The labels were right, and somebody else changed them.
    ChangedByOthers,
}

#[derive(Debug, Default)]
struct NodeState {
    /// The labels that were wanted when they were last seen to be right.
    settled: Option<WantedLabels>,
    due: Option<Instant>,
    awaiting: Option<(LabelChanges, Instant)>,
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

    /// Looks at a node after the world changed.
    pub fn observe(
        &mut self,
        node: &str,
        wanted: &WantedLabels,
        differences: &LabelChanges,
        now: Instant,
    ) -> Observation {
        let state = self.nodes.entry(node.to_owned()).or_default();
        if differences.is_empty() {
            state.settled = Some(wanted.clone());
            state.awaiting = None;
            state.failures = 0;
            self.set_due(node, None);
            return Observation::Settled;
        }
        if let Some((written, since)) = &state.awaiting {
            if written == differences && now < *since + ECHO_WITHIN {
                return Observation::AwaitingEcho;
            }
            state.awaiting = None;
            self.set_due(node, None);
        }
        let Some(state) = self.nodes.get_mut(node) else { return Observation::Due };
        if state.settled.as_ref() == Some(wanted) {
            // Counted once; from here on the node is simply not right yet.
            state.settled = None;
            let at = correction(&mut state.corrections, now);
            self.set_due(node, Some(at));
            return Observation::ChangedByOthers;
        }
        if state.due.is_none() {
            self.set_due(node, Some(now));
        }
        Observation::Due
    }

    /// The node is gone.
    pub fn forget(&mut self, node: &str) {
        self.set_due(node, None);
        self.nodes.remove(node);
    }

    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(moment, _)| *moment)
    }

    /// How many nodes wait to be written.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.due.len()
    }

    /// Takes a node that is due; whoever takes it looks at it anew and writes, or lets it be.
    pub fn take_due(&mut self, now: Instant) -> Option<String> {
        let (moment, node) = self.due.first()?.clone();
        if moment > now {
            return None;
        }
        self.set_due(&node, None);
        Some(node)
    }

    /// The write was carried out; the watch will show it.
    pub fn succeeded(&mut self, node: &str, changes: LabelChanges, now: Instant) {
        let Some(state) = self.nodes.get_mut(node) else { return };
        state.failures = 0;
        state.awaiting = Some((changes, now));
        self.set_due(node, Some(now + ECHO_WITHIN));
    }

    pub fn failed(&mut self, node: &str, error: &PortError, now: Instant) {
        let Some(state) = self.nodes.get_mut(node) else { return };
        match error {
            PortError::NotFound(_) => self.forget(node),
            PortError::Transient(_) => {
                state.failures = state.failures.saturating_add(1);
                let wait = self.backoff.wait(state.failures, &mut self.jitter);
                self.set_due(node, Some(now + wait));
            }
            // Nothing will change soon: somebody must grant a permission first.
            PortError::Permanent(_) | PortError::Invalid(_) => {
                state.failures = state.failures.saturating_add(1);
                let wait = self.backoff.longest;
                self.set_due(node, Some(now + wait));
            }
        }
    }

    /// Looks at the node again then, though nothing happens to it.
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

/// When the next correction may go out; it is counted.
fn correction(corrections: &mut VecDeque<Instant>, now: Instant) -> Instant {
    while corrections.front().is_some_and(|moment| now.saturating_duration_since(*moment) >= CORRECTIONS_PER) {
        corrections.pop_front();
    }
    let at = match corrections.len() {
        fewer if fewer < CORRECTIONS_MAX => now,
        // The window holds as many as may go out in it: the next one waits until the oldest of those has left.
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

    fn wanted(host: &str) -> WantedLabels {
        WantedLabels::from([("host".to_owned(), host.to_owned())])
    }

    fn changes(host: &str) -> LabelChanges {
        LabelChanges::from([("host".to_owned(), Some(host.to_owned()))])
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_written_once_and_then_settles() {
        let mut labeller = labeller();
        let now = Instant::now();
        assert_eq!(labeller.observe("n1", &wanted("a"), &changes("a"), now), Observation::Due);
        assert_eq!(labeller.take_due(now).as_deref(), Some("n1"));
        labeller.succeeded("n1", changes("a"), now);
        // The node is touched by something else before the echo: no second write.
        assert_eq!(labeller.observe("n1", &wanted("a"), &changes("a"), now), Observation::AwaitingEcho);
        assert_eq!(labeller.take_due(now), None);
        assert_eq!(labeller.observe("n1", &wanted("a"), &LabelChanges::new(), now), Observation::Settled);
        assert_eq!(labeller.next_due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_never_shows_is_looked_at_again() {
        let mut labeller = labeller();
        let now = Instant::now();
        labeller.observe("n1", &wanted("a"), &changes("a"), now);
        labeller.take_due(now);
        labeller.succeeded("n1", changes("a"), now);
        assert_eq!(labeller.take_due(now + Duration::from_secs(9)), None);
        assert_eq!(labeller.take_due(now + Duration::from_secs(10)).as_deref(), Some("n1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_move_while_the_echo_is_awaited_is_written_at_once() {
        let mut labeller = labeller();
        let now = Instant::now();
        labeller.observe("n1", &wanted("a"), &changes("a"), now);
        labeller.take_due(now);
        labeller.succeeded("n1", changes("a"), now);
        assert_eq!(labeller.observe("n1", &wanted("b"), &changes("b"), now), Observation::Due);
        assert_eq!(labeller.take_due(now).as_deref(), Some("n1"));
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_elses_edits_are_put_right_a_few_times_a_minute() {
        let mut labeller = labeller();
        let start = Instant::now();
        let mut writes = Vec::new();
        // Somebody undoes every write at once, for five minutes.
        labeller.observe("n1", &wanted("a"), &LabelChanges::new(), start);
        assert_eq!(labeller.observe("n1", &wanted("a"), &changes("a"), start), Observation::ChangedByOthers);
        let mut now = start;
        while now < start + Duration::from_secs(300) {
            while labeller.take_due(now).is_some() {
                writes.push(now - start);
                labeller.succeeded("n1", changes("a"), now);
                labeller.observe("n1", &wanted("a"), &LabelChanges::new(), now);
                labeller.observe("n1", &wanted("a"), &changes("a"), now);
            }
            now += Duration::from_secs(1);
        }
        for window in writes.windows(CORRECTIONS_MAX + 1) {
            assert!(window[CORRECTIONS_MAX] - window[0] >= CORRECTIONS_PER, "{writes:?}");
        }
        assert!(writes.len() >= 4 * CORRECTIONS_MAX, "{writes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_and_longer_and_what_is_gone_is_forgotten() {
        let mut labeller = labeller();
        let mut now = Instant::now();
        labeller.observe("n1", &wanted("a"), &changes("a"), now);
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
