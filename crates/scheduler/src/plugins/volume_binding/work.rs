//! What PreBind does: it asks the volume controller and the provisioner for the pod's volumes and waits for them.
//!
//! In: the volumes and claims to change. Out: these changes, for the executor; and after they were written, whether
//! everything is bound, or that it will not be. The wording of failures is kube-scheduler's.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use model::storage::uid::Uid;
use model::volumes::{ClaimFacts, VolumeFacts, VolumeObject};
use model::{NodeId, World};

use super::super::volumes::{accepts, not_found};
use super::search::Found;
use model::volumes::ClaimRefFacts;

/// Which volumes are to be bound to claims, and for which claims volumes are to be provisioned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeWork {
    pub bindings: Vec<VolumeBindingWork>,
    pub provisions: Vec<ProvisionWork>,
    /// How long to wait until all of them are bound.
    pub bind_within: Duration,
}

/// A volume that is to be bound to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeBindingWork {
    pub volume: String,
    /// The resource version of the volume. If it has another one, the volume has changed since.
    pub version: String,
    pub claim: Arc<ClaimFacts>,
    /// The volume does not refer to the claim yet.
    pub sets_claim: bool,
    /// The volume is not marked as bound by a controller yet, but must be.
    pub sets_mark: bool,
}

/// A claim whose volume is to be provisioned on the pod's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvisionWork {
    pub namespace: String,
    pub claim: String,
    /// The resource version of the claim. If it has another one, the claim has changed since.
    pub version: String,
}

/// The work, and the objects as they are when it is done.
pub(super) fn plan(found: &Found, node: &str, bind_within: Duration) -> (VolumeWork, Vec<VolumeObject>) {
    let mut work = VolumeWork { bindings: Vec::new(), provisions: Vec::new(), bind_within };
    let mut assumed = Vec::new();
    for (volume, claim) in &found.to_bind {
        let is_reserved = volume.claim.as_ref().is_some_and(|reserved| reserved.is_of(claim));
        let binding = VolumeBindingWork {
            volume: volume.name.clone(),
            version: volume.version.clone(),
            claim: Arc::clone(claim),
            sets_claim: !volume.claim.as_ref().is_some_and(|reserved| reserved.is_exactly(claim)),
            sets_mark: !is_reserved && !volume.bound_by_controller,
        };
        if binding.sets_claim || binding.sets_mark {
            let ClaimFacts { namespace, name, uid, .. } = (**claim).clone();
            assumed.push(VolumeObject::Volume(Arc::new(VolumeFacts {
                claim: Some(ClaimRefFacts { namespace, name, uid }),
                bound_by_controller: volume.bound_by_controller || binding.sets_mark,
                ..(**volume).clone()
            })));
        }
        work.bindings.push(binding);
    }
    for claim in &found.to_provision {
        let ClaimFacts { namespace, name, version, .. } = (**claim).clone();
        work.provisions.push(ProvisionWork { namespace, claim: name, version });
        let selected = ClaimFacts { selected_node: Some(node.to_owned()), ..(**claim).clone() };
        assumed.push(VolumeObject::Claim(Arc::new(selected)));
    }
    (work, assumed)
}

/// The resource versions that the written objects have, in the order of the work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenVersions {
    pub volumes: Vec<String>,
    pub claims: Vec<String>,
}

/// The pod for which volumes are bound.
#[derive(Clone, Copy, Debug)]
pub struct WaitingFor<'a> {
    pub namespace: &'a str,
    pub pod: &'a str,
    pub uid: &'a str,
    pub node: &'a str,
}

impl VolumeWork {
    /// Whether everything that was written is bound now. An `Err` says why it will not be.
    pub fn is_done(&self, world: &World, waiting: WaitingFor<'_>, written: &WrittenVersions) -> Result<bool, String> {
        let WaitingFor { namespace, pod, uid, node: node_name } = waiting;
        let missing_node = || format!("failed to get node {node_name:?}: {}", not_found("node", node_name));
        let node = world.node_id(node_name).ok_or_else(missing_node)?;
        let known = world.pod_id(namespace, pod).and_then(|id| world.pod(id));
        if known.is_none_or(|known| known.uid != Uid::from(uid)) {
            return Err(format!("pod does not exist any more: {}", not_found("pod", pod)));
        }
        for (binding, version) in self.bindings.iter().zip(&written.volumes) {
            if !binding.is_done(world, (node, node_name), version)? {
                return Ok(false);
            }
        }
        for (provision, version) in self.provisions.iter().zip(&written.claims) {
            if !provision.is_done(world, (node, node_name), version)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl VolumeBindingWork {
    fn is_done(&self, world: &World, node: (NodeId, &str), version: &str) -> Result<bool, String> {
        let failed = |kind: &str, name: &str| format!("failed to check binding: {}", not_found(kind, name));
        let volume = world.volumes().observed_volume(&self.volume);
        let volume = volume.ok_or_else(|| failed("persistentvolumes", &self.volume))?;
        let ClaimFacts { namespace, name, .. } = &*self.claim;
        let claim = world.volumes().observed_claim(namespace, name);
        let claim = claim.ok_or_else(|| failed("persistentvolumeclaims", &format!("{namespace}/{name}")))?;
        if is_older(&volume.version, version) {
            return Ok(false);
        }
        check_node(world, volume, node).map_err(|error| error.of_binding())?;
        if volume.claim.as_ref().is_none_or(|claim| claim.uid.is_empty()) {
            return Err(format!("ClaimRef got reset for pv {:?}", volume.name));
        }
        Ok(claim.is_bound())
    }
}

impl ProvisionWork {
    fn is_done(&self, world: &World, node: (NodeId, &str), version: &str) -> Result<bool, String> {
        let Self { namespace, claim: name, .. } = self;
        let missing = || {
            let error = not_found("persistentvolumeclaims", &format!("{namespace}/{name}"));
            format!("failed to check provisioning pvc: {error}")
        };
        let claim = world.volumes().observed_claim(namespace, name).ok_or_else(missing)?;
        if is_older(&claim.version, version) {
            return Ok(false);
        }
        // A provisioner that cannot provide the volume there takes the node back.
        if claim.selected_node.as_deref() != Some(node.1) {
            return Err(format!("provisioning failed for PVC {name:?}"));
        }
        if let Some(volume) = &claim.volume {
            let Some(volume) = world.volumes().observed_volume(volume) else { return Ok(false) };
            check_node(world, volume, node).map_err(|error| error.of_provision())?;
        }
        Ok(claim.is_bound())
    }
}

/// Why a volume does not belong to the pod's node.
enum Misplaced {
    Affinity(String),
    Unknown(String),
}

impl Misplaced {
    fn of_binding(self) -> String {
        match self {
            Self::Affinity(error) => error,
            Self::Unknown(error) => format!("failed to translate pv to csi: {error}"),
        }
    }

    fn of_provision(self) -> String {
        let (Self::Affinity(error) | Self::Unknown(error)) = self;
        error
    }
}

fn check_node(world: &World, volume: &VolumeFacts, (node, node_name): (NodeId, &str)) -> Result<(), Misplaced> {
    if accepts(world, volume, node).map_err(Misplaced::Unknown)? {
        return Ok(());
    }
    let name = &volume.name;
    let why = "no matching NodeSelectorTerms";
    Err(Misplaced::Affinity(format!("pv {name:?} node affinity doesn't match node {node_name:?}: {why}")))
}

/// Resource versions are numbers of any length.
fn is_older(version: &str, than: &str) -> bool {
    let number = |version: &'_ str| version.trim_start_matches('0').to_owned();
    let (version, than) = (number(version), number(than));
    version.len().cmp(&than.len()).then_with(|| version.cmp(&than)) == Ordering::Less
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (version, than, expected) in
            [("9", "10", true), ("10", "9", false), ("10", "10", false), ("0010", "11", true), ("", "1", true)]
        {
            assert_eq!(is_older(version, than), expected, "{version} {than}");
        }
    }
}
