//! The watched properties, and how their values are parsed.
//!
//! Input: property changes in XML. Output: the typed `*State` of one object, with `None` for unknown values. The XML
//! itself is not stored.
//!
//! Invariants: a value that cannot be parsed is unknown, never an error; a property that is only missing from a
//! response keeps its known value. Every vCenter from 6.5 on accepts the paths: a cluster's `configurationEx` is read
//! as a whole, because its DRS settings belong to a subtype that a path cannot name.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use model::event::{DatastoreFacts, HostConnection, HostLoadFacts};
use uuid::Uuid;

use super::cluster_settings::ClusterSettings;
use super::scope::VmScope;
use crate::ManagedObject;
use crate::property::{PropertyChange, Selection};
use crate::xml::Element;

pub(crate) const VM: &str = "VirtualMachine";
pub(crate) const HOST: &str = "HostSystem";
pub(crate) const CLUSTER: &str = "ClusterComputeResource";
/// The parent of a standalone host; a cluster is a subtype of it.
pub(crate) const COMPUTE: &str = "ComputeResource";
pub(crate) const DATACENTER: &str = "Datacenter";
pub(crate) const FOLDER: &str = "Folder";
pub(crate) const RESOURCE_POOL: &str = "ResourcePool";
/// A kind of resource pool.
pub(crate) const VAPP: &str = "VirtualApp";

/// The last ones only if the scope limits which VMs count.
const VM_PATHS: &[&str] = &[
    "name",
    "runtime.powerState",
    "config.uuid",
    "summary.config.uuid",
    "config.template",
    "guest.hostName",
    "guest.ipAddress",
    "guest.net",
    "parent",
    "resourcePool",
];
const SCOPE_PATHS: usize = 2;

pub(crate) const DATASTORE: &str = "Datastore";
/// A folder of datastores.
pub(crate) const STORAGE_POD: &str = "StoragePod";

/// Which hosts mount which datastores.
const DATASTORES: [Selection<'_>; 2] = [
    Selection { kind: DATASTORE, paths: &["name", "parent", "summary.url", "host"] },
    Selection { kind: STORAGE_POD, paths: &["name", "parent"] },
];

/// What is watched; if the scope limits which VMs count, also what contains them.
pub(crate) fn watched(scope: &VmScope, with_datastores: bool) -> Vec<Selection<'static>> {
    let mut watched = WATCHED.to_vec();
    if !scope.is_everything() {
        watched.retain(|selection| selection.kind != VM);
        watched.push(Selection { kind: VM, paths: VM_PATHS });
        watched.extend([RESOURCE_POOL, VAPP].map(|kind| Selection { kind, paths: &["name", "parent"] }));
    }
    if with_datastores {
        watched.extend(DATASTORES);
    }
    watched
}

/// All watched properties except the hosts of VMs. A cluster is selected by its own type and by its base type with the
/// same paths, so that it does not matter how a server handles an object that matches two selections.
pub(crate) const WATCHED: &[Selection<'_>] = &[
    Selection { kind: VM, paths: VM_PATHS.split_at(VM_PATHS.len() - SCOPE_PATHS).0 },
    Selection {
        kind: HOST,
        paths: &["name", "parent", "runtime.connectionState", "runtime.inMaintenanceMode", "recentTask"],
    },
    Selection { kind: CLUSTER, paths: &["name", "parent", "configurationEx", "recentTask"] },
    Selection { kind: COMPUTE, paths: &["name", "parent", "configurationEx", "recentTask"] },
    Selection { kind: DATACENTER, paths: &["name", "parent"] },
    Selection { kind: FOLDER, paths: &["name", "parent"] },
];

/// The hosts of VMs, in a separate watch: on any change a server checks everything that a watch selects, and a vMotion
/// must not wait for that. The property is in one watch only, because two watches have no common order.
pub(crate) const PLACEMENTS: &[Selection<'_>] = &[Selection { kind: VM, paths: &["runtime.host"] }];

/// Properties that are read periodically: those that not every server reports, and those that change all the time, so
/// that a watch of them would return constantly.
pub(crate) const READ_AGAIN: &[Selection<'_>] = &[
    Selection {
        kind: HOST,
        paths: &[
            "runtime.connectionState",
            "runtime.inMaintenanceMode",
            USED_CPU,
            USED_MEMORY,
            CORE_SPEED,
            CORES,
            MEMORY,
        ],
    },
    Selection { kind: CLUSTER, paths: &["configurationEx"] },
];

/// The load of hosts, read once with the list, so that it is known from the start.
pub(crate) const LOADS: &[Selection<'_>] =
    &[Selection { kind: HOST, paths: &[USED_CPU, USED_MEMORY, CORE_SPEED, CORES, MEMORY] }];

/// In MHz and MiB.
const USED_CPU: &str = "summary.quickStats.overallCpuUsage";
const USED_MEMORY: &str = "summary.quickStats.overallMemoryUsage";
/// In MHz, each core.
const CORE_SPEED: &str = "summary.hardware.cpuMhz";
const CORES: &str = "summary.hardware.numCpuCores";
/// In bytes.
const MEMORY: &str = "summary.hardware.memorySize";

/// The known state of one object, and how a property change updates it.
pub(crate) trait State: Default {
    fn take(&mut self, path: &str, value: Option<&Element>);

    fn take_all(&mut self, changes: &[PropertyChange]) {
        for change in changes {
            self.take(&change.path, change.value.as_ref());
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VmState {
    pub(crate) name: Option<String>,
    pub(crate) powered_on: bool,
    pub(crate) bios_uuid: Option<Uuid>,
    /// The same from the summary, which vCenter keeps while a VM's configuration is not available.
    pub(crate) summary_uuid: Option<Uuid>,
    pub(crate) template: bool,
    pub(crate) dns_name: Option<String>,
    /// The primary address according to VMware Tools.
    pub(crate) primary_ip: Option<IpAddr>,
    pub(crate) adapter_ips: Vec<IpAddr>,
    /// What contains it. `None` if that is not watched.
    pub(crate) folder: Option<ManagedObject>,
    pub(crate) resource_pool: Option<ManagedObject>,
}

impl State for VmState {
    fn take(&mut self, path: &str, value: Option<&Element>) {
        match path {
            "name" => self.name = value.and_then(name),
            "runtime.powerState" => self.powered_on = value.is_some_and(|value| value.text.trim() == "poweredOn"),
            "config.uuid" => self.bios_uuid = value.and_then(uuid),
            "summary.config.uuid" => self.summary_uuid = value.and_then(uuid),
            "config.template" => self.template = value.is_some_and(is_true),
            "guest.hostName" => self.dns_name = value.and_then(text).map(|name| name.to_lowercase()),
            "guest.ipAddress" => self.primary_ip = value.and_then(text).and_then(machine_address),
            "guest.net" => self.adapter_ips = value.map(adapter_addresses).unwrap_or_default(),
            "parent" => self.folder = value.and_then(Element::reference),
            "resourcePool" => self.resource_pool = value.and_then(Element::reference),
            _ => (),
        }
    }
}

/// The host of a VM, from the watch of placements.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VmPlacement {
    /// The id of its host. `None` while vCenter itself does not know it.
    pub(crate) host: Option<String>,
}

impl State for VmPlacement {
    fn take(&mut self, path: &str, value: Option<&Element>) {
        if path == "runtime.host" {
            self.host = value.and_then(Element::reference).map(|host| host.id);
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HostState {
    pub(crate) name: Option<String>,
    pub(crate) parent: Option<ManagedObject>,
    pub(crate) connection: HostConnection,
    pub(crate) in_maintenance: bool,
    pub(crate) recent_tasks: Vec<ManagedObject>,
    /// These tasks have not been queried yet.
    pub(crate) tasks_unseen: bool,
    /// One of its recent tasks is entering maintenance mode.
    pub(crate) entering_maintenance: bool,
    load: LoadState,
}

/// The known values of a host's load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LoadState {
    used_mhz: Option<u64>,
    used_mib: Option<u64>,
    core_mhz: Option<u64>,
    cores: Option<u64>,
    memory_bytes: Option<u64>,
}

impl HostState {
    /// `None` until all values are known, and for a host that is not connected, because its values are out of date.
    pub(crate) fn load(&self) -> Option<HostLoadFacts> {
        let load = self.load;
        let facts = HostLoadFacts {
            cpu_used_mhz: load.used_mhz?,
            cpu_capacity_mhz: load.core_mhz?.checked_mul(load.cores?)?,
            memory_used_mib: load.used_mib?,
            memory_capacity_mib: load.memory_bytes? / (1024 * 1024),
        };
        (self.connection == HostConnection::Connected).then_some(facts)
    }
}

impl State for HostState {
    fn take(&mut self, path: &str, value: Option<&Element>) {
        match path {
            "name" => self.name = value.and_then(name),
            "parent" => self.parent = value.and_then(Element::reference),
            "runtime.connectionState" => {
                if let Some(connection) = value.and_then(connection) {
                    self.connection = connection;
                }
            }
            "runtime.inMaintenanceMode" => {
                self.in_maintenance = value.is_some_and(is_true);
                // Once the host is in maintenance mode, the task that took it there no longer matters.
                self.entering_maintenance &= !self.in_maintenance;
            }
            "recentTask" => {
                self.recent_tasks = value
                    .map(|value| value.children.iter().filter_map(Element::reference).collect())
                    .unwrap_or_default();
                self.tasks_unseen = !self.recent_tasks.is_empty();
                self.entering_maintenance &= self.tasks_unseen;
            }
            USED_CPU => self.load.used_mhz = value.and_then(number),
            USED_MEMORY => self.load.used_mib = value.and_then(number),
            CORE_SPEED => self.load.core_mhz = value.and_then(number),
            CORES => self.load.cores = value.and_then(number),
            MEMORY => self.load.memory_bytes = value.and_then(number),
            _ => (),
        }
    }
}

/// A cluster, a standalone host's compute resource, a datacenter, a folder or a resource pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PlaceState {
    pub(crate) name: Option<String>,
    pub(crate) parent: Option<ManagedObject>,
    /// Only of a cluster.
    pub(crate) settings: ClusterSettings,
    /// A task was started on it, and its settings have not been reported or read since.
    pub(crate) settings_in_doubt: bool,
}

impl State for PlaceState {
    fn take(&mut self, path: &str, value: Option<&Element>) {
        match path {
            "name" => self.name = value.and_then(name),
            "parent" => self.parent = value.and_then(Element::reference),
            "configurationEx" => self.settings = value.map(ClusterSettings::read).unwrap_or_default(),
            _ => (),
        }
    }

    fn take_all(&mut self, changes: &[PropertyChange]) {
        let any = |path: &str| changes.iter().any(|change| change.path == path);
        self.settings_in_doubt = (self.settings_in_doubt || any("recentTask")) && !any("configurationEx");
        changes.iter().for_each(|change| self.take(&change.path, change.value.as_ref()));
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DatastoreState {
    pub(crate) facts: Arc<DatastoreFacts>,
    pub(crate) parent: Option<ManagedObject>,
    /// By the id of a host that mounts it: whether the mount can be used. `None` while the mounts are unknown.
    pub(crate) mounts: Option<BTreeMap<String, bool>>,
}

impl State for DatastoreState {
    fn take(&mut self, path: &str, value: Option<&Element>) {
        match path {
            "name" => Arc::make_mut(&mut self.facts).name = value.and_then(name).unwrap_or_default(),
            "summary.url" => {
                Arc::make_mut(&mut self.facts).url = value.and_then(text).unwrap_or_default().to_owned();
            }
            "parent" => self.parent = value.and_then(Element::reference),
            "host" => self.mounts = value.map(|value| value.children.iter().filter_map(mount).collect()),
            _ => (),
        }
    }
}

/// A `DatastoreHostMount`. A mount without these flags can be used, as far as is known.
fn mount(value: &Element) -> Option<(String, bool)> {
    let host = value.child("key")?.reference()?.id;
    let info = value.child("mountInfo");
    let flag = |name: &str| info.and_then(|info| info.child(name)).is_none_or(is_true);
    Some((host, flag("mounted") && flag("accessible")))
}

fn text(value: &Element) -> Option<&str> {
    Some(value.text.trim()).filter(|text| !text.is_empty())
}

/// The vSphere API escapes exactly three characters in names.
fn name(value: &Element) -> Option<String> {
    let escaped = text(value)?;
    let mut name = String::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(at) = rest.find('%') {
        name.push_str(&rest[..at]);
        let character = match rest.get(at + 1..at + 3).map(str::to_ascii_lowercase).as_deref() {
            Some("2f") => '/',
            Some("5c") => '\\',
            Some("25") => '%',
            _ => {
                name.push('%');
                rest = &rest[at + 1..];
                continue;
            }
        };
        name.push(character);
        rest = &rest[at + 3..];
    }
    name.push_str(rest);
    Some(name)
}

fn number(value: &Element) -> Option<u64> {
    text(value)?.parse().ok()
}

pub(super) fn is_true(value: &Element) -> bool {
    matches!(value.text.trim(), "true" | "1")
}

/// All zeros means firmware without a UUID, which identifies no VM.
fn uuid(value: &Element) -> Option<Uuid> {
    Uuid::parse_str(text(value)?).ok().filter(|uuid| !uuid.is_nil())
}

fn connection(value: &Element) -> Option<HostConnection> {
    match value.text.trim() {
        "connected" => Some(HostConnection::Connected),
        "disconnected" => Some(HostConnection::Disconnected),
        "notResponding" => Some(HostConnection::NotResponding),
        _ => None,
    }
}

/// An address that can identify a machine. Loopback and link-local addresses are the same everywhere.
fn machine_address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.trim().parse().ok()?;
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    (!link_local && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()).then_some(address)
}

/// Every address of every adapter. All versions of VMware Tools report `ipAddress`, newer ones also `ipConfig`.
fn adapter_addresses(adapters: &Element) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = adapters
        .children
        .iter()
        .flat_map(|adapter| {
            let plain = adapter.all("ipAddress").map(|address| address.text.as_str());
            let configured = adapter
                .child("ipConfig")
                .into_iter()
                .flat_map(|config| config.all("ipAddress"))
                .filter_map(|address| address.text_at("ipAddress"));
            plain.chain(configured).filter_map(machine_address)
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

#[cfg(test)]
#[path = "properties_tests.rs"]
mod tests;
