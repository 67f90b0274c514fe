//! The Kubernetes side: an object store, the controllers that make it feel alive, and the HTTP API over them.
//!
//! - [`store`]: objects of all kinds, versions, the window of past changes that watches read.
//! - `controllers`: Deployment, ReplicaSet, StatefulSet, the kubelet's stand-in, node lifecycle. Synchronous: each
//!   reads the store's changes since it last looked and writes to the store, at once or at a later step.
//! - `api`: discovery, tables, patches, selectors, watches, over HTTP.
//! - `placer`: the stand-in for the scheduler a user already has.
//!
//! Invariants: every change goes through [`store::Store`]; a controller never depends on who made a change.

pub mod api;
pub mod defaults;
pub mod deletion;
pub mod error;
pub mod kinds;
pub mod store;

use std::fmt;

use uuid::Uuid;

use crate::clock::SimTime;
use crate::seed::Seed;
use crate::timeline::Timeline;
use store::Store;

#[derive(Clone, Debug, Default)]
pub struct Config {}

/// A machine that is a Kubernetes node once its kubelet runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeMachine {
    pub name: String,
    pub bios_uuid: Uuid,
    pub ip_address: String,
    pub cpu_count: u32,
    pub memory_mib: u64,
}

/// Something worth a line in the chronicle.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    NodeRegistered { node: String },
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::NodeRegistered { node } => write!(f, "node {node} registered"),
        }
    }
}

/// A step that the Kubernetes side will take at some moment.
#[derive(Debug)]
pub(crate) enum Step {}

#[derive(Debug)]
pub struct Kubernetes {
    store: Store,
    timeline: Timeline<Step>,
    happenings: Vec<Happening>,
}

impl Kubernetes {
    #[must_use]
    pub fn new(_config: &Config, seed: Seed, now: SimTime) -> Kubernetes {
        let mut store = Store::new(seed);
        api::bootstrap(&mut store, now);
        Kubernetes { store, timeline: Timeline::default(), happenings: Vec::new() }
    }

    /// Grows with every change of an object.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.store.version()
    }

    #[must_use]
    pub fn next_due(&self) -> Option<SimTime> {
        self.timeline.next_due()
    }

    /// Takes the next step due by `now`; answers the moment it was due.
    pub fn step(&mut self, now: SimTime) -> SimTime {
        match self.timeline.take_due(now) {
            None => now,
            Some((_due, step)) => match step {},
        }
    }

    /// Called after every request and every step: the controllers look at what changed since they last looked and
    /// schedule what they will do about it.
    pub fn observe(&mut self, _now: SimTime) {}

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

    /// A node's machine has been started: its kubelet comes up, registers the node if it is new, and reports it Ready.
    pub fn machine_started(&mut self, _machine: &NodeMachine, _now: SimTime) {}

    /// A node's machine has lost power, with its host or alone: its kubelet falls silent.
    pub fn machine_stopped(&mut self, _node: &str, _now: SimTime) {}

    /// A node's machine is gone for good. (As with a cloud provider's node lifecycle: the Node object goes with it.)
    pub fn machine_destroyed(&mut self, _node: &str, _now: SimTime) {}
}
