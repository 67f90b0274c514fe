//! Which pods are behind a rule.

use std::collections::{BTreeMap, BTreeSet};

use model::{PodId, World};

use crate::finding::PodRef;
use crate::places::pod_ref;
use crate::wanted::{ClusterWanted, Source};

/// The pods on these VMs of which one's anti-affinity is about another, by name.
pub(crate) fn pods_wanted_apart(world: &World, wanted: &ClusterWanted, members: &[usize]) -> Vec<PodRef> {
    let mut shared: BTreeMap<usize, usize> = BTreeMap::new();
    for member in members {
        wanted.sources_of_vm[*member].iter().for_each(|source| *shared.entry(*source).or_default() += 1);
    }
    let mut found: BTreeSet<PodId> = BTreeSet::new();
    for (source, _) in shared.into_iter().filter(|(_, vms)| *vms > 1) {
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
