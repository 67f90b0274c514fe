//! One term of an incoming pod, with the counts of the existing pods it matches.
//!
//! In: the term. Out: the counts of the pods it matches. If the term is indexed, the counts are kept up to date
//! already; if not (the world does not know the pod), they are counted once, from the profiles found by its label
//! pairs.

use super::lift::Level;
use super::tally::Tally;
use super::term::Term;
use super::topology::Space;
use super::{ProfileId, TermId};
use crate::storage::arena::SpaceId;
use crate::storage::intern::Lookup;
use crate::world::World;

/// Counts, and the space they are in.
pub(crate) type Counted<'a> = (&'a Space, &'a Tally);

#[derive(Clone, Debug)]
pub(crate) enum CountedTerm {
    Indexed(TermId),
    NotIndexed(Box<FreshCounts>),
}

/// Counts of a term that is not indexed.
#[derive(Clone, Debug)]
pub(crate) struct FreshCounts {
    term: Term,
    written: (SpaceRef, Tally),
    host: Option<(SpaceRef, Tally)>,
}

#[derive(Clone, Debug)]
enum SpaceRef {
    Kept(SpaceId),
    /// No other term has this topology key.
    Made(Box<Space>),
}

impl SpaceRef {
    fn space<'a>(&'a self, world: &'a World) -> Option<&'a Space> {
        match self {
            Self::Kept(id) => world.affinity.topology.space(*id),
            Self::Made(space) => Some(space),
        }
    }
}

impl CountedTerm {
    pub(crate) fn find(world: &World, term: Term, lookup: &mut Lookup<'_>) -> Self {
        if let Some(id) = world.affinity.terms.find(&term) {
            return Self::Indexed(id);
        }
        let is_lifted = world.lifting().lifted_keys.contains(world.interner.text(term.topology_key));
        let profiles = world.affinity.profiles_for(&term, &world.namespaces);
        let mut counted = |is_lifted| {
            let topology = &world.affinity.topology;
            let key = term.topology_key;
            let space = topology.find(key, is_lifted).map_or_else(
                || SpaceRef::Made(Box::new(topology.made(key, is_lifted, &world.nodes, lookup))),
                SpaceRef::Kept,
            );
            let mut tally = Tally::default();
            if let Some(space) = space.space(world) {
                for pod in world.affinity.pods_of(profiles.iter().copied()) {
                    let node = world.affinity.entry(pod).and_then(|entry| entry.node);
                    if let Some(domain) = node.and_then(|node| space.domain(node)) {
                        tally.change(domain, 1);
                    }
                }
            }
            (space, tally)
        };
        let (written, host) = (counted(false), is_lifted.then(|| counted(true)));
        Self::NotIndexed(Box::new(FreshCounts { term, written, host }))
    }

    /// Whether the topology key is lifted.
    pub(crate) fn has_lifted_key(&self, world: &World) -> bool {
        match self {
            Self::Indexed(id) => world.affinity.terms.get(*id).is_some_and(|kept| kept.spaces.host.is_some()),
            Self::NotIndexed(fresh) => fresh.host.is_some(),
        }
    }

    pub(crate) fn counted<'a>(&'a self, world: &'a World, level: Level) -> Option<Counted<'a>> {
        match self {
            Self::Indexed(id) => {
                let kept = world.affinity.terms.get(*id)?;
                Some((kept.space(world, level)?, kept.matched.at(level)))
            }
            Self::NotIndexed(fresh) => {
                let (space, tally) = match level {
                    Level::Written => &fresh.written,
                    Level::Host => fresh.host.as_ref()?,
                };
                Some((space.space(world)?, tally))
            }
        }
    }

    /// 1 if the pods of a profile match, 0 if not.
    pub(crate) fn times(&self, world: &World, profile: ProfileId) -> i32 {
        let Some(profile) = world.affinity.profiles.get(profile) else { return 0 };
        let matches = match self {
            Self::Indexed(id) => profile.terms.contains(id),
            Self::NotIndexed(fresh) => {
                let namespace_labels = world.namespaces.labels(profile.namespace);
                fresh.term.matches(profile.namespace, namespace_labels, profile.labels.pairs())
            }
        };
        i32::from(matches)
    }

    /// The profiles it matches.
    pub(crate) fn profiles(&self, world: &World) -> Vec<ProfileId> {
        match self {
            Self::Indexed(id) => world.affinity.terms.get(*id).map_or_else(Vec::new, |kept| kept.profiles.clone()),
            Self::NotIndexed(fresh) => world.affinity.profiles_for(&fresh.term, &world.namespaces),
        }
    }

    pub(crate) fn term<'a>(&'a self, world: &'a World) -> Option<&'a Term> {
        match self {
            Self::Indexed(id) => world.term(*id),
            Self::NotIndexed(fresh) => Some(&fresh.term),
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
