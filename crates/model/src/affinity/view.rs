//! The world with hypothetical pod moves: nominated pods that are not placed yet, preemption victims, what-if queries.
//!
//! In: pods of the world, added to or removed from nodes. Out: the differences from the stored counts. Invariant: the
//! world itself does not change; an empty view is the world as it is.

use std::borrow::Cow;

use super::counted_term::Counted;
use super::tally::Tally;
use super::topology::Space;
use super::{NOT_LISTED, ProfileId};
use crate::storage::arena::{NodeId, PodId};
use crate::world::World;

/// A few changes to where pods are. A moved pod is removed and added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    added: Vec<(PodId, NodeId)>,
    removed: Vec<PodId>,
}

impl View {
    /// Counts the pod on this node too.
    #[must_use]
    pub fn with(mut self, pod: PodId, node: NodeId) -> Self {
        if !self.added.contains(&(pod, node)) {
            self.added.push((pod, node));
        }
        self
    }

    /// Does not count the pod on its current node.
    #[must_use]
    pub fn without(mut self, pod: PodId) -> Self {
        if !self.removed.contains(&pod) {
            self.removed.push(pod);
        }
        self
    }

    /// Adds the pod to a node, or puts it back where it is.
    pub fn put_on(&mut self, pod: PodId, node: NodeId) {
        match self.removed.iter().position(|removed| *removed == pod) {
            Some(at) => drop(self.removed.swap_remove(at)),
            None => self.added.push((pod, node)),
        }
    }

    /// Undoes [`View::put_on`], or removes a pod that is on the node.
    pub fn take_off(&mut self, pod: PodId, node: NodeId) {
        match self.added.iter().position(|added| *added == (pod, node)) {
            Some(at) => drop(self.added.swap_remove(at)),
            None => self.removed.push(pod),
        }
    }

    /// The changes on all nodes but this one.
    #[must_use]
    pub fn elsewhere(&self, world: &World, node: NodeId) -> Self {
        let added = self.added.iter().filter(|(_, on)| *on != node);
        let removed = self.removed.iter().filter(|pod| world.pod_node(**pod) != Some(node));
        Self { added: added.copied().collect(), removed: removed.copied().collect() }
    }

    pub fn added(&self) -> &[(PodId, NodeId)] {
        &self.added
    }

    pub fn removed(&self) -> &[PodId] {
        &self.removed
    }

    pub(crate) fn shifts(&self, world: &World) -> Vec<Shift> {
        let affinity = &world.affinity;
        let removed = self.removed.iter().filter_map(|pod| {
            let entry = affinity.entry(*pod)?;
            Some(Shift { profile: entry.profile, node: entry.node?, by: -1 })
        });
        let added = self.added.iter().filter_map(|&(pod, node)| {
            let entry = affinity.entry(pod).filter(|entry| entry.index != NOT_LISTED)?;
            Some(Shift { profile: entry.profile, node, by: 1 })
        });
        removed.chain(added).collect()
    }
}

/// A pod added to or removed from a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shift {
    pub(crate) profile: ProfileId,
    pub(crate) node: NodeId,
    pub(crate) by: i32,
}

/// The counts after applying the shifts, each weighted by `times`.
pub(crate) fn shifted<'a>(
    (space, tally): Counted<'a>,
    shifts: &[Shift],
    times: impl Fn(ProfileId) -> i32,
) -> (&'a Space, Cow<'a, Tally>) {
    let mut shifted = Cow::Borrowed(tally);
    for shift in shifts {
        if let (Some(domain), times @ 1..) = (space.domain(shift.node), times(shift.profile)) {
            shifted.to_mut().change(domain, shift.by * times);
        }
    }
    (space, shifted)
}
