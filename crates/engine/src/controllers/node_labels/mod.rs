//! Labels every node with the physical host that it runs on.
//!
//! In: changes of nodes, VMs and hosts. Out: patches of node labels, and Events on nodes that moved, that another
//! client labelled, or that have no certain VM. A label is computed from the latest world when it is sent, so there is
//! no queue of old decisions.
//!
//! - [`controller`]: the state machine. [`labeller`]: when a node is due. [`problems`]: nodes that cannot be labelled.
//!   `causes`: why a label changes.
//!
//! Invariants: a label is written only while the nodes and the vCenter of the node's VM are in sync, or lost for a
//! short time. A vCenter that is down affects only the nodes whose VMs it manages. If the host is unknown, the label
//! stays unchanged.

mod causes;
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
            let result = store.change_labels(&action.node, &action.before, &action.changes).await;
            LabelOutcome { write: action, result }
        })
    }
}
