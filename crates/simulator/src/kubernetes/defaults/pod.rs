//! Defaults of a pod, and the fields that admission adds to a new pod.

use serde_json::{Value, json};

use super::{parts, set_default};
use crate::kubernetes::priority::priority_of;
use crate::kubernetes::quantity::billionths;
use crate::kubernetes::store::Store;

/// The spec of a pod or of a pod template.
pub(super) fn fill_in_spec(spec: &mut Value) {
    set_default(spec, "restartPolicy", || json!("Always"));
    set_default(spec, "dnsPolicy", || json!("ClusterFirst"));
    set_default(spec, "schedulerName", || json!("default-scheduler"));
    set_default(spec, "securityContext", || json!({}));
    set_default(spec, "terminationGracePeriodSeconds", || json!(30));
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        spec["terminationGracePeriodSeconds"] = json!(1);
    }
    parts::fill_in_volumes(spec);
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let policy = pull_policy(container["image"].as_str().unwrap_or_default());
            set_default(container, "imagePullPolicy", || json!(policy));
            set_default(container, "resources", || json!({}));
            set_default(container, "terminationMessagePath", || json!("/dev/termination-log"));
            set_default(container, "terminationMessagePolicy", || json!("File"));
            parts::fill_in_container(container);
            for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                set_default(port, "protocol", || json!("TCP"));
            }
        }
    }
}

/// An image without a tag, or tagged `latest`, can change under the same name.
fn pull_policy(image: &str) -> &'static str {
    let after_registry = image.rsplit('/').next().unwrap_or_default();
    let pinned = image.contains('@') || after_registry.split_once(':').is_some_and(|(_, tag)| tag != "latest");
    if pinned { "IfNotPresent" } else { "Always" }
}

pub(super) fn requests_from_limits(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(limits) = container["resources"]["limits"].as_object().cloned() else { continue };
            for (resource, quantity) in limits {
                set_default(&mut container["resources"]["requests"], &resource, || quantity);
            }
        }
    }
}

pub(super) fn complete_new(pod: &mut Value, store: &Store) {
    let labels = pod["metadata"]["labels"].clone();
    let spec = &mut pod["spec"];
    set_default(spec, "serviceAccountName", || json!("default"));
    let account = spec["serviceAccountName"].clone();
    set_default(spec, "serviceAccount", || account);
    set_priority(spec, store);
    merge_label_keys(spec, &labels);
    let class = quality_of_service(spec);
    let gated = spec["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    pod["status"] = json!({ "phase": "Pending", "qosClass": class });
    if gated {
        pod["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
}

/// A pod that names a missing class keeps what it states: only the API refuses it.
fn set_priority(spec: &mut Value, store: &Store) {
    let Some(priority) = priority_of(store, spec) else {
        set_default(spec, "priority", || json!(0));
        return set_default(spec, "preemptionPolicy", || json!("PreemptLowerPriority"));
    };
    if !priority.class.is_empty() {
        spec["priorityClassName"] = json!(priority.class);
        spec["priority"] = json!(priority.value);
    }
    set_default(spec, "priority", || json!(priority.value));
    set_default(spec, "preemptionPolicy", || json!(priority.policy));
}

pub(super) fn add_default_tolerations(spec: &mut Value) {
    set_default(spec, "tolerations", || json!([]));
    let Some(tolerations) = spec["tolerations"].as_array_mut() else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|toleration| {
            let own = &toleration["key"];
            let effect = &toleration["effect"];
            (*own == key || own.is_null() || own == "") && (*effect == "NoExecute" || effect.is_null() || effect == "")
        });
        if !tolerated {
            let toleration = json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            });
            tolerations.push(toleration);
        }
    }
}

/// Turns `matchLabelKeys` and `mismatchLabelKeys` into expressions with the pod's label values.
fn merge_label_keys(spec: &mut Value, labels: &Value) {
    for side in ["podAffinity", "podAntiAffinity"] {
        let Some(terms) = spec.get_mut("affinity").and_then(|affinity| affinity.get_mut(side)) else { continue };
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for term in terms.get_mut(required).and_then(Value::as_array_mut).into_iter().flatten() {
            merge_into_selector(term, labels);
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for weighted in terms.get_mut(preferred).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(term) = weighted.get_mut("podAffinityTerm") {
                merge_into_selector(term, labels);
            }
        }
    }
    let constraints = spec.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut);
    for constraint in constraints.into_iter().flatten() {
        merge_into_selector(constraint, labels);
    }
}

fn merge_into_selector(term: &mut Value, labels: &Value) {
    // Without a selector a term matches nothing, regardless of its keys.
    if !term["labelSelector"].is_object() {
        return;
    }
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term[field].as_array().cloned().unwrap_or_default() {
            let value = key.as_str().map_or(&Value::Null, |key| &labels[key]);
            if !value.is_string() {
                continue;
            }
            let expression = json!({ "key": key, "operator": operator, "values": [value] });
            set_default(&mut term["labelSelector"], "matchExpressions", || json!([]));
            if let Some(expressions) = term["labelSelector"]["matchExpressions"].as_array_mut()
                && !expressions.contains(&expression)
            {
                expressions.push(expression);
            }
        }
    }
}

fn quality_of_service(spec: &Value) -> &'static str {
    let containers: Vec<&Value> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec[*list].as_array().into_iter().flatten())
        .map(|container| &container["resources"])
        .collect();
    let positive = |quantity: &Value| billionths(quantity).filter(|billionths| *billionths > 0);
    let names_any = |resources: &Value| {
        ["limits", "requests"]
            .iter()
            .any(|side| ["cpu", "memory"].iter().any(|r| positive(&resources[*side][*r]).is_some()))
    };
    if !containers.iter().any(|resources| names_any(resources)) {
        return "BestEffort";
    }
    let guaranteed = containers.iter().all(|resources| {
        ["cpu", "memory"].iter().all(|resource| {
            let limit = positive(&resources["limits"][*resource]);
            limit.is_some() && limit == positive(&resources["requests"][*resource])
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}
