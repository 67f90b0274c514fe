//! Binds one pod and determines the outcome, for every controller that binds pods.
//!
//! In: a pod and a node. Out: the pod is bound; or it is not, with the pod as it was read afterwards. A failed request
//! says little: it may have taken effect (no response arrived), another client may have bound the pod, or the pod was
//! deleted. So the pod is read again before anything is decided about it.
//!
//! Invariant: a binding without a response counts as failed only when the pod was read and is not bound; or after a
//! time in which the last known state becomes too old to decide anything.

use std::time::Duration;

use model::World;
use model::event::PodFacts;
use model::storage::uid::Uid;

use crate::ports::{Binder, Binding, PodLookup, PortError};
use crate::runtime::Backoff;

/// How often the pod is read again while the server does not respond: for 7 minutes. That is longer than `STALE_MAX`,
/// which counts from the moment at which the watch is known to be dead, up to 95 s after it died.
const READS_MAX: u32 = 32;
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(15) };
/// A request without a response may still take effect for this long: no failure is reported before.
const LATE_EFFECT_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub enum BindEnd {
    /// Bound to the requested node.
    Bound,
    /// The pod is unchanged.
    Failed { error: PortError },
    /// Another client changed the pod: it is on another node, is being deleted, or is another pod of the same name.
    Changed { error: PortError, pod: Box<PodFacts> },
    /// No pod of this name exists.
    NotFound { error: PortError },
}

/// The errors in the result are that of the binding, not those of reading the pod.
pub async fn bind(binder: &dyn Binder, pods: &dyn PodLookup, binding: &Binding) -> BindEnd {
    match binder.bind(binding).await {
        Ok(()) => BindEnd::Bound,
        Err(error) => find_out(pods, binding, error).await,
    }
}

/// Determines the outcome of a binding that failed with this error.
pub async fn find_out(pods: &dyn PodLookup, binding: &Binding, error: PortError) -> BindEnd {
    let mut is_final = !matches!(error, PortError::Transient(_));
    for read in 1..=READS_MAX {
        match pods.read(&binding.namespace, &binding.pod).await {
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

fn judge(pod: PodFacts, binding: &Binding, error: &PortError) -> BindEnd {
    let error = error.clone();
    let is_same_pod = pod.uid == binding.uid;
    match &pod.node {
        Some(node) if is_same_pod && *node == binding.node => BindEnd::Bound,
        None if is_same_pod && !pod.terminating && !pod.finished => BindEnd::Failed { error },
        _ => BindEnd::Changed { error, pod: Box::new(pod) },
    }
}

/// Whether the world has this pod, and not another one of its name. Only then what was read of the pod is news: the
/// watch may have shown its successor in the meantime.
pub fn is_known(world: &World, namespace: &str, name: &str, uid: &str) -> bool {
    let pod = world.pod_id(namespace, name).and_then(|id| world.pod(id));
    pod.is_some_and(|pod| pod.uid == Uid::from(uid))
}
