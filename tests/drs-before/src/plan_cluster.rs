//! The plan for one cluster, from its settled rules: actions, findings, the record as it shall be.
//!
//! In: a [`Cluster`] that followed what changed. Out: a [`ClusterPlan`]. New rules keep to the limit, those first whose VMs
//! are where the rule does not allow them; deletions are few at a time, and never most of them without being told to.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::PodId;
use model::event::{ClusterFacts, GroupFacts, GroupKind};

use crate::cluster::{Cluster, Context};
use crate::digest::{digest, digest_text};
use crate::explain::{PODS_NAMED_MAX, pods_wanted_apart};
use crate::finding::{Finding, PodRef};
use crate::needs::Need;
use crate::plan::{Action, ActionKind, ClusterPlan, GroupChange, VmRef};
use crate::record::{OwnedGroups, OwnedRule, RuleSort, Rules, UnixMillis};
use crate::settings::DELETIONS_UNQUESTIONED;
use crate::telling::open_pairs;
use crate::together::pods_behind;

/// A rule to be made.
#[derive(Debug)]
pub(crate) struct NewRule {
    pub(crate) sort: RuleSort,
    pub(crate) source: String,
    pub(crate) members: Vec<usize>,
    pub(crate) pods: Vec<PodRef>,
    /// Places among the cluster's hosts.
    pub(crate) hosts: Vec<usize>,
    pub(crate) mandatory: bool,
}

impl NewRule {
    pub(crate) fn of(sort: RuleSort, source: String, members: Vec<usize>) -> Self {
        Self { sort, source, members, pods: Vec::new(), hosts: Vec::new(), mandatory: false }
    }
}

/// What is to be said of one cluster.
pub(crate) struct Planned {
    pub(crate) plan: ClusterPlan,
    pub(crate) rules: Arc<Rules>,
    pub(crate) next_due: Option<UnixMillis>,
}

pub(crate) struct Assembly<'a> {
    pub(crate) context: Context<'a>,
    pub(crate) facts: &'a ClusterFacts,
    pub(crate) needs: &'a [Need],
    pub(crate) findings: &'a mut Vec<Finding>,
}

impl Assembly<'_> {
    pub(crate) fn assemble(mut self, cluster: &mut Cluster, pinned: &[(usize, PodId)]) -> Planned {
        let context = self.context;
        let mut new = self.new_apart(cluster);
        let pins = cluster.plan_pins(context, pinned, self.findings);
        new.extend(cluster.plan_together(context, self.needs, self.findings));
        new.extend(pins);
        let cluster = &*cluster;
        self.tell_of_rules(cluster);
        let mut record = Record { rules: Arc::clone(&cluster.recorded) };
        let mut actions = Vec::new();
        let (mut due, mut next_due) = (Vec::new(), None);
        for name in &cluster.busy {
            let Some(slot) = cluster.slots.get(name) else { continue };
            let settled = &slot.settled;
            record.set(name, settled.record.as_ref());
            self.findings.extend(settled.finding.clone());
            next_due = next_due.into_iter().chain(settled.next_due).min();
            if let Some((kind, members)) = &settled.act {
                actions.push(self.action_of_slot(cluster, name, kind.clone(), members));
            }
            if settled.due {
                due.push(name.as_str());
            }
            if settled.record.is_none() && self.has_groups(&slot.recorded) {
                record.set(name, Some(&slot.recorded));
                actions.push(self.action_of_slot(cluster, name, ActionKind::DeleteGroups, &[]));
            }
        }
        let (new, left_out) = self.within_limit(cluster, new);
        let mut names: BTreeSet<String> = BTreeSet::new();
        let mut created: Vec<(String, Vec<usize>)> = Vec::new();
        for rule in new {
            let name = self.new_name(cluster, &rule, &mut names);
            let mut intent = OwnedRule::intent(rule.sort, rule.source.clone());
            intent.groups = (rule.sort == RuleSort::OnHosts).then(|| OwnedGroups::of_rule(&name));
            if rule.sort == RuleSort::Apart {
                created.push((name.clone(), rule.members.clone()));
            }
            actions.push(self.action(cluster, &name, &intent, ActionKind::Create, rule));
            record.set(&name, Some(&Arc::new(intent)));
        }
        let deleted = self.within_deletions(cluster, due);
        for name in &deleted {
            if let (Some(seen), Some(_)) = (cluster.seen.get(*name), cluster.slots.get(*name)) {
                let kind = ActionKind::Delete { key: seen.key, uuid: seen.uuid.clone() };
                actions.push(self.action_of_slot(cluster, name, kind, &seen.members));
            }
        }
        let own = cluster.seen.len() - cluster.outsiders.len() - deleted.len();
        let made = actions.iter().filter(|action| action.kind == ActionKind::Create).count();
        self.tell_of_cluster(own + made);
        let deleted: BTreeSet<&str> = deleted.into_iter().collect();
        let finally = LazyCell::new(|| -> Vec<(&str, &[usize])> {
            let slots = cluster.slots.iter().filter(|(name, _)| !deleted.contains(name.as_str()));
            let kept = slots.filter(|(_, slot)| slot.recorded.sort == RuleSort::Apart);
            let kept = kept.map(|(name, slot)| (name.as_str(), slot.settled.becomes.as_slice()));
            let created = created.iter().map(|(name, members)| (name.as_str(), members.as_slice()));
            let mut finally: Vec<_> = kept.chain(created).collect();
            finally.sort_unstable();
            finally
        });
        if self.facts.ha.enabled && self.facts.ha.respects_vm_anti_affinity {
            self.tell_of_high_availability(cluster, &finally);
        }
        let mut open = open_pairs(cluster, &left_out);
        if !open.is_empty() {
            self.close(cluster, &mut open, &finally);
            self.tell_of_open(cluster, &open);
        }
        let places = context.places;
        let plan = ClusterPlan {
            cluster: places.name.clone(),
            cluster_name: self.facts.name.clone(),
            actions,
            uncovered: open.into_iter().map(|(a, b)| (places.vms[a].id.clone(), places.vms[b].id.clone())).collect(),
        };
        Planned { plan, rules: record.rules, next_due }
    }

    /// In the order of ranks: the order of keys then is the same.
    fn new_apart(&self, cluster: &Cluster) -> Vec<NewRule> {
        let cells = cluster.telling.iter().filter_map(|digest| cluster.cells.get(*digest));
        let mut cells: Vec<_> = cells.filter(|cell| !cell.redundant && !cell.rules().new.is_empty()).collect();
        cells.sort_by_key(|cell| cell.rank());
        cells
            .into_iter()
            .flat_map(|cell| cell.rules().new.iter().map(move |members| (cell, members)))
            .map(|(cell, members)| NewRule {
                pods: pods_wanted_apart(self.context.world, &cell.part, members),
                ..NewRule::of(RuleSort::Apart, digest_text(cell.digest), members.clone())
            })
            .collect()
    }

    /// What may be made, and what is left out.
    fn within_limit(&mut self, cluster: &Cluster, mut new: Vec<NewRule>) -> (Vec<NewRule>, Vec<NewRule>) {
        let limit = self.context.settings.rules_max;
        let coming = cluster.busy.iter().filter_map(|name| cluster.slots.get(name));
        let coming = coming.filter(|slot| matches!(slot.settled.act, Some((ActionKind::Create, _)))).count();
        let room = limit.saturating_sub(cluster.seen.len() - cluster.outsiders.len() + coming);
        if new.len() <= room {
            return (new, Vec::new());
        }
        // The sort is stable, so that otherwise the order stays.
        new.sort_by_cached_key(|rule| std::cmp::Reverse(self.moves(cluster, rule).len()));
        let left_out = new.split_off(room);
        let told = Finding::RuleLimit { cluster: self.context.places.name.clone(), left_out: left_out.len(), limit };
        self.findings.push(told);
        (new, left_out)
    }

    fn within_deletions<'n>(&mut self, cluster: &Cluster, due: Vec<&'n str>) -> Vec<&'n str> {
        let settings = self.context.settings;
        let owned = cluster.seen.len() - cluster.outsiders.len();
        let too_many =
            due.len() > DELETIONS_UNQUESTIONED && due.len() as f64 > settings.deletion_share_max * owned as f64;
        if too_many && !settings.allow_mass_deletion {
            let cluster = self.context.places.name.clone();
            self.findings.push(Finding::DeletionsHeld { cluster, due: due.len(), owned });
            return Vec::new();
        }
        due.into_iter().take(settings.deletions_max).collect()
    }

    fn new_name(&self, cluster: &Cluster, rule: &NewRule, given: &mut BTreeSet<String>) -> String {
        let sort = match rule.sort {
            RuleSort::Apart => "apart",
            RuleSort::Together => "together",
            RuleSort::OnHosts => "onHosts",
        };
        let has_group = |name: &str| self.facts.groups.iter().any(|group| group.name == name);
        let mut number = 0usize;
        loop {
            let digest = digest(&[sort, &rule.source, &number.to_string()]);
            let name = format!("{}{}", self.context.prefix, digest_text(digest));
            let groups = OwnedGroups::of_rule(&name);
            let is_taken = cluster.seen.contains_key(&name)
                || cluster.recorded.contains_key(&name)
                || rule.sort == RuleSort::OnHosts && (has_group(&groups.vms) || has_group(&groups.hosts));
            if !is_taken && given.insert(name.clone()) {
                return name;
            }
            number += 1;
        }
    }

    fn action_of_slot(&self, cluster: &Cluster, name: &str, kind: ActionKind, members: &[usize]) -> Action {
        let recorded = cluster.slots.get(name).map(|slot| Arc::clone(&slot.recorded));
        let recorded = recorded.unwrap_or_else(|| Arc::new(OwnedRule::intent(RuleSort::Apart, String::new())));
        let mut rule = NewRule::of(recorded.sort, recorded.source.clone(), members.to_vec());
        if matches!(kind, ActionKind::Create | ActionKind::Edit { .. }) {
            match recorded.sort {
                RuleSort::Apart => {
                    let cell = cluster.slots.get(name).and_then(|slot| cluster.cells.get(slot.cell?));
                    let pods = cell.map(|cell| pods_wanted_apart(self.context.world, &cell.part, members));
                    rule.pods = pods.unwrap_or_default();
                }
                RuleSort::Together => rule.pods = pods_behind(self.context, self.needs, members),
                RuleSort::OnHosts => {
                    (rule.hosts, rule.pods) = cluster.bindings.get(name).cloned().unwrap_or_default();
                    rule.mandatory = self.context.settings.pinning == crate::settings::Pinning::Must;
                }
            }
            rule.pods.truncate(PODS_NAMED_MAX);
        }
        self.action(cluster, name, &recorded, kind, rule)
    }

    fn action(
        &self,
        cluster: &Cluster,
        name: &str,
        recorded: &OwnedRule,
        kind: ActionKind,
        mut rule: NewRule,
    ) -> Action {
        let places = self.context.places;
        let vm = |vm: &usize| VmRef { id: places.vms[*vm].id.clone(), name: places.vms[*vm].name.clone() };
        let is_end = matches!(kind, ActionKind::Delete { .. } | ActionKind::DeleteGroups);
        let host_name = |host: &usize| {
            let view = self.context.world.host(cluster.hosts[*host].id);
            view.map(|host| host.name().to_owned()).unwrap_or_default()
        };
        rule.pods.truncate(PODS_NAMED_MAX);
        let groups = recorded.groups.as_ref().map(|names| self.groups(cluster, names, is_end, &rule));
        Action {
            rule: name.to_owned(),
            sort: rule.sort,
            vms: rule.members.iter().map(vm).collect(),
            hosts: rule.hosts.iter().map(host_name).collect(),
            mandatory: rule.mandatory,
            groups: groups.unwrap_or_default(),
            moves: if is_end { Vec::new() } else { self.moves(cluster, &rule) },
            pods: rule.pods,
            group_names: recorded.groups.clone(),
            kind,
        }
    }

    fn has_groups(&self, recorded: &OwnedRule) -> bool {
        recorded.groups.as_ref().is_some_and(|names| {
            self.facts.groups.iter().any(|group| group.name == names.vms || group.name == names.hosts)
        })
    }

    /// What must be done to the groups of a rule.
    fn groups(&self, cluster: &Cluster, names: &OwnedGroups, is_end: bool, rule: &NewRule) -> Vec<GroupChange> {
        let places = self.context.places;
        let vms = GroupKind::Vms(places.ids(&rule.members));
        let hosts = GroupKind::Hosts(cluster.host_names(&rule.hosts));
        let mut changes = Vec::new();
        for (name, kind) in [(&names.vms, vms), (&names.hosts, hosts)] {
            let existing = self.facts.groups.iter().find(|group| group.name == *name);
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

    /// The VMs that are where the rule does not allow them.
    fn moves(&self, cluster: &Cluster, rule: &NewRule) -> Vec<String> {
        let vms = &self.context.places.vms;
        let mut by_host: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for &member in &rule.members {
            if let Some(host) = vms[member].host {
                by_host.entry(host).or_default().push(member);
            }
        }
        let moving: Vec<usize> = match rule.sort {
            RuleSort::Apart => by_host.values().flat_map(|vms| &vms[1..]).copied().collect(),
            RuleSort::Together => {
                // The host with most of them stays.
                let stay = by_host.values().max_by_key(|vms| (vms.len(), usize::MAX - vms[0])).cloned();
                let stay = stay.unwrap_or_default();
                by_host.values().flatten().filter(|vm| !stay.contains(vm)).copied().collect()
            }
            RuleSort::OnHosts => {
                let allowed: Vec<_> = rule.hosts.iter().map(|host| cluster.hosts[*host].id).collect();
                by_host.iter().filter(|(host, _)| !allowed.contains(host)).flat_map(|(_, vms)| vms).copied().collect()
            }
        };
        let mut moves: Vec<String> = moving.into_iter().map(|vm| vms[vm].name.clone()).collect();
        moves.sort_unstable();
        moves
    }
}

/// The record as it shall be: copied when first changed.
struct Record {
    rules: Arc<Rules>,
}

impl Record {
    fn set(&mut self, name: &str, rule: Option<&Arc<OwnedRule>>) {
        if self.rules.get(name) == rule {
            return;
        }
        let rules = Arc::make_mut(&mut self.rules);
        match rule {
            Some(rule) => drop(rules.insert(name.to_owned(), Arc::clone(rule))),
            None => drop(rules.remove(name)),
        }
    }
}

fn same_members(a: &GroupKind, b: &GroupKind) -> bool {
    let sorted = |of: &[String]| of.iter().cloned().collect::<BTreeSet<String>>();
    match (a, b) {
        (GroupKind::Vms(a), GroupKind::Vms(b)) | (GroupKind::Hosts(a), GroupKind::Hosts(b)) => sorted(a) == sorted(b),
        _ => false,
    }
}
