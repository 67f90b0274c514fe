//! Which pods are behind a rule.

use std::collections::BTreeSet;

use model::{PodId, Role, World};

use crate::finding::PodRef;
use crate::graph::Bits;
use crate::places::{Places, pod_ref};
use crate::settings::DrsSettings;
use crate::wanted::opted_out;

/// The pods on these VMs of which one's anti-affinity is about another, by name.
pub(crate) fn pods_wanted_apart(
    world: &World,
    places: &Places,
    cluster: usize,
    members: &[usize],
    settings: &DrsSettings,
) -> Vec<PodRef> {
    let vms = &places.clusters[cluster].vms;
    let set = Bits::of(vms.len(), members.iter().copied());
    let mut found: BTreeSet<PodId> = BTreeSet::new();
    for &vm in members {
        for &pod in world.pods_on(vms[vm].node) {
            for &(id, role) in world.pod_terms(pod) {
                let Some(term) = world.term(id).filter(|_| role == Role::AntiAffinity) else { continue };
                let key = world.interner().text(term.topology_key);
                let lifted = settings.lifted_keys.contains(key) && !opted_out(world, pod);
                if key != settings.host_key && !lifted {
                    continue;
                }
                for other in world.pods_matching(id) {
                    if let Some((of, on)) = places.of_pod(world, other)
                        && of == cluster
                        && on != vm
                        && set.contains(on)
                    {
                        found.extend([pod, other]);
                    }
                }
            }
        }
    }
    let mut pods: Vec<PodRef> = found.into_iter().filter_map(|pod| pod_ref(world, pod)).collect();
    pods.sort_unstable();
    pods
}
