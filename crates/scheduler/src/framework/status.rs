//! What plugins answer, and why.
//!
//! [`Status`] is one plugin's word on a pod, [`Rejection`] the two negative ones of them, and [`Rejections`] what one plugin
//! says of all nodes: a small number per node that stands for one of a few distinct rejections, so that refusing thousands of
//! nodes allocates nothing per node.

use std::borrow::Cow;

use model::NodeId;
use model::storage::arena::DenseId;

use model::NodeSet;

/// A plugin's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    #[default]
    Success,
    /// Not now: preempting pods, or a change in the world, may help.
    Unschedulable(Reasons),
    /// Not now, and preempting pods would not help.
    UnschedulableAndUnresolvable(Reasons),
    /// Of Permit alone: the pod waits for its permission.
    Wait,
    /// The plugin has nothing to say of this pod. From PreFilter or PreScore: it takes no further part in this cycle at
    /// Filter or Score. From Bind: the next Bind plugin is asked.
    Skip,
    /// Something went wrong that is not the pod's fault; it is tried again after a pause.
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

    /// The rejection it is, if it is one.
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

/// Why: mostly one fixed text, sometimes several (each resource that is short).
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

    /// One line of all of them.
    pub fn message(&self) -> String {
        self.0.join(", ")
    }
}

/// A plugin refuses a node, or from PreFilter all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Taking pods off the node may help: Unschedulable, otherwise UnschedulableAndUnresolvable.
    pub resolvable: bool,
    pub reasons: Reasons,
}

impl Rejection {
    /// Unschedulable, for a fixed reason; allocates nothing.
    pub const fn unschedulable(reasons: &'static [Cow<'static, str>]) -> Self {
        Self { resolvable: true, reasons: Reasons::fixed(reasons) }
    }

    /// UnschedulableAndUnresolvable, for a fixed reason; allocates nothing.
    pub const fn unresolvable(reasons: &'static [Cow<'static, str>]) -> Self {
        Self { resolvable: false, reasons: Reasons::fixed(reasons) }
    }
}

/// Stands for one of the distinct rejections of a [`Rejections`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RejectionId(u16);

/// What one plugin says of the nodes it was asked about. A node that is not mentioned passes.
#[derive(Clone, Debug, Default)]
pub struct Rejections {
    distinct: Vec<Rejection>,
    rejected: NodeSet,
    /// By node: which of the distinct ones. Means something for rejected nodes only.
    of_node: Vec<RejectionId>,
}

impl Rejections {
    /// Forgets everything, and makes room for nodes whose index is below `width`.
    pub fn reset(&mut self, width: usize) {
        self.distinct.clear();
        self.rejected.clear();
        self.of_node.resize(width, RejectionId(0));
    }

    /// The number of a rejection, to be used for as many nodes as it holds for. Asked once per distinct rejection.
    pub fn id(&mut self, rejection: Rejection) -> RejectionId {
        let place = self.distinct.iter().position(|known| *known == rejection).unwrap_or_else(|| {
            self.distinct.push(rejection);
            self.distinct.len() - 1
        });
        // More distinct reasons than this tell nobody more: the last one stands for the rest.
        RejectionId(u16::try_from(place).unwrap_or(u16::MAX))
    }

    pub fn reject(&mut self, node: NodeId, id: RejectionId) {
        self.rejected.insert(node);
        self.of_node[node.index()] = id;
    }

    /// Refuses the nodes that are in both sets.
    pub fn reject_common(&mut self, nodes: &NodeSet, others: &NodeSet, id: RejectionId) {
        if self.rejected.is_empty() {
            // The ids of nodes that are not refused mean nothing, so all may be overwritten at once.
            self.rejected.copy_from(nodes);
            self.rejected.intersect_with(others);
            self.of_node.fill(id);
        } else {
            nodes.common(others).for_each(|node| self.reject(node, id));
        }
    }

    /// Refuses all these nodes.
    pub fn reject_all(&mut self, nodes: &NodeSet, id: RejectionId) {
        for node in nodes.iter() {
            self.reject(node, id);
        }
    }

    /// Takes back what was said of these nodes, before they are asked about again.
    pub fn forget(&mut self, nodes: &NodeSet) {
        self.rejected.subtract(nodes);
    }

    pub fn nodes(&self) -> &NodeSet {
        &self.rejected
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
