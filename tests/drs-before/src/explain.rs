//! Which pods are behind a rule.

use model::World;

use crate::finding::PodRef;
use crate::gather::{Part, Placed};
use crate::places::pod_refs;

/// How many pods are named: a rule may serve many workloads, and nobody reads hundreds of names.
pub(crate) const PODS_NAMED_MAX: usize = 50;

/// The pods on these VMs of which one's anti-affinity is about another, by name, and no more than [`PODS_NAMED_MAX`].
pub(crate) fn pods_wanted_apart(world: &World, part: &Part, members: &[usize]) -> Vec<PodRef> {
    let within = |pods: &[Placed]| -> Vec<Placed> {
        pods.iter().filter(|(vm, _)| members.contains(&(*vm as usize))).copied().collect()
    };
    let (carriers, matches) = (within(&part.carriers), within(&part.matches));
    let has_other = |of: &[Placed], vm: u32| of.iter().any(|(other, _)| *other != vm);
    let one_way = carriers.iter().filter(|(vm, _)| has_other(&matches, *vm));
    let other_way = matches.iter().filter(|(vm, _)| has_other(&carriers, *vm));
    let mut pods: Vec<model::PodId> = one_way.chain(other_way).map(|(_, pod)| *pod).collect();
    pods.sort_unstable();
    pods.dedup();
    let mut pods = pod_refs(world, pods);
    pods.truncate(PODS_NAMED_MAX);
    pods
}
