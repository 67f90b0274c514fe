//! Small worlds for tests.
//!
//! - [`history`]: random event histories for them. [`volumes`]: claims and volumes.

pub(crate) mod history;
pub(crate) mod volumes;

use crate::scheduler::effect::{Effect, NominationWrite};
use std::sync::Arc;

use model::event::{Event, HostFacts, NodeFacts, PodFacts, Source, VcenterId, VmFacts};
use model::scheduling::{NodeSchedulingFacts, PodSchedulingFacts, ResourceSums};
use model::{LiftSettings, PodId, World};

use crate::config::DEFAULT_SCHEDULER_NAME;
use crate::scheduler::observe::{self, Changes};

pub(crate) const NAMESPACE: &str = "default";

/// A node with 4 cpus, 8 GiB and room for 10 pods.
pub(crate) fn node(name: &str) -> NodeFacts {
    let allocatable = ResourceSums { cpu_milli: 4000, memory_bytes: 8 << 30, ..ResourceSums::default() };
    NodeFacts {
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        labels: [("kubernetes.io/hostname".to_owned(), name.to_owned())].into(),
        ready: true,
        scheduling: Some(Arc::new(NodeSchedulingFacts { allocatable, allowed_pods: 10, ..Default::default() })),
        ..NodeFacts::default()
    }
}

/// A connected host, not in maintenance mode, with unknown load.
pub(crate) fn host(name: &str) -> HostFacts {
    HostFacts { id: name.to_owned(), name: name.to_owned(), ..HostFacts::default() }
}

pub(crate) fn host_applied(host: HostFacts) -> Event {
    Event::HostApplied { vcenter: VcenterId(0), host }
}

/// The node's VM, identified by its DNS name `NODE.example`, runs on this host.
pub(crate) fn runs_on(node: &str, host: &str) -> Event {
    let (id, dns_name) = (format!("vm-of-{node}"), Some(format!("{node}.example")));
    let vm = VmFacts { id, dns_name, host: Some(host.to_owned()), powered_on: true, ..VmFacts::default() };
    Event::VmApplied { vcenter: VcenterId(0), vm }
}

/// A pod for the default profile.
pub(crate) fn pod(name: &str) -> PodFacts {
    pod_with(name, |_| {})
}

pub(crate) fn pod_with(name: &str, change: impl FnOnce(&mut PodSchedulingFacts)) -> PodFacts {
    let mut scheduling =
        PodSchedulingFacts { scheduler_name: DEFAULT_SCHEDULER_NAME.to_owned(), ..PodSchedulingFacts::default() };
    change(&mut scheduling);
    PodFacts {
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        scheduling: Some(Arc::new(scheduling)),
        ..PodFacts::default()
    }
}

pub(crate) fn world(nodes: &[&str]) -> World {
    world_with(LiftSettings::default(), nodes)
}

pub(crate) fn world_with(lifting: LiftSettings, nodes: &[&str]) -> World {
    let mut world = World::with_lifting(lifting);
    for source in [Source::Nodes, Source::Pods, Source::Namespaces] {
        world.apply(Event::RelistBegan(source));
        world.apply(Event::RelistEnded(source));
    }
    for name in nodes {
        world.apply(Event::NodeApplied(node(name)));
    }
    world
}

pub(crate) fn apply(world: &mut World, event: Event) -> Changes {
    observe::apply(world, event)
}

pub(crate) fn id(world: &World, name: &str) -> PodId {
    world.pod_id(NAMESPACE, name).expect("the pod was applied")
}

/// All changes: the scheduler must look at everything.
pub(crate) fn everything() -> Changes {
    Changes::all()
}

/// The number of cases of a property test: `full` if `BRIDGER_TEST_COUNTS=full`, otherwise `quick`.
pub(crate) fn cases(full: u32, quick: u32) -> u32 {
    if std::env::var("BRIDGER_TEST_COUNTS").is_ok_and(|counts| counts == "full") { full } else { quick }
}

/// The part of a message that is about the filters.
pub(crate) fn of_filters(message: &str) -> &str {
    message.split_once(" preemption: ").map_or(message, |(filters, _)| filters)
}

/// What an effect writes about a nominated node: the pod's name and the node, or `None` to clear it.
pub(crate) fn nomination(effect: &Effect) -> Option<(&str, Option<&str>)> {
    match effect {
        Effect::Nominate { pod, node } => Some((&pod.name, node.as_deref())),
        Effect::SetCondition { pod, nomination, .. } => match nomination {
            NominationWrite::Nothing => None,
            NominationWrite::Clear => Some((&pod.name, None)),
            NominationWrite::Set(node) => Some((&pod.name, Some(node))),
        },
        _ => None,
    }
}
