//! The numbers of a Deployment: the limits of a rolling update, and the ReplicaSet sizes when it is scaled.

use serde_json::Value;

use super::Tools;
use super::deployment::{DESIRED, MAXIMUM, Rollout, Set, total};
use crate::kubernetes::json::{count, int_or_percent};

/// How far a rolling update may exceed and fall below the desired number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fenceposts {
    pub surge: i64,
    pub unavailable: i64,
}

impl Fenceposts {
    pub(super) fn of(deployment: &Value, wanted: i64) -> Fenceposts {
        let strategy = &deployment["spec"]["strategy"];
        if strategy["type"] == "Recreate" || wanted == 0 {
            return Fenceposts { surge: 0, unavailable: 0 };
        }
        let resolve = |field: &str, round_up: bool| {
            let quarter = Value::from("25%");
            let value = strategy["rollingUpdate"].get(field).filter(|value| !value.is_null()).unwrap_or(&quarter);
            int_or_percent(value, wanted, round_up).unwrap_or(0).max(0)
        };
        let (surge, unavailable) = (resolve("maxSurge", true), resolve("maxUnavailable", false));
        // Both can round to zero. Then one pod may be unavailable, or the update would never proceed.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Fenceposts { surge, unavailable: unavailable.min(wanted) }
    }
}

/// How many replicas the ReplicaSet of the current template may have now.
pub(super) fn new_set_replicas(rollout: &Rollout) -> i64 {
    if rollout.deployment["spec"]["strategy"]["type"] == "Recreate" {
        return rollout.wanted;
    }
    let known = rollout.new.as_ref().map_or(0, Set::replicas);
    let room = rollout.wanted + rollout.fenceposts.surge - total(&rollout.all());
    known + room.min(rollout.wanted - known).max(0)
}

/// Whether `spec.replicas` has changed since the ReplicaSets were last scaled.
pub(super) fn was_scaled(rollout: &Rollout) -> bool {
    rollout
        .all()
        .iter()
        .filter(|set| set.replicas() > 0)
        .any(|set| set.annotation(DESIRED).is_some_and(|desired| desired != rollout.wanted))
}

/// Applies a change of `spec.replicas` to the ReplicaSets, proportionally if several are active.
pub(super) fn scale(tools: &mut Tools<'_>, rollout: &mut Rollout) {
    let active: Vec<Set> = rollout.all().into_iter().filter(|set| set.replicas() > 0).collect();
    if active.len() <= 1 {
        let Some(only) = active.into_iter().next().or_else(|| rollout.all().pop()) else { return };
        let wanted = rollout.wanted;
        rollout.scale(tools, only.name(), wanted, true);
        return;
    }
    let saturated = rollout.new.as_ref().is_some_and(|new| {
        new.replicas() == rollout.wanted
            && new.annotation(DESIRED) == Some(rollout.wanted)
            && new.status("availableReplicas") == rollout.wanted
    });
    if saturated {
        for set in rollout.old.clone().iter().filter(|set| set.replicas() > 0) {
            rollout.scale(tools, set.name(), 0, false);
        }
        return;
    }
    if rollout.deployment["spec"]["strategy"]["type"] == "Recreate" {
        return;
    }
    for (name, replicas) in proportions(rollout, active) {
        rollout.scale(tools, &name, replicas, true);
    }
}

fn proportions(rollout: &Rollout, mut active: Vec<Set>) -> Vec<(String, i64)> {
    let maximum = rollout.wanted + rollout.fenceposts.surge;
    let allowed = if rollout.wanted > 0 { maximum } else { 0 };
    let to_add = allowed - total(&active);
    // Largest first; of equal ones the newer grows first and the older shrinks first.
    active.sort_by_cached_key(Set::age);
    if to_add > 0 {
        active.reverse();
    }
    active.sort_by_key(|set| std::cmp::Reverse(set.replicas()));
    let mut added = 0;
    let mut sizes: Vec<(String, i64)> = Vec::new();
    for set in &active {
        let mut part = 0;
        if to_add != 0 && to_add != added {
            let fraction = fraction(rollout, set, maximum);
            part = if to_add > 0 { fraction.min(to_add - added) } else { fraction.max(to_add - added) };
        }
        sizes.push((set.name().to_owned(), set.replicas() + part));
        added += part;
    }
    if let Some((_, largest)) = sizes.first_mut() {
        *largest = (*largest + to_add - added).max(0);
    }
    sizes
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn fraction(rollout: &Rollout, set: &Set, maximum: i64) -> i64 {
    if rollout.wanted == 0 {
        return -set.replicas();
    }
    let before = set
        .annotation(MAXIMUM)
        .filter(|known| *known > 0)
        .unwrap_or_else(|| count(&rollout.deployment["status"]["replicas"], 0));
    if before == 0 {
        return 0;
    }
    let size = (set.replicas() as f64 * maximum as f64 / before as f64).round();
    size as i64 - set.replicas()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn surge_and_unavailable_round_as_in_a_real_cluster() {
        for (surge, unavailable, wanted, expected) in [
            (json!(null), json!(null), 4, (1, 1)),
            (json!(null), json!(null), 10, (3, 2)),
            (json!(null), json!(null), 1, (1, 0)),
            (json!("0%"), json!("1%"), 2, (0, 1)),
            (json!(0), json!(0), 5, (0, 1)),
            (json!(2), json!(9), 3, (2, 3)),
            (json!("25%"), json!("25%"), 0, (0, 0)),
        ] {
            let deployment = json!({ "spec": { "strategy": { "type": "RollingUpdate",
                "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } } } });
            let found = Fenceposts::of(&deployment, wanted);
            assert_eq!((found.surge, found.unavailable), expected, "{surge}/{unavailable} of {wanted}");
        }
    }
}
