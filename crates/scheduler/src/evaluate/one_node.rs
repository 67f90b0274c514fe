//! Checks a pod against one node, without a profile and without a scheduler.
//!
//! In: the world, a pod and a node. Out: the first plugin that rejects the node, and why. For parts that do not choose
//! nodes but must not trust who did: taints, cordons, selectors, host ports and requests, with the default arguments of
//! their plugins. Affinity and physical hosts are not among them.

use model::storage::arena::DenseId;
use model::{NodeId, NodeSet, PodId, World};

use super::trial::{rejection_of, verdict_of};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::registry::Built;
use crate::framework::status::{Rejections, Status};
use crate::plugins::{
    NodeAffinity, NodeName, NodePorts, NodeResourcesFit, NodeUnschedulable, TaintToleration, standard,
};

/// Why a pod may not run on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    pub plugin: &'static str,
    /// In kube-scheduler's words.
    pub reason: String,
}

/// The plugins, in kube-scheduler's order. One that cannot be built rejects every node.
pub struct NodeChecks {
    plugins: Vec<Result<Built, Misfit>>,
}

impl Default for NodeChecks {
    fn default() -> Self {
        let registry = standard();
        let build = |plugin: &'static str| match registry.build(plugin, None) {
            Some(Ok(built)) => Ok(built),
            Some(Err(reason)) => Err(Misfit { plugin, reason }),
            None => Err(Misfit { plugin, reason: "it is not registered".to_owned() }),
        };
        Self { plugins: Self::PLUGINS.into_iter().map(build).collect() }
    }
}

impl NodeChecks {
    const PLUGINS: [&'static str; 6] = [
        NodeUnschedulable::NAME,
        NodeName::NAME,
        TaintToleration::NAME,
        NodeAffinity::NAME,
        NodePorts::NAME,
        NodeResourcesFit::NAME,
    ];

    /// `None` if no plugin rejects the node. An unknown pod is not checked.
    pub fn misfit(&self, world: &World, pod: PodId, node: NodeId) -> Option<Misfit> {
        let cycle = Cycle::of(world, pod)?;
        let nodes: NodeSet = [node].into_iter().collect();
        let mut rejections = Rejections::default();
        self.plugins.iter().find_map(|built| {
            let built = match built {
                Ok(built) => built,
                Err(misfit) => return Some(misfit.clone()),
            };
            let misfit = |reason: String| Some(Misfit { plugin: built.plugin.name(), reason });
            let mut slot = built.plugin.slot();
            if let Some(plugin) = &built.pre_filter {
                match plugin.pre_filter(&cycle, &mut slot) {
                    Ok(Some(allowed)) if !allowed.contains(node) => {
                        return misfit("node(s) didn't match the nodes that the pod names".to_owned());
                    }
                    Ok(_) => (),
                    Err(Status::Skip) => return None,
                    Err(status) => return misfit(rejection_of(status).reasons.message()),
                }
            }
            rejections.reset(node.index() + 1);
            built.filter.as_ref()?.filter_all(&cycle, &slot, &nodes, &mut rejections);
            misfit(verdict_of(&rejections, node)?.reasons.message())
        })
    }
}

#[cfg(test)]
mod tests {
    use model::event::{Event, NodeFacts, PodFacts};
    use model::scheduling::{
        HostPort, NodeSchedulingFacts, PodRequests, PodSchedulingFacts, ResourceSums, Taint, TaintEffect, Toleration,
    };

    use super::*;

    fn cpu(cpu_milli: i64) -> ResourceSums {
        ResourceSums { cpu_milli, ..ResourceSums::default() }
    }

    fn node(name: &str, change: impl FnOnce(&mut NodeSchedulingFacts)) -> Event {
        let mut scheduling =
            NodeSchedulingFacts { allocatable: cpu(1000), allowed_pods: 10, ..NodeSchedulingFacts::default() };
        change(&mut scheduling);
        Event::NodeApplied(NodeFacts {
            name: name.to_owned(),
            scheduling: Some(scheduling.into()),
            ..NodeFacts::default()
        })
    }

    fn pod(name: &str, on: Option<&str>, change: impl FnOnce(&mut PodFacts, &mut PodSchedulingFacts)) -> Event {
        let requests = PodRequests { asked: cpu(600), taken: cpu(600), ..PodRequests::default() };
        let mut scheduling = PodSchedulingFacts { requests, ..PodSchedulingFacts::default() };
        let mut facts = PodFacts {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            node: on.map(str::to_owned),
            ..PodFacts::default()
        };
        change(&mut facts, &mut scheduling);
        Event::PodApplied(PodFacts { scheduling: Some(scheduling.into()), ..facts })
    }

    #[test]
    fn number_7_taints_cordons_selectors_ports_and_requests_are_checked() {
        let taint = |effect| Taint { key: "k".to_owned(), value: "v".to_owned(), effect };
        let port = || HostPort { ip: HostPort::EVERY_ADDRESS.to_owned(), protocol: "TCP".to_owned(), port: 80 };
        let mut world = World::default();
        let selected = |facts: &mut PodFacts, _: &mut PodSchedulingFacts| {
            facts.node_affinity.node_selector.insert("zone".to_owned(), "a".to_owned());
        };
        for event in [
            node("free", |_| ()),
            node("cordoned", |facts| facts.unschedulable = true),
            node("tainted", |facts| facts.taints = vec![taint(TaintEffect::NoSchedule)]),
            node("preferred", |facts| facts.taints = vec![taint(TaintEffect::PreferNoSchedule)]),
            node("full", |_| ()),
            node("none", |facts| facts.allowed_pods = 0),
            pod("there", Some("full"), |_, facts| facts.host_ports = vec![port()]),
            pod("plain", None, |_, _| ()),
            pod("tolerant", None, |_, facts| facts.tolerations = vec![Toleration::default()]),
            pod("selective", None, selected),
            pod("port", None, |_, facts| {
                facts.requests = PodRequests::default();
                facts.host_ports = vec![port()];
            }),
        ] {
            world.apply(event);
        }
        let checks = NodeChecks::default();
        for (pod, node, expected) in [
            ("plain", "free", None),
            ("plain", "cordoned", Some("NodeUnschedulable")),
            ("plain", "tainted", Some("TaintToleration")),
            ("plain", "preferred", None),
            ("plain", "full", Some("NodeResourcesFit")),
            ("plain", "none", Some("NodeResourcesFit")),
            ("tolerant", "cordoned", None),
            ("tolerant", "tainted", None),
            ("selective", "free", Some("NodeAffinity")),
            ("port", "free", None),
            ("port", "full", Some("NodePorts")),
        ] {
            let misfit =
                checks.misfit(&world, world.pod_id("ns", pod).expect("a pod"), world.node_id(node).expect("a node"));
            assert_eq!(misfit.as_ref().map(|misfit| misfit.plugin), expected, "{pod} on {node}: {misfit:?}");
            assert!(misfit.is_none_or(|misfit| !misfit.reason.is_empty()));
        }
    }
}
