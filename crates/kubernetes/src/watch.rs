//! Watches Kubernetes objects and emits events.
//!
//! In: a client, a bounded channel, a seed, the enabled parts of Bridger. Out: for each source that those parts need
//! `RelistBegan`, an `Applied` per object, `RelistEnded`, then each change; `Lost` when the watch fails, and a new list
//! as soon as the server is back.
//!
//! - `RelistBegan` is sent when the first page has arrived, not when it is requested: while a server is down, a source
//!   is `Lost` once, and stays so during all retries.
//! - A watch that ends without error is resumed at its last position without an event: nothing was missed. Any error is
//!   `Lost` followed by a full list, even if resuming might work, because after a list the state is certainly complete.
//! - A dead connection is detected: the server ends each watch after [`WATCH_SECONDS`], kube's watcher gives up 5 s
//!   later if it did not, the next attempt must get a response within [`crate::bounded::ANSWER_LIMIT`], and each page
//!   of a list must arrive within [`PAGE_LIMIT`]. So a server that is down is `Lost` after 95 s at most.
//! - A new list of pods can be requested ([`PodLists`]): a process that becomes the leader must know what the last one
//!   bound, however late a watch may be.
//! - A slow receiver slows the watch down; nothing is dropped, and at most a page is buffered here.
//!
//! Ends when the receiver is dropped.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use engine::runtime::{Backoff, Jitter, Retries};
use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, Stream, StreamExt};
use kube::Api;
use kube::runtime::watcher;
use model::event::{Event, Source};
use model::{KUBERNETES_SOURCES, Part, Parts, SourceRow};
use tokio::sync::mpsc::Sender;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::bounded::BoundedClient;
use crate::facts::{Facts, Watched};
use crate::failure::describe_watch;
use crate::kinds::{self, Detail, Visitor};
use crate::paced::paced;

/// The server ends a watch after this time, and it is resumed. This bounds the lifetime of a dead connection.
pub const WATCH_SECONDS: u32 = 60;

/// A page of a list must arrive within this time, or the source is lost.
pub const PAGE_LIMIT: Duration = Duration::from_secs(60);

/// Objects per page of a list; bounds the memory.
const PAGE_OBJECTS: u32 = 500;

/// Requests for a new list of pods, and how far they are.
#[derive(Clone, Debug, Default)]
pub struct PodLists(Arc<Requests>);

#[derive(Debug, Default)]
struct Requests {
    last: watch::Sender<u64>,
    served: watch::Sender<Served>,
}

/// The last request that was served, and the number of complete lists up to it.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    request: u64,
    lists: u64,
}

impl PodLists {
    /// Has pods listed again, from now on. When the list is complete and all its events are sent, returns how many
    /// `RelistEnded` of pods there were so far.
    pub async fn request(&self) -> u64 {
        let mut served = self.0.served.subscribe();
        let mut request = 0;
        self.0.last.send_modify(|last| {
            *last += 1;
            request = *last;
        });
        let served = served.wait_for(|served| served.request >= request).await;
        // The sender lives as long as this handle.
        served.map_or(u64::MAX, |served| served.lists)
    }
}

/// Watches the sources of these parts until the receiver is dropped. For scheduling and for the extender, nodes and pods
/// have all fields that a scheduler needs. `seed` is for the jitter between attempts.
pub async fn watch(client: impl Into<BoundedClient>, events: Sender<Event>, seed: u64, parts: Parts) {
    watch_and_relist(client, events, seed, parts, PodLists::default()).await;
}

/// The same; pods are listed again on request.
pub async fn watch_and_relist(
    client: impl Into<BoundedClient>,
    events: Sender<Event>,
    seed: u64,
    parts: Parts,
    lists: PodLists,
) {
    let client = client.into();
    // The extender checks again what kube-scheduler has checked, before it binds.
    let is_detailed = parts.contains(Part::Scheduling) || parts.contains(Part::Extender);
    let detail = if is_detailed { Detail::Scheduling } else { Detail::Placement };
    // Each row has its own jitter stream, independent of the other rows.
    let rows = (0..).zip(&KUBERNETES_SOURCES).filter(|(_, row)| row.is_needed_by(parts));
    let following = rows.filter_map(|(position, row)| {
        let retries = retries(seed, position);
        let lists = if row.source == Source::Pods { lists.clone() } else { PodLists::default() };
        let follow = Follow { row, client: client.clone(), events: events.clone(), retries, lists };
        kinds::visit(row.source, detail, follow)
    });
    join_all(following).await;
}

/// Follows a row with the type that [`kinds`] selects.
struct Follow {
    row: &'static SourceRow,
    client: BoundedClient,
    events: Sender<Event>,
    retries: Retries,
    /// Requests for lists of this source.
    lists: PodLists,
}

impl Visitor for Follow {
    type Output = BoxFuture<'static, ()>;

    fn visit<F: Facts>(self) -> Self::Output {
        follow::<F>(self).boxed()
    }
}

/// The receiver was dropped.
struct ReceiverGone;

/// Follows one source and retries after each loss.
async fn follow<F: Facts>(follow: Follow) {
    let Follow { row, client, events, mut retries, lists } = follow;
    let objects: Api<Watched<F>> = Api::all_with(paced(&client), &row);
    let mut lost = false;
    let mut ended = 0;
    loop {
        let round = follow_once(row.source, &objects, &events, &mut lost, (&lists.0, &mut ended)).await;
        let round = match round {
            Ok(Ended::Failed(round)) => round,
            Ok(Ended::ListRequested) => continue,
            Err(ReceiverGone) => return,
        };
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
enum Ended {
    Failed(Round),
    ListRequested,
}

struct Round {
    why: String,
    in_sync_for: Duration,
}

enum Phase {
    /// No page has arrived yet.
    Requested,
    Listing,
    InSync(Instant),
}

/// One list and the watch that follows it, up to its first error.
async fn follow_once<F: Facts>(
    source: Source,
    objects: &Api<Watched<F>>,
    events: &Sender<Event>,
    lost: &mut bool,
    (requests, lists): (&Requests, &mut u64),
) -> Result<Ended, ReceiverGone> {
    // Read before the list is requested: a later request is for another list.
    let mut last = requests.last.subscribe();
    let request = *last.borrow_and_update();
    let mut config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE_OBJECTS);
    if !F::FIELD_SELECTOR.is_empty() {
        config = config.fields(F::FIELD_SELECTOR);
    }
    let mut stream = pin!(watcher(objects.clone(), config));
    let mut phase = Phase::Requested;
    loop {
        let next = tokio::select! {
            biased;
            () = events.closed() => return Err(ReceiverGone),
            Ok(()) = last.changed() => return Ok(Ended::ListRequested),
            next = next_event(&mut stream, &phase) => next,
        };
        let event = match next {
            Ok(event) => event,
            Err(why) => {
                let in_sync_for = if let Phase::InSync(since) = phase { since.elapsed() } else { Duration::ZERO };
                return Ok(Ended::Failed(Round { why, in_sync_for }));
            }
        };
        if let (Phase::Requested, watcher::Event::InitApply(_) | watcher::Event::InitDone) = (&phase, &event) {
            phase = Phase::Listing;
            send(events, Event::RelistBegan(source)).await?;
            *lost = false;
        }
        match event {
            watcher::Event::Init => phase = Phase::Requested,
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                send(events, object.facts.applied()).await?;
            }
            watcher::Event::InitDone => {
                phase = Phase::InSync(Instant::now());
                send(events, Event::RelistEnded(source)).await?;
                *lists += 1;
                requests.served.send_replace(Served { request, lists: *lists });
            }
            watcher::Event::Delete(object) => send(events, object.facts.deleted()).await?,
        }
    }
}

/// The next event, or why there is none. Once in sync there may be no event for hours; then only the watcher's own
/// limits apply.
async fn next_event<T>(
    stream: &mut (impl Stream<Item = watcher::Result<watcher::Event<T>>> + Unpin),
    phase: &Phase,
) -> Result<watcher::Event<T>, String> {
    let next = match phase {
        Phase::InSync(_) => stream.next().await,
        Phase::Requested | Phase::Listing => tokio::time::timeout(PAGE_LIMIT, stream.next())
            .await
            .map_err(|_| format!("listing: no page within {} s", PAGE_LIMIT.as_secs()))?,
    };
    match next {
        Some(Ok(event)) => Ok(event),
        Some(Err(error)) => Err(describe_watch(&error)),
        None => Err("the watch ended".to_owned()),
    }
}

async fn send(events: &Sender<Event>, event: Event) -> Result<(), ReceiverGone> {
    events.send(event).await.map_err(|_| ReceiverGone)
}

/// With jitter: from 0.5 to 1 s up to 15 to 30 s.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };

/// The retries of one row; each row has its own jitter stream.
fn retries(seed: u64, row: u64) -> Retries {
    Retries::new(BACKOFF, Jitter::stream(seed, row))
}

/// The wait before the next attempt. The backoff restarts only after a long enough time in sync, so that a server that
/// fails right after each list is not overloaded.
fn wait_after(retries: &mut Retries, in_sync_for: Duration) -> Duration {
    if in_sync_for >= BACKOFF.longest {
        retries.succeeded();
    }
    retries.failed()
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
