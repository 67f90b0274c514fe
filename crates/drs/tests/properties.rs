//! What holds for any world: random clusters, pods, foreign rules, and random changes of them, planned and carried out.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drs::{Change, ChangeKind, ClusterPlan, DrsSettings, Finding, Pinning, Plan, Record, RuleType, UnixMillis, plan};
use model::event::*;
use proptest::prelude::*;
use proptest::sample::select;
use support::generate::{at_once, cases, change, changes, town};
use support::{FOREIGN_KEYS, Town, members, world_of};

fn foreign_names(town: &Town) -> BTreeSet<(String, i32)> {
    let rules = town.clusters.iter().flat_map(|cluster| &cluster.rules);
    rules.filter(|rule| rule.key >= FOREIGN_KEYS).map(|rule| (rule.name.clone(), rule.key)).collect()
}

/// Nobody else's rule is touched, and what is edited or deleted is in the record.
fn check_ownership(town: &Town, owned: &Record, plan: &Plan) -> Result<(), TestCaseError> {
    let foreign = foreign_names(town);
    for (cluster, action) in plan.actions() {
        prop_assert!(foreign.iter().all(|(name, _)| *name != action.rule));
        if let ChangeKind::Edit { key, .. } | ChangeKind::Delete { key, .. } = &action.kind {
            prop_assert!(foreign.iter().all(|(_, foreign)| foreign != key));
            prop_assert!(owned.rule(&cluster.cluster, &action.rule).is_some());
        }
        prop_assert!(plan.record.rule(&cluster.cluster, &action.rule).is_some(), "intents come first");
        if !matches!(action.kind, ChangeKind::Delete { .. }) {
            let members_min = if action.rule_type == RuleType::VmHost { 1 } else { 2 };
            prop_assert!(action.vms.len() >= members_min, "a rule has members enough: {action:?}");
            prop_assert!(!action.pods.is_empty(), "an action names the pods that cause it: {action:?}");
        }
    }
    Ok(())
}

/// Every pair that is wanted apart is kept apart by an enabled rule, or reported.
fn check_coverage(town: &Town, plan: &Plan, settings: &DrsSettings) -> Result<(), TestCaseError> {
    for (place, cluster) in town.clusters.iter().enumerate() {
        let planned = plan.clusters.iter().find(|planned| planned.cluster.id == cluster.id).expect("every cluster");
        let uncovered: BTreeSet<(String, String)> = planned.uncovered.iter().cloned().collect();
        prop_assert_eq!(uncovered.len(), planned.uncovered.len());
        let enabled = cluster.rules.iter().filter(|rule| rule.enabled);
        let sets: Vec<BTreeSet<String>> =
            enabled.filter(|rule| matches!(rule.kind, RuleKind::VmsApart(_))).map(members).collect();
        let wanted = town.apart(settings);
        let expected: BTreeSet<(String, String)> = wanted
            .iter()
            .filter(|(of, a, b)| *of == place && !sets.iter().any(|set| set.contains(a) && set.contains(b)))
            .map(|(_, a, b)| (a.clone(), b.clone()))
            .collect();
        prop_assert_eq!(&uncovered, &expected);
        // Each has a finding that names it, and no finding names any other.
        let excused: BTreeSet<(String, String)> = planned.findings.iter().flat_map(Finding::pairs).cloned().collect();
        let named: BTreeSet<(String, String)> =
            uncovered.iter().map(|(a, b)| (machine_name(a), machine_name(b))).collect();
        prop_assert_eq!(excused, named, "{:#?}", planned.findings);
    }
    Ok(())
}

fn machine_name(vm: &str) -> String {
    vm.replace("vm-", "machine-")
}

/// No rule of Bridger's parts two VMs that no pair of pods wants apart, and none ties two that are wanted apart.
fn check_need(town: &Town, settings: &DrsSettings) -> Result<(), TestCaseError> {
    let wanted = town.apart(settings);
    for (place, cluster) in town.clusters.iter().enumerate() {
        for rule in cluster.rules.iter().filter(|rule| rule.key < FOREIGN_KEYS) {
            let members = members(rule);
            for a in &members {
                for b in members.iter().filter(|b| a < *b) {
                    let is_wanted = wanted.contains(&(place, a.clone(), b.clone()));
                    let apart = matches!(rule.kind, RuleKind::VmsApart(_));
                    prop_assert_eq!(is_wanted, apart, "{} {} in {:?}", a, b, rule);
                }
            }
        }
    }
    Ok(())
}

fn check_guard(town: &Town, plan: &Plan, settings: &DrsSettings) -> Result<(), TestCaseError> {
    for (cluster, action) in plan.actions().filter(|(_, action)| action.rule_type == RuleType::VmAntiAffinity) {
        let hosts = town.hosts.iter().filter(|(host, _)| host.cluster.as_ref() == Some(&cluster.cluster.id)).count();
        let adds = match &action.kind {
            ChangeKind::Create => true,
            ChangeKind::Edit { added, .. } => !added.is_empty(),
            ChangeKind::Delete { .. } | ChangeKind::DeleteGroups => false,
        };
        if adds {
            prop_assert!(action.vms.len() + settings.reserve_hosts <= hosts, "{:?}", action);
        }
    }
    Ok(())
}

/// The hosts that enabled mandatory rules of others leave each VM, written from the rules alone.
fn allowed_hosts(town: &Town, cluster: &ClusterFacts) -> BTreeMap<String, BTreeSet<String>> {
    let hosts = town.hosts.iter().filter(|(host, _)| host.cluster.as_ref() == Some(&cluster.id));
    let all: BTreeSet<String> = hosts.map(|(host, _)| host.id.clone()).collect();
    let of_group = |name: &str| {
        cluster.groups.iter().find(|group| group.name == name).map_or_else(Vec::new, |group| match &group.kind {
            GroupKind::Vms(ids) | GroupKind::Hosts(ids) => ids.clone(),
        })
    };
    let mut allowed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let theirs = cluster.rules.iter().filter(|rule| rule.key >= FOREIGN_KEYS && rule.enabled && rule.mandatory);
    for rule in theirs {
        let RuleKind::VmsOnHosts { vm_group, affine_hosts, anti_affine_hosts } = &rule.kind else { continue };
        let mut left = all.clone();
        if let Some(hosts) = affine_hosts {
            let hosts = of_group(hosts);
            left.retain(|host| hosts.contains(host));
        }
        if let Some(hosts) = anti_affine_hosts {
            let hosts = of_group(hosts);
            left.retain(|host| !hosts.contains(host));
        }
        for vm in of_group(vm_group) {
            allowed.entry(vm).or_insert_with(|| all.clone()).retain(|host| left.contains(host));
        }
    }
    // One that is left no host at all contradicts itself, whatever we do.
    allowed.retain(|_, hosts| !hosts.is_empty());
    allowed
}

/// Whether each of these has a host of its own, by trying.
fn fits(vms: &[String], allowed: &BTreeMap<String, BTreeSet<String>>, taken: &mut BTreeSet<String>) -> bool {
    let Some((vm, rest)) = vms.split_first() else { return true };
    let Some(hosts) = allowed.get(vm) else { return fits(rest, allowed, taken) };
    hosts.iter().any(|host| {
        taken.insert(host.clone()) && {
            let does = fits(rest, allowed, taken);
            taken.remove(host);
            does
        }
    })
}

/// A rule that is made or grows leaves each of its VMs a host beside the mandatory rules of others.
fn check_hosts_of_others(town: &Town, plan: &Plan) -> Result<(), TestCaseError> {
    for (cluster, action) in plan.actions().filter(|(_, action)| action.rule_type == RuleType::VmAntiAffinity) {
        let facts = town.clusters.iter().find(|facts| facts.id == cluster.cluster.id).expect("a known cluster");
        let grows = match &action.kind {
            ChangeKind::Create => true,
            ChangeKind::Edit { added, removed, .. } => !added.is_empty() && removed.is_empty(),
            ChangeKind::Delete { .. } | ChangeKind::DeleteGroups => false,
        };
        if grows {
            let vms: Vec<String> = action.vms.iter().map(|vm| vm.id.clone()).collect();
            let allowed = allowed_hosts(town, facts);
            prop_assert!(fits(&vms, &allowed, &mut BTreeSet::new()), "{:?} {:?}", action, allowed);
        }
    }
    Ok(())
}

/// Rules of others, and the groups these rest on.
fn what_is_theirs(town: &Town) -> Vec<(RuleFacts, Vec<GroupFacts>)> {
    let theirs = |cluster: &ClusterFacts| {
        let rules = cluster.rules.iter().filter(|rule| rule.key >= FOREIGN_KEYS).cloned();
        let with_groups = |rule: RuleFacts| {
            let groups = cluster.groups.iter().filter(|group| rule.kind.groups().any(|name| name == group.name));
            let groups = groups.cloned().collect();
            (rule, groups)
        };
        rules.map(with_groups).collect::<Vec<_>>()
    };
    town.clusters.iter().flat_map(theirs).collect()
}

/// The record without what is being waited for.
fn identities(owned: &Record) -> Vec<(String, Option<String>)> {
    let rules = owned.clusters.values().flat_map(|rules| rules.iter());
    rules.map(|(name, rule)| (name.clone(), rule.uuid.clone())).collect()
}

fn described(plan: &Plan) -> String {
    let actions: Vec<_> = plan.clusters.iter().map(|cluster| (&cluster.cluster, &cluster.actions)).collect();
    let uncovered: Vec<_> = plan.clusters.iter().map(|cluster| &cluster.uncovered).collect();
    let mut findings: Vec<String> = plan.findings.iter().map(|finding| format!("{finding:?}")).collect();
    findings.sort_unstable();
    format!("{actions:#?} {uncovered:#?} {findings:#?} {:#?}", plan.record)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    /// With no time to wait for, each pass leaves exactly what is wanted, and nothing to do.
    #[test]
    fn each_pass_leaves_what_is_wanted(
        mut town in town(), changes in changes(), pinning in select(vec![Pinning::Should, Pinning::Must, Pinning::Off]),
    ) {
        let settings = DrsSettings { pinning, ..at_once() };
        let mut owned = Record::default();
        let mut now = UnixMillis(0);
        for step in std::iter::once(None).chain(changes.iter().map(Some)) {
            if let Some(step) = step {
                change(&mut town, step);
                now.0 += step.seconds * 1000;
            }
            let planned = plan(&town.world(), &owned, now, &settings);
            check_ownership(&town, &owned, &planned)?;
            check_guard(&town, &planned, &settings)?;
            check_hosts_of_others(&town, &planned)?;
            let theirs = what_is_theirs(&town);
            owned = town.carry_out(&planned);
            prop_assert_eq!(what_is_theirs(&town), theirs, "neither rules of others nor their groups are changed");
            check_coverage(&town, &planned, &settings)?;
            check_need(&town, &settings)?;
            let again = plan(&town.world(), &owned, now, &settings);
            prop_assert!(again.is_empty(), "{:#?}", again.actions().collect::<Vec<_>>());
            prop_assert_eq!(identities(&again.record), identities(&owned));
            check_coverage(&town, &again, &settings)?;
        }
    }

    /// With times to wait for, nothing is done twice, nothing foreign is touched, and what is wanted is covered or told.
    #[test]
    fn waiting_changes_no_invariant(mut town in town(), changes in changes()) {
        let settings = DrsSettings { deletions_max: 2, ..DrsSettings::default() };
        let mut owned = Record::default();
        let mut now = UnixMillis(0);
        for step in std::iter::once(None).chain(changes.iter().map(Some)) {
            if let Some(step) = step {
                change(&mut town, step);
                now.0 += step.seconds * 1000;
            }
            let planned = plan(&town.world(), &owned, now, &settings);
            check_ownership(&town, &owned, &planned)?;
            check_guard(&town, &planned, &settings)?;
            check_hosts_of_others(&town, &planned)?;
            let theirs = what_is_theirs(&town);
            owned = town.carry_out(&planned);
            prop_assert_eq!(what_is_theirs(&town), theirs, "neither rules of others nor their groups are changed");
            check_coverage(&town, &planned, &settings)?;
            let again = plan(&town.world(), &owned, now, &settings);
            let was_postponed = |(cluster, action): (&ClusterPlan, &Change)| {
                let before = planned.clusters.iter().find(|before| before.cluster == cluster.cluster);
                matches!(action.kind, ChangeKind::Delete { .. })
                    && before.is_some_and(|before| before.postponed.contains(&action.rule))
            };
            prop_assert!(again.actions().all(was_postponed), "{:#?}", again.actions().collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_order_of_events_does_not_matter(
        (first, events, second) in (town(), changes()).prop_flat_map(|(town, changes)| {
            let mut later = town.clone();
            let settings = at_once();
            let planned = plan(&town.world(), &Record::default(), UnixMillis(0), &settings);
            later.carry_out(&planned);
            change(&mut later, &changes[0]);
            let events = later.events();
            (Just((planned.record, later)), Just(events).prop_shuffle(), Just(changes))
        })
    ) {
        let (mut record, town) = first;
        for (drs::ClusterKey { id, .. }, rules) in &mut record.clusters {
            let facts = town.clusters.iter().find(|cluster| cluster.id == *id).expect("a known cluster");
            for (name, rule) in Arc::make_mut(rules) {
                Arc::make_mut(rule).uuid = facts.rules.iter().find(|rule| rule.name == *name).and_then(|rule| rule.uuid.clone());
            }
        }
        let now = UnixMillis(second[0].seconds * 1000);
        let settings = at_once();
        let in_order = plan(&town.world(), &record, now, &settings);
        let shuffled = plan(&world_of(events), &record, now, &settings);
        prop_assert_eq!(described(&in_order), described(&shuffled));
    }
}
