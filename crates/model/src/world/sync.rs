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
    pub(crate) fn was_ever_synced(self) -> bool {
        matches!(self, Self::InSync | Self::Lost | Self::Relisting { was_synced: true })
    }
}

/// Counts the relists of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Generation(u32);

#[derive(Debug, Default)]
pub(crate) struct Sources(BTreeMap<Source, (SourceState, Generation)>);

impl Sources {
    pub(crate) fn state(&self, source: Source) -> SourceState {
        self.0.get(&source).map(|&(state, _)| state).unwrap_or_default()
    }

    /// The generation that an object applied now carries.
    pub(crate) fn generation(&self, source: Source) -> Generation {
        self.0.get(&source).map(|&(_, generation)| generation).unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Source, SourceState)> {
        self.0.iter().map(|(&source, &(state, _))| (source, state))
    }

    pub(crate) fn relist_began(&mut self, source: Source) {
        let (state, generation) = self.0.entry(source).or_default();
        *state = SourceState::Relisting { was_synced: state.was_ever_synced() };
        generation.0 = generation.0.wrapping_add(1);
    }

    /// Returns the generation whose objects stay, or `None` if no relist was in progress: without a relist, a missing
    /// object is not known to be deleted.
    #[must_use]
    pub(crate) fn relist_ended(&mut self, source: Source) -> Option<Generation> {
        let (state, generation) = self.0.get_mut(&source)?;
        if !matches!(state, SourceState::Relisting { .. }) {
            return None;
        }
        *state = SourceState::InSync;
        Some(*generation)
    }

    pub(crate) fn lost(&mut self, source: Source) {
        let (state, _) = self.0.entry(source).or_default();
        *state = if state.was_ever_synced() { SourceState::Lost } else { SourceState::NeverSynced };
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
