//! HostSystem.

use super::Scope;
use super::service::about;
use crate::vcenter::inventory::{ConnectionState, Host, HostId, Maintenance, MoRef, PowerState};
use crate::vcenter::wire::value::Value;

const VENDOR: &str = "Bridger";
const MODEL: &str = "Simulated Server";
const CPU_MODEL: &str = "Simulated CPU";
const MIB: u64 = 1024 * 1024;

impl Scope<'_> {
    pub(super) fn host_property(&self, id: HostId, host: &Host, property: &str) -> Value {
        let object = MoRef::from(id);
        match property {
            "runtime" => host_runtime(host),
            "summary" => self.host_summary(id, host),
            "hardware" => host_hardware(host),
            "config" => {
                Value::object("HostConfigInfo", vec![("host", Value::Ref(id.into())), ("product", self.host_product())])
            }
            "vm" => Value::refs(self.relations.members(object).filter(|member| matches!(member, MoRef::Vm(_)))),
            "datastore" => Value::refs(self.datastores_near(object)),
            "network" => Value::refs(self.networks_near(object)),
            _ => self.entity_property(object, &host.name, host_status(host), property),
        }
    }

    fn host_summary(&self, id: HostId, host: &Host) -> Value {
        let hardware = Value::object(
            "HostHardwareSummary",
            vec![
                ("vendor", Value::string(VENDOR)),
                ("model", Value::string(MODEL)),
                ("uuid", Value::string(host.uuid.to_string())),
                ("memorySize", Value::long(host.memory_mib * MIB)),
                ("cpuModel", Value::string(CPU_MODEL)),
                ("cpuMhz", Value::int(host.cpu_mhz)),
                ("numCpuPkgs", Value::short(packages(host))),
                ("numCpuCores", Value::short(host.cpu_count)),
                ("numCpuThreads", Value::short(host.cpu_count * 2)),
                ("numNics", Value::int(2)),
                ("numHBAs", Value::int(2)),
            ],
        );
        let config = Value::object(
            "HostConfigSummary",
            vec![
                ("name", Value::string(&host.name)),
                ("port", Value::int(443)),
                ("product", self.host_product()),
                ("vmotionEnabled", Value::bool(true)),
                ("faultToleranceEnabled", Value::bool(false)),
            ],
        );
        Value::object(
            "HostListSummary",
            vec![
                ("host", Value::Ref(id.into())),
                ("hardware", hardware),
                ("runtime", host_runtime(host)),
                ("config", config),
                ("quickStats", self.host_quick_stats(id, host)),
                ("overallStatus", Value::of("ManagedEntityStatus", host_status(host))),
                ("rebootRequired", Value::bool(false)),
            ],
        )
    }

    /// The total usage of a host's running VMs: MHz and MiB.
    fn host_usage(&self, id: HostId) -> (u64, u64) {
        let running = self.relations.members(id).filter_map(|member| match member {
            MoRef::Vm(vm) => self.inventory.vm(vm).filter(|vm| vm.power == PowerState::On),
            _ => None,
        });
        running.fold((0, 0), |(cpu, memory), vm| (cpu + u64::from(vm.cpu_demand_mhz), memory + vm.memory_demand_mib))
    }

    fn host_quick_stats(&self, id: HostId, host: &Host) -> Value {
        if host.connection != ConnectionState::Connected {
            return Value::object("HostListSummaryQuickStats", Vec::new());
        }
        let (cpu, memory) = self.host_usage(id);
        Value::object(
            "HostListSummaryQuickStats",
            vec![
                ("overallCpuUsage", Value::int(cpu.min(host.cpu_capacity_mhz()))),
                ("overallMemoryUsage", Value::int(memory.min(host.memory_mib))),
                ("uptime", Value::int(self.now.since(host.boot_time).as_secs())),
            ],
        )
    }

    fn host_product(&self) -> Value {
        let mut product = about(self.instance_uuid);
        if let Value::Object(object) = &mut product {
            for (name, value) in &mut object.fields {
                match *name {
                    "name" => *value = Value::string("VMware ESXi"),
                    "fullName" => *value = Value::string("VMware ESXi 8.0.3 build-24022510"),
                    "osType" => *value = Value::string("vmnix-x86"),
                    "productLineId" => *value = Value::string("embeddedEsx"),
                    "apiType" => *value = Value::string("HostAgent"),
                    "instanceUuid" => *value = Value::Unset,
                    _ => (),
                }
            }
        }
        product
    }
}

fn packages(host: &Host) -> u32 {
    if host.cpu_count >= 16 { 2 } else { 1 }
}

fn host_status(host: &Host) -> &'static str {
    match host.connection {
        ConnectionState::Connected => "green",
        ConnectionState::Disconnected => "gray",
        ConnectionState::NotResponding => "red",
    }
}

fn host_runtime(host: &Host) -> Value {
    let (connection, power) = match host.connection {
        ConnectionState::Connected => ("connected", "poweredOn"),
        ConnectionState::Disconnected => ("disconnected", "unknown"),
        ConnectionState::NotResponding => ("notResponding", "unknown"),
    };
    Value::object(
        "HostRuntimeInfo",
        vec![
            ("connectionState", Value::of("HostSystemConnectionState", connection)),
            ("powerState", Value::of("HostSystemPowerState", power)),
            ("standbyMode", Value::string("none")),
            ("inMaintenanceMode", Value::bool(host.maintenance == Maintenance::In)),
            ("inQuarantineMode", Value::bool(false)),
            ("bootTime", Value::time(host.boot_time)),
        ],
    )
}

fn host_hardware(host: &Host) -> Value {
    let hz = u64::from(host.cpu_mhz) * 1_000_000;
    let packages = packages(host);
    let system = Value::object(
        "HostSystemInfo",
        vec![
            ("vendor", Value::string(VENDOR)),
            ("model", Value::string(MODEL)),
            ("uuid", Value::string(host.uuid.to_string())),
        ],
    );
    let cpu = Value::object(
        "HostCpuInfo",
        vec![
            ("numCpuPackages", Value::short(packages)),
            ("numCpuCores", Value::short(host.cpu_count)),
            ("numCpuThreads", Value::short(host.cpu_count * 2)),
            ("hz", Value::long(hz)),
        ],
    );
    let package = |index: u32| {
        Value::object(
            "HostCpuPackage",
            vec![
                ("index", Value::short(index)),
                ("vendor", Value::string("intel")),
                ("hz", Value::long(hz)),
                ("busHz", Value::long(100_000_000)),
                ("description", Value::string(CPU_MODEL)),
            ],
        )
    };
    Value::object(
        "HostHardwareInfo",
        vec![
            ("systemInfo", system),
            ("cpuInfo", cpu),
            ("cpuPkg", Value::list("HostCpuPackage", (0..packages).map(package).collect())),
            ("memorySize", Value::long(host.memory_mib * MIB)),
        ],
    )
}
