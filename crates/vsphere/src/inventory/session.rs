//! One session with a vCenter: log in, list everything, follow each change, until something fails.
//!
//! Input: the configuration. Output: events through an [`Emitter`].
//!
//! Two watches run concurrently on one task: the hosts of VMs, whose changes must arrive quickly, and everything else.
//! The second watch alternates between waiting for changes and the slow periodic read. If either watch fails, the
//! session ends. Tags are read beside them, and before the list if nothing is known of them yet: however long that
//! takes, the list is not kept waiting.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use futures::stream::{Stream, StreamExt, try_unfold};
use model::event::{Event, Source, VcenterId};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::picture::{HostTasks, Picture};
use super::properties::{LOADS, PLACEMENTS, READ_AGAIN, watched};
use super::queries::{Queries, QueryResults};
use super::tags::{TagMemory, TagReader};
use super::{Instances, VcenterStatus};
use crate::client::Client;
use crate::config::{Timing, VcenterConfig};
use crate::error::VsphereError;
use crate::property::{ObjectUpdate, Updates, Watch};

/// The time limit for stopping the watches, and for the logout.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Why a session ended.
#[derive(Debug)]
pub(super) enum Ended {
    Failed(VsphereError),
    /// The receiver of the events is closed.
    ReceiverClosed,
}

impl From<VsphereError> for Ended {
    fn from(error: VsphereError) -> Ended {
        Ended::Failed(error)
    }
}

impl From<Closed> for Ended {
    fn from(_: Closed) -> Ended {
        Ended::ReceiverClosed
    }
}

/// The receiver of the events is closed.
#[derive(Debug)]
pub(super) struct Closed;

/// Emits events. Of several `Lost` in a row it emits only the first.
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
            self.emit(Event::Lost(self.source)).await?;
            self.lost_emitted = true;
        }
        Ok(())
    }

    async fn relist_began(&mut self) -> Result<(), Closed> {
        self.lost_emitted = false;
        self.emit(Event::RelistBegan(self.source)).await
    }

    async fn relist_ended(&mut self) -> Result<(), Closed> {
        self.emit(Event::RelistEnded(self.source)).await
    }

    async fn emit_all(&mut self, events: Vec<Event>) -> Result<(), Closed> {
        for event in events {
            self.emit(event).await?;
        }
        Ok(())
    }

    async fn emit(&mut self, event: Event) -> Result<(), Closed> {
        self.events.send(event).await.map_err(|_| Closed)
    }
}

/// The resources of a session at the vCenter. They are separate from the future that uses them: the future may be
/// dropped at any point, and the resources must still be released.
#[derive(Debug, Default)]
pub(super) struct Session {
    client: Option<Arc<Client>>,
    /// The watch of the hosts of VMs.
    placements: Option<Watch>,
    /// The watch of everything else.
    inventory: Option<Watch>,
    tags: Option<TagReader>,
    in_sync_since: Option<Instant>,
}

impl Session {
    pub(super) fn in_sync_since(&self) -> Option<Instant> {
        self.in_sync_since
    }

    /// Follows the vCenter. Returns only when the session ends.
    pub(super) async fn follow(
        &mut self,
        config: &VcenterConfig,
        (id, instances): (VcenterId, &Instances),
        memory: &mut TagMemory,
        emitter: &mut Emitter,
        status: &watch::Sender<VcenterStatus>,
    ) -> Ended {
        match self.list_and_follow(config, (id, instances), memory, emitter, status).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn list_and_follow(
        &mut self,
        config: &VcenterConfig,
        (id, instances): (VcenterId, &Instances),
        memory: &mut TagMemory,
        emitter: &mut Emitter,
        status: &watch::Sender<VcenterStatus>,
    ) -> Result<std::convert::Infallible, Ended> {
        let client = self.client.insert(Arc::new(config.connect().await?)).clone();
        let instance_uuid = &client.about().instance_uuid;
        instances.claim(id, client.host(), instance_uuid)?;
        if !instance_uuid.is_empty() {
            emitter
                .emit(Event::VcenterIdentified { vcenter: id, instance_uuid: instance_uuid.as_str().into() })
                .await?;
        }
        memory.of_instance(instance_uuid);
        let tags = self.tags.insert(TagReader::new(config)?);
        let tagged = tags.first(memory).await?;
        let root = client.content().root_folder.clone();
        let inventory = self
            .inventory
            .insert(Watch::start(client.clone(), &root, &watched(&config.scope, config.with_datastores)).await?);
        let placements = self.placements.insert(Watch::start(client.clone(), &root, PLACEMENTS).await?);
        let mut picture = Picture::new(id).with_scope(config.scope.clone());

        emitter.relist_began().await?;
        inventory.list(|update| picture.apply(update)).await?;
        placements.list(|update| picture.place(update)).await?;
        inventory.read_again(LOADS).await?.iter().for_each(|update| picture.refresh(update));
        Queries::of(&mut picture, HostTasks::Unseen).ask(&client).await?.note(&mut picture);
        picture.set_tagged(tagged);
        // Emitted after all pages, so that a host is emitted once and with its datacenter, which may be on any page.
        emitter.emit_all(picture.changes()).await?;
        emitter.relist_ended().await?;
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
                "the user can see but not read some objects"
            );
        }

        // Dropping a pending wait may lose updates, so each wait continues while the other watch is processed.
        let mut moves = pin!(waits(placements, config.timing.wait_max));
        let mut rounds = pin!(rounds(inventory, config.timing));
        let mut tag_reads = pin!(tags.reads(memory, config.timing.read_again_every));
        let mut pending: Option<BoxFuture<'_, Result<QueryResults, VsphereError>>> = None;
        loop {
            tokio::select! {
                biased;
                Some(moved) = moves.next() => {
                    moved?.objects.iter().for_each(|update| picture.place(update));
                }
                Some(results) = conditionally(pending.as_mut()) => {
                    pending = None;
                    results?.note(&mut picture);
                }
                Some(tagged) = tag_reads.next() => picture.set_tagged(tagged),
                // Not while queries are pending: their results must not overwrite updates that arrive after they began.
                Some(round) = rounds.next(), if pending.is_none() => {
                    let whose = match round? {
                        Round::Updated(updates) => {
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
                        pending = Some(Box::pin(queries.ask(&client)));
                    }
                }
            }
            emitter.emit_all(picture.changes()).await?;
        }
    }

    /// Releases the resources at the vCenter, as far as this is possible within a few seconds.
    pub(super) async fn close(&mut self) {
        let watches = [self.placements.take(), self.inventory.take()];
        let stops = watches.into_iter().flatten().map(Watch::stop);
        // If this fails, the end of the session releases them.
        let _ = timeout(CLOSE_LIMIT, join_all(stops)).await;
        if let Some(mut tags) = self.tags.take() {
            let _ = timeout(CLOSE_LIMIT, tags.close()).await;
        }
        if let Some(client) = self.client.take()
            && !matches!(timeout(CLOSE_LIMIT, client.logout()).await, Ok(Ok(())))
        {
            tracing::debug!(vcenter = client.host(), "logout failed; the session will expire");
        }
    }
}

/// An endless sequence of waits.
fn waits(watch: &mut Watch, wait: Duration) -> impl Stream<Item = Result<Updates, VsphereError>> {
    try_unfold(watch, move |watch| async move {
        let updates = watch.next(wait).await?;
        Ok(Some((updates, watch)))
    })
}

/// The result of one round of the inventory watch.
enum Round {
    Updated(Updates),
    ReadAgain(Vec<ObjectUpdate>),
}

/// Waits for updates, and reads again periodically. The two alternate, so that a read never overwrites a later update.
fn rounds(watch: &mut Watch, timing: Timing) -> impl Stream<Item = Result<Round, VsphereError>> {
    let read_again_at = Instant::now() + timing.read_again_every;
    try_unfold((watch, read_again_at), move |(watch, read_again_at)| async move {
        let until_reading = read_again_at.saturating_duration_since(Instant::now());
        if until_reading.is_zero() {
            let found = watch.read_again(READ_AGAIN).await?;
            return Ok(Some((Round::ReadAgain(found), (watch, Instant::now() + timing.read_again_every))));
        }
        // The API counts whole seconds, and 0 would not wait at all.
        let wait = timing.wait_max.min(until_reading).max(Duration::from_secs(1));
        let updates = watch.next(wait).await?;
        Ok(Some((Round::Updated(updates), (watch, read_again_at))))
    })
}

/// The output of the future, if there is one.
async fn conditionally<F: Future + Unpin>(future: Option<&mut F>) -> Option<F::Output> {
    match future {
        Some(future) => Some(future.await),
        None => None,
    }
}
