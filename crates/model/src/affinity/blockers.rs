//! Which pods are in the way on a node.
//!
//! In: an incoming pod and a node that anti-affinity refuses. Out: some of the pods that cause it, and how. For people: in
//! `explain` and in events.
//!
//! Invariants: each pod named is a cause by itself; no more are named than asked for, and no more looked at than
//! [`LOOKED_AT_MAX`], so that an answer is quick in any world. Required affinity that fails has nobody to name.

use std::collections::BTreeMap;

use super::incoming::Incoming;
use super::lift::{Level, Reading};
use super::topology::Space;
use super::view::View;
use super::{ProfileId, Role};
use crate::arena::{NodeId, PodId};
use crate::world::World;

/// How many pods are looked at for one term.
pub const LOOKED_AT_MAX: usize = 100_000;

/// How a pod is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Obstacle {
    /// The incoming pod avoids it.
    Avoided,
    /// It avoids the incoming pod.
    Avoiding,
}

/// A pod that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocker {
    pub pod: PodId,
    pub node: NodeId,
    pub obstacle: Obstacle,
    /// The term holds between physical hosts, not only between the places it names.
    pub on_host: bool,
}

/// What is looked for: pods of these profiles in the place of a node.
struct Search<'a> {
    obstacle: Obstacle,
    level: Level,
    space: &'a Space,
    profiles: Vec<ProfileId>,
}

impl Incoming {
    /// At most `max` pods that keep this one off the node, by name.
    pub fn blockers(&self, world: &World, view: &View, reading: Reading, node: NodeId, max: usize) -> Vec<Blocker> {
        let own = self.avoided(world, reading).filter_map(|(level, look)| {
            let (space, _) = look.counted(world, level)?;
            Some(Search { obstacle: Obstacle::Avoided, level, space, profiles: look.profiles(world) })
        });
        let theirs = self.theirs(world, reading).filter(|theirs| theirs.role == Role::AntiAffinity).map(|theirs| {
            let (space, _) = theirs.counted;
            Search { obstacle: Obstacle::Avoiding, level: theirs.level, space, profiles: theirs.profiles.to_vec() }
        });
        let mut found = BTreeMap::new();
        for search in own.chain(theirs) {
            search.run(world, view, node, max, &mut found);
        }
        let mut blockers: Vec<Blocker> = found.into_values().collect();
        let name = |blocker: &Blocker| {
            world.pod(blocker.pod).map(|pod| (world.interner().text(pod.namespace), pod.name.as_ref()))
        };
        blockers.sort_by(|a, b| name(a).cmp(&name(b)));
        blockers
    }
}

impl Search<'_> {
    fn run(&self, world: &World, view: &View, at: NodeId, max: usize, found: &mut BTreeMap<PodId, Blocker>) {
        let Some(domain) = self.space.domain(at) else { return };
        let affinity = &world.affinity;
        let placed = affinity.pods_of(self.profiles.iter().copied()).take(LOOKED_AT_MAX).filter_map(|pod| {
            let node = affinity.entry(pod)?.node?;
            (!view.removed().contains(&pod)).then_some((pod, node))
        });
        let added = view.added().iter().copied().filter(|(pod, _)| {
            let entry = affinity.entry(*pod).filter(|entry| entry.place != super::NOT_LISTED);
            entry.is_some_and(|entry| self.profiles.contains(&entry.profile))
        });
        for (pod, node) in placed.chain(added) {
            if found.len() >= max {
                return;
            }
            if self.space.domain(node) == Some(domain) {
                let (obstacle, on_host) = (self.obstacle, self.level == Level::Host);
                found.entry(pod).or_insert(Blocker { pod, node, obstacle, on_host });
            }
        }
    }
}
