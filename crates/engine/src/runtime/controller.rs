//! What the runtime runs: controllers.
//!
//! A controller is a state machine without I/O and without a clock. It observes changes of the world, and when it is its turn it
//! sends actions, which an [`Executor`] carries out; the outcome of each comes back. Steps are short: what takes longer than some
//! milliseconds is a computation of its own ([`Actions::compute`]), on a copy of what it needs.
//!
//! Invariants: a controller is never called from two threads at once, and sees every change of the world but its own exactly once,
//! in order; every action it sends ends in exactly one [`Controller::completed`] or [`Controller::refused`].

use std::time::Duration;

use futures::future::BoxFuture;
use model::{World, WorldChange};
use tokio::time::Instant;

use super::gate::{Action, Closed, Gate};
use super::lane::{Lane, LaneId, LaneSettings};
use super::recorder::EventRecorder;
use super::world::WorldAccess;

/// No step may hold the loop for longer; those with much to do look at the stopwatch and go on in the next turn.
pub const STEP_BUDGET: Duration = Duration::from_millis(5);

pub trait Controller: Send + 'static {
    /// What is done outside.
    type Action: Action;
    /// What came of an action, or of a computation.
    type Outcome: Send + 'static;

    /// For metrics and logs.
    fn name(&self) -> &'static str;

    /// The lanes its actions run on; [`LaneId`] is the place in this list.
    fn lanes(&self) -> Vec<LaneSettings>;

    /// The world changed, and is already as it is after that. Nothing is decided here, only noted.
    fn observe(&mut self, change: &WorldChange, world: &World, now: Instant);

    /// Decides what is to be done now.
    fn advance(&mut self, context: &mut Context<'_, Self::Action, Self::Outcome>);

    /// An action or a computation has ended.
    fn completed(&mut self, outcome: Self::Outcome, context: &mut Context<'_, Self::Action, Self::Outcome>);

    /// An action was not sent, because the gate was closed at that moment.
    fn refused(&mut self, action: Self::Action, closed: Closed, context: &mut Context<'_, Self::Action, Self::Outcome>);

    /// When [`Controller::advance`] has something to do though nothing else happens; asked right after it.
    fn next_wake(&self) -> Option<Instant>;
}

/// Carries actions out. Bounded in time by the adapters behind it.
pub trait Executor<C: Controller>: Send + Sync + 'static {
    fn execute(&self, action: C::Action) -> BoxFuture<'static, C::Outcome>;
}

/// What a controller has at hand in one step.
pub struct Context<'a, A, O> {
    pub now: Instant,
    pub world: WorldAccess<'a>,
    pub gate: &'a Gate,
    /// This process holds the controller's lease. Without it nothing is written.
    pub is_leading: bool,
    pub events: &'a EventRecorder,
    pub actions: Actions<'a, A, O>,
    pub stopwatch: Stopwatch,
}

/// How long a step has taken.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    since: Instant,
}

impl Stopwatch {
    #[must_use]
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { since: Instant::now() }
    }

    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// It is time to let others have their turn.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.elapsed() >= STEP_BUDGET
    }
}

pub(super) type Computation<O> = Box<dyn FnOnce() -> O + Send>;

/// Where actions are sent.
pub struct Actions<'a, A, O> {
    pub(super) lanes: &'a mut [Lane<A>],
    pub(super) computations: &'a mut Vec<Computation<O>>,
    pub(super) now: Instant,
}

impl<A, O> Actions<'_, A, O> {
    /// Sends an action as soon as its lane allows; gives it back when the lane is full.
    pub fn send(&mut self, lane: LaneId, action: A) -> Result<(), A> {
        match self.lanes.get_mut(lane.0) {
            Some(lane) => lane.push(action, self.now),
            None => Err(action),
        }
    }

    /// How many more actions could begin at once.
    #[must_use]
    pub fn room(&self, lane: LaneId) -> usize {
        self.lanes.get(lane.0).map_or(0, |lane| lane.room(self.now))
    }

    /// When the lane's rate lets the next action begin, if that is what is waited for.
    #[must_use]
    pub fn opens_at(&self, lane: LaneId) -> Option<Instant> {
        self.lanes.get(lane.0)?.opens_at(self.now)
    }

    /// Computes something off the loop; what comes of it is a completed outcome. The computation must bring what it needs along.
    pub fn compute(&mut self, computation: impl FnOnce() -> O + Send + 'static) {
        self.computations.push(Box::new(computation));
    }
}
