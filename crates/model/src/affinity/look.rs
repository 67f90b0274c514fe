//! One term by which a pod that is being placed looks at the pods that are there.
//!
//! In: the term. Out: the counts of the pods it matches. Where the term is known these are kept already; where it is not
//! (a pod the world has not heard of) they are counted once, from the profiles that its label pairs lead to.

use super::lift::Level;
use super::tally::Tally;
use super::term::Term;
use super::topology::Space;
use super::{ProfileId, TermId};
use crate::arena::SpaceId;
use crate::intern::Lookup;
use crate::world::World;

/// Counts, and the space they are in.
pub(crate) type Counted<'a> = (&'a Space, &'a Tally);

#[derive(Clone, Debug)]
pub(crate) enum Look {
    Known(TermId),
    Fresh(Box<Fresh>),
}

/// Counts of a term that is not kept.
#[derive(Clone, Debug)]
pub(crate) struct Fresh {
    term: Term,
    written: (Place, Tally),
    host: Option<(Place, Tally)>,
}

#[derive(Clone, Debug)]
enum Place {
    Kept(SpaceId),
    /// No other term has this topology key.
    Made(Box<Space>),
}

impl Place {
    fn space<'a>(&'a self, world: &'a World) -> Option<&'a Space> {
        match self {
            Self::Kept(id) => world.affinity.topology.space(*id),
            Self::Made(space) => Some(space),
        }
    }
}

impl Look {
    pub(crate) fn find(world: &World, term: Term, lookup: &mut Lookup<'_>) -> Self {
        if let Some(id) = world.affinity.terms.find(&term) {
            return Self::Known(id);
        }
        let is_lifted = world.lifting().lifted_keys.contains(world.interner.text(term.topology_key));
        let profiles = world.affinity.profiles_for(&term, &world.namespaces);
        let mut counted = |is_lifted| {
            let topology = &world.affinity.topology;
            let key = term.topology_key;
            let place = topology.find(key, is_lifted).map_or_else(
                || Place::Made(Box::new(topology.made(key, is_lifted, &world.nodes, lookup))),
                Place::Kept,
            );
            let mut tally = Tally::default();
            if let Some(space) = place.space(world) {
                for pod in world.affinity.pods_of(profiles.iter().copied()) {
                    let node = world.affinity.entry(pod).and_then(|entry| entry.node);
                    if let Some(domain) = node.and_then(|node| space.domain(node)) {
                        tally.change(domain, 1);
                    }
                }
            }
            (place, tally)
        };
        let (written, host) = (counted(false), is_lifted.then(|| counted(true)));
        Self::Fresh(Box::new(Fresh { term, written, host }))
    }

    /// Whether the topology key is lifted.
    pub(crate) fn has_lifted_key(&self, world: &World) -> bool {
        match self {
            Self::Known(id) => world.affinity.terms.get(*id).is_some_and(|kept| kept.spaces.host.is_some()),
            Self::Fresh(fresh) => fresh.host.is_some(),
        }
    }

    pub(crate) fn counted<'a>(&'a self, world: &'a World, level: Level) -> Option<Counted<'a>> {
        match self {
            Self::Known(id) => {
                let kept = world.affinity.terms.get(*id)?;
                Some((kept.space(world, level)?, kept.matched.at(level)))
            }
            Self::Fresh(fresh) => {
                let (place, tally) = match level {
                    Level::Written => &fresh.written,
                    Level::Host => fresh.host.as_ref()?,
                };
                Some((place.space(world)?, tally))
            }
        }
    }

    /// Whether the pods of a profile match: once, or not at all.
    pub(crate) fn times(&self, world: &World, profile: ProfileId) -> i32 {
        let Some(profile) = world.affinity.profiles.get(profile) else { return 0 };
        let matches = match self {
            Self::Known(id) => profile.terms.contains(id),
            Self::Fresh(fresh) => {
                let namespace_labels = world.namespaces.labels(profile.namespace);
                fresh.term.matches(profile.namespace, namespace_labels, profile.labels.pairs())
            }
        };
        i32::from(matches)
    }

    /// The profiles it matches.
    pub(crate) fn profiles(&self, world: &World) -> Vec<ProfileId> {
        match self {
            Self::Known(id) => world.affinity.terms.get(*id).map_or_else(Vec::new, |kept| kept.profiles.clone()),
            Self::Fresh(fresh) => world.affinity.profiles_for(&fresh.term, &world.namespaces),
        }
    }

    pub(crate) fn term<'a>(&'a self, world: &'a World) -> Option<&'a Term> {
        match self {
            Self::Known(id) => world.term(*id),
            Self::Fresh(fresh) => Some(&fresh.term),
        }
    }
}

impl super::terms::KeptTerm {
    pub(crate) fn space<'a>(&self, world: &'a World, level: Level) -> Option<&'a Space> {
        let id = match level {
            Level::Written => self.spaces.written,
            Level::Host => self.spaces.host?,
        };
        world.affinity.topology.space(id)
    }
}
