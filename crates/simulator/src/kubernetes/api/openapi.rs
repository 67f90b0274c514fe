//! OpenAPI v3: only the part that kubectl reads before it sends a change.
//!
//! kubectl checks whether the PATCH operation of a kind takes the parameters `fieldValidation` and `dryRun`. Schemas
//! are omitted; without them kubectl merges by its built-in types.

use serde_json::{Map, Value, json};

use super::discovery::group_versions;
use super::path::EVENTS_GROUP;
use crate::kubernetes::kinds::{KINDS, Kind, KindId};

#[must_use]
pub fn index() -> Value {
    let mut paths = Map::new();
    let mut add = |path: String| {
        let url = format!("/openapi/v3/{path}");
        paths.insert(path, json!({ "serverRelativeURL": url }));
    };
    add("api/v1".to_owned());
    for (group, version) in group_versions() {
        add(format!("apis/{group}/{version}"));
    }
    json!({ "paths": paths })
}

#[must_use]
pub fn document(group: &str, version: &str) -> Value {
    let prefix = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let kinds: Vec<&Kind> = if group == EVENTS_GROUP {
        vec![KindId::EVENT.kind()]
    } else {
        KINDS.iter().filter(|kind| kind.group == group && kind.version == version).collect()
    };
    let mut paths = Map::new();
    for kind in kinds {
        let scope = if kind.namespaced { "/namespaces/{namespace}" } else { "" };
        let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation", "force"]
            .iter()
            .map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string", "uniqueItems": true } }))
            .collect();
        let operation = json!({
            "operationId": format!("patch{}", kind.kind),
            "parameters": parameters,
            "responses": { "200": { "description": "OK" } },
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": { "group": group, "version": version, "kind": kind.kind },
        });
        paths.insert(format!("{prefix}{scope}/{}/{{name}}", kind.plural), json!({ "patch": operation }));
    }
    json!({
        "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": super::discovery::GIT_VERSION },
        "paths": paths, "components": { "schemas": {} },
    })
}
