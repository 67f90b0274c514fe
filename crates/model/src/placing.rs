//! Where pods are: how pods, nodes and hosts that change reach the index of terms.
//!
//! In: pods as they are told or assumed, nodes whose labels or host may have changed. Out: the index, and the nodes that
//! take no pods, as of now. Invariant: a pod counts on a node exactly while both are known and one names the other.

use crate::affinity::Around;
use crate::arena::{NodeId, PodId};
use crate::event::{PodFacts, Source};
use crate::pods::Forgotten;
use crate::world::World;

impl World {
    /// Brings the place of a node up to date with its labels and its host.
    pub(crate) fn locate(&mut self, id: NodeId) {
        let Some(name) = self.node(id).map(|node| node.name) else { return };
        let host = self.host_label_value(id).map(|host| self.interner.acquire(&host));
        let around = Around { namespaces: &self.namespaces, nodes: &self.nodes };
        self.affinity.set_node(id, host, self.pods.on_node(name), around, &mut self.interner);
        self.reconsider_refusal(id);
    }

    pub(crate) fn reconsider_refusal(&mut self, id: NodeId) {
        let is_refused = self.takes_no_pods(id);
        self.refused.set(id, is_refused);
    }

    pub(crate) fn apply_pod(&mut self, facts: &PodFacts) {
        let generation = self.sources.generation(Source::Pods);
        let before = self.pod_id(&facts.namespace, &facts.name).and_then(|id| self.standing(id));
        let id = self.pods.apply(facts, generation, &mut self.interner);
        self.set_policy(id, facts);
        self.pod_changed(id, before.as_ref());
    }

    fn set_policy(&mut self, id: PodId, facts: &PodFacts) {
        let node = self.pod_node(id);
        let around = Around { namespaces: &self.namespaces, nodes: &self.nodes };
        self.affinity.set_pod(id, facts, node, around, &mut self.interner);
    }

    pub(crate) fn assume_pod(&mut self, facts: &PodFacts, node: &str) {
        let generation = self.sources.generation(Source::Pods);
        let before = self.pod_id(&facts.namespace, &facts.name).and_then(|id| self.standing(id));
        let Some((id, is_new)) = self.pods.assume(facts, node, generation, &mut self.interner) else { return };
        if is_new {
            self.set_policy(id, facts);
        } else {
            self.affinity.place(id, self.pod_node(id));
        }
        self.pod_changed(id, before.as_ref());
    }

    pub(crate) fn forget_pod(&mut self, id: PodId, uid: &str) {
        let before = self.standing(id);
        match self.pods.forget(id, uid, &mut self.interner) {
            Forgotten::Nothing => {}
            Forgotten::TakenOff(id) => {
                self.affinity.place(id, None);
                self.pod_changed(id, before.as_ref());
            }
            Forgotten::ToRemove(id) => self.remove_pod(id),
        }
    }

    pub(crate) fn remove_pod(&mut self, id: PodId) {
        let before = self.standing(id);
        self.affinity.remove_pod(id, &mut self.interner);
        self.pods.remove(id, &mut self.interner);
        self.pod_changed(id, before.as_ref());
    }
}
