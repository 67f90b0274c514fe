//! Which pods are behind a rule.

use model::{PodId, World};

use crate::finding::PodRef;
use crate::places::pod_ref;
use crate::wanted::{ClusterWanted, Source};

/// How many pods are named: a rule may serve many workloads, and nobody reads hundreds of names.
pub(crate) const PODS_NAMED_MAX: usize = 50;

/// The pods on these VMs of which one's anti-affinity is about another, by name: first those of the terms that are about
/// most of the VMs, and no more than [`PODS_NAMED_MAX`].
pub(crate) fn pods_wanted_apart(world: &World, wanted: &ClusterWanted, members: &[usize]) -> Vec<PodRef> {
    let mut sources: Vec<usize> = members.iter().flat_map(|member| &wanted.sources_of_vm[*member]).copied().collect();
    sources.sort_unstable();
    let chunks = sources.chunk_by(|a, b| a == b).filter(|chunk| chunk.len() > 1);
    let mut shared: Vec<(usize, usize)> = chunks.map(|chunk| (chunk.len(), chunk[0])).collect();
    shared.sort_unstable_by_key(|(members, source)| (std::cmp::Reverse(*members), *source));
    let mut found: Vec<PodId> = Vec::new();
    for (_, source) in shared {
        if found.len() >= PODS_NAMED_MAX {
            break;
        }
        let Source { carriers, matches, .. } = &wanted.sources[source];
        let within = |pods: &[(usize, PodId)]| -> Vec<(usize, PodId)> {
            pods.iter().filter(|(vm, _)| members.contains(vm)).copied().collect()
        };
        let (carriers, matches) = (within(carriers), within(matches));
        let has_other = |of: &[(usize, PodId)], vm: usize| of.iter().any(|(other, _)| *other != vm);
        found.extend(carriers.iter().filter(|(vm, _)| has_other(&matches, *vm)).map(|(_, pod)| *pod));
        found.extend(matches.iter().filter(|(vm, _)| has_other(&carriers, *vm)).map(|(_, pod)| *pod));
    }
    found.sort_unstable();
    found.dedup();
    let mut pods: Vec<PodRef> = found.into_iter().filter_map(|pod| pod_ref(world, pod)).collect();
    pods.sort_unstable();
    pods.truncate(PODS_NAMED_MAX);
    pods
}
