//! Properties of any world: random clusters, pods, foreign rules, and random changes of them, planned and applied.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drs::{
    AcrossNamespaces, ChangeKind, ClusterPlan, DrsSettings, Finding, Pinning, Plan, Record, RuleChange, RuleType,
    UnixMillis, plan,
};
use model::event::*;
use proptest::prelude::*;
use proptest::sample::select;
use support::generate::{at_once, cases, change, changes, site};
use support::{FOREIGN_KEYS, Site, members, world_of};

fn foreign_names(site: &Site) -> BTreeSet<(String, i32)> {
    let rules = site.clusters.iter().flat_map(|cluster| &cluster.rules);
    rules.filter(|rule| rule.key >= FOREIGN_KEYS).map(|rule| (rule.name.clone(), rule.key)).collect()
}

/// No foreign rule is touched, and every edited or deleted rule is in the record.
fn check_ownership(site: &Site, owned: &Record, plan: &Plan) -> Result<(), TestCaseError> {
    let foreign = foreign_names(site);
    for (cluster, action) in plan.actions() {
        prop_assert!(foreign.iter().all(|(name, _)| *name != action.rule));
        if let ChangeKind::Edit { key, .. } | ChangeKind::Delete { key, .. } = &action.kind {
            prop_assert!(foreign.iter().all(|(_, foreign)| foreign != key));
            prop_assert!(owned.rule(&cluster.cluster, &action.rule).is_some());
        }
        prop_assert!(plan.record.rule(&cluster.cluster, &action.rule).is_some(), "intents are recorded first");
        if !matches!(action.kind, ChangeKind::Delete { .. }) {
            let members_min = if action.rule_type == RuleType::VmHost { 1 } else { 2 };
            prop_assert!(action.vms.len() >= members_min, "a rule has enough members: {action:?}");
            prop_assert!(!action.pods.is_empty(), "an action names the pods that cause it: {action:?}");
        }
    }
    Ok(())
}

/// Every required pair is separated by an enabled rule, or reported.
fn check_coverage(site: &Site, plan: &Plan, settings: &DrsSettings) -> Result<(), TestCaseError> {
    for (index, cluster) in site.clusters.iter().enumerate() {
        let planned = plan.clusters.iter().find(|planned| planned.cluster.id == cluster.id).expect("every cluster");
        let uncovered: BTreeSet<(String, String)> = planned.uncovered.iter().cloned().collect();
        prop_assert_eq!(uncovered.len(), planned.uncovered.len());
        let enabled = cluster.rules.iter().filter(|rule| rule.enabled);
        let sets: Vec<BTreeSet<String>> =
            enabled.filter(|rule| matches!(rule.kind, RuleKind::VmAntiAffinity(_))).map(members).collect();
        let required = site.apart(settings);
        let expected: BTreeSet<(String, String)> = required
            .iter()
            .filter(|(of, a, b)| *of == index && !sets.iter().any(|set| set.contains(a) && set.contains(b)))
            .map(|(_, a, b)| (a.clone(), b.clone()))
            .collect();
        prop_assert_eq!(&uncovered, &expected);
        // Each uncovered pair is in a finding, and no finding has any other pair.
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

/// No anti-affinity rule of Bridger's separates two VMs without a required pair, and no affinity rule has a required
/// pair.
fn check_need(site: &Site, settings: &DrsSettings) -> Result<(), TestCaseError> {
    let required = site.apart(settings);
    for (index, cluster) in site.clusters.iter().enumerate() {
        for rule in cluster.rules.iter().filter(|rule| rule.key < FOREIGN_KEYS) {
            let members = members(rule);
            for a in &members {
                for b in members.iter().filter(|b| a < *b) {
                    let is_required = required.contains(&(index, a.clone(), b.clone()));
                    let apart = matches!(rule.kind, RuleKind::VmAntiAffinity(_));
                    prop_assert_eq!(is_required, apart, "{} {} in {:?}", a, b, rule);
                }
            }
        }
    }
    Ok(())
}

fn check_guard(site: &Site, plan: &Plan, settings: &DrsSettings) -> Result<(), TestCaseError> {
    for (cluster, action) in plan.actions().filter(|(_, action)| action.rule_type == RuleType::VmAntiAffinity) {
        let hosts = site.hosts.iter().filter(|(host, _)| host.cluster.as_ref() == Some(&cluster.cluster.id)).count();
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

/// No more new rules than the limits allow: in total, and for pods of one namespace alone.
fn check_limits(site: &Site, owned: &Record, plan: &Plan, settings: &DrsSettings) -> Result<(), TestCaseError> {
    for planned in &plan.clusters {
        let facts = site.clusters.iter().find(|facts| facts.id == planned.cluster.id).expect("a known cluster");
        let is_owned = |name: &str| owned.rule(&planned.cluster, name).is_some();
        let existing = facts.rules.iter().filter(|rule| is_owned(&rule.name)).count();
        let is_new = |action: &&RuleChange| action.kind == ChangeKind::Create && !is_owned(&action.rule);
        let new: Vec<&RuleChange> = planned.actions.iter().filter(is_new).collect();
        prop_assert!(new.len() <= settings.rules_max.saturating_sub(existing), "{:?}", new);
        for namespace in ["shop", "bank"] {
            let is_of = |action: &&&RuleChange| action.pods.iter().all(|pod| &*pod.namespace == namespace);
            let count = new.iter().filter(is_of).count();
            prop_assert!(count <= settings.rules_per_namespace_max, "{}: {:?}", namespace, new);
        }
    }
    Ok(())
}

/// The hosts that enabled mandatory rules of other clients leave each VM, computed from the rules only.
fn allowed_hosts(site: &Site, cluster: &ClusterFacts) -> BTreeMap<String, BTreeSet<String>> {
    let hosts = site.hosts.iter().filter(|(host, _)| host.cluster.as_ref() == Some(&cluster.id));
    let all: BTreeSet<String> = hosts.map(|(host, _)| host.id.clone()).collect();
    let of_group = |name: &str| {
        cluster.groups.iter().find(|group| group.name == name).map_or_else(Vec::new, |group| match &group.kind {
            GroupKind::Vms(ids) | GroupKind::Hosts(ids) => ids.clone(),
        })
    };
    let mut allowed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let theirs = cluster.rules.iter().filter(|rule| rule.key >= FOREIGN_KEYS && rule.enabled && rule.mandatory);
    for rule in theirs {
        let RuleKind::VmHost { vm_group, affine_hosts, anti_affine_hosts } = &rule.kind else { continue };
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
    // A VM that is left no host at all has contradictory rules that Bridger cannot fix.
    allowed.retain(|_, hosts| !hosts.is_empty());
    allowed
}

/// Whether each of these can have a host of its own, by brute force.
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

/// A rule that is created or grows leaves each of its VMs a host that the mandatory rules of other clients allow.
fn check_hosts_of_others(site: &Site, plan: &Plan) -> Result<(), TestCaseError> {
    for (cluster, action) in plan.actions().filter(|(_, action)| action.rule_type == RuleType::VmAntiAffinity) {
        let facts = site.clusters.iter().find(|facts| facts.id == cluster.cluster.id).expect("a known cluster");
        let grows = match &action.kind {
            ChangeKind::Create => true,
            ChangeKind::Edit { added, removed, .. } => !added.is_empty() && removed.is_empty(),
            ChangeKind::Delete { .. } | ChangeKind::DeleteGroups => false,
        };
        if grows {
            let vms: Vec<String> = action.vms.iter().map(|vm| vm.id.clone()).collect();
            let allowed = allowed_hosts(site, facts);
            prop_assert!(fits(&vms, &allowed, &mut BTreeSet::new()), "{:?} {:?}", action, allowed);
        }
    }
    Ok(())
}

/// The rules of other clients, and the groups they use.
fn foreign_rules(site: &Site) -> Vec<(RuleFacts, Vec<GroupFacts>)> {
    let theirs = |cluster: &ClusterFacts| {
        let rules = cluster.rules.iter().filter(|rule| rule.key >= FOREIGN_KEYS).cloned();
        let with_groups = |rule: RuleFacts| {
            let groups = cluster.groups.iter().filter(|group| rule.kind.groups().any(|name| name == group.name));
            let groups = groups.cloned().collect();
            (rule, groups)
        };
        rules.map(with_groups).collect::<Vec<_>>()
    };
    site.clusters.iter().flat_map(theirs).collect()
}

/// The record without its waits.
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

fn has_deleted(plan: &Plan) -> bool {
    plan.actions().any(|(_, action)| matches!(action.kind, ChangeKind::Delete { .. }))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    /// Without waits, each pass reaches exactly the desired state, with nothing left to do.
    #[test]
    fn each_pass_reaches_the_desired_state(
        mut site in site(), changes in changes(), pinning in select(vec![Pinning::Should, Pinning::Must, Pinning::Off]),
    ) {
        let settings = DrsSettings { pinning, ..at_once() };
        let mut owned = Record::default();
        let mut now = UnixMillis(0);
        for step in std::iter::once(None).chain(changes.iter().map(Some)) {
            if let Some(step) = step {
                change(&mut site, step);
                now.0 += step.seconds * 1000;
            }
            let planned = plan(&site.world(), &owned, now, &settings);
            check_ownership(&site, &owned, &planned)?;
            check_guard(&site, &planned, &settings)?;
            check_hosts_of_others(&site, &planned)?;
            let theirs = foreign_rules(&site);
            owned = site.execute(&planned);
            prop_assert_eq!(foreign_rules(&site), theirs, "a rule or group of another client changed");
            check_coverage(&site, &planned, &settings)?;
            check_need(&site, &settings)?;
            let again = plan(&site.world(), &owned, now, &settings);
            prop_assert!(again.is_empty(), "{:#?}", again.actions().collect::<Vec<_>>());
            prop_assert_eq!(identities(&again.record), identities(&owned));
            check_coverage(&site, &again, &settings)?;
        }
    }

    /// With waits, nothing is done twice, no foreign rule is touched, and every required pair is covered or reported.
    #[test]
    fn invariants_hold_during_waits(mut site in site(), changes in changes()) {
        let settings = DrsSettings { deletions_max: 2, ..DrsSettings::default() };
        let mut owned = Record::default();
        let mut now = UnixMillis(0);
        for step in std::iter::once(None).chain(changes.iter().map(Some)) {
            if let Some(step) = step {
                change(&mut site, step);
                now.0 += step.seconds * 1000;
            }
            let planned = plan(&site.world(), &owned, now, &settings);
            check_ownership(&site, &owned, &planned)?;
            check_guard(&site, &planned, &settings)?;
            check_hosts_of_others(&site, &planned)?;
            let theirs = foreign_rules(&site);
            owned = site.execute(&planned);
            prop_assert_eq!(foreign_rules(&site), theirs, "a rule or group of another client changed");
            check_coverage(&site, &planned, &settings)?;
            let again = plan(&site.world(), &owned, now, &settings);
            let was_postponed = |(cluster, action): (&ClusterPlan, &RuleChange)| {
                let before = planned.clusters.iter().find(|before| before.cluster == cluster.cluster);
                matches!(action.kind, ChangeKind::Delete { .. })
                    && before.is_some_and(|before| before.postponed.contains(&action.rule))
            };
            prop_assert!(again.actions().all(was_postponed), "{:#?}", again.actions().collect::<Vec<_>>());
        }
    }

    /// Limits leave out new rules, report them, and never lead to another result in the next pass.
    #[test]
    fn number_9_new_rules_stay_within_the_limits(
        mut site in site(), changes in changes(), per_namespace_max in 0..4usize, rules_max in 0..8usize,
        across in select(vec![AcrossNamespaces::All, AcrossNamespaces::Labelled]),
        pinning in select(vec![Pinning::Should, Pinning::Must]),
    ) {
        let (rules_per_namespace_max, across_namespaces) = (per_namespace_max, across);
        let settings = DrsSettings { rules_max, rules_per_namespace_max, across_namespaces, pinning, ..at_once() };
        let mut owned = Record::default();
        let mut now = UnixMillis(0);
        for step in std::iter::once(None).chain(changes.iter().map(Some)) {
            if let Some(step) = step {
                change(&mut site, step);
                now.0 += step.seconds * 1000;
            }
            let planned = plan(&site.world(), &owned, now, &settings);
            check_ownership(&site, &owned, &planned)?;
            check_guard(&site, &planned, &settings)?;
            check_limits(&site, &owned, &planned, &settings)?;
            owned = site.execute(&planned);
            check_coverage(&site, &planned, &settings)?;
            check_need(&site, &settings)?;
            let mut again = plan(&site.world(), &owned, now, &settings);
            // A rule takes in VMs of one that was left out, and then another one may count for fewer namespaces; the places
            // of deleted rules are free in the next pass, and the new rules may make others redundant. Else nothing happens,
            // and soon nothing is left to do.
            let mut is_expected = has_deleted(&planned);
            for _ in 0..4 {
                let grows = |kind: &ChangeKind| matches!(kind, ChangeKind::Edit { removed, .. } if removed.is_empty());
                is_expected |= again.actions().any(|(_, action)| grows(&action.kind));
                prop_assert!(is_expected || again.is_empty(), "{:#?}", again.actions().collect::<Vec<_>>());
                check_limits(&site, &owned, &again, &settings)?;
                owned = site.execute(&again);
                again = plan(&site.world(), &owned, now, &settings);
            }
            prop_assert!(again.is_empty(), "{:#?}", again.actions().collect::<Vec<_>>());
            prop_assert_eq!(identities(&again.record), identities(&owned));
            check_coverage(&site, &again, &settings)?;
        }
    }

    /// Mandatory rules are the same with and without the pods of namespaces without the label.
    #[test]
    fn number_9_pods_without_the_label_have_no_part_in_mandatory_rules(mut site in site()) {
        let settings = DrsSettings { pinning: Pinning::Must, ..at_once() };
        let mandatory = |site: &Site| -> BTreeSet<(String, Vec<String>, Vec<String>)> {
            let planned = plan(&site.world(), &Record::default(), UnixMillis(0), &settings);
            let actions = planned.actions().filter(|(_, action)| action.mandatory);
            let vms = |action: &RuleChange| action.vms.iter().map(|vm| vm.id.clone()).collect();
            actions.map(|(of, action)| (of.cluster.id.clone(), vms(action), action.hosts.clone())).collect()
        };
        let all = mandatory(&site);
        let is_labelled = |of: &&NamespaceFacts| of.labels.get("bridger.dev/rules").is_some_and(|value| value == "cluster");
        let labelled: BTreeSet<String> = site.namespaces.iter().filter(is_labelled).map(|of| of.name.clone()).collect();
        site.pods.retain(|pod| labelled.contains(&pod.namespace));
        prop_assert_eq!(all, mandatory(&site));
    }

    #[test]
    fn the_order_of_events_does_not_matter(
        (first, events, second) in (site(), changes()).prop_flat_map(|(site, changes)| {
            let mut later = site.clone();
            let settings = at_once();
            let planned = plan(&site.world(), &Record::default(), UnixMillis(0), &settings);
            later.execute(&planned);
            change(&mut later, &changes[0]);
            let events = later.events();
            (Just((planned.record, later)), Just(events).prop_shuffle(), Just(changes))
        })
    ) {
        let (mut record, site) = first;
        for (drs::ClusterKey { id, .. }, rules) in &mut record.clusters {
            let facts = site.clusters.iter().find(|cluster| cluster.id == *id).expect("a known cluster");
            for (name, rule) in Arc::make_mut(rules) {
                Arc::make_mut(rule).uuid = facts.rules.iter().find(|rule| rule.name == *name).and_then(|rule| rule.uuid.clone());
            }
        }
        let now = UnixMillis(second[0].seconds * 1000);
        let settings = at_once();
        let in_order = plan(&site.world(), &record, now, &settings);
        let shuffled = plan(&world_of(events), &record, now, &settings);
        prop_assert_eq!(described(&in_order), described(&shuffled));
    }
}
