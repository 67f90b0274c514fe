//! One look at both sides: everything there is at this moment, then the connections are given back.
//!
//! In: the settings of `run`. Out: the facts of all sources and the record. Bounded in time; what did not come in time is
//! named.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::ports::{KeptRecord, Ledger};
use engine::rules::books::Books;
use model::event::{Event, Source, VcenterId};
use model::scheduling::SelectingKind;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use vsphere::inventory::VcenterStatus;

use super::outside::{EVENTS_QUEUED_MAX, follow_vcenters, is_true};
use super::settings::RunSettings;
use super::startup::Found;
use crate::failure::Failure;
use crate::snapshot::{Gathered, Snapshot};

/// How long the whole picture may take.
const WITHIN: Duration = Duration::from_secs(120);
/// One look at a time retries in step with nobody.
const JITTER_SEED: u64 = 0;
/// How long giving sessions back may take.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// What was seen, and the record in a form that can be written again.
pub struct Seen {
    pub snapshot: Snapshot,
    pub texts: BTreeMap<String, KeptRecord>,
}

/// How closely Kubernetes is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closeness {
    /// As closely as rules need.
    Rules,
    /// As closely as a scheduler does.
    Scheduling,
}

pub async fn look(
    settings: &RunSettings,
    found: &Found,
    ledger: &dyn Ledger,
    closeness: Closeness,
) -> Result<Seen, Failure> {
    let gathered = gather(settings, found, closeness).await?;
    let texts = ledger.load().await.map_err(|error| Failure::run(format!("the record can't be read: {error}")))?;
    let record: BTreeMap<String, String> = texts.iter().map(|(name, kept)| (name.clone(), kept.text.clone())).collect();
    let uuids: Vec<String> = found.vcenters.iter().map(|(_, about, _)| about.instance_uuid.clone()).collect();
    Ok(Seen { snapshot: gathered.into_snapshot(jiff::Timestamp::now(), &uuids, record), texts })
}

/// All there is, without the record.
pub async fn gather(settings: &RunSettings, found: &Found, closeness: Closeness) -> Result<Gathered, Failure> {
    let (events, mut received) = mpsc::channel::<Event>(EVENTS_QUEUED_MAX);
    let (stop, stopped) = watch::channel(false);
    let mut inventories = JoinSet::new();
    let stop_now = || is_true(stopped.clone());
    let vcenters = follow_vcenters(&settings.vcenters, &events, JITTER_SEED, stop_now, &mut inventories);
    let mut wanted = vec![Source::Nodes, Source::Pods, Source::Namespaces];
    wanted.extend(vcenters.iter().map(|vcenter| Source::Vcenter(vcenter.id)));
    let mut watches = JoinSet::new();
    let client = found.connection.client.clone();
    match closeness {
        Closeness::Rules => watches.spawn(kubernetes::watch::watch(client, events, JITTER_SEED)),
        Closeness::Scheduling => {
            wanted.extend(SelectingKind::ALL.map(Source::Selecting));
            watches.spawn(kubernetes::watch::watch_for_scheduling(client, events, JITTER_SEED))
        }
    };

    let mut gathered = Gathered::default();
    let gathering = async {
        while let Some(event) = received.recv().await {
            gathered.apply(event);
            if wanted.iter().all(|source| gathered.is_whole(*source)) {
                break;
            }
        }
    };
    let in_time = tokio::time::timeout(WITHIN, gathering).await.is_ok();
    drop(received);
    drop(stop);
    let _ = tokio::time::timeout(STOP_WITHIN, async { while inventories.join_next().await.is_some() {} }).await;
    if !in_time {
        let missing = wanted.iter().filter(|source| !gathered.is_whole(**source)).map(|source| match source {
            Source::Nodes => "nodes".to_owned(),
            Source::Pods => "pods".to_owned(),
            Source::Namespaces => "namespaces".to_owned(),
            Source::Selecting(_) => "services and controllers".to_owned(),
            Source::Vcenter(id) => match vcenters.iter().find(|vcenter| vcenter.id == *id) {
                Some(vcenter) => match &*vcenter.status.borrow() {
                    VcenterStatus::Lost { error, .. } => format!("vCenter {} ({error})", vcenter.host),
                    _ => format!("vCenter {}", vcenter.host),
                },
                None => "a vCenter".to_owned(),
            },
        });
        let missing: Vec<String> = missing.collect();
        let seconds = WITHIN.as_secs();
        return Err(Failure::run(format!("not everything was seen within {seconds} s: {}", missing.join(", "))));
    }
    Ok(gathered)
}

/// The record of these vCenters, which are in the order of their ids. A text that makes no sense is an error here: a plan
/// without it would be wrong.
pub fn books(instance_uuids: &[String], texts: BTreeMap<String, KeptRecord>) -> Result<Books, Failure> {
    let ids = (0u16..).map(VcenterId).zip(instance_uuids.iter().cloned());
    let mut books = Books::new(ids.collect());
    books.loaded(texts, |_| true);
    match books.first_unreadable() {
        None => Ok(books),
        Some((cluster, why)) => Err(Failure::run(format!("the record of cluster {}: {why}", cluster.1))),
    }
}
