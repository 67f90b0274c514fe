//! VolumeRestrictions: two pods on one node cannot use the same disk of a cloud or of the network, unless both only
//! read it; and a claim with access mode ReadWriteOncePod has room for one pod in the whole cluster.

use std::borrow::Cow;
use std::collections::BTreeSet;

use model::volumes::{AccessMode, PodVolumes};
use model::{NodeId, NodeSet, PodId, World};

use super::volumes::{
    CLAIM, Claims, changes_own_claim, claim_of, is_added, named_claims, namespace_of, not_found, pods_with_volumes,
};
use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{Filter, PreFilter};
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::{Rejection, Rejections, Status};

const DISK_IN_USE: Rejection = Rejection::unschedulable(&[Cow::Borrowed("node(s) had no available disk")]);
const CLAIM_IN_USE: Rejection = Rejection::unschedulable(&[Cow::Borrowed(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
)]);

pub struct VolumeRestrictions;

#[derive(Clone, Debug, Default)]
pub struct State {
    /// The pod it is about names claims or disks.
    applies: bool,
    /// The names of the pod's claims that only one pod may use.
    exclusive: BTreeSet<String>,
    /// How often placed pods use these claims: once for each claim in use, and more or less in a trial.
    uses: i64,
}

fn applies(cycle: &Cycle<'_>) -> bool {
    named_claims(cycle.world, cycle.pod_id).next().is_some() || disks(cycle).is_some()
}

/// The pod's volumes, if there are disks among them.
fn disks<'a>(cycle: &Cycle<'a>) -> Option<&'a PodVolumes> {
    let volumes = cycle.world.pod_volumes(cycle.pod_id)?;
    volumes.disks().next().is_some().then_some(volumes)
}

impl State {
    /// As upstream, claims are compared by name alone, so that a pod of another namespace may count in a trial.
    fn uses_by(&self, world: &World, pod: PodId) -> i64 {
        let uses = named_claims(world, pod).filter(|claim| self.exclusive.contains(*claim)).count();
        i64::try_from(uses).unwrap_or(i64::MAX)
    }
}

impl Plugin for VolumeRestrictions {
    const NAME: &'static str = "VolumeRestrictions";
    type State = State;

    fn reads(&self) -> Reads {
        Reads::World
    }

    fn still_holds(&self, cycle: &Cycle<'_>, state: &State) -> bool {
        !state.applies && !applies(cycle)
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::POD_LEFT | ChangeKinds::NODE_ADDED | ChangeKinds::CLAIM
    }

    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        if change.kinds.intersects(ChangeKinds::NODE_ADDED) {
            return true;
        }
        if change.kinds.intersects(ChangeKinds::CLAIM) {
            return is_added(change) && changes_own_claim(waiting, change, Claims::Named);
        }
        let Some(gone) = &change.pod else { return true };
        let own = waiting.world.pod_volumes(waiting.pod_id);
        let (Some(own), Some(volumes)) = (own, &gone.volumes) else { return false };
        let shares_claim = || own.claims().any(|claim| volumes.claims().any(|other| other == claim));
        gone.namespace == Some(waiting.pod.namespace) && (own.conflict_with(volumes) || shares_claim())
    }
}

impl PreFilter for VolumeRestrictions {
    fn pre_filter(&self, cycle: &Cycle<'_>, state: &mut State) -> Result<Option<NodeSet>, Status> {
        let Cycle { world, pod, .. } = *cycle;
        state.applies = applies(cycle);
        for name in named_claims(world, cycle.pod_id) {
            let claim = claim_of(world, pod, name).ok_or_else(|| Status::unresolvable(not_found(CLAIM, name)))?;
            if claim.access_modes.contains(&AccessMode::ReadWriteOncePod) {
                state.exclusive.insert(claim.name.clone());
            }
        }
        let namespace = namespace_of(world, pod);
        let used = state.exclusive.iter().filter(|claim| world.is_claim_used(namespace, claim)).count();
        let added: i64 = cycle.view.added().iter().map(|(pod, _)| state.uses_by(world, *pod)).sum();
        let removed: i64 = cycle.view.removed().iter().map(|pod| state.uses_by(world, *pod)).sum();
        state.uses = i64::try_from(used).unwrap_or(i64::MAX) + added - removed;
        if state.uses <= 0 && disks(cycle).is_none() { Err(Status::Skip) } else { Ok(None) }
    }
}

impl Filter for VolumeRestrictions {
    fn filter_all(&self, cycle: &Cycle<'_>, state: &State, nodes: &NodeSet, rejections: &mut Rejections) {
        let own = disks(cycle);
        let is_in_conflict = |own: &PodVolumes, node: NodeId| {
            pods_with_volumes(cycle, node).any(|(_, volumes)| own.conflict_with(volumes))
        };
        let disk = own.map(|own| (own, rejections.id(DISK_IN_USE)));
        let claim = (state.uses > 0).then(|| rejections.id(CLAIM_IN_USE));
        for node in nodes.iter() {
            let conflict = disk.filter(|(own, _)| is_in_conflict(own, node)).map(|(_, id)| id);
            if let Some(id) = conflict.or(claim) {
                rejections.reject(node, id);
            }
        }
    }
}

impl Register for VolumeRestrictions {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_filter().filter()
    }
}

#[cfg(test)]
#[path = "volume_restrictions_tests.rs"]
mod tests;
