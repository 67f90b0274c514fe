//! Which VMs pods want apart: the pairs behind all rules, for people and tests.

use std::collections::BTreeSet;

use model::World;

use crate::gather::{Gatherings, PartChanges};
use crate::graph::pairs;
use crate::places::Places;
use crate::record::{ClusterName, Owned};
use crate::settings::DrsSettings;

/// What pods want.
#[derive(Debug)]
pub struct Wanted {
    places: Places,
    parts: PartChanges,
}

impl Wanted {
    /// The pairs of VMs, by id, that shall not share a host.
    pub fn apart(&self) -> BTreeSet<(ClusterName, String, String)> {
        let parts = self.parts.iter().filter_map(|((cluster, _), part)| Some((*cluster, part.as_ref()?)));
        parts
            .flat_map(|(cluster, part)| {
                let places = &self.places.clusters[cluster];
                let id = |vm: usize| places.vms[vm].id.clone();
                let wanted = pairs(&part.vms).filter(|(a, b)| part.wants(*a, *b));
                wanted.map(move |(a, b)| (places.name.clone(), id(a), id(b)))
            })
            .collect()
    }
}

/// What pods want now.
pub fn wanted(world: &World, settings: &DrsSettings) -> Wanted {
    let places = Places::of(world, &Owned::default(), settings);
    let parts = Gatherings::default().gather(world, &places, settings, world.term_ids());
    Wanted { places, parts }
}
