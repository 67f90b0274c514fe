//! The plan for one cluster.
//!
//! In: what pods want there, the rules there are, the record. Out: actions, findings, the record as it shall be. Additions
//! are planned at once; what nothing wants any more waits for the grace first. Invariant: only rules that the record names
//! are in actions.

use std::collections::{BTreeMap, BTreeSet};

use model::World;
use model::event::{ClusterFacts, DrsBehavior, RuleFacts};

use crate::classify::{Classified, OwnRule, classify};
use crate::explain::pods_wanted_apart;
use crate::finding::{Finding, PodRef};
use crate::graph::Graph;
use crate::guard::Guard;
use crate::places::{ClusterPlaces, Places};
use crate::plan::{Action, ActionKind, ClusterPlan, VmRef};
use crate::record::{Owned, OwnedRule, RuleSort, UnixMillis, Unwanted};
use crate::settings::{DELETIONS_UNQUESTIONED, DrsSettings, ROLLOUT_GRACE_FACTOR};
use crate::wanted::{ClusterWanted, short_digest};

pub(crate) struct ClusterPlanning<'a> {
    pub(crate) world: &'a World,
    pub(crate) places: &'a Places,
    /// The cluster's place among them.
    pub(crate) number: usize,
    pub(crate) wanted: &'a ClusterWanted,
    /// Digests of the terms whose workloads are in the middle of a rollout.
    pub(crate) rolling: &'a BTreeSet<String>,
    pub(crate) now: UnixMillis,
    pub(crate) settings: &'a DrsSettings,
    pub(crate) prefix: &'a str,
}

impl<'a> ClusterPlanning<'a> {
    pub(crate) fn plan(&self, record: &mut Owned, findings: &mut Vec<Finding>) -> Option<ClusterPlan> {
        let places = &self.places.clusters[self.number];
        let facts = places.facts(self.world)?;
        let guard = Guard::of(self.world, places.id, self.settings);
        if guard.hosts == 0 {
            // Nothing is known of its hosts, so nothing can be said of its rules.
            return None;
        }
        let mut rules = record.clusters.remove(&places.name).unwrap_or_default();
        let mut classified = classify(facts, places, &rules, self.prefix);
        findings.append(&mut classified.findings);
        for (name, own) in &classified.own {
            if let Some(recorded) = rules.get_mut(*name).filter(|recorded| recorded.uuid.is_none()) {
                // Created, and the process ended before that was recorded.
                recorded.uuid.clone_from(&own.rule.uuid);
            }
        }
        let mut work = Work {
            planning: self,
            places,
            guard,
            taken: facts.rules.iter().map(|rule| rule.name.clone()).chain(rules.keys().cloned()).collect(),
            classified,
            rules,
            actions: Vec::new(),
            due: Vec::new(),
            finally_apart: BTreeMap::new(),
            rule_count: 0,
            findings,
        };
        work.plan_apart();
        work.plan_together();
        work.delete_due();
        work.report_cluster(facts);
        let (left, actions, rules) = (work.left(), work.actions, work.rules);
        record.clusters.insert(places.name.clone(), rules);
        Some(ClusterPlan {
            cluster: places.name.clone(),
            cluster_name: facts.name.clone(),
            actions,
            left,
            vm_ids: places.vms.iter().map(|vm| vm.id.clone()).collect(),
        })
    }
}

pub(crate) struct Work<'a> {
    pub(crate) planning: &'a ClusterPlanning<'a>,
    pub(crate) places: &'a ClusterPlaces,
    pub(crate) guard: Guard,
    pub(crate) classified: Classified<'a>,
    pub(crate) rules: BTreeMap<String, OwnedRule>,
    /// Names that may not be given to a new rule.
    taken: BTreeSet<String>,
    actions: Vec<Action>,
    /// Rules whose time has come.
    due: Vec<String>,
    /// The members of each enabled rule of Bridger's once the actions are carried out.
    pub(crate) finally_apart: BTreeMap<String, Vec<usize>>,
    pub(crate) rule_count: usize,
    pub(crate) findings: &'a mut Vec<Finding>,
}

/// What a rule shall become.
pub(crate) struct Target<'t> {
    pub(crate) members: &'t [usize],
    /// What goes must go at once.
    pub(crate) urgent: bool,
}

impl Work<'_> {
    pub(crate) fn report_disabled(&mut self, rule: &RuleFacts, members: &[usize]) {
        let (cluster, rule_name) = (self.places.name.clone(), rule.name.clone());
        let shared = |of: &[usize]| members.iter().filter(|member| of.contains(member)).count();
        let rival = self.classified.together.iter().find(|(_, of)| shared(of) > 1).map(|(name, _)| (*name).to_owned());
        self.findings.push(match rival {
            Some(rival) => Finding::DisabledByConflict { cluster, rule: rule_name, rival },
            None => Finding::DisabledByAdministrator { cluster, rule: rule_name },
        });
    }

    /// Notes since when a rule with these members is unwanted; one that has been so for long enough is due.
    pub(crate) fn wait(&mut self, name: &str, is_unwanted: bool, members: &[usize]) {
        let vms = members.iter().filter(|_| is_unwanted).map(|vm| self.places.vms[*vm].id.clone());
        let mut vms: Vec<String> = vms.collect();
        if is_unwanted && vms.is_empty() {
            // None of its members is a node any more.
            vms.push(String::new());
        }
        if self.note_unwanted(name, &vms) {
            self.due.push(name.to_owned());
        }
    }

    /// Notes since when these are unwanted, and tells whether that is long enough. Others begin a new wait.
    fn note_unwanted(&mut self, name: &str, vms: &[String]) -> bool {
        let (now, rolling) = (self.planning.now, self.planning.rolling);
        let Some(rule) = self.rules.get_mut(name) else { return false };
        if vms.is_empty() {
            rule.unwanted = None;
            return false;
        }
        let unwanted = match rule.unwanted.take() {
            Some(unwanted) if unwanted.vms == vms => unwanted,
            _ => Unwanted { since: now, vms: vms.to_vec() },
        };
        let factor = if rolling.contains(&rule.source) { ROLLOUT_GRACE_FACTOR } else { 1 };
        let is_past = now.is_past(unwanted.since, self.planning.settings.removal_grace.saturating_mul(factor));
        rule.unwanted = Some(unwanted);
        is_past
    }

    /// Brings a recorded rule to its target, now or later. Returns the members it will have after this pass.
    pub(crate) fn settle(
        &mut self,
        name: &str,
        target: &Target<'_>,
        pods: impl FnOnce(&Self) -> Vec<PodRef>,
    ) -> Option<Vec<usize>> {
        let sort = self.rules.get(name)?.sort;
        let is_wanted = target.members.len() > 1;
        let Some(OwnRule { rule, members, others }) = self.classified.own.get(name).cloned() else {
            if !is_wanted {
                self.rules.remove(name);
                return None;
            }
            if let Some(recorded) = self.rules.get_mut(name) {
                // It was there, so somebody deleted it.
                recorded.restored |= recorded.uuid.take().is_some();
                recorded.unwanted = None;
            }
            let pods = pods(self);
            self.act(name, sort, ActionKind::Create, target.members, pods);
            return Some(target.members.to_vec());
        };
        self.rule_count += 1;
        if !is_wanted {
            self.wait(name, true, &members);
            return Some(members);
        }
        let ids = |of: &[usize], without: &[usize]| -> Vec<String> {
            of.iter().filter(|vm| !without.contains(vm)).map(|vm| self.places.vms[*vm].id.clone()).collect()
        };
        let (added, mut removed) = (ids(target.members, &members), ids(&members, target.members));
        removed.extend(others);
        let is_past = self.note_unwanted(name, &removed);
        if added.is_empty() && (removed.is_empty() || !(target.urgent || is_past)) {
            return Some(members);
        }
        let kind = ActionKind::Edit { key: rule.key, uuid: rule.uuid.clone(), added, removed };
        if let Some(recorded) = self.rules.get_mut(name) {
            recorded.unwanted = None;
        }
        let pods = pods(self);
        self.act(name, sort, kind, target.members, pods);
        Some(target.members.to_vec())
    }

    /// Few at a time, and never most of them without being told to.
    fn delete_due(&mut self) {
        let settings = self.planning.settings;
        let owned = self.classified.own.len();
        let due = std::mem::take(&mut self.due);
        let too_many =
            due.len() > DELETIONS_UNQUESTIONED && due.len() as f64 > settings.deletion_share_max * owned as f64;
        if too_many && !settings.allow_mass_deletion {
            self.findings.push(Finding::DeletionsHeld { cluster: self.places.name.clone(), due: due.len(), owned });
            return;
        }
        for name in due.into_iter().take(settings.deletions_max) {
            let Some(OwnRule { rule, members, .. }) = self.classified.own.get(name.as_str()).cloned() else { continue };
            let Some(sort) = self.rules.get(&name).map(|rule| rule.sort) else { continue };
            let kind = ActionKind::Delete { key: rule.key, uuid: rule.uuid.clone() };
            self.act(&name, sort, kind, &members, Vec::new());
            self.finally_apart.remove(&name);
            self.rule_count = self.rule_count.saturating_sub(1);
        }
    }

    fn report_cluster(&mut self, facts: &ClusterFacts) {
        let cluster = || self.places.name.clone();
        let rules = self.rule_count;
        if rules > 0 && !facts.drs_enabled {
            self.findings.push(Finding::DrsOff { cluster: cluster(), rules });
        } else if rules > 0 && facts.drs_behavior != DrsBehavior::FullyAutomated {
            self.findings.push(Finding::DrsNotAutomatic { cluster: cluster(), rules });
        }
        if !(facts.ha.enabled && facts.ha.respects_vm_anti_affinity) {
            return;
        }
        let hosts_able = self.guard.hosts_able;
        for (rule, members) in self.finally_apart.iter().filter(|(_, members)| members.len() >= hosts_able.max(2)) {
            let (rule, members) = (rule.clone(), members.len());
            self.findings.push(Finding::HaMayNotRestart { cluster: cluster(), rule, members, hosts_able });
        }
    }

    /// What is wanted apart and no enabled rule will keep apart.
    fn left(&self) -> Graph {
        let mut left = self.planning.wanted.apart.clone();
        self.finally_apart.values().for_each(|members| left.remove_within(members));
        self.classified.apart.edges().for_each(|(a, b)| left.remove(a, b));
        left
    }

    /// The recorded rules of one sort, without those whose names somebody else took.
    pub(crate) fn names_of(&self, sort: RuleSort) -> Vec<String> {
        let ours = self.rules.iter().filter(|(name, _)| !self.classified.usurped.contains(name.as_str()));
        ours.filter(|(_, rule)| rule.sort == sort).map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn new_name(&mut self, sort: &str, source: &str) -> String {
        let prefix = self.planning.prefix;
        let mut number = 0usize;
        loop {
            let name = format!("{prefix}{}", short_digest(&[sort, source, &number.to_string()]));
            if self.taken.insert(name.clone()) {
                return name;
            }
            number += 1;
        }
    }

    pub(crate) fn pods_apart(&self, members: &[usize]) -> Vec<PodRef> {
        pods_wanted_apart(self.planning.world, self.planning.wanted, members)
    }

    pub(crate) fn act(&mut self, name: &str, sort: RuleSort, kind: ActionKind, members: &[usize], pods: Vec<PodRef>) {
        let vm = |vm: &usize| VmRef { id: self.places.vms[*vm].id.clone(), name: self.places.vms[*vm].name.clone() };
        let moves = if matches!(kind, ActionKind::Delete { .. }) { Vec::new() } else { self.moves(sort, members) };
        let vms = members.iter().map(vm).collect();
        self.actions.push(Action { rule: name.to_owned(), sort, kind, vms, pods, moves });
    }

    /// The VMs that are where the rule does not allow them.
    pub(crate) fn moves(&self, sort: RuleSort, members: &[usize]) -> Vec<String> {
        let mut by_host: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for &member in members {
            if let Some(host) = self.places.vms[member].host {
                by_host.entry(host).or_default().push(member);
            }
        }
        let name = |vm: &usize| self.places.vms[*vm].name.clone();
        let mut moves: Vec<String> = match sort {
            RuleSort::Apart => by_host.values().flat_map(|vms| &vms[1..]).map(name).collect(),
            RuleSort::Together => {
                // The host with most of them stays.
                let stay = by_host.values().max_by_key(|vms| (vms.len(), usize::MAX - vms[0])).cloned();
                let stay = stay.unwrap_or_default();
                by_host.values().flatten().filter(|vm| !stay.contains(vm)).map(name).collect()
            }
        };
        moves.sort_unstable();
        moves
    }
}
