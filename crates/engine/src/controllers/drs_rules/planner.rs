//! Plans all clusters, and recomputes a plan only where its input changed.
//!
//! In: the world, the record, the current time. Out: for each cluster its changes, the record to write first and the
//! rules that the plan was made from; findings; when to plan again if nothing else happens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drs::{
    ClusterCopy, ClusterKey, ClusterView, DrsSettings, Finding, Fingerprint, NodeCopies, PlanScope, Record,
    RecordedRules, RuleChange, Surroundings, UnixMillis,
};
use model::event::ClusterFacts;
use model::{ClusterId, World};

use crate::runtime::{SharedWorld, Stopwatch};

/// About how many pods are copied while the world is locked: a millisecond or two.
const PODS_PER_STEP: usize = 2000;
/// After so many steps the rest is copied at once: the world changes faster than it is copied.
const STEPS_MAX: usize = 1000;

/// The plan for one cluster, and its inputs.
#[derive(Clone, Debug)]
pub struct PlannedCluster {
    pub changes: Vec<RuleChange>,
    /// The record to write first.
    pub rules: Arc<RecordedRules>,
    /// The record that the plan was made from.
    pub recorded: Arc<RecordedRules>,
    /// The cluster that the plan was made from, with its rules.
    pub planned_from: Arc<ClusterFacts>,
}

#[derive(Debug, Default)]
pub struct Planned {
    /// Every cluster that can be planned, including those without changes.
    pub clusters: BTreeMap<ClusterKey, PlannedCluster>,
    pub findings: Vec<Finding>,
    /// How many clusters changed since the previous plan.
    pub changed_clusters: usize,
    /// When the plan changes by the passage of time alone.
    pub next_due: Option<UnixMillis>,
    /// The longest time for which the world was locked.
    pub locked_max: Duration,
}

/// Plans each cluster that has changed since its last plan.
#[derive(Debug)]
pub struct Planner {
    settings: DrsSettings,
    last: BTreeMap<ClusterKey, Last>,
    /// The longest time for which the current call of [`Planner::plan`] has locked the world.
    locked_max: Duration,
}

/// The last plan for a cluster, and its inputs.
#[derive(Debug)]
struct Last {
    fingerprint: Fingerprint,
    rules: Arc<RecordedRules>,
    /// Kept, because a plan under churn then copies only the nodes that changed.
    copies: NodeCopies,
    planned: Option<PlannedCluster>,
    findings: Vec<Finding>,
    next_due: Option<UnixMillis>,
    /// Computed by the current call of [`Planner::plan`].
    is_new: bool,
}

impl Last {
    fn is_current(&self, fingerprint: &Fingerprint, rules: &Arc<RecordedRules>, now: UnixMillis) -> bool {
        self.next_due.is_none_or(|due| now < due) && self.rules == *rules && self.fingerprint == *fingerprint
    }
}

impl Planner {
    #[must_use]
    pub fn new(settings: DrsSettings) -> Self {
        Self { settings, last: BTreeMap::new(), locked_max: Duration::ZERO }
    }

    /// Reads the world cluster by cluster, and locks it only while it copies a few nodes.
    pub fn plan(&mut self, world: &SharedWorld, record: &Record, now: UnixMillis) -> Planned {
        let mut last = std::mem::take(&mut self.last);
        let surroundings = {
            let (world, stopwatch) = (world.read(), Stopwatch::start());
            let surroundings = Surroundings::of(&world, record, &self.settings);
            self.locked_max = stopwatch.elapsed();
            surroundings
        };
        let Some(mut surroundings) = surroundings else {
            return Planned { findings: vec![Finding::NoIdentity], ..Planned::default() };
        };
        let ids: Vec<ClusterId> = world.read().cluster_ids().collect();
        let mut planned = Planned::default();
        for id in ids {
            let of_cluster = self.plan_cluster(world, id, record, &mut surroundings, &mut last, now);
            let Some((key, of_cluster)) = of_cluster else { continue };
            planned.changed_clusters += usize::from(of_cluster.is_new);
            planned.findings.extend(of_cluster.findings.iter().cloned());
            planned.next_due = planned.next_due.into_iter().chain(of_cluster.next_due).min();
            planned.clusters.extend(of_cluster.planned.clone().map(|planned| (key.clone(), planned)));
            self.last.insert(key, of_cluster);
        }
        planned.findings.splice(..0, surroundings.findings().iter().cloned());
        planned.locked_max = self.locked_max;
        planned
    }

    fn plan_cluster(
        &mut self,
        world: &SharedWorld,
        id: ClusterId,
        record: &Record,
        surroundings: &mut Surroundings,
        last: &mut BTreeMap<ClusterKey, Last>,
        now: UnixMillis,
    ) -> Option<(ClusterKey, Last)> {
        let (key, rules, mut copies) = {
            let (world, stopwatch) = (world.read(), Stopwatch::start());
            if !surroundings.is_current(&world) {
                *surroundings = Surroundings::of(&world, record, &self.settings)?;
            }
            let (vcenter, facts) = world.cluster(id)?;
            let key = ClusterKey::new(vcenter, facts.id.clone());
            let rules = record.rules(&key);
            let fingerprint = Fingerprint::of(&world, self.scope(id, &rules, surroundings));
            self.locked_max = stopwatch.elapsed().max(self.locked_max);
            let known = last.remove(&key);
            if known.as_ref().is_some_and(|last| last.is_current(&fingerprint, &rules, now)) {
                return known.map(|known| (key, Last { is_new: false, ..known }));
            }
            (key, rules, known.map(|known| known.copies).unwrap_or_default())
        };
        let (view, fingerprint) = self.copy(world, id, record, &rules, surroundings, &mut copies)?;
        let plan = drs::plan_cluster(&view, &rules, &self.settings, now);
        let (planned, findings, next_due) = (None, Vec::new(), None);
        let mut last = Last { fingerprint, rules, copies, planned, findings, next_due, is_new: true };
        if let Some(plan) = plan {
            let (recorded, planned_from) = (Arc::clone(&last.rules), Arc::clone(view.facts()));
            last.planned = Some(PlannedCluster { changes: plan.actions, rules: plan.rules, recorded, planned_from });
            (last.findings, last.next_due) = (plan.findings, plan.next_due);
        }
        Some((key, last))
    }

    /// Copies what changed in a cluster since `copies` were made, and locks the world for a few nodes at a time.
    fn copy(
        &mut self,
        world: &SharedWorld,
        id: ClusterId,
        record: &Record,
        rules: &RecordedRules,
        surroundings: &mut Surroundings,
        copies: &mut NodeCopies,
    ) -> Option<(ClusterView, Fingerprint)> {
        for step in 0.. {
            let (world, stopwatch) = (world.read(), Stopwatch::start());
            let pods_max = if step < STEPS_MAX { PODS_PER_STEP } else { usize::MAX };
            let mut is_complete = copies.refresh(&world, self.scope(id, rules, surroundings), pods_max);
            if is_complete && !surroundings.is_current(&world) {
                // Read at the same time as the cluster: a VM that lost its host in between must not look deleted.
                *surroundings = Surroundings::of(&world, record, &self.settings)?;
                is_complete = copies.refresh(&world, self.scope(id, rules, surroundings), pods_max);
            }
            if is_complete {
                let scope = self.scope(id, rules, surroundings);
                let fingerprint = Fingerprint::of(&world, scope);
                let copy = ClusterCopy::of(&world, scope, copies)?;
                drop(world);
                let locked = stopwatch.elapsed();
                let view = ClusterView::from_copy(copy, scope);
                self.locked_max = locked.max(self.locked_max);
                return Some((view, fingerprint));
            }
            self.locked_max = stopwatch.elapsed().max(self.locked_max);
        }
        None
    }

    fn scope<'a>(
        &'a self,
        cluster: ClusterId,
        rules: &'a RecordedRules,
        surroundings: &'a Surroundings,
    ) -> PlanScope<'a> {
        PlanScope { cluster, rules, surroundings, settings: &self.settings }
    }
}

/// The name prefix of this Kubernetes cluster's rules and groups; `None` until the cluster's identity is known.
pub fn prefix(world: &World) -> Option<String> {
    world.kubernetes_uid().map(|uid| drs::plan::rule_prefix(&uid))
}

/// The number of recorded rules of a cluster.
pub fn rule_count(owned: &Record, cluster: &ClusterKey) -> usize {
    owned.clusters.get(cluster).map_or(0, |rules| rules.len())
}

/// Replaces a cluster's part of the record by that of another record.
pub fn take_over(owned: &mut Record, cluster: &ClusterKey, from: &Record) {
    match from.clusters.get(cluster) {
        Some(rules) => {
            owned.clusters.insert(cluster.clone(), rules.clone());
        }
        None => {
            owned.clusters.remove(cluster);
        }
    }
}

/// Serializes a cluster's part of the record.
pub fn to_text(owned: &Record, cluster: &ClusterKey) -> String {
    let none = drs::RecordedRules::new();
    drs::record::to_text(owned.clusters.get(cluster).map_or(&none, |rules| rules))
}

/// A record of one rule that does not exist yet.
#[cfg(test)]
pub(crate) fn intent_for_tests(cluster: &ClusterKey, rule: &str) -> Record {
    let intent = drs::RecordedRule::intent(drs::RuleType::VmAntiAffinity, "digest".to_owned());
    let rules = drs::RecordedRules::from([(rule.to_owned(), intent.into())]);
    Record { clusters: BTreeMap::from([(cluster.clone(), rules.into())]) }
}
