//! The plan for one cluster: a pure function of its part of the world, its record, settings and the time.
//!
//! Deletions are limited per pass, and most of the rules are never deleted at once unless that is allowed explicitly.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::event::{GroupFacts, GroupKind};

use super::report::{Report, open_pairs, rules_of_others};
use super::{ChangeKind, ClusterPlan, GroupChange, RuleChange, VmRef};
use crate::finding::{Finding, PODS_NAMED_MAX};
use crate::input::ClusterView;
use crate::input::digest::digest_text;
use crate::reconcile::affinity::pods_in_company;
use crate::reconcile::anti_affinity::pods_separated;
use crate::reconcile::observed::other_user;
use crate::reconcile::settle::Settling;
use crate::reconcile::vm_host::Bound;
use crate::reconcile::{DesiredRule, OwnRule, Reconciled};
use crate::record::{RecordedGroups, RecordedRule, RecordedRules, RuleType, UnixMillis};
use crate::settings::{DELETIONS_UNQUESTIONED, DrsSettings};

/// `None` while the cluster's hosts are unknown, so its rules cannot be planned. `rules` are those recorded for it.
#[must_use]
pub fn plan_cluster(
    view: &ClusterView,
    rules: &Arc<RecordedRules>,
    settings: &DrsSettings,
    now: UnixMillis,
) -> Option<ClusterPlan> {
    if view.hosts.is_empty() {
        return None;
    }
    let mut reconciled = Reconciled::of(view, rules, settings, now);
    let new = std::mem::take(&mut reconciled.new);
    let findings = view.findings.iter().cloned().chain(std::mem::take(&mut reconciled.findings)).collect();
    let record = Arc::clone(rules);
    let (changes, postponed) = (Vec::new(), Vec::new());
    let planning = Planning { reconciled: &reconciled, before: rules, record, changes, postponed, findings };
    Some(planning.plan(new))
}

struct Planning<'p, 'v> {
    reconciled: &'p Reconciled<'v>,
    before: &'p RecordedRules,
    /// The desired record: copied on the first change.
    record: Arc<RecordedRules>,
    changes: Vec<RuleChange>,
    postponed: Vec<String>,
    findings: Vec<Finding>,
}

impl Planning<'_, '_> {
    fn plan(mut self, new: Vec<DesiredRule>) -> ClusterPlan {
        let Reconciled { view, .. } = *self.reconciled;
        self.findings.extend(rules_of_others(self.reconciled, self.before));
        let (due, next_due) = self.change_own();
        let created = self.create(new);
        let deleted = self.delete(due);
        let of_type = |own: &&OwnRule<'_>| own.recorded.rule_type == RuleType::VmAntiAffinity;
        let kept = self.reconciled.own.iter().filter(|own| of_type(own) && !deleted.contains(own.name));
        let planned = kept.map(|own| (own.name.to_owned(), own.settled.becomes.clone())).chain(created).collect();
        let own_count = self.reconciled.owned_count() - deleted.len();
        let made = self.changes.iter().filter(|change| change.kind == ChangeKind::Create).count();
        let open = open_pairs(self.reconciled, &planned);
        let mut report = Report { reconciled: self.reconciled, open: &open, findings: &mut self.findings };
        report.left_out();
        report.uncertain();
        report.cluster(own_count + made, &planned);
        report.pairs();
        ClusterPlan {
            cluster: view.key.clone(),
            cluster_name: view.facts.name.clone(),
            actions: self.changes,
            uncovered: open.into_iter().map(|(a, b)| (view.vms[a].id.clone(), view.vms[b].id.clone())).collect(),
            postponed: self.postponed,
            findings: self.findings,
            rules: self.record,
            next_due,
        }
    }

    fn set(&mut self, name: &str, rule: Option<&Arc<RecordedRule>>) {
        let rules = Arc::make_mut(&mut self.record);
        match rule {
            Some(rule) => drop(rules.insert(name.to_owned(), Arc::clone(rule))),
            None => drop(rules.remove(name)),
        }
    }

    /// Plans the changes of recorded rules; returns the deletions that are due, and when to plan again.
    fn change_own(&mut self) -> (Vec<RuleChange>, Option<UnixMillis>) {
        let (mut due, mut next_due) = (Vec::new(), None);
        let reconciled = self.reconciled;
        for own in &reconciled.own {
            let settled = &own.settled;
            let mut record = settled.record.as_ref();
            self.findings.extend(settled.finding.clone());
            next_due = next_due.into_iter().chain(settled.next_due).min();
            let change = match (&settled.change, &own.observed) {
                (Some((kind, members)), _) => Some(self.change_of(own, kind.clone(), members)),
                (None, Some(rule)) if settled.due => {
                    let kind = ChangeKind::Delete { key: rule.facts.key, uuid: rule.facts.uuid.clone() };
                    Some(self.change_of(own, kind, &rule.members))
                }
                _ if record.is_none() && self.has_groups(own) => {
                    record = Some(own.recorded);
                    Some(self.change_of(own, ChangeKind::DeleteGroups, &[]))
                }
                _ => None,
            };
            match change.as_ref().and_then(|change| self.group_in_use(change)) {
                // The rule does not change, so its record stays unchanged too.
                Some(finding) => {
                    record = Some(own.recorded);
                    self.findings.push(finding);
                }
                None if settled.due => due.extend(change),
                None => self.changes.extend(change),
            }
            if record != Some(own.recorded) {
                self.set(own.name, record);
            }
        }
        (due, next_due)
    }

    /// Returns the anti-affinity rules among them, with their members.
    fn create(&mut self, new: Vec<DesiredRule>) -> Vec<(String, Vec<usize>)> {
        let mut created = Vec::new();
        for rule in new {
            let name = self.new_name(&rule);
            let mut intent = RecordedRule::intent(rule.rule_type, rule.source.clone());
            intent.groups = (rule.rule_type == RuleType::VmHost).then(|| RecordedGroups::of_rule(&name));
            if rule.rule_type == RuleType::VmAntiAffinity {
                created.push((name.clone(), rule.members.clone()));
            }
            self.changes.push(self.change(&name, &intent, ChangeKind::Create, rule));
            self.set(&name, Some(&Arc::new(intent)));
        }
        created
    }

    fn delete(&mut self, mut due: Vec<RuleChange>) -> BTreeSet<String> {
        let (Settling { settings, view, .. }, owned) = (self.reconciled.settling, self.reconciled.owned_count());
        let names = |of: &[RuleChange]| -> Vec<String> { of.iter().map(|change| change.rule.clone()).collect() };
        let is_too_many =
            due.len() > DELETIONS_UNQUESTIONED && due.len() as f64 > settings.deletion_share_max * owned as f64;
        if is_too_many && !settings.allow_mass_deletion {
            self.findings.push(Finding::DeletionsHeld { cluster: view.key.clone(), due: due.len(), owned });
            self.postponed = names(&due);
            return BTreeSet::new();
        }
        self.postponed = names(&due.split_off(settings.deletions_max.min(due.len())));
        let deleted = names(&due).into_iter().collect();
        self.changes.extend(due);
        deleted
    }

    fn new_name(&self, rule: &DesiredRule) -> String {
        let Reconciled { view, ref foreign, .. } = *self.reconciled;
        let has_group = |name: &str| view.facts.groups.iter().any(|group| group.name == name);
        let mut number = 0_usize;
        loop {
            let digest = model::digest(&[rule.rule_type.text(), &rule.source, &number.to_string()]);
            let name = format!("{}{}", view.prefix, digest_text(digest));
            let groups = RecordedGroups::of_rule(&name);
            let has_groups = || has_group(&groups.vms) || has_group(&groups.hosts);
            let is_taken = foreign.contains_key(name.as_str())
                || self.before.contains_key(&name)
                || self.record.contains_key(&name)
                || rule.rule_type == RuleType::VmHost && has_groups();
            if !is_taken {
                return name;
            }
            number += 1;
        }
    }

    fn change_of(&self, own: &OwnRule<'_>, kind: ChangeKind, members: &[usize]) -> RuleChange {
        let Reconciled { view, ref terms, .. } = *self.reconciled;
        let recorded = own.recorded;
        let mut rule = DesiredRule::new(recorded.rule_type, recorded.source.clone(), members.to_vec());
        if matches!(kind, ChangeKind::Create | ChangeKind::Edit { .. }) {
            rule.uncertain = own.uncertain().iter().map(ToString::to_string).collect();
            match recorded.rule_type {
                RuleType::VmAntiAffinity => {
                    let term = own.term.map(|position| terms.all[position].term);
                    rule.pods = term.map(|term| pods_separated(view, term, members)).unwrap_or_default();
                }
                RuleType::VmAffinity => rule.pods = pods_in_company(view, members),
                RuleType::VmHost => {
                    if let Some(Bound { hosts, pods, mandatory, .. }) = &own.bound {
                        (rule.hosts, rule.mandatory) = (hosts.clone(), *mandatory);
                        rule.pods = view.pod_refs(pods.iter().copied());
                    }
                }
            }
        }
        self.change(own.name, recorded, kind, rule)
    }

    fn change(&self, name: &str, recorded: &RecordedRule, kind: ChangeKind, mut rule: DesiredRule) -> RuleChange {
        let view = self.reconciled.view;
        let vm = |vm: &usize| VmRef { id: view.vms[*vm].id.clone(), name: view.vms[*vm].name.clone() };
        let is_end = matches!(kind, ChangeKind::Delete { .. } | ChangeKind::DeleteGroups);
        rule.pods.truncate(PODS_NAMED_MAX);
        let groups = recorded.groups.as_ref().map(|names| self.groups(names, is_end, &rule));
        let named = |id: &String| Some(VmRef { id: id.clone(), name: view.uncertain.get(id)?.name.clone() });
        let vms = rule.members.iter().map(vm).chain(rule.uncertain.iter().filter_map(named)).collect();
        RuleChange {
            hosts: rule.hosts.iter().map(|host| view.hosts[*host].name.0.clone()).collect(),
            mandatory: rule.mandatory,
            groups: groups.unwrap_or_default(),
            moves: if is_end { Vec::new() } else { rule.moves(view) },
            pods: rule.pods,
            group_names: recorded.groups.clone(),
            ..RuleChange::new(name.to_owned(), rule.rule_type, kind, vms)
        }
    }

    /// A group that another rule uses stays unchanged.
    fn group_in_use(&self, change: &RuleChange) -> Option<Finding> {
        let view = self.reconciled.view;
        change.groups.iter().find_map(|group| {
            let (GroupChange::Edit(GroupFacts { name, .. }) | GroupChange::Remove { name }) = group else {
                return None;
            };
            let used_by = other_user(&view.facts, name, &change.rule)?.to_owned();
            let (cluster, rule, group) = (view.key.clone(), change.rule.clone(), name.clone());
            Some(Finding::GroupInUse { cluster, rule, group, used_by })
        })
    }

    /// Whether any group of the rule still exists.
    fn has_groups(&self, own: &OwnRule<'_>) -> bool {
        let is_left = |group: &str| self.reconciled.view.facts.groups.iter().any(|other| other.name == group);
        own.recorded.groups.as_ref().is_some_and(|names| is_left(&names.vms) || is_left(&names.hosts))
    }

    /// The changes to the groups of a rule.
    fn groups(&self, names: &RecordedGroups, is_end: bool, rule: &DesiredRule) -> Vec<GroupChange> {
        let view = self.reconciled.view;
        let vms = GroupKind::Vms([view.vm_ids(&rule.members), rule.uncertain.clone()].concat());
        let hosts = GroupKind::Hosts(view.host_ids(&rule.hosts));
        let mut changes = Vec::new();
        for (name, kind) in [(&names.vms, vms), (&names.hosts, hosts)] {
            let existing = view.facts.groups.iter().find(|group| group.name == *name);
            let group = GroupFacts { name: name.clone(), user_created: true, kind };
            match existing {
                Some(_) if is_end => changes.push(GroupChange::Remove { name: name.clone() }),
                Some(existing) if same_members(&existing.kind, &group.kind) => (),
                Some(_) => changes.push(GroupChange::Edit(group)),
                None if is_end => (),
                None => changes.push(GroupChange::Add(group)),
            }
        }
        changes
    }
}

fn same_members(a: &GroupKind, b: &GroupKind) -> bool {
    let sorted = |of: &[String]| of.iter().cloned().collect::<BTreeSet<String>>();
    match (a, b) {
        (GroupKind::Vms(a), GroupKind::Vms(b)) | (GroupKind::Hosts(a), GroupKind::Hosts(b)) => sorted(a) == sorted(b),
        _ => false,
    }
}
