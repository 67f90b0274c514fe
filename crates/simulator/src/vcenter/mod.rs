//! The vCenter side: the inventory, the processes that change it (DRS, HA, maintenance, migrations), and the SOAP API.
//!
//! - [`inventory`]: the managed objects in the simulator's own types; every change leaves a trace that the property
//!   collector reads.
//! - [`physics`]: operations as tasks that take time; DRS, HA, maintenance mode, demand.
//! - [`wire`]: SOAP, sessions, the property collector and the methods that clients call.
//!
//! Invariants: a change of an object goes through `Inventory::*_mut`, so that no property update can be missed; only
//! tasks and HA restarts move VMs.

pub mod inventory;
pub mod physics;
pub mod vim_fault;
pub mod wire;

use std::fmt;
use std::time::Duration;

use uuid::Uuid;

pub use inventory::{ClusterId, HostId, Inventory, VmId, VmRole};

use crate::clock::SimTime;
use crate::seed::Seed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrsLevel {
    Off,
    Manual,
    PartiallyAutomated,
    FullyAutomated,
}

/// The initial inventory and the behaviour of the vCenter.
#[derive(Clone, Debug)]
pub struct Config {
    /// Clusters `cluster-1`, `cluster-2`, ... in one datacenter `dc-1`.
    pub clusters: u32,
    /// Hosts over all clusters, assigned round-robin: `esx-1.lab`, `esx-2.lab`, ...
    pub hosts: u32,
    /// VMs with the node role over all clusters, assigned round-robin: `node-1`, `node-2`, ...
    pub nodes: u32,
    pub host_cpu_count: u32,
    pub host_cpu_mhz: u32,
    pub host_memory_mib: u64,
    pub node_cpu_count: u32,
    pub node_memory_mib: u64,
    /// Every host also has a datastore of its own: `local-1`, `local-2`, ...
    pub local_datastores: bool,
    pub drs: DrsLevel,
    /// The interval between DRS passes.
    pub drs_period: Duration,
    pub ha: bool,
    /// `das.respectVmVmAntiAffinityRules`; `None` leaves the option unset, which means true.
    pub ha_respects_anti_affinity: Option<bool>,
    /// How often the demand of VMs changes.
    pub demand_period: Duration,
    /// Idle sessions end after this long, in the clients' time.
    pub session_idle_max: Duration,
    pub username: String,
    pub password: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            clusters: 1,
            hosts: 4,
            nodes: 12,
            host_cpu_count: 32,
            host_cpu_mhz: 2_600,
            host_memory_mib: 256 * 1024,
            node_cpu_count: 8,
            node_memory_mib: 32 * 1024,
            local_datastores: false,
            drs: DrsLevel::FullyAutomated,
            drs_period: Duration::from_secs(60),
            ha: true,
            ha_respects_anti_affinity: None,
            demand_period: Duration::from_secs(20),
            session_idle_max: Duration::from_secs(30 * 60),
            username: "administrator@vsphere.local".to_owned(),
            password: "sandbox".to_owned(),
        }
    }
}

/// Why a VM moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveReason {
    /// A client requested it.
    Requested,
    DrsMend,
    DrsBalance,
    Maintenance,
    HaRestart,
}

/// An event for the chronicle. It contains names, because the object may no longer exist when it is read.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    VmCreated { vm: VmId, name: String, host: String },
    VmPoweredOn { vm: VmId, name: String, host: String },
    VmPoweredOff { vm: VmId, name: String, host: String },
    VmDestroyed { vm: VmId, name: String, guest_host_name: String, bios_uuid: Uuid },
    VmMoved { vm: VmId, name: String, from: String, to: String, reason: MoveReason },
    HostEnteringMaintenance { host: String },
    HostEnteredMaintenance { host: String },
    HostMaintenanceStalled { host: String, reason: String },
    HostExitedMaintenance { host: String },
    HostDisconnected { host: String },
    HostReconnected { host: String },
    HostFailed { host: String },
    HostRecovered { host: String },
    HaCannotRestart { name: String, reason: String },
    RuleAdded { cluster: String, rule: String, enabled: bool },
    RuleEdited { cluster: String, rule: String, enabled: bool },
    RuleRemoved { cluster: String, rule: String },
    GroupChanged { cluster: String, group: String },
    TaskFailed { task: String, what: String, fault: String },
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happening::VmCreated { name, host, .. } => write!(f, "vm {name} created on {host}"),
            Happening::VmPoweredOn { name, host, .. } => write!(f, "vm {name} powered on, on {host}"),
            Happening::VmPoweredOff { name, host, .. } => write!(f, "vm {name} powered off, on {host}"),
            Happening::VmDestroyed { name, .. } => write!(f, "vm {name} destroyed"),
            Happening::VmMoved { name, from, to, reason, .. } => {
                let why = match reason {
                    MoveReason::Requested => "requested",
                    MoveReason::DrsMend => "DRS fixes a rule violation",
                    MoveReason::DrsBalance => "DRS balances load",
                    MoveReason::Maintenance => "maintenance",
                    MoveReason::HaRestart => "HA restart",
                };
                write!(f, "vm {name} moved from {from} to {to} ({why})")
            }
            Happening::HostEnteringMaintenance { host } => write!(f, "host {host} is entering maintenance"),
            Happening::HostEnteredMaintenance { host } => write!(f, "host {host} is in maintenance"),
            Happening::HostMaintenanceStalled { host, reason } => {
                write!(f, "host {host} cannot enter maintenance: {reason}")
            }
            Happening::HostExitedMaintenance { host } => write!(f, "host {host} left maintenance"),
            Happening::HostDisconnected { host } => write!(f, "host {host} disconnected"),
            Happening::HostReconnected { host } => write!(f, "host {host} reconnected"),
            Happening::HostFailed { host } => write!(f, "host {host} failed"),
            Happening::HostRecovered { host } => write!(f, "host {host} recovered"),
            Happening::HaCannotRestart { name, reason } => write!(f, "HA cannot restart vm {name}: {reason}"),
            Happening::RuleAdded { cluster, rule, enabled } => {
                write!(f, "rule {rule} added to {cluster}{}", disabled(*enabled))
            }
            Happening::RuleEdited { cluster, rule, enabled } => {
                write!(f, "rule {rule} of {cluster} edited{}", disabled(*enabled))
            }
            Happening::RuleRemoved { cluster, rule } => write!(f, "rule {rule} removed from {cluster}"),
            Happening::GroupChanged { cluster, group } => write!(f, "group {group} of {cluster} changed"),
            Happening::TaskFailed { task, what, fault } => write!(f, "{task} ({what}) failed: {fault}"),
        }
    }
}

fn disabled(enabled: bool) -> &'static str {
    if enabled { "" } else { " (disabled)" }
}

#[derive(Debug)]
pub struct Vcenter {
    config: Config,
    inventory: Inventory,
    physics: physics::Physics,
    happenings: Vec<Happening>,
    pub(crate) wire: wire::State,
}

impl Vcenter {
    #[must_use]
    pub fn new(config: &Config, seed: Seed, now: SimTime) -> Vcenter {
        let mut vcenter = Vcenter {
            config: config.clone(),
            inventory: Inventory::default(),
            physics: physics::Physics::new(seed),
            happenings: Vec::new(),
            wire: wire::State::new(seed, config.session_idle_max),
        };
        vcenter.populate(now);
        vcenter
    }

    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    #[must_use]
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Increases with every change of a managed object.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.inventory.version()
    }

    #[must_use]
    pub fn next_due(&self) -> Option<SimTime> {
        self.physics.timeline.next_due()
    }

    /// Runs the next step due by `now`, at that time.
    pub fn step(&mut self, now: SimTime) -> SimTime {
        if let Some(step) = self.physics.timeline.take_due(now) {
            self.perform(step, now);
        }
        now
    }

    pub fn take_happenings(&mut self) -> Vec<Happening> {
        std::mem::take(&mut self.happenings)
    }
}
