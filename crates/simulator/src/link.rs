//! The connection between the two sides: each simulated node is a VM.
//!
//! A VM with the node role registers a Kubernetes node. When the VM loses power, the node goes down. When the VM is
//! destroyed, its machine is permanently removed. As in a real cluster, Kubernetes never acts on the vCenter.

use crate::clock::SimTime;
use crate::kubernetes::{Kubernetes, NodeMachine};
use crate::vcenter::{Happening, Vcenter, VmRole};

pub fn carry(happening: &Happening, vcenter: &Vcenter, kubernetes: &mut Kubernetes, now: SimTime) {
    match happening {
        Happening::VmPoweredOn { vm, .. } => {
            if let Some(machine) = node_machine(vcenter, *vm) {
                kubernetes.machine_started(&machine, now);
            }
        }
        // The current node role does not matter: if the VM was a node before, that node goes down with it.
        Happening::VmPoweredOff { vm, .. } => {
            if let Some(vm) = vcenter.inventory().vm(*vm) {
                kubernetes.machine_stopped(&vm.guest_host_name, vm.bios_uuid, now);
            }
        }
        Happening::VmDestroyed { guest_host_name, bios_uuid, .. } => {
            kubernetes.machine_destroyed(guest_host_name, *bios_uuid, now);
        }
        _ => (),
    }
}

fn node_machine(vcenter: &Vcenter, vm: crate::vcenter::VmId) -> Option<NodeMachine> {
    let vm = vcenter.inventory().vm(vm)?;
    (vm.role() == VmRole::KubernetesNode).then(|| NodeMachine {
        name: vm.guest_host_name.clone(),
        bios_uuid: vm.bios_uuid,
        ip_address: vm.ip_address.clone(),
        cpu_count: vm.cpu_count,
        memory_mib: vm.memory_mib,
    })
}
