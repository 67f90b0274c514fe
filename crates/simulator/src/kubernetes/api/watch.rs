//! Watches: a stream of events after a version, until the client's timeout.
//!
//! In: the selection, the start version, the world. Out: one JSON line per event. Each watcher has a cursor into the
//! store's window of changes, and sleeps until the world signals a change.
//!
//! Invariants: events arrive in version order without gaps, unless a fault is injected; the stream ends; a client that
//! falls behind the window gets 410.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::list::Selection;
use super::query::Query;
use super::render::Writer;
use super::watch_faults::{Interference, WatchFaults};
use crate::clock::SimTime;
use crate::kubernetes::error::{ApiError, FieldError};
use crate::kubernetes::store::{Change, ChangeType, Gone, Store};
use crate::world::World;

/// The bookmark interval of a watch that requests bookmarks.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// How many changes are processed per round, so that a watcher far behind does not block the world.
const CHANGES_PER_ROUND: usize = 2_000;
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// The start and the end of a watch.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// `None`: start with all existing objects.
    after_version: Option<u64>,
    bookmarks: bool,
    /// Send a bookmark after the initial objects.
    marks_initial_end: bool,
    timeout: Duration,
}

impl WatchOptions {
    pub fn read(query: &Query, current_version: u64) -> Result<WatchOptions, ApiError> {
        let version = query.resource_version()?.filter(|version| *version > 0);
        let initial = query.text("sendInitialEvents").map(|_| query.flag("sendInitialEvents"));
        let forbidden = |field: &str, detail: &str| {
            Err(ApiError::invalid_options("ListOptions", FieldError::forbidden(field, detail)))
        };
        match (initial, query.text("resourceVersionMatch")) {
            (Some(_), Some("NotOlderThan")) | (None, None) => (),
            (Some(_), _) => {
                return forbidden(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                );
            }
            (None, Some(_)) => {
                return forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                );
            }
        }
        if query.text("continue").is_some() {
            return forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided");
        }
        let seconds = query.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
        // Spread the timeouts, so that watches that start at the same time do not all end at the same time.
        let default = 300 + current_version % 300;
        let timeout = Duration::from_secs(seconds.filter(|seconds| *seconds > 0).unwrap_or(default)).min(TIMEOUT_MAX);
        Ok(WatchOptions {
            after_version: if initial == Some(true) { None } else { version },
            bookmarks: query.flag("allowWatchBookmarks"),
            marks_initial_end: initial == Some(true) && query.flag("allowWatchBookmarks"),
            timeout,
        })
    }
}

/// A client's watch.
pub struct Watcher {
    world: Arc<World>,
    changes: tokio::sync::watch::Receiver<u64>,
    selection: Selection,
    writer: Writer,
    options: WatchOptions,
    faults: WatchFaults,
    cursor: Cursor,
    lines: VecDeque<Line>,
    sent_columns: bool,
    deadline: Instant,
    next_bookmark: Instant,
    ends: bool,
    _permit: OwnedSemaphorePermit,
}

#[derive(Clone, Copy, Debug)]
enum Cursor {
    Initial,
    After(u64),
}

/// A pending line. An object is serialized only when it is sent, so that a slow client costs little.
enum Line {
    Event(Event, SimTime),
    Text(String),
    Cut,
}

/// The event of a change, as the selection sees it.
#[derive(Clone)]
struct Event {
    event_type: &'static str,
    object: Arc<serde_json::Value>,
}

impl Watcher {
    pub fn new(
        world: Arc<World>,
        selection: Selection,
        writer: Writer,
        options: WatchOptions,
        faults: WatchFaults,
        permit: OwnedSemaphorePermit,
    ) -> Watcher {
        let now = Instant::now();
        Watcher {
            changes: world.kubernetes_changes(),
            world,
            selection,
            writer,
            options,
            faults,
            cursor: options.after_version.map_or(Cursor::Initial, Cursor::After),
            lines: VecDeque::new(),
            sent_columns: false,
            deadline: now + options.timeout,
            next_bookmark: now + BOOKMARK_PERIOD,
            ends: false,
            _permit: permit,
        }
    }

    /// The response body.
    pub fn stream(self) -> impl Stream<Item = Result<Bytes, io::Error>> + Send {
        futures::stream::unfold(self, |mut watcher| async move {
            let line = watcher.next_line().await?;
            Some((line, watcher))
        })
    }

    async fn next_line(&mut self) -> Option<Result<Bytes, io::Error>> {
        loop {
            match self.lines.pop_front() {
                Some(Line::Text(text)) => return Some(Ok(Bytes::from(text))),
                Some(Line::Event(event, now)) => {
                    let with_columns = !std::mem::replace(&mut self.sent_columns, true);
                    let object = self.writer.event_object(&event.object, with_columns, now);
                    return Some(Ok(Bytes::from(line(event.event_type, &object))));
                }
                Some(Line::Cut) => {
                    self.lines.clear();
                    self.ends = true;
                    return Some(Err(io::Error::from(io::ErrorKind::ConnectionReset)));
                }
                None if self.ends || Instant::now() >= self.deadline => return None,
                None => self.round().await,
            }
        }
    }

    /// Reads and queues new changes; waits if there are none.
    async fn round(&mut self) {
        // Marked as seen before the world is read, so that no change is lost between reading and waiting.
        self.changes.borrow_and_update();
        let (read, now, interference) = {
            let (selection, cursor, faults) = (&self.selection, self.cursor, &mut self.faults);
            self.world.with(|core, now| {
                let read = read(core.kubernetes.store(), selection, cursor);
                let begins = matches!(cursor, Cursor::Initial);
                let events = read.as_ref().map_or(0, |read| read.events.len());
                let interference = faults.strike(&mut core.faults, now, begins || events > 0, events);
                (read, now, interference)
            })
        };
        if let Interference::Silent(duration) = interference {
            // The same changes are read again afterwards: the cursor has not moved.
            tokio::time::sleep(duration.min(self.deadline.saturating_duration_since(Instant::now()))).await;
            return;
        }
        if let Interference::Gone = interference {
            self.end_with_error(&ApiError::Expired("too old resource version (simulated fault)".to_owned()));
            return;
        }
        let batch = match read {
            Ok(batch) => batch,
            Err(gone) => {
                let (asked, oldest) = match self.cursor {
                    Cursor::After(version) => (version, gone.oldest_version.saturating_sub(1)),
                    Cursor::Initial => (0, gone.oldest_version),
                };
                self.end_with_error(&ApiError::Expired(format!("too old resource version: {asked} ({oldest})")));
                return;
            }
        };
        let was_initial = matches!(self.cursor, Cursor::Initial);
        self.cursor = Cursor::After(batch.cursor);
        let nothing_new = batch.events.is_empty() && !was_initial;
        self.queue(&batch.events, interference, now);
        if was_initial && self.options.marks_initial_end {
            self.queue_bookmark(batch.cursor, true);
        }
        if nothing_new && !batch.more {
            self.wait(batch.cursor).await;
        }
    }

    fn queue(&mut self, events: &[Event], interference: Interference, now: SimTime) {
        let order = self.faults.arrange(&events.iter().map(|event| &*event.object).collect::<Vec<_>>(), &interference);
        for index in order {
            if self.faults.cuts_before_next_event() {
                self.lines.push_back(Line::Cut);
                return;
            }
            self.lines.push_back(Line::Event(events[index].clone(), now));
        }
        if self.faults.cuts_when_idle() {
            self.lines.push_back(Line::Cut);
        }
    }

    fn queue_bookmark(&mut self, version: u64, initial_events_end: bool) {
        let bookmark = self.writer.bookmark(version, initial_events_end);
        self.lines.push_back(Line::Text(line("BOOKMARK", &bookmark)));
        self.next_bookmark = Instant::now() + BOOKMARK_PERIOD;
    }

    fn end_with_error(&mut self, error: &ApiError) {
        self.lines.push_back(Line::Text(line("ERROR", &error.status().to_string())));
        self.ends = true;
    }

    async fn wait(&mut self, version: u64) {
        let wake = if self.options.bookmarks { self.next_bookmark.min(self.deadline) } else { self.deadline };
        tokio::select! {
            biased;
            changed = self.changes.changed() => {
                // The world is gone: there will be no more changes.
                self.ends |= changed.is_err();
            }
            () = tokio::time::sleep_until(wake) => {
                if self.options.bookmarks && Instant::now() >= self.next_bookmark {
                    self.queue_bookmark(version, false);
                }
            }
        }
    }
}

/// An event in its wire format.
fn line(event_type: &str, object: &str) -> String {
    format!("{{\"type\":\"{event_type}\",\"object\":{object}}}\n")
}

struct Batch {
    events: Vec<Event>,
    cursor: u64,
    /// There are changes that this round did not process.
    more: bool,
}

fn read(store: &Store, selection: &Selection, cursor: Cursor) -> Result<Batch, Gone> {
    let Cursor::After(version) = cursor else {
        let events = store
            .list(selection.kind, selection.namespace.as_deref())
            .filter(|object| selection.matches(object))
            .map(|object| Event { event_type: "ADDED", object: object.clone() })
            .collect();
        return Ok(Batch { events, cursor: store.version(), more: false });
    };
    let mut cursor = version;
    let mut events = Vec::new();
    let mut looked_at = 0;
    for change in store.changes_since(version)?.take(CHANGES_PER_ROUND) {
        looked_at += 1;
        cursor = change.version;
        if change.kind == selection.kind
            && let Some(event) = event_of(change, selection)
        {
            events.push(event);
        }
    }
    Ok(Batch { events, cursor, more: looked_at == CHANGES_PER_ROUND })
}

/// An object that enters the selection is reported as added, one that leaves it as deleted.
fn event_of(change: &Change, selection: &Selection) -> Option<Event> {
    let was_in = change.before.as_ref().is_some_and(|before| selection.matches(before));
    let is_in = change.change_type != ChangeType::Deleted && selection.matches(&change.object);
    let (event_type, object) = match (was_in, is_in) {
        (false, true) => ("ADDED", change.object.clone()),
        (true, true) => ("MODIFIED", change.object.clone()),
        (true, false) if change.change_type == ChangeType::Deleted => ("DELETED", change.object.clone()),
        // The last selected state of the object, with the version at which it left the selection.
        (true, false) => {
            let mut last = change.before.as_deref()?.clone();
            last["metadata"]["resourceVersion"] = serde_json::json!(change.version.to_string());
            ("DELETED", Arc::new(last))
        }
        (false, false) => return None,
    };
    Some(Event { event_type, object })
}
