//! One binding, and what became of it.
//!
//! In: a pod and a node. Out: it is bound; or it is not, with the pod as it was read again afterwards. A failed request says
//! little: it may have taken effect (no answer came), somebody else may have bound the pod, or it is gone. So the pod is read
//! again before anything is decided about it.

use std::time::Duration;

use model::event::PodFacts;

use super::SchedulingPorts;
use crate::ports::{Binding, PortError};

/// How often the pod is read again while the server does not answer, with pauses of 0.5 s up to [`PAUSE_MAX`]: some minutes.
const READS_MAX: u32 = 16;
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// A request without an answer may still take effect for so long: the pod is not given up before.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) enum Outcome {
    /// On the node that was meant.
    Bound,
    /// It is as it was.
    Failed { error: String },
    /// It is somebody else's by now: on another node, being deleted, or another pod of the name.
    Changed { error: String, pod: Box<PodFacts> },
    /// There is no pod of the name any more.
    Gone { error: String },
}

pub(super) async fn bind(ports: &SchedulingPorts, binding: &Binding) -> Outcome {
    let error = match ports.binder.bind(binding).await {
        Ok(()) => return Outcome::Bound,
        Err(error) => error,
    };
    let mut is_settled = !matches!(error, PortError::Passing(_));
    let error = error.to_string();
    let mut pause = PAUSE_FIRST;
    for _ in 0..READS_MAX {
        match ports.pods.read(&binding.namespace, &binding.pod).await {
            Ok(None) | Err(PortError::Gone(_)) => return Outcome::Gone { error },
            Ok(Some(pod)) => match judge(pod, binding, &error) {
                Outcome::Failed { .. } if !is_settled => {
                    is_settled = true;
                    tokio::time::sleep(SETTLED_AFTER).await;
                }
                outcome => return outcome,
            },
            Err(PortError::Passing(_)) => tokio::time::sleep(pause).await,
            Err(PortError::Refused(_) | PortError::Faulty(_)) => break,
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
    Outcome::Failed { error }
}

fn judge(pod: PodFacts, binding: &Binding, error: &str) -> Outcome {
    let error = error.to_owned();
    let is_meant = pod.uid == binding.uid;
    match &pod.node {
        Some(node) if is_meant && *node == binding.node => Outcome::Bound,
        None if is_meant && !pod.terminating && !pod.finished => Outcome::Failed { error },
        _ => Outcome::Changed { error, pod: Box::new(pod) },
    }
}
