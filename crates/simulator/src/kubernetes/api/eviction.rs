//! `pods/eviction`: deletes a pod if its disruption budget allows it.
//!
//! The budget is the `status` that its controller last wrote. An eviction decrements `disruptionsAllowed` and records
//! the pod in `disruptedPods`, so that two consecutive evictions cannot use the same allowance.

use serde_json::{Value, json};

use crate::clock::SimTime;
use crate::kubernetes::condition::{self, State};
use crate::kubernetes::deletion::{self, DeleteOptions};
use crate::kubernetes::error::{ApiError, Cause};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::label_selector::selects;
use crate::kubernetes::store::Store;

/// A real server's limit on evictions that the budget's controller has not yet confirmed.
const DISRUPTED_PODS_MAX: usize = 2000;

pub fn evict(
    store: &mut Store,
    namespace: &str,
    pod_name: &str,
    options: &DeleteOptions,
    dry_run: bool,
    now: SimTime,
) -> Result<(), ApiError> {
    let Some(pod) = store.get(KindId::POD, namespace, pod_name).cloned() else {
        return Err(ApiError::NotFound { resource: "pods".to_owned(), name: pod_name.to_owned() });
    };
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    // A pod that does not run, or is terminating, is already disrupted.
    let unguarded =
        matches!(phase, "Succeeded" | "Failed" | "Pending") || !pod["metadata"]["deletionTimestamp"].is_null();
    if !unguarded {
        match budgets_of(store, namespace, &pod).as_slice() {
            [] => (),
            [budget] => take_from(store, namespace, budget, &pod, dry_run, now)?,
            _ => {
                return Err(ApiError::Internal(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                        .to_owned(),
                ));
            }
        }
    }
    if dry_run {
        return Ok(());
    }
    check_preconditions(&pod, pod_name, options)?;
    store.edit(KindId::POD, namespace, pod_name, |pod| {
        let state = State::new("True", "EvictionByEvictionAPI", "Eviction API: evicting");
        condition::set(pod, "DisruptionTarget", state, now);
    })?;
    // This function has just changed the version itself.
    let options = DeleteOptions { resource_version: None, ..options.clone() };
    deletion::delete(store, KindId::POD, namespace, pod_name, &options, now)?;
    Ok(())
}

fn check_preconditions(pod: &Value, pod_name: &str, options: &DeleteOptions) -> Result<(), ApiError> {
    let conditions = [
        (&options.uid, "uid", "UID", "deleted and then recreated"),
        (&options.resource_version, "resourceVersion", "ResourceVersion", "modified"),
    ];
    for (wanted, field, called, fate) in conditions {
        let actual = pod["metadata"][field].as_str().unwrap_or_default();
        if let Some(wanted) = wanted.as_deref().filter(|wanted| *wanted != actual) {
            return Err(ApiError::Conflict {
                resource: "Pod".to_owned(),
                name: pod_name.to_owned(),
                why: format!(
                    "the {called} in the precondition ({wanted}) does not match the {called} in record ({actual}). \
                     The object might have been {fate}"
                ),
            });
        }
    }
    Ok(())
}

fn budgets_of(store: &Store, namespace: &str, pod: &Value) -> Vec<std::sync::Arc<Value>> {
    store
        .list(KindId::POD_DISRUPTION_BUDGET, Some(namespace))
        .filter(|budget| selects(&budget["spec"]["selector"], &pod["metadata"]["labels"]))
        .cloned()
        .collect()
}

/// Takes one disruption from the budget, or returns why there is none.
fn take_from(
    store: &mut Store,
    namespace: &str,
    budget: &Value,
    pod: &Value,
    dry_run: bool,
    now: SimTime,
) -> Result<(), ApiError> {
    let status = &budget["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let name = budget["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
    let ready = pod["status"]["conditions"]
        .as_array()
        .is_some_and(|conditions| conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
    // An unhealthy pod does not count towards the budget, so its eviction costs nothing.
    let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
    if !ready && (always || (healthy >= desired && desired > 0)) {
        return Ok(());
    }
    let refused = |why: String| Err(ApiError::TooManyDisruptions { budget: name.clone(), why });
    let forbidden = |why: &str, detail: &str| {
        Err(ApiError::Forbidden {
            resource: "poddisruptionbudget.policy".to_owned(),
            name: name.clone(),
            why: why.to_owned(),
            cause: Some(Box::new(Cause {
                reason: "DisruptionBudget",
                message: format!("The disruption budget {name} does not allow evicting pods currently: {detail}"),
                field: None,
            })),
        })
    };
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        return refused("is still being processed by the server.".to_owned());
    }
    let allowed = number("disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return forbidden(why, why);
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > DISRUPTED_PODS_MAX) {
        return forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        );
    }
    if allowed == 0 {
        let condition = status["conditions"].as_array().and_then(|conditions| {
            conditions.iter().find(|c| {
                let says_why = c["message"].as_str().is_some_and(|message| !message.is_empty());
                c["type"] == "DisruptionAllowed" && c["status"] == "False" && says_why
            })
        });
        let text = |field: &str| condition.and_then(|c| c[field].as_str()).unwrap_or_default();
        return refused(if text("reason") == "SyncFailed" {
            format!("does not allow evicting pods currently because it failed sync: {}", text("message"))
        } else if healthy <= desired {
            format!("needs {desired} healthy pods and has {healthy} currently")
        } else if condition.is_some() {
            format!("does not allow evicting pods currently ({}): {}", text("reason"), text("message"))
        } else {
            "does not allow evicting pods currently".to_owned()
        });
    }
    if dry_run {
        return Ok(());
    }
    let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    store.edit(KindId::POD_DISRUPTION_BUDGET, namespace, &name, |budget| {
        budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
        budget["status"]["disruptedPods"][pod_name] = json!(now.rfc3339_seconds());
        if allowed == 1 {
            condition::set(budget, "DisruptionAllowed", State::new("False", "InsufficientPods", ""), now);
        }
    })?;
    Ok(())
}
