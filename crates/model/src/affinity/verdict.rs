//! Which nodes take a pod, as far as the pods that are there go; and why the others do not.
//!
//! In: an incoming pod, the world, a view. Out: sets of nodes. The meaning is that of kube-scheduler's InterPodAffinity;
//! lifted terms are the same between hosts, told apart as PhysicalHost.
//!
//! Invariants: a node is in at most one set of each part, the one kube-scheduler would name; a node that is in none is
//! feasible; nodes that are not known are in none.

use super::counted_term::{Counted, CountedTerm};
use super::incoming::Incoming;
use super::lift::{Level, LiftMode, Reading};
use super::tally::Tally;
use super::topology::Space;
use super::view::{Shift, View, shifted};
use super::{ProfileId, Role, TermId};
use crate::storage::arena::NodeId;
use crate::storage::node_set::NodeSet;
use crate::world::World;

/// Why a node is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// No pod that the pod wants to be near is there.
    Affinity,
    /// A pod is there that the pod avoids.
    AntiAffinity,
    /// A pod is there that avoids the pod.
    ExistingAntiAffinity,
    /// A pod that the pod avoids is on the same physical host.
    HostAntiAffinity,
    /// A pod that avoids the pod is on the same physical host.
    HostExistingAntiAffinity,
}

impl Refusal {
    /// In kube-scheduler's words, which it groups by.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Affinity => "node(s) didn't match pod affinity rules",
            Self::AntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingAntiAffinity => "node(s) didn't satisfy existing pods anti-affinity rules",
            Self::HostAntiAffinity => "node(s) didn't match pod anti-affinity rules between physical hosts",
            Self::HostExistingAntiAffinity => {
                "node(s) didn't satisfy existing pods anti-affinity rules between physical hosts"
            }
        }
    }

    pub fn plugin(self) -> &'static str {
        match self {
            Self::Affinity | Self::AntiAffinity | Self::ExistingAntiAffinity => "InterPodAffinity",
            Self::HostAntiAffinity | Self::HostExistingAntiAffinity => "PhysicalHost",
        }
    }

    /// Whether pods that go may help. If not, kube-scheduler calls the node UnschedulableAndUnresolvable.
    pub fn is_resolvable(self) -> bool {
        self != Self::Affinity
    }
}

/// The nodes one plugin refuses, by the first reason it finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    pub affinity: NodeSet,
    pub anti_affinity: NodeSet,
    pub existing_anti_affinity: NodeSet,
}

impl Refusals {
    /// Leaves each node its first reason only.
    fn put_apart(&mut self) {
        self.anti_affinity.subtract(&self.affinity);
        self.existing_anti_affinity.subtract(&self.affinity);
        self.existing_anti_affinity.subtract(&self.anti_affinity);
    }

    fn sets(&self) -> [&NodeSet; 3] {
        [&self.affinity, &self.anti_affinity, &self.existing_anti_affinity]
    }

    pub fn is_empty(&self) -> bool {
        self.sets().into_iter().all(NodeSet::is_empty)
    }
}

/// Every node's verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Known nodes that nothing speaks against.
    pub feasible: NodeSet,
    /// By terms as they are written.
    pub inter_pod: Refusals,
    /// By lifted terms.
    pub physical_host: Refusals,
    /// Lifted terms would have left no node, and were taken as they are written.
    pub relaxed: bool,
}

impl Verdicts {
    /// Why the node is refused; `None` for a feasible one.
    pub fn refusal(&self, node: NodeId) -> Option<Refusal> {
        let [affinity, anti_affinity, existing] = self.inter_pod.sets();
        let [_, host_anti_affinity, host_existing] = self.physical_host.sets();
        let in_order = [
            (affinity, Refusal::Affinity),
            (anti_affinity, Refusal::AntiAffinity),
            (existing, Refusal::ExistingAntiAffinity),
            (host_anti_affinity, Refusal::HostAntiAffinity),
            (host_existing, Refusal::HostExistingAntiAffinity),
        ];
        in_order.into_iter().find(|(set, _)| set.contains(node)).map(|(_, refusal)| refusal)
    }

    fn finish(mut self, known: &NodeSet) -> Self {
        self.feasible = known.clone();
        for part in [&mut self.inter_pod, &mut self.physical_host] {
            part.put_apart();
            part.sets().into_iter().for_each(|set| self.feasible.subtract(set));
        }
        self
    }
}

impl Incoming {
    /// The verdict on every node. `candidates` are the nodes that are still in question (`None`: all): in relaxed mode,
    /// lifted terms that leave none of them yield. Whoever reads lifted terms alone knows better than this when they should.
    pub fn verdicts(&self, world: &World, view: &View, reading: Reading, candidates: Option<&NodeSet>) -> Verdicts {
        let shifts = view.shifts(world);
        let strict = self.read(world, &shifts, reading);
        let takes_some = |verdicts: &Verdicts| match candidates {
            Some(candidates) => !verdicts.feasible.is_disjoint(candidates),
            None => !verdicts.feasible.is_empty(),
        };
        let may_yield = world.lifting().mode == LiftMode::Relaxed && reading == Reading::Lifting;
        if !may_yield || strict.physical_host.is_empty() || takes_some(&strict) {
            return strict;
        }
        let relaxed = self.read(world, &shifts, Reading::AsWritten);
        if takes_some(&relaxed) { Verdicts { relaxed: true, ..relaxed } } else { strict }
    }

    /// Whether InterPodAffinity has nothing to say of this pod, and is left out of the cycle: it has no required terms and
    /// no pod that is there avoids it. Pods that are merely nominated do not change that, just as in kube-scheduler.
    pub fn is_indifferent(&self, world: &World) -> bool {
        let avoided = |term: &TermId| {
            let kept = world.affinity.terms.get(*term);
            kept.into_iter()
                .flat_map(|kept| &kept.carriers)
                .any(|carriers| carriers.role == Role::AntiAffinity && !carriers.counts.at(Level::Written).is_empty())
        };
        self.affinity.is_empty() && self.anti_affinity.is_empty() && !self.matched_by.iter().any(avoided)
    }

    fn read(&self, world: &World, shifts: &[Shift], reading: Reading) -> Verdicts {
        let mut verdicts = Verdicts::default();
        let known = world.affinity.topology.known();
        if reading != Reading::LiftedOnly && !self.affinity.is_empty() {
            verdicts.inter_pod.affinity = known.clone();
            verdicts.inter_pod.affinity.subtract(&self.near_enough(world, shifts));
        }
        for (level, term) in self.avoided(world, reading) {
            if let Some(counted) = term.counted(world, level) {
                let part = verdicts.part(level);
                mark(counted, shifts, |profile| term.times(world, profile), &mut part.anti_affinity);
            }
        }
        for theirs in self.theirs(world, reading).filter(|theirs| theirs.role == Role::AntiAffinity) {
            let part = verdicts.part(theirs.level);
            mark(theirs.counted, shifts, |profile| theirs.times(world, profile), &mut part.existing_anti_affinity);
        }
        verdicts.finish(known)
    }

    /// The nodes where required affinity holds: where a pod that matches all terms is in the same place under each key. The
    /// first pod of a group that wants to be near itself has nobody to be near: any node with all keys will do.
    fn near_enough(&self, world: &World, shifts: &[Shift]) -> NodeSet {
        let known = world.affinity.topology.known();
        let (mut near, mut has_keys) = (known.clone(), known.clone());
        let mut counts_any = false;
        for term in &self.affinity {
            let Some(counted) = term.counted(world, Level::Written) else { return NodeSet::default() };
            let (space, tally) = shifted(counted, shifts, |profile| term.times(world, profile));
            counts_any |= !tally.is_empty();
            near.intersect_with(&nodes_of(space, &tally));
            has_keys.intersect_with(space.inside());
        }
        if !counts_any && self.is_own_match { has_keys } else { near }
    }

    /// The pod's own required anti-affinity, and at which level each term holds.
    pub(crate) fn avoided<'a>(
        &'a self,
        world: &'a World,
        reading: Reading,
    ) -> impl Iterator<Item = (Level, &'a CountedTerm)> + 'a {
        let may_lift = self.lifts && world.affinity.topology.knows_hosts();
        self.anti_affinity.iter().filter_map(move |term| {
            let level = reading.level(may_lift && term.has_lifted_key(world))?;
            Some((level, term))
        })
    }

    /// The terms of others that match the pod, by role.
    pub(crate) fn theirs<'a>(&'a self, world: &'a World, reading: Reading) -> impl Iterator<Item = Theirs<'a>> + 'a {
        let may_lift = world.affinity.topology.knows_hosts();
        self.matched_by.iter().filter_map(|&term| Some((term, world.affinity.terms.get(term)?))).flat_map(
            move |(term, kept)| {
                kept.carriers.iter().filter_map(move |carriers| {
                    let level = reading.level(may_lift && carriers.lifts)?;
                    let counted = (kept.space(world, level)?, carriers.counts.at(level));
                    let (role, lifts, profiles) = (carriers.role, carriers.lifts, carriers.profiles.as_slice());
                    Some(Theirs { term, role, lifts, level, profiles, counted })
                })
            },
        )
    }
}

/// Those who have a term that matches the pod, in one role.
pub(crate) struct Theirs<'a> {
    term: TermId,
    pub(crate) role: Role,
    lifts: bool,
    pub(crate) level: Level,
    pub(crate) profiles: &'a [ProfileId],
    pub(crate) counted: Counted<'a>,
}

impl Theirs<'_> {
    /// How many times pods of a profile have the term.
    pub(crate) fn times(&self, world: &World, profile: ProfileId) -> i32 {
        let Some(profile) = world.affinity.profiles.get(profile) else { return 0 };
        let Some(kept) = world.affinity.terms.get(self.term) else { return 0 };
        if kept.is_lifted(self.role, profile.lifts) != self.lifts {
            return 0;
        }
        // A pod has few terms.
        profile.carried.iter().filter(|carried| **carried == (self.term, self.role)).count() as i32
    }
}

impl Verdicts {
    fn part(&mut self, level: Level) -> &mut Refusals {
        match level {
            Level::Written => &mut self.inter_pod,
            Level::Host => &mut self.physical_host,
        }
    }
}

fn mark(counted: Counted<'_>, shifts: &[Shift], times: impl Fn(ProfileId) -> i32, set: &mut NodeSet) {
    let (space, tally) = shifted(counted, shifts, times);
    tally.iter().for_each(|(domain, _)| space.mark(domain, set));
}

fn nodes_of(space: &Space, tally: &Tally) -> NodeSet {
    let mut set = NodeSet::default();
    tally.iter().for_each(|(domain, _)| space.mark(domain, &mut set));
    set
}
