//! Binds one pod and determines the outcome.
//!
//! In: a pod and a node. Out: the pod is bound; or it is not, with the pod as it was read afterwards. A failed request
//! says little: it may have taken effect (no response arrived), another client may have bound the pod, or the pod was
//! deleted. So the pod is read again before anything is decided about it.
//!
//! Invariant: a binding without a response counts as failed only when the pod was read and is not bound; or after a
//! time in which the last known state becomes too old to decide anything.

use std::time::Duration;

use model::event::PodFacts;

use tokio::sync::Notify;

use super::SchedulingPorts;
use super::work::{self, WorkEnd, WorkError, WorkExecutor, WorkOrder};
use crate::ports::{Binding, PortError};
use crate::runtime::Backoff;

/// How often the pod is read again while the server does not respond: for longer than `STALE_MAX`.
const READS_MAX: u32 = 26;
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(15) };
/// A request without a response may still take effect for this long: no failure is reported before.
const LATE_EFFECT_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub enum BindEnd {
    /// Bound to the requested node.
    Bound,
    /// Only with the executor of a plugin: it leaves the pod to the next Bind plugin.
    Declined,
    /// Only with the executor of a plugin: the pod cannot be bound to this node now.
    Rejected { reason: String },
    /// The pod is unchanged.
    Failed { error: String },
    /// Another client changed the pod: it is on another node, is being deleted, or is another pod of the same name.
    Changed { error: String, pod: Box<PodFacts> },
    /// No pod of this name exists.
    NotFound { error: String },
}

pub(super) async fn bind(ports: &SchedulingPorts, binding: &Binding) -> BindEnd {
    match ports.binder.bind(binding).await {
        Ok(()) => BindEnd::Bound,
        Err(error) => find_out(ports, binding, !matches!(error, PortError::Transient(_)), error.to_string()).await,
    }
}

/// Lets a plugin's executor bind the pod.
pub(super) async fn bind_with(
    ports: &SchedulingPorts,
    binding: &Binding,
    executor: &dyn WorkExecutor,
    order: &WorkOrder,
) -> BindEnd {
    match work::attempt(executor, order, executor.within(), &Notify::new()).await {
        Ok(WorkEnd::Done) => BindEnd::Bound,
        Ok(WorkEnd::Declined) => BindEnd::Declined,
        Err(WorkError::Rejected(reason)) => BindEnd::Rejected { reason },
        Err(WorkError::Transient(error) | WorkError::Failed(error)) => find_out(ports, binding, false, error).await,
    }
}

/// Reads the pod after a failed request. `is_final`: the request certainly has no effect later.
async fn find_out(ports: &SchedulingPorts, binding: &Binding, mut is_final: bool, error: String) -> BindEnd {
    for read in 1..=READS_MAX {
        match ports.pods.read(&binding.namespace, &binding.pod).await {
            Ok(None) | Err(PortError::NotFound(_)) => return BindEnd::NotFound { error },
            Ok(Some(pod)) => match judge(pod, binding, &error) {
                BindEnd::Failed { .. } if !is_final => {
                    is_final = true;
                    tokio::time::sleep(LATE_EFFECT_WITHIN).await;
                }
                end => return end,
            },
            // A server that has just started refuses everything until it has read its roles.
            Err(PortError::Permanent(_) | PortError::Invalid(_)) if is_final => break,
            Err(_) => tokio::time::sleep(BACKOFF.without_jitter(read)).await,
        }
    }
    BindEnd::Failed { error }
}

fn judge(pod: PodFacts, binding: &Binding, error: &str) -> BindEnd {
    let error = error.to_owned();
    let is_same_pod = pod.uid == binding.uid;
    match &pod.node {
        Some(node) if is_same_pod && *node == binding.node => BindEnd::Bound,
        None if is_same_pod && !pod.terminating && !pod.finished => BindEnd::Failed { error },
        _ => BindEnd::Changed { error, pod: Box::new(pod) },
    }
}
