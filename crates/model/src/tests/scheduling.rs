//! Columns and groups compared with a count over all pods, after every event of random histories.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::properties::cases;
use crate::event::{Event, Labels, NodeFacts, Operator, OwnerFacts, PodFacts, RequirementFacts, SelectorFacts, Source};
use crate::scheduling::{
    HostPort, NodeImage, NodeSchedulingFacts, NonZeroSums, PodRequests, PodSchedulingFacts, ResourceSums, SpreadFacts,
    Taint, TaintEffect, WorkloadFacts, WorkloadKind,
};
use crate::volumes::{Disk, PodVolume};
use crate::{NodeId, PodId, World};

const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];
const KEYS: [&str; 3] = ["app", "zone", "tier"];
const VALUES: [&str; 3] = ["a", "b", ""];
const NAMESPACES: [&str; 2] = ["shop", "bank"];
const IMAGES: [&str; 3] = ["web:1", "db:1", "db:2"];
const CLAIMS: [&str; 2] = ["data-1", "data-2"];
const ADDRESSES: [&str; 3] = [HostPort::EVERY_ADDRESS, "10.0.0.1", "::"];

fn text(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(of).prop_map(str::to_owned)
}

fn labels() -> impl Strategy<Value = Labels> {
    btree_map(text(&KEYS), text(&VALUES), 0..3)
}

fn sums() -> impl Strategy<Value = ResourceSums> {
    (0i64..5, 0i64..5, 0i64..3, btree_map(text(&["example.com/gpu", "hugepages-2Mi"]), 1i64..4, 0..2)).prop_map(
        |(cpu_milli, memory_bytes, ephemeral_storage_bytes, scalar)| ResourceSums {
            cpu_milli,
            memory_bytes,
            ephemeral_storage_bytes,
            scalar,
        },
    )
}

fn node() -> impl Strategy<Value = NodeFacts> {
    let taint = |key: &str| Taint { key: key.to_owned(), value: String::new(), effect: TaintEffect::NoSchedule };
    let taints = subsequence(vec![taint("x"), taint("y")], 0..=2);
    let images = subsequence(IMAGES.to_vec(), 0..=3).prop_map(|names| {
        let image = |name: &str| NodeImage { names: vec![name.to_owned()], size_bytes: 7 };
        names.into_iter().map(image).collect::<Vec<_>>()
    });
    let features = subsequence(vec!["F".to_owned(), "G".to_owned()], 0..=2);
    let facts = (sums(), 0i64..4, taints, any::<bool>(), images, features).prop_map(
        |(allocatable, allowed_pods, taints, unschedulable, images, declared_features)| {
            Arc::new(NodeSchedulingFacts {
                allocatable,
                allowed_pods,
                taints,
                unschedulable,
                images,
                declared_features,
            })
        },
    );
    (text(&NODES), labels(), option::weighted(0.9, facts)).prop_map(|(name, labels, scheduling)| NodeFacts {
        name,
        labels,
        scheduling,
        ..NodeFacts::default()
    })
}

fn selector() -> impl Strategy<Value = Option<SelectorFacts>> {
    let operator = select(vec![Operator::In, Operator::NotIn, Operator::Exists, Operator::DoesNotExist]);
    let requirement = (text(&KEYS), operator, vec(text(&VALUES), 1..3))
        .prop_map(|(key, operator, values)| RequirementFacts { key, operator, values });
    let selector =
        (labels(), vec(requirement, 0..2)).prop_map(|(labels, expressions)| SelectorFacts { labels, expressions });
    option::weighted(0.9, selector)
}

fn volume() -> impl Strategy<Value = PodVolume> {
    prop_oneof![
        3 => text(&CLAIMS).prop_map(PodVolume::Claim),
        1 => Just(PodVolume::Ephemeral("scratch".to_owned())),
        1 => Just(PodVolume::Disk(Disk::AwsEbs { volume: "vol-1".to_owned() })),
    ]
}

fn pod() -> impl Strategy<Value = PodFacts> {
    let requests = (sums(), 0i64..4).prop_map(|(taken, more)| PodRequests {
        taken_non_zero: NonZeroSums { cpu_milli: taken.cpu_milli + more, memory_bytes: taken.memory_bytes + more },
        asked: taken.clone(),
        scored: taken.clone(),
        taken,
    });
    let port = (text(&ADDRESSES), 80..82).prop_map(|(ip, port)| HostPort { ip, protocol: "TCP".to_owned(), port });
    let constraint = selector().prop_map(|selector| SpreadFacts {
        topology_key: "zone".to_owned(),
        max_skew: 1,
        hard: true,
        selector,
        min_domains: 1,
        honor_node_affinity: true,
        honor_taints: false,
    });
    let kinds = [WorkloadKind::ReplicationController, WorkloadKind::ReplicaSet, WorkloadKind::StatefulSet];
    let facts = (requests, vec(port, 0..3), vec(constraint, 0..3), option::of(select(kinds.to_vec()))).prop_map(
        |(requests, host_ports, spread, controller)| {
            Arc::new(PodSchedulingFacts { requests, host_ports, spread, controller, ..PodSchedulingFacts::default() })
        },
    );
    let names = (text(&NAMESPACES), text(&["p1", "p2", "p3", "p4", "p5"]), option::weighted(0.7, text(&NODES)));
    let ends = (prop::bool::weighted(0.1), prop::bool::weighted(0.2));
    let owner = option::of(text(&["c1", "c2"]));
    (names, labels(), ends, option::weighted(0.9, facts), owner, vec(volume(), 0..3)).prop_map(
        |((namespace, name, node), labels, (finished, terminating), scheduling, owner, volumes)| PodFacts {
            namespace,
            name,
            node,
            labels,
            finished,
            terminating,
            scheduling,
            volumes,
            owner: owner.map(|name| OwnerFacts { name, ..OwnerFacts::default() }),
            ..PodFacts::default()
        },
    )
}

fn workload() -> impl Strategy<Value = WorkloadFacts> {
    (select(WorkloadKind::ALL.to_vec()), text(&NAMESPACES), text(&["c1", "c2"]), selector()).prop_map(
        |(kind, namespace, name, mut selector)| {
            if matches!(kind, WorkloadKind::Service | WorkloadKind::ReplicationController)
                && let Some(selector) = &mut selector
            {
                selector.expressions.clear();
            }
            WorkloadFacts { kind, namespace, name, selector }
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let sources = vec![Source::Nodes, Source::Pods, Source::Workload(WorkloadKind::Service)];
    prop_oneof![
        8 => node().prop_map(Event::NodeApplied),
        1 => text(&NODES).prop_map(|name| Event::NodeDeleted { name }),
        14 => pod().prop_map(Event::PodApplied),
        5 => (pod(), text(&NODES)).prop_map(|(pod, node)| {
            Event::PodAssumed { pod: Box::new(PodFacts { node: None, ..pod }), node }
        }),
        2 => pod().prop_map(|pod| Event::PodForgotten { namespace: pod.namespace, name: pod.name, uid: pod.uid }),
        2 => pod().prop_map(|pod| Event::PodDeleted { namespace: pod.namespace, name: pod.name }),
        4 => workload().prop_map(Event::WorkloadApplied),
        1 => workload().prop_map(|it| Event::WorkloadDeleted { kind: it.kind, namespace: it.namespace, name: it.name }),
        1 => select(sources.clone()).prop_map(Event::RelistBegan),
        1 => select(sources).prop_map(Event::RelistEnded),
    ]
}

/// All applied facts, in maps.
#[derive(Default)]
struct Plain {
    nodes: BTreeMap<String, NodeFacts>,
    pods: BTreeMap<(String, String), PodFacts>,
    /// The nodes that pods are assumed on.
    assumed: BTreeMap<(String, String), String>,
    /// Pods that the watch has not reported.
    assumed_only: BTreeSet<(String, String)>,
    workload: BTreeMap<(WorkloadKind, String, String), WorkloadFacts>,
    /// The objects that the relist in progress has not contained yet, by source.
    missing: BTreeMap<Source, BTreeSet<(String, String)>>,
}

impl Plain {
    fn apply(&mut self, event: &Event) {
        let empty = String::new();
        match event {
            Event::NodeApplied(facts) => {
                self.listed(Source::Nodes, &empty, &facts.name);
                self.nodes.insert(facts.name.clone(), facts.clone());
            }
            Event::NodeDeleted { name } => drop(self.nodes.remove(name)),
            Event::PodApplied(facts) => {
                self.listed(Source::Pods, &facts.namespace, &facts.name);
                let key = (facts.namespace.clone(), facts.name.clone());
                if facts.finished || facts.node.is_some() {
                    self.assumed.remove(&key);
                }
                self.assumed_only.remove(&key);
                self.pods.insert(key, facts.clone());
            }
            Event::PodDeleted { namespace, name } => {
                // A pod assumed under this name from now on is a different one, and the relist does not remove it.
                self.listed(Source::Pods, namespace, name);
                self.remove_pod(&(namespace.clone(), name.clone()));
            }
            Event::PodAssumed { pod, node } => {
                let key = (pod.namespace.clone(), pod.name.clone());
                if self.pods.get(&key).unwrap_or(pod).finished
                    || self.pods.get(&key).is_some_and(|it| it.node.is_some())
                {
                    return;
                }
                if !self.pods.contains_key(&key) {
                    self.assumed_only.insert(key.clone());
                    self.pods.insert(key.clone(), (**pod).clone());
                }
                self.assumed.insert(key, node.clone());
            }
            Event::PodForgotten { namespace, name, .. } => {
                let key = (namespace.clone(), name.clone());
                if self.assumed_only.contains(&key) {
                    self.remove_pod(&key);
                }
                self.assumed.remove(&key);
            }
            Event::WorkloadApplied(facts) => {
                self.listed(Source::Workload(facts.kind), &facts.namespace, &facts.name);
                let key = (facts.kind, facts.namespace.clone(), facts.name.clone());
                self.workload.insert(key, facts.clone());
            }
            Event::WorkloadDeleted { kind, namespace, name } => {
                self.workload.remove(&(*kind, namespace.clone(), name.clone()));
            }
            Event::RelistBegan(source) => {
                let known = match source {
                    Source::Nodes => self.nodes.keys().map(|name| (empty.clone(), name.clone())).collect(),
                    Source::Pods => self.pods.keys().filter(|key| !self.assumed_only.contains(*key)).cloned().collect(),
                    _ => self.services().map(|it| (it.namespace.clone(), it.name.clone())).collect(),
                };
                self.missing.insert(*source, known);
            }
            Event::RelistEnded(source) => {
                for (namespace, name) in self.missing.remove(source).unwrap_or_default() {
                    match source {
                        Source::Nodes => drop(self.nodes.remove(&name)),
                        Source::Pods => self.remove_pod(&(namespace, name)),
                        _ => drop(self.workload.remove(&(WorkloadKind::Service, namespace, name))),
                    }
                }
            }
            other => unreachable!("{other:?} is not generated here"),
        }
    }

    fn remove_pod(&mut self, key: &(String, String)) {
        self.pods.remove(key);
        self.assumed.remove(key);
        self.assumed_only.remove(key);
    }

    fn placed_on<'a>(&'a self, pod: &'a PodFacts) -> Option<&'a String> {
        self.assumed.get(&(pod.namespace.clone(), pod.name.clone())).or(pod.node.as_ref())
    }

    fn listed(&mut self, source: Source, namespace: &str, name: &str) {
        if let Some(missing) = self.missing.get_mut(&source) {
            missing.remove(&(namespace.to_owned(), name.to_owned()));
        }
    }

    fn services(&self) -> impl Iterator<Item = &WorkloadFacts> {
        self.workload.values().filter(|it| it.kind == WorkloadKind::Service)
    }

    /// Unfinished pods on this node that have scheduling facts, each with those facts.
    fn on(&self, node: &str) -> impl Iterator<Item = (&PodFacts, &PodSchedulingFacts)> {
        self.pods
            .values()
            .filter(move |pod| self.placed_on(pod).is_some_and(|on| on == node) && !pod.finished)
            .filter_map(|pod| Some((pod, pod.scheduling.as_deref()?)))
    }

    fn counted(&self, node: &str, namespace: &str, selector: Option<&SelectorFacts>) -> u32 {
        let Some(selector) = selector.filter(|it| !it.labels.is_empty() || !it.expressions.is_empty()) else {
            return 0;
        };
        let pods = self.on(node).map(|(pod, _)| pod);
        pods.filter(|pod| !pod.terminating && pod.namespace == namespace && matches(selector, &pod.labels)).count()
            as u32
    }

    fn siblings(&self, pod: &PodFacts) -> Option<SelectorFacts> {
        let of = |kind, name: &str| self.workload.get(&(kind, pod.namespace.clone(), name.to_owned()));
        let mut merged = SelectorFacts::default();
        for service in self.services().filter(|it| it.namespace == pod.namespace) {
            if let Some(selector) = service.selector.as_ref().filter(|selector| matches(selector, &pod.labels)) {
                merged.labels.extend(selector.labels.clone());
            }
        }
        if let (Some(kind), Some(owner)) = (pod.scheduling.as_ref().and_then(|it| it.controller), &pod.owner)
            && let Some(selector) = of(kind, &owner.name).and_then(|it| it.selector.clone())
        {
            if kind == WorkloadKind::ReplicationController {
                merged.labels.extend(selector.labels);
            } else {
                merged.expressions = selector.expressions;
                let pairs = selector.labels.into_iter();
                merged.expressions.extend(pairs.map(|(key, value)| RequirementFacts {
                    key,
                    operator: Operator::In,
                    values: vec![value],
                }));
            }
        }
        (!merged.labels.is_empty() || !merged.expressions.is_empty()).then_some(merged)
    }
}

fn matches(selector: &SelectorFacts, labels: &Labels) -> bool {
    let holds = |it: &RequirementFacts| {
        let value = labels.get(&it.key);
        match it.operator {
            Operator::In => value.is_some_and(|value| it.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !it.values.contains(value)),
            Operator::Exists => value.is_some(),
            _ => value.is_none(),
        }
    };
    selector.labels.iter().all(|(key, value)| labels.get(key) == Some(value)) && selector.expressions.iter().all(holds)
}

type Checked = Result<(), TestCaseError>;

fn check_nodes(world: &World, plain: &Plain) -> Checked {
    let known: BTreeMap<NodeId, &NodeFacts> = plain
        .nodes
        .values()
        .filter(|node| node.scheduling.is_some())
        .map(|node| (world.node_id(&node.name).expect("a known node"), node))
        .collect();
    prop_assert!(world.schedulable_nodes().iter().eq(known.keys().copied()));
    let resources = world.resources();
    for (&id, node) in &known {
        let facts = node.scheduling.as_ref().expect("facts");
        let at = |column: &[i64]| column.get(crate::storage::arena::DenseId::index(id)).copied().unwrap_or(0);
        let sum = |of: fn(&PodSchedulingFacts) -> i64| plain.on(&node.name).map(|(_, facts)| of(facts)).sum::<i64>();
        let both = |name: &str| {
            let resource = resources.resource(name);
            (at(resources.allocatable(resource)), at(resources.requested(resource)))
        };
        let allocatable = &facts.allocatable;
        prop_assert_eq!(both("cpu"), (allocatable.cpu_milli, sum(|it| it.requests.taken.cpu_milli)));
        prop_assert_eq!(both("memory"), (allocatable.memory_bytes, sum(|it| it.requests.taken.memory_bytes)));
        let storage = sum(|it| it.requests.taken.ephemeral_storage_bytes);
        prop_assert_eq!(both("ephemeral-storage"), (allocatable.ephemeral_storage_bytes, storage));
        for name in ["example.com/gpu", "hugepages-2Mi", "example.com/unheard-of"] {
            let of = |sums: &ResourceSums| sums.scalar.get(name).copied().unwrap_or(0);
            let taken = plain.on(&node.name).map(|(_, facts)| of(&facts.requests.taken)).sum::<i64>();
            prop_assert_eq!(both(name), (of(allocatable), taken), "{}", name);
        }
        prop_assert_eq!(at(resources.non_zero_cpu_milli()), sum(|it| it.requests.taken_non_zero.cpu_milli));
        prop_assert_eq!(at(resources.non_zero_memory_bytes()), sum(|it| it.requests.taken_non_zero.memory_bytes));
        prop_assert_eq!((at(resources.pods()), at(resources.allowed_pods())), (sum(|_| 1), facts.allowed_pods));

        prop_assert_eq!(world.taints().of(id).map(|it| &**it), Some(&*facts.taints));
        prop_assert_eq!(world.declared_features().of(id).map(|it| &**it), Some(&*facts.declared_features));
        prop_assert_eq!(world.unschedulable_nodes().contains(id), facts.unschedulable);
        for name in IMAGES {
            let has = facts.images.iter().any(|image| image.names[0] == name);
            prop_assert_eq!(world.image(name).is_some_and(|image| image.nodes.contains(id)), has, "{}", name);
        }
        for requested in ADDRESSES.into_iter().flat_map(|ip| (80..82).map(move |port| (ip, port))) {
            let requested = HostPort { ip: requested.0.to_owned(), protocol: "TCP".to_owned(), port: requested.1 };
            let mut taken = plain.on(&node.name).flat_map(|(_, facts)| &facts.host_ports);
            let conflicts = taken.any(|taken| taken.conflicts_with(&requested));
            prop_assert_eq!(
                world.port_conflicts(std::slice::from_ref(&requested)).contains(id),
                conflicts,
                "{:?}",
                requested
            );
        }
        for key in KEYS {
            let column = world.node_label(key);
            let value = column.and_then(|column| column.value_of(id));
            prop_assert_eq!(value.is_some(), node.labels.contains_key(key));
            prop_assert_eq!(column.is_some_and(|column| column.nodes().contains(id)), value.is_some());
            for (&other_id, other) in &known {
                let other_value = column.and_then(|column| column.value_of(other_id));
                prop_assert_eq!(value == other_value, node.labels.get(key) == other.labels.get(key));
            }
            for text in VALUES {
                let symbol = world.interner().get(text);
                let number = symbol.and_then(|symbol| column?.value(symbol));
                let has = node.labels.get(key).is_some_and(|value| value == text);
                prop_assert_eq!(value.is_some() && number == value, has);
            }
        }
    }
    for (taints, nodes) in world.taints().iter() {
        prop_assert!(nodes.iter().all(|node| known[&node].scheduling.as_ref().expect("facts").taints[..] == **taints));
    }
    let counted = IMAGES.into_iter().filter_map(|name| world.image(name));
    for image in counted {
        prop_assert_eq!(image.nodes.len(), image.node_count);
    }
    Ok(())
}

fn check_volumes(world: &World, plain: &Plain) -> Checked {
    let known = || plain.nodes.values().filter(|node| node.scheduling.is_some());
    for node in known() {
        let with_volumes: Vec<&PodFacts> =
            plain.on(&node.name).map(|(pod, _)| pod).filter(|pod| !pod.volumes.is_empty()).collect();
        let found = world.volumes_on(world.node_id(&node.name).expect("a known node")).cloned().unwrap_or_default();
        let ids = with_volumes.iter().map(|pod| world.pod_id(&pod.namespace, &pod.name).expect("a known pod"));
        prop_assert_eq!(found.pods, ids.collect::<BTreeSet<_>>());
        let attachable = with_volumes.iter().flat_map(|pod| &pod.volumes).filter(|volume| volume.is_attachable());
        prop_assert_eq!(found.attachable, attachable.count());
    }
    for (namespace, claim) in NAMESPACES.into_iter().flat_map(|namespace| CLAIMS.map(|claim| (namespace, claim))) {
        let uses =
            |pod: &PodFacts| pod.namespace == namespace && pod.volumes.contains(&PodVolume::Claim(claim.to_owned()));
        let is_used = known().any(|node| plain.on(&node.name).any(|(pod, _)| uses(pod)));
        prop_assert_eq!(world.is_claim_used(namespace, claim), is_used);
    }
    Ok(())
}

fn check_groups(world: &World, plain: &Plain) -> Checked {
    for pod in plain.pods.values().filter(|pod| !pod.finished) {
        let Some(facts) = &pod.scheduling else { continue };
        let id: PodId = world.pod_id(&pod.namespace, &pod.name).expect("a known pod");
        let check = |group: Option<crate::scheduling::SpreadGroup<'_>>, selector: Option<&SelectorFacts>| {
            let group = group.expect("a group");
            let matches_self = selector.is_some_and(|selector| matches(selector, &pod.labels));
            prop_assert_eq!(group.matches_self, matches_self, "{:?}", selector);
            let is_empty = selector == Some(&SelectorFacts::default());
            prop_assert_eq!(group.counts(world, id), matches_self && !is_empty);
            for node in plain.nodes.values().filter(|node| node.scheduling.is_some()) {
                let count = group.tally.get(world.node_id(&node.name).expect("a known node"));
                prop_assert_eq!(count, plain.counted(&node.name, &pod.namespace, selector), "{:?}", selector);
            }
            Ok(())
        };
        for (index, constraint) in facts.spread.iter().enumerate() {
            check(world.spread_group(id, index, constraint), constraint.selector.as_ref())?;
        }
        if facts.spread.is_empty() {
            match plain.siblings(pod) {
                Some(selector) => check(world.siblings(id), Some(&selector))?,
                None => prop_assert!(world.siblings(id).is_none()),
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn columns_and_groups_equal_a_count_over_all_pods(events in vec(event(), 0..40)) {
        let (mut world, mut plain) = (World::default(), Plain::default());
        for event in events {
            plain.apply(&event);
            world.apply(event);
            check_nodes(&world, &plain)?;
            check_groups(&world, &plain)?;
            check_volumes(&world, &plain)?;
        }
    }

    #[test]
    fn nothing_is_left_after_everything_is_deleted(events in vec(event(), 0..60)) {
        let mut world = World::default();
        let mut sources: BTreeSet<Source> = WorkloadKind::ALL.map(Source::Workload).into();
        sources.extend([Source::Nodes, Source::Pods]);
        for event in events {
            world.apply(event);
        }
        let pods: Vec<_> = world.pods().map(|(_, pod)| (pod.namespace, pod.name.to_string(), pod.uid.to_string())).collect();
        for (namespace, name, uid) in pods {
            let namespace = world.interner().text(namespace).to_owned();
            world.apply(Event::PodForgotten { namespace, name, uid });
        }
        for source in sources {
            world.apply(Event::RelistBegan(source));
            world.apply(Event::RelistEnded(source));
        }
        prop_assert_eq!(world.scheduling.groups.forget_idle(&mut world.interner), 0);
        let scheduling = &world.scheduling;
        prop_assert_eq!((scheduling.workloads.kept(), scheduling.volumes_in_use.kept()), ([0, 0], [0, 0]));
        let kept = [scheduling.resources.kept(), scheduling.labels.kept(), scheduling.images.kept(), scheduling.ports.kept()];
        prop_assert_eq!(kept, [0; 4]);
        prop_assert_eq!((scheduling.taints.iter().count(), scheduling.features.iter().count()), (0, 0));
        prop_assert_eq!((scheduling.waiting.len(), world.pods.kept()), (0, [0; 3]));
        prop_assert!(world.interner.is_empty());
    }
}
