//! What holds for any world: random clusters, pods, foreign rules, and random changes of them, planned and carried out.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use drs::{ActionKind, DrsSettings, Finding, Owned, Pinning, Plan, RuleSort, UnixMillis, plan};
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
fn check_ownership(town: &Town, owned: &Owned, plan: &Plan) -> Result<(), TestCaseError> {
    let foreign = foreign_names(town);
    for (cluster, action) in plan.actions() {
        prop_assert!(foreign.iter().all(|(name, _)| *name != action.rule));
        if let ActionKind::Edit { key, .. } | ActionKind::Delete { key, .. } = &action.kind {
            prop_assert!(foreign.iter().all(|(_, foreign)| foreign != key));
            prop_assert!(owned.rule(&cluster.cluster, &action.rule).is_some());
        }
        prop_assert!(plan.record.rule(&cluster.cluster, &action.rule).is_some(), "intents come first");
        if !matches!(action.kind, ActionKind::Delete { .. }) {
            let members_min = if action.sort == RuleSort::OnHosts { 1 } else { 2 };
            prop_assert!(action.vms.len() >= members_min, "a rule has members enough: {action:?}");
            prop_assert!(!action.pods.is_empty(), "an action names the pods that cause it: {action:?}");
        }
    }
    Ok(())
}

/// Every pair that is wanted apart is kept apart by an enabled rule, or reported.
fn check_coverage(town: &Town, plan: &Plan, settings: &DrsSettings) -> Result<(), TestCaseError> {
    for (place, cluster) in town.clusters.iter().enumerate() {
        let planned = plan.clusters.iter().find(|planned| planned.cluster.1 == cluster.id).expect("every cluster");
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
        let told = plan.findings.iter().any(|finding| {
            matches!(
                finding,
                Finding::Unsatisfiable { cluster: of, .. } | Finding::JointlyUnsatisfiable { cluster: of, .. }
                    | Finding::Conflict { cluster: of, .. }
                    | Finding::DisabledByAdministrator { cluster: of, .. } if of.1 == cluster.id
            )
        });
        prop_assert!(uncovered.is_empty() || told, "{:?} {:?}", uncovered, plan.findings);
    }
    Ok(())
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
    for (cluster, action) in plan.actions().filter(|(_, action)| action.sort == RuleSort::Apart) {
        let hosts = town.hosts.iter().filter(|(host, _)| host.cluster.as_ref() == Some(&cluster.cluster.1)).count();
        let adds = match &action.kind {
            ActionKind::Create => true,
            ActionKind::Edit { added, .. } => !added.is_empty(),
            ActionKind::Delete { .. } | ActionKind::DeleteGroups => false,
        };
        if adds {
            prop_assert!(action.vms.len() + settings.reserve_hosts <= hosts, "{:?}", action);
        }
    }
    Ok(())
}

/// The record without what is being waited for.
fn identities(owned: &Owned) -> Vec<(String, Option<String>)> {
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

    /// With no time to wait for, each pass leaves exactly what is wanted, and nothing to do; except that a mandatory binding to
    /// hosts has to go first, and what it stood in the way of comes with the next pass.
    #[test]
    fn each_pass_leaves_what_is_wanted(
        mut town in town(), changes in changes(), pinning in select(vec![Pinning::Should, Pinning::Must, Pinning::Off]),
    ) {
        let settings = DrsSettings { pinning, ..at_once() };
        let mut owned = Owned::default();
        let mut now = UnixMillis(0);
        let foreign = foreign_names(&town);
        for step in std::iter::once(None).chain(changes.iter().map(Some)) {
            if let Some(step) = step {
                change(&mut town, step);
                now.0 += step.seconds * 1000;
            }
            let planned = plan(&town.world(), &owned, now, &settings);
            check_ownership(&town, &owned, &planned)?;
            check_guard(&town, &planned, &settings)?;
            owned = town.carry_out(&planned);
            check_coverage(&town, &planned, &settings)?;
            check_need(&town, &settings)?;
            prop_assert_eq!(&foreign_names(&town), &foreign);
            let mut again = plan(&town.world(), &owned, now, &settings);
            let had_bindings = planned.actions().any(|(_, action)| {
                action.sort == RuleSort::OnHosts && !matches!(action.kind, ActionKind::Create)
            });
            if had_bindings && pinning == Pinning::Must && !again.is_empty() {
                check_ownership(&town, &owned, &again)?;
                check_guard(&town, &again, &settings)?;
                owned = town.carry_out(&again);
                again = plan(&town.world(), &owned, now, &settings);
            }
            prop_assert!(again.is_empty(), "{:#?}", again.actions().collect::<Vec<_>>());
            prop_assert_eq!(identities(&again.record), identities(&owned));
            check_coverage(&town, &again, &settings)?;
        }
    }

    /// With times to wait for, nothing is done twice, nothing foreign is touched, and what is wanted is covered or told.
    #[test]
    fn waiting_changes_no_invariant(mut town in town(), changes in changes()) {
        let settings = DrsSettings { deletions_max: 2, ..DrsSettings::default() };
        let mut owned = Owned::default();
        let mut now = UnixMillis(0);
        for step in std::iter::once(None).chain(changes.iter().map(Some)) {
            if let Some(step) = step {
                change(&mut town, step);
                now.0 += step.seconds * 1000;
            }
            let planned = plan(&town.world(), &owned, now, &settings);
            check_ownership(&town, &owned, &planned)?;
            check_guard(&town, &planned, &settings)?;
            owned = town.carry_out(&planned);
            check_coverage(&town, &planned, &settings)?;
            let again = plan(&town.world(), &owned, now, &settings);
            let only_deletions = again.actions().all(|(_, action)| matches!(action.kind, ActionKind::Delete { .. }));
            prop_assert!(only_deletions, "{:#?}", again.actions().collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_order_of_events_does_not_matter(
        (first, events, second) in (town(), changes()).prop_flat_map(|(town, changes)| {
            let mut later = town.clone();
            let settings = at_once();
            let planned = plan(&town.world(), &Owned::default(), UnixMillis(0), &settings);
            later.carry_out(&planned);
            change(&mut later, &changes[0]);
            let events = later.events();
            (Just((planned.record, later)), Just(events).prop_shuffle(), Just(changes))
        })
    ) {
        let (mut record, town) = first;
        for ((_, id), rules) in &mut record.clusters {
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
