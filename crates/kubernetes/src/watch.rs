//! What Kubernetes holds, as events.
//!
//! In: a client, a bounded channel, a seed, the parts of Bridger that are on. Out: for each source that those parts need
//! `RelistBegan`, an `Applied` per object, `RelistEnded`, then each change; `Lost` when nothing can be heard, and a new
//! list as soon as the server is back.
//!
//! - `RelistBegan` is told with the first page in hand, not when it is asked for: while a server is away, a source is
//!   `Lost` once, and stays so, however often it is tried.
//! - A watch that merely ends is resumed where it stood, and nothing is told: nothing was missed. Any error is `Lost`
//!   followed by a full list, even where resuming might have worked, because after a list the picture is whole for
//!   certain.
//! - A connection that died in silence is noticed: the server ends each watch after [`WATCH_SECONDS`], kube's watcher gives
//!   up 5 s later when it did not, the next attempt has to be answered within [`crate::bounded::ANSWER_LIMIT`], and
//!   each page of a list within [`PAGE_LIMIT`]. So a server that is gone is `Lost` after 95 s at most.
//! - A slow receiver slows the watch down; nothing is dropped and nothing piles up here beyond a page.
//!
//! Ends when the receiver is gone.

use std::pin::pin;
use std::time::Duration;

use engine::runtime::{Backoff, Jitter, Retries};
use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, Stream, StreamExt};
use kube::Api;
use kube::runtime::watcher;
use model::event::{Event, Source};
use model::{KUBERNETES_SOURCES, Part, Parts, SourceRow};
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use crate::bounded::BoundedClient;
use crate::facts::{Facts, Watched};
use crate::failure::describe_watch;
use crate::kinds::{self, Detail, Visitor};
use crate::paced::paced;

/// The server ends a watch after this time, and it is resumed: a dead connection lasts no longer.
pub const WATCH_SECONDS: u32 = 60;

/// A page of a list arrives within this time, or the server is taken for lost.
pub const PAGE_LIMIT: Duration = Duration::from_secs(60);

/// Objects per page of a list: bounds what is in memory at a time.
const PAGE_OBJECTS: u32 = 500;

/// Watches what these parts need until the receiver is gone; nodes and pods with all that a scheduler must know where
/// there is one. The seed is that of the jitter between attempts.
pub async fn watch(client: impl Into<BoundedClient>, events: Sender<Event>, seed: u64, parts: Parts) {
    let client = client.into();
    let detail = if parts.contains(Part::Scheduling) { Detail::Scheduling } else { Detail::Placement };
    // Each row has a stream of jitter of its own, whichever others are followed.
    let rows = (0..).zip(&KUBERNETES_SOURCES).filter(|(_, row)| row.is_needed_by(parts));
    let following = rows.filter_map(|(position, row)| {
        let retries = retries(seed, position);
        let follow = Follow { row, client: client.clone(), events: events.clone(), retries };
        kinds::visit(row.source, detail, follow)
    });
    join_all(following).await;
}

/// Follows a row, once its type is known.
struct Follow {
    row: &'static SourceRow,
    client: BoundedClient,
    events: Sender<Event>,
    retries: Retries,
}

impl Visitor for Follow {
    type Output = BoxFuture<'static, ()>;

    fn visit<F: Facts>(self) -> Self::Output {
        follow::<F>(self.row, self.client, self.events, self.retries).boxed()
    }
}

/// The receiver is gone: nobody wants to know any more.
struct ReceiverGone;

/// Follows one source through every loss.
async fn follow<F: Facts>(row: &'static SourceRow, client: BoundedClient, events: Sender<Event>, mut retries: Retries) {
    let objects: Api<Watched<F>> = Api::all_with(paced(&client), &row);
    let mut lost = false;
    loop {
        let Ok(round) = follow_once(row.source, &objects, &events, &mut lost).await else { return };
        if !lost {
            tracing::warn!(source = row.resource, why = round.why, "the watch is lost; listing again");
            if events.send(Event::Lost(row.source)).await.is_err() {
                return;
            }
            lost = true;
        } else {
            tracing::debug!(source = row.resource, why = round.why, "still lost");
        }
        let delay = wait_after(&mut retries, round.in_sync_for);
        tokio::select! {
            biased;
            () = events.closed() => return,
            () = tokio::time::sleep(delay) => (),
        }
    }
}

/// How a list and its watch ended.
struct Round {
    why: String,
    in_sync_for: Duration,
}

enum Phase {
    /// No page has come yet.
    Asked,
    Listing,
    InSync(Instant),
}

/// One list and the watch that follows it, up to its first error.
async fn follow_once<F: Facts>(
    source: Source,
    objects: &Api<Watched<F>>,
    events: &Sender<Event>,
    lost: &mut bool,
) -> Result<Round, ReceiverGone> {
    let mut config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE_OBJECTS);
    if !F::FIELD_SELECTOR.is_empty() {
        config = config.fields(F::FIELD_SELECTOR);
    }
    let mut stream = pin!(watcher(objects.clone(), config));
    let mut phase = Phase::Asked;
    loop {
        let next = tokio::select! {
            biased;
            () = events.closed() => return Err(ReceiverGone),
            next = next_event(&mut stream, &phase) => next,
        };
        let event = match next {
            Ok(event) => event,
            Err(why) => {
                let in_sync_for = if let Phase::InSync(since) = phase { since.elapsed() } else { Duration::ZERO };
                return Ok(Round { why, in_sync_for });
            }
        };
        if let (Phase::Asked, watcher::Event::InitApply(_) | watcher::Event::InitDone) = (&phase, &event) {
            phase = Phase::Listing;
            tell(events, Event::RelistBegan(source)).await?;
            *lost = false;
        }
        match event {
            watcher::Event::Init => phase = Phase::Asked,
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                tell(events, object.facts.applied()).await?;
            }
            watcher::Event::InitDone => {
                phase = Phase::InSync(Instant::now());
                tell(events, Event::RelistEnded(source)).await?;
            }
            watcher::Event::Delete(object) => tell(events, object.facts.deleted()).await?,
        }
    }
}

/// The next event, or why there is none. Once in sync there may be nothing to hear for hours; the watcher's own limits
/// apply then.
async fn next_event<T>(
    stream: &mut (impl Stream<Item = watcher::Result<watcher::Event<T>>> + Unpin),
    phase: &Phase,
) -> Result<watcher::Event<T>, String> {
    let next = match phase {
        Phase::InSync(_) => stream.next().await,
        Phase::Asked | Phase::Listing => tokio::time::timeout(PAGE_LIMIT, stream.next())
            .await
            .map_err(|_| format!("listing: no page within {} s", PAGE_LIMIT.as_secs()))?,
    };
    match next {
        Some(Ok(event)) => Ok(event),
        Some(Err(error)) => Err(describe_watch(&error)),
        None => Err("the watch ended for good".to_owned()),
    }
}

async fn tell(events: &Sender<Event>, event: Event) -> Result<(), ReceiverGone> {
    events.send(event).await.map_err(|_| ReceiverGone)
}

/// From 0.5 to 1 s up to 15 to 30 s.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };

/// The attempts at one row; each row has a stream of jitter of its own.
fn retries(seed: u64, row: u64) -> Retries {
    Retries::new(BACKOFF, Jitter::stream(seed, row))
}

/// Starts over after a time in sync that was worth the name: a server that fails right after each list is spared, too.
fn wait_after(retries: &mut Retries, in_sync_for: Duration) -> Duration {
    if in_sync_for >= BACKOFF.longest {
        retries.succeeded();
    }
    retries.failed()
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
