//! The stored form of the record; adopting rules; deleting all owned rules.

mod support;

use std::sync::Arc;

use drs::record::{RecordError, from_text, to_text};
use drs::*;
use model::event::*;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use support::generate::{at_once, cases, site};
use support::*;

fn owned_rule() -> impl Strategy<Value = RecordedRule> {
    let types = prop_oneof![Just(RuleType::VmAntiAffinity), Just(RuleType::VmAffinity), Just(RuleType::VmHost)];
    let unwanted = (any::<u64>(), vec(".*", 0..4)).prop_map(|(since, vms)| Unwanted { since: UnixMillis(since), vms });
    let groups = (".*", ".*").prop_map(|(vms, hosts)| RecordedGroups { vms, hosts });
    let times = (option::of(unwanted), option::of(any::<u64>().prop_map(UnixMillis)));
    (types, ".*", option::of(".*"), times, option::of(any::<u64>().prop_map(UnixMillis)), option::of(groups)).prop_map(
        |(rule_type, source, uuid, (unwanted, outnumbered_since), restored_at, groups)| RecordedRule {
            rule_type,
            source,
            uuid,
            unwanted,
            outnumbered_since,
            restored_at,
            groups,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases()) })]

    #[test]
    fn a_record_round_trips_unchanged(rules in btree_map(".*", owned_rule().prop_map(Arc::new), 0..6)) {
        let text = to_text(&rules);
        prop_assert_eq!(from_text(&text), Ok(rules));
    }

    #[test]
    fn a_truncated_or_invalid_record_is_an_error(text in ".*", cut in 0..400usize) {
        let rules = RecordedRules::from([("a".to_owned(), Arc::new(RecordedRule::intent(RuleType::VmAntiAffinity, text.clone())))]);
        let whole = to_text(&rules);
        let cut: String = whole.chars().take(cut).collect();
        prop_assert!(cut == whole || from_text(&cut).is_err());
        prop_assert!(from_text(&text).is_err());
    }

    /// Adopting finds all owned rules again; cleanup deletes exactly the owned rules.
    #[test]
    fn adoption_and_cleanup(mut site in site()) {
        let settings = at_once();
        let foreign: Vec<RuleFacts> = site.clusters.iter().flat_map(|cluster| cluster.rules.clone()).collect();
        let groups: Vec<GroupFacts> = site.clusters.iter().flat_map(|cluster| cluster.groups.clone()).collect();
        let owned = site.execute(&plan(&site.world(), &Record::default(), UnixMillis(0), &settings));
        let (adopted, record) = adopt(&site.world(), &Record::default());
        // Foreign rules with the prefix that cannot be distinguished from Bridger's own are adopted too.
        for (cluster, rules) in &owned.clusters {
            for name in rules.keys() {
                prop_assert!(adopted.iter().any(|rule| rule.cluster == *cluster && rule.rule == *name));
                prop_assert_eq!(&record.rule(cluster, name).expect("adopted").uuid, &rules[name].uuid);
            }
        }
        let prefix = drs::plan::rule_prefix(UID);
        prop_assert!(adopted.iter().all(|rule| rule.rule.starts_with(&prefix)));
        prop_assert_eq!(adopt(&site.world(), &record).0, vec![]);

        let cleaned = cleanup(&site.world(), &owned);
        prop_assert_eq!(cleaned.actions().count(), owned.len());
        let after = site.execute(&cleaned);
        prop_assert!(after.is_empty());
        let left: Vec<RuleFacts> = site.clusters.iter().flat_map(|cluster| cluster.rules.clone()).collect();
        prop_assert_eq!(left, foreign);
        let left: Vec<GroupFacts> = site.clusters.iter().flat_map(|cluster| cluster.groups.clone()).collect();
        prop_assert_eq!(left, groups);
    }
}

#[test]
fn an_invalid_record_is_an_error_that_names_the_position() {
    let error = |text: &str| from_text(text).expect_err("an error");
    assert_eq!(error(r#"{"version":2,"rules":{}}"#), RecordError::UnknownVersion { version: 2 });
    assert!(error(r#"{"rules":{}}"#).to_string().contains("version"));
    let wrong = r#"{"version":1,"rules":{"a":{"sort":"apart","source":7}}}"#;
    assert!(error(wrong).to_string().contains("column"), "{}", error(wrong));
    assert!(matches!(error(&"x".repeat(2 << 20)), RecordError::TooLarge { .. }));
    let later = r#"{"version":1,"new":1,"rules":{"a":{"sort":"onHosts","source":"s","later":[1]}}}"#;
    assert_eq!(from_text(later).expect("read")["a"].rule_type, RuleType::VmHost);
}

#[test]
fn a_thousand_rules_fit() {
    let rule = |number: usize| {
        let rule = RecordedRule {
            uuid: Some(uuid::Uuid::from_u128(number as u128).to_string()),
            ..RecordedRule::intent(RuleType::VmAntiAffinity, format!("{number:016x}"))
        };
        (format!("bridger-{UID}-{number:016x}"), Arc::new(rule))
    };
    let text = to_text(&(0..1000).map(rule).collect());
    assert!(text.len() < 300_000, "{}", text.len());
}

#[test]
fn an_adopted_rule_is_managed_again() {
    let mut site = Site::new(5, &[0, 1, 2, 3]);
    site.pods = (0..3).map(|number| lonely("web", number, number)).collect();
    let settings = DrsSettings::default();
    site.execute(&plan(&site.world(), &Record::default(), UnixMillis(0), &settings));
    let (adopted, record) = adopt(&site.world(), &Record::default());
    assert_eq!((adopted.len(), &adopted[0].vms), (1, &vec![vm_id(0), vm_id(1), vm_id(2)]));
    let after = plan(&site.world(), &record, UnixMillis(0), &settings);
    assert!(after.is_empty() && after.findings.is_empty(), "{:?}", after.findings);
    site.pods[0].node = Some(node_name(3));
    let edited = plan(&site.world(), &after.record, UnixMillis(0), &settings);
    assert!(matches!(edited.actions().next(), Some((_, RuleChange { kind: ChangeKind::Edit { .. }, .. }))));
}
