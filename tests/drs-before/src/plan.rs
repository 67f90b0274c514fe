//! What to create, edit and delete, and why: the same for the command line and the running service.
//!
//! In: the world, the record of what Bridger owns, the moment. Out: a [`Plan`]: per cluster the actions, findings, and
//! the record to write before the actions are carried out (new names as intents, and what is being waited for).
//!
//! Carrying out: write `record`, reconfigure each cluster, read back, then tell the record with [`Owned::created`] and
//! [`Owned::deleted`]. A plan made after that is empty.

use model::World;
use model::event::{GroupFacts, GroupKind, RuleKind};
use serde::Serialize;

use crate::finding::{Finding, PodRef, named_cluster};
use crate::planner::Planner;
use crate::record::{ClusterName, Owned, OwnedGroups, RuleSort, UnixMillis};
use crate::settings::DrsSettings;

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// In the order of vCenters and ids; every cluster that is planned for.
    pub clusters: Vec<ClusterPlan>,
    pub findings: Vec<Finding>,
    /// The record as it shall be written first.
    #[serde(skip)]
    pub record: Owned,
    /// When a wait ends, and planning again may give something else though nothing changed.
    pub next_due: Option<UnixMillis>,
}

impl Plan {
    pub fn actions(&self) -> impl Iterator<Item = (&ClusterPlan, &Action)> {
        self.clusters.iter().flat_map(|cluster| cluster.actions.iter().map(move |action| (cluster, action)))
    }

    pub fn is_empty(&self) -> bool {
        self.actions().next().is_none()
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPlan {
    #[serde(serialize_with = "named_cluster")]
    pub cluster: ClusterName,
    /// For people.
    pub cluster_name: String,
    pub actions: Vec<Action>,
    /// The pairs of VMs, by id, that are wanted apart and that no enabled rule will keep apart; the findings say why.
    pub uncovered: Vec<(String, String)>,
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
pub struct Action {
    pub rule: String,
    pub sort: RuleSort,
    pub kind: ActionKind,
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
    #[serde(skip)]
    pub(crate) group_names: Option<OwnedGroups>,
}

impl Action {
    /// What the rule shall say once it is carried out.
    pub fn rule_kind(&self) -> RuleKind {
        let vms = self.vms.iter().map(|vm| vm.id.clone()).collect();
        match (self.sort, &self.group_names) {
            (RuleSort::Apart, _) => RuleKind::VmsApart(vms),
            (RuleSort::Together, _) => RuleKind::VmsTogether(vms),
            (RuleSort::OnHosts, names) => RuleKind::VmsOnHosts {
                vm_group: names.as_ref().map(|names| names.vms.clone()).unwrap_or_default(),
                affine_hosts: names.as_ref().map(|names| names.hosts.clone()),
                anti_affine_hosts: None,
            },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "action")]
pub enum ActionKind {
    Create,
    /// The rule as a whole is sent again, with its key and UUID.
    Edit {
        key: i32,
        uuid: Option<String>,
        /// Ids of VMs.
        added: Vec<String>,
        removed: Vec<String>,
    },
    Delete {
        key: i32,
        uuid: Option<String>,
    },
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

/// What to do now, from scratch; [`Planner`] gives the same with less work.
pub fn plan(world: &World, owned: &Owned, now: UnixMillis, settings: &DrsSettings) -> Plan {
    Planner::new(settings.clone()).plan(world, owned, now)
}

/// What the names of all rules for one Kubernetes cluster begin with.
pub fn rule_prefix(kubernetes_uid: &str) -> String {
    format!("bridger-{kubernetes_uid}-")
}
