//! One stay at a vCenter: log in, list everything, follow each change, until something fails.
//!
//! Input: the configuration. Output: events through a [`Emitter`].
//!
//! Two watches are followed side by side on one task: where VMs run, which must be heard quickly, and all else. The
//! second's waits and the slow reading again take turns. If either fails, the stay is over.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use futures::stream::{Stream, StreamExt, try_unfold};
use model::event::{Event, Source, VcenterId};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::VcenterStatus;
use super::picture::{HostTasks, Picture};
use super::properties::{LOADS, PLACEMENTS, READ_AGAIN, WATCHED};
use super::queries::{Queries, QueryResults};
use crate::client::Client;
use crate::config::{Timing, VcenterConfig};
use crate::error::VsphereError;
use crate::property::{ObjectUpdate, Updates, Watch};

/// How long giving back the watches, and then the session, may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Why a stay is over.
#[derive(Debug)]
pub(super) enum Ended {
    Failed(VsphereError),
    /// Nobody listens any more.
    NobodyListens,
}

impl From<VsphereError> for Ended {
    fn from(error: VsphereError) -> Ended {
        Ended::Failed(error)
    }
}

impl From<Closed> for Ended {
    fn from(_: Closed) -> Ended {
        Ended::NobodyListens
    }
}

/// The receiver of the events is gone.
#[derive(Debug)]
pub(super) struct Closed;

/// Tells events, and of the losses only the first in a row.
#[derive(Debug)]
pub(super) struct Emitter {
    events: mpsc::Sender<Event>,
    source: Source,
    lost_emitted: bool,
}

impl Emitter {
    pub(super) fn new(events: mpsc::Sender<Event>, source: Source) -> Emitter {
        Emitter { events, source, lost_emitted: false }
    }

    pub(super) async fn lost(&mut self) -> Result<(), Closed> {
        if !self.lost_emitted {
            self.tell(Event::Lost(self.source)).await?;
            self.lost_emitted = true;
        }
        Ok(())
    }

    async fn relist_began(&mut self) -> Result<(), Closed> {
        self.lost_emitted = false;
        self.tell(Event::RelistBegan(self.source)).await
    }

    async fn relist_ended(&mut self) -> Result<(), Closed> {
        self.tell(Event::RelistEnded(self.source)).await
    }

    async fn tell_all(&mut self, events: Vec<Event>) -> Result<(), Closed> {
        for event in events {
            self.tell(event).await?;
        }
        Ok(())
    }

    async fn tell(&mut self, event: Event) -> Result<(), Closed> {
        self.events.send(event).await.map_err(|_| Closed)
    }
}

/// What is held at the vCenter, kept apart from the work with it: the work may be dropped at any point, and what is held
/// must be given back all the same.
#[derive(Debug, Default)]
pub(super) struct Session {
    client: Option<Arc<Client>>,
    /// Of where VMs run.
    placements: Option<Watch>,
    /// Of all else.
    inventory: Option<Watch>,
    in_sync_since: Option<Instant>,
}

impl Session {
    pub(super) fn in_sync_since(&self) -> Option<Instant> {
        self.in_sync_since
    }

    /// Follows the vCenter; returns only when that is over.
    pub(super) async fn follow(
        &mut self,
        config: &VcenterConfig,
        id: VcenterId,
        teller: &mut Emitter,
        status: &watch::Sender<VcenterStatus>,
    ) -> Ended {
        match self.list_and_follow(config, id, teller, status).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn list_and_follow(
        &mut self,
        config: &VcenterConfig,
        id: VcenterId,
        teller: &mut Emitter,
        status: &watch::Sender<VcenterStatus>,
    ) -> Result<std::convert::Infallible, Ended> {
        let client = self.client.insert(Arc::new(config.connect().await?)).clone();
        let root = client.content().root_folder.clone();
        let inventory = self.inventory.insert(Watch::start(client.clone(), &root, WATCHED).await?);
        let placements = self.placements.insert(Watch::start(client.clone(), &root, PLACEMENTS).await?);
        let mut picture = Picture::new(id);

        teller.relist_began().await?;
        inventory.list(|update| picture.apply(update)).await?;
        placements.list(|update| picture.place(update)).await?;
        inventory.read_again(LOADS).await?.iter().for_each(|update| picture.refresh(update));
        Queries::of(&mut picture, HostTasks::Unseen).ask(&client).await?.note(&mut picture);
        // Told as a whole, so that a host is told once and with its datacenter, whatever page that was on.
        teller.tell_all(picture.changes()).await?;
        teller.relist_ended().await?;
        self.in_sync_since = Some(Instant::now());
        status.send_replace(VcenterStatus::InSync { about: client.about().clone() });
        tracing::info!(
            vcenter = client.host(),
            hosts = picture.host_count(),
            vms = picture.vm_count(),
            "in sync with {}",
            client.about().full_name
        );

        let not_emitted = picture.not_emitted_count();
        if not_emitted > 0 {
            tracing::warn!(
                vcenter = client.host(),
                objects = not_emitted,
                "the user may see but not read some objects"
            );
        }

        // A wait that is dropped may take what it was about to bring with it, so each goes on while the other is heard.
        let mut moves = pin!(waits(placements, config.timing.wait_max));
        let mut rounds = pin!(rounds(inventory, config.timing));
        let mut looking: Option<BoxFuture<'_, Result<QueryResults, VsphereError>>> = None;
        loop {
            tokio::select! {
                biased;
                Some(moved) = moves.next() => {
                    moved?.objects.iter().for_each(|update| picture.place(update));
                }
                Some(looked) = conditionally(looking.as_mut()) => {
                    looking = None;
                    looked?.note(&mut picture);
                }
                // Not while a look is under way: what it finds must not overtake what is heard after it began.
                Some(round) = rounds.next(), if looking.is_none() => {
                    let whose = match round? {
                        Round::Heard(updates) => {
                            updates.objects.iter().for_each(|update| picture.apply(update));
                            HostTasks::Unseen
                        }
                        Round::ReadAgain(found) => {
                            found.iter().for_each(|update| picture.refresh(update));
                            HostTasks::Entering
                        }
                    };
                    let queries = Queries::of(&mut picture, whose);
                    if !queries.is_empty() {
                        looking = Some(Box::pin(queries.ask(&client)));
                    }
                }
            }
            teller.tell_all(picture.changes()).await?;
        }
    }

    /// Gives back what is held, as far as the vCenter lets us within a few seconds.
    pub(super) async fn close(&mut self) {
        let watches = [self.placements.take(), self.inventory.take()];
        let stops = watches.into_iter().flatten().map(Watch::stop);
        // The session's end takes them along where this fails.
        let _ = timeout(CLOSE_LIMIT, join_all(stops)).await;
        if let Some(client) = self.client.take()
            && !matches!(timeout(CLOSE_LIMIT, client.logout()).await, Ok(Ok(())))
        {
            tracing::debug!(vcenter = client.host(), "the session could not be given back; it ends by itself");
        }
    }
}

/// One wait after the other, without end.
fn waits(watch: &mut Watch, wait: Duration) -> impl Stream<Item = Result<Updates, VsphereError>> {
    try_unfold(watch, move |watch| async move {
        let updates = watch.next(wait).await?;
        Ok(Some((updates, watch)))
    })
}

/// What comes of one turn of the inventory's watch.
enum Round {
    Heard(Updates),
    ReadAgain(Vec<ObjectUpdate>),
}

/// Waits, and now and then reads again. The two take turns, so that what was read never overtakes what was heard.
fn rounds(watch: &mut Watch, timing: Timing) -> impl Stream<Item = Result<Round, VsphereError>> {
    let read_again_at = Instant::now() + timing.read_again_every;
    try_unfold((watch, read_again_at), move |(watch, read_again_at)| async move {
        let until_reading = read_again_at.saturating_duration_since(Instant::now());
        if until_reading.is_zero() {
            let found = watch.read_again(READ_AGAIN).await?;
            return Ok(Some((Round::ReadAgain(found), (watch, Instant::now() + timing.read_again_every))));
        }
        // The wire counts whole seconds, and 0 would not wait at all.
        let wait = timing.wait_max.min(until_reading).max(Duration::from_secs(1));
        let updates = watch.next(wait).await?;
        Ok(Some((Round::Heard(updates), (watch, read_again_at))))
    })
}

/// The output of a future if there is one.
async fn conditionally<F: Future + Unpin>(future: Option<&mut F>) -> Option<F::Output> {
    match future {
        Some(future) => Some(future.await),
        None => None,
    }
}
