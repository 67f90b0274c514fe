//! InterPodAffinity scores of nodes for an incoming pod.
//!
//! In: an incoming pod, the world, a view, the nodes. Out: kube-scheduler's raw score of each node, and the score in
//! two scales. Each existing pod adds the weights of the incoming pod's preferred terms that match it, the weights of
//! its own preferred terms that match the incoming pod, and a fixed weight for each of its required affinity terms that
//! match the incoming pod.
//!
//! Invariant: scores equal those of kube-scheduler's InterPodAffinity; for lifted terms, the same between hosts.

use std::borrow::Cow;

use super::Role;
use super::incoming::Incoming;
use super::lift::Reading;
use super::tally::Tally;
use super::topology::Space;
use super::view::{Shift, View, shifted};
use crate::storage::arena::{DenseId, NodeId};
use crate::storage::node_set::NodeSet;
use crate::world::World;

/// The arguments of InterPodAffinity that affect scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScoreSettings {
    /// What a required affinity term of an existing pod adds, from 0 to 100.
    pub hard_pod_affinity_weight: i32,
    /// An incoming pod without preferred terms is not scored.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for ScoreSettings {
    fn default() -> Self {
        Self { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

/// The scores of some nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scores {
    /// In the order of the requested nodes.
    pub raw: Vec<i64>,
    /// No existing pod affects the score: kube-scheduler skips the plugin.
    pub is_silent: bool,
}

impl Scores {
    /// From 0 to 100, as the plugin normalises them.
    pub fn normalised(&self) -> Vec<i64> {
        self.scaled(100.0)
    }

    /// From 0 to 10, the scale of extender responses.
    pub fn for_extender(&self) -> Vec<i64> {
        self.scaled(10.0)
    }

    fn scaled(&self, score_max: f64) -> Vec<i64> {
        let (Some(min), Some(max)) = (self.raw.iter().min(), self.raw.iter().max()) else { return Vec::new() };
        let range = max - min;
        let scale = |raw: &i64| if range > 0 { score_max * ((raw - min) as f64 / range as f64) } else { 0.0 };
        self.raw.iter().map(|raw| scale(raw) as i64).collect()
    }
}

/// Sums of weights, per space and domain.
#[derive(Default)]
struct Sums<'a>(Vec<(&'a Space, Vec<i64>)>);

impl<'a> Sums<'a> {
    fn add(&mut self, space: &'a Space, tally: &Tally, weight: i64) {
        let index = self.0.iter().position(|(other, _)| std::ptr::eq(*other, space)).unwrap_or_else(|| {
            self.0.push((space, vec![0; space.width()]));
            self.0.len() - 1
        });
        let sums = &mut self.0[index].1;
        for (domain, count) in tally.iter() {
            sums[domain.0 as usize] += weight * i64::from(count);
        }
    }

    fn of(&self, node: NodeId) -> i64 {
        let sums = self.0.iter().filter_map(|(space, sums)| Some(sums[space.domain(node)?.0 as usize]));
        sums.sum()
    }
}

impl Role {
    /// What a term adds for each pod; `None` if it adds nothing.
    fn weight(self, settings: &ScoreSettings) -> Option<i64> {
        match self {
            Self::Affinity => Some(settings.hard_pod_affinity_weight.into()).filter(|weight| *weight > 0),
            Self::AntiAffinity => None,
            Self::PreferredAffinity(weight) => Some(weight.into()),
            Self::PreferredAntiAffinity(weight) => Some(-i64::from(weight)),
        }
    }
}

impl Incoming {
    /// The scores of these nodes, in this order; 0 for an unknown node.
    pub fn scores(
        &self,
        world: &World,
        view: &View,
        reading: Reading,
        settings: &ScoreSettings,
        nodes: &[NodeId],
    ) -> Scores {
        let sums = self.sums(world, view, reading, settings);
        Scores { raw: nodes.iter().map(|node| sums.of(*node)).collect(), is_silent: sums.0.is_empty() }
    }

    /// Whether no existing pod affects the score.
    pub fn is_silent(&self, world: &World, view: &View, reading: Reading, settings: &ScoreSettings) -> bool {
        let shifts = view.shifts(world);
        self.scoring_terms(world, &shifts, reading, settings).next().is_none()
    }

    /// Writes the scores of these nodes, each at the index of its id.
    pub fn write_scores(
        &self,
        world: &World,
        view: &View,
        reading: Reading,
        settings: &ScoreSettings,
        nodes: &NodeSet,
        scores: &mut [i64],
    ) {
        let sums = self.sums(world, view, reading, settings);
        match sums.0.as_slice() {
            // The common case: one space, so no sum per node.
            [(space, sums)] => nodes.iter().for_each(|node| {
                let domain = space.domain(node).map(|domain| domain.0 as usize);
                scores[node.index()] = domain.map_or(0, |domain| sums[domain]);
            }),
            _ => nodes.iter().for_each(|node| scores[node.index()] = sums.of(node)),
        }
    }

    fn sums<'a>(&'a self, world: &'a World, view: &View, reading: Reading, settings: &ScoreSettings) -> Sums<'a> {
        let shifts = view.shifts(world);
        let mut sums = Sums::default();
        for ((space, tally), weight) in self.scoring_terms(world, &shifts, reading, settings) {
            sums.add(space, &tally, weight);
        }
        sums
    }

    /// The terms that match at least one existing pod, with their weights.
    fn scoring_terms<'a, 's>(
        &'a self,
        world: &'a World,
        shifts: &'s [Shift],
        reading: Reading,
        settings: &'s ScoreSettings,
    ) -> impl Iterator<Item = ((&'a Space, Cow<'a, Tally>), i64)> {
        let is_scored = !settings.ignore_preferred_terms_of_existing_pods || !self.preferred.is_empty();
        let may_lift = self.lifts && world.affinity.topology().knows_hosts();
        let own = self.preferred.iter().filter_map(move |(term, role)| {
            let is_lifted = may_lift && role.is_anti_affinity() && term.has_lifted_key(world);
            let counted = term.counted(world, reading.level(is_lifted)?)?;
            Some((shifted(counted, shifts, |profile| term.times(world, profile)), role.weight(settings)?))
        });
        let theirs = self.theirs(world, reading).filter_map(move |theirs| {
            let weight = theirs.role.weight(settings)?;
            Some((shifted(theirs.counted, shifts, |profile| theirs.times(world, profile)), weight))
        });
        own.chain(theirs).filter(move |((_, tally), _)| is_scored && !tally.is_empty())
    }
}
