//! NodeVolumeLimits: a CSI driver can attach only so many volumes to a node. A volume counts once, however many pods
//! use it; a volume that is being detached still counts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use model::volumes::{CsiNodeFacts, PodVolume, VolumeObject};
use model::{NodeId, NodeSet, PodId, World};

use super::volumes::{
    CLAIM, Claims, CountedVolume, changes_own_claim, claim_of, is_added, is_owned, namespace_of, not_found,
    pods_with_volumes, volumes_of,
};
use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{Filter, PreFilter};
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::{Reasons, Rejection, Rejections, Status};

const TOO_MANY: Rejection = Rejection::unschedulable(&[Cow::Borrowed("node(s) exceed max volume count")]);

pub struct NodeVolumeLimits;

#[derive(Clone, Debug, Default)]
pub struct State {
    /// The pod it is about has volumes that may count.
    applies: bool,
}

fn applies(cycle: &Cycle<'_>) -> bool {
    volumes_of(cycle).any(PodVolume::is_attachable)
}

/// The volumes of the pod to be placed.
#[derive(Default)]
struct Wanted<'a> {
    volumes: BTreeSet<CountedVolume<'a>>,
    /// Why they cannot be counted on any node.
    missing: Option<String>,
    /// Why they cannot be counted on a node with CSI drivers. kube-scheduler gives up the attempt with this error.
    failed: Option<String>,
}

impl<'a> Wanted<'a> {
    fn of(cycle: &Cycle<'a>) -> Self {
        let Cycle { world, pod, .. } = *cycle;
        let mut wanted = Self::default();
        for volume in volumes_of(cycle) {
            if let PodVolume::InTree(volume) = volume {
                match CountedVolume::of_in_tree(volume) {
                    Some(Ok(counted)) => {
                        wanted.volumes.insert(counted);
                    }
                    Some(Err(error)) => {
                        wanted.failed.get_or_insert_with(|| error.to_owned());
                    }
                    None => {}
                }
            }
            let Some(name) = volume.claim_name(&pod.name) else { continue };
            match claim_of(world, pod, &name) {
                Some(claim) => wanted.volumes.extend(CountedVolume::of_claim(world, claim)),
                None => {
                    let (namespace, error) = (namespace_of(world, pod), not_found(CLAIM, &name));
                    wanted.missing.get_or_insert(format!("looking up PVC {namespace}/{name}: {error}"));
                }
            }
        }
        wanted
    }

    /// Whether the node's limits leave no room for them.
    fn exceed(&self, cycle: &Cycle<'a>, node: NodeId, drivers: &CsiNodeFacts) -> bool {
        let is_wanted = |driver: &str| self.volumes.iter().any(|volume| volume.driver == driver);
        let limits = drivers.drivers.iter().filter_map(|driver| Some((driver.name.as_str(), driver.volumes_max?)));
        let limits = limits.filter(|(driver, _)| is_wanted(driver));
        let Some((_, lowest)) = limits.clone().min_by_key(|(_, limit)| *limit) else { return false };
        let volumes = cycle.world.volumes();
        // Usually there are far fewer volumes of all drivers, so that none needs to be looked at.
        if cycle.view.added().is_empty() {
            let attachable = cycle.world.volumes_on(node).map_or(0, |on_node| on_node.attachable);
            let at_most = self.volumes.len() + attachable + volumes.attachment_count(&drivers.name);
            if i32::try_from(at_most).is_ok_and(|at_most| at_most <= lowest) {
                return false;
            }
        }
        // Of a driver that is listed twice the last limit counts.
        let limits: BTreeMap<&str, i32> = limits.collect();
        let used = used_on(cycle, node);
        let attached = volumes.attachments_on(&drivers.name);
        let attached: BTreeSet<CountedVolume<'_>> =
            attached.filter_map(|attachment| CountedVolume::of_attachment(cycle.world, attachment)).collect();
        limits.into_iter().any(|(driver, limit)| {
            let of_driver = |volume: &&CountedVolume<'_>| volume.driver == driver;
            let new = self.volumes.difference(&used).filter(of_driver).count();
            let there = used.iter().filter(of_driver).count() + attached.difference(&used).filter(of_driver).count();
            new > 0 && i32::try_from(new + there).map_or(true, |count| count > limit)
        })
    }
}

/// The volumes of the pods on a node. A claim that is missing, or is not the pod's own, is left out.
fn used_on<'a>(cycle: &Cycle<'a>, node: NodeId) -> BTreeSet<CountedVolume<'a>> {
    let world: &'a World = cycle.world;
    let mut used = BTreeSet::new();
    for (pod, volumes) in pods_with_volumes(cycle, node) {
        for volume in volumes.iter() {
            if let PodVolume::InTree(volume) = volume {
                used.extend(CountedVolume::of_in_tree(volume).and_then(Result::ok));
            }
            let claim = volume.claim_name(&pod.name).and_then(|name| claim_of(world, pod, &name));
            let is_usable =
                |claim: &&'a std::sync::Arc<_>| matches!(volume, PodVolume::Claim(_)) || is_owned(claim, pod);
            used.extend(claim.filter(is_usable).and_then(|claim| CountedVolume::of_claim(world, claim)));
        }
    }
    used
}

impl Plugin for NodeVolumeLimits {
    const NAME: &'static str = "NodeVolumeLimits";
    type State = State;

    fn reads(&self) -> Reads {
        Reads::World
    }

    fn still_holds(&self, cycle: &Cycle<'_>, state: &State) -> bool {
        !state.applies && !applies(cycle)
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::CSI_NODE | ChangeKinds::POD_LEFT | ChangeKinds::CLAIM | ChangeKinds::VOLUME_DETACHED
    }

    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        if let Some(gone) = &change.pod {
            return gone.volumes.as_ref().is_some_and(|volumes| volumes.iter().any(PodVolume::is_attachable));
        }
        let Some(changed) = &change.volume else { return true };
        match (&changed.before, &changed.after) {
            (Some(VolumeObject::CsiNode(before)), Some(VolumeObject::CsiNode(after))) => has_more_room(before, after),
            (_, Some(VolumeObject::Claim(_))) => is_added(change) && changes_own_claim(waiting, change, Claims::All),
            (Some(VolumeObject::Attachment(detached)), None) => volumes_of(waiting).any(|volume| match volume {
                PodVolume::Claim(_) => true,
                PodVolume::InTree(volume) => {
                    let is_unknown = volume.plugin.is_migrated() && volume.migrated.is_err();
                    is_unknown || volume.plugin.driver() == detached.attacher
                }
                _ => false,
            }),
            _ => true,
        }
    }
}

/// Whether the limit of a driver rose. A limit that is not given counts as 0, as upstream.
fn has_more_room(before: &CsiNodeFacts, after: &CsiNodeFacts) -> bool {
    let limit_before = |name: &str| {
        let driver = before.drivers.iter().rfind(|driver| driver.name == name);
        driver.and_then(|driver| driver.volumes_max).unwrap_or(0)
    };
    after.drivers.iter().any(|driver| driver.volumes_max.unwrap_or(0) > limit_before(&driver.name))
}

impl PreFilter for NodeVolumeLimits {
    fn pre_filter(&self, cycle: &Cycle<'_>, state: &mut State) -> Result<Option<NodeSet>, Status> {
        state.applies = applies(cycle);
        if state.applies { Ok(None) } else { Err(Status::Skip) }
    }

    /// The pods on a node are counted by the filter.
    fn add_pod(&self, _: &Cycle<'_>, _: &mut State, _: PodId, _: NodeId) -> Status {
        Status::Success
    }

    fn remove_pod(&self, _: &Cycle<'_>, _: &mut State, _: PodId, _: NodeId) -> Status {
        Status::Success
    }
}

impl Filter for NodeVolumeLimits {
    fn filter_all(&self, cycle: &Cycle<'_>, _: &State, nodes: &NodeSet, rejections: &mut Rejections) {
        let wanted = Wanted::of(cycle);
        let unresolvable = |reason: &String| Rejection { resolvable: false, reasons: Reasons::one(reason.clone()) };
        if let Some(reason) = &wanted.missing {
            let id = rejections.id(unresolvable(reason));
            return rejections.reject_all(nodes, id);
        }
        let failed = wanted.failed.as_ref().map(|reason| rejections.id(unresolvable(reason)));
        let too_many = rejections.id(TOO_MANY);
        for node in nodes.iter() {
            let Some(drivers) = cycle.world.csi_node(node) else { continue };
            if let Some(id) = failed {
                rejections.reject(node, id);
            } else if wanted.exceed(cycle, node, drivers) {
                rejections.reject(node, too_many);
            }
        }
    }
}

impl Register for NodeVolumeLimits {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_filter().filter()
    }
}

#[cfg(test)]
#[path = "node_volume_limits_tests.rs"]
mod tests;
