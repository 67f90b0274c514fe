//! One controller in the runtime: its lanes, its work in flight, and its steps, each measured.
//!
//! In: changes, time, finished work. Out: steps of the controller, actions in flight, and the changes that the
//! controller itself made to the world. [`Host`] is the runtime's view of it, independent of the type of its actions.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use model::{World, WorldChange};
use tokio::time::Instant;

use super::controller::{Actions, Computation, Context, Controller, Executor, Stopwatch};
use super::election::Lease;
use super::gate::{Closed, Gate};
use super::heartbeat::Heartbeats;
use super::lane::{Lane, LaneId};
use super::recorder::EventRecorder;
use super::stats::{RuntimeStats, Step};
use super::world::WorldOwner;
use crate::changes::ChangeLog;

/// What all controllers share.
pub(super) struct Shared {
    pub(super) owner: WorldOwner,
    pub(super) gate: Gate,
    pub(super) events: EventRecorder,
    pub(super) stats: Arc<RuntimeStats>,
    pub(super) computes_inline: bool,
    pub(super) heartbeats: Heartbeats,
    pub(super) changes: ChangeLog,
}

/// The changes that a controller itself made.
pub(super) type OwnChanges = Vec<Arc<WorldChange>>;

pub(super) trait Host: Send {
    fn name(&self) -> &'static str;
    fn observe(&mut self, change: &WorldChange, world: &World, now: Instant);
    fn advance(&mut self, shared: &Shared, now: Instant) -> OwnChanges;
    /// Passes finished work to the controller, at most `at_most` outcomes.
    fn complete(&mut self, shared: &Shared, now: Instant, at_most: usize) -> OwnChanges;
    /// Ready if finished work waits for [`Host::complete`]; otherwise `task` is woken when some finishes.
    fn poll_finished(&mut self, task: &mut std::task::Context<'_>) -> Poll<()>;
    fn next_wake(&self, now: Instant) -> Option<Instant>;
    fn has_in_flight(&self) -> bool;
    /// The runtime stops: passes what became of finished actions to the controller, so that it can report them. Nothing
    /// that the controller sends is executed any more, and computations are neither started nor passed on.
    fn conclude(&mut self, shared: &Shared, now: Instant) -> OwnChanges;
}

pub(super) struct Hosted<C: Controller> {
    pub(super) controller: C,
    executor: Arc<dyn Executor<C>>,
    lease: Lease,
    lanes: Vec<Lane<C::Action>>,
    in_flight: FuturesUnordered<BoxFuture<'static, (Option<LaneId>, C::Outcome)>>,
    finished: VecDeque<(Option<LaneId>, C::Outcome)>,
}

enum Call<C: Controller> {
    Advance,
    Completed(C::Outcome),
    Refused(C::Action, Closed),
}

impl<C: Controller> Hosted<C> {
    pub(super) fn new(controller: C, executor: Arc<dyn Executor<C>>, lease: Lease, now: Instant) -> Hosted<C> {
        let lanes = controller.lanes().into_iter().map(|settings| Lane::new(settings, now)).collect();
        Hosted { controller, executor, lease, lanes, in_flight: FuturesUnordered::new(), finished: VecDeque::new() }
    }

    fn step(&mut self, shared: &Shared, now: Instant, call: Call<C>) -> OwnChanges {
        let (changes, computations) = self.call(shared, now, call);
        for computation in computations {
            self.compute(computation, shared);
        }
        changes
    }

    /// Calls the controller. Returns the changes that it made, and the computations that it wants.
    fn call(&mut self, shared: &Shared, now: Instant, call: Call<C>) -> (OwnChanges, Vec<Computation<C::Outcome>>) {
        let mut computations: Vec<Computation<C::Outcome>> = Vec::new();
        let stopwatch = Stopwatch::start();
        let (changes, step) = {
            let mut context = Context {
                now,
                world: shared.owner.access(),
                gate: &shared.gate,
                is_leading: self.lease.is_held(now),
                events: &shared.events,
                changes: &shared.changes,
                actions: Actions { lanes: &mut self.lanes, computations: &mut computations, now },
                stopwatch,
            };
            let step = match call {
                Call::Advance => {
                    self.controller.advance(&mut context);
                    Step::Advance
                }
                Call::Completed(outcome) => {
                    self.controller.completed(outcome, &mut context);
                    Step::Completed
                }
                Call::Refused(action, closed) => {
                    self.controller.refused(action, closed, &mut context);
                    Step::Completed
                }
            };
            (context.world.finish(), step)
        };
        shared.stats.step(self.controller.name(), step, stopwatch.elapsed());
        (changes, computations)
    }

    fn compute(&mut self, computation: Computation<C::Outcome>, shared: &Shared) {
        if shared.computes_inline {
            let outcome = computation();
            self.in_flight.push(Box::pin(async move { (None, outcome) }));
            return;
        }
        let (heartbeats, name) = (shared.heartbeats.clone(), format!("computation of {}", self.controller.name()));
        let task = tokio::task::spawn_blocking(move || heartbeats.compute(&name, computation));
        self.in_flight.push(Box::pin(async move {
            match task.await {
                Ok(outcome) => (None, outcome),
                // A panic ends the process as it would on the loop. Without one the runtime shuts down, and nothing
                // polls this.
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => std::future::pending().await,
                },
            }
        }));
    }

    /// Sends the actions that the lanes and the gate allow.
    fn send(&mut self, shared: &Shared, now: Instant) -> OwnChanges {
        let mut changes = OwnChanges::new();
        for lane in 0..self.lanes.len() {
            while let Some(action) = self.lanes[lane].begin(now) {
                match shared.gate.admits(&action, &self.lease, now) {
                    Ok(()) => {
                        let executed = self.executor.execute(action);
                        self.in_flight.push(Box::pin(async move { (Some(LaneId(lane)), executed.await) }));
                    }
                    Err(closed) => {
                        self.lanes[lane].finished();
                        shared.stats.refused(self.controller.name(), closed);
                        changes.extend(self.step(shared, now, Call::Refused(action, closed)));
                    }
                }
            }
        }
        changes
    }
}

impl<C: Controller> Host for Hosted<C> {
    fn name(&self) -> &'static str {
        self.controller.name()
    }

    fn observe(&mut self, change: &WorldChange, world: &World, now: Instant) {
        self.controller.observe(change, world, now);
    }

    fn advance(&mut self, shared: &Shared, now: Instant) -> OwnChanges {
        let mut changes = self.step(shared, now, Call::Advance);
        changes.extend(self.send(shared, now));
        changes
    }

    fn complete(&mut self, shared: &Shared, now: Instant, at_most: usize) -> OwnChanges {
        let mut changes = OwnChanges::new();
        for _ in 0..at_most {
            let Some((lane, outcome)) = self.finished.pop_front() else { break };
            if let Some(lane) = lane.and_then(|lane| self.lanes.get_mut(lane.0)) {
                lane.finished();
            }
            changes.extend(self.step(shared, now, Call::Completed(outcome)));
        }
        changes
    }

    fn poll_finished(&mut self, task: &mut std::task::Context<'_>) -> Poll<()> {
        while let Poll::Ready(Some(finished)) = self.in_flight.poll_next_unpin(task) {
            self.finished.push_back(finished);
        }
        if self.finished.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    }

    fn next_wake(&self, now: Instant) -> Option<Instant> {
        // A token may have arrived since the lane was last checked: then it is due now.
        let lanes = self.lanes.iter().filter(|lane| lane.can_begin()).map(|lane| lane.opens_at(now).unwrap_or(now));
        lanes.chain(self.controller.next_wake()).min()
    }

    fn has_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    fn conclude(&mut self, shared: &Shared, now: Instant) -> OwnChanges {
        let mut changes = OwnChanges::new();
        while let Some((lane, outcome)) = self.finished.pop_front() {
            // A computation has changed nothing outside, and its result would only lead to more actions.
            if lane.is_some() {
                changes.extend(self.call(shared, now, Call::Completed(outcome)).0);
            }
        }
        changes
    }
}
