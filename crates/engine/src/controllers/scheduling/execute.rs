//! Executes the controller's actions.
//!
//! In: actions. Out: futures that execute them; the adapters, and the limits of plugins' executors, bound their duration.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use scheduler::{NominationWrite, PodRef, Work};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::SchedulingPorts;
use super::controller::Scheduling;
use super::evict::{self, EvictJob, Evicted};
use super::work::{self, BindWorkEnd, WorkEnd, WorkError, WorkExecutor, WorkOrder};
use crate::binding;
use crate::ports::{Binding, PodName, PortError};
use crate::runtime::{Action, Executor};

/// How often a write to a pod is sent that fails for a passing reason, and the first pause, as kube-scheduler does.
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const PAUSE_GROWTH: u32 = 5;

#[derive(Debug)]
pub enum SchedulingAction {
    Bind(BindJob),
    /// Work of a PreBind plugin.
    Work(WorkJob),
    /// A write to the status of a pod.
    Status(StatusJob),
    Evict(EvictJob),
}

#[derive(Debug)]
pub struct BindJob {
    pub(super) pod: PodRef,
    pub(super) node: String,
    pub(super) plugin: &'static str,
    pub(super) work: Work,
    /// The executor of a plugin other than DefaultBinder.
    pub(super) executor: Option<SharedExecutor>,
    /// When its node was chosen.
    pub(super) began: Instant,
}

#[derive(Debug)]
pub struct WorkJob {
    pub(super) pod: PodRef,
    pub(super) node: String,
    pub(super) plugin: &'static str,
    pub(super) work: Work,
    pub(super) executor: SharedExecutor,
    pub(super) cancelled: Arc<Notify>,
    /// When its node was chosen.
    pub(super) began: Instant,
    /// Until when it must be done.
    pub(super) until: Instant,
    /// Attempts that failed for a passing reason.
    pub(super) failures: u32,
}

#[derive(Clone)]
pub struct SharedExecutor(pub(super) Arc<dyn WorkExecutor>);

impl std::fmt::Debug for SharedExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WorkExecutor")
    }
}

#[derive(Debug)]
pub enum StatusJob {
    NotScheduled { pod: PodName, reason: &'static str, message: String, nomination: NominationWrite },
    Nominate { pod: PodName, node: Option<String> },
}

impl StatusJob {
    pub(super) fn pod(&self) -> &PodName {
        match self {
            StatusJob::NotScheduled { pod, .. } | StatusJob::Nominate { pod, .. } => pod,
        }
    }
}

impl Action for SchedulingAction {
    fn is_write(&self) -> bool {
        true
    }
}

#[derive(Debug)]
pub enum SchedulingOutcome {
    Bind { job: BindJob, end: BindWorkEnd },
    Work { job: WorkJob, end: Result<WorkEnd, WorkError> },
    Status { pod: PodName, end: Result<(), PortError> },
    Evicted { job: EvictJob, end: Evicted },
}

pub struct SchedulingExecutor(pub SchedulingPorts);

impl Executor<Scheduling> for SchedulingExecutor {
    fn execute(&self, action: SchedulingAction) -> BoxFuture<'static, SchedulingOutcome> {
        let ports = self.0.clone();
        match action {
            SchedulingAction::Bind(job) => Box::pin(async move {
                let binding = Binding {
                    namespace: job.pod.namespace.clone(),
                    pod: job.pod.name.clone(),
                    uid: job.pod.uid.clone(),
                    node: job.node.clone(),
                };
                let end = match &job.executor {
                    None => BindWorkEnd::Ended(binding::bind(&*ports.binder, &*ports.pods, &binding).await),
                    Some(executor) => {
                        let order = WorkOrder { pod: name(&job.pod), node: job.node.clone(), work: job.work.clone() };
                        work::bind(&*executor.0, &order, &*ports.pods, &binding).await
                    }
                };
                SchedulingOutcome::Bind { job, end }
            }),
            SchedulingAction::Work(job) => Box::pin(async move {
                let order = WorkOrder { pod: name(&job.pod), node: job.node.clone(), work: job.work.clone() };
                let left = job.until.saturating_duration_since(Instant::now());
                let end = work::attempt(&*job.executor.0, &order, left, &job.cancelled).await;
                SchedulingOutcome::Work { job, end }
            }),
            SchedulingAction::Evict(job) => Box::pin(async move {
                let end = evict::all(&*ports.pods, &job).await;
                SchedulingOutcome::Evicted { job, end }
            }),
            SchedulingAction::Status(job) => Box::pin(async move {
                let writer = &*ports.pods;
                let end = repeated(|| match &job {
                    StatusJob::NotScheduled { pod, reason, message, nomination } => {
                        let nominated = match nomination {
                            NominationWrite::Nothing => None,
                            NominationWrite::Clear => Some(None),
                            NominationWrite::Set(node) => Some(Some(node.as_str())),
                        };
                        writer.not_scheduled(pod, reason, message, nominated)
                    }
                    StatusJob::Nominate { pod, node } => writer.nominate(pod, node.as_deref()),
                })
                .await;
                SchedulingOutcome::Status { pod: job.pod().clone(), end }
            }),
        }
    }
}

/// Sends a write to a pod again after a passing failure.
pub(super) async fn repeated<'a>(
    mut write: impl FnMut() -> BoxFuture<'a, Result<(), PortError>>,
) -> Result<(), PortError> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..ATTEMPTS {
        match write().await {
            Err(PortError::Transient(_)) => tokio::time::sleep(pause).await,
            end => return end,
        }
        pause *= PAUSE_GROWTH;
    }
    write().await
}

pub(super) fn name(pod: &PodRef) -> PodName {
    PodName { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}
