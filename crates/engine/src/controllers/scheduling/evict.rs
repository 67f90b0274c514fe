//! Evicts pods to make room for another one.
//!
//! In: the victims of one preemption. Out: which of them were evicted, and why the others were not. A victim gets the
//! condition DisruptionTarget before it is deleted, so that its owner knows why, and with its own grace period.
//!
//! Invariants: a later pod of the same name is never touched. The last victim goes last, and only if all others went:
//! the pod they go for is tried again when the last one is gone, and without it as soon as one of them fails.

use std::time::Duration;

use futures::future::join_all;
use scheduler::PodRef;

use super::execute;
use crate::ports::{PodName, PodStatusWriter, PortError};

/// How often a write is sent that fails for a passing reason, and the first pause, as kube-scheduler does.
const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const PAUSE_GROWTH: u32 = 5;

/// A preemption.
#[derive(Debug)]
pub struct EvictJob {
    /// The pod that gets the room.
    pub(super) pod: PodRef,
    pub(super) node: String,
    /// The scheduler in whose name they are evicted.
    pub(super) profile: String,
    /// The most important first.
    pub(super) victims: Vec<PodRef>,
}

#[derive(Debug, Default)]
pub struct Evicted {
    pub(super) victims: Vec<PodRef>,
    pub(super) error: Option<String>,
}

pub(super) async fn all(pods: &dyn PodStatusWriter, job: &EvictJob) -> Evicted {
    let message = format!("{}: preempting to accommodate a higher priority pod", job.profile);
    let Some((last, others)) = job.victims.split_last() else { return Evicted::default() };
    let mut going = Vec::with_capacity(others.len());
    for victim in others {
        going.push(one(pods, victim, &message));
    }
    let mut evicted = Evicted::default();
    for (victim, end) in others.iter().zip(join_all(going).await) {
        evicted.note(victim, end);
    }
    if evicted.error.is_none() {
        let end = one(pods, last, &message).await;
        evicted.note(last, end);
    }
    evicted
}

impl Evicted {
    fn note(&mut self, victim: &PodRef, end: Result<bool, PortError>) {
        match end {
            Ok(true) => self.victims.push(victim.clone()),
            Ok(false) => (),
            Err(error) => {
                self.error.get_or_insert_with(|| error.to_string());
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Write<'a> {
    /// The condition, with this message.
    Disrupt(&'a str),
    Delete,
}

/// `false` if the pod is gone already.
async fn one(pods: &dyn PodStatusWriter, victim: &PodRef, message: &str) -> Result<bool, PortError> {
    let pod = execute::name(victim);
    for write in [Write::Disrupt(message), Write::Delete] {
        match send(pods, &pod, write).await {
            Ok(()) => (),
            // Invalid: another pod has its name.
            Err(PortError::NotFound(_) | PortError::Invalid(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Sends it again after a passing failure.
async fn send(pods: &dyn PodStatusWriter, pod: &PodName, write: Write<'_>) -> Result<(), PortError> {
    let mut pause = FIRST_PAUSE;
    for attempt in 1.. {
        let end = match write {
            Write::Disrupt(message) => pods.disrupt(pod, message).await,
            Write::Delete => pods.delete(pod).await,
        };
        match end {
            Err(PortError::Transient(_)) if attempt < ATTEMPTS => tokio::time::sleep(pause).await,
            end => return end,
        }
        pause *= PAUSE_GROWTH;
    }
    Ok(())
}

/// For logs.
pub(super) fn names(victims: &[PodRef]) -> String {
    let names = victims.iter().map(|PodRef { namespace, name, .. }| format!("{namespace}/{name}"));
    names.collect::<Vec<_>>().join(" ")
}
