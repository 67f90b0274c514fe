//! Which host ports are in use on nodes.
//!
//! In: the host ports of pods added to and removed from nodes. Out: the nodes on which a requested port conflicts with
//! one in use, found by protocol and number, not by a walk over the nodes.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use super::facts::HostPort;
use crate::storage::arena::NodeId;
use crate::storage::node_set::NodeSet;

/// The nodes on which one port is in use at one address.
#[derive(Debug)]
struct Taken {
    ip: Box<str>,
    nodes: NodeSet,
    /// Further pods with the same port on one node: kube-scheduler never places two there, but other clients may.
    further: FxHashMap<NodeId, u32>,
}

#[derive(Debug, Default)]
pub(crate) struct Ports {
    /// Tenants choose protocols and ports, hence std's keyed hash. Never iterated.
    by_port: HashMap<(Box<str>, i32), Vec<Taken>>,
}

impl Ports {
    /// Adds the nodes on which this port is not available.
    pub(crate) fn conflicts(&self, requested: &HostPort, nodes: &mut NodeSet) {
        for taken in self.by_port.get(&key(requested)).into_iter().flatten() {
            let every = [requested.ip.as_str(), &taken.ip].contains(&HostPort::EVERY_ADDRESS);
            if every || *taken.ip == *requested.ip {
                nodes.union_with(&taken.nodes);
            }
        }
    }

    pub(crate) fn take(&mut self, node: NodeId, ports: &[HostPort]) {
        for port in ports {
            let list = self.by_port.entry(key(port)).or_default();
            let index = list.iter().position(|taken| *taken.ip == *port.ip).unwrap_or_else(|| {
                let ip = port.ip.as_str().into();
                list.push(Taken { ip, nodes: NodeSet::default(), further: FxHashMap::default() });
                list.len() - 1
            });
            if !list[index].nodes.insert(node) {
                *list[index].further.entry(node).or_default() += 1;
            }
        }
    }

    pub(crate) fn give_back(&mut self, node: NodeId, ports: &[HostPort]) {
        for port in ports {
            let key = key(port);
            let Some(list) = self.by_port.get_mut(&key) else { continue };
            let Some(index) = list.iter().position(|taken| *taken.ip == *port.ip) else { continue };
            let taken = &mut list[index];
            if let Some(further) = taken.further.get_mut(&node) {
                *further -= 1;
                if *further == 0 {
                    taken.further.remove(&node);
                }
                continue;
            }
            taken.nodes.remove(node);
            if taken.nodes.is_empty() {
                list.swap_remove(index);
                if list.is_empty() {
                    self.by_port.remove(&key);
                }
            }
        }
    }

    /// The number of stored entries, for tests.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.by_port.len()
    }
}

fn key(port: &HostPort) -> (Box<str>, i32) {
    (port.protocol.as_str().into(), port.port)
}
