//! What is said of a node, in a few fixed words.
//!
//! kube-scheduler groups equal reasons ("2 node(s) didn't match pod anti-affinity rules"), so they name neither pods nor
//! hosts; which pod on which host is in the way is told in an event on the pod.

use model::affinity::Refusal;

/// Why a node is not for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The pod's required affinity.
    Affinity,
    /// The pod's required anti-affinity.
    AntiAffinity,
    /// The required anti-affinity of a pod that is there.
    ExistingAntiAffinity,
    /// The pod's required anti-affinity, lifted to physical hosts.
    HostAntiAffinity,
    /// The lifted required anti-affinity of a pod on the same physical host.
    ExistingHostAntiAffinity,
    /// The physical host takes no new pods: it is in maintenance, or lost and its node not ready.
    HostUnavailable,
    /// The node has not been heard of.
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

    /// Whether evicting pods may make the node fit. A missing partner or a host in maintenance is not mended by that.
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
