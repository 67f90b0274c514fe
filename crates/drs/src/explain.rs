//! Which pods are behind a rule.

use std::collections::BTreeSet;

use model::{PodId, World};

use crate::finding::PodRef;
use crate::places::pod_ref;
use crate::wanted::{ClusterWanted, Source};

/// The pods on these VMs of which one's anti-affinity is about another, by name.
pub(crate) fn pods_wanted_apart(world: &World, wanted: &ClusterWanted, members: &[usize]) -> Vec<PodRef> {
    let mut sources: Vec<usize> = members.iter().flat_map(|member| &wanted.sources_of_vm[*member]).copied().collect();
    sources.sort_unstable();
    let shared = sources.chunk_by(|a, b| a == b).filter(|chunk| chunk.len() > 1).map(|chunk| chunk[0]);
    let mut found: BTreeSet<PodId> = BTreeSet::new();
    for source in shared {
        let Source { carriers, matches, .. } = &wanted.sources[source];
        let within = |pods: &[(usize, PodId)]| -> Vec<(usize, PodId)> {
            pods.iter().filter(|(vm, _)| members.contains(vm)).copied().collect()
        };
        let (carriers, matches) = (within(carriers), within(matches));
        let has_other = |of: &[(usize, PodId)], vm: usize| of.iter().any(|(other, _)| *other != vm);
        found.extend(carriers.iter().filter(|(vm, _)| has_other(&matches, *vm)).map(|(_, pod)| *pod));
        found.extend(matches.iter().filter(|(vm, _)| has_other(&carriers, *vm)).map(|(_, pod)| *pod));
    }
    let mut pods: Vec<PodRef> = found.into_iter().filter_map(|pod| pod_ref(world, pod)).collect();
    pods.sort_unstable();
    pods
}
