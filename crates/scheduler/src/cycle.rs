//! What a plugin sees of one attempt to place one pod.

use model::{Pod, PodId, World};

/// One scheduling cycle: the pod, and the world as it is now. Placed pods include those that are placed but not yet seen
/// bound.
#[derive(Clone, Copy, Debug)]
pub struct Cycle<'a> {
    pub world: &'a World,
    pub pod_id: PodId,
    pub pod: &'a Pod,
}

impl<'a> Cycle<'a> {
    /// `None` for a pod that is not known.
    pub fn of(world: &'a World, pod_id: PodId) -> Option<Self> {
        Some(Self { world, pod_id, pod: world.pod(pod_id)? })
    }
}
