//! VolumeRestrictions: two pods on one node cannot use the same disk of a cloud or of the network, unless both only
//! read it; and a claim with access mode ReadWriteOncePod has room for one pod in the whole cluster.

use std::borrow::Cow;
use std::collections::BTreeSet;

use model::volumes::{AccessMode, PodVolumes};
use model::{NodeId, NodeSet, Pod, PodId, World};

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
    /// How often placed pods use these claims.
    uses: i64,
}

fn applies(pod: &Pod) -> bool {
    named_claims(pod).next().is_some() || has_disks(pod)
}

fn has_disks(pod: &Pod) -> bool {
    pod.volumes.as_ref().is_some_and(|volumes| volumes.disks().next().is_some())
}

impl State {
    /// As upstream, claims are compared by name alone, so that a pod of another namespace may count in a trial.
    fn uses_by(&self, world: &World, pod: PodId) -> i64 {
        let pod = world.pod(pod);
        let uses = pod.into_iter().flat_map(named_claims).filter(|claim| self.exclusive.contains(*claim)).count();
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
        !state.applies && !applies(cycle.pod)
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
        let (Some(own), Some(volumes)) = (&waiting.pod.volumes, &gone.volumes) else { return false };
        let shares_claim = || own.claims().any(|claim| volumes.claims().any(|other| other == claim));
        gone.namespace == Some(waiting.pod.namespace) && (own.conflict_with(volumes) || shares_claim())
    }
}

impl PreFilter for VolumeRestrictions {
    fn pre_filter(&self, cycle: &Cycle<'_>, state: &mut State) -> Result<Option<NodeSet>, Status> {
        let Cycle { world, pod, .. } = *cycle;
        state.applies = applies(pod);
        for name in named_claims(pod) {
            let claim = claim_of(world, pod, name).ok_or_else(|| Status::unresolvable(not_found(CLAIM, name)))?;
            if claim.access_modes.contains(&AccessMode::ReadWriteOncePod) {
                state.exclusive.insert(claim.name.clone());
            }
        }
        let namespace = namespace_of(world, pod);
        let used = state.exclusive.iter().filter(|claim| world.is_claim_used(namespace, claim)).count();
        state.uses = i64::try_from(used).unwrap_or(i64::MAX);
        if state.uses == 0 && !has_disks(pod) { Err(Status::Skip) } else { Ok(None) }
    }

    fn add_pod(&self, cycle: &Cycle<'_>, state: &mut State, added: PodId, _: NodeId) -> Status {
        state.uses += state.uses_by(cycle.world, added);
        Status::Success
    }

    fn remove_pod(&self, cycle: &Cycle<'_>, state: &mut State, removed: PodId, _: NodeId) -> Status {
        state.uses -= state.uses_by(cycle.world, removed);
        Status::Success
    }
}

impl Filter for VolumeRestrictions {
    fn filter_all(&self, cycle: &Cycle<'_>, state: &State, nodes: &NodeSet, rejections: &mut Rejections) {
        let own = cycle.pod.volumes.as_deref().filter(|_| has_disks(cycle.pod));
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
