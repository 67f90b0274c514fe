//! The service account, and roles that allow what the parts that are on do and no more.
//!
//! The permissions are those that Bridger checks at its start ([`crate::service::startup::needs`]), the only list of them.

use kubernetes::preflight::{Need, Scope};
use kubernetes::record_store::slot_names;
use model::{Part, Parts};

use super::{cluster_object, object};
use crate::install::template::{Condition, Entry, Item, Template, Yaml, is, list, literal, map, namespace, text};
use crate::service::startup::{Purpose, needs};

/// The value that turns a part on.
fn switch(part: Part) -> &'static str {
    match part {
        Part::NodeLabels => "parts.labels",
        Part::DrsRules => "parts.rules",
        Part::Extender => "parts.extender",
        Part::Scheduling => "parts.scheduling",
    }
}

pub fn objects() -> Vec<Template> {
    let mut account = object("v1", "ServiceAccount", "{name}");
    account = account.with([Entry::Key("automountServiceAccountToken", literal(false))]);
    let of = |file, object| Template { file, when: None, object };
    vec![
        of("service-account", account),
        of("cluster-role", rules(cluster_object(RBAC, "ClusterRole", "{name}"), &[Scope::AllNamespaces])),
        of("cluster-role-binding", binding(cluster_object(RBAC, "ClusterRoleBinding", "{name}"), "ClusterRole")),
        of("role", rules(object(RBAC, "Role", "{name}"), &[Scope::OwnNamespace, Scope::RecordObjects])),
        of("role-binding", binding(object(RBAC, "RoleBinding", "{name}"), "Role")),
    ]
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn binding(object: Yaml, role: &'static str) -> Yaml {
    let subject = map([("kind", literal("ServiceAccount")), ("name", text("{name}")), ("namespace", namespace())]);
    let role =
        map([("apiGroup", literal("rbac.authorization.k8s.io")), ("kind", literal(role)), ("name", text("{name}"))]);
    object.with([Entry::Key("roleRef", role), Entry::Key("subjects", list([subject]))])
}

/// One rule for each resource and the parts that need it.
fn rules(object: Yaml, scopes: &[Scope]) -> Yaml {
    let always = needs(Purpose::Run, Parts::NONE, false);
    let mut rules: Vec<(Need, Vec<Part>, Vec<&'static str>)> = Vec::new();
    for (need, parts) in by_part().into_iter().filter(|(need, _)| scopes.contains(&need.scope)) {
        let same = |(rule, of, _): &&mut (Need, Vec<Part>, Vec<&str>)| {
            (rule.group, rule.resource, rule.scope, of, always.contains(rule))
                == (need.group, need.resource, need.scope, &parts, always.contains(&need))
        };
        match rules.iter_mut().find(same) {
            Some((.., verbs)) => verbs.push(need.verb),
            None => rules.push((need, parts, vec![need.verb])),
        }
    }
    let items = rules.into_iter().map(|(need, parts, verbs)| {
        let rule = map([
            ("apiGroups", list([literal(need.group)])),
            ("resources", list([literal(need.resource)])),
            ("verbs", list(verbs.into_iter().map(literal))),
        ]);
        // Only the ConfigMaps of the rule record, as in `bridger manifests rbac`.
        let names = (need.scope == Scope::RecordObjects).then(|| list(slot_names().map(literal)));
        let rule = rule.with(names.map(|names| Entry::Key("resourceNames", names)));
        let any = parts.iter().map(|part| is(switch(*part))).collect();
        // Some things are watched whatever is on.
        if always.contains(&need) { Item::One(rule) } else { Item::When(Condition::Any(any), vec![Item::One(rule)]) }
    });
    object.with([Entry::Key("rules", Yaml::List(items.collect()))])
}

/// Every permission, with the parts of which each one needs it.
fn by_part() -> Vec<(Need, Vec<Part>)> {
    let mut found: Vec<(Need, Vec<Part>)> = Vec::new();
    for part in Part::ALL {
        for need in needs(Purpose::Run, Parts::from(part), false) {
            match found.iter_mut().find(|(known, _)| *known == need) {
                Some((_, parts)) => parts.push(part),
                None => found.push((need, vec![part])),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::install::{objects_with, values::put};

    /// The chart adds up what single parts need; the startup check asks for the parts together.
    #[test]
    fn the_roles_allow_what_the_startup_checks_for_every_set_of_parts() {
        for set in 0..1 << Part::ALL.len() {
            let on = Part::ALL.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
            let on: Vec<Part> = on.map(|(_, part)| *part).collect();
            let mut values = json!({});
            for part in Part::ALL {
                put(&mut values, switch(part), json!(on.contains(&part)));
            }
            let objects = objects_with(&values, "bridger-system").expect("objects");
            // Whether the rule names objects, group, resource and verb.
            let allowed = |kind: &str| -> BTreeSet<(bool, String, String, String)> {
                let role = objects.iter().find(|object| object["kind"] == kind).expect(kind);
                let text = |value: &Value| value[0].as_str().expect("text").to_owned();
                let rules = role["rules"].as_array().into_iter().flatten();
                let verbs = rules.flat_map(|rule| {
                    let names: Vec<String> = serde_json::from_value(rule["resourceNames"].clone()).unwrap_or_default();
                    assert!(names.is_empty() || names == slot_names().collect::<Vec<_>>(), "{rule}");
                    let of = (!names.is_empty(), text(&rule["apiGroups"]), text(&rule["resources"]));
                    let verbs = rule["verbs"].as_array().expect("verbs").iter();
                    verbs.map(move |verb| (of.0, of.1.clone(), of.2.clone(), verb.as_str().expect("a verb").to_owned()))
                });
                verbs.collect()
            };
            let parts = on.iter().fold(Parts::NONE, |parts, part| parts.with(*part, true));
            for (kind, scopes) in
                [("ClusterRole", &[Scope::AllNamespaces][..]), ("Role", &[Scope::OwnNamespace, Scope::RecordObjects])]
            {
                let needed = needs(Purpose::Run, parts, false).into_iter().filter(|need| scopes.contains(&need.scope));
                let of = |need: Need| {
                    let is_named = need.scope == Scope::RecordObjects;
                    (is_named, need.group.to_owned(), need.resource.to_owned(), need.verb.to_owned())
                };
                assert_eq!(allowed(kind), needed.map(of).collect(), "{kind} for {on:?}");
            }
        }
    }
}
