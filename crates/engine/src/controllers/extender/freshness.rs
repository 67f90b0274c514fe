//! Whether answers may be computed from what is known of Kubernetes.
//!
//! In: changes, the world, the time. Out: yes, or the source that is missing. As for kube-scheduler, the last known
//! state is used while a source is listed again after a loss, but not forever. Shared, because answers are computed on
//! other threads than the loop's.
//!
//! Invariant: a source counts as lost from its loss until its next list is complete.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::event::Source;
use model::{Part, Subject, World, WorldChange};
use tokio::time::Instant;

use super::NotInSync;
use crate::runtime::STALE_MAX;

#[derive(Debug, Default)]
pub(super) struct Freshness {
    lost_at: Mutex<BTreeMap<Source, Instant>>,
}

impl Freshness {
    pub(super) fn observe(&self, change: &WorldChange, now: Instant) {
        match &change.subject {
            Subject::Lost(source) => drop(self.lock().entry(*source).or_insert(now)),
            Subject::RelistEnded { source, .. } => drop(self.lock().remove(source)),
            _ => (),
        }
    }

    pub(super) fn check(&self, world: &World, now: Instant) -> Result<(), NotInSync> {
        if let Some(row) = world.missing(Part::Extender.into()).next() {
            return Err(NotInSync(row.source));
        }
        let lost_at = self.lock();
        let mut lost = model::sources_for(Part::Extender.into()).filter_map(|row| lost_at.get_key_value(&row.source));
        match lost.find(|(_, since)| now.saturating_duration_since(**since) > STALE_MAX) {
            Some((source, _)) => Err(NotInSync(*source)),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Source, Instant>> {
        self.lost_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
