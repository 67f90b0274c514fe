//! The claims of a pod: bound ones, and those whose volume is chosen with the node.
//!
//! In: the pod's volumes, the claims and their classes. Out: the claims in these two groups, or why the pod cannot be
//! placed on any node now.

use std::sync::Arc;

use model::World;
use model::volumes::{BindingMode, ClaimFacts, PodVolume, StorageClassFacts};

use super::super::volumes::{CLAIM, claim_of, is_owned, not_found, not_owned, volumes_of};
use crate::framework::cycle::Cycle;
use crate::framework::status::Status;

#[derive(Debug, Default)]
pub(super) struct PodClaims {
    pub(super) bound: Vec<Arc<ClaimFacts>>,
    /// Claims whose class waits for the pod's node, in the order of the pod's volumes.
    pub(super) delayed: Vec<Delayed>,
}

#[derive(Clone, Debug)]
pub(super) struct Delayed {
    pub(super) claim: Arc<ClaimFacts>,
    pub(super) class: Arc<StorageClassFacts>,
}

impl PodClaims {
    /// `None` if the pod has no claims.
    pub(super) fn of(cycle: &Cycle<'_>) -> Result<Option<Self>, Status> {
        let claims = Self::usable(cycle).map_err(Status::unresolvable)?;
        if claims.is_empty() {
            return Ok(None);
        }
        let mut sorted = Self::default();
        let mut is_waiting = false;
        for claim in claims {
            if claim.is_bound() {
                sorted.bound.push(claim);
                continue;
            }
            match delaying_class(cycle.world, &claim)? {
                // A claim for a certain volume is not the scheduler's to bind.
                Some(class) if claim.volume.is_none() => sorted.delayed.push(Delayed { claim, class }),
                _ => is_waiting = true,
            }
        }
        if is_waiting {
            return Err(Status::unresolvable("pod has unbound immediate PersistentVolumeClaims"));
        }
        Ok(Some(sorted))
    }

    /// The pod's claims in order, if all of them can be used; otherwise why the first one that cannot is not.
    fn usable(cycle: &Cycle<'_>) -> Result<Vec<Arc<ClaimFacts>>, String> {
        let Cycle { world, pod, .. } = *cycle;
        let mut claims = Vec::new();
        for volume in volumes_of(cycle) {
            let Some(name) = volume.claim_name(&pod.name) else { continue };
            let is_ephemeral = matches!(volume, PodVolume::Ephemeral(_));
            let Some(claim) = claim_of(world, pod, &name) else {
                return Err(if is_ephemeral {
                    format!("waiting for ephemeral volume controller to create the {CLAIM} {name:?}")
                } else {
                    not_found(CLAIM, &name)
                });
            };
            if claim.is_lost {
                let volume = claim.volume.as_deref().unwrap_or_default();
                return Err(format!("{CLAIM} {name:?} bound to non-existent persistentvolume {volume:?}"));
            }
            if claim.terminating {
                return Err(format!("{CLAIM} {name:?} is being deleted"));
            }
            if is_ephemeral && !is_owned(claim, pod) {
                return Err(not_owned(claim, world, pod));
            }
            claims.push(Arc::clone(claim));
        }
        Ok(claims)
    }
}

/// The claim's class, if its volumes are bound only when a pod has a node. A missing class binds at once.
fn delaying_class(world: &World, claim: &ClaimFacts) -> Result<Option<Arc<StorageClassFacts>>, Status> {
    let class = world.volumes().class(&claim.class).filter(|_| !claim.class.is_empty());
    let Some(class) = class else { return Ok(None) };
    match class.binding_mode {
        Some(BindingMode::WaitForFirstConsumer) => Ok(Some(Arc::clone(class))),
        Some(BindingMode::Immediate) => Ok(None),
        None => Err(Status::Error(format!("VolumeBindingMode not set for StorageClass {:?}", claim.class))),
    }
}
