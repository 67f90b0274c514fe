//! NodeResourcesFit: a node must have enough free resources for the pod. What is free, or used, gives the score.

use std::borrow::Cow;
use std::collections::BTreeSet;

use model::storage::arena::DenseId;
use model::{NodeId, NodeSet, PodId, World};
use serde::Deserialize;

use super::node_resources::{ResourceSpec, Shift, Weighed, amount, is_extended, or_default, shifts};
use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{Filter, NODE_SCORE_MAX, NodeTrial, PreFilter, PreScore, Score};
use crate::framework::registry::{Points, Register};
use crate::framework::status::{Reasons, Rejection, RejectionId, Rejections, Status};

/// The highest score of a point in a shape.
const SHAPE_SCORE_MAX: i64 = 10;

pub struct NodeResourcesFit {
    ignored: BTreeSet<String>,
    ignored_groups: BTreeSet<String>,
    resources: Vec<ResourceSpec>,
    strategy: Strategy,
}

/// How a node is scored.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Strategy {
    LeastAllocated,
    MostAllocated,
    /// Points of utilisation in percent and score from 0 to 100, connected by straight lines.
    Shape(Vec<(i64, i64)>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Args {
    ignored_resources: Vec<String>,
    ignored_resource_groups: Vec<String>,
    scoring_strategy: Option<ScoringStrategy>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScoringStrategy {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    resources: Vec<ResourceSpec>,
    requested_to_capacity_ratio: Option<RequestedToCapacityRatio>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestedToCapacityRatio {
    shape: Vec<ShapePoint>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShapePoint {
    utilization: i64,
    score: i64,
}

impl Strategy {
    fn of(kind: &str, ratio: Option<RequestedToCapacityRatio>) -> Result<Self, String> {
        let field = "scoringStrategy.requestedToCapacityRatio";
        match (kind, ratio) {
            ("LeastAllocated", None) => Ok(Self::LeastAllocated),
            ("MostAllocated", None) => Ok(Self::MostAllocated),
            ("RequestedToCapacityRatio", Some(ratio)) => Self::shape(&ratio.shape),
            ("RequestedToCapacityRatio", None) => Err(format!("{field} is required")),
            ("LeastAllocated" | "MostAllocated", Some(_)) => Err(format!("{field} cannot be used with {kind}")),
            _ => Err(format!(
                "scoringStrategy.type: {kind:?} is not LeastAllocated, MostAllocated or RequestedToCapacityRatio"
            )),
        }
    }

    fn shape(points: &[ShapePoint]) -> Result<Self, String> {
        let field = "scoringStrategy.requestedToCapacityRatio.shape";
        if points.is_empty() {
            return Err(format!("{field}: at least one point is required"));
        }
        if points.windows(2).any(|pair| pair[0].utilization >= pair[1].utilization) {
            return Err(format!("{field}: utilization must increase from point to point"));
        }
        if points.iter().any(|point| !(0..=100).contains(&point.utilization)) {
            return Err(format!("{field}: utilization is not between 0 and 100"));
        }
        if points.iter().any(|point| !(0..=SHAPE_SCORE_MAX).contains(&point.score)) {
            return Err(format!("{field}: score is not between 0 and {SHAPE_SCORE_MAX}"));
        }
        let scale = NODE_SCORE_MAX / SHAPE_SCORE_MAX;
        Ok(Self::Shape(points.iter().map(|point| (point.utilization, point.score * scale)).collect()))
    }

    /// The score of one resource of a node whose capacity is not 0. Numbers wrap as upstream.
    fn score(&self, requested: i64, capacity: i64) -> i64 {
        let share = |part: i64| part.wrapping_mul(NODE_SCORE_MAX).wrapping_div(capacity);
        match self {
            Self::LeastAllocated if requested > capacity => 0,
            Self::LeastAllocated => share(capacity.wrapping_sub(requested)),
            Self::MostAllocated => share(requested.min(capacity)),
            Self::Shape(points) => along(points, if requested > capacity { 100 } else { share(requested) }),
        }
    }

    /// The score of a node: the weighted mean of its resources. With a shape, a resource with score 0 has no weight.
    fn mean(&self, at: usize, resources: &[Weighed<'_>]) -> i64 {
        let (mut sum, mut weights) = (0_i64, 0);
        for resource in resources {
            let capacity = resource.allocatable[at];
            if capacity == 0 {
                continue;
            }
            let score = self.score(resource.requested_with_pod(at), capacity);
            if matches!(self, Self::Shape(_)) && score <= 0 {
                continue;
            }
            sum = sum.wrapping_add(score.wrapping_mul(resource.weight));
            weights += resource.weight;
        }
        match self {
            _ if weights == 0 => 0,
            Self::Shape(_) => (sum as f64 / weights as f64).round() as i64,
            _ => sum / weights,
        }
    }
}

/// The value at `utilization` of the lines that connect the points.
fn along(points: &[(i64, i64)], utilization: i64) -> i64 {
    let Some(next) = points.iter().position(|&(at, _)| utilization <= at) else {
        return points.last().map_or(0, |&(_, score)| score);
    };
    let (to, to_score) = points[next];
    let Some(&(from, from_score)) = next.checked_sub(1).map(|before| &points[before]) else { return to_score };
    from_score + (to_score - from_score) * (utilization - from) / (to - from)
}

/// A pod's request for one resource, with that resource's columns over all nodes.
struct Wanted<'a> {
    name: &'a str,
    amount: i64,
    allocatable: &'a [i64],
    requested: &'a [i64],
}

/// A pod's requests for all resources.
struct Demand<'a> {
    pods: &'a [i64],
    allowed_pods: &'a [i64],
    wanted: Vec<Wanted<'a>>,
    shifts: Vec<Shift<'a>>,
}

/// Why a pod does not fit a node: one bit for the number of pods, then one per requested resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shortage {
    bits: u64,
    /// The pod would not fit even if the node were empty.
    unresolvable: bool,
}

const TOO_MANY_PODS: u64 = 1;

impl<'a> Demand<'a> {
    fn of(plugin: &NodeResourcesFit, cycle: &Cycle<'a>) -> Self {
        let (columns, asked) = (cycle.world.resources(), &cycle.facts().requests.asked);
        let fixed = ["cpu", "memory", "ephemeral-storage"];
        let names = fixed.into_iter().chain(asked.scalar.keys().map(String::as_str));
        let wanted = names.filter(|name| !plugin.ignores(name)).filter_map(|name| {
            let resource = columns.resource(name);
            let (allocatable, requested) = (columns.allocatable(resource), columns.requested(resource));
            let amount = amount(asked, name);
            (amount > 0).then_some(Wanted { name, amount, allocatable, requested })
        });
        Self {
            pods: columns.pods(),
            allowed_pods: columns.allowed_pods(),
            // `Shortage` has bits for 63 resources. No pod requests that many.
            wanted: wanted.take(63).collect(),
            shifts: shifts(cycle),
        }
    }

    fn shortage(&self, node: NodeId) -> Option<Shortage> {
        let shifts = self.shifts.iter().filter(|shift| shift.node == node);
        let pods = shifts.clone().map(|shift| shift.sign).sum();
        self.shortage_with(node, pods, |index| {
            let name = self.wanted[index].name;
            let taken = |shift: &Shift<'_>| shift.sign.wrapping_mul(amount(&shift.requests.taken, name));
            shifts.clone().map(taken).fold(0, i64::wrapping_add)
        })
    }

    /// With this many more pods on the node, and so much more taken of each wanted resource.
    fn shortage_with(&self, node: NodeId, pods: i64, taken: impl Fn(usize) -> i64) -> Option<Shortage> {
        let of = |column: &[i64]| column.get(node.index()).copied().unwrap_or(0);
        let mut shortage = Shortage { bits: 0, unresolvable: false };
        if of(self.pods) + pods + 1 > of(self.allowed_pods) {
            shortage.bits |= TOO_MANY_PODS;
        }
        for (index, wanted) in self.wanted.iter().enumerate() {
            let allocatable = of(wanted.allocatable);
            let requested = of(wanted.requested).wrapping_add(taken(index));
            if wanted.amount > allocatable.wrapping_sub(requested) {
                shortage.bits |= TOO_MANY_PODS << (index + 1);
                shortage.unresolvable |= wanted.amount > allocatable;
            }
        }
        (shortage.bits != 0).then_some(shortage)
    }

    fn rejection(&self, shortage: Shortage) -> Rejection {
        let too_many = (shortage.bits & TOO_MANY_PODS != 0).then_some(Cow::Borrowed("Too many pods"));
        let short = self.wanted.iter().enumerate().filter(|(index, _)| shortage.bits >> (index + 1) & 1 != 0);
        let insufficient = short.map(|(_, wanted)| Cow::Owned(format!("Insufficient {}", wanted.name)));
        let reasons = Reasons::many(too_many.into_iter().chain(insufficient).collect());
        Rejection { resolvable: !shortage.unresolvable, reasons }
    }
}

impl NodeResourcesFit {
    fn ignores(&self, name: &str) -> bool {
        let group = || name.split_once('/').map_or(name, |(group, _)| group);
        is_extended(name) && (self.ignored.contains(name) || self.ignored_groups.contains(group()))
    }
}

impl Plugin for NodeResourcesFit {
    const NAME: &'static str = "NodeResourcesFit";
    type State = ();

    fn reads(&self) -> Reads {
        Reads::NodeAndItsPods
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NODE_ADDED
            | ChangeKinds::NODE_ALLOCATABLE
            | ChangeKinds::POD_LEFT
            | ChangeKinds::POD_SCALED_DOWN
            | ChangeKinds::SELF_UPDATED
    }

    /// Whether the pod now fits the node that changed. If not, a later change wakes the pod again.
    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        change.node.is_none_or(|node| Demand::of(self, waiting).shortage(node).is_none())
    }
}

/// Does nothing. It exists so that configurations that enable the plugin at this point are accepted.
impl PreFilter for NodeResourcesFit {
    fn pre_filter(&self, _: &Cycle<'_>, (): &mut ()) -> Result<Option<NodeSet>, Status> {
        Ok(None)
    }
}

impl Filter for NodeResourcesFit {
    fn filter_all(&self, cycle: &Cycle<'_>, (): &(), nodes: &NodeSet, rejections: &mut Rejections) {
        let demand = Demand::of(self, cycle);
        let mut known: Vec<(Shortage, RejectionId)> = Vec::new();
        for node in nodes.iter() {
            let Some(shortage) = demand.shortage(node) else { continue };
            let found = known.iter().find(|(other, _)| *other == shortage).map(|(_, id)| *id);
            let id = found.unwrap_or_else(|| {
                let id = rejections.id(demand.rejection(shortage));
                known.push((shortage, id));
                id
            });
            rejections.reject(node, id);
        }
    }

    fn node_trial<'a>(&'a self, cycle: &Cycle<'a>, (): &'a ()) -> Option<Box<dyn NodeTrial + 'a>> {
        // The trial itself says which pods count.
        let demand = Demand { shifts: Vec::new(), ..Demand::of(self, cycle) };
        let taken = vec![0; demand.wanted.len()];
        Some(Box::new(FitTrial { demand, world: cycle.world, node: NodeId::from_index(0), pods: 0, taken }))
    }
}

/// The pods and resources that a trial takes and gives back, as sums.
struct FitTrial<'a> {
    demand: Demand<'a>,
    world: &'a World,
    node: NodeId,
    pods: i64,
    /// By index in `demand.wanted`.
    taken: Vec<i64>,
}

impl FitTrial<'_> {
    fn count(&mut self, pod: PodId, by: i64) {
        let Some(facts) = self.world.pod(pod).and_then(|pod| pod.scheduling.as_deref()) else { return };
        self.pods += by;
        for (taken, wanted) in self.taken.iter_mut().zip(&self.demand.wanted) {
            *taken = taken.wrapping_add(by.wrapping_mul(amount(&facts.requests.taken, wanted.name)));
        }
    }

    fn shortage(&self) -> Option<Shortage> {
        self.demand.shortage_with(self.node, self.pods, |index| self.taken[index])
    }
}

impl NodeTrial for FitTrial<'_> {
    fn begin(&mut self, node: NodeId) {
        (self.node, self.pods) = (node, 0);
        self.taken.fill(0);
    }

    fn remove(&mut self, pod: PodId) {
        self.count(pod, -1);
    }

    fn add(&mut self, pod: PodId) {
        self.count(pod, 1);
    }

    fn rejection(&mut self) -> Option<Rejection> {
        self.shortage().map(|shortage| self.demand.rejection(shortage))
    }

    fn fits(&mut self) -> bool {
        self.shortage().is_none()
    }
}

impl PreScore for NodeResourcesFit {
    fn pre_score(&self, _: &Cycle<'_>, (): &mut (), _: &NodeSet) -> Status {
        Status::Success
    }
}

impl Score for NodeResourcesFit {
    fn score_all(&self, cycle: &Cycle<'_>, (): &(), nodes: &NodeSet, scores: &mut [i64]) {
        let resources = Weighed::resolve(&self.resources, cycle, &cycle.facts().requests.scored, true);
        for node in nodes.iter() {
            scores[node.index()] = self.strategy.mean(node.index(), &resources);
        }
    }
}

impl Register for NodeResourcesFit {
    type Args = Args;

    fn build(args: Args) -> Result<Self, String> {
        if let Some(group) = args.ignored_resource_groups.iter().find(|group| group.contains('/')) {
            return Err(format!("ignoredResourceGroups: {group:?} contains a slash"));
        }
        let strategy = args.scoring_strategy.unwrap_or(ScoringStrategy {
            kind: "LeastAllocated".to_owned(),
            resources: Vec::new(),
            requested_to_capacity_ratio: None,
        });
        let resources = or_default(strategy.resources);
        if let Some(spec) = resources.iter().find(|spec| !(1..=100).contains(&spec.weight)) {
            return Err(format!("scoringStrategy.resources: the weight of {} is not between 1 and 100", spec.name));
        }
        Ok(Self {
            ignored: args.ignored_resources.into_iter().collect(),
            ignored_groups: args.ignored_resource_groups.into_iter().collect(),
            resources,
            strategy: Strategy::of(&strategy.kind, strategy.requested_to_capacity_ratio)?,
        })
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_filter().filter().pre_score().score()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_strategy_scores_a_resource_as_upstream_does() {
        let shape = Strategy::Shape(vec![(0, 0), (50, 100), (100, 40)]);
        // Requested, capacity; scores of least allocated, most allocated and the shape.
        let cases = [
            (0, 10, [100, 0, 0]),
            (5, 10, [50, 50, 100]),
            (3, 10, [70, 30, 60]),
            (1, 3, [66, 33, 66]),
            (10, 10, [0, 100, 40]),
            (11, 10, [0, 100, 40]),
            (75, 100, [25, 75, 70]),
        ];
        for (requested, capacity, expected) in cases {
            let found = [&Strategy::LeastAllocated, &Strategy::MostAllocated, &shape]
                .map(|strategy| strategy.score(requested, capacity));
            assert_eq!(found, expected, "{requested} of {capacity}");
        }
    }

    #[test]
    fn invalid_arguments_are_rejected_with_the_wrong_field() {
        let cases = [
            (serde_json::json!({ "scoringStrategy": { "type": "Random" } }), "scoringStrategy.type"),
            (
                serde_json::json!({ "scoringStrategy": { "type": "RequestedToCapacityRatio" } }),
                "requestedToCapacityRatio",
            ),
            (
                serde_json::json!({ "scoringStrategy": { "type": "MostAllocated", "resources": [{ "name": "cpu", "weight": 101 }] } }),
                "the weight of cpu",
            ),
            (serde_json::json!({ "ignoredResourceGroups": ["a/b"] }), "ignoredResourceGroups"),
            (
                serde_json::json!({ "scoringStrategy": { "type": "RequestedToCapacityRatio", "requestedToCapacityRatio":
                    { "shape": [{ "utilization": 50, "score": 1 }, { "utilization": 50, "score": 2 }] } } }),
                "must increase",
            ),
            (
                serde_json::json!({ "scoringStrategy": { "type": "RequestedToCapacityRatio", "requestedToCapacityRatio":
                    { "shape": [{ "utilization": 50, "score": 11 }] } } }),
                "between 0 and 10",
            ),
        ];
        for (args, expected) in cases {
            let error = NodeResourcesFit::build(serde_json::from_value(args).unwrap()).err().unwrap_or_default();
            assert!(error.contains(expected), "{error}");
        }
    }
}
