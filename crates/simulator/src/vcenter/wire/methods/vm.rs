//! VirtualMachine: creation, reconfiguration, migration, power.

use std::collections::{BTreeMap, BTreeSet};

use super::entity::checked_name;
use super::{OnVm, Request, task_reply, wrong};
use crate::vcenter::inventory::{FolderId, FolderKind, MoRef, PowerState};
use crate::vcenter::physics::{VmChange, VmSpec};
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::wire::collector::is_true;
use crate::vcenter::wire::soap::Reply;
use crate::vcenter::wire::target::Target;
use crate::vcenter::wire::value::Value;
use crate::vcenter::wire::xml::Element;

const CPU_COUNT_MAX: u32 = 768;
const MEMORY_MIB_MAX: u64 = 24 * 1024 * 1024;
const EXTRA_CONFIG_MAX: usize = 1_000;
const VMS_MAX: usize = 50_000;

pub(super) fn create(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let folder = request.this_folder()?;
    require_vm_folder(request, folder)?;
    let config = request.argument("config")?;
    let pool = request.pool_at(request.argument("pool")?)?;
    let host = match request.call.arguments.child("host") {
        Some(element) => Some(request.host_at(element)?),
        None => None,
    };
    let extra_config: BTreeMap<String, String> =
        extra_config(config)?.into_iter().filter_map(|(key, value)| value.map(|value| (key, value))).collect();
    let spec = VmSpec {
        name: checked_name(config.child_text("name").unwrap_or_default())?,
        folder,
        pool,
        host,
        cpu_count: cpu_count(config)?.unwrap_or(1),
        memory_mib: memory_mib(config)?.unwrap_or(1024),
        annotation: config.child_text("annotation").unwrap_or_default().to_owned(),
        extra_config,
        power_on: false,
    };
    task_reply(request.vcenter.create_vm(spec, &request.actor, request.now))
}

/// Creates a VM with the same configuration and another name. It gets its own identity.
pub(super) fn clone(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let source = request.this_vm()?;
    let folder = match request.object(request.argument("folder")?)? {
        MoRef::Folder(id) => id,
        _ => return Err(wrong("folder")),
    };
    require_vm_folder(request, folder)?;
    let name = checked_name(request.text("name")?)?;
    let spec = request.argument("spec")?;
    let location = spec.child("location");
    let host = match location.and_then(|location| location.child("host")) {
        Some(element) => Some(request.host_at(element)?),
        None => None,
    };
    let vm = request.vcenter.inventory.vm(source).ok_or(VimFault::ManagedObjectNotFound(source.into()))?;
    let pool = match location.and_then(|location| location.child("pool")) {
        Some(element) => request.pool_at(element)?,
        None => vm.pool,
    };
    let spec = VmSpec {
        name,
        folder,
        pool,
        host,
        cpu_count: vm.cpu_count,
        memory_mib: vm.memory_mib,
        annotation: vm.annotation.clone(),
        extra_config: vm.extra_config.clone(),
        power_on: is_true(spec.child("powerOn")),
    };
    task_reply(request.vcenter.create_vm(spec, &request.actor, request.now))
}

fn require_vm_folder(request: &Request<'_>, folder: FolderId) -> Result<(), VimFault> {
    let inventory = &request.vcenter.inventory;
    if inventory.folder(folder).is_none_or(|folder| folder.kind != FolderKind::Vm) {
        return Err(VimFault::NotSupported);
    }
    if inventory.vms().count() >= VMS_MAX {
        return Err(VimFault::SystemError(format!("at most {VMS_MAX} virtual machines can exist")));
    }
    Ok(())
}

pub(super) fn reconfigure(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let vm = request.this_vm()?;
    let spec = request.argument("spec")?;
    let name = match spec.child_text("name").filter(|name| !name.is_empty()) {
        Some(name) => Some(checked_name(name)?),
        None => None,
    };
    let change = VmChange {
        name,
        cpu_count: cpu_count(spec)?,
        memory_mib: memory_mib(spec)?,
        annotation: spec.child("annotation").map(|element| element.text.clone()),
        extra_config: extra_config(spec)?,
    };
    task_reply(request.vcenter.reconfigure_vm(vm, change, &request.actor, request.now))
}

fn cpu_count(spec: &Element) -> Result<Option<u32>, VimFault> {
    let Some(text) = spec.child_text("numCPUs") else { return Ok(None) };
    let count = text.parse().ok().filter(|count| (1..=CPU_COUNT_MAX).contains(count));
    count.map(Some).ok_or_else(|| wrong("spec.numCPUs"))
}

fn memory_mib(spec: &Element) -> Result<Option<u64>, VimFault> {
    let Some(text) = spec.child_text("memoryMB") else { return Ok(None) };
    let mib = text.parse().ok().filter(|mib| (4..=MEMORY_MIB_MAX).contains(mib));
    mib.map(Some).ok_or_else(|| wrong("spec.memoryMB"))
}

/// An empty value removes the key.
fn extra_config(spec: &Element) -> Result<BTreeMap<String, Option<String>>, VimFault> {
    let mut options = BTreeMap::new();
    for option in spec.children_named("extraConfig") {
        let key =
            option.child_text("key").filter(|key| !key.is_empty()).ok_or_else(|| wrong("spec.extraConfig.key"))?;
        let value = option.child("value").map(|value| value.text.clone()).filter(|value| !value.is_empty());
        options.insert(key.to_owned(), value);
    }
    if options.len() > EXTRA_CONFIG_MAX { Err(wrong("spec.extraConfig")) } else { Ok(options) }
}

/// Only the host can change: all storage is shared.
pub(super) fn relocate(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let vm = request.this_vm()?;
    let spec = request.argument("spec")?;
    if let Some(pool) = spec.child("pool") {
        request.pool_at(pool)?;
    }
    let host = request.host_at(spec.child("host").ok_or_else(|| wrong("spec.host"))?)?;
    task_reply(request.vcenter.relocate_vm(vm, host, &request.actor, request.now))
}

/// The predecessor of RelocateVM_Task.
pub(super) fn migrate(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let vm = request.this_vm()?;
    let host = request.host_at(request.argument("host")?)?;
    task_reply(request.vcenter.relocate_vm(vm, host, &request.actor, request.now))
}

/// Starts the guest operation immediately; the caller gets no task.
pub(super) fn guest_operation(request: &mut Request<'_>, act: OnVm) -> Result<Reply, VimFault> {
    let vm = request.this_vm()?;
    let power = request.vcenter.inventory.vm(vm).map_or(PowerState::Off, |vm| vm.power);
    if power != PowerState::On {
        let existing = if power == PowerState::Suspended { "suspended" } else { "poweredOff" };
        return Err(VimFault::InvalidPowerState { requested: "poweredOn".to_owned(), existing: existing.to_owned() });
    }
    act(request.vcenter, vm, &request.actor, request.now)?;
    Ok(Reply::Nothing)
}

/// Starts a task for each VM. The common task is complete when they are started.
pub(super) fn power_on_many(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let Target::Inventory(MoRef::Datacenter(datacenter)) = request.this else { return request.no_such_method() };
    let vms = request.call.arguments.children_named("vm").map(|element| request.vm_at(element));
    let vms = vms.collect::<Result<BTreeSet<_>, _>>()?;
    if vms.is_empty() {
        return Err(wrong("vm"));
    }
    for vm in vms {
        request.vcenter.power_on_vm(vm, &request.actor, request.now)?;
    }
    let name = request.vcenter.inventory.datacenter(datacenter).map_or_else(String::new, |it| it.name.clone());
    let method = "PowerOnMultiVM_Task";
    let task = request.vcenter.finished_task(method, datacenter.into(), name, &request.actor, request.now);
    Ok(Reply::One(Value::Ref(task.into())))
}
