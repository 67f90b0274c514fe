//! The pure planner of `drs`, in the terms the writer works with.
//!
//! In: the world, the record, the moment. Out: for each cluster the units of work, each a rule with all changes that must
//! go through together; the record to be written first; findings; when to look again though nothing happened.

use std::collections::BTreeMap;

use drs::record::ClusterName;
use drs::{ActionKind, DrsSettings, Finding, GroupChange, Owned, Plan, UnixMillis};
use model::event::ClusterFacts;
use model::{Touched, World};

use crate::ports::{RuleChange, RuleSpec};

/// What is done to a rule, for counting and for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Create,
    Edit,
    Delete,
}

/// One rule and all changes that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub rule: String,
    pub verb: Verb,
    pub changes: Vec<RuleChange>,
}

#[derive(Debug, Default)]
pub struct Planned {
    /// Every cluster that can be planned for, also those with nothing to do.
    pub clusters: BTreeMap<ClusterName, Vec<Unit>>,
    pub findings: Vec<Finding>,
    pub record: Owned,
    /// Time alone changes the plan then.
    pub next_due: Option<UnixMillis>,
}

#[derive(Debug)]
pub struct Planner(drs::Planner);

impl Planner {
    #[must_use]
    pub fn new(settings: DrsSettings) -> Self {
        Self(drs::Planner::new(settings))
    }

    /// Takes note of what changed since the last plan.
    pub fn observe(&mut self, touched: &Touched) {
        self.0.observe(touched);
    }

    pub fn plan(&mut self, world: &World, owned: &Owned, now: UnixMillis) -> Planned {
        Planned::of(self.0.plan(world, owned, now), world)
    }
}

impl Planned {
    /// A plan as units of work.
    #[must_use]
    pub fn of(plan: Plan, world: &World) -> Planned {
        let facts = facts_by_name(world);
        let mut clusters = BTreeMap::new();
        for planned in &plan.clusters {
            let Some(facts) = facts.get(&planned.cluster) else { continue };
            let units = planned.actions.iter().map(|action| unit(action, facts)).collect();
            clusters.insert(planned.cluster.clone(), units);
        }
        Planned { clusters, findings: plan.findings, record: plan.record, next_due: plan.next_due }
    }
}

fn facts_by_name(world: &World) -> BTreeMap<ClusterName, &ClusterFacts> {
    let facts = world.cluster_ids().filter_map(|id| world.cluster(id));
    facts.map(|(vcenter, facts)| ((vcenter, facts.id.clone()), facts)).collect()
}

fn unit(action: &drs::Action, facts: &ClusterFacts) -> Unit {
    let spec = |enabled| RuleSpec {
        name: action.rule.clone(),
        enabled,
        mandatory: action.mandatory,
        kind: action.rule_kind(),
    };
    let (verb, change) = match &action.kind {
        ActionKind::Create => (Verb::Create, Some(RuleChange::AddRule(spec(true)))),
        ActionKind::Edit { key, uuid, .. } => {
            // Somebody may have disabled it: that is not ours to undo.
            let enabled = facts.rules.iter().find(|rule| rule.key == *key).is_none_or(|rule| rule.enabled);
            (Verb::Edit, Some(RuleChange::EditRule { key: *key, uuid: uuid.clone(), rule: spec(enabled) }))
        }
        ActionKind::Delete { key, .. } => (Verb::Delete, Some(RuleChange::RemoveRule { key: *key })),
        ActionKind::DeleteGroups => (Verb::Delete, None),
    };
    let groups = action.groups.iter().map(|group| match group {
        GroupChange::Add(group) => RuleChange::AddGroup(group.clone()),
        GroupChange::Edit(group) => RuleChange::EditGroup(group.clone()),
        GroupChange::Remove { name } => RuleChange::RemoveGroup { name: name.clone() },
    });
    Unit { rule: action.rule.clone(), verb, changes: change.into_iter().chain(groups).collect() }
}

/// What the names of this Kubernetes cluster's rules and groups begin with, once its identity is known.
pub fn prefix(world: &World) -> Option<String> {
    world.kubernetes_uid().map(|uid| drs::plan::rule_prefix(&uid))
}

/// How many rules the record holds for a cluster.
pub fn rule_count(owned: &Owned, cluster: &ClusterName) -> usize {
    owned.clusters.get(cluster).map_or(0, |rules| rules.len())
}

/// Makes what is recorded for a cluster the same as in another record.
pub fn take_over(owned: &mut Owned, cluster: &ClusterName, from: &Owned) {
    match from.clusters.get(cluster) {
        Some(rules) => {
            owned.clusters.insert(cluster.clone(), rules.clone());
        }
        None => {
            owned.clusters.remove(cluster);
        }
    }
}

/// The part of the record that is about one cluster.
pub fn part(owned: &Owned, cluster: &ClusterName) -> Owned {
    let mut part = Owned::default();
    take_over(&mut part, cluster, owned);
    part
}

/// What is recorded for a cluster, as it is kept.
pub fn to_text(owned: &Owned, cluster: &ClusterName) -> String {
    let none = drs::Rules::new();
    drs::record::to_text(owned.clusters.get(cluster).map_or(&none, |rules| rules))
}

/// Reads a text into the record.
pub fn from_text(owned: &mut Owned, cluster: &ClusterName, text: &str) -> Result<(), drs::record::RecordError> {
    let rules = drs::record::from_text(text)?;
    if rules.is_empty() {
        owned.clusters.remove(cluster);
    } else {
        owned.clusters.insert(cluster.clone(), rules.into());
    }
    Ok(())
}

/// A record of one rule that does not exist yet.
#[cfg(test)]
pub(crate) fn intent_for_tests(cluster: &ClusterName, rule: &str) -> Owned {
    let intent = drs::OwnedRule::intent(drs::RuleSort::Apart, "digest".to_owned());
    let rules = drs::Rules::from([(rule.to_owned(), intent.into())]);
    Owned { clusters: BTreeMap::from([(cluster.clone(), rules.into())]) }
}
