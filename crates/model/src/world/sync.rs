//! How far each source can be trusted.
//!
//! In: the marks of the stream (`RelistBegan`, `RelistEnded`, `Lost`). Out: a [`SourceState`] per source, and the
//! generation of its current relist: an object carries the generation in which it was last applied, so at the end of a
//! relist those with an older one are gone. A relist that begins anew has a new generation, so what an unfinished one
//! brought does not count.
//!
//! Invariant: `Lost` means a whole picture was had once; a source that never gave one is `NeverSynced` even when it
//! breaks.

use std::collections::BTreeMap;

use crate::event::Source;

/// What can be said of all that is known from one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceState {
    /// The picture was never whole.
    #[default]
    NeverSynced,
    /// Being listed.
    Relisting {
        /// There is an older whole picture to go on from meanwhile.
        was_synced: bool,
    },
    /// Whole, and changes arrive as they happen.
    InSync,
    /// The last that was known of a picture that was whole.
    Lost,
}

impl SourceState {
    /// The picture was whole at least once: answers can be given from it, though maybe old ones.
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

    /// What an object applied now carries.
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

    /// Returns the generation that stays, or `None` when no relist was under way: without one, nothing says that what
    /// did not appear is gone.
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
    fn states_follow_the_marks() {
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
