//! Defaults for the parts of a pod: probes, environment, volumes.
//!
//! No types have been checked yet, so values that are not objects are skipped.

use serde_json::{Value, json};

use super::set_default;

pub(super) fn fill_in_container(container: &mut Value) {
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = object(container, probe) else { continue };
        set_default(probe, "timeoutSeconds", || json!(1));
        set_default(probe, "periodSeconds", || json!(10));
        set_default(probe, "successThreshold", || json!(1));
        set_default(probe, "failureThreshold", || json!(3));
        if let Some(get) = object(probe, "httpGet") {
            set_default(get, "path", || json!("/"));
            set_default(get, "scheme", || json!("HTTP"));
        }
    }
    for variable in items(container, "env") {
        if let Some(reference) = object(variable, "valueFrom").and_then(|from| object(from, "fieldRef")) {
            set_default(reference, "apiVersion", || json!("v1"));
        }
    }
}

pub(super) fn fill_in_volumes(spec: &mut Value) {
    for volume in items(spec, "volumes") {
        for source in ["configMap", "secret", "projected", "downwardAPI"] {
            if let Some(source) = object(volume, source) {
                set_default(source, "defaultMode", || json!(0o644));
            }
        }
        if let Some(path) = object(volume, "hostPath") {
            set_default(path, "type", || json!(""));
        }
        let template = object(volume, "ephemeral").and_then(|source| object(source, "volumeClaimTemplate"));
        if let Some(claim) = template.and_then(|template| object(template, "spec")) {
            set_default(claim, "volumeMode", || json!("Filesystem"));
        }
        let Some(projected) = object(volume, "projected") else { continue };
        for source in items(projected, "sources") {
            if let Some(token) = object(source, "serviceAccountToken") {
                set_default(token, "expirationSeconds", || json!(3600));
            }
            fill_in_field_references(source);
        }
    }
    for volume in items(spec, "volumes") {
        fill_in_field_references(volume);
    }
}

fn fill_in_field_references(source: &mut Value) {
    let Some(files) = object(source, "downwardAPI") else { return };
    for file in items(files, "items") {
        if let Some(reference) = object(file, "fieldRef") {
            set_default(reference, "apiVersion", || json!("v1"));
        }
    }
}

pub(super) fn fill_in_claims(spec: &mut Value) {
    for claim in items(spec, "volumeClaimTemplates") {
        set_default(claim, "apiVersion", || json!("v1"));
        set_default(claim, "kind", || json!("PersistentVolumeClaim"));
        if let Some(claim_spec) = object(claim, "spec") {
            set_default(claim_spec, "volumeMode", || json!("Filesystem"));
        }
        set_default(claim, "status", || json!({ "phase": "Pending" }));
    }
}

fn object<'a>(parent: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    parent.get_mut(field).filter(|value| value.is_object())
}

fn items<'a>(parent: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = parent.get_mut(field).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter(|item| item.is_object())
}
