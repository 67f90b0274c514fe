//! Which nodes inter-pod affinity and anti-affinity allow for a pod, and why it excludes the others.
//!
//! In: an incoming pod, the world, a view. Out: sets of nodes. Semantics are those of kube-scheduler's
//! InterPodAffinity; lifted terms work the same way between hosts and are reported separately as PhysicalHost.
//!
//! Invariants: a node is in at most one set of each part, the one kube-scheduler would report; a node in none of them
//! is feasible; unknown nodes are in none.

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

/// Why a node is not feasible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// No existing pod in the domain satisfies the pod's required affinity.
    Affinity,
    /// The pod's anti-affinity matches an existing pod in the domain.
    AntiAffinity,
    /// The anti-affinity of an existing pod in the domain matches the pod.
    ExistingAntiAffinity,
    /// The pod's anti-affinity matches a pod on the same physical host.
    HostAntiAffinity,
    /// The anti-affinity of a pod on the same physical host matches the pod.
    HostExistingAntiAffinity,
}

impl Refusal {
    /// The exact wording of kube-scheduler, which groups nodes by it.
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

    /// Whether removing pods may help. If not, kube-scheduler reports the node as UnschedulableAndUnresolvable.
    pub fn is_resolvable(self) -> bool {
        self != Self::Affinity
    }
}

/// The nodes that one plugin excludes, by the first reason it finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    pub affinity: NodeSet,
    pub anti_affinity: NodeSet,
    pub existing_anti_affinity: NodeSet,
}

impl Refusals {
    /// Keeps only the first reason of each node.
    fn keep_first_reasons(&mut self) {
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
    /// Known nodes that no term excludes.
    pub feasible: NodeSet,
    /// Excluded by terms as written.
    pub inter_pod: Refusals,
    /// Excluded by lifted terms.
    pub physical_host: Refusals,
    /// Lifted terms would have left no node, so they were applied as written.
    pub relaxed: bool,
}

impl Verdicts {
    /// Why the node is not feasible; `None` for a feasible node.
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
            part.keep_first_reasons();
            part.sets().into_iter().for_each(|set| self.feasible.subtract(set));
        }
        self
    }
}

impl Incoming {
    /// The verdict on every node. `candidates` are the nodes still under consideration (`None`: all): in relaxed mode,
    /// lifted terms that exclude all of them are applied as written. Not with [`Reading::LiftedOnly`]: that caller
    /// decides itself when to relax.
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

    /// Whether InterPodAffinity is skipped for this pod: the pod has no required terms, and no
    /// existing pod's anti-affinity matches it. As in kube-scheduler, pods that are only nominated do not change that.
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
            verdicts.inter_pod.affinity.subtract(&self.satisfying_affinity(world, shifts));
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

    /// The nodes where required affinity holds: a pod that matches all terms is in the same domain under each key. The
    /// first pod of a group with affinity to itself has no such pod yet: any node with all keys is accepted.
    fn satisfying_affinity(&self, world: &World, shifts: &[Shift]) -> NodeSet {
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

    /// Why the node is excluded, as [`Incoming::verdicts`] says, without a look at other nodes. Not with
    /// [`Reading::Lifting`], which may yield.
    pub fn refusal_on(&self, world: &World, view: &View, reading: Reading, node: NodeId) -> Option<Refusal> {
        if !world.affinity.topology.known().contains(node) {
            return None;
        }
        let shifts = view.shifts(world);
        if reading != Reading::LiftedOnly && !self.affinity.is_empty() && !self.is_satisfied_on(world, &shifts, node) {
            return Some(Refusal::Affinity);
        }
        let own = self.avoided(world, reading).find(|(level, term)| {
            let counted = term.counted(world, *level);
            counted.is_some_and(|counted| is_counted_on(counted, &shifts, |profile| term.times(world, profile), node))
        });
        if let Some((level, _)) = own {
            return Some(match level {
                Level::Written => Refusal::AntiAffinity,
                Level::Host => Refusal::HostAntiAffinity,
            });
        }
        let theirs = self.theirs(world, reading).filter(|theirs| theirs.role == Role::AntiAffinity);
        let mut theirs = theirs
            .filter(|theirs| is_counted_on(theirs.counted, &shifts, |profile| theirs.times(world, profile), node));
        theirs.next().map(|theirs| match theirs.level {
            Level::Written => Refusal::ExistingAntiAffinity,
            Level::Host => Refusal::HostExistingAntiAffinity,
        })
    }

    /// Whether the node is among those of [`Incoming::satisfying_affinity`].
    fn is_satisfied_on(&self, world: &World, shifts: &[Shift], node: NodeId) -> bool {
        let (mut is_near, mut has_keys) = (true, true);
        for term in &self.affinity {
            let Some(counted) = term.counted(world, Level::Written) else { return false };
            is_near &= is_counted_on(counted, shifts, |profile| term.times(world, profile), node);
            has_keys &= counted.0.inside().contains(node);
        }
        let counts_any = |term: &CountedTerm| {
            let counted = term.counted(world, Level::Written);
            counted.is_some_and(|counted| !shifted(counted, shifts, |profile| term.times(world, profile)).1.is_empty())
        };
        is_near || (has_keys && self.is_own_match && !self.affinity.iter().any(counts_any))
    }

    /// The pod's own required anti-affinity, with the level at which each term applies.
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

    /// The terms of other pods that match the pod, by role.
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

/// The profiles that carry a term that matches the pod, in one role.
pub(crate) struct Theirs<'a> {
    term: TermId,
    pub(crate) role: Role,
    lifts: bool,
    pub(crate) level: Level,
    pub(crate) profiles: &'a [ProfileId],
    pub(crate) counted: Counted<'a>,
}

impl Theirs<'_> {
    /// How many times pods of a profile carry the term.
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

/// Whether any pod is counted in the node's domain after the shifts: see [`shifted`].
fn is_counted_on(
    (space, tally): Counted<'_>,
    shifts: &[Shift],
    times: impl Fn(ProfileId) -> i32,
    node: NodeId,
) -> bool {
    let Some(domain) = space.domain(node) else { return false };
    let of_domain = shifts.iter().filter(|shift| space.domain(shift.node) == Some(domain));
    let count = of_domain.fold(tally.of(domain), |count, shift| match times(shift.profile) {
        times @ 1.. => count.saturating_add_signed(shift.by * times),
        _ => count,
    });
    count > 0
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
