//! What to create, edit and delete, and why: the same for the command line and the running service.
//!
//! In: a cluster's part of the world, the rules recorded for it, settings, the time. Out: a [`ClusterPlan`]: changes,
//! findings, and the record to write before the changes are made (new names as intents, and started waits).
//!
//! - `cluster`: the plan for one cluster. `report`: findings besides the changes. `ownership`: adopting rules, and
//!   deleting all owned rules.
//!
//! To apply a plan: write the record, reconfigure the cluster, read back, then record what was created and deleted
//! ([`Record::created`], [`Record::deleted`]). A plan computed after that is empty.

mod cluster;
mod ownership;
mod report;

use std::sync::Arc;

use model::World;
use model::event::{GroupFacts, GroupKind, RuleKind};
use serde::Serialize;

pub use self::cluster::plan_cluster;
pub use self::ownership::{Adopted, adopt, cleanup, restore};
use crate::finding::{Finding, RulePod};
use crate::input::{ClusterKey, ClusterView, PlanScope, Surroundings};
use crate::record::{Record, RecordedGroups, RecordedRules, RuleType, UnixMillis};
use crate::settings::DrsSettings;

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Every planned cluster, sorted by vCenter and id.
    pub clusters: Vec<ClusterPlan>,
    pub findings: Vec<Finding>,
    /// The record to write first.
    #[serde(skip)]
    pub record: Record,
    /// When a wait ends, so that planning again may give another result although nothing changed.
    pub next_due: Option<UnixMillis>,
}

impl Plan {
    pub fn actions(&self) -> impl Iterator<Item = (&ClusterPlan, &RuleChange)> {
        self.clusters.iter().flat_map(|cluster| cluster.actions.iter().map(move |action| (cluster, action)))
    }

    pub fn is_empty(&self) -> bool {
        self.actions().next().is_none()
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPlan {
    pub cluster: ClusterKey,
    /// The name shown to users.
    pub cluster_name: String,
    pub actions: Vec<RuleChange>,
    /// The pairs of VMs, by id, that pods require on different hosts and that no enabled rule will separate; the
    /// findings say why.
    pub uncovered: Vec<(String, String)>,
    /// Rules to delete in a later pass, because there are too many for this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub postponed: Vec<String>,
    #[serde(skip)]
    pub findings: Vec<Finding>,
    /// The record to write first.
    #[serde(skip)]
    pub rules: Arc<RecordedRules>,
    /// When a wait ends, so that planning again may give another result although nothing changed.
    #[serde(skip)]
    pub next_due: Option<UnixMillis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VmRef {
    /// The id within its vCenter.
    pub id: String,
    pub name: String,
}

/// A change of one rule, with the groups that belong to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleChange {
    pub rule: String,
    #[serde(rename = "sort")]
    pub rule_type: RuleType,
    pub kind: ChangeKind,
    /// All desired members; for a deletion, the current members.
    pub vms: Vec<VmRef>,
    /// The names of the hosts of a VM-Host rule; empty for other types.
    pub hosts: Vec<String>,
    /// The VMs may not run on other hosts.
    pub mandatory: bool,
    /// Group changes that must be made together with the rule, in the same call.
    pub groups: Vec<GroupChange>,
    /// The first 50 pods that cause the change; empty for a deletion.
    pub pods: Vec<RulePod>,
    /// The names of the VMs that DRS must move; it may move the same number of other VMs instead.
    pub moves: Vec<String>,
    /// The groups of a VM-Host rule.
    #[serde(skip)]
    pub group_names: Option<RecordedGroups>,
}

impl RuleChange {
    /// A change without groups and causes.
    pub fn new(rule: String, rule_type: RuleType, kind: ChangeKind, vms: Vec<VmRef>) -> Self {
        let (hosts, groups, pods, moves) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { rule, rule_type, kind, vms, hosts, mandatory: false, groups, pods, moves, group_names: None }
    }

    /// Whether both changes make the same vCenter call, regardless of their causes.
    pub fn is_same_write(&self, other: &Self) -> bool {
        let same_vms = || self.vms.iter().map(|vm| &vm.id).eq(other.vms.iter().map(|vm| &vm.id));
        (&self.rule, &self.kind, self.rule_type, self.mandatory)
            == (&other.rule, &other.kind, other.rule_type, other.mandatory)
            && (&self.groups, &self.group_names) == (&other.groups, &other.group_names)
            && same_vms()
    }

    /// The content of the rule after the change.
    pub fn rule_kind(&self) -> RuleKind {
        let vms = self.vms.iter().map(|vm| vm.id.clone()).collect();
        match (self.rule_type, &self.group_names) {
            (RuleType::VmAntiAffinity, _) => RuleKind::VmAntiAffinity(vms),
            (RuleType::VmAffinity, _) => RuleKind::VmAffinity(vms),
            (RuleType::VmHost, names) => RuleKind::VmHost {
                vm_group: names.as_ref().map(|names| names.vms.clone()).unwrap_or_default(),
                affine_hosts: names.as_ref().map(|names| names.hosts.clone()),
                anti_affine_hosts: None,
            },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "action")]
pub enum ChangeKind {
    /// A new rule.
    Create,
    /// Sends the whole rule again, with its key and UUID; `added` and `removed` are the ids of the changed members.
    Edit { key: i32, uuid: Option<String>, added: Vec<String>, removed: Vec<String> },
    /// Deletes the rule and its groups.
    Delete { key: i32, uuid: Option<String> },
    /// The rule itself is already deleted; deletes its remaining groups.
    DeleteGroups,
}

/// A change of a group; groups are created and deleted with their rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum GroupChange {
    Add(#[serde(serialize_with = "GroupText::serialize")] GroupFacts),
    Edit(#[serde(serialize_with = "GroupText::serialize")] GroupFacts),
    Remove { name: String },
}

/// The serialized form of a group in a plan.
#[derive(Serialize)]
#[serde(remote = "GroupFacts", rename_all = "camelCase")]
struct GroupText {
    name: String,
    user_created: bool,
    #[serde(serialize_with = "MembersText::serialize")]
    kind: GroupKind,
}

#[derive(Serialize)]
#[serde(remote = "GroupKind", rename_all = "camelCase")]
enum MembersText {
    Vms(Vec<String>),
    Hosts(Vec<String>),
}

/// Plans all clusters.
#[must_use]
pub fn plan(world: &World, record: &Record, now: UnixMillis, settings: &DrsSettings) -> Plan {
    let mut plan = Plan { record: record.clone(), ..Plan::default() };
    let Some(surroundings) = Surroundings::of(world, record, settings) else {
        plan.findings.push(Finding::NoIdentity);
        return plan;
    };
    let clusters = world.cluster_ids().filter_map(|id| {
        let (vcenter, facts) = world.cluster(id)?;
        let rules = record.rules(&ClusterKey::new(vcenter, facts.id.clone()));
        Some((
            ClusterView::of(world, PlanScope { cluster: id, rules: &rules, surroundings: &surroundings, settings })?,
            rules,
        ))
    });
    let mut clusters: Vec<(ClusterView, Arc<RecordedRules>)> = clusters.collect();
    clusters.sort_by(|(a, _), (b, _)| a.key.cmp(&b.key));
    let plans = clusters.iter().filter_map(|(view, rules)| plan_cluster(view, rules, settings, now));
    plan.take(plans.collect(), &surroundings);
    plan
}

impl Plan {
    /// Merges the plans of clusters into this plan.
    pub fn take(&mut self, clusters: Vec<ClusterPlan>, surroundings: &Surroundings) {
        self.findings.extend(surroundings.findings.iter().cloned());
        for cluster in &clusters {
            self.findings.extend(cluster.findings.iter().cloned());
            self.next_due = self.next_due.into_iter().chain(cluster.next_due).min();
            self.record.set(&cluster.cluster, Arc::clone(&cluster.rules));
        }
        self.clusters = clusters;
    }
}

/// The prefix of the names of all rules for one Kubernetes cluster.
pub fn rule_prefix(kubernetes_uid: &str) -> String {
    format!("bridger-{kubernetes_uid}-")
}
