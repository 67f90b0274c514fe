//! What to create, edit and delete, and why: the same for the command line and the running service.
//!
//! In: a cluster's part of the world, the rules recorded for it, settings, the moment. Out: a [`ClusterPlan`]: changes, findings, and the
//! record to write before the changes are made (new names as intents, and what is being waited for).
//!
//! - `cluster`: the plan for one cluster. `report`: what people should know beside the changes. `ownership`: taking rules in, taking all
//!   away.
//!
//! Carrying out: write the record, reconfigure the cluster, read back, then note in the record what was created and deleted
//! ([`Record::created`], [`Record::deleted`]). A plan made after that is empty.

mod cluster;
mod ownership;
mod report;

use std::sync::Arc;

use model::World;
use model::event::{GroupFacts, GroupKind, RuleKind};
use serde::Serialize;

pub use self::cluster::plan_cluster;
pub use self::ownership::{Adopted, adopt, cleanup, restore};
use crate::finding::{Finding, PodRef};
use crate::input::{ClusterKey, ClusterView, Surroundings};
use crate::record::{Record, RecordedGroups, RuleType, Rules, UnixMillis};
use crate::settings::DrsSettings;

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// In the order of vCenters and ids; every cluster that is planned for.
    pub clusters: Vec<ClusterPlan>,
    pub findings: Vec<Finding>,
    /// The record as it shall be written first.
    #[serde(skip)]
    pub record: Record,
    /// When a wait ends, and planning again may give something else though nothing changed.
    pub next_due: Option<UnixMillis>,
}

impl Plan {
    pub fn actions(&self) -> impl Iterator<Item = (&ClusterPlan, &Change)> {
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
    /// For people.
    pub cluster_name: String,
    pub actions: Vec<Change>,
    /// The pairs of VMs, by id, that pods require apart and that no enabled rule will keep apart; the findings say why.
    pub uncovered: Vec<(String, String)>,
    /// Rules that are to be deleted, and not in this pass: too many at once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub postponed: Vec<String>,
    #[serde(skip)]
    pub findings: Vec<Finding>,
    /// The record as it shall be written first.
    #[serde(skip)]
    pub rules: Arc<Rules>,
    /// When a wait ends, and planning again may give something else though nothing changed.
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

/// One rule to be changed, with the groups that belong to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    pub rule: String,
    #[serde(rename = "sort")]
    pub rule_type: RuleType,
    pub kind: ChangeKind,
    /// All members the rule shall have; for a deletion those it has.
    pub vms: Vec<VmRef>,
    /// The names of the hosts it binds them to; none for other sorts.
    pub hosts: Vec<String>,
    /// The VMs may run nowhere else.
    pub mandatory: bool,
    /// What must be done to groups along with the rule, and in the same call.
    pub groups: Vec<GroupChange>,
    /// The pods that cause it, the first 50 of them; none for a deletion.
    pub pods: Vec<PodRef>,
    /// Names of the VMs that DRS will have to move, or as many others in their place.
    pub moves: Vec<String>,
    /// The groups of a rule that binds VMs to hosts.
    #[serde(skip)]
    pub group_names: Option<RecordedGroups>,
}

impl Change {
    /// Without groups and reasons.
    pub fn new(rule: String, rule_type: RuleType, kind: ChangeKind, vms: Vec<VmRef>) -> Self {
        let (hosts, groups, pods, moves) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { rule, rule_type, kind, vms, hosts, mandatory: false, groups, pods, moves, group_names: None }
    }

    /// Whether both ask the same of a vCenter, for whatever reasons.
    pub fn is_same_write(&self, other: &Self) -> bool {
        let same_vms = || self.vms.iter().map(|vm| &vm.id).eq(other.vms.iter().map(|vm| &vm.id));
        (&self.rule, &self.kind, self.rule_type, self.mandatory)
            == (&other.rule, &other.kind, other.rule_type, other.mandatory)
            && (&self.groups, &self.group_names) == (&other.groups, &other.group_names)
            && same_vms()
    }

    /// What the rule shall say once it is carried out.
    pub fn rule_kind(&self) -> RuleKind {
        let vms = self.vms.iter().map(|vm| vm.id.clone()).collect();
        match (self.rule_type, &self.group_names) {
            (RuleType::VmAntiAffinity, _) => RuleKind::VmsApart(vms),
            (RuleType::VmAffinity, _) => RuleKind::VmsTogether(vms),
            (RuleType::VmHost, names) => RuleKind::VmsOnHosts {
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
    /// The rule as a whole is sent again, with its key and UUID; the ids of VMs tell what is new in it.
    Edit { key: i32, uuid: Option<String>, added: Vec<String>, removed: Vec<String> },
    /// The rule, and its groups with it.
    Delete { key: i32, uuid: Option<String> },
    /// The rule itself is gone already; what is left of it goes too.
    DeleteGroups,
}

/// A group to be changed; groups come and go with their rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum GroupChange {
    Add(#[serde(serialize_with = "GroupText::serialize")] GroupFacts),
    Edit(#[serde(serialize_with = "GroupText::serialize")] GroupFacts),
    Remove { name: String },
}

/// How a plan shows a group.
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

/// What to do in all clusters now.
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
        Some((ClusterView::of(world, id, &rules, &surroundings, settings)?, rules))
    });
    let mut clusters: Vec<(ClusterView, Arc<Rules>)> = clusters.collect();
    clusters.sort_by(|(a, _), (b, _)| a.key.cmp(&b.key));
    let plans = clusters.iter().filter_map(|(view, rules)| plan_cluster(view, rules, settings, now));
    plan.take(plans.collect(), &surroundings);
    plan
}

impl Plan {
    /// The plans of clusters as one.
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

/// What the names of all rules for one Kubernetes cluster begin with.
pub fn rule_prefix(kubernetes_uid: &str) -> String {
    format!("bridger-{kubernetes_uid}-")
}
