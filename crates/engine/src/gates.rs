//! May anything be written now?
//!
//! Nothing is written before the sources a decision rests on are in sync, and nothing once one of them has been lost for
//! longer than a limit: until then what was last known is still good enough to put a label right.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::event::{Event, Source};
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Never seen whole.
    Unknown,
    InSync,
    /// Seen whole once, and lost at this moment.
    LostAt(Instant),
}

/// What is known of each source's freshness.
#[derive(Debug)]
pub struct Gates {
    sources: BTreeMap<Source, State>,
    relisting: BTreeSet<Source>,
    stale_max: Duration,
}

/// Why a gate is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    NeverInSync,
    Stale { lost_for: Duration },
}

impl Gates {
    #[must_use]
    pub fn new(stale_max: Duration) -> Gates {
        Gates { sources: BTreeMap::new(), relisting: BTreeSet::new(), stale_max }
    }

    /// Takes note of what an event says about its source.
    pub fn observe(&mut self, event: &Event, now: Instant) {
        match event {
            Event::RelistBegan(source) => {
                self.relisting.insert(*source);
            }
            Event::RelistEnded(source) => {
                self.relisting.remove(source);
                self.sources.insert(*source, State::InSync);
            }
            Event::Lost(source) => {
                self.relisting.remove(source);
                let state = self.sources.entry(*source).or_insert(State::Unknown);
                if *state == State::InSync {
                    *state = State::LostAt(now);
                }
            }
            _ => (),
        }
    }

    /// Whether decisions that rest on this source may be carried out. While a source lists again, what was known of it is
    /// still there.
    pub fn check(&self, source: Source, now: Instant) -> Result<(), Closed> {
        match self.sources.get(&source).copied().unwrap_or(State::Unknown) {
            State::Unknown => Err(Closed::NeverInSync),
            State::InSync => Ok(()),
            State::LostAt(moment) => {
                let lost_for = now.saturating_duration_since(moment);
                if lost_for > self.stale_max { Err(Closed::Stale { lost_for }) } else { Ok(()) }
            }
        }
    }

    /// Whether decisions may be carried out that rest on all of a source at one moment: not while it is listed again, when
    /// some of what is known is new and the rest is from before.
    #[must_use]
    pub fn settled(&self, source: Source, now: Instant) -> bool {
        !self.relisting.contains(&source) && self.check(source, now).is_ok()
    }

    /// In sync right now, not merely fresh enough.
    #[must_use]
    pub fn in_sync(&self, source: Source) -> bool {
        self.sources.get(&source) == Some(&State::InSync)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_gate_opens_with_the_first_whole_picture_and_closes_some_time_after_the_source_is_lost() {
        let mut gates = Gates::new(Duration::from_secs(60));
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        assert_eq!(gates.check(Source::Nodes, at(0)), Err(Closed::NeverInSync));
        gates.observe(&Event::Lost(Source::Nodes), at(0));
        assert_eq!(gates.check(Source::Nodes, at(0)), Err(Closed::NeverInSync));
        gates.observe(&Event::RelistBegan(Source::Nodes), at(0));
        assert_eq!(gates.check(Source::Nodes, at(0)), Err(Closed::NeverInSync));
        gates.observe(&Event::RelistEnded(Source::Nodes), at(0));
        assert_eq!(gates.check(Source::Nodes, at(500)), Ok(()));

        gates.observe(&Event::Lost(Source::Nodes), at(500));
        // Hearing of the loss again does not make it younger.
        gates.observe(&Event::Lost(Source::Nodes), at(550));
        assert_eq!(gates.check(Source::Nodes, at(560)), Ok(()));
        assert!(!gates.in_sync(Source::Nodes));
        assert_eq!(gates.check(Source::Nodes, at(561)), Err(Closed::Stale { lost_for: Duration::from_secs(61) }));
        gates.observe(&Event::RelistBegan(Source::Nodes), at(600));
        assert!(!gates.settled(Source::Nodes, at(600)));
        gates.observe(&Event::RelistEnded(Source::Nodes), at(600));
        assert!(gates.settled(Source::Nodes, at(600)));
        gates.observe(&Event::RelistBegan(Source::Nodes), at(600));
        assert!(gates.check(Source::Nodes, at(600)).is_ok() && !gates.settled(Source::Nodes, at(600)));
        assert_eq!(gates.check(Source::Nodes, at(600)), Ok(()));
    }
}
