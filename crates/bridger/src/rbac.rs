//! The Kubernetes service account and roles with exactly the permissions that Bridger needs.
//!
//! In: the permissions that Bridger checks at startup ([`crate::service::startup::needs`]), the only list of them.
//! Out: a service account with roles that allow exactly these, as YAML.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use kubernetes::preflight::{Need, Scope};

/// The service account and its namespaces.
#[derive(Clone, Debug)]
pub struct Account<'a> {
    /// Name of the service account, its roles and their bindings.
    pub name: &'a str,
    pub namespace: &'a str,
    /// Namespace of the rule record.
    pub record_namespace: &'a str,
    /// The ConfigMaps of the rule record.
    pub record_objects: &'a [String],
}

/// The YAML documents for these permissions.
pub fn to_yaml(needs: &[Need], account: &Account<'_>) -> String {
    let Account { name, namespace, record_namespace, record_objects } = *account;
    let (name, namespace) = (quoted(name), quoted(namespace));
    let mut text =
        format!("apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {name}\n  namespace: {namespace}\n");
    for (scope, kind, place) in [
        (Scope::AllNamespaces, "ClusterRole", String::new()),
        (Scope::OwnNamespace, "Role", format!("  namespace: {}\n", quoted(record_namespace))),
    ] {
        let is_own = scope == Scope::OwnNamespace;
        let mut rules = rules(needs.iter().filter(|need| need.scope == scope), &[]);
        if is_own {
            let of_record = needs.iter().filter(|need| need.scope == Scope::RecordObjects);
            rules.push_str(&self::rules(of_record, record_objects));
        }
        if rules.is_empty() {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "---
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}
metadata:
  name: {name}
{place}rules:
{rules}---
apiVersion: rbac.authorization.k8s.io/v1
kind: {kind}Binding
metadata:
  name: {name}
{place}roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {kind}
  name: {name}
subjects:
  - kind: ServiceAccount
    name: {name}
    namespace: {namespace}
"
        );
    }
    text
}

const NAMES_PER_LINE: usize = 6;

/// One rule for all resources of a group with the same verbs; with names, for these objects alone.
fn rules<'a>(needs: impl Iterator<Item = &'a Need>, names: &[String]) -> String {
    let mut verbs: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for need in needs {
        verbs.entry((need.group, need.resource)).or_default().insert(need.verb);
    }
    let mut resources: BTreeMap<(&str, Vec<&str>), Vec<&str>> = BTreeMap::new();
    for ((group, resource), verbs) in verbs {
        resources.entry((group, verbs.into_iter().collect())).or_default().push(resource);
    }
    let list = |words: &[&str]| words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", ");
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let lines: Vec<String> = names.chunks(NAMES_PER_LINE).map(&list).collect();
    let lines = lines.join(",\n        ");
    let names = if names.is_empty() { String::new() } else { format!("    resourceNames:\n      [ {lines} ]\n") };
    let rules = resources.iter().map(|((group, verbs), resources)| {
        format!(
            "  - apiGroups: [{}]\n    resources: [{}]\n{names}    verbs: [{}]\n",
            quoted(group),
            list(resources),
            list(verbs)
        )
    });
    rules.collect()
}

/// A YAML string in double quotes. Every JSON string is a valid YAML string.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::service::startup::{Purpose, needs};
    use model::Parts;

    fn documents(needs: &[Need]) -> Vec<Value> {
        documents_naming(needs, &["bridger-rules-0".to_owned()])
    }

    fn documents_naming(needs: &[Need], record_objects: &[String]) -> Vec<Value> {
        let account = Account { name: "bridger: x", namespace: "here", record_namespace: "there", record_objects };
        let text = to_yaml(needs, &account);
        text.split("---\n").map(|document| serde_saphyr::from_str(document).expect(document)).collect()
    }

    /// Verb, group, resource and scope of every permission in the roles.
    fn allowed(documents: &[Value]) -> BTreeSet<(String, String, String, bool)> {
        let words = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(|word| Some(word.as_str()?.to_owned())).collect()
        };
        let mut allowed = BTreeSet::new();
        for document in documents {
            let is_own = document["kind"] == "Role";
            for rule in document["rules"].as_array().into_iter().flatten() {
                for verb in words(&rule["verbs"]) {
                    for group in words(&rule["apiGroups"]) {
                        for resource in words(&rule["resources"]) {
                            allowed.insert((verb.clone(), group.clone(), resource, is_own));
                        }
                    }
                }
            }
        }
        allowed
    }

    #[test]
    fn number_10_the_role_names_the_objects_of_the_record() {
        let needs = needs(Purpose::Run, Parts::RUN, false);
        let names = ["bridger-rules-1".to_owned(), "bridger-rules-2".to_owned()];
        let named = documents_naming(&needs, &names);
        assert_eq!(allowed(&named), allowed(&documents(&needs)));
        let role = named.iter().find(|document| document["kind"] == "Role").expect("a role");
        for rule in role["rules"].as_array().expect("rules") {
            let changes = rule["verbs"].as_array().expect("verbs").iter().any(|verb| verb == "update");
            let is_named = rule["resourceNames"] == serde_json::json!(names);
            assert!(rule["resources"] != serde_json::json!(["configmaps"]) || changes == is_named, "{rule}");
        }
    }

    #[test]
    fn roles_allow_exactly_what_is_checked_at_startup() {
        for purpose in [Purpose::Run, Purpose::Schedule, Purpose::Snapshot] {
            let needs = needs(purpose, Parts::RUN, false);
            let documents = documents(&needs);
            let checked = needs.iter().map(|need| {
                let is_own = need.scope != Scope::AllNamespaces;
                (need.verb.to_owned(), need.group.to_owned(), need.resource.to_owned(), is_own)
            });
            assert_eq!(allowed(&documents), checked.collect(), "{purpose:?}");
            let kinds: Vec<&str> = documents.iter().filter_map(|document| document["kind"].as_str()).collect();
            let of_all = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"];
            assert_eq!(kinds, [&of_all[..], &["Role", "RoleBinding"]].concat(), "{purpose:?}");
            for document in &documents {
                assert_eq!(document["metadata"]["name"], "bridger: x");
                let namespace = match document["kind"].as_str() {
                    Some("ServiceAccount") => Value::from("here"),
                    Some("Role" | "RoleBinding") => Value::from("there"),
                    _ => Value::Null,
                };
                assert_eq!(document["metadata"]["namespace"], namespace);
            }
        }
    }
}
