//! What kube-scheduler asks an extender, decided from the world.
//!
//! In: a pod and nodes by name. Out: which nodes fit and why the others do not, how good they are, whether evictions would
//! help; and bindings, carried out. Hosts count as well as nodes: it is InterPodAffinity and the lifted terms composed.
//!
//! - [`verdict`]: reasons, in a few fixed words. `judge`: the model's answers, put together.
//! - [`bind`]: what makes it safe. [`assumed`]: which pods were bound here and not seen yet.
//! - `nowhere`: no outside, for whoever only asks.
//! - `recent`: the pods that were asked about. `tell`: which pod on which host is in the way, once, as an event.
//!
//! Invariants: an answer is given from one state of the world, never from two; nothing is answered before Kubernetes is in
//! sync, and a vCenter that is lost does not matter; the pod that is asked about never stands in its own way.

pub mod assumed;
pub mod bind;
mod judge;
mod nowhere;
mod recent;
mod tell;
pub mod verdict;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLockReadGuard};
use std::time::Duration;

use model::World;
use model::affinity::TOO_FEW_HOSTS;
use model::event::{PodFacts, Source};

use self::assumed::Assumptions;
use self::judge::{Choice, Judge};
use self::recent::Recent;
use self::tell::Teller;
use crate::SharedWorld;
use crate::counters::Counter;
use crate::ports::{Binder, NoticeBoard};

pub use bind::BindError;
pub use verdict::{NodeVerdict, Reason};

#[derive(Clone, Debug)]
pub struct ExtenderSettings {
    /// How many hundredths of a score the load of the physical host makes; 0 leaves it out.
    pub host_load_percent: u8,
    /// A binding takes no longer. Shorter than kube-scheduler waits, so that it hears why.
    pub bind_within: Duration,
    /// Nothing is bound, and no event is posted.
    pub dry_run: bool,
}

impl Default for ExtenderSettings {
    fn default() -> ExtenderSettings {
        ExtenderSettings { host_load_percent: 0, bind_within: Duration::from_secs(8), dry_run: false }
    }
}

/// What the outside does for the extender.
#[derive(Clone)]
pub struct ExtenderPorts {
    pub binder: Arc<dyn Binder>,
    pub notices: Arc<dyn NoticeBoard>,
}

/// A source that every answer rests on has not been seen whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} of Kubernetes are not in sync yet")]
pub struct NotInSync(pub Source);

/// A node on which some pods may be evicted.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    pub node: &'a str,
    /// The UIDs of the pods that would go.
    pub victims: Vec<&'a str>,
}

/// What is counted of bindings.
#[derive(Debug, Default)]
pub struct ExtenderCounts {
    pub bound: Counter,
    /// Refused here, because another pod was there first.
    pub conflicts: Counter,
    pub failed: Counter,
    /// Without an answer from the API server.
    pub unclear: Counter,
    pub notices_posted: Counter,
    pub notices_lost: Counter,
}

pub struct Extender {
    world: SharedWorld,
    ports: ExtenderPorts,
    settings: ExtenderSettings,
    /// Always locked after the world.
    assumed: Mutex<Assumptions>,
    recent: Mutex<Recent>,
    teller: Mutex<Teller>,
    telling: Arc<tokio::sync::Semaphore>,
    counts: Arc<ExtenderCounts>,
}

/// Events on their way at once; what is more is counted as lost.
const NOTICES_IN_FLIGHT_MAX: usize = 16;

impl Extender {
    #[must_use]
    pub fn new(world: SharedWorld, ports: ExtenderPorts, settings: ExtenderSettings) -> Extender {
        Extender {
            world,
            ports,
            settings,
            assumed: Mutex::default(),
            recent: Mutex::default(),
            teller: Mutex::default(),
            telling: Arc::new(tokio::sync::Semaphore::new(NOTICES_IN_FLIGHT_MAX)),
            counts: Arc::default(),
        }
    }

    #[must_use]
    pub fn counts(&self) -> &ExtenderCounts {
        &self.counts
    }

    /// How many pods are taken to be placed without having been seen so.
    #[must_use]
    pub fn assumed(&self) -> usize {
        lock(&self.assumed).len()
    }

    /// A verdict for each node, in order.
    pub fn filter(&self, pod: PodFacts, nodes: &[&str]) -> Result<Vec<NodeVerdict>, NotInSync> {
        let (verdicts, message, relaxed) = {
            let world = self.ready()?;
            let judge = Judge::of(&world, &pod);
            let sheet = judge.verdicts(Choice::Among(nodes));
            let verdicts: Vec<NodeVerdict> = nodes.iter().map(|name| sheet.of(name)).collect();
            let none_fits = !nodes.is_empty() && verdicts.iter().all(|verdict| *verdict != NodeVerdict::Fits);
            let message = match (none_fits, sheet.is_relaxed()) {
                // Working out who is in the way costs more than the verdicts.
                (true, _) if self.may_tell(&pod) => Some(tell::obstacles(&judge, nodes, &verdicts)),
                (false, true) => Some(TOO_FEW_HOSTS.to_owned()),
                _ => None,
            };
            (verdicts, message, sheet.is_relaxed())
        };
        if let Some(message) = message {
            self.tell(&pod, message);
        }
        lock(&self.recent).remember(pod, relaxed);
        Ok(verdicts)
    }

    /// A score from 0 to 10 for each node, in order. A node that is not known has 0.
    pub fn prioritize(&self, pod: &PodFacts, nodes: &[&str]) -> Result<Vec<i64>, NotInSync> {
        let world = self.ready()?;
        Ok(Judge::of(&world, pod).scores(nodes, self.settings.host_load_percent))
    }

    /// For each candidate, in order: would the node fit once its victims are gone?
    pub fn preempt(&self, pod: &PodFacts, candidates: &[Candidate<'_>]) -> Result<Vec<bool>, NotInSync> {
        let world = self.ready()?;
        let judge = Judge::of(&world, pod);
        Ok(candidates.iter().map(|candidate| judge.fits_without(candidate)).collect())
    }

    fn ready(&self) -> Result<RwLockReadGuard<'_, World>, NotInSync> {
        let world = self.world.read().unwrap_or_else(PoisonError::into_inner);
        in_sync(&world)?;
        Ok(world)
    }
}

fn in_sync(world: &World) -> Result<(), NotInSync> {
    match world.missing(model::Part::Extender.into()).next() {
        Some(row) => Err(NotInSync(row.source)),
        None => Ok(()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
