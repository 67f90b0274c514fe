//! Answers kube-scheduler's extender requests from the world.
//!
//! In: a pod and nodes by name. Out: which nodes fit and why the others do not, their scores, whether evictions would
//! help; and executed bindings. Verdicts combine InterPodAffinity on nodes with the lifted terms on physical hosts.
//!
//! - This file: responses, read from the world on the caller's thread. [`controller`]: bindings, which change the world
//!   and therefore run in the loop. [`assumed`]: pods that were bound here and that the watch has not shown yet.
//! - `admission`: which pods are bound at all, and to which nodes. [`verdict`]: the fixed reasons. `judge`: combines the model's verdicts and scores. `relaxed`: the pods whose
//!   lifted terms were relaxed. `obstacles`: the blocking pods and hosts, for an Event. `reports`: which pods get one.
//!
//! Invariants: a response is computed from a single state of the world, except that of preempt, whose work is unbounded:
//! it is computed node by node, and the world is locked only for a moment at a time. Requests fail until Kubernetes was
//! listed once, and when it has been lost for too long (`freshness`); a lost vCenter does not matter. The requested pod
//! never blocks itself.

mod admission;
pub mod assumed;
pub mod controller;
mod freshness;
mod judge;
mod obstacles;
mod relaxed;
mod reports;
pub mod verdict;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use model::World;
use model::affinity::TOO_FEW_HOSTS;
use model::event::{PodFacts, Source};
use parking_lot::RwLockReadGuard;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::admission::Admission;
use self::controller::{BindAction, BindOutcome, BindRequest};
use self::freshness::Freshness;
use self::judge::{Choice, Judge};
use self::relaxed::Relaxed;
use self::reports::Reports;
use crate::binding;
use crate::counters::Counter;
use crate::ports::{Binder, Binding, PodLookup};
use crate::runtime::{EventRecorder, Executor, Mailbox, Repeat, SharedWorld, Waker};

pub use controller::{BindError, ExtenderController};
pub use verdict::{NodeVerdict, Reason};

#[derive(Clone, Debug)]
pub struct ExtenderSettings {
    /// The weight of the physical host's load in a score, in percent; 0 ignores it.
    pub host_load_percent: u8,
    /// When a bind request is answered at the latest. Shorter than kube-scheduler's timeout, so that kube-scheduler
    /// gets the reason. The binding itself goes on until its outcome is known.
    pub bind_within: Duration,
    /// Nothing is bound, and no event is posted.
    pub dry_run: bool,
    /// Only pods with one of these as `schedulerName` are bound.
    pub scheduler_names: Vec<String>,
}

impl Default for ExtenderSettings {
    fn default() -> ExtenderSettings {
        ExtenderSettings {
            host_load_percent: 0,
            bind_within: Duration::from_secs(8),
            dry_run: false,
            scheduler_names: vec![DEFAULT_SCHEDULER.to_owned()],
        }
    }
}

/// A source that every response depends on was never listed, or has been lost for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the Kubernetes source {0:?} is not in sync")]
pub struct NotInSync(pub Source);

/// Why there is no response to a preemption request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PreemptError {
    #[error(transparent)]
    NotInSync(#[from] NotInSync),
    #[error("{judged} of {asked} nodes were judged in the time that kube-scheduler waits")]
    TooSlow { judged: usize, asked: usize },
}

/// A node on which some pods may be evicted.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    pub node: &'a str,
    /// The UIDs of the pods that would be evicted.
    pub victims: Vec<&'a str>,
}

/// Counters of bindings.
#[derive(Debug, Default)]
pub struct ExtenderCounts {
    pub bound: Counter,
    /// Rejected here because another pod was placed first.
    pub conflicts: Counter,
    /// Rejected here because the pod must not be bound, or not to this node.
    pub rejected: Counter,
    /// Rejected by the API server.
    pub failed: Counter,
    /// Without a response from the API server; the pod was read, and is not bound.
    pub unclear: Counter,
    assumed: AtomicUsize,
}

impl ExtenderCounts {
    /// The number of assumed pods: placed, but not yet shown by the watch.
    #[must_use]
    pub fn assumed(&self) -> usize {
        self.assumed.load(Ordering::Relaxed)
    }
}

pub const NAME: &str = "extender";
/// The scheduler of pods that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// Bind requests that are not processed yet.
const REQUESTS_MAX: usize = 4096;
/// The same blockers are recorded again after an hour, other blockers sooner: kube-scheduler retries a pending pod
/// repeatedly.
const REPEAT: Repeat = Repeat { same_after: Some(Duration::from_secs(3600)), changed_after: Duration::from_secs(30) };
const NO_HOST_FITS: &str = "NoHostFits";
/// How long one part of a computation may keep the world from changing.
const LOCKED_MAX: Duration = Duration::from_millis(5);
/// How long a bind request waits for the watch to show its pod. kube-scheduler's watch is rarely ahead by more.
const POD_WITHIN: Duration = Duration::from_secs(1);
/// The API server accepts no longer names. A request may contain longer ones, and what is kept of it must be bounded in
/// bytes, too.
const NAME_BYTES_MAX: usize = 253;
const NAMESPACE_BYTES_MAX: usize = 63;
/// A UUID has 36.
const UID_BYTES_MAX: usize = 128;

/// Answers requests, and passes bindings to its controller.
pub struct Extender {
    world: SharedWorld,
    settings: ExtenderSettings,
    relaxed: Mutex<Relaxed>,
    reports: Arc<Reports>,
    requests: Arc<Mailbox<BindRequest>>,
    freshness: Arc<Freshness>,
    counts: Arc<ExtenderCounts>,
}

impl Extender {
    /// Returns the extender and its binding controller. Add the controller to the runtime that owns this world,
    /// recorder and waker; if it does not run, bindings time out.
    #[must_use]
    pub fn new(
        world: SharedWorld,
        events: EventRecorder,
        waker: Waker,
        settings: ExtenderSettings,
    ) -> (Arc<Extender>, ExtenderController) {
        let requests = Mailbox::new(REQUESTS_MAX, waker);
        let counts = Arc::<ExtenderCounts>::default();
        let freshness = Arc::<Freshness>::default();
        let admission = Admission::new(settings.scheduler_names.clone());
        let (relaxed, reports) = (Mutex::default(), Arc::new(Reports::new(events)));
        let extender = Extender { world, settings, relaxed, reports, requests, freshness, counts };
        let controller = ExtenderController::new(&extender, admission);
        (Arc::new(extender), controller)
    }

    /// An extender that executes no bindings.
    #[must_use]
    pub fn answering(world: SharedWorld, settings: ExtenderSettings) -> Arc<Extender> {
        Extender::new(world, EventRecorder::default(), Waker::default(), settings).0
    }

    #[must_use]
    pub fn counts(&self) -> &ExtenderCounts {
        &self.counts
    }

    /// A verdict for each node, in order.
    pub fn filter(&self, pod: &PodFacts, nodes: &[&str]) -> Result<Vec<NodeVerdict>, NotInSync> {
        let now = Instant::now();
        let (verdicts, message, relaxed, is_known) = {
            let world = self.ready()?;
            let judge = Judge::of(&world, pod);
            let sheet = judge.verdicts(Choice::Among(nodes));
            let verdicts: Vec<NodeVerdict> = nodes.iter().map(|name| sheet.of(name)).collect();
            let none_fits = !nodes.is_empty() && verdicts.iter().all(|verdict| *verdict != NodeVerdict::Fits);
            let message = match (none_fits, sheet.is_relaxed()) {
                _ if self.settings.dry_run => None,
                // Finding the blockers costs more than the verdicts.
                (true, _) if self.reports.is_open(pod, now) => {
                    Some(obstacles::in_words(&judge, &pod.namespace, nodes, &verdicts))
                }
                (false, true) => Some(TOO_FEW_HOSTS.to_owned()),
                _ => None,
            };
            (verdicts, message, sheet.is_relaxed(), judge::known(&world, pod).is_some())
        };
        if let Some(message) = message {
            self.reports.report(pod, is_known, message, now);
        }
        lock(&self.relaxed).note(&pod.uid, relaxed);
        Ok(verdicts)
    }

    /// A score from 0 to 10 for each node, in order. An unknown node scores 0.
    pub fn prioritize(&self, pod: &PodFacts, nodes: &[&str]) -> Result<Vec<i64>, NotInSync> {
        let world = self.ready()?;
        Ok(Judge::of(&world, pod).scores(nodes, self.settings.host_load_percent))
    }

    /// For each candidate, in order: would the node fit after its victims are evicted? Gives up at `until`.
    pub fn preempt(
        &self,
        pod: &PodFacts,
        candidates: &[Candidate<'_>],
        until: Instant,
    ) -> Result<Vec<bool>, PreemptError> {
        drop(self.ready()?);
        let asked = candidates.len();
        let mut fits = Vec::with_capacity(asked);
        while fits.len() < asked {
            let world = self.ready()?;
            let judge = Judge::of(&world, pod);
            let locked = Instant::now();
            for candidate in &candidates[fits.len()..] {
                fits.push(judge.fits_without(candidate));
                let now = Instant::now();
                if now >= until && fits.len() < asked {
                    return Err(PreemptError::TooSlow { judged: fits.len(), asked });
                }
                if now >= locked + LOCKED_MAX {
                    break;
                }
            }
        }
        Ok(fits)
    }

    /// Checks the pod again, assumes it, and binds it. A started binding completes even if this future is dropped, or
    /// ends because the outcome is not known in time.
    pub async fn bind(&self, binding: Binding) -> Result<(), BindError> {
        if self.settings.dry_run {
            return Err(BindError::DryRun);
        }
        let Binding { namespace, pod, uid, node } = &binding;
        if !is_pod_name(namespace, pod, uid) || node.len() > NAME_BYTES_MAX {
            return Err(BindError::NameTooLong);
        }
        let relaxed = lock(&self.relaxed).contains(&binding.uid);
        let (reply, answer) = oneshot::channel();
        let request = BindRequest { binding, relaxed, wait_until: Instant::now() + POD_WITHIN, reply };
        self.requests.post(request).map_err(|_| BindError::Overloaded)?;
        match tokio::time::timeout(self.settings.bind_within, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => Err(BindError::TimedOut),
        }
    }

    fn ready(&self) -> Result<RwLockReadGuard<'_, World>, NotInSync> {
        let world = self.world.read();
        self.freshness.check(&world, Instant::now())?;
        Ok(world)
    }
}

/// Sends bindings to the API server, and determines their outcomes.
pub struct BindExecutor {
    pub binder: Arc<dyn Binder>,
    pub pods: Arc<dyn PodLookup>,
}

impl Executor<ExtenderController> for BindExecutor {
    fn execute(&self, action: BindAction) -> BoxFuture<'static, BindOutcome> {
        let (binder, pods) = (self.binder.clone(), self.pods.clone());
        Box::pin(async move {
            // It has waited for too long: kube-scheduler may have chosen another node by now.
            if action.is_given_up() {
                return BindOutcome { action, end: None };
            }
            let end = binding::bind(&*binder, &*pods, &action.binding).await;
            BindOutcome { action, end: Some(end) }
        })
    }
}

/// Whether a pod can have these names.
fn is_pod_name(namespace: &str, name: &str, uid: &str) -> bool {
    namespace.len() <= NAMESPACE_BYTES_MAX && name.len() <= NAME_BYTES_MAX && uid.len() <= UID_BYTES_MAX
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
