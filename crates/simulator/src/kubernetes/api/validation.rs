//! Validation as in a real server: names, labels, missing and immutable fields.
//!
//! In: an object that has passed [`shape`](super::shape) and has its defaults. Out: all invalid fields.

mod pod_status;
mod priority;
mod storage;

use serde_json::{Value, json};

use super::{body, patch};
use crate::kubernetes::error::{ApiError, FieldError};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::label_selector::LabelSelector;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_KEY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const POD_SPEC_FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
/// A real server's limit on the total size of an object's annotations.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// Validates a new object.
pub fn check_new(kind: KindId, object: &Value) -> Result<(), ApiError> {
    check_size(object)?;
    let mut errors = Vec::new();
    check_metadata(kind, object, &mut errors);
    check_content(kind, object, &mut errors);
    finish(kind, object, errors)
}

/// An object must not exceed the request limit, even after several patches.
pub fn check_size(object: &Value) -> Result<(), ApiError> {
    if patch::measure(object).0 <= body::BYTES_MAX {
        return Ok(());
    }
    Err(ApiError::TooLarge(format!("Request entity too large: limit is {}", body::BYTES_MAX)))
}

/// Validates an updated object against its previous state.
pub fn check_changed(kind: KindId, before: &Value, object: &Value) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    check_labels_and_annotations(object, "metadata", &mut errors);
    check_content(kind, object, &mut errors);
    match kind {
        KindId::POD if errors.is_empty() => check_pod_spec_kept(&before["spec"], &object["spec"], &mut errors),
        KindId::DEPLOYMENT | KindId::REPLICA_SET if object["spec"]["selector"] != before["spec"]["selector"] => {
            errors.push(immutable("spec.selector", &object["spec"]["selector"]));
        }
        KindId::STATEFUL_SET => check_stateful_set_kept(&before["spec"], &object["spec"], &mut errors),
        KindId::PRIORITY_CLASS => priority::check_kept(before, object, &mut errors),
        KindId::SECRET if object["type"] != before["type"] => errors.push(immutable("type", &object["type"])),
        KindId::CONFIG_MAP if before["immutable"] == true && object["data"] != before["data"] => {
            errors.push(FieldError::forbidden("data", "field is immutable when `immutable` is set"));
        }
        _ => storage::check_kept(kind, before, object, &mut errors),
    }
    finish(kind, object, errors)
}

/// Validates a write to `status` against the previous state.
pub fn check_status_changed(kind: KindId, before: &Value, object: &Value) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    if kind == KindId::POD {
        pod_status::check_kept(before, object, &mut errors);
    }
    finish(kind, object, errors)
}

fn finish(kind: KindId, object: &Value, errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(kind, object["metadata"]["name"].as_str().unwrap_or_default(), errors))
}

fn immutable(field: &str, value: &Value) -> FieldError {
    FieldError::invalid(field, value, "field is immutable")
}

fn check_metadata(kind: KindId, object: &Value, errors: &mut Vec<FieldError>) {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let prefix = metadata["generateName"].as_str().unwrap_or_default();
    // A generated name consists of its prefix and characters that are always valid.
    let (field, candidate) =
        if name.is_empty() { ("generateName", prefix.trim_end_matches(['-', '.'])) } else { ("name", name) };
    let one_label = matches!(kind, KindId::NAMESPACE | KindId::SERVICE);
    if !candidate.is_empty() {
        let (fine, rule) = if one_label {
            (is_dns_label(candidate) && candidate.len() <= 63, LABEL)
        } else {
            (is_dns_subdomain(candidate), SUBDOMAIN)
        };
        if !fine {
            errors.push(FieldError::invalid(format!("metadata.{field}"), &metadata[field], rule));
        }
    }
    check_labels_and_annotations(object, "metadata", errors);
}

fn check_labels_and_annotations(object: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let metadata = &object["metadata"];
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        if !is_qualified_name(key) {
            errors.push(FieldError::invalid(format!("{place}.labels"), &json!(key), LABEL_KEY));
        }
        let value = value.as_str().unwrap_or_default();
        if !is_label_value(value) {
            errors.push(FieldError::invalid(format!("{place}.labels"), &json!(value), LABEL_VALUE));
        }
    }
    let mut annotation_bytes = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        annotation_bytes += key.len() + value.as_str().unwrap_or_default().len();
        if !is_qualified_name(&key.to_ascii_lowercase()) {
            errors.push(FieldError::invalid(format!("{place}.annotations"), &json!(key), LABEL_KEY));
        }
    }
    if annotation_bytes > ANNOTATIONS_BYTES_MAX {
        let detail = format!("may not be more than {ANNOTATIONS_BYTES_MAX} bytes");
        errors.push(FieldError::invalid(format!("{place}.annotations"), &json!(""), &detail));
    }
}

fn check_content(kind: KindId, object: &Value, errors: &mut Vec<FieldError>) {
    match kind {
        KindId::POD => check_pod_spec(&object["spec"], "spec", errors),
        KindId::DEPLOYMENT | KindId::REPLICA_SET | KindId::STATEFUL_SET => check_workload(&object["spec"], errors),
        KindId::SERVICE => check_service(&object["spec"], errors),
        KindId::POD_DISRUPTION_BUDGET => {
            let spec = &object["spec"];
            if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
                let detail = "minAvailable and maxUnavailable cannot be both set";
                errors.push(FieldError::invalid("spec", spec, detail));
            }
        }
        KindId::NODE => {
            for (index, taint) in object["spec"]["taints"].as_array().into_iter().flatten().enumerate() {
                let key = taint["key"].as_str().unwrap_or_default();
                if !is_qualified_name(key) {
                    errors.push(FieldError::invalid(format!("spec.taints[{index}].key"), &taint["key"], LABEL_KEY));
                }
                let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
                if !effects.contains(&taint["effect"].as_str().unwrap_or_default()) {
                    let field = format!("metadata.taints[{index}].effect");
                    errors.push(FieldError::not_supported(field, &taint["effect"], &effects));
                }
            }
        }
        KindId::EVENT => {
            let involved = object["involvedObject"]["namespace"].as_str().unwrap_or_default();
            let own = object["metadata"]["namespace"].as_str().unwrap_or_default();
            // Events on cluster-scoped objects are in `default`, or in a namespace that the reporter chooses.
            if !involved.is_empty() && involved != own {
                let value = &object["involvedObject"]["namespace"];
                let detail = "does not match event.namespace";
                errors.push(FieldError::invalid("involvedObject.namespace", value, detail));
            }
        }
        KindId::PRIORITY_CLASS => priority::check(object, errors),
        _ => storage::check(kind, object, errors),
    }
}

fn check_pod_spec(spec: &Value, place: &str, errors: &mut Vec<FieldError>) {
    let containers = spec["containers"].as_array().filter(|containers| !containers.is_empty());
    if containers.is_none() {
        errors.push(FieldError::required(format!("{place}.containers"), ""));
    }
    for list in ["containers", "initContainers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            let name = container["name"].as_str().unwrap_or_default();
            let field = |name: &str| format!("{place}.{list}[{index}].{name}");
            if name.is_empty() {
                errors.push(FieldError::required(field("name"), ""));
            } else if !is_dns_label(name) || name.len() > 63 {
                errors.push(FieldError::invalid(field("name"), &container["name"], LABEL));
            }
            if container["image"].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::required(field("image"), ""));
            }
        }
    }
    for (index, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        let source = &volume["persistentVolumeClaim"];
        if source.is_object() && source["claimName"].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(format!("{place}.volumes[{index}].persistentVolumeClaim.claimName"), ""));
        }
        let template = &volume["ephemeral"]["volumeClaimTemplate"];
        if template.is_object() {
            let field = format!("{place}.volumes[{index}].ephemeral.volumeClaimTemplate.spec");
            storage::check_claim(&template["spec"], &field, errors);
        }
    }
    for side in ["podAffinity", "podAntiAffinity"] {
        let required = &spec["affinity"][side]["requiredDuringSchedulingIgnoredDuringExecution"];
        for (index, term) in required.as_array().into_iter().flatten().enumerate() {
            if term["topologyKey"].as_str().unwrap_or_default().is_empty() {
                let field = format!(
                    "{place}.affinity.{side}.requiredDuringSchedulingIgnoredDuringExecution[{index}].topologyKey"
                );
                errors.push(FieldError::required(field, "can not be empty"));
            }
        }
    }
}

fn check_workload(spec: &Value, errors: &mut Vec<FieldError>) {
    if spec["replicas"].as_i64().is_some_and(|replicas| replicas < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.replicas", &spec["replicas"], detail));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    match LabelSelector::from_object(&spec["selector"]) {
        None => errors.push(FieldError::required("spec.selector", "")),
        Some(selector) if selector.is_empty() => {
            let detail = "empty selector is invalid for deployment";
            errors.push(FieldError::invalid("spec.selector", &spec["selector"], detail));
        }
        Some(selector) if !selector.matches(labels) => {
            let detail = "`selector` does not match template `labels`";
            errors.push(FieldError::invalid("spec.template.metadata.labels", labels, detail));
        }
        Some(_) => (),
    }
    if spec["strategy"]["type"] == "Recreate" && !spec["strategy"]["rollingUpdate"].is_null() {
        let detail = "may not be specified when strategy `type` is 'Recreate'";
        errors.push(FieldError::forbidden("spec.strategy.rollingUpdate", detail));
    }
    check_labels_and_annotations(&spec["template"], "spec.template", errors);
    check_pod_spec(&spec["template"]["spec"], "spec.template.spec", errors);
}

fn check_service(spec: &Value, errors: &mut Vec<FieldError>) {
    let headless = spec["clusterIP"] == "None";
    let external_name = spec["type"] == "ExternalName";
    let ports = spec["ports"].as_array().filter(|ports| !ports.is_empty());
    if ports.is_none() && !headless && !external_name {
        errors.push(FieldError::required("spec.ports", ""));
    }
    for (index, port) in ports.into_iter().flatten().enumerate() {
        if !port["port"].as_i64().is_some_and(|port| (1..=65_535).contains(&port)) {
            let detail = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(format!("spec.ports[{index}].port"), &port["port"], detail));
        }
    }
}

/// Only a few fields of a pod's spec can change.
fn check_pod_spec_kept(before: &Value, after: &Value, errors: &mut Vec<FieldError>) {
    for list in ["containers", "initContainers"] {
        let count = |spec: &Value| spec[list].as_array().map_or(0, Vec::len);
        if count(before) != count(after) {
            let detail = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(format!("spec.{list}"), detail));
            return;
        }
    }
    let tolerations = |spec: &Value| {
        let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
        for toleration in tolerations.iter_mut().filter_map(Value::as_object_mut) {
            toleration.remove("tolerationSeconds");
        }
        tolerations
    };
    let kept = tolerations(after);
    if tolerations(before).iter().any(|toleration| !kept.contains(toleration)) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", detail));
    }
    let gates = |spec: &Value| spec["schedulingGates"].as_array().cloned().unwrap_or_default();
    let gates_before = gates(before);
    for (index, gate) in gates(after).iter().enumerate().filter(|(_, gate)| !gates_before.contains(gate)) {
        let detail = format!(
            "only deletion is allowed, but found new scheduling gate '{}'",
            gate["name"].as_str().unwrap_or_default()
        );
        errors.push(FieldError::forbidden(format!("spec.schedulingGates[{index}].name"), &detail));
    }
    let mut comparable = after.clone();
    let gated = !gates_before.is_empty();
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        restore(&mut comparable, before, field);
    }
    if gated {
        // The node constraints of a gated pod can still change.
        restore(&mut comparable, before, "nodeSelector");
        let pod_terms = |spec: &Value| ["podAffinity", "podAntiAffinity"].map(|side| spec["affinity"][side].clone());
        if pod_terms(after) == pod_terms(before) {
            restore(&mut comparable, before, "affinity");
        }
    }
    for list in ["containers", "initContainers"] {
        let containers = comparable.get_mut(list).and_then(Value::as_array_mut);
        for (index, container) in containers.into_iter().flatten().enumerate() {
            restore(container, &before[list][index], "image");
        }
    }
    if comparable != *before {
        errors.push(FieldError::forbidden("spec", POD_SPEC_FIXED));
    }
}

/// Sets a field of `object` to its value in `before`.
fn restore(object: &mut Value, before: &Value, field: &str) {
    match (object, before.get(field)) {
        (Value::Object(map), Some(value)) => {
            map.insert(field.to_owned(), value.clone());
        }
        (Value::Object(map), None) => {
            map.remove(field);
        }
        _ => (),
    }
}

fn check_stateful_set_kept(before: &Value, after: &Value, errors: &mut Vec<FieldError>) {
    let fixed = ["selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates"];
    if fixed.iter().any(|field| before[*field] != after[*field]) {
        errors.push(FieldError::forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}

#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty() && text.chars().all(|c| edge(c) || c == '-') && text.starts_with(edge) && text.ends_with(edge)
}

#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name_part(text)
}

fn is_name_part(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(|c| edge(c) || "-_.".contains(c))
        && text.starts_with(edge)
        && text.ends_with(edge)
}

fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        None => is_name_part(text),
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name_part(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels() {
        for (name, fine) in [("a", true), ("a.b-c", true), ("A", false), ("a_", false), ("-a", false), ("a..b", false)]
        {
            assert_eq!(is_dns_subdomain(name), fine, "{name}");
        }
        for (key, fine) in
            [("a", true), ("example.com/A_b.c", true), ("a b", false), ("/a", false), ("a/b/c", false), ("", false)]
        {
            assert_eq!(is_qualified_name(key), fine, "{key}");
        }
        assert!(is_label_value("") && is_label_value("My.Value_1") && !is_label_value("x "));
    }

    fn pod() -> Value {
        json!({ "metadata": { "name": "a" }, "spec": {
            "containers": [{ "name": "c", "image": "one" }], "tolerations": [{ "key": "a" }] } })
    }

    #[test]
    fn only_a_few_fields_of_a_pod_spec_can_change() {
        type Edit = fn(&mut Value);
        let cases: [(Edit, bool); 6] = [
            (|pod| pod["spec"]["containers"][0]["image"] = json!("two"), true),
            (|pod| pod["spec"]["tolerations"] = json!([{ "key": "a" }, { "key": "b" }]), true),
            (|pod| pod["spec"]["tolerations"] = json!([{ "key": "b" }]), false),
            (|pod| pod["spec"]["nodeName"] = json!("n"), false),
            (|pod| pod["spec"]["containers"] = json!([]), false),
            (|pod| pod["spec"]["schedulingGates"] = json!([{ "name": "g" }]), false),
        ];
        for (index, (edit, allowed)) in cases.into_iter().enumerate() {
            let mut after = pod();
            edit(&mut after);
            assert_eq!(check_changed(KindId::POD, &pod(), &after).is_ok(), allowed, "case {index}");
        }
        let mut gated = pod();
        gated["spec"]["schedulingGates"] = json!([{ "name": "g" }]);
        let mut opened = pod();
        opened["spec"]["nodeSelector"] = json!({ "zone": "a" });
        opened["spec"]["affinity"] = json!({ "nodeAffinity": {} });
        assert_eq!(check_changed(KindId::POD, &gated, &opened), Ok(()));
    }

    #[test]
    fn a_workloads_selector_must_match_its_template() {
        let workload = json!({ "metadata": { "name": "z" }, "spec": { "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "c" } }, "spec": { "containers": [{ "name": "x" }] } } } });
        assert_eq!(
            check_new(KindId::DEPLOYMENT, &workload).unwrap_err().to_string(),
            "Deployment.apps \"z\" is invalid: [spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` \
             does not match template `labels`, spec.template.spec.containers[0].image: Required value]"
        );
    }
}
