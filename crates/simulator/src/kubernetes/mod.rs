//! The Kubernetes side: an object store, the controllers that act on it, and the HTTP API on top.
//!
//! - [`store`]: objects of all kinds, versions, the window of past changes that watches read.
//! - [`controllers`]: Deployment, ReplicaSet, StatefulSet, the simulated kubelet, node lifecycle. Synchronous: each
//!   reads the store's changes since its last run and writes to the store, immediately or in a later step.
//! - [`deletion`]: graceful deletion, finalizers, preconditions.
//! - `api`: discovery, tables, patches, selectors, watches, over HTTP.
//! - [`placer`]: stands in for the user's existing scheduler.
//! - [`sample`]: Deployments as users write them.
//!
//! Invariants: every change goes through [`store::Store`]; a controller never depends on who made a change.

pub mod api;
mod condition;
pub mod controllers;
pub mod defaults;
pub mod deletion;
pub mod error;
pub mod happening;
mod json;
pub mod kinds;
mod label_selector;
pub mod placer;
mod pod;
mod priority;
mod quantity;
pub mod sample;
pub mod store;
mod taints;

use std::ops::RangeInclusive;
use std::time::Duration;

use uuid::Uuid;

use crate::clock::SimTime;
use crate::seed::Seed;
use crate::timeline::Timeline;
use controllers::{Controllers, Step};
pub use happening::Happening;
use store::Store;

/// The behaviour of the cluster. The defaults are those of a real cluster, except for the heartbeats.
#[derive(Clone, Debug)]
pub struct Config {
    /// The delay between a change and a controller's reaction.
    pub controller_delay: Duration,
    /// The time from a machine's power-on until its node is Ready, drawn from this range.
    pub boot_ms: RangeInclusive<u64>,
    /// The time from a pod's binding until it runs (image pull and start), drawn from this range.
    pub pod_start_ms: RangeInclusive<u64>,
    /// The time that the containers of a deleted pod need to stop, drawn from this range; the grace period caps it.
    pub pod_stop_ms: RangeInclusive<u64>,
    /// The time in which the provisioner creates or deletes a volume, drawn from this range.
    pub provision_ms: RangeInclusive<u64>,
    /// The time in which a volume is attached to a node or detached from it, drawn from this range.
    pub attach_ms: RangeInclusive<u64>,
    /// How many volumes the storage driver attaches to one node.
    pub volumes_per_node_max: u32,
    /// A node that stops reporting becomes unreachable after this long.
    pub node_monitor_grace: Duration,
    /// Pods bound to a node that does not exist are removed after this long.
    pub orphaned_pod_grace: Duration,
    /// How often each node reports its status; `None` means only on a change.
    pub node_status_period: Option<Duration>,
    /// How often each node renews its Lease. With `None`, the default, the Lease stays as it was when the node came up:
    /// with 5000 nodes, renewing at a real kubelet's rate would be 500 writes per second that no client reads.
    pub lease_renew_period: Option<Duration>,
    /// The maximum number of Events, ...
    pub events_max: usize,
    /// ... and how long each is retained after its last occurrence.
    pub event_lifetime: Duration,
    /// Changes are retained for watches at least this long, and at most twice as long; longer if the world runs so fast
    /// that its clients could not follow.
    pub history_kept: Duration,
    /// Controllers create no more pods beyond this number.
    pub pods_max: usize,
    pub kubelet_version: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            controller_delay: Duration::from_millis(5),
            boot_ms: 5_000..=15_000,
            pod_start_ms: 1_000..=3_000,
            pod_stop_ms: 1_000..=2_000,
            provision_ms: 2_000..=5_000,
            attach_ms: 1_000..=3_000,
            volumes_per_node_max: 59,
            node_monitor_grace: Duration::from_secs(40),
            orphaned_pod_grace: Duration::from_secs(40),
            node_status_period: Some(Duration::from_secs(300)),
            lease_renew_period: None,
            events_max: 20_000,
            event_lifetime: Duration::from_secs(3600),
            history_kept: Duration::from_secs(300),
            pods_max: 50_000,
            kubelet_version: "v1.36.4".to_owned(),
        }
    }
}

/// A machine that is a Kubernetes node while its kubelet runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMachine {
    pub name: String,
    pub bios_uuid: Uuid,
    pub ip_address: String,
    pub cpu_count: u32,
    pub memory_mib: u64,
}

#[derive(Debug)]
pub struct Kubernetes {
    store: Store,
    timeline: Timeline<Step>,
    happenings: Vec<Happening>,
    controllers: Controllers,
}

impl Kubernetes {
    #[must_use]
    pub fn new(config: &Config, seed: Seed, now: SimTime) -> Kubernetes {
        let mut store = Store::new(seed);
        api::bootstrap(&mut store, now);
        Kubernetes {
            store,
            timeline: Timeline::default(),
            happenings: Vec::new(),
            controllers: Controllers::new(config, seed, now),
        }
    }

    /// Increases with every change of an object.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.store.version()
    }

    #[must_use]
    pub fn next_due(&self) -> Option<SimTime> {
        self.timeline.next_due()
    }

    /// Runs the next step due by `now`, at that time.
    pub fn step(&mut self, now: SimTime) -> SimTime {
        if let Some(step) = self.timeline.take_due(now) {
            self.controllers.execute(step, &mut self.store, &mut self.timeline, &mut self.happenings, now);
        }
        now
    }

    /// Called after every request and every step: the controllers read the changes since their last run and schedule
    /// their reactions.
    pub fn observe(&mut self, now: SimTime) {
        self.controllers.observe(&self.store, &mut self.timeline, &mut self.happenings, now);
    }

    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    pub fn take_happenings(&mut self) -> Vec<Happening> {
        std::mem::take(&mut self.happenings)
    }

    /// A node's machine has started: its kubelet starts, registers the node if it is new, and reports it Ready.
    ///
    /// At the start of the world, nodes are Ready immediately; later they need the boot time.
    pub fn machine_started(&mut self, machine: &NodeMachine, now: SimTime) {
        let (machines, mut tools) =
            self.controllers.machines_and_tools(&mut self.store, &mut self.timeline, &mut self.happenings, now);
        machines.started(machine, &mut tools);
    }

    /// A node's machine has lost power, alone or with its host: its kubelet stops reporting.
    pub fn machine_stopped(&mut self, node: &str, bios_uuid: Uuid, now: SimTime) {
        let (machines, mut tools) =
            self.controllers.machines_and_tools(&mut self.store, &mut self.timeline, &mut self.happenings, now);
        machines.stopped(node, bios_uuid, &mut tools);
    }

    /// A node's machine is permanently removed. As with a cloud provider's node lifecycle, its Node object is deleted
    /// too.
    pub fn machine_destroyed(&mut self, node: &str, bios_uuid: Uuid, now: SimTime) {
        let (machines, mut tools) =
            self.controllers.machines_and_tools(&mut self.store, &mut self.timeline, &mut self.happenings, now);
        machines.destroyed(node, bios_uuid, &mut tools);
    }

    /// Records an Event about an object, as a control plane component would. A repeated Event increments the count.
    pub fn record_event(&mut self, event: &controllers::EventRecord<'_>, now: SimTime) {
        self.controllers.record_event(&mut self.store, event, now);
    }
}
