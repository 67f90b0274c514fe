//! Why the labels of a node differ from the desired ones: what was observed before.
//!
//! In: the nodes that are checked, and what happens to them. Out: the cause as text. Invariants: a cause is never guessed:
//! a move counts only if both hosts of the same VM were observed; at most one cause per node is remembered.

use std::collections::BTreeMap;
use std::fmt;

use model::{HostId, NodeId, Placement, VmId, World};

/// The last cause of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// This process knows its VM and host for the first time: at the start, or when its VM appears hours later.
    FirstMatched,
    /// The node is new, and its first check found its VM and host.
    Added,
    Moved {
        vm: String,
        from: String,
        to: String,
    },
    OtherVm {
        vm: String,
    },
    HostRenamed {
        from: String,
        to: String,
    },
    ChangedByOthers,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::FirstMatched => f.write_str("the node was first matched to a VM on a known host"),
            Cause::Added => f.write_str("the node was added"),
            Cause::Moved { vm, from, to } => write!(f, "VM {vm} moved from {from} to {to}"),
            Cause::OtherVm { vm } => write!(f, "the node is VM {vm} now"),
            Cause::HostRenamed { from, to } => write!(f, "host {from} was renamed to {to}"),
            Cause::ChangedByOthers => f.write_str("another client changed a label"),
        }
    }
}

#[derive(Debug)]
struct Seen {
    vm: VmId,
    host: HostId,
    host_name: String,
}

#[derive(Debug, Default)]
pub(super) struct Causes {
    seen: BTreeMap<NodeId, Seen>,
    causes: BTreeMap<NodeId, Cause>,
}

impl Causes {
    /// The node was added after the first list of nodes.
    pub(super) fn added(&mut self, node: NodeId) {
        self.causes.insert(node, Cause::Added);
    }

    pub(super) fn removed(&mut self, node: NodeId) {
        self.seen.remove(&node);
        self.causes.remove(&node);
    }

    pub(super) fn changed_by_others(&mut self, node: NodeId) {
        self.causes.insert(node, Cause::ChangedByOthers);
    }

    /// The labels are as desired.
    pub(super) fn written(&mut self, node: NodeId) {
        self.causes.remove(&node);
    }

    /// Compares where the node is with where it was at the last check.
    pub(super) fn checked(&mut self, world: &World, node: NodeId) {
        let (Placement::On { vm, host, .. }, Some(view)) = (world.placement(node), world.host_of(node)) else {
            // If it is matched later, that is the cause.
            if self.causes.get(&node) == Some(&Cause::Added) {
                self.causes.remove(&node);
            }
            return;
        };
        let now = Seen { vm, host, host_name: view.name().to_owned() };
        let vm = || world.vm(now.vm).map(|(_, vm)| vm.name.clone()).unwrap_or_default();
        let cause = match self.seen.get(&node) {
            None if self.causes.contains_key(&node) => None,
            None => Some(Cause::FirstMatched),
            Some(before) if before.vm != now.vm => Some(Cause::OtherVm { vm: vm() }),
            Some(before) if before.host_name == now.host_name => None,
            Some(before) => {
                let (from, to) = (before.host_name.clone(), now.host_name.clone());
                Some(match before.host == now.host {
                    true => Cause::HostRenamed { from, to },
                    false => Cause::Moved { vm: vm(), from, to },
                })
            }
        };
        if let Some(cause) = cause {
            self.causes.insert(node, cause);
        }
        self.seen.insert(node, now);
    }

    pub(super) fn of(&self, node: NodeId) -> Option<&Cause> {
        self.causes.get(&node)
    }
}
