//! How many placed pods a term matches, and how many carry it, in each domain.
//!
//! In: pods added to and removed from nodes. Out: the tallies of each term. Invariant: a tally equals a count over all
//! pods on known nodes; a change costs time proportional to the terms of one pod.

use super::lift::Level;
use super::tally::{DomainId, Tally};
use super::topology::{Spaces, Topology};
use super::{Affinity, Around, Stamp, TermId};
use crate::storage::arena::{DenseId, NodeId, PodId, ProfileId};
use crate::storage::intern::{Interner, Symbol};
use crate::storage::label_set::LabelSet;

/// Counts by the key as written and, if the key is lifted, by host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    written: Tally,
    hosts: Tally,
}

impl Counts {
    fn change(&mut self, at: At, on_hosts: bool, by: i32) {
        if let Some(domain) = at.written {
            self.written.change(domain, by);
        }
        if let Some(domain) = at.host.filter(|_| on_hosts) {
            self.hosts.change(domain, by);
        }
    }

    pub(crate) fn at(&self, level: Level) -> &Tally {
        match level {
            Level::Written => &self.written,
            Level::Host => &self.hosts,
        }
    }
}

/// The domains of a node for a term.
#[derive(Clone, Copy)]
struct At {
    written: Option<DomainId>,
    host: Option<DomainId>,
}

impl Topology {
    fn at(&self, spaces: Spaces, node: NodeId) -> At {
        let domain = |space| self.space(space)?.domain(node);
        At { written: domain(spaces.written), host: spaces.host.and_then(domain) }
    }
}

impl Affinity {
    /// Counts the pod on this node; with `None`, on no node.
    pub(crate) fn place(&mut self, pod: PodId, node: Option<NodeId>) {
        let Some(entry) = self.pods.get_mut(pod.index()).and_then(Option::as_mut) else { return };
        let node = node.filter(|_| entry.index != super::NOT_LISTED);
        let profile = entry.profile;
        let before = std::mem::replace(&mut entry.node, node);
        if before == node {
            return;
        }
        if let Some(before) = before {
            self.count(profile, before, -1);
        }
        if let Some(node) = node {
            self.count(profile, node, 1);
        }
    }

    /// Adds `by` pods of this profile to the counts of this node.
    fn count(&mut self, profile: ProfileId, node: NodeId, by: i32) {
        let now = self.tick();
        let Some(profile) = self.profiles.get(profile) else { return };
        for &term in &profile.terms {
            if let Some(kept) = self.terms.get_mut(term) {
                kept.matched.change(self.topology.at(kept.spaces, node), true, by);
                kept.changed = now;
            }
        }
        for &(term, role) in &*profile.carried {
            if let Some(kept) = self.terms.get_mut(term) {
                let at = self.topology.at(kept.spaces, node);
                if let Some(carriers) = kept.carriers_mut(role, profile.lifts) {
                    carriers.counts.change(at, carriers.lifts, by);
                }
                kept.changed = now;
            }
        }
    }

    /// The pods of a profile start (`by` 1) or stop (-1) matching a term.
    pub(super) fn count_matches(&mut self, term: TermId, profile: ProfileId, by: i32) {
        let now = self.tick();
        let Some(profile) = self.profiles.get_mut(profile) else { return };
        profile.changed = now;
        let Some(kept) = self.terms.get_mut(term) else { return };
        for pod in &profile.pods {
            if let Some(node) = self.pods[pod.index()].and_then(|entry| entry.node) {
                kept.matched.change(self.topology.at(kept.spaces, node), true, by);
            }
        }
        kept.changed = now;
    }

    /// A namespace opts out of lifting, or opts in again.
    pub(crate) fn set_namespace_lift(&mut self, namespace: Symbol, lift_off: bool) {
        for id in self.profiles.in_namespace(namespace).to_vec() {
            let Some(profile) = self.profiles.get(id) else { continue };
            let lifts = !lift_off && !profile.lift_off;
            if profile.lifts == lifts {
                continue;
            }
            let nodes: Vec<NodeId> = profile.pods.iter().filter_map(|pod| self.entry(*pod)?.node).collect();
            let mut carried = profile.carried.to_vec();
            carried.dedup();
            nodes.iter().for_each(|node| self.count(id, *node, -1));
            for (term, role) in carried {
                self.terms.remove_carrier(term, role, !lifts, id);
                self.terms.add_carrier(term, role, lifts, id);
            }
            let now = self.tick();
            if let Some(profile) = self.profiles.get_mut(id) {
                (profile.lifts, profile.changed) = (lifts, now);
            }
            nodes.iter().for_each(|node| self.count(id, *node, 1));
        }
    }

    /// Sets the node's domains and moves the pods that name it. Takes ownership of the use of the host.
    pub(crate) fn set_node(
        &mut self,
        node: NodeId,
        host: Option<Symbol>,
        pods: &[PodId],
        around: Around<'_>,
        interner: &mut Interner,
    ) {
        let labels: Option<&LabelSet> = around.nodes.arena().get(node).map(|kept| &kept.labels);
        let Some(labels) = labels.filter(|labels| self.topology.differs(node, labels, host)) else {
            if let Some(host) = host {
                interner.release(host);
            }
            return;
        };
        pods.iter().for_each(|pod| self.place(*pod, None));
        self.topology.set_node(node, labels, host, interner);
        pods.iter().for_each(|pod| self.place(*pod, Some(node)));
        self.topology_changed = self.tick();
    }

    pub(crate) fn remove_node(&mut self, node: NodeId, pods: &[PodId], interner: &mut Interner) {
        pods.iter().for_each(|pod| self.place(*pod, None));
        self.topology.remove_node(node, interner);
        self.topology_changed = self.tick();
    }

    pub(super) fn topology_changed(&self) -> Stamp {
        self.topology_changed
    }
}
