//! Whether a node has the volumes of a pod, and which volumes are bound or provisioned there.
//!
//! In: the pod's claims, resolved once against volumes, classes, capacities and the labels of nodes. Out: for a node the
//! volumes to bind and the claims to provision, or what is missing there.
//!
//! As in kube-scheduler: bound claims come first; claims that name a node go there or nowhere; the others, smallest
//! first, get the smallest volume that fits and is not taken by another claim of the pod; for the rest, volumes are
//! provisioned. kube-scheduler chooses any one of equally large volumes, here the first by name is chosen.

use std::collections::BTreeSet;
use std::sync::Arc;

use bitflags::bitflags;
use model::volumes::{
    ClaimFacts, InTreePlugin, StorageCapacityFacts, StorageClassFacts, VolumeFacts, VolumeSourceFacts,
};
use model::{NodeId, World};

use super::super::node_selection::TermTest;
use super::super::volumes::is_migrated_on;
use super::claims::{Delayed, PodClaims};
use super::matching::{can_be_bound, is_reserved_for};
use super::places::{Place, Places};

/// The provisioner of classes whose volumes are created by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

bitflags! {
    /// What is missing on a node.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct Lack: u8 {
        const AFFINITY = 1 << 0;
        const VOLUMES = 1 << 1;
        const SPACE = 1 << 2;
        const BOUND_VOLUME = 1 << 3;
    }
}

impl Lack {
    /// In kube-scheduler's order.
    pub(super) const REASONS: [(Self, &'static str); 4] = [
        (Self::AFFINITY, "node(s) didn't match PersistentVolume's node affinity"),
        (Self::VOLUMES, "node(s) didn't find available persistent volumes to bind"),
        (Self::SPACE, "node(s) did not have enough free storage"),
        (Self::BOUND_VOLUME, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
    ];
}

/// Why a node does not have the volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    Lacks(Lack),
    /// It cannot be known. kube-scheduler gives up the attempt with this error.
    Failed(String),
}

/// What is to be done for a pod on a node.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) to_bind: Vec<(Arc<VolumeFacts>, Arc<ClaimFacts>)>,
    pub(super) to_provision: Vec<Arc<ClaimFacts>>,
}

/// Is passed each claim, and its volume if there is one already.
type Each<'f, 'a> = dyn FnMut(&'a Arc<ClaimFacts>, Option<&'a Arc<VolumeFacts>>) + 'f;

/// The volume of a bound claim.
enum Bound<'a> {
    Missing,
    Volume {
        place: Place<'a>,
        /// Where the volume's in-tree kind is handled by a CSI driver.
        migrated: Option<(InTreePlugin, Result<Place<'a>, String>)>,
    },
}

/// A claim that gets an existing volume, or else a new one.
struct Unbound<'a> {
    claim: &'a Arc<ClaimFacts>,
    /// The volumes that are reserved for it, in the order of names.
    reserved: Vec<(&'a Arc<VolumeFacts>, Place<'a>)>,
    /// The other volumes that fit it, smallest first.
    volumes: Vec<&'a Arc<VolumeFacts>>,
    places: Places<'a>,
    provisioning: Provisioning<'a>,
}

/// A claim whose volume is being provisioned on a node.
struct Selected<'a> {
    claim: &'a Arc<ClaimFacts>,
    node: Option<NodeId>,
    provisioning: Provisioning<'a>,
}

/// Where a volume can be provisioned.
struct Provisioning<'a> {
    /// `None` if the class provisions none.
    topologies: Option<Place<'a>>,
    /// Where the driver has room for it. `None` if the driver does not say.
    capacities: Option<Places<'a>>,
}

pub(super) struct Search<'a> {
    bound: Vec<Bound<'a>>,
    selected: Vec<Selected<'a>>,
    unbound: Vec<Unbound<'a>>,
}

impl<'a> Search<'a> {
    pub(super) fn of(world: &'a World, claims: &'a PodClaims) -> Self {
        Self::among(world, claims, None)
    }

    /// For this node only.
    pub(super) fn on(world: &'a World, claims: &'a PodClaims, node: NodeId) -> Self {
        Self::among(world, claims, Some(node))
    }

    fn among(world: &'a World, claims: &'a PodClaims, only: Option<NodeId>) -> Self {
        let (selected, unbound): (Vec<&Delayed>, Vec<&Delayed>) =
            claims.delayed.iter().partition(|delayed| delayed.claim.selected_node.is_some());
        let selected = selected.into_iter().map(|Delayed { claim, class }| Selected {
            claim,
            node: claim.selected_node.as_deref().and_then(|name| world.node_id(name)),
            provisioning: Provisioning::of(world, claim, class),
        });
        let mut unbound: Vec<Unbound<'a>> =
            unbound.into_iter().map(|Delayed { claim, class }| Unbound::of(world, claim, class, only)).collect();
        unbound.sort_by_key(|unbound| unbound.claim.requested_bytes.unwrap_or_default());
        Self {
            bound: claims.bound.iter().map(|claim| Bound::of(world, claim)).collect(),
            selected: selected.collect(),
            unbound,
        }
    }

    /// What is to be done on the node, or why it is unfit.
    pub(super) fn find(&self, world: &World, node: NodeId) -> Result<Found, Unfit> {
        let mut found = Found::default();
        match self.look(world, node, &mut |claim, volume| match volume {
            Some(volume) => found.to_bind.push((Arc::clone(volume), Arc::clone(claim))),
            None => found.to_provision.push(Arc::clone(claim)),
        }) {
            Some(unfit) => Err(unfit),
            None => Ok(found),
        }
    }

    /// Why the node is unfit; `None` if it has the volumes.
    pub(super) fn unfit(&self, world: &World, node: NodeId) -> Option<Unfit> {
        self.look(world, node, &mut |_, _| {})
    }

    /// Passes each claim with the volume that it gets, or without one if its volume is provisioned.
    fn look(&self, world: &World, node: NodeId, each: &mut Each<'_, 'a>) -> Option<Unfit> {
        let lack = match self.bound_lack(world, node) {
            Ok(lack) => lack | self.unbound_lack(node, each),
            Err(error) => return Some(Unfit::Failed(error)),
        };
        (!lack.is_empty()).then_some(Unfit::Lacks(lack))
    }

    /// The first bound claim whose volume the node cannot use decides.
    fn bound_lack(&self, world: &World, node: NodeId) -> Result<Lack, String> {
        for bound in &self.bound {
            let Bound::Volume { place, migrated } = bound else { return Ok(Lack::BOUND_VOLUME) };
            let place = match migrated {
                Some((plugin, place)) if is_migrated_on(world, *plugin, node) => {
                    place.as_ref().map_err(Clone::clone)?
                }
                _ => place,
            };
            if !place.has(node) {
                return Ok(Lack::AFFINITY);
            }
        }
        Ok(Lack::empty())
    }

    fn unbound_lack(&self, node: NodeId, each: &mut Each<'_, 'a>) -> Lack {
        if self.selected.iter().any(|selected| selected.node != Some(node)) {
            return Lack::VOLUMES;
        }
        let selected = self.selected.iter().map(|selected| (selected.claim, &selected.provisioning));
        if self.unbound.iter().all(Unbound::has_no_volumes) {
            let unbound = self.unbound.iter().map(|unbound| (unbound.claim, &unbound.provisioning));
            return provision(node, selected.chain(unbound), each);
        }
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        let mut left: Vec<&Unbound<'a>> = Vec::new();
        for unbound in &self.unbound {
            match unbound.volume(node, &taken) {
                Some(volume) => {
                    taken.insert(&volume.name);
                    each(unbound.claim, Some(volume));
                }
                None => left.push(unbound),
            }
        }
        provision(node, selected.chain(left.into_iter().map(|left| (left.claim, &left.provisioning))), each)
    }
}

/// What is missing to provision volumes for these claims: the first claim for which anything is decides.
fn provision<'s, 'a: 's>(
    node: NodeId,
    claims: impl Iterator<Item = (&'a Arc<ClaimFacts>, &'s Provisioning<'a>)>,
    each: &mut Each<'_, 'a>,
) -> Lack {
    for (claim, provisioning) in claims {
        let lack = provisioning.lack(node);
        if !lack.is_empty() {
            return lack;
        }
        each(claim, None);
    }
    Lack::empty()
}

fn place<'a>(world: &'a World, terms: Option<&[model::event::NodeTermFacts]>) -> Place<'a> {
    terms.map_or(Place::Everywhere, |terms| {
        Place::Terms(terms.iter().map(|term| TermTest::of_volume(term, world)).collect())
    })
}

impl<'a> Bound<'a> {
    fn of(world: &'a World, claim: &ClaimFacts) -> Self {
        let volume = claim.volume.as_deref().and_then(|name| world.volumes().volume(name));
        let Some(volume) = volume else { return Self::Missing };
        let migrated = match &volume.source {
            VolumeSourceFacts::InTree(in_tree) if in_tree.plugin.is_migrated() => {
                let migrated = in_tree.migrated.as_ref().map_err(|error| format!("could not translate pv: {error}"));
                Some((in_tree.plugin, migrated.map(|migrated| place(world, migrated.node_terms.as_deref()))))
            }
            _ => None,
        };
        Self::Volume { place: place(world, volume.node_terms.as_deref()), migrated }
    }
}

impl<'a> Unbound<'a> {
    /// With the volumes that can be used on `only` this node, if one is given.
    fn of(world: &'a World, claim: &'a Arc<ClaimFacts>, class: &'a StorageClassFacts, only: Option<NodeId>) -> Self {
        let candidates = world.volumes().volumes_of_class(&claim.class);
        let candidates = candidates.filter(|volume| can_be_bound(volume, claim));
        let placed = candidates.map(|volume| (volume, place(world, volume.node_terms.as_deref())));
        let (reserved, mut others): (Vec<_>, Vec<_>) = placed.partition(|(volume, _)| is_reserved_for(volume, claim));
        others.retain(|(_, place)| only.is_none_or(|node| place.has(node)));
        others.sort_by_key(|(volume, _)| volume.capacity_bytes);
        let (volumes, places): (Vec<_>, Vec<_>) = others.into_iter().unzip();
        Self {
            claim,
            reserved,
            places: places.into_iter().collect(),
            volumes,
            provisioning: Provisioning::of(world, claim, class),
        }
    }

    fn has_no_volumes(&self) -> bool {
        self.reserved.is_empty() && self.volumes.is_empty()
    }

    /// The volume that the claim gets on this node.
    fn volume(&self, node: NodeId, taken: &BTreeSet<&str>) -> Option<&'a Arc<VolumeFacts>> {
        let is_free = |volume: &VolumeFacts| !taken.contains(volume.name.as_str());
        // A volume that is reserved for the claim is its only one, wherever it is.
        if let Some((volume, place)) = self.reserved.iter().find(|(volume, _)| is_free(volume)) {
            return place.has(node).then_some(*volume);
        }
        self.places.first(node, |number| is_free(self.volumes[number])).map(|number| self.volumes[number])
    }
}

impl<'a> Provisioning<'a> {
    fn of(world: &'a World, claim: &ClaimFacts, class: &'a StorageClassFacts) -> Self {
        if class.provisioner.is_empty() || class.provisioner == NO_PROVISIONER {
            return Self { topologies: None, capacities: None };
        }
        let terms = Some(class.allowed_topologies.as_slice()).filter(|terms| !terms.is_empty());
        let tracks_capacity =
            world.volumes().csi_driver(&class.provisioner).is_some_and(|driver| driver.storage_capacity);
        let capacities = claim.requested_bytes.filter(|_| tracks_capacity).map(|bytes| {
            let is_large =
                |capacity: &&Arc<StorageCapacityFacts>| capacity.largest_bytes.is_some_and(|most| most >= bytes);
            let capacities = world.volumes().capacities_of_class(&class.name).filter(is_large);
            let topologies = capacities.filter_map(|capacity| capacity.topology.as_ref());
            topologies.map(|topology| Place::Terms(vec![TermTest::of_labels(topology, world)])).collect()
        });
        Self { topologies: Some(place(world, terms)), capacities }
    }

    fn lack(&self, node: NodeId) -> Lack {
        if !self.topologies.as_ref().is_some_and(|topologies| topologies.has(node)) {
            return Lack::VOLUMES;
        }
        let has_room = |capacities: &Places<'_>| capacities.first(node, |_| true).is_some();
        if self.capacities.as_ref().is_none_or(has_room) { Lack::empty() } else { Lack::SPACE }
    }
}
