//! A test site over time: planned, applied, changed.

use std::collections::BTreeSet;

use drs::{ChangeKind, DrsSettings, Plan, Record, UnixMillis, plan};
use model::event::*;

use super::*;

/// A test site with its record, settings and clock.
pub struct Story {
    pub site: Site,
    pub owned: Record,
    pub now: UnixMillis,
    pub settings: DrsSettings,
}

impl Story {
    pub fn new(site: Site) -> Story {
        Story { site, owned: Record::default(), now: UnixMillis(1_000_000), settings: DrsSettings::default() }
    }

    pub fn plan(&self) -> Plan {
        plan(&self.site.world(), &self.owned, self.now, &self.settings)
    }

    /// Plans and applies the plan.
    pub fn pass(&mut self) -> Plan {
        let plan = self.plan();
        self.owned = self.site.execute(&plan);
        plan
    }

    pub fn wait(&mut self, seconds: u64) {
        self.now.0 += seconds * 1000;
    }

    /// The members of Bridger's own rules in the first cluster, as VM numbers.
    pub fn rules(&self) -> BTreeSet<Vec<usize>> {
        let own = self.site.clusters[0].rules.iter().filter(|rule| rule.key < FOREIGN_KEYS);
        own.map(|rule| members(rule).iter().filter_map(|vm| vm.strip_prefix("vm-")?.parse().ok()).collect()).collect()
    }

    pub fn only_rule(&mut self) -> &mut RuleFacts {
        let rules = &mut self.site.clusters[0].rules;
        assert_eq!(rules.len(), 1, "{rules:?}");
        &mut rules[0]
    }
}

pub fn kinds(plan: &Plan) -> Vec<&'static str> {
    plan.actions()
        .map(|(_, action)| match action.kind {
            ChangeKind::Create => "create",
            ChangeKind::Edit { .. } => "edit",
            ChangeKind::Delete { .. } => "delete",
            ChangeKind::DeleteGroups => "delete groups",
        })
        .collect()
}

pub fn sets(sets: &[&[usize]]) -> BTreeSet<Vec<usize>> {
    sets.iter().map(|set| set.to_vec()).collect()
}

/// Replicas of one app on these nodes.
pub fn replicas(app: &str, nodes: &[usize]) -> Vec<PodFacts> {
    nodes.iter().enumerate().map(|(number, node)| lonely(app, number, *node)).collect()
}
