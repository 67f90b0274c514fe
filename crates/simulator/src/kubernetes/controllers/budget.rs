//! The PodDisruptionBudget controller: how many pods may be evicted now.
//!
//! In: a budget and the pods it selects. Out: its status, which the eviction API reads and decrements.
//!
//! An eviction that the API has allowed is in `disruptedPods` until its pod terminates, at most two minutes. During
//! that time the pod does not count as healthy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Tools;
use super::queue::Target;
use crate::clock::SimTime;
use crate::kubernetes::condition::{self, State};
use crate::kubernetes::json::{bounded, count, int_or_percent, moment, put, take, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::label_selector::LabelSelector;
use crate::kubernetes::pod;
use crate::kubernetes::store::{Change, ChangeType, ObjectKey, Store};

const DISRUPTION_TIMEOUT: Duration = Duration::from_secs(120);

/// Marks the budgets that select the pod before or after the change.
pub(super) fn affected_by_pod(change: &Change, store: &Store, mut mark: impl FnMut(ObjectKey)) {
    let namespace = text(&change.object["metadata"]["namespace"]);
    for budget in store.list(KindId::POD_DISRUPTION_BUDGET, Some(namespace)) {
        let Some(selector) = LabelSelector::from_object(&budget["spec"]["selector"]) else { continue };
        if change.before.iter().chain([&change.object]).any(|pod| selector.matches(&pod["metadata"]["labels"])) {
            mark(ObjectKey::of(budget));
        }
    }
}

/// A controller was scaled: the numbers of every budget in its namespace may change.
pub(super) fn affected_by_scale(change: &Change, store: &Store, mut mark: impl FnMut(ObjectKey)) {
    let replicas = |object: &Value| object["spec"]["replicas"].clone();
    let same = change.change_type == ChangeType::Modified
        && change.before.as_ref().is_some_and(|before| replicas(before) == replicas(&change.object));
    if !same {
        let namespace = text(&change.object["metadata"]["namespace"]);
        store.list(KindId::POD_DISRUPTION_BUDGET, Some(namespace)).for_each(|budget| mark(ObjectKey::of(budget)));
    }
}

pub(crate) fn reconcile(tools: &mut Tools<'_>, key: &ObjectKey) {
    let Some(budget) = tools.store.get(KindId::POD_DISRUPTION_BUDGET, &key.namespace, &key.name).cloned() else {
        return;
    };
    let selector = LabelSelector::from_object(&budget["spec"]["selector"]);
    let pods: Vec<Arc<Value>> = tools
        .store
        .list(KindId::POD, Some(&key.namespace))
        .filter(|pod| selector.as_ref().is_some_and(|selector| selector.matches(&pod["metadata"]["labels"])))
        .cloned()
        .collect();
    let now = tools.now;
    let disrupted = still_disrupted(&budget, &pods, now);
    let healthy = pods
        .iter()
        .filter(|object| !pod::is_terminating(object) && pod::is_ready(object))
        .filter(|object| !disrupted.contains_key(text(&object["metadata"]["name"])))
        .count();
    let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
    let counted = expected_and_desired(tools.store, &budget, &pods);
    let _ = tools.store.edit(KindId::POD_DISRUPTION_BUDGET, &key.namespace, &key.name, |budget| {
        let generation = budget["metadata"]["generation"].clone();
        put(budget, &["status", "observedGeneration"], generation);
        let Ok((expected, desired)) = counted else {
            // The budget cannot be computed. To be safe, no disruption is allowed.
            put(budget, &["status", "disruptionsAllowed"], json!(0));
            let why = counted.err().unwrap_or_default();
            return condition::set(budget, "DisruptionAllowed", State::new("False", "SyncFailed", &why), now);
        };
        let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
        put(budget, &["status", "currentHealthy"], json!(healthy));
        put(budget, &["status", "desiredHealthy"], json!(desired));
        put(budget, &["status", "expectedPods"], json!(expected));
        put(budget, &["status", "disruptionsAllowed"], json!(allowed));
        if disrupted.is_empty() {
            take(budget, &["status"], "disruptedPods");
        } else {
            put(budget, &["status", "disruptedPods"], Value::Object(disrupted.clone()));
        }
        let state = if allowed > 0 {
            State::new("True", "SufficientPods", "")
        } else {
            State::new("False", "InsufficientPods", "")
        };
        condition::set(budget, "DisruptionAllowed", state, now);
        let generation = budget["metadata"]["generation"].clone();
        if let Some(generation) = generation.as_u64() {
            for known in crate::kubernetes::json::array(budget, &["status", "conditions"]) {
                put(known, &["observedGeneration"], json!(generation));
            }
        }
    });
    let recheck = disrupted.values().filter_map(moment).min().map(|moment| moment.after(DISRUPTION_TIMEOUT));
    if let Some(moment) = recheck {
        tools.again_at(moment, Target::Budget(key.clone()));
    }
}

/// Allowed evictions of pods that do not terminate yet, unless that takes too long.
fn still_disrupted(budget: &Value, pods: &[Arc<Value>], now: SimTime) -> Map<String, Value> {
    let disrupted = budget["status"]["disruptedPods"].as_object().cloned().unwrap_or_default();
    disrupted
        .into_iter()
        .filter(|(name, since)| {
            let waits =
                pods.iter().any(|object| text(&object["metadata"]["name"]) == name && !pod::is_terminating(object));
            waits && moment(since).is_some_and(|since| since.after(DISRUPTION_TIMEOUT) > now)
        })
        .collect()
}

/// How many pods are expected, and how many of them must be healthy.
fn expected_and_desired(store: &Store, budget: &Value, pods: &[Arc<Value>]) -> Result<(i64, i64), String> {
    let spec = &budget["spec"];
    let present = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    if !spec["maxUnavailable"].is_null() {
        let expected = expected_scale(store, pods)?;
        let unavailable = int_or_percent(&spec["maxUnavailable"], expected, true)
            .ok_or("maxUnavailable is neither a number nor a percentage")?;
        Ok((expected, (expected - unavailable).max(0)))
    } else if let Some(number) = spec["minAvailable"].as_i64() {
        Ok((present, bounded(number).max(0)))
    } else if spec["minAvailable"].is_string() {
        let expected = expected_scale(store, pods)?;
        let desired = int_or_percent(&spec["minAvailable"], expected, true)
            .ok_or("minAvailable is neither a number nor a percentage")?;
        Ok((expected, desired))
    } else {
        Ok((present, 0))
    }
}

/// The sum of the replicas of the pods' controllers; a Deployment counts for its ReplicaSets.
fn expected_scale(store: &Store, pods: &[Arc<Value>]) -> Result<i64, String> {
    let mut scales: BTreeMap<String, i64> = BTreeMap::new();
    for object in pods {
        let name = text(&object["metadata"]["name"]);
        let mut owner = pod::controller_of(object).ok_or_else(|| format!("found no controllers for pod \"{name}\""))?;
        let mut found = live(store, &owner).ok_or_else(|| format!("found no controllers for pod \"{name}\""))?;
        if let Some(above) = pod::controller_of(found)
            && let Some(deployment) = live(store, &above)
        {
            (owner, found) = (above, deployment);
        }
        scales.insert(owner.uid, count(&found["spec"]["replicas"], 1));
    }
    Ok(bounded(scales.values().sum()))
}

fn live<'a>(store: &'a Store, owner: &pod::Controller) -> Option<&'a Arc<Value>> {
    store.get(owner.kind, &owner.key.namespace, &owner.key.name).filter(|object| pod::uid(object) == owner.uid)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;

    fn numbers(bench: &Bench) -> (i64, i64, i64, i64) {
        let budget = bench.get(KindId::POD_DISRUPTION_BUDGET, "b").unwrap();
        let number = |field: &str| budget["status"][field].as_i64().unwrap_or(-1);
        (number("expectedPods"), number("desiredHealthy"), number("currentHealthy"), number("disruptionsAllowed"))
    }

    #[test]
    fn disruptions_allowed_by_a_budget() {
        for (spec, expected) in [
            (json!({ "minAvailable": 3 }), (4, 3, 4, 1)),
            (json!({ "minAvailable": 5 }), (4, 5, 4, 0)),
            (json!({ "minAvailable": "50%" }), (4, 2, 4, 2)),
            (json!({ "minAvailable": "51%" }), (4, 3, 4, 1)),
            (json!({ "maxUnavailable": 1 }), (4, 3, 4, 1)),
            (json!({ "maxUnavailable": "30%" }), (4, 2, 4, 2)),
            (json!({ "maxUnavailable": 0 }), (4, 4, 4, 0)),
        ] {
            let mut bench = Bench::with_nodes(2);
            let mut spec_full = spec.clone();
            spec_full["selector"] = json!({ "matchLabels": { "app": "web" } });
            bench.create(
                KindId::POD_DISRUPTION_BUDGET,
                json!({ "metadata": { "name": "b", "namespace": "default" }, "spec": spec_full }),
            );
            bench.create(
                KindId::DEPLOYMENT,
                json!({ "metadata": { "name": "web", "namespace": "default" }, "spec": { "replicas": 4,
                    "selector": { "matchLabels": { "app": "web" } },
                    "template": { "metadata": { "labels": { "app": "web" } },
                        "spec": { "containers": [{ "name": "c", "image": "i" }] } } } }),
            );
            bench.run_for_seconds(10);
            assert_eq!(numbers(&bench), expected, "{spec}");
            let name = text(&bench.pods()[0]["metadata"]["name"]).to_owned();
            bench.delete(KindId::POD, &name);
            bench.run_for_seconds(0);
            assert_eq!(numbers(&bench).2, 3, "a terminating pod is not healthy");
        }
    }

    #[test]
    fn an_allowed_eviction_counts_until_its_pod_terminates_or_for_two_minutes() {
        let mut bench = Bench::with_nodes(1);
        bench.create(
            KindId::POD_DISRUPTION_BUDGET,
            json!({ "metadata": { "name": "b", "namespace": "default" },
                "spec": { "minAvailable": 0, "selector": {} } }),
        );
        bench.create_pod("p", &json!({}));
        bench.run_for_seconds(10);
        assert_eq!(numbers(&bench), (1, 0, 1, 1));
        let moment = bench.now.rfc3339_seconds();
        bench.edit(KindId::POD_DISRUPTION_BUDGET, "b", |budget| {
            budget["status"]["disruptedPods"] = json!({ "p": moment, "unknown": moment });
        });
        bench.run_for_seconds(1);
        assert_eq!(numbers(&bench), (1, 0, 0, 0));
        let budget = bench.get(KindId::POD_DISRUPTION_BUDGET, "b").unwrap();
        assert_eq!(budget["status"]["disruptedPods"].as_object().unwrap().len(), 1);
        bench.run_for_seconds(125);
        assert_eq!(numbers(&bench), (1, 0, 1, 1));
    }

    #[test]
    fn max_unavailable_needs_controllers() {
        let mut bench = Bench::with_nodes(1);
        bench.create(
            KindId::POD_DISRUPTION_BUDGET,
            json!({ "metadata": { "name": "b", "namespace": "default" },
                "spec": { "maxUnavailable": 1, "selector": {} } }),
        );
        bench.create_pod("p", &json!({}));
        bench.run_for_seconds(10);
        let budget = bench.get(KindId::POD_DISRUPTION_BUDGET, "b").unwrap();
        assert_eq!(condition::find(&budget, "DisruptionAllowed").unwrap()["reason"], "SyncFailed");
        assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    }
}
