//! What the changes of a plan are reported as, in the log and the audit log.
//!
//! In: planned changes, what became of them, and what was observed before. Out: reports. Invariants: in a dry run each
//! change is reported once as long as it is planned; what vCenter has applied is reported when its response arrives, so
//! that it has a line even if the process stops before the pass ends.

use std::collections::BTreeMap;

use drs::{ClusterKey, RuleChange};
use model::World;

use super::causes::CauseScope;
use super::controller::DrsRules;
use super::planner::PlannedCluster;
use crate::changes::{ChangeLog, ChangeReport, ChangeResult, ReportedCluster};

impl DrsRules {
    /// What each change of a plan is reported as, by rule.
    pub(super) fn change_reports(
        &self,
        name: &ClusterKey,
        planned: &PlannedCluster,
        world: &World,
    ) -> BTreeMap<String, Vec<ChangeReport>> {
        if planned.changes.is_empty() {
            return BTreeMap::new();
        }
        let (vcenter, now) = (name.vcenter, self.wall_clock_now());
        let cluster = ReportedCluster {
            key: name.clone(),
            name: planned.planned_from.name.clone(),
            vcenter: self.settings.vcenters.get(&vcenter).cloned().unwrap_or_default(),
        };
        let added = &self.causes.added_vms(world, vcenter);
        let vm_name = |id: &str| Some(world.vm(world.vm_id(vcenter, id)?)?.1.name.clone());
        let reports = |change: &RuleChange| {
            let recorded = planned.recorded.get(&change.rule).map(|recorded| &**recorded);
            let cause = self.causes.of(change, &CauseScope { world, cluster: name, added, recorded, now });
            ChangeReport::of_rule(change, &cluster, cause.as_ref(), vm_name)
        };
        planned.changes.iter().map(|change| (change.rule.clone(), reports(change))).collect()
    }

    /// Reports what would be changed, each change once as long as it is planned.
    pub(super) fn report_planned(
        &mut self,
        name: &ClusterKey,
        reports: BTreeMap<String, Vec<ChangeReport>>,
        changes: &ChangeLog,
    ) {
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        for report in reports.values().flatten() {
            changes.report(&report.with(ChangeResult::DryRun));
        }
        let before = std::mem::replace(&mut cluster.reports, reports);
        let is_over = |rule: &String| !cluster.reports.contains_key(rule);
        for report in before.iter().filter(|(rule, _)| is_over(rule)).flat_map(|(_, reports)| reports) {
            changes.settled(report.side, report.kind, Some(name), &report.name);
        }
    }
}

/// Reports what became of each change.
pub(super) fn report(
    reports: &BTreeMap<String, Vec<ChangeReport>>,
    results: &[(&RuleChange, Result<(), String>)],
    changes: &ChangeLog,
) {
    for (change, result) in results {
        for report in reports.get(&change.rule).into_iter().flatten() {
            let result = result.clone().map_or_else(ChangeResult::Refused, |()| ChangeResult::Done);
            changes.report(&report.with(result));
        }
    }
}
