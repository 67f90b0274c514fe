//! One binding, and what became of it.
//!
//! In: a pod and a node. Out: it is bound; or it is not, with the pod as it was read again afterwards. A failed request says
//! little: it may have taken effect (no answer came), somebody else may have bound the pod, or it is gone. So the pod is read
//! again before anything is decided about it.

use std::time::Duration;

use model::event::PodFacts;

use super::SchedulingPorts;
use crate::ports::{Binding, PortError};
use crate::runtime::Backoff;

/// How often the pod is read again while the server does not answer: some minutes.
const READS_MAX: u32 = 16;
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(15) };
/// A request without an answer may still take effect for so long: the pod is not given up before.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub enum BindEnd {
    /// On the node that was meant.
    Bound,
    /// It is as it was.
    Failed { error: String },
    /// It is somebody else's by now: on another node, being deleted, or another pod of the name.
    Changed { error: String, pod: Box<PodFacts> },
    /// There is no pod of the name any more.
    Gone { error: String },
}

pub(super) async fn bind(ports: &SchedulingPorts, binding: &Binding) -> BindEnd {
    let error = match ports.binder.bind(binding).await {
        Ok(()) => return BindEnd::Bound,
        Err(error) => error,
    };
    let mut is_settled = !matches!(error, PortError::Transient(_));
    let error = error.to_string();
    for read in 1..=READS_MAX {
        match ports.pods.read(&binding.namespace, &binding.pod).await {
            Ok(None) | Err(PortError::NotFound(_)) => return BindEnd::Gone { error },
            Ok(Some(pod)) => match judge(pod, binding, &error) {
                BindEnd::Failed { .. } if !is_settled => {
                    is_settled = true;
                    tokio::time::sleep(SETTLED_AFTER).await;
                }
                end => return end,
            },
            Err(PortError::Transient(_)) => tokio::time::sleep(BACKOFF.without_jitter(read)).await,
            Err(PortError::Permanent(_) | PortError::Invalid(_)) => break,
        }
    }
    BindEnd::Failed { error }
}

fn judge(pod: PodFacts, binding: &Binding, error: &str) -> BindEnd {
    let error = error.to_owned();
    let is_meant = pod.uid == binding.uid;
    match &pod.node {
        Some(node) if is_meant && *node == binding.node => BindEnd::Bound,
        None if is_meant && !pod.terminating && !pod.finished => BindEnd::Failed { error },
        _ => BindEnd::Changed { error, pod: Box::new(pod) },
    }
}
