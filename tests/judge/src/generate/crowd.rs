//! Fills the nodes of a world, so that the pod to place fits on few nodes or none, but would fit instead of some pods.

use serde_json::{Value, json};

use super::dice::Dice;
use super::{Focus, node, pod};
use crate::World;

/// Per node, so that a world stays small.
const PODS_MAX: usize = 9;

/// All in thousandths of a CPU.
const WANTED: &[usize] = &[800, 1500, 2000, 3000];
const CAPACITY: &[usize] = &[2000, 3000, 4000, 4000, 6000];
const SIZES: &[usize] = &[200, 300, 500, 500, 800, 1000, 1500];

/// Gives the pod to place a large request, and every node pods until less than that is left. If the nodes are `alike`, all
/// have the same capacity, and all pods the same size.
pub fn fill(dice: &mut Dice, focus: &Focus, world: &mut World, alike: bool) {
    let wanted = dice.pick(WANTED);
    let same = alike.then(|| (dice.pick(CAPACITY), dice.pick(SIZES)));
    request(&mut world.pod, wanted);
    let node_count = world.nodes.len();
    // Nodes with room: what rejects them is not their resources.
    let loose = (focus.pod_affinity || focus.ports || focus.spread) && dice.chance(40);
    // A node with room: preemption is not even tried.
    let roomy = dice.maybe(6, |dice| dice.below(node_count));
    for index in 0..node_count {
        let capacity = same.map_or_else(|| dice.pick(CAPACITY), |(capacity, _)| capacity);
        // Few pods are allowed on some nodes: the number of victims counts, not their size.
        let pods = dice.pick(&["110", "110", "110", "110", "4"]);
        for of in ["capacity", "allocatable"] {
            world.nodes[index]["status"][of]["cpu"] = millis(capacity).into();
            world.nodes[index]["status"][of]["pods"] = pods.into();
        }
        let left = match roomy {
            Some(roomy) if roomy == index => capacity,
            _ if loose => dice.below(capacity / 100) * 100,
            _ => dice.below(wanted / 100) * 100,
        };
        let mut free = capacity;
        for _ in 0..PODS_MAX {
            if free <= left {
                break;
            }
            let mut pod = pod::existing(dice, focus, world.pods.len(), node_count);
            let size = same.map_or_else(|| dice.pick(SIZES), |(_, size)| size).min(free);
            request(&mut pod, size);
            if pod["spec"].get("nodeName").is_some() {
                pod["spec"]["nodeName"] = node::name(index).into();
                free -= size;
            }
            world.pods.push(pod);
        }
    }
}

/// Replaces the requests of a pod. The other containers and resources of the pod keep theirs, except where the API
/// would not accept them beside the new one.
fn request(pod: &mut Value, cpu: usize) {
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("resources");
    }
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": millis(cpu) } });
}

fn millis(cpu: usize) -> String {
    format!("{cpu}m")
}
