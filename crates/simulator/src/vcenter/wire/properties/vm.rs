//! VirtualMachine.

use super::{Scope, allocation};
use crate::vcenter::inventory::{ConnectionState, MoRef, PowerState, Vm, VmId};
use crate::vcenter::wire::value::Value;

const GUEST_ID: &str = "ubuntu64Guest";
const GUEST_FULL_NAME: &str = "Ubuntu Linux (64-bit)";
const GIB: u64 = 1024 * 1024 * 1024;

impl Scope<'_> {
    pub(super) fn vm_property(&self, id: VmId, vm: &Vm, property: &str) -> Value {
        let object = MoRef::from(id);
        match property {
            "runtime" => self.vm_runtime(vm),
            "summary" => self.vm_summary(id, vm),
            "config" => self.vm_config(id, vm),
            "guest" => self.vm_guest(id, vm),
            "resourcePool" => Value::Ref(vm.pool.into()),
            "datastore" => Value::refs(self.datastores_near(object)),
            "network" => Value::refs(self.networks_near(object)),
            "guestHeartbeatStatus" => Value::of("ManagedEntityStatus", heartbeat(vm)),
            "rootSnapshot" => Value::refs::<MoRef>([]),
            "resourceConfig" => Value::object(
                "ResourceConfigSpec",
                vec![
                    ("entity", Value::Ref(id.into())),
                    ("cpuAllocation", allocation(u64::from(vm.cpu_count) * 1000)),
                    ("memoryAllocation", allocation(vm.memory_mib * 10)),
                ],
            ),
            _ => self.entity_property(object, &vm.name, "green", property),
        }
    }

    fn vm_runtime(&self, vm: &Vm) -> Value {
        let host = self.inventory.host(vm.host);
        let reachable = host.is_some_and(|host| host.connection == ConnectionState::Connected);
        let cpu_mhz = u64::from(host.map_or(0, |host| host.cpu_mhz)) * u64::from(vm.cpu_count);
        let state = if reachable { "connected" } else { "disconnected" };
        Value::object(
            "VirtualMachineRuntimeInfo",
            vec![
                ("host", Value::Ref(vm.host.into())),
                ("connectionState", Value::of("VirtualMachineConnectionState", state)),
                ("powerState", Value::of("VirtualMachinePowerState", power_state(vm.power))),
                ("faultToleranceState", Value::of("VirtualMachineFaultToleranceState", "notConfigured")),
                ("toolsInstallerMounted", Value::bool(false)),
                ("bootTime", Value::or_unset(vm.boot_time, Value::time)),
                ("maxCpuUsage", Value::int(cpu_mhz)),
                ("maxMemoryUsage", Value::int(vm.memory_mib)),
                ("numMksConnections", Value::int(0)),
                ("recordReplayState", Value::of("VirtualMachineRecordReplayState", "inactive")),
                ("onlineStandby", Value::bool(false)),
                ("consolidationNeeded", Value::bool(false)),
                ("paused", Value::bool(false)),
            ],
        )
    }

    fn vm_path(&self, id: VmId, vm: &Vm) -> String {
        format!("[{}] {name}/{name}.vmx", self.datastore_name_near(id.into()), name = vm.name)
    }

    fn vm_summary(&self, id: VmId, vm: &Vm) -> Value {
        let config = Value::object(
            "VirtualMachineConfigSummary",
            vec![
                ("name", Value::string(&vm.name)),
                ("template", Value::bool(false)),
                ("vmPathName", Value::string(self.vm_path(id, vm))),
                ("memorySizeMB", Value::int(vm.memory_mib)),
                ("cpuReservation", Value::int(0)),
                ("memoryReservation", Value::int(0)),
                ("numCpu", Value::int(vm.cpu_count)),
                ("numEthernetCards", Value::int(1)),
                ("numVirtualDisks", Value::int(1)),
                ("uuid", Value::string(vm.bios_uuid.to_string())),
                ("instanceUuid", Value::string(vm.instance_uuid.to_string())),
                ("guestId", Value::string(GUEST_ID)),
                ("guestFullName", Value::string(GUEST_FULL_NAME)),
                ("annotation", Value::string(&vm.annotation)),
                ("hwVersion", Value::string("vmx-21")),
            ],
        );
        let (status, running) = tools(vm);
        let guest = Value::object(
            "VirtualMachineGuestSummary",
            vec![
                ("guestId", running_only(vm, GUEST_ID)),
                ("guestFullName", running_only(vm, GUEST_FULL_NAME)),
                ("toolsStatus", status),
                ("toolsVersionStatus", Value::string("guestToolsUnmanaged")),
                ("toolsVersionStatus2", Value::string("guestToolsUnmanaged")),
                ("toolsRunningStatus", running),
                ("hostName", running_only(vm, &vm.guest_host_name)),
                ("ipAddress", running_only(vm, &vm.ip_address)),
            ],
        );
        let storage = Value::object(
            "VirtualMachineStorageSummary",
            vec![
                ("committed", Value::long(40 * GIB)),
                ("uncommitted", Value::long(60 * GIB)),
                ("unshared", Value::long(40 * GIB)),
                ("timestamp", Value::time(self.now)),
            ],
        );
        Value::object(
            "VirtualMachineSummary",
            vec![
                ("vm", Value::Ref(id.into())),
                ("runtime", self.vm_runtime(vm)),
                ("guest", guest),
                ("config", config),
                ("storage", storage),
                ("quickStats", self.vm_quick_stats(vm)),
                ("overallStatus", Value::of("ManagedEntityStatus", "green")),
            ],
        )
    }

    fn vm_quick_stats(&self, vm: &Vm) -> Value {
        let on = vm.power == PowerState::On;
        let cpu = if on { u64::from(vm.cpu_demand_mhz) } else { 0 };
        let memory = if on { vm.memory_demand_mib } else { 0 };
        let uptime = vm.boot_time.filter(|_| on).map_or(0, |boot| self.now.since(boot).as_secs());
        Value::object(
            "VirtualMachineQuickStats",
            vec![
                ("overallCpuUsage", Value::int(cpu)),
                ("overallCpuDemand", Value::int(cpu)),
                ("guestMemoryUsage", Value::int(memory)),
                ("hostMemoryUsage", Value::int(memory)),
                ("guestHeartbeatStatus", Value::of("ManagedEntityStatus", heartbeat(vm))),
                ("distributedCpuEntitlement", Value::int(cpu)),
                ("distributedMemoryEntitlement", Value::int(memory)),
                ("privateMemory", Value::int(memory)),
                ("sharedMemory", Value::int(0)),
                ("swappedMemory", Value::int(0)),
                ("balloonedMemory", Value::int(0)),
                ("compressedMemory", Value::long(0)),
                ("uptimeSeconds", Value::int(uptime)),
            ],
        )
    }

    fn vm_config(&self, id: VmId, vm: &Vm) -> Value {
        let path = self.vm_path(id, vm);
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory).to_owned();
        let hardware = Value::object(
            "VirtualHardware",
            vec![
                ("numCPU", Value::int(vm.cpu_count)),
                ("numCoresPerSocket", Value::int(1)),
                ("memoryMB", Value::int(vm.memory_mib)),
                ("device", Value::list("VirtualDevice", vec![self.vm_network_card(id)])),
            ],
        );
        let extra = vm
            .extra_config
            .iter()
            .map(|(key, value)| {
                Value::object("OptionValue", vec![("key", Value::string(key)), ("value", Value::string(value))])
            })
            .collect();
        Value::object(
            "VirtualMachineConfigInfo",
            vec![
                ("changeVersion", Value::string("")),
                ("modified", Value::time(crate::clock::SimTime::default())),
                ("name", Value::string(&vm.name)),
                ("guestFullName", Value::string(GUEST_FULL_NAME)),
                ("version", Value::string("vmx-21")),
                ("uuid", Value::string(vm.bios_uuid.to_string())),
                ("instanceUuid", Value::string(vm.instance_uuid.to_string())),
                ("template", Value::bool(false)),
                ("guestId", Value::string(GUEST_ID)),
                ("alternateGuestName", Value::string("")),
                ("annotation", Value::string(&vm.annotation)),
                (
                    "files",
                    Value::object(
                        "VirtualMachineFileInfo",
                        vec![("vmPathName", Value::string(path)), ("logDirectory", Value::string(directory))],
                    ),
                ),
                ("hardware", hardware),
                ("cpuAllocation", allocation(u64::from(vm.cpu_count) * 1000)),
                ("memoryAllocation", allocation(vm.memory_mib * 10)),
                ("memoryHotAddEnabled", Value::bool(false)),
                ("cpuHotAddEnabled", Value::bool(false)),
                ("cpuHotRemoveEnabled", Value::bool(false)),
                ("extraConfig", Value::list("OptionValue", extra)),
                ("changeTrackingEnabled", Value::bool(false)),
                ("firmware", Value::string("efi")),
            ],
        )
    }

    fn vm_network_card(&self, id: VmId) -> Value {
        let network = self.networks_near(id.into()).first().copied();
        let network_name = match network {
            Some(MoRef::Network(id)) => self.inventory.network(id).map_or("", |network| &network.name),
            _ => "",
        };
        let info = vec![("label", Value::string("Network adapter 1")), ("summary", Value::string(network_name))];
        let backing = vec![
            ("deviceName", Value::string(network_name)),
            ("network", network.map_or(Value::Unset, |network| Value::Ref(network.into()))),
        ];
        Value::object(
            "VirtualVmxnet3",
            vec![
                ("key", Value::int(4000)),
                ("deviceInfo", Value::object("Description", info)),
                ("backing", Value::object("VirtualEthernetCardNetworkBackingInfo", backing)),
                ("controllerKey", Value::int(100)),
                ("unitNumber", Value::int(7)),
                ("addressType", Value::string("assigned")),
                ("macAddress", Value::string(mac_address(id))),
                ("wakeOnLanEnabled", Value::bool(true)),
            ],
        )
    }

    fn vm_guest(&self, id: VmId, vm: &Vm) -> Value {
        let (status, running) = tools(vm);
        let on = vm.power == PowerState::On;
        let network = self.networks_near(id.into()).first().copied();
        let network_name = match network {
            Some(MoRef::Network(id)) => self.inventory.network(id).map_or("", |network| &network.name),
            _ => "",
        };
        let card = Value::object(
            "GuestNicInfo",
            vec![
                ("network", Value::string(network_name)),
                ("ipAddress", Value::strings((!vm.ip_address.is_empty()).then_some(&vm.ip_address))),
                ("macAddress", Value::string(mac_address(id))),
                ("connected", Value::bool(true)),
                ("deviceConfigId", Value::int(4000)),
            ],
        );
        let state = if on { "running" } else { "notRunning" };
        Value::object(
            "GuestInfo",
            vec![
                ("toolsStatus", status),
                ("toolsVersionStatus", Value::string("guestToolsUnmanaged")),
                ("toolsVersionStatus2", Value::string("guestToolsUnmanaged")),
                ("toolsRunningStatus", running),
                ("toolsVersion", running_only(vm, "12389")),
                ("guestId", running_only(vm, GUEST_ID)),
                ("guestFamily", running_only(vm, "linuxGuest")),
                ("guestFullName", running_only(vm, GUEST_FULL_NAME)),
                ("hostName", running_only(vm, &vm.guest_host_name)),
                ("ipAddress", running_only(vm, &vm.ip_address)),
                ("net", Value::list("GuestNicInfo", if on { vec![card] } else { Vec::new() })),
                ("guestState", Value::string(state)),
                ("guestOperationsReady", Value::bool(on)),
                ("guestStateChangeSupported", Value::bool(on)),
            ],
        )
    }
}

/// A value that VMware Tools reports only while the guest runs.
fn running_only(vm: &Vm, text: &str) -> Value {
    if vm.power == PowerState::On && !text.is_empty() { Value::string(text) } else { Value::Unset }
}

fn tools(vm: &Vm) -> (Value, Value) {
    let (status, running) = if vm.power == PowerState::On {
        ("toolsOk", "guestToolsRunning")
    } else {
        ("toolsNotRunning", "guestToolsNotRunning")
    };
    (Value::of("VirtualMachineToolsStatus", status), Value::string(running))
}

fn heartbeat(vm: &Vm) -> &'static str {
    if vm.power == PowerState::On { "green" } else { "gray" }
}

fn power_state(power: PowerState) -> &'static str {
    match power {
        PowerState::On => "poweredOn",
        PowerState::Off => "poweredOff",
        PowerState::Suspended => "suspended",
    }
}

fn mac_address(id: VmId) -> String {
    let [_, high, middle, low] = id.0.to_be_bytes();
    // VMware's range for addresses that a vCenter assigns ends at 00:50:56:bf.
    format!("00:50:56:{:02x}:{middle:02x}:{low:02x}", 0x80 | (high & 0x3f))
}
