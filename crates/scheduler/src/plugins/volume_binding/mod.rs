//! VolumeBinding: a node must be able to use the volumes of the pod's claims. For claims that wait for the pod's node,
//! it must have volumes that fit, or their class must be able to provision them there; once the node is chosen, they
//! are bound or provisioned before the pod is bound.
//!
//! - `claims`: the pod's claims. `search`: which volumes they get on a node. `matching`: which volumes fit a claim.
//!   `places`: which of many volumes a node can use. `work`: what is written, and when it is done.
//!
//! Reserve assumes what PreBind will write (`Handle::assume_volumes`), so that no two pods get one volume.

mod claims;
mod matching;
mod places;
mod search;
#[cfg(test)]
mod tests;
pub(super) mod work;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use model::volumes::{PodVolume, VolumeObject};
use model::{NodeId, NodeSet, PodId};
use serde::Deserialize;

use self::claims::PodClaims;
use self::search::{Lack, Search, Unfit};
use self::work::VolumeWork;
use super::volumes::{Claims, changes_own_claim, has_claims, volumes_of};
use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::handle::Handle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{Filter, PreBind, PreFilter, PreScore, Reserve, Score};
use crate::framework::registry::{Points, Register};
use crate::framework::status::{Reasons, Rejection, RejectionId, Rejections, Status};

/// kube-scheduler's default for `bindTimeoutSeconds`.
const BIND_WITHIN: Duration = Duration::from_secs(600);

pub struct VolumeBinding {
    bind_within: Duration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Args {
    bind_timeout_seconds: Option<i64>,
}

#[derive(Clone, Debug, Default)]
pub struct State {
    /// What the state was computed from; `None` for a pod without claims.
    of: Option<Stamp>,
    claims: Option<Arc<PodClaims>>,
    /// What PreBind does, once the node is chosen; `None` if all claims are bound.
    work: Option<VolumeWork>,
}

/// The pod, and the counters of everything that the results depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    pod: PodId,
    volumes: u64,
    nodes: u64,
}

impl Stamp {
    fn of(cycle: &Cycle<'_>) -> Option<Self> {
        let (volumes, nodes) = (cycle.world.volumes().changes(), cycle.world.scheduling_nodes_changed());
        has_claims(cycle).then_some(Self { pod: cycle.pod_id, volumes, nodes })
    }
}

impl Plugin for VolumeBinding {
    const NAME: &'static str = "VolumeBinding";
    type State = State;

    fn reads(&self) -> Reads {
        Reads::World
    }

    fn still_holds(&self, cycle: &Cycle<'_>, state: &State) -> bool {
        state.of == Stamp::of(cycle)
    }

    fn scores_by_feasible(&self) -> bool {
        false
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::STORAGE_CLASS
            | ChangeKinds::CLAIM
            | ChangeKinds::VOLUME
            | ChangeKinds::NODE_ADDED
            | ChangeKinds::NODE_LABELS
            | ChangeKinds::CSI_NODE
            | ChangeKinds::CSI_DRIVER
            | ChangeKinds::STORAGE_CAPACITY
    }

    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        let Some(changed) = &change.volume else { return true };
        match (&changed.before, &changed.after) {
            (_, Some(VolumeObject::Claim(_))) => changes_own_claim(waiting, change, Claims::All),
            (Some(VolumeObject::StorageClass(before)), Some(VolumeObject::StorageClass(after))) => {
                before.allowed_topologies != after.allowed_topologies
            }
            (Some(VolumeObject::CsiNode(before)), Some(VolumeObject::CsiNode(after))) => {
                before.migrated_plugins != after.migrated_plugins
            }
            // As upstream: a driver that no longer tracks capacity wakes only pods with an inline volume of it.
            (before, Some(VolumeObject::CsiDriver(after))) => {
                let tracked = matches!(before, Some(VolumeObject::CsiDriver(before)) if before.storage_capacity);
                let uses = |volume: &PodVolume| matches!(volume, PodVolume::Csi(driver) if *driver == after.name);
                tracked && !after.storage_capacity && volumes_of(waiting).any(uses)
            }
            (Some(VolumeObject::StorageCapacity(before)), Some(VolumeObject::StorageCapacity(after))) => {
                after.largest_bytes > before.largest_bytes
            }
            _ => true,
        }
    }
}

impl PreFilter for VolumeBinding {
    fn pre_filter(&self, cycle: &Cycle<'_>, state: &mut State) -> Result<Option<NodeSet>, Status> {
        state.of = Stamp::of(cycle);
        let claims = PodClaims::of(cycle)?.ok_or(Status::Skip)?;
        state.claims = Some(Arc::new(claims));
        Ok(None)
    }

    /// Other pods do not matter.
    fn add_pod(&self, _: &Cycle<'_>, _: &mut State, _: PodId, _: NodeId) -> Status {
        Status::Success
    }

    fn remove_pod(&self, _: &Cycle<'_>, _: &mut State, _: PodId, _: NodeId) -> Status {
        Status::Success
    }
}

fn rejection(unfit: &Unfit) -> Rejection {
    let reasons = match unfit {
        Unfit::Failed(error) => Reasons::one(error.clone()),
        Unfit::Lacks(lack) => {
            let reasons = Lack::REASONS.into_iter().filter(|(what, _)| lack.contains(*what));
            Reasons::many(reasons.map(|(_, reason)| Cow::Borrowed(reason)).collect())
        }
    };
    Rejection { resolvable: false, reasons }
}

impl Filter for VolumeBinding {
    fn ignores_pods(&self) -> bool {
        true
    }

    fn filter_all(&self, cycle: &Cycle<'_>, state: &State, nodes: &NodeSet, rejections: &mut Rejections) {
        let Some(claims) = &state.claims else { return };
        let search = Search::of(cycle.world, claims);
        let mut known: Vec<(Unfit, RejectionId)> = Vec::new();
        for node in nodes.iter() {
            let Some(unfit) = search.unfit(cycle.world, node) else { continue };
            let found = known.iter().find(|(other, _)| *other == unfit).map(|(_, id)| *id);
            let id = found.unwrap_or_else(|| {
                let id = rejections.id(rejection(&unfit));
                known.push((unfit, id));
                id
            });
            rejections.reject(node, id);
        }
    }
}

/// kube-scheduler scores nodes only with the feature gate StorageCapacityScoring, which is off by default.
impl PreScore for VolumeBinding {
    fn pre_score(&self, _: &Cycle<'_>, _: &mut State, _: &NodeSet) -> Status {
        Status::Skip
    }
}

impl Score for VolumeBinding {}

impl Reserve for VolumeBinding {
    fn reserve(&self, cycle: &Cycle<'_>, state: &mut State, node: NodeId, handle: &mut Handle<'_>) -> Status {
        let Some(claims) = state.claims.as_ref().filter(|claims| !claims.delayed.is_empty()) else {
            return Status::Success;
        };
        let found = match Search::on(cycle.world, claims, node).find(cycle.world, node) {
            Ok(found) => found,
            Err(unfit) => return rejection(&unfit).into(),
        };
        let (work, assumed) = work::plan(&found, cycle.world.node_name(node).unwrap_or_default(), self.bind_within);
        state.work = Some(work);
        handle.assume_volumes(cycle.pod_id, assumed);
        Status::Success
    }

    /// What was assumed ends with the assumed pod.
    fn unreserve(&self, _: &mut State, _: PodId, _: NodeId, _: &mut Handle<'_>) {}
}

impl PreBind for VolumeBinding {
    type Work = VolumeWork;

    fn pre_bind_pre_flight(&self, _: &Cycle<'_>, state: &State, _: NodeId) -> Status {
        if state.work.is_some() { Status::Success } else { Status::Skip }
    }

    fn pre_bind(&self, _: &Cycle<'_>, state: &State, _: NodeId) -> Result<Option<VolumeWork>, Status> {
        Ok(state.work.clone())
    }
}

impl Register for VolumeBinding {
    type Args = Args;

    fn build(args: Args) -> Result<Self, String> {
        let bind_within = match args.bind_timeout_seconds {
            None => BIND_WITHIN,
            Some(seconds) => Duration::from_secs(
                u64::try_from(seconds).map_err(|_| format!("bindTimeoutSeconds: {seconds} is negative"))?,
            ),
        };
        Ok(Self { bind_within })
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_filter().filter().pre_score().score().reserve().pre_bind()
    }
}
