//! What is sent to the outside, and what comes back.
//!
//! In: jobs. Out: futures that carry them out, bounded by the adapters; a notice that failed for now is tried a few times.

use std::time::Duration;

use futures::future::BoxFuture;
use scheduler::{PodEvent, PodRef};
use tokio::time::Instant;

use super::SchedulingPorts;
use super::bind::{self, Outcome};
use crate::ports::{Binding, Notice, NoticeSubject, PodName, PortError, Severity};

pub(super) struct BindJob {
    pub(super) pod: PodRef,
    pub(super) node: String,
    /// When its node was chosen.
    pub(super) began: Instant,
}

/// A write to the status of a pod, or its deletion.
pub(super) enum StatusJob {
    NotScheduled { pod: PodName, reason: &'static str, message: String },
    Nominate { pod: PodName, node: Option<String> },
    Delete { pod: PodName },
}

pub(super) enum Done {
    Bind { job: BindJob, outcome: Outcome },
    Status(Result<(), PortError>),
    Notice(Result<(), PortError>),
}

pub(super) type Flight = BoxFuture<'static, Done>;

const NOTICE_TRIES: u32 = 4;
const NOTICE_PAUSE: Duration = Duration::from_millis(250);

pub(super) fn bind(ports: SchedulingPorts, job: BindJob) -> Flight {
    Box::pin(async move {
        let binding = Binding {
            namespace: job.pod.namespace.clone(),
            pod: job.pod.name.clone(),
            uid: job.pod.uid.clone(),
            node: job.node.clone(),
        };
        let outcome = bind::bind(&ports, &binding).await;
        Done::Bind { job, outcome }
    })
}

pub(super) fn status(ports: SchedulingPorts, job: StatusJob) -> Flight {
    Box::pin(async move {
        let desk = ports.pods;
        Done::Status(match job {
            StatusJob::NotScheduled { pod, reason, message } => desk.not_scheduled(&pod, reason, &message).await,
            StatusJob::Nominate { pod, node } => desk.nominate(&pod, node.as_deref()).await,
            StatusJob::Delete { pod } => desk.delete(&pod).await,
        })
    })
}

pub(super) fn notice(ports: SchedulingPorts, notice: Notice) -> Flight {
    Box::pin(async move {
        let mut pause = NOTICE_PAUSE;
        let mut tries = 1;
        loop {
            match ports.notices.post(&notice).await {
                Err(PortError::Passing(_)) if tries < NOTICE_TRIES => tokio::time::sleep(pause).await,
                result => return Done::Notice(result),
            }
            tries += 1;
            pause *= 2;
        }
    })
}

pub(super) fn name(pod: &PodRef) -> PodName {
    PodName { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}

pub(super) fn event(pod: PodRef, event: PodEvent) -> Notice {
    let PodRef { namespace, name, uid, .. } = pod;
    let (severity, reason, message) = match event {
        PodEvent::Scheduled { message } => (Severity::Normal, "Scheduled", message),
        PodEvent::FailedScheduling { message } => (Severity::Warning, "FailedScheduling", message),
        PodEvent::Yielded(told) => (Severity::Warning, told.reason, told.message.to_owned()),
    };
    Notice { about: NoticeSubject::Pod { namespace, name, uid }, severity, reason, message }
}
