//! The sync state of each source.
//!
//! In: the sync events of the stream (`RelistBegan`, `RelistEnded`, `Lost`). Out: a [`SourceState`] per source, and the
//! generation of its current relist: an object carries the generation in which it was last applied, so at the end of a
//! relist, objects with an older generation have been deleted. A restarted relist has a new generation, so objects from
//! an unfinished relist do not count.
//!
//! Invariant: `Lost` means that a list was complete once; a source that never completed a list is `NeverSynced` even
//! after its stream breaks.

use std::collections::BTreeMap;

use crate::event::Source;

/// The sync state of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceState {
    /// No list was ever complete.
    #[default]
    NeverSynced,
    /// Being listed.
    Relisting {
        /// An older complete list can be used in the meantime.
        was_synced: bool,
    },
    /// The list is complete, and changes arrive as they happen.
    InSync,
    /// The list was complete, but updates stopped: only the last known state is left.
    Lost,
}

impl SourceState {
    /// A list was complete at least once: answers can be computed from it, but may be stale.
    pub fn was_ever_synced(self) -> bool {
        matches!(self, Self::InSync | Self::Lost | Self::Relisting { was_synced: true })
    }
}

/// Counts the relists of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation(u32);

#[derive(Debug, Default)]
pub(crate) struct Sources(BTreeMap<Source, Followed>);

#[derive(Debug, Default)]
struct Followed {
    state: SourceState,
    generation: Generation,
    /// The last attempt to list it failed.
    has_failed: bool,
    /// How many lists were complete.
    lists: u64,
}

impl Sources {
    pub(crate) fn state(&self, source: Source) -> SourceState {
        self.0.get(&source).map(|followed| followed.state).unwrap_or_default()
    }

    /// The generation that an object applied now carries.
    pub(crate) fn generation(&self, source: Source) -> Generation {
        self.0.get(&source).map(|followed| followed.generation).unwrap_or_default()
    }

    /// It was listed once, or is known to be down.
    pub(crate) fn has_answered(&self, source: Source) -> bool {
        self.0.get(&source).is_some_and(|followed| followed.state.was_ever_synced() || followed.has_failed)
    }

    /// How many lists of it were complete.
    pub(crate) fn lists(&self, source: Source) -> u64 {
        self.0.get(&source).map_or(0, |followed| followed.lists)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Source, SourceState)> {
        self.0.iter().map(|(&source, followed)| (source, followed.state))
    }

    pub(crate) fn relist_began(&mut self, source: Source) {
        let followed = self.0.entry(source).or_default();
        followed.state = SourceState::Relisting { was_synced: followed.state.was_ever_synced() };
        followed.generation.0 = followed.generation.0.wrapping_add(1);
    }

    /// Returns the generation whose objects stay, or `None` if no relist was in progress: without a relist, a missing
    /// object is not known to be deleted.
    #[must_use]
    pub(crate) fn relist_ended(&mut self, source: Source) -> Option<Generation> {
        let followed = self.0.get_mut(&source)?;
        if !matches!(followed.state, SourceState::Relisting { .. }) {
            return None;
        }
        (followed.state, followed.has_failed) = (SourceState::InSync, false);
        followed.lists += 1;
        Some(followed.generation)
    }

    pub(crate) fn lost(&mut self, source: Source) {
        let followed = self.0.entry(source).or_default();
        let was_synced = followed.state.was_ever_synced();
        followed.state = if was_synced { SourceState::Lost } else { SourceState::NeverSynced };
        followed.has_failed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    enum Mark {
        Began,
        Ended,
        Lost,
    }
    use Mark::{Began, Ended};

    #[test]
    fn states_follow_the_sync_events() {
        let relisting = |was_synced| SourceState::Relisting { was_synced };
        let cases: &[(&[Mark], SourceState)] = &[
            (&[], SourceState::NeverSynced),
            (&[Mark::Lost], SourceState::NeverSynced),
            (&[Ended], SourceState::NeverSynced),
            (&[Began], relisting(false)),
            (&[Began, Began], relisting(false)),
            (&[Began, Mark::Lost], SourceState::NeverSynced),
            (&[Began, Mark::Lost, Ended], SourceState::NeverSynced),
            (&[Began, Ended], SourceState::InSync),
            (&[Began, Ended, Ended], SourceState::InSync),
            (&[Began, Ended, Mark::Lost], SourceState::Lost),
            (&[Began, Ended, Mark::Lost, Ended], SourceState::Lost),
            (&[Began, Ended, Mark::Lost, Began], relisting(true)),
            (&[Began, Ended, Began, Began], relisting(true)),
            (&[Began, Ended, Began, Mark::Lost], SourceState::Lost),
            (&[Began, Ended, Began, Mark::Lost, Began, Ended], SourceState::InSync),
        ];
        for (number, (marks, expected)) in cases.iter().enumerate() {
            let mut sources = Sources::default();
            for mark in *marks {
                match mark {
                    Began => sources.relist_began(Source::Pods),
                    Ended => {
                        let _ = sources.relist_ended(Source::Pods);
                    }
                    Mark::Lost => sources.lost(Source::Pods),
                }
            }
            assert_eq!(sources.state(Source::Pods), *expected, "case {number}");
            assert_eq!(sources.state(Source::Nodes), SourceState::NeverSynced);
        }
    }
}
