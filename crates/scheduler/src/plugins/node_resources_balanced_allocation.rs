//! NodeResourcesBalancedAllocation: a node scores higher, the more evenly its resources are used with the pod on it.

use model::NodeSet;
use model::scheduling::ResourceSums;
use model::storage::arena::DenseId;
use serde::Deserialize;

use super::node_resources::{ResourceSpec, Weighed, amount, or_default};
use crate::framework::change::ChangeKinds;
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{NODE_SCORE_MAX, PreScore, Score};
use crate::framework::registry::{Points, Register};
use crate::framework::status::Status;

/// How many fractions are stored; further ones are only counted here.
const FEW: usize = 4;

pub struct NodeResourcesBalancedAllocation {
    resources: Vec<ResourceSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Args {
    resources: Vec<ResourceSpec>,
}

impl NodeResourcesBalancedAllocation {
    /// Pods that request nothing are not scored: they would pile up on the best balanced node.
    fn is_best_effort(&self, adds: &ResourceSums) -> bool {
        self.resources.iter().all(|spec| amount(adds, &spec.name) == 0)
    }
}

impl Plugin for NodeResourcesBalancedAllocation {
    const NAME: &'static str = "NodeResourcesBalancedAllocation";
    type State = ();

    fn reads(&self) -> Reads {
        Reads::NodeAndItsPods
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NONE
    }
}

impl PreScore for NodeResourcesBalancedAllocation {
    fn pre_score(&self, cycle: &Cycle<'_>, (): &mut (), _: &NodeSet) -> Status {
        if self.is_best_effort(&cycle.facts().requests.taken) { Status::Skip } else { Status::Success }
    }
}

impl Score for NodeResourcesBalancedAllocation {
    fn score_all(&self, cycle: &Cycle<'_>, (): &(), nodes: &NodeSet, scores: &mut [i64]) {
        let adds = &cycle.facts().requests.taken;
        if self.is_best_effort(adds) {
            nodes.iter().for_each(|node| scores[node.index()] = 0);
            return;
        }
        let resources = Weighed::resolve(&self.resources, cycle, adds, false);
        nodes.iter().for_each(|node| {
            let (with, without) = balances(node.index(), &resources);
            let half = NODE_SCORE_MAX / 2;
            scores[node.index()] = half + half.saturating_add(with).saturating_sub(without) / 2;
        });
    }
}

/// The balance of a node with the pod, and without it.
fn balances(at: usize, resources: &[Weighed<'_>]) -> (i64, i64) {
    match resources {
        // The fast path for cpu and memory, which is the usual case and runs for thousands of nodes.
        [a, b] if a.allocatable[at] != 0 && b.allocatable[at] != 0 => {
            let (a, b) = (shares(at, a), shares(at, b));
            (percent_even(deviation_of_two(a.0, b.0)), percent_even(deviation_of_two(a.1, b.1)))
        }
        _ => (balance(at, resources, true), balance(at, resources, false)),
    }
}

/// The used fraction of a resource with the pod and without it.
fn shares(at: usize, resource: &Weighed<'_>) -> (f64, f64) {
    let capacity = resource.allocatable[at] as f64;
    let share = |requested: i64| (requested as f64 / capacity).min(1.0);
    (share(resource.requested_with_pod(at)), share(resource.requested(at)))
}

fn deviation_of_two(a: f64, b: f64) -> f64 {
    ((a - b) / 2.0).abs()
}

fn percent_even(deviation: f64) -> i64 {
    ((1.0 - deviation) * NODE_SCORE_MAX as f64) as i64
}

/// How evenly the resources of a node are used, with or without the pod: 100 minus the standard deviation in percent.
/// Computed in upstream's order, because the order affects the last digit.
fn balance(at: usize, resources: &[Weighed<'_>], with_pod: bool) -> i64 {
    let used = resources.iter().filter(|resource| resource.allocatable[at] != 0).map(|resource| {
        let requested = if with_pod { resource.requested_with_pod(at) } else { resource.requested(at) };
        (requested as f64 / resource.allocatable[at] as f64).min(1.0)
    });
    let (mut few, mut count) = ([0.0; FEW], 0);
    for fraction in used.clone() {
        if count < FEW {
            few[count] = fraction;
        }
        count += 1;
    }
    let deviation = match count {
        0 | 1 => 0.0,
        2 => deviation_of_two(few[0], few[1]),
        _ => {
            let total = used.clone().fold(0.0, |sum, fraction| sum + fraction);
            let mean: f64 = total / count as f64;
            let squares = used.fold(0.0, |sum: f64, fraction| sum + (fraction - mean) * (fraction - mean));
            (squares / count as f64).sqrt()
        }
    };
    percent_even(deviation)
}

impl Register for NodeResourcesBalancedAllocation {
    type Args = Args;

    fn build(args: Args) -> Result<Self, String> {
        let resources = or_default(args.resources);
        for (index, spec) in resources.iter().enumerate() {
            if spec.weight != 1 {
                return Err(format!("resources: the weight of {} must be 1", spec.name));
            }
            if resources[..index].iter().any(|other| other.name == spec.name) {
                return Err(format!("resources: {} is named twice", spec.name));
            }
        }
        Ok(Self { resources })
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_score().score()
    }
}
