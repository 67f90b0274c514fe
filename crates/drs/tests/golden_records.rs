//! Records as they are stored in ConfigMaps: the files in `tests/golden/records` are read correctly and written again
//! byte for byte. Clusters contain such records, so none may ever become unreadable.

#[path = "../../../tests/golden/golden.rs"]
mod golden;

use std::sync::Arc;

use drs::record::{from_text, to_text};
use drs::*;

const PREFIX: &str = "bridger-6f1c2f0e-0a7b-4c5e-9d55-3b1f0e5a7c01-";

fn rules(all: impl IntoIterator<Item = (&'static str, RecordedRule)>) -> RecordedRules {
    all.into_iter().map(|(digest, rule)| (format!("{PREFIX}{digest}"), Arc::new(rule))).collect()
}

fn intent(rule_type: RuleType) -> RecordedRule {
    RecordedRule::intent(rule_type, "00c0ffee00c0ffee".to_owned())
}

fn made(rule_type: RuleType) -> RecordedRule {
    RecordedRule { uuid: Some("5235b1a2-6f0e-4d3c-8d3a-0a1b2c3d4e5f".to_owned()), ..intent(rule_type) }
}

fn bound(rule: RecordedRule, digest: &str) -> RecordedRule {
    let name = format!("{PREFIX}{digest}");
    RecordedRule { groups: Some(RecordedGroups { vms: format!("{name}-vms"), hosts: format!("{name}-hosts") }), ..rule }
}

fn unwanted(since: u64, vms: &[&str]) -> Option<Unwanted> {
    Some(Unwanted { since: UnixMillis(since), vms: vms.iter().map(|&vm| vm.to_owned()).collect() })
}

/// The golden files, and the content of each.
fn records() -> Vec<(&'static str, RecordedRules)> {
    use RuleType::{VmAffinity as Together, VmAntiAffinity as Apart, VmHost as OnHosts};
    let (a, b, c) = ("0123456789abcdef", "89abcdef01234567", "fedcba9876543210");
    vec![
        ("none", RecordedRules::new()),
        ("intents", rules([(a, intent(Apart)), (b, intent(Together)), (c, bound(intent(OnHosts), c))])),
        ("made", rules([(a, made(Apart)), (b, made(Together)), (c, bound(made(OnHosts), c))])),
        (
            "unwanted",
            rules([
                (a, RecordedRule { unwanted: unwanted(1_767_225_600_000, &["vm-101", "vm-102"]), ..made(Apart) }),
                // None of its VMs is a node any more.
                (b, RecordedRule { unwanted: unwanted(0, &[""]), ..made(Together) }),
                (c, RecordedRule { unwanted: unwanted(u64::MAX, &[]), ..bound(made(OnHosts), c) }),
            ]),
        ),
        (
            "waiting",
            rules([
                (a, RecordedRule { outnumbered_since: Some(UnixMillis(1_767_225_600_000)), ..made(Apart) }),
                (b, RecordedRule { restored_at: Some(UnixMillis::UNKNOWN), ..intent(Together) }),
            ]),
        ),
        (
            "everything",
            rules([(
                c,
                RecordedRule {
                    unwanted: unwanted(1_767_225_600_000, &["vm-101"]),
                    outnumbered_since: Some(UnixMillis(1)),
                    restored_at: Some(UnixMillis::UNKNOWN),
                    ..bound(made(OnHosts), c)
                },
            )]),
        ),
        ("restored", restored()),
        (
            "texts",
            RecordedRules::from([(
                "a \"name\"\\ of\u{1f5a5} any\tkind".to_owned(),
                Arc::new(RecordedRule { uuid: Some(String::new()), ..RecordedRule::intent(Apart, "süß".to_owned()) }),
            )]),
        ),
    ]
}

#[test]
fn golden_records_are_read_and_written_unchanged() {
    for (name, rules) in records() {
        let file = format!("records/{name}.json");
        golden::assert_same(&file, &format!("{}\n", to_text(&rules)));
        assert_eq!(from_text(golden::read(&file).trim_end_matches('\n')), Ok(rules), "{file}");
    }
}

/// What the release before this one reads of a rule: of a restored rule the flag, not the time.
#[derive(Debug, PartialEq, serde::Deserialize)]
struct PreviousRule {
    sort: String,
    source: String,
    uuid: Option<String>,
    unwanted: Option<serde_json::Value>,
    #[serde(rename = "outnumberedSince")]
    outnumbered_since: Option<u64>,
    #[serde(default)]
    restored: bool,
    groups: Option<serde_json::Value>,
}

#[derive(serde::Deserialize)]
struct PreviousText {
    version: u64,
    rules: std::collections::BTreeMap<String, PreviousRule>,
}

/// A rule with every field, as this version writes it and the one before wrote it.
fn restored() -> RecordedRules {
    let rule = RecordedRule {
        unwanted: unwanted(1_767_225_600_000, &["vm-101"]),
        outnumbered_since: Some(UnixMillis(1)),
        restored_at: Some(UnixMillis(1_767_225_600_000)),
        ..bound(made(RuleType::VmHost), "fedcba9876543210")
    };
    rules([("fedcba9876543210", rule)])
}

#[test]
fn number_9_a_record_of_this_version_is_read_by_the_release_before() {
    let previous: PreviousText = serde_json::from_str(&to_text(&restored())).expect("readable");
    let rule = previous.rules.values().next().expect("the rule");
    assert_eq!((previous.version, previous.rules.len()), (1, 1));
    assert_eq!((rule.sort.as_str(), rule.source.as_str()), ("onHosts", "00c0ffee00c0ffee"));
    assert_eq!(rule.uuid.as_deref(), Some("5235b1a2-6f0e-4d3c-8d3a-0a1b2c3d4e5f"));
    // Without it, the release before would create a rule a third time that was deleted twice.
    assert!(rule.restored);
    assert_eq!(rule.outnumbered_since, Some(1));
    assert_eq!(rule.unwanted, Some(serde_json::json!({ "since": 1_767_225_600_000u64, "vms": ["vm-101"] })));
    assert!(rule.groups.is_some());
}

#[test]
fn number_9_a_record_of_the_release_before_is_read_and_of_a_newer_one_refused() {
    // The release before wrote the flag alone, and its own later fields may follow.
    let text =
        golden::read("records/everything.json").replacen("\"restored\":true", "\"restored\":true,\"later\":[1]", 1);
    let found = from_text(text.trim_end()).expect("readable");
    let rule = found.values().next().expect("the rule");
    assert_eq!(rule.restored_at, Some(UnixMillis::UNKNOWN));
    assert!(to_text(&found).contains("\"restored\":true"), "the flag stays");

    let newer = golden::read("records/newer.json");
    let refused = from_text(newer.trim_end()).expect_err("refused").to_string();
    assert_eq!(
        refused,
        "the record has version 2, and this Bridger knows only version 1: use the Bridger that wrote it"
    );
}

/// No file may be left out because the list above does not name it.
#[test]
fn every_golden_record_is_tested() {
    let known = records().iter().map(|(name, _)| format!("{name}.json")).collect::<Vec<_>>();
    let known = [known, vec!["newer.json".to_owned()]].concat();
    for entry in std::fs::read_dir(golden::path("records")).expect("the folder") {
        let name = entry.expect("a file").file_name().into_string().expect("a name");
        assert!(known.contains(&name), "{name}");
    }
}
