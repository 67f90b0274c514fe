//! The verdict on a node, with one of a few fixed reasons.
//!
//! kube-scheduler groups equal reasons ("2 node(s) didn't match pod anti-affinity rules"), so they name neither pods
//! nor hosts. An Event on the pod names the blocking pods and hosts.

use model::affinity::Refusal;

/// Why a node does not fit a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The pod's required affinity.
    Affinity,
    /// The pod's required anti-affinity.
    AntiAffinity,
    /// The required anti-affinity of an existing pod.
    ExistingAntiAffinity,
    /// The pod's required anti-affinity, lifted to physical hosts.
    HostAntiAffinity,
    /// The lifted required anti-affinity of a pod on the same physical host.
    ExistingHostAntiAffinity,
    /// The physical host accepts no new pods: it is in maintenance, or it is lost and its node is not ready.
    HostUnavailable,
    /// The node is not in the world.
    NodeUnknown,
}

impl Reason {
    pub const ALL: [Reason; 7] = [
        Reason::Affinity,
        Reason::AntiAffinity,
        Reason::ExistingAntiAffinity,
        Reason::HostAntiAffinity,
        Reason::ExistingHostAntiAffinity,
        Reason::HostUnavailable,
        Reason::NodeUnknown,
    ];

    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Reason::Affinity => Refusal::Affinity.reason(),
            Reason::AntiAffinity => Refusal::AntiAffinity.reason(),
            Reason::ExistingAntiAffinity => Refusal::ExistingAntiAffinity.reason(),
            Reason::HostAntiAffinity => Refusal::HostAntiAffinity.reason(),
            Reason::ExistingHostAntiAffinity => Refusal::HostExistingAntiAffinity.reason(),
            Reason::HostUnavailable => "node(s) were on a physical host that takes no new pods",
            Reason::NodeUnknown => "node(s) were not known to Bridger yet",
        }
    }

    /// Whether evicting pods may make the node fit. It does not help against missing pods for affinity or a host in
    /// maintenance.
    #[must_use]
    pub const fn preemption_may_help(self) -> bool {
        !matches!(self, Reason::Affinity | Reason::HostUnavailable)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeVerdict {
    Fits,
    Fails(Reason),
}
