//! Node labels: every node carries the physical host it runs on.
//!
//! In: nodes, VMs and hosts as they change. Out: patches of node labels, and Events on nodes that moved, that somebody else
//! labelled, or whose machine is not certain. A label is worked out from the latest world at the moment it is sent, so there is no
//! queue of old decisions.
//!
//! - [`controller`]: the state machine. [`labeller`]: when a node is due. [`problems`]: nodes that cannot be labelled.
//!
//! Invariants: a label is written only while the nodes and the vCenter that the node lives on are in sync, or lost for a short time;
//! a vCenter that is down stops only the nodes that live on it; an unknown host leaves the label unchanged.

pub mod controller;
pub mod labeller;
pub mod problems;

use std::sync::Arc;

use futures::future::BoxFuture;

pub use controller::{LabelOutcome, LabelWrite, NodeLabels, NodeLabelsSettings};

use crate::ports::LabelStore;
use crate::runtime::Executor;

/// Writes labels.
pub struct LabelExecutor(pub Arc<dyn LabelStore>);

impl Executor<NodeLabels> for LabelExecutor {
    fn execute(&self, action: LabelWrite) -> BoxFuture<'static, LabelOutcome> {
        let store = self.0.clone();
        Box::pin(async move {
            let result = store.change_labels(&action.node, &action.changes).await;
            LabelOutcome { write: action, result }
        })
    }
}
