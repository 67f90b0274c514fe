//! A one-time read of both sides: the current state of all sources, then the connections are closed.
//!
//! In: the settings of `run`. Out: the facts of all sources and the rule record. The time is limited; an error names
//! the sources that did not complete in time.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::drs_rules::planner;
use engine::drs_rules::records::RuleRecords;
use engine::ports::{PortError, RecordStore as _, StoredRecord};
use engine::runtime::Lease;
use kubernetes::BoundedClient;
use kubernetes::record_store::ConfigMapRecordStore;
use model::event::{Event, Source, VcenterId};
use model::{Part, Parts, World, sources_for};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use vsphere::inventory::VcenterStatus;

use super::leading::{self, Held};
use super::outside::{EVENTS_QUEUED_MAX, Tasks, follow_vcenters, is_true};
use super::settings::RunSettings;
use super::startup::{self, Found, Purpose};
use crate::failure::Failure;
use crate::snapshot::{Gathered, Snapshot};

/// Time limit for reading all sources.
const WITHIN: Duration = Duration::from_secs(120);
/// A single read needs no random jitter: no other client retries in step with it.
const JITTER_SEED: u64 = 0;
/// Time limit for closing the vCenter sessions.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// The state that was read, and the rule record in a form that can be written back.
pub struct StateRead {
    pub snapshot: Snapshot,
    stored: BTreeMap<String, StoredRecord>,
    record_store: ConfigMapRecordStore,
    client: BoundedClient,
    held: Option<Held>,
}

/// The world, the rule records, and the store of the records.
pub struct RulesRead {
    pub world: World,
    pub records: RuleRecords,
    pub record_store: ConfigMapRecordStore,
    pub client: BoundedClient,
    /// What a command writes, it writes only while it holds this.
    pub lease: Lease,
    /// For a command that writes.
    held: Option<Held>,
}

impl RulesRead {
    /// Runs a command that writes, then releases the lease, however the command ended.
    pub async fn write<T>(mut self, command: impl AsyncFnOnce(RulesRead) -> T) -> T {
        let held = self.held.take();
        let ended = command(self).await;
        if let Some(held) = held {
            held.release().await;
        }
        ended
    }
}

/// Runs the startup checks for this purpose, then reads all sources and the rule record. A command that writes holds
/// the lease from before the first read.
pub async fn read_state(settings: &RunSettings, purpose: Purpose) -> Result<StateRead, Failure> {
    let found = startup::check(settings, purpose).await?;
    let held = match purpose {
        Purpose::Record | Purpose::Cleanup { .. } => leading::hold(settings, found.connection.client.clone()).await?,
        _ => None,
    };
    let record_store = ConfigMapRecordStore::new(found.connection.client.clone(), settings.record_namespace.clone());
    let read = async {
        let gathered = gather(settings, &found, purpose.parts(settings.parts())).await?;
        let stored = record_store.load().await.map_err(|error| unreadable(&error))?;
        Ok::<_, Failure>((gathered, stored))
    };
    let (gathered, stored) = match Box::pin(read).await {
        Ok(read) => read,
        Err(failure) => return Err(after_release(held, failure).await),
    };
    let record: BTreeMap<String, String> =
        stored.iter().map(|(name, record)| (name.clone(), record.text.clone())).collect();
    let snapshot = gathered.into_snapshot(jiff::Timestamp::now(), &found.instance_uuids(), record);
    Ok(StateRead { snapshot, stored, record_store, client: found.connection.client.clone(), held })
}

/// A failure after which the command writes nothing. Without a release, `run` would wait until the lease expires.
async fn after_release(held: Option<Held>, failure: Failure) -> Failure {
    if let Some(held) = held {
        held.release().await;
    }
    failure
}

pub fn unreadable(error: &PortError) -> Failure {
    Failure::run(format!("cannot read the rule record: {error}"))
}

/// The same, as a world and rule records.
pub async fn read_rules(settings: &RunSettings, purpose: Purpose) -> Result<RulesRead, Failure> {
    let StateRead { snapshot, stored, record_store, client, held } = read_state(settings, purpose).await?;
    let (world, records) = match world_and_records(settings, snapshot, stored) {
        Ok(read) => read,
        Err(failure) => return Err(after_release(held, failure).await),
    };
    let lease = held.as_ref().map_or_else(Lease::always, Held::lease);
    Ok(RulesRead { world, records, record_store, client, lease, held })
}

/// Runs the startup checks, then reads all sources without the rule record.
pub async fn read_without_record(settings: &RunSettings, purpose: Purpose) -> Result<Snapshot, Failure> {
    let found = startup::check(settings, purpose).await?;
    let gathered = gather(settings, &found, purpose.parts(settings.parts())).await?;
    Ok(gathered.into_snapshot(jiff::Timestamp::now(), &found.instance_uuids(), BTreeMap::new()))
}

async fn gather(settings: &RunSettings, found: &Found, parts: Parts) -> Result<Gathered, Failure> {
    let (events, mut received) = mpsc::channel::<Event>(EVENTS_QUEUED_MAX);
    let (stop, stopped) = watch::channel(false);
    let mut inventories = Tasks::default();
    let stop_now = || is_true(stopped.clone());
    let mut vcenters = settings.vcenters.clone();
    vcenters.iter_mut().for_each(|vcenter| vcenter.with_datastores = parts.contains(Part::Scheduling));
    let vcenters = follow_vcenters(&vcenters, &events, JITTER_SEED, stop_now, &mut inventories);
    let of_kubernetes = sources_for(parts).map(|row| row.source);
    let needed: Vec<Source> = of_kubernetes.chain(vcenters.iter().map(|vcenter| Source::Vcenter(vcenter.id))).collect();
    let mut watches = JoinSet::new();
    watches.spawn(kubernetes::watch::watch(found.connection.client.clone(), events, JITTER_SEED, parts));

    let mut gathered = Gathered::default();
    let gathering = async {
        while let Some(event) = received.recv().await {
            gathered.apply(event);
            if needed.iter().all(|source| gathered.is_whole(*source)) {
                break;
            }
        }
    };
    let in_time = tokio::time::timeout(WITHIN, gathering).await.is_ok();
    drop(received);
    drop(stop);
    let _ = tokio::time::timeout(STOP_WITHIN, inventories.finish()).await;
    if !in_time {
        let missing = needed.iter().filter(|source| !gathered.is_whole(**source)).map(|source| match source {
            Source::Vcenter(id) => match vcenters.iter().find(|vcenter| vcenter.id == *id) {
                Some(vcenter) => match &*vcenter.status.borrow() {
                    VcenterStatus::Lost { error, .. } => format!("vCenter {} ({error})", vcenter.host),
                    _ => format!("vCenter {}", vcenter.host),
                },
                None => "a vCenter".to_owned(),
            },
            of_kubernetes => of_kubernetes.name().to_owned(),
        });
        let missing: Vec<String> = missing.collect();
        let seconds = WITHIN.as_secs();
        return Err(Failure::run(format!("sources not read within {seconds} s: {}", missing.join(", "))));
    }
    Ok(gathered)
}

/// The world and the rule records of a snapshot. An unreadable record is an error: a plan without it would be wrong.
pub fn world_and_records(
    settings: &RunSettings,
    snapshot: Snapshot,
    stored: BTreeMap<String, StoredRecord>,
) -> Result<(World, RuleRecords), Failure> {
    // The vCenters are ordered by ID.
    let mut records = RuleRecords::default();
    for (vcenter, uuid) in (0u16..).map(VcenterId).zip(snapshot.instance_uuids()).filter(|(_, uuid)| !uuid.is_empty()) {
        records.identify(vcenter, &uuid.into());
    }
    records.loaded(stored, |_| true);
    if let Some((cluster, why)) = records.first_unreadable() {
        return Err(Failure::run(format!("cannot read the rule record of cluster {}: {why}", cluster.id)));
    }
    let mut world = World::with_lifting(settings.lifting.clone());
    snapshot.fill(&mut world);
    if let Some(prefix) = planner::prefix(&world) {
        records.recognise(&prefix);
    }
    for (cluster, name) in records.foreign() {
        tracing::warn!(cluster = cluster.id, "the record lists {name:?}, which is not Bridger's; it is ignored");
    }
    Ok((world, records))
}
