//! Counters of the engine. Metrics read them; decisions never do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use crate::controllers::drs_rules::counters::{RuleCounters, RuleProblem};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub struct Counters {
    pub label_writes: Counter,
    pub label_writes_failed_transient: Counter,
    pub label_writes_failed_not_found: Counter,
    pub label_writes_failed_permanent: Counter,
    /// Labels that were correct until another client changed them.
    pub labels_changed_by_others: Counter,
    /// Lines of the audit log that could not be queued or written.
    pub audit_lines_lost: Counter,
    pub rules: Arc<RuleCounters>,
}
