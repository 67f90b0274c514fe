//! What to create, edit and delete, and why: the same for the command line and the running service.
//!
//! In: the world, the record of what Bridger owns, the moment. Out: a [`Plan`]: per cluster the actions, findings, and
//! the record to write before the actions are carried out (new names as intents, and what is being waited for).
//!
//! Carrying out: write `record`, reconfigure each cluster, read back, then tell the record with [`Owned::created`] and
//! [`Owned::deleted`]. A plan made after that is empty.

use model::World;

use crate::cluster::ClusterPlanning;
use crate::finding::{Finding, PodRef};
use crate::graph::Graph;
use crate::places::Places;
use crate::record::{ClusterName, Owned, RuleSort, UnixMillis};
use crate::settings::DrsSettings;
use crate::wanted::wanted_in;

#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In the order of vCenters and ids; every cluster that is known.
    pub clusters: Vec<ClusterPlan>,
    pub findings: Vec<Finding>,
    /// The record as it shall be written first.
    pub record: Owned,
}

impl Plan {
    pub fn actions(&self) -> impl Iterator<Item = (&ClusterPlan, &Action)> {
        self.clusters.iter().flat_map(|cluster| cluster.actions.iter().map(move |action| (cluster, action)))
    }

    pub fn is_empty(&self) -> bool {
        self.actions().next().is_none()
    }
}

#[derive(Clone, Debug)]
pub struct ClusterPlan {
    pub cluster: ClusterName,
    /// For people.
    pub cluster_name: String,
    pub actions: Vec<Action>,
    pub(crate) left: Graph,
    pub(crate) vm_ids: Vec<String>,
}

impl ClusterPlan {
    /// The pairs of VMs, by id, that are wanted apart and that no enabled rule will keep apart; the findings say why.
    pub fn uncovered(&self) -> impl Iterator<Item = (&str, &str)> {
        self.left.edges().map(|(a, b)| (self.vm_ids[a].as_str(), self.vm_ids[b].as_str()))
    }

    pub fn uncovered_count(&self) -> usize {
        self.left.edge_count()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmRef {
    /// The id within its vCenter.
    pub id: String,
    pub name: String,
}

/// One rule to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    pub rule: String,
    pub sort: RuleSort,
    pub kind: ActionKind,
    /// All members the rule shall have; for a deletion those it has.
    pub vms: Vec<VmRef>,
    /// The pods that cause it, the first 50 of them; none for a deletion.
    pub pods: Vec<PodRef>,
    /// Names of the VMs that DRS will have to move, or as many others in their place.
    pub moves: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// What to do now.
pub fn plan(world: &World, owned: &Owned, now: UnixMillis, settings: &DrsSettings) -> Plan {
    let Some(uid) = world.kubernetes_uid() else {
        return Plan { findings: vec![Finding::NoIdentity], record: owned.clone(), ..Plan::default() };
    };
    let places = Places::of(world, owned);
    let wanted = wanted_in(world, &places, settings);
    let mut plan = Plan { clusters: Vec::new(), findings: wanted.findings.clone(), record: owned.clone() };
    let prefix = rule_prefix(&uid);
    let rolling = &wanted.rolling;
    for (number, wanted) in wanted.clusters.iter().enumerate() {
        let planning =
            ClusterPlanning { world, places: &places, number, wanted, rolling, now, settings, prefix: &prefix };
        if let Some(planned) = planning.plan(&mut plan.record, &mut plan.findings) {
            plan.clusters.push(planned);
        }
    }
    plan.record.clusters.retain(|_, rules| !rules.is_empty());
    plan
}

/// What the names of all rules for one Kubernetes cluster begin with.
pub fn rule_prefix(kubernetes_uid: &str) -> String {
    format!("bridger-{kubernetes_uid}-")
}
