//! What joins the two worlds: each simulated node is a VM.
//!
//! A VM with the node role registers a Kubernetes node; without power the node goes down; destroyed, its machine is
//! gone for good. Kubernetes never acts on the vCenter, just as a real cluster would not.

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
        // Whether it still has the node role does not matter: a node that it once was goes down with it.
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
