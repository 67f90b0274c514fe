//! Which pods the extender binds, and to which nodes. kube-scheduler has checked all of it before, but whoever reaches
//! the port can send a request, so what a request says is a claim.
//!
//! In: the world's pod and node. Out: why the pod must not be bound there. Only a pending pod without gates, of a
//! scheduler that this extender serves, is bound; and only to a node whose taints, cordon, labels, host ports and free
//! capacity allow it. The affinity of pods is checked elsewhere, see [`super::judge`].

use model::{NodeId, PodId, World};
use scheduler::NodeChecks;

use super::BindError;

pub(super) struct Admission {
    scheduler_names: Vec<String>,
    checks: NodeChecks,
}

impl Admission {
    pub(super) fn new(scheduler_names: Vec<String>) -> Admission {
        Admission { scheduler_names, checks: NodeChecks::default() }
    }

    /// `shown`: the pod's namespace and name, for the error.
    pub(super) fn of_pod(&self, world: &World, id: PodId, shown: &str) -> Result<(), BindError> {
        let Some(pod) = world.pod(id) else { return Err(BindError::PodUnknown(shown.to_owned())) };
        let Some(facts) = &pod.scheduling else { return Err(BindError::Unread(shown.to_owned())) };
        if pod.terminating || pod.finished {
            return Err(BindError::Ending(shown.to_owned()));
        }
        if !self.scheduler_names.contains(&facts.scheduler_name) {
            let scheduler = facts.scheduler_name.clone();
            return Err(BindError::OtherScheduler { pod: shown.to_owned(), scheduler });
        }
        match facts.gates.first() {
            Some(gate) => Err(BindError::Gated { pod: shown.to_owned(), gate: gate.clone() }),
            None => Ok(()),
        }
    }

    pub(super) fn of_node(&self, world: &World, id: PodId, node: NodeId) -> Result<(), BindError> {
        match self.checks.misfit(world, id, node) {
            None => Ok(()),
            Some(misfit) => {
                let node = world.node_name(node).unwrap_or_default().to_owned();
                Err(BindError::Misfit { node, plugin: misfit.plugin, reason: misfit.reason })
            }
        }
    }
}
