//! Pods with claims that wait for their pod's node: one claim each, for a local volume or a provisioned one.
//!
//! In: the number of nodes, and where volumes come from. Out: the core time of a batch, with the search for volumes on
//! every node and what Reserve assumes.

use std::sync::Arc;
use std::time::Duration;

use model::World;
use model::event::{Event, NodeTermFacts, Operator, PodFacts, RequirementFacts};
use model::volumes::{
    BindingMode, ClaimFacts, PodVolume, StorageClassFacts, VolumeFacts, VolumeObject, VolumeSourceFacts,
};
use scheduler::{Changes, Effect, Input, observe};

use crate::core_time;
use crate::new_scheduler;
use crate::workloads::{HOSTNAME, node, pod};

/// Volumes on as many nodes, whatever the size of the cluster.
const LOCAL_VOLUMES: usize = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Local,
    Provisioned,
}

impl Source {
    const fn class(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Provisioned => "provisioned",
        }
    }

    const fn provisioner(self) -> &'static str {
        match self {
            Self::Local => "kubernetes.io/no-provisioner",
            Self::Provisioned => "csi.example.com",
        }
    }
}

fn applied(object: VolumeObject) -> Event {
    Event::VolumeApplied(object)
}

/// A volume that only this node can use.
fn local(number: usize, node: usize) -> VolumeFacts {
    let expression = RequirementFacts {
        key: HOSTNAME.to_owned(),
        operator: Operator::In,
        values: [format!("node-{node}")].into_iter().collect(),
    };
    VolumeFacts {
        name: format!("local-{number}"),
        version: "1".to_owned(),
        class: Source::Local.class().to_owned(),
        capacity_bytes: 1 << 30,
        available: true,
        source: VolumeSourceFacts::Other,
        node_terms: Some(vec![NodeTermFacts { expressions: vec![expression], fields: Vec::new() }]),
        ..VolumeFacts::default()
    }
}

pub fn cluster(nodes: usize) -> World {
    let mut world = World::default();
    (0..nodes).for_each(|number| drop(world.apply(Event::NodeApplied(node(number)))));
    for number in 0..LOCAL_VOLUMES {
        let local = local(number, number * (nodes / LOCAL_VOLUMES));
        world.apply(applied(VolumeObject::Volume(Arc::new(local))));
    }
    for source in [Source::Local, Source::Provisioned] {
        world.apply(applied(VolumeObject::StorageClass(Arc::new(StorageClassFacts {
            name: source.class().to_owned(),
            provisioner: source.provisioner().to_owned(),
            binding_mode: Some(BindingMode::WaitForFirstConsumer),
            allowed_topologies: Vec::new(),
        }))));
    }
    world
}

/// A pod that uses the claim of its name.
fn claiming(number: usize) -> PodFacts {
    let name = format!("claiming-{number}");
    PodFacts { volumes: vec![PodVolume::Claim(name.clone())], ..pod(name, "claiming".to_owned(), |_, _| {}) }
}

/// Places pods and returns how long it took. Afterwards the world is as before.
pub fn place_batch(world: &mut World, source: Source, batch: usize) -> Duration {
    let mut scheduler = new_scheduler();
    let now = Duration::ZERO;
    for number in 0..batch {
        let PodFacts { namespace, name, .. } = claiming(number);
        let (uid, version, class) = (name.clone(), "1".to_owned(), source.class().to_owned());
        let claim = ClaimFacts {
            namespace,
            name,
            uid,
            version,
            class,
            requested_bytes: Some(1 << 30),
            ..ClaimFacts::default()
        };
        world.apply(applied(VolumeObject::Claim(Arc::new(claim))));
    }
    scheduler.observe(now, world, &Changes::all());
    for number in 0..batch {
        let changes = observe::apply(world, Event::PodApplied(claiming(number)));
        scheduler.observe(now, world, &changes);
    }
    let mut placed = 0;
    let start = core_time::now();
    while scheduler.has_work() {
        for effect in scheduler.step(now, world, Input::Schedule { at_most: 100 }) {
            let Effect::PreBind { pod, plugin, .. } = effect else { continue };
            let effects = scheduler.step(now, world, Input::PreBound { pod, plugin });
            placed += effects.iter().filter(|effect| matches!(effect, Effect::Bind { .. })).count();
        }
    }
    let elapsed = core_time::now() - start;
    assert_eq!(placed, batch, "{source:?}");
    for number in 0..batch {
        let PodFacts { namespace, name, .. } = claiming(number);
        world.apply(Event::PodDeleted { namespace: namespace.clone(), name: name.clone() });
        world.apply(Event::VolumeDeleted { kind: model::volumes::VolumeKind::Claim, namespace, name });
    }
    elapsed
}
