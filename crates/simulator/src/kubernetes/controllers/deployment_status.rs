//! A Deployment's status: the replica numbers, and the conditions Available and Progressing that `kubectl rollout
//! status` reads.

use std::time::Duration;

use serde_json::{Value, json};

use super::Tools;
use super::deployment::{Rollout, Set};
use super::queue::Target;
use crate::clock::SimTime;
use crate::kubernetes::condition::{self, State};
use crate::kubernetes::json::{count, moment, put, text};
use crate::kubernetes::kinds::KindId;

const DONE: &str = "NewReplicaSetAvailable";
const LATE: &str = "ProgressDeadlineExceeded";

/// The replica numbers of the status, summed over ReplicaSets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers {
    replicas: i64,
    updated: i64,
    ready: i64,
    available: i64,
    unavailable: i64,
    terminating: i64,
}

impl Numbers {
    fn of(rollout: &Rollout) -> Numbers {
        let all = rollout.all();
        let sum = |field: &str| all.iter().map(|set| set.status(field)).sum::<i64>();
        let available = sum("availableReplicas");
        Numbers {
            replicas: sum("replicas"),
            updated: rollout.new.as_ref().map_or(0, |new| new.status("replicas")),
            ready: sum("readyReplicas"),
            available,
            unavailable: (all.iter().map(Set::replicas).sum::<i64>() - available).max(0),
            terminating: sum("terminatingReplicas"),
        }
    }

    fn written(deployment: &Value) -> Numbers {
        let read = |field: &str| count(&deployment["status"][field], 0);
        Numbers {
            replicas: read("replicas"),
            updated: read("updatedReplicas"),
            ready: read("readyReplicas"),
            available: read("availableReplicas"),
            unavailable: read("unavailableReplicas"),
            terminating: read("terminatingReplicas"),
        }
    }

    fn complete(&self, wanted: i64) -> bool {
        self.updated == wanted && self.replicas == wanted && self.available == wanted
    }

    /// More new, ready or available pods than before, or fewer old ones.
    fn progressed_from(&self, before: &Numbers) -> bool {
        self.updated > before.updated
            || self.replicas - self.updated < before.replicas - before.updated
            || self.ready > before.ready
            || self.available > before.available
    }
}

pub(super) fn is_complete(rollout: &Rollout) -> bool {
    Numbers::of(rollout).complete(rollout.wanted)
}

/// Writes the status. With `rolling`, also evaluates the progress of the rollout.
pub(super) fn write(tools: &mut Tools<'_>, rollout: &Rollout, rolling: bool) {
    let now = tools.now;
    let key = &rollout.key;
    let numbers = Numbers::of(rollout);
    let written = tools.store.edit(KindId::DEPLOYMENT, &key.namespace, &key.name, |deployment| {
        let before = Numbers::written(deployment);
        let generation = deployment["metadata"]["generation"].clone();
        put(deployment, &["status", "observedGeneration"], generation);
        for (field, number) in [
            ("replicas", numbers.replicas),
            ("updatedReplicas", numbers.updated),
            ("readyReplicas", numbers.ready),
            ("availableReplicas", numbers.available),
            ("unavailableReplicas", numbers.unavailable),
            ("terminatingReplicas", numbers.terminating),
        ] {
            // A real server omits these if they are zero.
            if number == 0 && field != "terminatingReplicas" {
                crate::kubernetes::json::take(deployment, &["status"], field);
            } else {
                put(deployment, &["status", field], json!(number));
            }
        }
        available(deployment, rollout, &numbers, now);
        if deadline_seconds(deployment).is_none() {
            condition::remove(deployment, "Progressing");
        } else if rolling {
            progress(deployment, rollout, &numbers, &before, now);
        }
        paused(deployment, now);
    });
    if let Ok(deployment) = written
        && let Some(due) = deadline(&deployment)
        && due > now
    {
        tools.again_at(due, Target::Deployment(key.clone()));
    }
}

pub(super) fn note_created(tools: &mut Tools<'_>, rollout: &mut Rollout, name: &str) {
    let now = tools.now;
    let key = &rollout.key;
    let edited = tools.store.edit(KindId::DEPLOYMENT, &key.namespace, &key.name, |deployment| {
        if deadline_seconds(deployment).is_some() {
            let message = format!("Created new replica set \"{name}\"");
            set(deployment, "Progressing", State::new("True", "NewReplicaSetCreated", &message), now);
        }
    });
    if let Ok(object) = edited {
        rollout.deployment = object;
    }
}

fn available(deployment: &mut Value, rollout: &Rollout, numbers: &Numbers, now: SimTime) {
    let state = if numbers.available >= rollout.wanted - rollout.fenceposts.unavailable {
        State::new("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        State::new("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set(deployment, "Available", state, now);
}

fn progress(deployment: &mut Value, rollout: &Rollout, numbers: &Numbers, before: &Numbers, now: SimTime) {
    let reason = reason(deployment).to_owned();
    if numbers.replicas == numbers.updated && reason == DONE {
        return;
    }
    let what = match &rollout.new {
        Some(new) => format!("ReplicaSet \"{}\"", new.name()),
        None => format!("Deployment \"{}\"", rollout.key.name),
    };
    if numbers.complete(rollout.wanted) {
        let message = format!("{what} has successfully progressed.");
        set(deployment, "Progressing", State::new("True", DONE, &message), now);
    } else if numbers.progressed_from(before) {
        let message = format!("{what} is progressing.");
        condition::set(deployment, "Progressing", State::new("True", "ReplicaSetUpdated", &message), now);
        condition::stamp(deployment, "Progressing", "lastUpdateTime", &now.rfc3339_seconds());
    } else if deadline(deployment).is_some_and(|due| due <= now) {
        let message = format!("{what} has timed out progressing.");
        set(deployment, "Progressing", State::new("False", LATE, &message), now);
    }
}

/// While the Deployment is paused, no progress is expected. Resuming restarts the deadline.
fn paused(deployment: &mut Value, now: SimTime) {
    if deadline_seconds(deployment).is_none() || reason(deployment) == LATE {
        return;
    }
    let was_paused = reason(deployment) == "DeploymentPaused";
    match (deployment["spec"]["paused"] == true, was_paused) {
        (true, false) => {
            set(deployment, "Progressing", State::new("Unknown", "DeploymentPaused", "Deployment is paused"), now);
        }
        (false, true) => {
            set(deployment, "Progressing", State::new("Unknown", "DeploymentResumed", "Deployment is resumed"), now);
        }
        _ => (),
    }
}

/// Sets a condition unless it already has the same status and reason.
fn set(deployment: &mut Value, condition_type: &str, state: State<'_>, now: SimTime) {
    let same = condition::find(deployment, condition_type)
        .is_some_and(|known| known["status"] == state.status && known["reason"] == state.reason);
    if !same {
        condition::set(deployment, condition_type, state, now);
        condition::stamp(deployment, condition_type, "lastUpdateTime", &now.rfc3339_seconds());
    }
}

fn reason(deployment: &Value) -> &str {
    condition::find(deployment, "Progressing").map_or("", |known| text(&known["reason"]))
}

fn deadline_seconds(deployment: &Value) -> Option<u64> {
    let seconds = deployment["spec"].get("progressDeadlineSeconds").map_or(Some(600), Value::as_u64)?;
    (seconds != u64::from(i32::MAX.unsigned_abs())).then_some(seconds)
}

/// When a rollout without progress counts as failed; `None` if no rollout is in progress.
fn deadline(deployment: &Value) -> Option<SimTime> {
    let seconds = deadline_seconds(deployment)?;
    let known = condition::find(deployment, "Progressing")?;
    if matches!(text(&known["reason"]), DONE | LATE | "DeploymentPaused") {
        return None;
    }
    // The timestamp has whole seconds; one more second makes sure that the period is over.
    Some(moment(&known["lastUpdateTime"])?.after(Duration::from_secs(seconds.saturating_add(1))))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use crate::kubernetes::pod;

    fn deployment(name: &str, replicas: u64, strategy: &Value) -> Value {
        json!({ "metadata": { "name": name, "namespace": "default" }, "spec": {
            "replicas": replicas, "strategy": strategy, "revisionHistoryLimit": 2,
            "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "one" }] } } } })
    }

    fn numbers(bench: &Bench) -> Numbers {
        Numbers::written(&bench.get(KindId::DEPLOYMENT, "web").unwrap())
    }

    fn roll_to(bench: &mut Bench, image: &str) {
        bench.edit(KindId::DEPLOYMENT, "web", |object| {
            object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        });
    }

    /// Ready pods and all active pods, counted from the pods themselves.
    fn census(bench: &Bench) -> (usize, usize) {
        let pods = bench.pods();
        let active: Vec<_> = pods.iter().filter(|object| pod::is_active(object)).collect();
        (active.iter().filter(|object| pod::is_ready(object)).count(), active.len())
    }

    #[test]
    fn a_rolling_update_keeps_surge_and_unavailable_and_completes() {
        for (surge, unavailable, replicas) in [
            (json!("25%"), json!("25%"), 4_usize),
            (json!(1), json!(0), 3),
            (json!(0), json!(1), 3),
            (json!("100%"), json!(0), 5),
            (json!("10%"), json!("50%"), 10),
        ] {
            let strategy = json!({ "type": "RollingUpdate",
                "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } });
            let object = deployment("web", replicas as u64, &strategy);
            let posts = super::super::deployment_scale::Fenceposts::of(&object, i64::try_from(replicas).unwrap());
            let least = replicas - usize::try_from(posts.unavailable).unwrap();
            let most = replicas + usize::try_from(posts.surge).unwrap();
            let mut bench = Bench::with_nodes(3);
            bench.create(KindId::DEPLOYMENT, object);
            bench.run_for_seconds(10);
            assert_eq!(census(&bench), (replicas, replicas));
            roll_to(&mut bench, "two");
            bench.run_watching(120, |bench| {
                let (ready, all) = census(bench);
                assert!(ready >= least, "{ready} ready of at least {least} ({surge}, {unavailable})");
                assert!(all <= most, "{all} pods of at most {most} ({surge}, {unavailable})");
            });
            assert!(bench.pods().iter().all(|object| object["spec"]["containers"][0]["image"] == "two"));
            assert_eq!(census(&bench), (replicas, replicas));
            let done = bench.get(KindId::DEPLOYMENT, "web").unwrap();
            assert_eq!(reason(&done), DONE);
            assert_eq!(done["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
            assert_eq!(done["status"]["observedGeneration"], done["metadata"]["generation"]);
        }
    }

    #[test]
    fn recreate_never_runs_two_templates_at_once() {
        let mut bench = Bench::with_nodes(2);
        bench.create(KindId::DEPLOYMENT, deployment("web", 3, &json!({ "type": "Recreate" })));
        bench.run_for_seconds(10);
        roll_to(&mut bench, "two");
        bench.run_watching(60, |bench| {
            let pods = bench.pods();
            let first = pods.first().map(|object| object["spec"]["containers"][0]["image"].clone());
            assert!(pods.iter().all(|object| Some(&object["spec"]["containers"][0]["image"]) == first.as_ref()));
        });
        assert_eq!(census(&bench), (3, 3));
        assert_eq!(bench.pods()[0]["spec"]["containers"][0]["image"], "two");
    }

    #[test]
    fn old_revisions_are_pruned_and_a_rollback_revives_one() {
        let mut bench = Bench::with_nodes(2);
        bench.create(KindId::DEPLOYMENT, deployment("web", 2, &json!({})));
        for image in ["two", "three", "four", "five", "four"] {
            bench.run_for_seconds(60);
            roll_to(&mut bench, image);
        }
        bench.run_for_seconds(60);
        let sets: Vec<_> = bench.list(KindId::REPLICA_SET);
        assert_eq!(sets.len(), 3, "the current one and two of the history");
        assert_eq!(census(&bench), (2, 2));
        let object = bench.get(KindId::DEPLOYMENT, "web").unwrap();
        assert_eq!(object["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "6");
    }

    #[test]
    fn scaling_goes_up_and_down_and_to_nothing() {
        let mut bench = Bench::with_nodes(2);
        bench.create(KindId::DEPLOYMENT, deployment("web", 3, &json!({})));
        for replicas in [3_i64, 5, 1, 0, 2] {
            bench.edit(KindId::DEPLOYMENT, "web", |object| object["spec"]["replicas"] = json!(replicas));
            bench.run_for_seconds(20);
            let found = numbers(&bench);
            assert_eq!((found.replicas, found.available, found.unavailable), (replicas, replicas, 0));
            assert_eq!(bench.list(KindId::REPLICA_SET).len(), 1);
        }
    }

    #[test]
    fn a_stuck_rollout_times_out_and_a_paused_one_does_not() {
        let mut bench = Bench::with_nodes(0);
        let mut object = deployment("web", 1, &json!({}));
        object["spec"]["progressDeadlineSeconds"] = json!(30);
        bench.create(KindId::DEPLOYMENT, object);
        bench.run_for_seconds(29);
        assert_eq!(condition::status(&bench.get(KindId::DEPLOYMENT, "web").unwrap(), "Available"), "False");
        assert_eq!(condition::status(&bench.get(KindId::DEPLOYMENT, "web").unwrap(), "Progressing"), "True");
        bench.run_for_seconds(10);
        assert_eq!(reason(&bench.get(KindId::DEPLOYMENT, "web").unwrap()), LATE);

        let mut bench = Bench::with_nodes(1);
        bench.create(KindId::DEPLOYMENT, deployment("web", 1, &json!({})));
        bench.run_for_seconds(10);
        bench.edit(KindId::DEPLOYMENT, "web", |object| object["spec"]["paused"] = json!(true));
        roll_to(&mut bench, "two");
        bench.run_for_seconds(10);
        assert_eq!(bench.pods()[0]["spec"]["containers"][0]["image"], "one");
        assert_eq!(reason(&bench.get(KindId::DEPLOYMENT, "web").unwrap()), "DeploymentPaused");
        bench.edit(KindId::DEPLOYMENT, "web", |object| object["spec"]["paused"] = json!(false));
        bench.run_for_seconds(20);
        assert_eq!(bench.pods()[0]["spec"]["containers"][0]["image"], "two");
        assert_eq!(reason(&bench.get(KindId::DEPLOYMENT, "web").unwrap()), DONE);
    }
}
