//! The pure planner of `drs`, in the terms the writer works with.
//!
//! In: the world, the record, the moment. Out: for each cluster the units of work, each a rule with all changes that must
//! go through together; the record to be written first; findings; when to look again though nothing happened.
//!
//! All that the engine knows of the planner's types is in this file.

use std::collections::BTreeMap;
use std::time::Duration;

use drs::record::ClusterName;
use drs::{ActionKind, DrsSettings, Finding, Owned, OwnedRule, PodRef, RuleSort, UnixMillis, Unwanted};
use model::event::{ClusterFacts, RuleKind};
use model::{Touched, World};
use serde::{Deserialize, Serialize};

use crate::ports::{RuleChange, RuleSpec};

/// How long rules of a workload in the middle of a rollout stay, in graces.
const ROLLOUT_GRACES: u32 = 4;

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
pub struct Planner {
    settings: DrsSettings,
}

impl Planner {
    #[must_use]
    pub fn new(settings: DrsSettings) -> Self {
        Self { settings }
    }

    /// Takes note of what changed since the last plan.
    pub fn observe(&mut self, _touched: &Touched) {}

    pub fn plan(&mut self, world: &World, owned: &Owned, now: UnixMillis) -> Planned {
        let plan = drs::plan(world, owned, now, &self.settings);
        let facts = facts_by_name(world);
        let mut clusters = BTreeMap::new();
        for planned in &plan.clusters {
            let Some(facts) = facts.get(&planned.cluster) else { continue };
            let units = planned.actions.iter().map(|action| unit(action, facts)).collect();
            clusters.insert(planned.cluster.clone(), units);
        }
        let next_due = next_due(&plan.record, now, &self.settings);
        Planned { clusters, findings: plan.findings, record: plan.record, next_due }
    }
}

fn facts_by_name(world: &World) -> BTreeMap<ClusterName, &ClusterFacts> {
    let facts = world.cluster_ids().filter_map(|id| world.cluster(id));
    facts.map(|(vcenter, facts)| ((vcenter, facts.id.clone()), facts)).collect()
}

fn unit(action: &drs::Action, facts: &ClusterFacts) -> Unit {
    let vms: Vec<String> = action.vms.iter().map(|vm| vm.id.clone()).collect();
    let kind = match action.sort {
        RuleSort::Apart => RuleKind::VmsApart(vms),
        RuleSort::Together => RuleKind::VmsTogether(vms),
    };
    let spec = |enabled| RuleSpec { name: action.rule.clone(), enabled, mandatory: false, kind };
    let (verb, change) = match &action.kind {
        ActionKind::Create => (Verb::Create, RuleChange::AddRule(spec(true))),
        ActionKind::Edit { key, uuid, .. } => {
            // Somebody may have disabled it: that is not ours to undo.
            let enabled = facts.rules.iter().find(|rule| rule.key == *key).is_none_or(|rule| rule.enabled);
            (Verb::Edit, RuleChange::EditRule { key: *key, uuid: uuid.clone(), rule: spec(enabled) })
        }
        ActionKind::Delete { key, .. } => (Verb::Delete, RuleChange::RemoveRule { key: *key }),
    };
    Unit { rule: action.rule.clone(), verb, changes: vec![change] }
}

fn next_due(record: &Owned, now: UnixMillis, settings: &DrsSettings) -> Option<UnixMillis> {
    let after = |since: UnixMillis, wait: Duration| {
        UnixMillis(since.0.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
    };
    let rules = record.clusters.values().flat_map(BTreeMap::values);
    let moments = rules.flat_map(|rule| {
        let unwanted = rule.unwanted.as_ref().map(|unwanted| unwanted.since);
        let grace = settings.removal_grace;
        [
            unwanted.map(|since| after(since, grace)),
            unwanted.map(|since| after(since, grace.saturating_mul(ROLLOUT_GRACES))),
            rule.outnumbered_since.map(|since| after(since, settings.shrink_hold)),
        ]
    });
    moments.flatten().filter(|moment| *moment > now).min()
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

/// One word for a finding, for metrics.
pub fn finding_name(finding: &Finding) -> &'static str {
    match finding {
        Finding::NoIdentity => "NoIdentity",
        Finding::Unsatisfiable { .. } => "Unsatisfiable",
        Finding::Conflict { .. } => "Conflict",
        Finding::SameVm { .. } => "SameVm",
        Finding::UnknownVm { .. } => "UnknownVm",
        Finding::DrsOff { .. } => "DrsOff",
        Finding::DrsNotAutomatic { .. } => "DrsNotAutomatic",
        Finding::HaMayNotRestart { .. } => "HaMayNotRestart",
        Finding::PreferredLeftOut { .. } => "PreferredLeftOut",
        Finding::DisabledByAdministrator { .. } => "DisabledByAdministrator",
        Finding::DisabledByConflict { .. } => "DisabledByConflict",
        Finding::DeletedByHand { .. } => "DeletedByHand",
        Finding::NotRecorded { .. } => "NotRecorded",
        Finding::RecordDisagrees { .. } => "RecordDisagrees",
        Finding::DeletionsHeld { .. } => "DeletionsHeld",
        Finding::RuleLimit { .. } => "RuleLimit",
        Finding::AffinityUnmet { .. } => "AffinityUnmet",
    }
}

/// The reason that events on pods carry; `None` for what is not told to pods.
pub fn finding_reason(finding: &Finding) -> Option<&'static str> {
    (!finding_pods(finding).is_empty()).then(|| finding_name(finding))
}

/// What is told to a pod that the finding is about.
pub fn finding_message(finding: &Finding) -> String {
    finding.to_string()
}

/// The pods whose policy cannot be met.
pub fn finding_pods(finding: &Finding) -> Vec<&PodRef> {
    match finding {
        Finding::Unsatisfiable { pods, .. } | Finding::Conflict { pods, .. } => pods.iter().collect(),
        Finding::SameVm { pods: (a, b), .. } => vec![a, b],
        Finding::AffinityUnmet { pod, .. } => vec![pod],
        _ => Vec::new(),
    }
}

#[derive(Serialize, Deserialize)]
struct Text {
    version: u32,
    rules: BTreeMap<String, RuleText>,
}

#[derive(Serialize, Deserialize)]
struct RuleText {
    sort: String,
    source: String,
    uuid: Option<String>,
    unwanted: Option<(u64, Vec<String>)>,
    outnumbered_since: Option<u64>,
    restored: bool,
}

/// What is recorded for a cluster, as it is kept.
pub fn to_text(owned: &Owned, cluster: &ClusterName) -> String {
    let rules = owned.clusters.get(cluster).into_iter().flatten().map(|(name, rule)| {
        let text = RuleText {
            sort: match rule.sort {
                RuleSort::Apart => "apart".to_owned(),
                RuleSort::Together => "together".to_owned(),
            },
            source: rule.source.clone(),
            uuid: rule.uuid.clone(),
            unwanted: rule.unwanted.as_ref().map(|unwanted| (unwanted.since.0, unwanted.vms.clone())),
            outnumbered_since: rule.outnumbered_since.map(|since| since.0),
            restored: rule.restored,
        };
        (name.clone(), text)
    });
    // A map with string keys of plain values always has a form in JSON.
    serde_json::to_string(&Text { version: 1, rules: rules.collect() }).unwrap_or_default()
}

/// Reads a text into the record.
pub fn from_text(owned: &mut Owned, cluster: &ClusterName, text: &str) -> Result<(), String> {
    let text: Text = serde_json::from_str(text)
        .map_err(|error| format!("the record can't be read (line {}, column {})", error.line(), error.column()))?;
    if text.version != 1 {
        return Err(format!("the record is of version {}, this program knows version 1", text.version));
    }
    let mut rules = BTreeMap::new();
    for (name, rule) in text.rules {
        let sort = match rule.sort.as_str() {
            "apart" => RuleSort::Apart,
            "together" => RuleSort::Together,
            other => return Err(format!("the record has a rule of the sort {other:?}")),
        };
        let unwanted = rule.unwanted.map(|(since, vms)| Unwanted { since: UnixMillis(since), vms });
        let outnumbered_since = rule.outnumbered_since.map(UnixMillis);
        let kept = OwnedRule {
            sort,
            source: rule.source,
            uuid: rule.uuid,
            unwanted,
            outnumbered_since,
            restored: rule.restored,
        };
        rules.insert(name, kept);
    }
    if rules.is_empty() {
        owned.clusters.remove(cluster);
    } else {
        owned.clusters.insert(cluster.clone(), rules);
    }
    Ok(())
}

/// A record of one rule that does not exist yet.
#[cfg(test)]
pub(crate) fn intent_for_tests(cluster: &ClusterName, rule: &str) -> Owned {
    let rules = BTreeMap::from([(rule.to_owned(), OwnedRule::intent(RuleSort::Apart, "digest".to_owned()))]);
    Owned { clusters: BTreeMap::from([(cluster.clone(), rules)]) }
}
