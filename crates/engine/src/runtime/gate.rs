//! Decides whether an action may be sent now.
//!
//! In: the sync state of each source, whether this is a dry run, who holds which lease. Out: yes, or the reason why
//! not, for one action. Controllers ask before they decide, and the runtime asks again when it sends an action.
//!
//! Invariants: nothing is written before the sources that it depends on are in sync, nor after one of them has been
//! lost for longer than a limit. Until then the last known state is good enough to correct a label. Nothing is written
//! without the controller's lease, nor in a dry run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::event::Source;
use model::{Subject, WorldChange};
use tokio::time::Instant;

use super::election::Lease;

/// The state of a source that an action requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceRequirement {
    /// It was in sync, and has not been lost for too long. During a relist the earlier objects are still known.
    Fresh(Source),
    /// The same, and no relist is under way. During a relist some objects are new and the rest are from before.
    Settled(Source),
}

/// An operation on an external system.
pub trait Action: Send + 'static {
    /// Whether it changes anything there. A read needs neither a lease nor a source.
    fn is_write(&self) -> bool;

    /// What must hold when it is sent.
    fn requirements(&self) -> Vec<SourceRequirement> {
        Vec::new()
    }
}

/// Why an action may not be sent. The variant's name is the metric's label value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    DryRun,
    NoLease,
    NeverInSync(Source),
    Relisting(Source),
    Stale { source: Source, lost_for: Duration },
}

impl Closed {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Closed::DryRun => "dry_run",
            Closed::NoLease => "no_lease",
            Closed::NeverInSync(_) => "never_in_sync",
            Closed::Relisting(_) => "relisting",
            Closed::Stale { .. } => "stale",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Never in sync.
    Unknown,
    InSync,
    /// Was in sync, and was lost at this moment.
    LostAt(Instant),
}

#[derive(Debug)]
pub struct Gate {
    sources: BTreeMap<Source, State>,
    relisting: BTreeSet<Source>,
    stale_max: Duration,
    dry_run: bool,
}

impl Gate {
    #[must_use]
    pub fn new(stale_max: Duration, dry_run: bool) -> Gate {
        Gate { sources: BTreeMap::new(), relisting: BTreeSet::new(), stale_max, dry_run }
    }

    /// Updates the sync state of the change's source.
    pub fn observe(&mut self, change: &WorldChange, now: Instant) {
        match &change.subject {
            Subject::RelistBegan(source) => {
                self.relisting.insert(*source);
            }
            Subject::RelistEnded { source, .. } => {
                self.relisting.remove(source);
                self.sources.insert(*source, State::InSync);
            }
            Subject::Lost(source) => {
                self.relisting.remove(source);
                let state = self.sources.entry(*source).or_insert(State::Unknown);
                if *state == State::InSync {
                    *state = State::LostAt(now);
                }
            }
            _ => (),
        }
    }

    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Whether the owner of this lease may send the action.
    pub fn admits(&self, action: &impl Action, lease: &Lease, now: Instant) -> Result<(), Closed> {
        action.requirements().into_iter().try_for_each(|requirement| self.check(requirement, now))?;
        match action.is_write() {
            true if !lease.is_held(now) => Err(Closed::NoLease),
            true if self.dry_run => Err(Closed::DryRun),
            _ => Ok(()),
        }
    }

    /// Whether a source meets a requirement.
    pub fn check(&self, requirement: SourceRequirement, now: Instant) -> Result<(), Closed> {
        let (source, settled) = match requirement {
            SourceRequirement::Fresh(source) => (source, false),
            SourceRequirement::Settled(source) => (source, true),
        };
        if settled && self.relisting.contains(&source) {
            return Err(Closed::Relisting(source));
        }
        match self.sources.get(&source).copied().unwrap_or(State::Unknown) {
            State::Unknown => Err(Closed::NeverInSync(source)),
            State::InSync => Ok(()),
            State::LostAt(moment) => {
                let lost_for = now.saturating_duration_since(moment);
                if lost_for > self.stale_max { Err(Closed::Stale { source, lost_for }) } else { Ok(()) }
            }
        }
    }

    #[must_use]
    pub fn is_fresh(&self, source: Source, now: Instant) -> bool {
        self.check(SourceRequirement::Fresh(source), now).is_ok()
    }

    #[must_use]
    pub fn is_settled(&self, source: Source, now: Instant) -> bool {
        self.check(SourceRequirement::Settled(source), now).is_ok()
    }

    /// In sync now, not only fresh.
    #[must_use]
    pub fn in_sync(&self, source: Source) -> bool {
        self.sources.get(&source) == Some(&State::InSync)
    }
}

#[cfg(test)]
mod tests {
    use model::World;
    use model::event::Event;

    use super::*;

    struct Write(Vec<SourceRequirement>);

    impl Action for Write {
        fn is_write(&self) -> bool {
            true
        }

        fn requirements(&self) -> Vec<SourceRequirement> {
            self.0.clone()
        }
    }

    struct Read;

    impl Action for Read {
        fn is_write(&self) -> bool {
            false
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_opens_after_the_first_full_list_and_closes_some_time_after_the_source_is_lost() {
        let mut gate = Gate::new(Duration::from_secs(60), false);
        let mut world = World::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut observe = |gate: &mut Gate, event: Event, now: Instant| gate.observe(&world.apply(event), now);
        let fresh = |gate: &Gate, now: Instant| gate.check(SourceRequirement::Fresh(Source::Nodes), now);
        assert_eq!(fresh(&gate, at(0)), Err(Closed::NeverInSync(Source::Nodes)));
        observe(&mut gate, Event::Lost(Source::Nodes), at(0));
        assert_eq!(fresh(&gate, at(0)), Err(Closed::NeverInSync(Source::Nodes)));
        observe(&mut gate, Event::RelistBegan(Source::Nodes), at(0));
        assert_eq!(fresh(&gate, at(0)), Err(Closed::NeverInSync(Source::Nodes)));
        observe(&mut gate, Event::RelistEnded(Source::Nodes), at(0));
        assert_eq!(fresh(&gate, at(500)), Ok(()));

        observe(&mut gate, Event::Lost(Source::Nodes), at(500));
        // A second `Lost` does not restart the clock.
        observe(&mut gate, Event::Lost(Source::Nodes), at(550));
        assert_eq!(fresh(&gate, at(560)), Ok(()));
        assert!(!gate.in_sync(Source::Nodes));
        let stale = Closed::Stale { source: Source::Nodes, lost_for: Duration::from_secs(61) };
        assert_eq!(fresh(&gate, at(561)), Err(stale));
        observe(&mut gate, Event::RelistBegan(Source::Nodes), at(600));
        assert!(!gate.is_settled(Source::Nodes, at(600)));
        observe(&mut gate, Event::RelistEnded(Source::Nodes), at(600));
        assert!(gate.is_settled(Source::Nodes, at(600)));
        observe(&mut gate, Event::RelistBegan(Source::Nodes), at(600));
        assert!(gate.is_fresh(Source::Nodes, at(600)) && !gate.is_settled(Source::Nodes, at(600)));
        assert_eq!(fresh(&gate, at(600)), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_needs_its_sources_the_lease_and_no_dry_run() {
        let now = Instant::now();
        let needs = || Write(vec![SourceRequirement::Settled(Source::Pods)]);
        let gate = Gate::new(Duration::from_secs(60), false);
        let lease = Lease::not_held();
        assert_eq!(gate.admits(&needs(), &Lease::always(), now), Err(Closed::NeverInSync(Source::Pods)));
        assert_eq!(gate.admits(&Write(Vec::new()), &lease, now), Err(Closed::NoLease));
        assert_eq!(gate.admits(&Read, &lease, now), Ok(()));
        let lease = Lease::always();
        assert_eq!(gate.admits(&Write(Vec::new()), &lease, now), Ok(()));
        let gate = Gate::new(Duration::from_secs(60), true);
        assert_eq!(gate.admits(&Write(Vec::new()), &lease, now), Err(Closed::DryRun));
        assert_eq!(gate.admits(&Read, &lease, now), Ok(()));
    }
}
