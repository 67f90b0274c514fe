//! Discovery: groups, versions, resources and verbs. All derived from the table of kinds.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::path::EVENTS_GROUP;
use crate::kubernetes::kinds::{KINDS, Kind, KindId};

const OBJECT_VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The Kubernetes version that the API imitates.
pub const GIT_VERSION: &str = "v1.36.4";

#[must_use]
pub fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
    })
}

#[must_use]
pub fn core_versions() -> Value {
    json!({ "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1" }] })
}

/// The groups other than the core group, with their versions.
#[must_use]
pub fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut versions: BTreeSet<(&str, &str)> =
        KINDS.iter().filter(|kind| !kind.group.is_empty()).map(|kind| (kind.group, kind.version)).collect();
    versions.insert((EVENTS_GROUP, "v1"));
    versions.into_iter().collect()
}

#[must_use]
pub fn group(name: &str) -> Value {
    let versions: Vec<Value> = group_versions()
        .into_iter()
        .filter(|(group, _)| *group == name)
        .map(|(group, version)| json!({ "groupVersion": format!("{group}/{version}"), "version": version }))
        .collect();
    json!({ "kind": "APIGroup", "apiVersion": "v1", "name": name, "preferredVersion": versions.first(), "versions": versions })
}

#[must_use]
pub fn groups() -> Value {
    let names: BTreeSet<&str> = group_versions().into_iter().map(|(group, _)| group).collect();
    let groups: Vec<Value> = names
        .into_iter()
        .map(|name| {
            let mut group = group(name);
            if let Some(group) = group.as_object_mut() {
                group.remove("kind");
                group.remove("apiVersion");
            }
            group
        })
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// The kinds that a group and version serve. Events are served in two groups.
fn kinds_of(group: &str, version: &str) -> Vec<&'static Kind> {
    if group == EVENTS_GROUP {
        return vec![KindId::EVENT.kind()];
    }
    KINDS.iter().filter(|kind| kind.group == group && kind.version == version).collect()
}

/// A subresource's kind (group, version, name) and verbs.
fn subresource(kind: &Kind, name: &str) -> (&'static str, &'static str, String, &'static [&'static str]) {
    match name {
        "scale" => ("autoscaling", "v1", "Scale".to_owned(), &["get", "patch", "update"]),
        "eviction" => ("policy", "v1", "Eviction".to_owned(), &["create"]),
        "binding" => ("", "", "Binding".to_owned(), &["create"]),
        _ => ("", "", kind.kind.to_owned(), &["get", "patch", "update"]),
    }
}

/// `/api/v1`, `/apis/<group>/<version>`
#[must_use]
pub fn resources(group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    if group.is_empty() {
        resources.push(json!({
            "name": "bindings", "singularName": "binding", "namespaced": true, "kind": "Binding", "verbs": ["create"],
        }));
    }
    for kind in kinds_of(group, version) {
        let mut resource = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": OBJECT_VERBS,
        });
        if !kind.short_names.is_empty() {
            resource["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            resource["categories"] = json!(kind.categories);
        }
        resources.push(resource);
        for name in kind.subresources {
            let (sub_group, sub_version, sub_kind, verbs) = subresource(kind, name);
            let mut resource = json!({
                "name": format!("{}/{name}", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "kind": sub_kind, "verbs": verbs,
            });
            if !sub_group.is_empty() {
                resource["group"] = json!(sub_group);
                resource["version"] = json!(sub_version);
            }
            resources.push(resource);
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources })
}

/// `/api` or `/apis`, all in one document.
#[must_use]
pub fn aggregated(core: bool) -> Value {
    let items: Vec<Value> = if core {
        vec![aggregated_group("", "v1")]
    } else {
        group_versions().into_iter().map(|(group, version)| aggregated_group(group, version)).collect()
    };
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items })
}

fn aggregated_group(group: &str, version: &str) -> Value {
    let response_kind =
        |group: &str, version: &str, kind: &str| json!({ "group": group, "version": version, "kind": kind });
    let mut resources = Vec::new();
    if group.is_empty() {
        resources.push(json!({
            "resource": "bindings", "responseKind": response_kind("", "v1", "Binding"), "scope": "Namespaced",
            "singularResource": "binding", "verbs": ["create"],
        }));
    }
    for kind in kinds_of(group, version) {
        let subresources: Vec<Value> = kind
            .subresources
            .iter()
            .map(|name| {
                let (sub_group, sub_version, sub_kind, verbs) = subresource(kind, name);
                let response = if sub_version.is_empty() {
                    response_kind(group, version, &sub_kind)
                } else {
                    response_kind(sub_group, sub_version, &sub_kind)
                };
                json!({ "subresource": name, "responseKind": response, "verbs": verbs })
            })
            .collect();
        let mut resource = json!({
            "resource": kind.plural, "responseKind": response_kind(group, version, kind.kind),
            "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": kind.singular, "verbs": OBJECT_VERBS,
        });
        if !kind.short_names.is_empty() {
            resource["shortNames"] = json!(kind.short_names);
        }
        if !kind.categories.is_empty() {
            resource["categories"] = json!(kind.categories);
        }
        if !subresources.is_empty() {
            resource["subresources"] = json!(subresources);
        }
        resources.push(resource);
    }
    let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
    json!({ "metadata": metadata, "versions": [{ "version": version, "resources": resources, "freshness": "Current" }] })
}
