//! The interface of controllers.
//!
//! A controller is a state machine without I/O and without a clock. It observes changes of the world. In its turn it
//! sends actions; an [`Executor`] executes them and each outcome comes back. Steps are short: work that takes more than
//! some milliseconds is a separate computation ([`Actions::compute`]) on a copy of its input.
//!
//! Invariants: a controller is never called from two threads at once. It observes every change of the world except its
//! own exactly once, in order. Every action it sends ends in exactly one [`Controller::completed`] or
//! [`Controller::refused`], except those that wait when the runtime stops: these are not sent.

use std::time::Duration;

use futures::future::BoxFuture;
use model::{World, WorldChange};
use tokio::time::Instant;

use super::gate::{Action, Closed, Gate};
use super::lane::{Lane, LaneId, LaneSettings};
use super::recorder::EventRecorder;
use super::world::WorldAccess;
use crate::changes::ChangeLog;

/// No step may hold the loop for longer. Long steps check the stopwatch and continue in the next turn.
pub const STEP_BUDGET: Duration = Duration::from_millis(5);

pub trait Controller: Send + 'static {
    /// An operation on an external system.
    type Action: Action;
    /// The result of an action or of a computation.
    type Outcome: Send + 'static;

    /// For metrics and logs.
    fn name(&self) -> &'static str;

    /// The lanes its actions run on; a [`LaneId`] is an index into this list.
    fn lanes(&self) -> Vec<LaneSettings>;

    /// The world has changed; `world` is the state after the change. Implementations only take note and decide later.
    fn observe(&mut self, change: &WorldChange, world: &World, now: Instant);

    /// Decides what to do now.
    fn advance(&mut self, context: &mut Context<'_, Self::Action, Self::Outcome>);

    /// An action or a computation has ended. Actions end here also while the runtime stops; nothing that is sent then is
    /// executed.
    fn completed(&mut self, outcome: Self::Outcome, context: &mut Context<'_, Self::Action, Self::Outcome>);

    /// An action was not sent because the gate was closed.
    fn refused(&mut self, action: Self::Action, closed: Closed, context: &mut Context<'_, Self::Action, Self::Outcome>);

    /// When to call [`Controller::advance`] if nothing else happens before; called right after each `advance`.
    fn next_wake(&self) -> Option<Instant>;
}

/// Executes actions. The adapters behind it bound the duration.
pub trait Executor<C: Controller>: Send + Sync + 'static {
    fn execute(&self, action: C::Action) -> BoxFuture<'static, C::Outcome>;
}

/// What a controller can use in one step.
pub struct Context<'a, A, O> {
    pub now: Instant,
    pub world: WorldAccess<'a>,
    pub gate: &'a Gate,
    /// Whether this process holds the controller's lease. Without it, the controller writes nothing.
    pub is_leading: bool,
    pub events: &'a EventRecorder,
    /// Where it reports what it changed, could not change, or would change.
    pub changes: &'a ChangeLog,
    pub actions: Actions<'a, A, O>,
    pub stopwatch: Stopwatch,
}

/// Measures the duration of a step.
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

    /// The step has used its budget: other controllers are next.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.elapsed() >= STEP_BUDGET
    }
}

pub(super) type Computation<O> = Box<dyn FnOnce() -> O + Send>;

/// Sends actions and starts computations.
pub struct Actions<'a, A, O> {
    pub(super) lanes: &'a mut [Lane<A>],
    pub(super) computations: &'a mut Vec<Computation<O>>,
    pub(super) now: Instant,
}

impl<A, O> Actions<'_, A, O> {
    /// Sends an action as soon as its lane allows it. Returns the action if the lane is full.
    pub fn send(&mut self, lane: LaneId, action: A) -> Result<(), A> {
        match self.lanes.get_mut(lane.0) {
            Some(lane) => lane.push(action, self.now),
            None => Err(action),
        }
    }

    /// How many more actions could start now.
    #[must_use]
    pub fn room(&self, lane: LaneId) -> usize {
        self.lanes.get(lane.0).map_or(0, |lane| lane.room(self.now))
    }

    /// When the lane's rate limit lets the next action start; `None` if the rate limit is not what delays it.
    #[must_use]
    pub fn opens_at(&self, lane: LaneId) -> Option<Instant> {
        self.lanes.get(lane.0)?.opens_at(self.now)
    }

    /// Runs a computation off the loop; its result arrives in [`Controller::completed`]. The closure owns its input.
    pub fn compute(&mut self, computation: impl FnOnce() -> O + Send + 'static) {
        self.computations.push(Box::new(computation));
    }
}
