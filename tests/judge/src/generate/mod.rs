//! Generates random worlds. They are small and use few distinct names and values, so that objects interact and every
//! branch of the plugins is reached.
//!
//! Each world has a focus: the features that its objects use. Without it, the first filter would reject nearly every
//! node of every world, and the last filter would rarely run.

mod affinity;
mod budgets;
mod config;
mod containers;
mod crowd;
mod dice;
mod node;
mod owners;
mod pod;
mod priorities;
mod volumes;
mod words;

use serde_json::{Map, Value, json};

use crate::World;
use dice::Dice;
use words::{NAMESPACE_LABELS, NAMESPACES, labels};

/// The plugins that a world exercises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// InterPodAffinity alone, with raw scores.
    InterPodAffinity,
    /// All default plugins, under the default configuration or a random one.
    All,
    /// As `All`, with pending pods that have a nominated node.
    Nominated,
    /// Nodes that are nearly full of pods with other priorities, and budgets: what preemption decides on.
    Preemption,
    /// Pods with volumes, in every state; sometimes preemption may help.
    Volumes,
}

impl Profile {
    pub const ALL: [Profile; 5] =
        [Profile::InterPodAffinity, Profile::All, Profile::Nominated, Profile::Preemption, Profile::Volumes];

    /// The name on the command line of the example `world`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Profile::InterPodAffinity => "inter-pod-affinity",
            Profile::All => "all",
            Profile::Nominated => "nominated",
            Profile::Preemption => "preemption",
            Profile::Volumes => "volumes",
        }
    }
}

/// The features that a world's objects use.
#[derive(Clone, Copy, Debug)]
struct Focus {
    taints: bool,
    cordons: bool,
    node_name: bool,
    node_affinity: bool,
    ports: bool,
    /// Nodes are nearly full.
    tight: bool,
    extended_resources: bool,
    resizes: bool,
    images: bool,
    spread: bool,
    owners: bool,
    pod_affinity: bool,
    declared_features: bool,
    nominated: bool,
}

impl Focus {
    fn random(dice: &mut Dice, profile: Profile) -> Focus {
        let nothing = Focus::nothing(profile == Profile::Nominated);
        match profile {
            Profile::InterPodAffinity => return Focus { pod_affinity: true, ..nothing },
            Profile::Preemption => {
                return Focus {
                    taints: dice.chance(10),
                    node_affinity: dice.chance(8),
                    ports: dice.chance(20),
                    spread: dice.chance(20),
                    pod_affinity: dice.chance(30),
                    nominated: dice.chance(50),
                    ..nothing
                };
            }
            // Few other plugins reject a node, because the last filters are those of volumes.
            Profile::Volumes => return Focus { taints: dice.chance(10), tight: dice.chance(10), ..nothing },
            Profile::All | Profile::Nominated => {}
        }
        match dice.below(100) {
            // The last filters, whose verdicts depend on those of the first, on nodes that other filters rarely reject.
            0..30 => Focus {
                spread: true,
                taints: dice.chance(65),
                node_affinity: dice.chance(65),
                images: dice.chance(30),
                ..nothing
            },
            30..55 => Focus { pod_affinity: true, images: dice.chance(30), owners: dice.chance(50), ..nothing },
            // A mix of all features.
            _ => Focus {
                taints: dice.chance(40),
                cordons: dice.chance(45),
                node_name: dice.chance(25),
                node_affinity: dice.chance(40),
                ports: dice.chance(78),
                tight: dice.chance(38),
                extended_resources: dice.chance(28),
                resizes: dice.chance(45),
                images: dice.chance(60),
                spread: dice.chance(25),
                owners: dice.chance(60),
                pod_affinity: dice.chance(25),
                declared_features: dice.chance(60),
                ..nothing
            },
        }
    }

    fn nothing(nominated: bool) -> Focus {
        Focus {
            taints: false,
            cordons: false,
            node_name: false,
            node_affinity: false,
            ports: false,
            tight: false,
            extended_resources: false,
            resizes: false,
            images: false,
            spread: false,
            owners: false,
            pod_affinity: false,
            declared_features: false,
            nominated,
        }
    }
}

impl World {
    /// The world with this number. It is the same on every machine.
    #[must_use]
    pub fn random(number: u64, profile: Profile) -> World {
        let dice = &mut Dice::new(number);
        let focus = Focus::random(dice, profile);
        match profile {
            Profile::Preemption => return World::crowded(dice, &focus),
            Profile::Volumes => return World::with_volumes(dice, &focus),
            _ => {}
        }
        let node_count = dice.between(3, 15);
        // A domain without a matching pod hides counting errors, so worlds with spread constraints have more pods.
        let pod_count = dice.between(if focus.spread { 15 } else { 0 }, 40);
        let mut world = World {
            nodes: (0..node_count).map(|index| node::node(dice, &focus, index, node_count)).collect(),
            namespaces: namespaces(dice),
            pods: (0..pod_count).map(|index| pod::existing(dice, &focus, index, node_count)).collect(),
            pod: pod::incoming(dice, &focus, node_count),
            ..World::default()
        };
        if focus.owners {
            owners::add(dice, &mut world);
        }
        if profile == Profile::InterPodAffinity {
            world.plugins = vec!["InterPodAffinity".to_owned()];
            world.raw = true;
        } else if dice.chance(45) {
            world.config = Some(config::config(dice, node_count));
        }
        world
    }

    fn crowded(dice: &mut Dice, focus: &Focus) -> World {
        let mut world = World::plain(dice, focus, (2, 7), 4);
        // Nodes that differ in nothing that preemption looks at, so that the choice of a node has ties.
        let alike = dice.chance(15);
        crowd::fill(dice, focus, &mut world, alike);
        if dice.chance(12) {
            volumes::add(dice, &mut world);
        }
        priorities::assign(dice, &mut world, alike);
        budgets::add(dice, &mut world);
        world
    }

    fn with_volumes(dice: &mut Dice, focus: &Focus) -> World {
        let mut world = World::plain(dice, focus, (3, 8), 25);
        volumes::add(dice, &mut world);
        if dice.chance(75) {
            priorities::assign(dice, &mut world, false);
        }
        if dice.chance(30) {
            budgets::add(dice, &mut world);
        }
        world
    }

    /// Few nodes and pods under the default configuration, or a random one, with preemption.
    fn plain(dice: &mut Dice, focus: &Focus, (fewest, most): (usize, usize), pods_max: usize) -> World {
        let node_count = dice.between(fewest, most);
        let pod_count = dice.between(0, pods_max);
        World {
            nodes: (0..node_count).map(|index| node::node(dice, focus, index, node_count)).collect(),
            namespaces: namespaces(dice),
            pods: (0..pod_count).map(|index| pod::existing(dice, focus, index, node_count)).collect(),
            pod: pod::incoming(dice, focus, node_count),
            config: dice.maybe(20, |dice| config::config(dice, node_count)),
            preemption: true,
            ..World::default()
        }
    }
}

/// Nearly always all namespaces. One whose object does not exist yet has no labels.
fn namespaces(dice: &mut Dice) -> Vec<Value> {
    let mut namespaces = Vec::new();
    for name in NAMESPACES {
        if dice.chance(2) {
            continue;
        }
        let mut labels: Map<String, Value> = labels(dice, NAMESPACE_LABELS, 70);
        labels.insert("kubernetes.io/metadata.name".to_owned(), (*name).into());
        namespaces
            .push(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } }));
    }
    namespaces
}
