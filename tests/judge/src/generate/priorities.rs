//! Generates what decides over victims: priorities, start times, terminations, the preemption policy and the nominated
//! node of the pod to place.

use serde_json::{Value, json};

use super::dice::Dice;
use super::node;
use crate::World;

/// The priorities of pods, mostly below that of the pod to place. `None` counts as 0.
const PRIORITIES: &[Option<i32>] =
    &[Some(-10), Some(0), None, None, Some(10), Some(10), Some(50), Some(50), Some(99), Some(100), Some(1000)];
const INCOMING: &[Option<i32>] = &[Some(100), Some(100), Some(100), Some(100), Some(1000), Some(1000), Some(50), None];
/// All pods of a node: the equal priorities let start times and names decide.
const ALIKE: &[Option<i32>] = &[None, Some(0), Some(10), Some(50)];
const PROTECTED: &[Option<i32>] = &[Some(1000), Some(2000)];

/// If the nodes are `alike`, all pods have the same priority and start time.
pub fn assign(dice: &mut Dice, world: &mut World, alike: bool) {
    let of_incoming = dice.pick(INCOMING);
    set_priority(&mut world.pod, of_incoming);
    // By node: no choice, one of a few, or any priority.
    let same = vec![dice.pick(ALIKE)];
    let choices: Vec<Vec<Option<i32>>> = (0..world.nodes.len())
        .map(|_| match dice.below(100) {
            _ if alike => same.clone(),
            0..8 => PROTECTED.to_vec(),
            8..40 => vec![dice.pick(ALIKE)],
            _ => PRIORITIES.to_vec(),
        })
        .collect();
    // Equal start times in some worlds, and none in others, so that the choice of a node has ties.
    let (distinct, missing) = dice.pick(&[(90, 5), (90, 5), (50, 20), (0, 0), (0, 100)]);
    let distinct = if alike { 0 } else { distinct };
    for pod in &mut world.pods {
        let on = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let index = (0..choices.len()).find(|&index| node::name(index) == on);
        let priority = dice.pick(index.map_or(PRIORITIES, |index| &choices[index]));
        set_priority(pod, priority);
        if index.is_some() && !dice.chance(missing) {
            let minute = if dice.chance(distinct) { dice.below(60) } else { 0 };
            pod["status"]["startTime"] = format!("2025-03-01T10:{minute:02}:00Z").into();
        }
        disrupt(dice, pod);
    }
    match dice.below(100) {
        0..5 => world.pod["spec"]["preemptionPolicy"] = "Never".into(),
        5..25 => world.pod["spec"]["preemptionPolicy"] = "PreemptLowerPriority".into(),
        _ => {}
    }
    if dice.chance(30) {
        nominate(dice, world);
    }
}

fn set_priority(pod: &mut Value, priority: Option<i32>) {
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("priority");
    }
    if let Some(priority) = priority {
        pod["spec"]["priority"] = priority.into();
    }
}

/// Adds the condition with which preemption and others mark the pods that they delete.
fn disrupt(dice: &mut Dice, pod: &mut Value) {
    let terminating = pod["metadata"].get("deletionTimestamp").is_some();
    if dice.chance(if terminating { 60 } else { 3 }) {
        let condition = dice.pick(&[
            ("True", "PreemptionByScheduler"),
            ("True", "PreemptionByScheduler"),
            ("True", "PreemptionByScheduler"),
            ("False", "PreemptionByScheduler"),
            ("True", "EvictionByEvictionAPI"),
        ]);
        let ready = json!({ "type": "Ready", "status": "True" });
        let target = json!({ "type": "DisruptionTarget", "status": condition.0, "reason": condition.1 });
        pod["status"]["conditions"] = json!([ready, target]);
    }
}

/// The pod to place has preempted others before, or so it seems.
fn nominate(dice: &mut Dice, world: &mut World) {
    let terminating = world.pods.iter().find_map(|pod| {
        pod["metadata"].get("deletionTimestamp")?;
        pod["spec"].get("nodeName").cloned()
    });
    world.pod["status"]["nominatedNodeName"] = match (terminating, dice.below(100)) {
        (_, 0..8) => "gone".into(),
        (Some(node), 8..70) => node,
        _ => node::name(dice.below(world.nodes.len())).into(),
    };
}
