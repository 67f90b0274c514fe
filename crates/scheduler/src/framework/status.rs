//! The results of plugins, with their reasons.
//!
//! [`Status`] is a plugin's result for a pod, [`Rejection`] stands for the two negative statuses, and [`Rejections`]
//! holds a plugin's results for all nodes: a small number per node that stands for one of a few distinct rejections, so
//! that rejecting thousands of nodes allocates nothing per node.

use std::borrow::Cow;

use model::NodeId;
use model::storage::arena::DenseId;

use model::NodeSet;

/// A plugin's result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    #[default]
    Success,
    /// The pod does not fit now. Preemption, or a change in the world, may help.
    Unschedulable(Reasons),
    /// The pod does not fit now, and preemption does not help.
    UnschedulableAndUnresolvable(Reasons),
    /// Only from Permit: the pod waits for permission.
    Wait,
    /// The plugin does not apply to this pod. From PreFilter or PreScore: the plugin's Filter or Score does not run in
    /// this cycle. From Bind: the next Bind plugin runs.
    Skip,
    /// An error that the pod did not cause. The pod is retried after a back-off.
    Error(String),
}

impl Status {
    pub fn unschedulable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Unschedulable(Reasons::one(reason))
    }

    pub fn unresolvable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::UnschedulableAndUnresolvable(Reasons::one(reason))
    }

    pub fn is_success(&self) -> bool {
        *self == Self::Success
    }

    /// kube-scheduler's name.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Unschedulable(_) => "Unschedulable",
            Self::UnschedulableAndUnresolvable(_) => "UnschedulableAndUnresolvable",
            Self::Wait => "Wait",
            Self::Skip => "Skip",
            Self::Error(_) => "Error",
        }
    }

    /// For messages: the error or the reasons, otherwise the name.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Error(error) => error.clone(),
            Self::Unschedulable(reasons) | Self::UnschedulableAndUnresolvable(reasons) => reasons.message(),
            other => format!("unexpected status {}", other.as_str()),
        }
    }

    /// The rejection, if the status is one.
    pub fn into_rejection(self) -> Option<Rejection> {
        match self {
            Self::Unschedulable(reasons) => Some(Rejection { resolvable: true, reasons }),
            Self::UnschedulableAndUnresolvable(reasons) => Some(Rejection { resolvable: false, reasons }),
            Self::Success | Self::Wait | Self::Skip | Self::Error(_) => None,
        }
    }
}

impl From<Rejection> for Status {
    fn from(rejection: Rejection) -> Self {
        if rejection.resolvable {
            Self::Unschedulable(rejection.reasons)
        } else {
            Self::UnschedulableAndUnresolvable(rejection.reasons)
        }
    }
}

/// The reasons of a rejection: usually one fixed text, sometimes several (one for each insufficient resource).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons(Cow<'static, [Cow<'static, str>]>);

impl Reasons {
    pub fn one(reason: impl Into<Cow<'static, str>>) -> Self {
        Self(Cow::Owned(vec![reason.into()]))
    }

    /// Fixed texts, without an allocation: `const FULL: Reasons = Reasons::fixed(&[Cow::Borrowed("Too many pods")]);`
    pub const fn fixed(reasons: &'static [Cow<'static, str>]) -> Self {
        Self(Cow::Borrowed(reasons))
    }

    pub fn many(reasons: Vec<Cow<'static, str>>) -> Self {
        Self(Cow::Owned(reasons))
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }

    /// All reasons in one line.
    pub fn message(&self) -> String {
        self.0.join(", ")
    }
}

/// A plugin rejects a node or, from PreFilter, all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Removing pods from the node may help: Unschedulable if true, otherwise UnschedulableAndUnresolvable.
    pub resolvable: bool,
    pub reasons: Reasons,
}

impl Rejection {
    /// kube-scheduler's name of the status.
    pub fn as_str(&self) -> &'static str {
        if self.resolvable { "Unschedulable" } else { "UnschedulableAndUnresolvable" }
    }

    /// Unschedulable with a fixed reason; allocates nothing.
    pub const fn unschedulable(reasons: &'static [Cow<'static, str>]) -> Self {
        Self { resolvable: true, reasons: Reasons::fixed(reasons) }
    }

    /// UnschedulableAndUnresolvable with a fixed reason; allocates nothing.
    pub const fn unresolvable(reasons: &'static [Cow<'static, str>]) -> Self {
        Self { resolvable: false, reasons: Reasons::fixed(reasons) }
    }
}

/// The number of a distinct rejection in a [`Rejections`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RejectionId(u16);

/// The nodes that one plugin rejects. All other nodes pass, unless the plugin failed.
#[derive(Clone, Debug, Default)]
pub struct Rejections {
    distinct: Vec<Rejection>,
    rejected: NodeSet,
    /// The plugin could not judge some node.
    error: Option<String>,
    /// The distinct rejection by node index. Only valid for rejected nodes.
    of_node: Vec<RejectionId>,
}

impl Rejections {
    /// Clears everything, and makes room for node indexes below `width`.
    pub fn reset(&mut self, width: usize) {
        self.distinct.clear();
        self.rejected.clear();
        self.error = None;
        self.of_node.resize(width, RejectionId(0));
    }

    /// The number of a rejection, to pass to [`Rejections::reject`] for each rejected node. Call it once per distinct
    /// rejection.
    pub fn id(&mut self, rejection: Rejection) -> RejectionId {
        let index = self.distinct.iter().position(|known| *known == rejection).unwrap_or_else(|| {
            self.distinct.push(rejection);
            self.distinct.len() - 1
        });
        // Beyond this many distinct reasons, more detail is useless: the last number stands for the rest.
        RejectionId(u16::try_from(index).unwrap_or(u16::MAX))
    }

    pub fn reject(&mut self, node: NodeId, id: RejectionId) {
        self.rejected.insert(node);
        self.of_node[node.index()] = id;
    }

    /// Rejects the nodes that are in both sets.
    pub fn reject_common(&mut self, nodes: &NodeSet, others: &NodeSet, id: RejectionId) {
        if self.rejected.is_empty() {
            // The ids of nodes that are not rejected are unused, so all may be overwritten at once.
            self.rejected.copy_from(nodes);
            self.rejected.intersect_with(others);
            self.of_node.fill(id);
        } else {
            nodes.common(others).for_each(|node| self.reject(node, id));
        }
    }

    /// Rejects all these nodes.
    pub fn reject_all(&mut self, nodes: &NodeSet, id: RejectionId) {
        for node in nodes.iter() {
            self.reject(node, id);
        }
    }

    /// The plugin cannot judge a node, for a reason that the pod did not cause: the attempt ends with this error, and the
    /// pod is retried after a back-off. Of several errors the first one counts.
    pub fn fail(&mut self, error: impl Into<String>) {
        self.error.get_or_insert_with(|| error.into());
    }

    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Withdraws the rejections of these nodes, before the plugin runs on them again.
    pub fn forget(&mut self, nodes: &NodeSet) {
        self.rejected.subtract(nodes);
    }

    pub fn nodes(&self) -> &NodeSet {
        &self.rejected
    }

    /// Each distinct rejection with those of these nodes that it rejects, if there are any.
    pub(crate) fn for_each_among(&self, nodes: &NodeSet, each: &mut impl FnMut(&Rejection, &NodeSet)) {
        let mut rejected = self.rejected.clone();
        rejected.intersect_with(nodes);
        if rejected.is_empty() {
            return;
        }
        if let [only] = self.distinct.as_slice() {
            return each(only, &rejected);
        }
        let mut by_id = vec![NodeSet::default(); self.distinct.len()];
        for node in rejected.iter() {
            if let Some(nodes) = by_id.get_mut(usize::from(self.of_node[node.index()].0)) {
                nodes.insert(node);
            }
        }
        let found = self.distinct.iter().zip(&by_id).filter(|(_, nodes)| !nodes.is_empty());
        found.for_each(|(rejection, nodes)| each(rejection, nodes));
    }

    pub fn id_of(&self, node: NodeId) -> Option<RejectionId> {
        self.rejected.contains(node).then(|| self.of_node[node.index()])
    }

    pub fn of(&self, node: NodeId) -> Option<&Rejection> {
        self.get(self.id_of(node)?)
    }

    pub fn get(&self, id: RejectionId) -> Option<&Rejection> {
        self.distinct.get(usize::from(id.0))
    }
}
