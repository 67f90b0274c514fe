//! DefaultPreemption: makes room for a pod that fits no node by evicting pods of lower priority.
//!
//! In: the nodes that the filters rejected. Out: the node where eviction does least harm, and the pods to evict there;
//! or why nothing helps. The scheduler evicts them and keeps the room for the pod.
//!
//! - `victims`: which pods of a node must go. `budgets`: which of them a PodDisruptionBudget protects. `choice`: the
//!   best of several nodes. `examined`: results that are kept for equal pods.
//!
//! Semantics are those of kube-scheduler 1.36 with all nodes examined. Differences: `minCandidateNodesPercentage` and
//! `minCandidateNodesAbsolute` change nothing, and a budget with an empty selector protects all pods of its namespace,
//! as the API says. Where a filter counts pods of other nodes against a node and lets them be evicted, as PhysicalHost
//! does by setting, victims run on these nodes too.

mod budgets;
mod choice;
mod examined;
#[cfg(test)]
mod host_tests;
#[cfg(test)]
pub(crate) mod tests;
mod victims;

use std::cell::RefCell;
use std::collections::BTreeMap;

use model::{NodeId, PodId, World};
use serde::Deserialize;

use self::budgets::Budgets;
use self::choice::Cost;
pub use self::examined::Examined;
use self::examined::Finding;
pub(crate) use self::victims::Candidate;
use self::victims::Victims;
use crate::framework::change::ChangeKinds;
use crate::framework::cycle::Cycle;
use crate::framework::handle::Handle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{Nomination, PostFilter, PostFilterAnswer, RejectedNodes};
use crate::framework::registry::{Points, Register};
use crate::framework::status::{Rejection, Status};
use model::scheduling::PreemptionPolicy;

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

pub struct DefaultPreemption;

/// Accepted because kube-scheduler has them; all nodes are examined.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Args {
    min_candidate_nodes_percentage: Option<i32>,
    min_candidate_nodes_absolute: Option<i32>,
}

impl Plugin for DefaultPreemption {
    const NAME: &'static str = "DefaultPreemption";
    type State = ();

    fn reads(&self) -> Reads {
        Reads::Node
    }

    /// It rejects no pod. The filters that did know what helps.
    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NONE
    }
}

/// The nodes where evicting pods makes room, and why the other nodes are none of them.
pub(crate) struct Search {
    pub(crate) candidates: Vec<Candidate>,
    refused: Vec<Rejection>,
}

/// Why the pod may not preempt others now.
pub(crate) fn ineligible(cycle: &Cycle<'_>, rejected: &dyn RejectedNodes) -> Option<&'static str> {
    if cycle.facts().preemption == PreemptionPolicy::Never {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let nominated = cycle.world.node_id(cycle.world.nominated_node(cycle.pod_id)?)?;
    // Eviction does not help there any more, so another node is needed.
    if rejected.rejection(nominated).is_some_and(|rejection| !rejection.resolvable) {
        return None;
    }
    let own = cycle.facts().priority;
    if has_leaving_victims(cycle.world, nominated, own) {
        return Some("not eligible due to a terminating pod on the nominated node.");
    }
    let leaves = rejected.blockers_elsewhere(nominated).iter().any(|pod| is_leaving_victim(cycle.world, *pod, own));
    leaves.then_some("not eligible due to a terminating pod on the physical host of the nominated node.")
}

/// Whether a pod of lower priority that was preempted still terminates on the node.
pub(crate) fn has_leaving_victims(world: &World, node: NodeId, priority: i32) -> bool {
    world.pods_on(node).iter().any(|pod| is_leaving_victim(world, *pod, priority))
}

fn is_leaving_victim(world: &World, id: PodId, priority: i32) -> bool {
    let pod = world.pod(id).filter(|pod| pod.terminating && !pod.finished);
    pod.is_some_and(|pod| pod.priority() < priority && world.is_preempted(id))
}

/// Examines every node where removing pods may help, in the order of ids.
pub(crate) fn search(
    cycle: &Cycle<'_>,
    rejected: &dyn RejectedNodes,
    mut found: impl FnMut(&Candidate),
) -> Vec<Rejection> {
    let mut refused = Vec::new();
    let budgets = Budgets::of(cycle.world);
    let mut victims = Victims::new(cycle, rejected, budgets);
    for node in rejected.resolvable().iter() {
        match victims.on(node) {
            Ok(candidate) => found(candidate),
            Err(rejection) => refused.push(rejection),
        }
    }
    refused
}

/// The best candidate; of equal ones the first. Uses what is kept of earlier pods of the class.
fn best(cycle: &Cycle<'_>, rejected: &dyn RejectedNodes) -> Result<Candidate, Vec<Rejection>> {
    let mut without_class = Examined::default();
    // With preemption across a physical host, a result depends on the pods of other nodes, too.
    let is_kept = !cycle.world.lifting().host_preemption;
    let mut of_class = rejected.examined().filter(|_| is_kept).map(RefCell::borrow_mut);
    let examined = of_class.as_deref_mut().unwrap_or(&mut without_class);
    examined.begin(cycle.world);
    let mut victims = Victims::new(cycle, rejected, Budgets::of(cycle.world));
    let (mut best, mut refused): (Option<(Cost, NodeId)>, Vec<usize>) = (None, Vec::new());
    #[cfg(test)]
    tests::note_kept(rejected.resolvable().iter().filter(|node| examined.of(*node).is_some()).count());
    for node in rejected.resolvable().iter() {
        let finding = examined.of(node).unwrap_or_else(|| {
            let found = victims.on(node).map(|candidate| Cost::of(cycle.world, candidate));
            let finding = match found {
                Ok(cost) => Finding::Candidate(cost),
                Err(rejection) => Finding::Refused(examined.reason(rejection)),
            };
            examined.add(node, finding, victims.depend_on_budgets());
            finding
        });
        match finding {
            Finding::Candidate(cost) if best.as_ref().is_none_or(|(least, _)| cost < *least) => {
                best = Some((cost, node));
            }
            Finding::Candidate(_) => (),
            Finding::Refused(reason) => refused.push(reason),
        }
    }
    let best = match best {
        Some((_, node)) => victims.on(node).cloned().map_err(|rejection| vec![rejection]),
        None => Err(refused.into_iter().filter_map(|reason| examined.rejection(reason).cloned()).collect()),
    };
    #[cfg(test)]
    tests::assert_same_without_kept_results(cycle, rejected, &best);
    best
}

impl Search {
    pub(crate) fn of(cycle: &Cycle<'_>, rejected: &dyn RejectedNodes) -> Self {
        let mut candidates = Vec::new();
        let refused = search(cycle, rejected, |candidate| candidates.push(candidate.clone()));
        Self { candidates, refused }
    }

    /// The node that would be chosen; of equal ones the first.
    pub(crate) fn best(&self, world: &World) -> Option<NodeId> {
        self.candidates.iter().min_by_key(|candidate| Cost::of(world, candidate)).map(|candidate| candidate.node)
    }

    /// Why there is no candidate.
    pub(crate) fn message(&self, world: &World) -> String {
        message(world, &self.refused)
    }
}

/// The number of nodes for each reason. Nodes that were not examined cannot be helped.
fn message(world: &World, refused: &[Rejection]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let others = world.node_count().saturating_sub(refused.len());
    if others > 0 {
        counts.insert(NOT_HELPFUL, others);
    }
    for reason in refused.iter().flat_map(|rejection| rejection.reasons.iter()) {
        *counts.entry(reason).or_default() += 1;
    }
    // Sorted as text, including the numbers, as the message of the filters.
    let mut counted: Vec<String> = counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    counted.sort_unstable();
    format!("0/{} nodes are available: {}.", world.node_count(), counted.join(", "))
}

impl PostFilter for DefaultPreemption {
    fn post_filter(
        &self,
        cycle: &Cycle<'_>,
        (): &mut (),
        rejected: &dyn RejectedNodes,
        _: &mut Handle<'_>,
    ) -> PostFilterAnswer {
        let unschedulable = |why: &str| Status::unschedulable(format!("preemption: {why}"));
        if let Some(why) = ineligible(cycle, rejected) {
            return PostFilterAnswer::nothing(unschedulable(why));
        }
        match best(cycle, rejected) {
            Ok(Candidate { node, victims, .. }) => PostFilterAnswer::preempt(node, victims),
            Err(refused) => PostFilterAnswer {
                nomination: Nomination::Clear,
                ..PostFilterAnswer::nothing(unschedulable(&message(cycle.world, &refused)))
            },
        }
    }
}

impl Register for DefaultPreemption {
    type Args = Args;

    fn build(_: Args) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.post_filter()
    }
}
