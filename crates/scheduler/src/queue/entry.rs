//! The queue's entry for a pod: its state, and what determines when it is tried again.

use std::time::Duration;

use model::storage::uid::Uid;

use super::Newcomer;
use crate::config::PodBackoff;
use crate::framework::points::QueuedPod;
use crate::framework::profile::PluginBits;
use crate::framework::sort_key::SortKey;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueState {
    Active,
    PodBackoff {
        due: Duration,
    },
    Unschedulable,
    /// A PreEnqueue plugin rejects it.
    Gated,
    /// Being placed, or waiting for permission. Changes from this number on may help it.
    InFlight {
        from: u64,
    },
    /// Being bound to its node.
    Binding,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) uid: Uid,
    pub(super) profile: usize,
    pub(super) state: QueueState,
    /// When it was added, or last failed.
    pub(super) queued_at: Duration,
    pub(super) since: Duration,
    pub(super) flush_at: Duration,
    pub(super) ticket: u64,
    /// Its place in the active queue, if it was ever there.
    pub(super) key: Option<SortKey>,
    pub(super) attempts: u32,
    /// Attempts in which plugins rejected it.
    pub(super) rejections: u32,
    /// Attempts in a row that failed for another reason.
    pub(super) errors: u32,
    /// The plugins that rejected it last.
    pub(super) rejectors: PluginBits,
    /// The plugins for which it is counted as waiting, until it is tried again.
    pub(super) counted: PluginBits,
    /// It was gated at its last move.
    pub(super) is_gated: bool,
    /// The last message reported about it.
    pub(super) reported: Option<Box<str>>,
    pub(super) held: Held,
}

/// Whether a pod waits for something that this scheduler does for it, so that it is not tried meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Held {
    #[default]
    No,
    Yes,
    /// Something that can help it happened meanwhile.
    YesAndHelped,
}

impl Entry {
    pub(super) fn new(newcomer: Newcomer, now: Duration) -> Self {
        Self {
            uid: newcomer.uid,
            profile: newcomer.profile,
            state: QueueState::Binding,
            queued_at: now,
            since: now,
            flush_at: now,
            ticket: 0,
            key: None,
            attempts: 0,
            rejections: 0,
            errors: 0,
            rejectors: PluginBits::default(),
            counted: PluginBits::default(),
            is_gated: false,
            reported: None,
            held: Held::No,
        }
    }

    /// What a QueueSort plugin reads.
    pub(super) fn queued(&self) -> QueuedPod {
        QueuedPod { added_at: self.since, queued_at: self.queued_at, attempts: self.attempts }
    }

    /// Errors are counted separately: their backoff protects the API server, not the queue.
    pub(super) fn backs_off_until(&self, backoff: &PodBackoff) -> Duration {
        let count = if self.errors > 0 { self.errors } else { self.rejections };
        if count == 0 {
            return self.queued_at;
        }
        let doublings = 2u32.checked_pow(count - 1).and_then(|times| backoff.initial.checked_mul(times));
        self.queued_at + doublings.map_or(backoff.max, |pause| pause.min(backoff.max))
    }
}
