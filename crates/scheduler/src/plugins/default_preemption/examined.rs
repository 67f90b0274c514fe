//! What preemption found out about nodes, kept for the next pods of a class.
//!
//! In: the results of dry runs, and what changed since. Out: the results that still hold. A burst of equal pods then
//! examines each node once, and afterwards only the nodes that changed.
//!
//! Invariant: a kept result equals that of a new dry run. So nothing is kept if a filter that takes part reads more than
//! the node and its pods, and a result is forgotten with any change of its node, of the pods there or nominated there,
//! or of the budgets that cover them. A nominated pod does not count for itself, but for equal pods: its node is examined
//! again for it alone. Bounded by the number of nodes.

use model::scheduling::BudgetChanges;
use model::storage::arena::DenseId;
use model::{NodeId, NodeSet, World};

use super::choice::Cost;
use crate::framework::status::Rejection;

/// Of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Candidate(Cost),
    /// The index of the reason.
    Refused(usize),
}

/// Results by node, for one pod class.
#[derive(Default)]
pub struct Examined {
    /// Results depend only on nodes, their pods, and budgets.
    is_local: bool,
    /// The node to which the pod itself is nominated.
    own: Option<NodeId>,
    /// The nodes whose results hold.
    valid: NodeSet,
    /// The nodes whose results depend on what budgets allow.
    covered: NodeSet,
    budgets: BudgetChanges,
    /// By the index of the node.
    found: Vec<Finding>,
    reasons: Vec<Rejection>,
}

impl Examined {
    pub(crate) fn forget_all(&mut self) {
        self.valid.clear();
        self.covered.clear();
        self.reasons.clear();
    }

    pub(crate) fn forget(&mut self, changed: &NodeSet) {
        self.valid.subtract(changed);
    }

    /// Whether results are kept from now on.
    pub(crate) fn keep_if(&mut self, is_local: bool) {
        self.is_local = is_local;
        if !is_local {
            self.forget_all();
        }
    }

    /// For a pod that is nominated to this node.
    pub(crate) fn for_pod_on(self, own: Option<NodeId>) -> Self {
        Self { own, ..self }
    }

    /// Forgets what depends on budgets that changed.
    pub(super) fn begin(&mut self, world: &World) {
        let now = world.budget_changes();
        if now.selectors != self.budgets.selectors {
            self.forget_all();
        } else if now.allowances != self.budgets.allowances {
            self.valid.subtract(&self.covered);
        }
        self.budgets = now;
    }

    pub(super) fn of(&self, node: NodeId) -> Option<Finding> {
        let holds = self.valid.contains(node) && self.own != Some(node);
        holds.then(|| self.found.get(node.index()).copied()).flatten()
    }

    /// Keeps a result. `is_covered`: it depends on what budgets allow.
    pub(super) fn add(&mut self, node: NodeId, finding: Finding, is_covered: bool) {
        if !self.is_local || self.own == Some(node) {
            return;
        }
        if self.found.len() <= node.index() {
            self.found.resize(node.index() + 1, Finding::Refused(0));
        }
        self.found[node.index()] = finding;
        self.valid.insert(node);
        self.covered.set(node, is_covered);
    }

    /// The index of a reason.
    pub(super) fn reason(&mut self, rejection: Rejection) -> usize {
        self.reasons.iter().position(|known| *known == rejection).unwrap_or_else(|| {
            self.reasons.push(rejection);
            self.reasons.len() - 1
        })
    }

    pub(super) fn rejection(&self, reason: usize) -> Option<&Rejection> {
        self.reasons.get(reason)
    }
}
