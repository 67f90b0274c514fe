//! The rules and groups of a cluster as govc shows them. All tests here check against it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::Govc;

pub const ANTI_AFFINITY: &str = "ClusterAntiAffinityRuleSpec";
pub const AFFINITY: &str = "ClusterAffinityRuleSpec";
pub const VM_HOST: &str = "ClusterVmHostRuleInfo";
/// The field to which the kind of a rule is added.
const KIND: &str = "kind";
const ATTEMPTS: usize = 5;

/// Rules and groups by name, without the fields that depend on the placement of VMs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Witness {
    pub rules: BTreeMap<String, Value>,
    pub groups: BTreeMap<String, Value>,
}

impl Witness {
    pub async fn of(govc: &Govc, cluster: &str, cluster_path: &str) -> Result<Witness> {
        // Two commands, because govc's JSON has no kind of a rule. If rules change in between, both are repeated.
        let mut attempt = 1;
        loop {
            let json = govc.run(&["object.collect", "-o", "-json", cluster_path, "configurationEx"]).await?;
            let kinds = kinds(&govc.run(&["cluster.rule.info", "-cluster", cluster]).await?);
            match Witness::read(serde_json::from_str(&json)?, &kinds) {
                Err(_) if attempt < ATTEMPTS => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    fn read(mut config: Value, kinds: &BTreeMap<String, String>) -> Result<Witness> {
        let mut named = |field: &str| -> Result<BTreeMap<String, Value>> {
            let entries = match config["configurationEx"][field].take() {
                Value::Array(entries) => entries,
                _ => Vec::new(),
            };
            let count = entries.len();
            let mut by_name = BTreeMap::new();
            for mut entry in entries {
                entry.as_object_mut().map(|entry| entry.remove("inCompliance"));
                by_name.insert(entry["name"].as_str().context("a name")?.to_owned(), entry);
            }
            ensure!(by_name.len() == count, "two entries of {field} have the same name: {by_name:?}");
            Ok(by_name)
        };
        let (mut rules, groups) = (named("rule")?, named("group")?);
        ensure!(rules.keys().eq(kinds.keys()), "rules changed while they were read: {rules:?}, {kinds:?}");
        for (name, rule) in &mut rules {
            rule[KIND] = Value::from(kinds[name].as_str());
        }
        Ok(Witness { rules, groups })
    }

    /// The rules and groups with this prefix.
    pub fn own(&self, prefix: &str) -> Witness {
        self.filter(|name| name.starts_with(prefix))
    }

    /// The rules and groups with none of these names.
    pub fn without(&self, others: &Witness) -> Witness {
        self.filter(|name| !others.rules.contains_key(name) && !others.groups.contains_key(name))
    }

    /// The rules and groups with one of these names.
    pub fn only(&self, names: &BTreeSet<String>) -> Witness {
        self.filter(|name| names.contains(name))
    }

    fn filter(&self, keep: impl Fn(&str) -> bool) -> Witness {
        let of = |entries: &BTreeMap<String, Value>| {
            let kept = entries.iter().filter(|(name, _)| keep(name));
            kept.map(|(name, entry)| (name.clone(), entry.clone())).collect()
        };
        Witness { rules: of(&self.rules), groups: of(&self.groups) }
    }

    pub fn names(&self) -> BTreeSet<String> {
        self.rules.keys().chain(self.groups.keys()).cloned().collect()
    }

    pub fn of_kind(&self, kind: &str) -> Vec<&Value> {
        self.rules.values().filter(|rule| is_a(rule, kind)).collect()
    }
}

pub fn is_a(rule: &Value, kind: &str) -> bool {
    rule[KIND] == kind
}

/// Kinds by name, from the output of `govc cluster.rule.info`.
fn kinds(printed: &str) -> BTreeMap<String, String> {
    let mut name = "";
    let mut kinds = BTreeMap::new();
    for line in printed.lines() {
        if let Some(rule) = line.strip_prefix("Rule: ") {
            name = rule;
        } else if let Some(kind) = line.strip_prefix("  Type: ") {
            kinds.insert(name.to_owned(), kind.to_owned());
        }
    }
    kinds
}

/// The ids in a field with a list of references.
pub fn ids(entry: &Value, field: &str) -> BTreeSet<String> {
    let listed = entry[field].as_array().into_iter().flatten();
    listed.filter_map(|reference| reference["value"].as_str().map(str::to_owned)).collect()
}

/// A rule's key and UUID, which distinguish it from another rule of the same name.
pub fn identity(rule: &Value) -> (Option<i64>, Option<String>) {
    (rule["key"].as_i64(), rule["ruleUuid"].as_str().map(str::to_owned))
}
