//! Changes of Kubernetes and vSphere as people read them: one wording for the log, the dry run and the audit log.
//!
//! In: what a controller changed, could not change, or would change. Out: a line in the log, and the same for a sink.
//!
//! Invariants: names instead of ids where a name is known; a cause only if it was observed; a line has a bounded length.
//! What did not happen is reported once per object until it changes: a retry is not news. A rule or group is identified
//! by its cluster too, because a workload has rules of one name in every vSphere cluster that it runs in.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drs::{ChangeKind, ClusterKey, GroupChange, RuleChange, RuleType, VmRef};
use model::event::GroupKind;
use serde::Serialize;

use crate::ports::{ChangeSink, LabelChanges};

/// How many names a line shows; the rest is only counted.
const NAMES_SHOWN: usize = 6;
/// How many objects are remembered whose change did not happen. At the limit all are forgotten, and may be reported
/// again, which does no harm.
const REMEMBERED_MAX: usize = 50_000;

/// The kind of a node.
pub const NODE: &str = "node";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Side {
    Kubernetes,
    Vsphere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeAction {
    Create,
    Edit,
    Delete,
    /// Set labels of a node.
    Label,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeResult {
    Done,
    /// With the error.
    Refused(String),
    DryRun,
}

/// The vSphere cluster of a rule or group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedCluster {
    pub key: ClusterKey,
    pub name: String,
    /// The vCenter's name. Two of them may have clusters of one name.
    pub vcenter: String,
}

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeReport {
    pub side: Side,
    /// The kind of the object, for people.
    pub kind: &'static str,
    pub name: String,
    /// Of a rule or group.
    pub cluster: Option<ReportedCluster>,
    pub action: ChangeAction,
    /// VMs or hosts by name, of an edited rule with + and - for added and removed ones; or labels.
    pub members: Vec<String>,
    /// The pods that cause the change, as `namespace/name`.
    pub pods: Vec<String>,
    /// What happened before, if it was observed.
    pub cause: Option<String>,
    pub result: ChangeResult,
}

impl fmt::Display for ChangeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = verb(self.action);
        match &self.result {
            ChangeResult::Done => f.write_str(past(self.action))?,
            ChangeResult::DryRun => write!(f, "would {verb}")?,
            ChangeResult::Refused(_) => write!(f, "could not {verb}")?,
        }
        write!(f, " {} {}", self.kind, self.name)?;
        if let Some(ReportedCluster { name, vcenter, .. }) = &self.cluster {
            write!(f, " in cluster {name} of {vcenter}")?;
        }
        if !self.members.is_empty() {
            write!(f, ": {}", names(&self.members))?;
        }
        if !self.pods.is_empty() {
            write!(f, "; for {}", names(&self.pods))?;
        }
        if let Some(cause) = &self.cause {
            write!(f, "; because {cause}")?;
        }
        match &self.result {
            ChangeResult::Refused(error) => write!(f, "; error: {error}"),
            ChangeResult::Done | ChangeResult::DryRun => Ok(()),
        }
    }
}

impl ChangeReport {
    /// A change of a node's labels.
    #[must_use]
    pub fn of_labels(node: &str, changes: &LabelChanges, cause: Option<String>, result: ChangeResult) -> ChangeReport {
        let member = |(key, value): (&String, &Option<String>)| match value {
            Some(value) => format!("{key}={value}"),
            None => format!("{key}-"),
        };
        ChangeReport {
            side: Side::Kubernetes,
            kind: NODE,
            name: node.to_owned(),
            cluster: None,
            action: ChangeAction::Label,
            members: changes.iter().map(member).collect(),
            pods: Vec::new(),
            cause,
            result,
        }
    }

    /// A change of a rule, then those of its groups. `vm_name`: the name of the VM with an id, if it is known.
    pub fn of_rule(
        change: &RuleChange,
        cluster: &ReportedCluster,
        cause: Option<&String>,
        vm_name: impl Fn(&str) -> Option<String>,
    ) -> Vec<ChangeReport> {
        // Tables, because a rule may have thousands of members, and the loop waits for this.
        let named = change.vms.iter().filter(|vm| !vm.name.is_empty());
        let of_change: HashMap<&str, &str> = named.map(|vm| (vm.id.as_str(), vm.name.as_str())).collect();
        let added: HashSet<&str> = match &change.kind {
            ChangeKind::Edit { added, .. } => added.iter().map(String::as_str).collect(),
            _ => HashSet::new(),
        };
        let name = |id: &String| match of_change.get(id.as_str()) {
            Some(name) => (*name).to_owned(),
            None => vm_name(id).unwrap_or_else(|| id.clone()),
        };
        let report = |kind, name: &str, action, members| ChangeReport {
            side: Side::Vsphere,
            kind,
            name: name.to_owned(),
            cluster: Some(cluster.clone()),
            action,
            members,
            pods: change.pods.iter().map(ToString::to_string).collect(),
            cause: cause.cloned(),
            result: ChangeResult::Done,
        };
        let mut reports = Vec::new();
        if change.kind != ChangeKind::DeleteGroups {
            let member = |vm: &VmRef| {
                let name = if vm.name.is_empty() { name(&vm.id) } else { vm.name.clone() };
                if added.contains(vm.id.as_str()) { format!("+{name}") } else { name }
            };
            let mut members: Vec<String> = change.vms.iter().map(member).collect();
            if let ChangeKind::Edit { removed, .. } = &change.kind {
                members.extend(removed.iter().map(|id| format!("-{}", name(id))));
            }
            reports.push(report(kind_of_rule(change), &change.rule, action(&change.kind), members));
        }
        for group in &change.groups {
            let (group, action) = match group {
                GroupChange::Add(group) => (group, ChangeAction::Create),
                GroupChange::Edit(group) => (group, ChangeAction::Edit),
                GroupChange::Remove { name } => {
                    let is_of_hosts = change.group_names.as_ref().is_some_and(|names| names.hosts == *name);
                    let kind = if is_of_hosts { "host group" } else { "VM group" };
                    reports.push(report(kind, name, ChangeAction::Delete, Vec::new()));
                    continue;
                }
            };
            let (kind, members) = match &group.kind {
                GroupKind::Vms(ids) => ("VM group", ids.iter().map(name).collect()),
                GroupKind::Hosts(_) => ("host group", change.hosts.clone()),
            };
            reports.push(report(kind, &group.name, action, members));
        }
        reports
    }

    #[must_use]
    pub fn with(&self, result: ChangeResult) -> ChangeReport {
        ChangeReport { result, ..self.clone() }
    }
}

fn kind_of_rule(change: &RuleChange) -> &'static str {
    match change.rule_type {
        RuleType::VmAntiAffinity => "VM-VM anti-affinity rule",
        RuleType::VmAffinity => "VM-VM affinity rule",
        RuleType::VmHost if change.mandatory => "VM-Host rule (must)",
        RuleType::VmHost => "VM-Host rule (should)",
    }
}

#[must_use]
pub fn action(kind: &ChangeKind) -> ChangeAction {
    match kind {
        ChangeKind::Create => ChangeAction::Create,
        ChangeKind::Edit { .. } => ChangeAction::Edit,
        ChangeKind::Delete { .. } | ChangeKind::DeleteGroups => ChangeAction::Delete,
    }
}

#[must_use]
pub fn verb(action: ChangeAction) -> &'static str {
    match action {
        ChangeAction::Create => "create",
        ChangeAction::Edit => "edit",
        ChangeAction::Delete => "delete",
        ChangeAction::Label => "label",
    }
}

fn past(action: ChangeAction) -> &'static str {
    match action {
        ChangeAction::Create => "created",
        ChangeAction::Edit => "edited",
        ChangeAction::Delete => "deleted",
        ChangeAction::Label => "labelled",
    }
}

/// The first names; the others are counted.
#[must_use]
pub fn names(all: &[String]) -> String {
    let shown = all.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// By side, kind, cluster and name of the object.
type Remembered = HashMap<(Side, &'static str, Option<ClusterKey>, String), ChangeReport>;

/// Reports changes to the log and to the sink. All clones share one state.
#[derive(Clone, Default)]
pub struct ChangeLog {
    sink: Option<Arc<dyn ChangeSink>>,
    /// The last report of each object whose change did not happen.
    remembered: Arc<Mutex<Remembered>>,
}

impl fmt::Debug for ChangeLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChangeLog")
    }
}

impl ChangeLog {
    #[must_use]
    pub fn new(sink: Option<Arc<dyn ChangeSink>>) -> ChangeLog {
        ChangeLog { sink, ..ChangeLog::default() }
    }

    pub fn report(&self, change: &ChangeReport) {
        if self.is_repeated(change) {
            return;
        }
        match change.result {
            ChangeResult::Done | ChangeResult::DryRun => tracing::info!("{change}"),
            ChangeResult::Refused(_) => tracing::warn!("{change}"),
        }
        if let Some(sink) = &self.sink {
            sink.put(change);
        }
    }

    /// There is nothing to change any more: the next change is news. `cluster`: of a rule or group.
    pub fn settled(&self, side: Side, kind: &'static str, cluster: Option<&ClusterKey>, name: &str) {
        let mut remembered = self.lock();
        if !remembered.is_empty() {
            remembered.remove(&(side, kind, cluster.cloned(), name.to_owned()));
        }
    }

    fn is_repeated(&self, change: &ChangeReport) -> bool {
        let cluster = change.cluster.as_ref().map(|cluster| &cluster.key);
        if change.result == ChangeResult::Done {
            self.settled(change.side, change.kind, cluster, &change.name);
            return false;
        }
        let mut remembered = self.lock();
        let key = (change.side, change.kind, cluster.cloned(), change.name.clone());
        // The cause contains times, and more pods with the same requirement change nothing.
        let change = ChangeReport { cause: None, pods: Vec::new(), ..change.clone() };
        if remembered.get(&key) == Some(&change) {
            return true;
        }
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(key, change);
        false
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use drs::{RecordedGroups, RulePod};
    use model::event::{GroupFacts, VcenterId};

    use super::*;

    fn cluster(vcenter: u16, id: &str) -> ReportedCluster {
        let key = ClusterKey::new(VcenterId(vcenter), id);
        ReportedCluster { key, name: "prod".to_owned(), vcenter: format!("vc-{vcenter}") }
    }

    fn vm(number: usize) -> VmRef {
        VmRef { id: format!("vm-{number}"), name: format!("node-{number}") }
    }

    fn change(rule_type: RuleType, kind: ChangeKind, vms: &[usize]) -> RuleChange {
        let change = RuleChange::new("bridger-1".to_owned(), rule_type, kind, vms.iter().copied().map(vm).collect());
        let pod = RulePod { namespace: "shop".into(), name: "web-0".into(), uid: "u".into() };
        RuleChange { pods: vec![pod], ..change }
    }

    /// The lines of a change whose removed members are known by name, except vm-9.
    fn lines(change: &RuleChange, cause: Option<&str>, result: &ChangeResult) -> Vec<String> {
        let name = |id: &str| (id != "vm-9").then(|| id.replace("vm", "old"));
        let reports = ChangeReport::of_rule(change, &cluster(0, "c1"), cause.map(str::to_owned).as_ref(), name);
        reports.iter().map(|report| report.with(result.clone()).to_string()).collect()
    }

    #[test]
    fn number_7_a_rule_is_described_by_names_pods_cause_and_result() {
        let created = change(RuleType::VmAntiAffinity, ChangeKind::Create, &[1, 2]);
        let cause = Some("pod shop/web-0 was bound to n2");
        for (result, expected) in [
            (ChangeResult::Done, "created "),
            (ChangeResult::DryRun, "would create "),
            (ChangeResult::Refused("no".to_owned()), "could not create "),
        ] {
            let what = "VM-VM anti-affinity rule bridger-1 in cluster prod of vc-0: node-1, node-2; for shop/web-0; \
                        because pod shop/web-0 was bound to n2";
            let error = if expected.starts_with("could") { "; error: no" } else { "" };
            assert_eq!(lines(&created, cause, &result), [format!("{expected}{what}{error}")]);
        }
        let text = |id: usize| format!("vm-{id}");
        let kind = ChangeKind::Edit { key: 1, uuid: None, added: vec![text(2)], removed: vec![text(3), text(9)] };
        let edited = change(RuleType::VmAffinity, kind, &[1, 2]);
        let expected = "edited VM-VM affinity rule bridger-1 in cluster prod of vc-0: node-1, +node-2, -old-3, -vm-9; \
                        for shop/web-0";
        assert_eq!(lines(&edited, None, &ChangeResult::Done), [expected]);
    }

    #[test]
    fn number_7_groups_have_lines_of_their_own() {
        let group = |name: &str, kind| GroupFacts { name: name.to_owned(), user_created: true, kind };
        let groups = vec![
            GroupChange::Add(group("bridger-1-vms", GroupKind::Vms(vec!["vm-1".to_owned()]))),
            GroupChange::Add(group("bridger-1-hosts", GroupKind::Hosts(vec!["host-7".to_owned()]))),
        ];
        let names = RecordedGroups { vms: "bridger-1-vms".to_owned(), hosts: "bridger-1-hosts".to_owned() };
        let created = change(RuleType::VmHost, ChangeKind::Create, &[1]);
        let (hosts, group_names) = (vec!["esx-1".to_owned()], Some(names));
        let created = RuleChange { groups, hosts, group_names, pods: Vec::new(), ..created };
        assert_eq!(
            lines(&created, None, &ChangeResult::Done),
            [
                "created VM-Host rule (should) bridger-1 in cluster prod of vc-0: node-1",
                "created VM group bridger-1-vms in cluster prod of vc-0: node-1",
                "created host group bridger-1-hosts in cluster prod of vc-0: esx-1",
            ]
        );
        let remove = |name: &str| GroupChange::Remove { name: name.to_owned() };
        let groups = vec![remove("bridger-1-vms"), remove("bridger-1-hosts")];
        let deleted = RuleChange { kind: ChangeKind::DeleteGroups, groups, ..created };
        assert_eq!(
            lines(&deleted, None, &ChangeResult::Done),
            [
                "deleted VM group bridger-1-vms in cluster prod of vc-0",
                "deleted host group bridger-1-hosts in cluster prod of vc-0",
            ]
        );
    }

    #[test]
    fn number_7_labels_are_described_and_long_lists_are_cut() {
        let labels = LabelChanges::from([("host".to_owned(), Some("esx-2".to_owned()))]);
        let cause = Some("VM node-1 moved from esx-1 to esx-2".to_owned());
        let report = ChangeReport::of_labels("n1", &labels, cause, ChangeResult::Done);
        assert_eq!(report.to_string(), "labelled node n1: host=esx-2; because VM node-1 moved from esx-1 to esx-2");
        let many: Vec<usize> = (0..1000).collect();
        let line = &lines(&change(RuleType::VmAntiAffinity, ChangeKind::Create, &many), None, &ChangeResult::Done)[0];
        assert!(line.contains("node-5 and 994 more; for") && line.len() < 200, "{line}");
    }

    #[derive(Default)]
    struct Sink(Mutex<Vec<ChangeReport>>);

    impl ChangeSink for Sink {
        fn put(&self, change: &ChangeReport) {
            self.0.lock().unwrap().push(change.clone());
        }
    }

    #[test]
    fn number_7_what_does_not_happen_is_reported_once_until_it_changes() {
        let sink = Arc::<Sink>::default();
        let log = ChangeLog::new(Some(sink.clone()));
        let labels = LabelChanges::from([("host".to_owned(), Some("esx-2".to_owned()))]);
        let refused = |why: &str| ChangeResult::Refused(why.to_owned());
        for (result, count) in [
            (refused("forbidden"), 1),
            (refused("forbidden"), 1),
            (refused("timeout"), 2),
            (ChangeResult::Done, 3),
            (ChangeResult::Done, 4),
            (refused("timeout"), 5),
            (ChangeResult::DryRun, 6),
            (ChangeResult::DryRun, 6),
        ] {
            log.report(&ChangeReport::of_labels("n1", &labels, None, result.clone()));
            assert_eq!(sink.0.lock().unwrap().len(), count, "{result:?}");
        }
    }

    #[test]
    fn number_7_rules_of_one_name_in_two_clusters_are_two_objects() {
        let sink = Arc::<Sink>::default();
        let log = ChangeLog::new(Some(sink.clone()));
        let created = change(RuleType::VmAntiAffinity, ChangeKind::Create, &[1, 2]);
        // Clusters of one vCenter, and clusters with the same id and name in two vCenters.
        let clusters = [cluster(0, "c1"), cluster(0, "c2"), cluster(1, "c1")];
        let report_all = |result: &ChangeResult| {
            for cluster in &clusters {
                let reports = ChangeReport::of_rule(&created, cluster, None, |_| None);
                reports.iter().for_each(|report| log.report(&report.with(result.clone())));
            }
            sink.0.lock().unwrap().len()
        };
        assert_eq!(report_all(&ChangeResult::DryRun), 3);
        assert_eq!(report_all(&ChangeResult::DryRun), 3, "the same plan");
        let refused = ChangeResult::Refused("no".to_owned());
        assert_eq!((report_all(&refused), report_all(&refused)), (6, 6));
        // Settled in one of them, it is news there alone.
        log.settled(Side::Vsphere, "VM-VM anti-affinity rule", Some(&clusters[1].key), "bridger-1");
        assert_eq!(report_all(&refused), 7);
        let last = sink.0.lock().unwrap().last().cloned().unwrap();
        assert_eq!(last.cluster.unwrap().key, clusters[1].key);
    }

    /// The loop waits for this. To search the members for each member took some seconds.
    #[test]
    fn number_7_a_rule_with_many_members_is_described_quickly() {
        let many: Vec<usize> = (0..20_000).collect();
        let ids: Vec<String> = many.iter().map(|number| vm(*number).id).collect();
        let group = GroupFacts { name: "g".to_owned(), user_created: true, kind: GroupKind::Vms(ids.clone()) };
        let kind = ChangeKind::Edit { key: 1, uuid: None, added: ids, removed: Vec::new() };
        let edited = RuleChange { groups: vec![GroupChange::Edit(group)], ..change(RuleType::VmHost, kind, &many) };
        let began = Instant::now();
        let reports = ChangeReport::of_rule(&edited, &cluster(0, "c1"), None, |_| None);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        let last = |report: &ChangeReport| report.members.last().cloned().unwrap();
        assert_eq!(reports.iter().map(last).collect::<Vec<_>>(), ["+node-19999", "node-19999"]);
    }
}
