//! One stay at a vCenter: log in, list everything, follow each change, until something fails.
//!
//! Input: the configuration. Output: events through a [`Teller`]. The watch's waits and the slow reading again take turns
//! on one task, so that what was read never overtakes what was heard.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::event::{Event, Source, VcenterId};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::VcenterStatus;
use super::picture::{HostTasks, Picture};
use super::properties::{READ_AGAIN, WATCHED};
use crate::client::Client;
use crate::config::VcenterConfig;
use crate::error::VsphereError;
use crate::property::{self, Watch};

/// How long giving back the watch, and then the session, may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// The task that takes a host into maintenance mode.
const ENTER_MAINTENANCE: &str = "HostSystem.enterMaintenanceMode";

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
pub(super) struct Teller {
    events: mpsc::Sender<Event>,
    source: Source,
    told_lost: bool,
}

impl Teller {
    pub(super) fn new(events: mpsc::Sender<Event>, source: Source) -> Teller {
        Teller { events, source, told_lost: false }
    }

    pub(super) async fn lost(&mut self) -> Result<(), Closed> {
        if !self.told_lost {
            self.tell(Event::Lost(self.source)).await?;
            self.told_lost = true;
        }
        Ok(())
    }

    async fn relist_began(&mut self) -> Result<(), Closed> {
        self.told_lost = false;
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
    watch: Option<Watch>,
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
        teller: &mut Teller,
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
        teller: &mut Teller,
        status: &watch::Sender<VcenterStatus>,
    ) -> Result<std::convert::Infallible, Ended> {
        let client = self.client.insert(Arc::new(config.connect().await?)).clone();
        let root = client.content().root_folder.clone();
        let watch = self.watch.insert(Watch::start(client.clone(), &root, WATCHED).await?);
        let mut picture = Picture::new(id);

        teller.relist_began().await?;
        watch.list(|update| picture.apply(update)).await?;
        look_at_tasks(&client, &mut picture, HostTasks::Unseen).await?;
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

        let untold = picture.untold_count();
        if untold > 0 {
            tracing::warn!(vcenter = client.host(), objects = untold, "the user may see but not read some objects");
        }

        let mut read_again_at = Instant::now() + config.timing.read_again_every;
        loop {
            let until_reading = read_again_at.saturating_duration_since(Instant::now());
            // The wire counts whole seconds, and 0 would not wait at all.
            let wait = config.timing.wait_max.min(until_reading).max(Duration::from_secs(1));
            let updates = watch.next(wait).await?;
            updates.objects.iter().for_each(|update| picture.apply(update));
            // A VM's move does not wait for the question which hosts are on their way into maintenance.
            teller.tell_all(picture.changes()).await?;
            look_at_tasks(&client, &mut picture, HostTasks::Unseen).await?;
            teller.tell_all(picture.changes()).await?;
            if read_again_at <= Instant::now() {
                let found = watch.read_again(READ_AGAIN).await?;
                found.iter().for_each(|update| picture.refresh(update));
                look_at_tasks(&client, &mut picture, HostTasks::Entering).await?;
                teller.tell_all(picture.changes()).await?;
                read_again_at = Instant::now() + config.timing.read_again_every;
            }
        }
    }

    /// Gives back what is held, as far as the vCenter lets us within a few seconds.
    pub(super) async fn close(&mut self) {
        if let Some(watch) = self.watch.take() {
            // The session's end takes it along where this fails.
            let _ = timeout(CLOSE_LIMIT, watch.stop()).await;
        }
        if let Some(client) = self.client.take()
            && !matches!(timeout(CLOSE_LIMIT, client.logout()).await, Ok(Ok(())))
        {
            tracing::debug!(vcenter = client.host(), "the session could not be given back; it ends by itself");
        }
    }
}

/// Finds out which hosts are on their way into maintenance mode: the host itself says only when it has arrived.
async fn look_at_tasks(client: &Client, picture: &mut Picture, whose: HostTasks) -> Result<(), VsphereError> {
    let tasks_by_host = picture.host_tasks(whose);
    if tasks_by_host.is_empty() {
        return Ok(());
    }
    let tasks: Vec<_> = tasks_by_host.values().flatten().cloned().collect();
    let running = match property::read_each(client, &tasks, &["info.descriptionId", "info.state"]).await {
        Ok(found) => found,
        // A task among them has just been forgotten: then nothing is known of any, and the next reading tells.
        Err(VsphereError::Fault { fault, .. }) if fault.kind == "ManagedObjectNotFound" => return Ok(()),
        Err(error) => return Err(error),
    };
    let entering: BTreeMap<&str, bool> = running
        .iter()
        .map(|task| {
            let text = |path: &str| {
                let change = task.changes.iter().find(|change| change.path == path);
                change.and_then(|change| change.value.as_ref()).map_or("", |value| value.text.trim())
            };
            let unfinished = matches!(text("info.state"), "queued" | "running");
            (task.object.id.as_str(), unfinished && text("info.descriptionId") == ENTER_MAINTENANCE)
        })
        .collect();
    for (host, tasks) in &tasks_by_host {
        let any = tasks.iter().any(|task| entering.get(task.id.as_str()).copied().unwrap_or(false));
        picture.set_entering_maintenance(host, any);
    }
    Ok(())
}
