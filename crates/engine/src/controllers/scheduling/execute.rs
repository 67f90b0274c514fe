//! Executes the controller's actions.
//!
//! In: actions. Out: futures that execute them; the adapters bound their duration.

use futures::future::BoxFuture;
use scheduler::PodRef;
use tokio::time::Instant;

use super::SchedulingPorts;
use super::controller::Scheduling;
use crate::binding::{self, BindEnd};
use crate::ports::{Binding, PodName, PortError};
use crate::runtime::{Action, Executor};

#[derive(Debug)]
pub enum SchedulingAction {
    Bind(BindJob),
    /// A write to the status of a pod, or its deletion.
    Status(StatusJob),
}

#[derive(Debug)]
pub struct BindJob {
    pub(super) pod: PodRef,
    pub(super) node: String,
    /// When its node was chosen.
    pub(super) began: Instant,
}

#[derive(Debug)]
pub enum StatusJob {
    NotScheduled { pod: PodName, reason: &'static str, message: String },
    Nominate { pod: PodName, node: Option<String> },
    Delete { pod: PodName },
}

impl Action for SchedulingAction {
    fn is_write(&self) -> bool {
        true
    }
}

#[derive(Debug)]
pub enum SchedulingOutcome {
    Bind { job: BindJob, end: BindEnd },
    Status(Result<(), PortError>),
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
                let end = binding::bind(&*ports.binder, &*ports.pods, &binding).await;
                SchedulingOutcome::Bind { job, end }
            }),
            SchedulingAction::Status(job) => Box::pin(async move {
                let writer = ports.pods;
                SchedulingOutcome::Status(match job {
                    StatusJob::NotScheduled { pod, reason, message } => {
                        writer.not_scheduled(&pod, reason, &message).await
                    }
                    StatusJob::Nominate { pod, node } => writer.nominate(&pod, node.as_deref()).await,
                    StatusJob::Delete { pod } => writer.delete(&pod).await,
                })
            }),
        }
    }
}

pub(super) fn name(pod: &PodRef) -> PodName {
    PodName { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}
