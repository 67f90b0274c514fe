//! The Node object in the form that a kubelet on vSphere writes.

use serde_json::{Value, json};

use super::storage;
use crate::clock::SimTime;
use crate::kubernetes::condition::{self, State};
use crate::kubernetes::json::put;
use crate::kubernetes::{Config, NodeMachine};

/// The conditions that a kubelet reports.
pub(super) const CONDITIONS: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];

/// The memory that a kubelet reserves as its eviction threshold.
const MEMORY_RESERVED_MIB: u64 = 100;
const DISK_KIB: u64 = 100 * 1024 * 1024;
const PODS_MAX: u32 = 110;

/// Identifies one boot of one machine.
pub(super) struct Identity<'a> {
    pub boot_id: &'a str,
    pub machine_id: &'a str,
}

/// A node at its registration, without status.
pub(super) fn new(machine: &NodeMachine) -> Value {
    let mut node = json!({ "metadata": { "name": machine.name, "annotations": {
        "node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true" } } });
    identify(&mut node, machine);
    node
}

/// The in-tree volumes that a kubelet hands to CSI drivers.
const MIGRATED: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,\
                        kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume";

/// The node's storage driver, as the kubelet publishes it. The Node owns it.
pub(super) fn csi_node(node: &Value, machine: &NodeMachine, config: &Config) -> Value {
    json!({
        "metadata": { "name": machine.name, "annotations": { "storage.alpha.kubernetes.io/migrated-plugins": MIGRATED },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": machine.name,
                "uid": node["metadata"]["uid"] }] },
        "spec": { "drivers": [{ "name": storage::DRIVER, "nodeID": machine.bios_uuid.to_string(),
            "allocatable": { "count": config.volumes_per_node_max } }] },
    })
}

/// Sets the labels and the provider ID, as the kubelet does at every start. Other labels stay.
pub(super) fn identify(node: &mut Value, machine: &NodeMachine) {
    for (label, value) in [
        ("beta.kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", machine.name.as_str()),
        ("kubernetes.io/os", "linux"),
    ] {
        put(node, &["metadata", "labels", label], json!(value));
    }
    put(node, &["spec", "providerID"], json!(format!("vsphere://{}", machine.bios_uuid)));
}

/// The status that the kubelet reports.
pub(super) fn report(
    node: &mut Value,
    machine: &NodeMachine,
    identity: &Identity<'_>,
    config: &Config,
    ready: bool,
    now: SimTime,
) {
    let memory_kib = |mib: u64| format!("{}Ki", mib.saturating_mul(1024));
    put(
        node,
        &["status", "capacity"],
        json!({ "cpu": machine.cpu_count.to_string(), "memory": memory_kib(machine.memory_mib),
            "pods": PODS_MAX.to_string(), "ephemeral-storage": format!("{DISK_KIB}Ki"),
            "hugepages-1Gi": "0", "hugepages-2Mi": "0" }),
    );
    put(
        node,
        &["status", "allocatable"],
        json!({ "cpu": machine.cpu_count.to_string(),
            "memory": memory_kib(machine.memory_mib.saturating_sub(MEMORY_RESERVED_MIB)),
            "pods": PODS_MAX.to_string(), "ephemeral-storage": (DISK_KIB * 1024 / 10 * 9).to_string(),
            "hugepages-1Gi": "0", "hugepages-2Mi": "0" }),
    );
    put(
        node,
        &["status", "addresses"],
        json!([{ "type": "InternalIP", "address": machine.ip_address },
            { "type": "Hostname", "address": machine.name }]),
    );
    put(node, &["status", "daemonEndpoints"], json!({ "kubeletEndpoint": { "Port": 10250 } }));
    put(
        node,
        &["status", "nodeInfo"],
        json!({ "architecture": "amd64", "operatingSystem": "linux", "osImage": "VMware Photon OS/Linux",
            "kernelVersion": "6.12.48-esx", "containerRuntimeVersion": "containerd://2.2.1",
            "kubeletVersion": config.kubelet_version, "kubeProxyVersion": "",
            "machineID": identity.machine_id, "bootID": identity.boot_id,
            "systemUUID": machine.bios_uuid.to_string() }),
    );
    for (condition_type, status, reason, message) in [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        if ready {
            ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
        } else {
            ("Ready", "False", "KubeletNotReady", "container runtime network not ready")
        },
    ] {
        condition::set(node, condition_type, State::new(status, reason, message), now);
        condition::stamp(node, condition_type, "lastHeartbeatTime", &now.rfc3339_seconds());
    }
}
