//! Which pods block a node for an incoming pod.
//!
//! In: an incoming pod and a node that anti-affinity excludes. Out: some of the pods that cause it, and how. Shown to
//! users in `explain` and in events.
//!
//! Invariants: each returned pod is a cause by itself; at most the requested number is returned, and at most
//! `VISITED_MAX` pods are visited for each term, so that an answer is fast in any world. Unsatisfied required affinity
//! has no blocker.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;

use super::incoming::Incoming;
use super::lift::{Level, Reading};
use super::tally::DomainId;
use super::topology::Space;
use super::view::View;
use super::{ProfileId, Role};
use crate::storage::arena::{NodeId, PodId};
use crate::storage::node_set::NodeSet;
use crate::world::World;

/// The maximum number of pods visited for one term.
const VISITED_MAX: usize = 100_000;

/// How a pod blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Obstacle {
    /// The incoming pod avoids it.
    Avoided,
    /// It avoids the incoming pod.
    Avoiding,
}

/// A pod that blocks a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocker {
    pub pod: PodId,
    pub node: NodeId,
    pub obstacle: Obstacle,
    /// The term applies between physical hosts, not only between the domains of its topology key.
    pub on_host: bool,
}

impl Blocker {
    /// The text shown to users: "pod shop/web-1 on node-3 (host esx-2) avoids this pod". `None` if the pod or the node
    /// no longer exists.
    pub fn in_words(&self, world: &World) -> Option<String> {
        let pod = world.pod(self.pod)?;
        self.describe(world, &format!("pod {}/{}", world.interner().text(pod.namespace), pod.name))
    }

    /// The same for users of one namespace, who may not see the names of other namespaces' pods.
    pub fn in_words_for(&self, world: &World, namespace: &str) -> Option<String> {
        let pod = world.pod(self.pod)?;
        match world.interner().text(pod.namespace) == namespace {
            true => self.in_words(world),
            false => self.describe(world, "a pod of another namespace"),
        }
    }

    fn describe(&self, world: &World, pod: &str) -> Option<String> {
        let node = world.node_name(self.node)?;
        // A pod that is not placed yet is only nominated for the node.
        let relation = if world.pod(self.pod)?.placed_on().is_some() { "on" } else { "nominated for" };
        let mut text = format!("{pod} {relation} {node}");
        if let Some(host) = world.host_name_of(self.node) {
            // Writing to a string does not fail.
            let _ = write!(text, " (host {host})");
        }
        text.push_str(match self.obstacle {
            Obstacle::Avoided => ", which this pod avoids",
            Obstacle::Avoiding => " avoids this pod",
        });
        Some(text)
    }

    fn by_name(&self, other: &Self, world: &World) -> Ordering {
        let name = |blocker: &Self| {
            world.pod(blocker.pod).map(|pod| (world.interner().text(pod.namespace), pod.name.as_ref()))
        };
        name(self).cmp(&name(other))
    }
}

/// A search for pods of these profiles in the domain of a node.
struct Search<'a> {
    obstacle: Obstacle,
    level: Level,
    space: &'a Space,
    profiles: Vec<ProfileId>,
}

impl Incoming {
    /// At most `max` pods that block the node for this one, sorted by name.
    pub fn blockers(&self, world: &World, view: &View, reading: Reading, node: NodeId, max: usize) -> Vec<Blocker> {
        let mut found = BTreeMap::new();
        for search in self.searches(world, reading) {
            search.run(world, view, node, max, &mut found);
        }
        let mut blockers: Vec<Blocker> = found.into_values().collect();
        blockers.sort_by(|a, b| a.by_name(b, world));
        blockers
    }

    /// Of these nodes, the blocked ones, each with one blocker: a pod that this pod avoids before one that avoids it,
    /// then the first by name, so that equal worlds give equal answers. Visits all pods once, not once per node.
    pub fn first_blockers(
        &self,
        world: &World,
        view: &View,
        reading: Reading,
        nodes: &NodeSet,
    ) -> Vec<(NodeId, Blocker)> {
        let found: Vec<_> = self
            .searches(world, reading)
            .map(|search| {
                let firsts = search.firsts(world, view);
                (search, firsts)
            })
            .collect();
        let first = |node: NodeId| {
            let each = found.iter().filter_map(|(search, firsts)| firsts.get(&search.space.domain(node)?));
            each.min_by(|a, b| a.obstacle.cmp(&b.obstacle).then_with(|| a.by_name(b, world))).copied()
        };
        nodes.iter().filter_map(|node| Some((node, first(node)?))).collect()
    }

    fn searches<'a>(&'a self, world: &'a World, reading: Reading) -> impl Iterator<Item = Search<'a>> {
        let own = self.avoided(world, reading).filter_map(move |(level, term)| {
            let (space, _) = term.counted(world, level)?;
            Some(Search { obstacle: Obstacle::Avoided, level, space, profiles: term.profiles(world) })
        });
        let theirs = self.theirs(world, reading).filter(|theirs| theirs.role == Role::AntiAffinity).map(|theirs| {
            let (space, _) = theirs.counted;
            Search { obstacle: Obstacle::Avoiding, level: theirs.level, space, profiles: theirs.profiles.to_vec() }
        });
        own.chain(theirs)
    }
}

impl Search<'_> {
    /// All pods of the search, on any node.
    fn pods<'s>(&'s self, world: &'s World, view: &'s View) -> impl Iterator<Item = (PodId, NodeId)> + 's {
        let affinity = &world.affinity;
        let placed = affinity.pods_of(self.profiles.iter().copied()).take(VISITED_MAX).filter_map(move |pod| {
            let node = affinity.entry(pod)?.node?;
            (!view.removed().contains(&pod)).then_some((pod, node))
        });
        let added = view.added().iter().copied().filter(move |(pod, _)| {
            let entry = affinity.entry(*pod).filter(|entry| entry.index != super::NOT_LISTED);
            entry.is_some_and(|entry| self.profiles.contains(&entry.profile))
        });
        placed.chain(added)
    }

    fn blocker(&self, pod: PodId, node: NodeId) -> Blocker {
        Blocker { pod, node, obstacle: self.obstacle, on_host: self.level == Level::Host }
    }

    fn run(&self, world: &World, view: &View, at: NodeId, max: usize, found: &mut BTreeMap<PodId, Blocker>) {
        let Some(domain) = self.space.domain(at) else { return };
        for (pod, node) in self.pods(world, view) {
            if found.len() >= max {
                return;
            }
            if self.space.domain(node) == Some(domain) {
                found.entry(pod).or_insert_with(|| self.blocker(pod, node));
            }
        }
    }

    /// The first pod by name in each domain that has one.
    fn firsts(&self, world: &World, view: &View) -> BTreeMap<DomainId, Blocker> {
        let mut firsts = BTreeMap::new();
        for (pod, node) in self.pods(world, view) {
            let Some(domain) = self.space.domain(node) else { continue };
            let blocker = self.blocker(pod, node);
            match firsts.entry(domain) {
                Entry::Vacant(none) => {
                    none.insert(blocker);
                }
                Entry::Occupied(mut first) if blocker.by_name(first.get(), world).is_lt() => {
                    first.insert(blocker);
                }
                Entry::Occupied(_) => {}
            }
        }
        firsts
    }
}
