//! The controller that posts the Events in the recorder's queue.
//!
//! In: the recorder's queue. Out: posted Events. After a transient error a post is retried a few times; then it is
//! counted as failed and dropped.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use model::{World, WorldChange};
use tokio::time::Instant;

use super::controller::{Context, Controller, Executor};
use super::gate::{Action, Closed};
use super::lane::{LaneId, LaneSettings};
use super::pace::Backoff;
use crate::ports::{EventRecord, EventSink, PortError};

const IN_FLIGHT_MAX: usize = 32;
const TRIES_MAX: u32 = 4;
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(2) };
const LANE: LaneId = LaneId(0);

pub(super) struct EventPoster;

#[derive(Debug)]
pub(super) struct Post {
    origin: &'static str,
    record: EventRecord,
}

impl Action for Post {
    fn is_write(&self) -> bool {
        true
    }
}

pub(super) struct Posted {
    origin: &'static str,
    result: Result<(), PortError>,
}

impl Controller for EventPoster {
    type Action = Post;
    type Outcome = Posted;

    fn name(&self) -> &'static str {
        "events"
    }

    fn lanes(&self) -> Vec<LaneSettings> {
        vec![LaneSettings::without_queue(IN_FLIGHT_MAX)]
    }

    fn observe(&mut self, _: &WorldChange, _: &World, _: Instant) {}

    fn advance(&mut self, context: &mut Context<'_, Post, Posted>) {
        for (origin, record) in context.events.take(context.actions.room(LANE)) {
            // `room` limited their number, so the lane accepts all of them.
            let _ = context.actions.send(LANE, Post { origin, record });
        }
    }

    fn completed(&mut self, posted: Posted, context: &mut Context<'_, Post, Posted>) {
        context.events.count(posted.origin, |counts| match &posted.result {
            Ok(()) => counts.posted += 1,
            Err(error) => {
                counts.failed += 1;
                tracing::debug!(%error, controller = posted.origin, "could not post an event");
            }
        });
    }

    /// In a dry run nothing is posted.
    fn refused(&mut self, _: Post, _: Closed, _: &mut Context<'_, Post, Posted>) {}

    /// Finished posts make room; new records wake the loop.
    fn next_wake(&self) -> Option<Instant> {
        None
    }
}

pub(super) struct PostExecutor(pub(super) Arc<dyn EventSink>);

impl Executor<EventPoster> for PostExecutor {
    fn execute(&self, action: Post) -> BoxFuture<'static, Posted> {
        let sink = self.0.clone();
        Box::pin(async move {
            let Post { origin, record } = action;
            let mut tries = 1;
            loop {
                match sink.post(&record).await {
                    Err(PortError::Transient(_)) if tries < TRIES_MAX => {
                        tokio::time::sleep(BACKOFF.without_jitter(tries)).await;
                        tries += 1;
                    }
                    result => return Posted { origin, result },
                }
            }
        })
    }
}
