//! What the plugins for volumes have in common: the claims of a pod, and the volumes that claims and attachments stand
//! for.

use std::sync::Arc;

use model::affinity::node::{Label, NodeTerm};
use model::storage::uid::Uid;
use model::volumes::{
    AttachmentFacts, ClaimFacts, InTreePlugin, InTreeVolume, MigratedVolume, PodVolume, PodVolumes, VolumeFacts,
    VolumeObject, VolumeSourceFacts,
};
use model::{NodeId, Pod, PodId, World};

use crate::framework::change::Change;
use crate::framework::cycle::Cycle;

/// kube-scheduler's words for a missing object.
pub(super) fn not_found(kind: &str, name: &str) -> String {
    format!("{kind} {name:?} not found")
}

pub(super) const CLAIM: &str = "persistentvolumeclaim";

pub(super) fn namespace_of<'a>(world: &'a World, pod: &Pod) -> &'a str {
    world.interner().text(pod.namespace)
}

/// The pod's volumes; none if it has none that matter.
pub(super) fn volumes_of<'a>(cycle: &Cycle<'a>) -> impl Iterator<Item = &'a PodVolume> + use<'a> {
    cycle.world.pod_volumes(cycle.pod_id).into_iter().flat_map(|volumes| volumes.iter())
}

pub(super) fn has_claims(cycle: &Cycle<'_>) -> bool {
    cycle.world.pod_volumes(cycle.pod_id).is_some_and(|volumes| volumes.has_claims())
}

/// The names of the claims that the pod names itself.
pub(super) fn named_claims(world: &World, pod: PodId) -> impl Iterator<Item = &str> {
    world.pod_volumes(pod).into_iter().flat_map(|volumes| volumes.claims())
}

/// A claim is controlled by the pod: it was created for one of the pod's volumes.
pub(super) fn is_owned(claim: &ClaimFacts, pod: &Pod) -> bool {
    claim.controller_uid.as_deref().is_some_and(|uid| pod.uid == Uid::from(uid))
}

/// Why a claim with the name of a pod's own claim is not the pod's.
pub(super) fn not_owned(claim: &ClaimFacts, world: &World, pod: &Pod) -> String {
    let ClaimFacts { namespace, name, .. } = claim;
    let pods_namespace = namespace_of(world, pod);
    format!("PVC {namespace}/{name} was not created for pod {pods_namespace}/{} (pod is not owner)", pod.name)
}

/// Which of the pod's claims a change must be about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Claims {
    /// Those that the pod names itself.
    Named,
    /// Also those that are created for it.
    All,
}

/// Whether a claim of the pod was added or changed.
pub(super) fn changes_own_claim(waiting: &Cycle<'_>, change: &Change, which: Claims) -> bool {
    let Some(VolumeObject::Claim(claim)) = change.volume.as_ref().and_then(|changed| changed.after.as_ref()) else {
        return false;
    };
    claim.namespace == namespace_of(waiting.world, waiting.pod)
        && volumes_of(waiting)
            .filter(|volume| which == Claims::All || matches!(volume, PodVolume::Claim(_)))
            .filter_map(|volume| volume.claim_name(&waiting.pod.name))
            .any(|name| name == claim.name)
}

/// Whether the object about volumes did not exist before the change.
pub(super) fn is_added(change: &Change) -> bool {
    change.volume.as_ref().is_some_and(|changed| changed.before.is_none())
}

/// The pods with volumes on a node, in the cycle's view.
pub(super) fn pods_with_volumes<'a>(
    cycle: &Cycle<'a>,
    node: NodeId,
) -> impl Iterator<Item = (&'a Pod, &'a PodVolumes)> {
    let Cycle { world, view, .. } = *cycle;
    let placed = world.volumes_on(node).into_iter().flat_map(|on_node| on_node.pods.iter().copied());
    let placed = placed.filter(move |pod| !view.removed().contains(pod));
    let added = view.added().iter().filter(move |(_, on)| *on == node).map(|(pod, _)| *pod);
    placed.chain(added).filter_map(move |pod: PodId| Some((world.pod(pod)?, &**world.pod_volumes(pod)?)))
}

/// A volume as a limit counts it. An unbound claim stands for the volume that will be provisioned for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CountedVolume<'a> {
    pub(super) driver: &'a str,
    which: Which<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Which<'a> {
    Handle(&'a str),
    /// By namespace and name.
    Claim(&'a str, &'a str),
}

impl<'a> CountedVolume<'a> {
    /// The volume of a claim; `None` if no limit counts it.
    pub(super) fn of_claim(world: &'a World, claim: &'a ClaimFacts) -> Option<Self> {
        let Some(volume) = claim.volume.as_deref().and_then(|name| world.volumes().volume(name)) else {
            return Self::of_class(world, claim);
        };
        match &volume.source {
            VolumeSourceFacts::Csi(csi) => {
                let is_named = !csi.driver.is_empty() && !csi.handle.is_empty();
                is_named.then(|| Self { driver: &csi.driver, which: Which::Handle(&csi.handle) })
            }
            VolumeSourceFacts::InTree(volume) => Self::of_in_tree(volume)?.ok(),
            VolumeSourceFacts::Other => None,
        }
    }

    /// The volume that the claim's class will provide.
    fn of_class(world: &'a World, claim: &'a ClaimFacts) -> Option<Self> {
        let class = world.volumes().class(&claim.class).filter(|_| !claim.class.is_empty())?;
        let driver = match InTreePlugin::named(&class.provisioner) {
            Some(plugin) if plugin.is_migrated() => plugin.driver(),
            Some(_) => return None,
            None => class.provisioner.as_str(),
        };
        let which = Which::Claim(&claim.namespace, &claim.name);
        (!driver.is_empty()).then_some(Self { driver, which })
    }

    /// `None` if no limit counts it; an `Err` says why the CSI driver cannot have it.
    pub(super) fn of_in_tree(volume: &'a InTreeVolume) -> Option<Result<Self, &'a str>> {
        let InTreeVolume { plugin, migrated } = volume;
        let of = |MigratedVolume { handle, .. }: &'a MigratedVolume| Self {
            driver: plugin.driver(),
            which: Which::Handle(handle),
        };
        plugin.is_migrated().then(|| migrated.as_ref().map(of).map_err(String::as_str))
    }

    pub(super) fn of_attachment(world: &'a World, attachment: &'a AttachmentFacts) -> Option<Self> {
        let volume = world.volumes().volume(attachment.volume.as_deref()?)?;
        let VolumeSourceFacts::Csi(csi) = &volume.source else { return None };
        let driver = attachment.attacher.as_str();
        (!driver.is_empty()).then(|| Self { driver, which: Which::Handle(&csi.handle) })
    }
}

/// The volume's node affinity on this node. On a node that handles the volume's in-tree kind with a CSI driver, the
/// driver's topology counts.
pub(super) fn node_terms<'a>(
    world: &'a World,
    volume: &'a VolumeFacts,
    node: NodeId,
) -> Result<Option<&'a [model::event::NodeTermFacts]>, String> {
    let VolumeSourceFacts::InTree(in_tree) = &volume.source else { return Ok(volume.node_terms.as_deref()) };
    if !in_tree.plugin.is_migrated() || !is_migrated_on(world, in_tree.plugin, node) {
        return Ok(volume.node_terms.as_deref());
    }
    let migrated = in_tree.migrated.as_ref().map_err(|error| format!("could not translate pv: {error}"))?;
    Ok(migrated.node_terms.as_deref())
}

pub(super) fn is_migrated_on(world: &World, plugin: InTreePlugin, node: NodeId) -> bool {
    world.csi_node(node).is_some_and(|csi_node| csi_node.migrated_plugins.contains(plugin.name()))
}

/// Whether the node can use the volume. An `Err` says why that cannot be known.
pub(super) fn accepts(world: &World, volume: &VolumeFacts, node: NodeId) -> Result<bool, String> {
    let Some(terms) = node_terms(world, volume, node)? else { return Ok(true) };
    let label = |key: &str| Label::from(world.label_of(node, key));
    Ok(terms.iter().filter_map(NodeTerm::of_volume).any(|term| term.accepts("", label)))
}

/// The pod's claim for one of its volumes.
pub(super) fn claim_of<'a>(world: &'a World, pod: &Pod, name: &str) -> Option<&'a Arc<ClaimFacts>> {
    world.volumes().claim(namespace_of(world, pod), name)
}
