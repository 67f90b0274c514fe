//! SearchIndex: objects by path, name, UUID, DNS name or address.

use super::{Request, wrong};
use crate::vcenter::inventory::{MoRef, PowerState, Vm};
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::wire::collector::is_true;
use crate::vcenter::wire::properties::{Scope, root_folder};
use crate::vcenter::wire::soap::Reply;
use crate::vcenter::wire::target::{Singleton, Target};
use crate::vcenter::wire::value::Value;

/// `dc-1/vm/node-1`, from the root folder.
pub(super) fn by_inventory_path(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    request.this_service(Singleton::SearchIndex)?;
    let path = request.text("inventoryPath")?;
    let scope = request.scope();
    let mut at = root_folder(scope.inventory).map(MoRef::from);
    for name in path.split('/').filter(|name| !name.is_empty()) {
        at = at.and_then(|parent| child_named(&scope, parent, &unescape(name)));
    }
    Ok(found(at))
}

pub(super) fn child(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    request.this_service(Singleton::SearchIndex)?;
    let parent = request.object(request.argument("entity")?)?;
    let name = request.text("name")?;
    Ok(found(child_named(&request.scope(), parent, name)))
}

pub(super) fn by_uuid(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let uuid: uuid::Uuid = request.text("uuid")?.parse().map_err(|_| wrong("uuid"))?;
    let instance = is_true(request.call.arguments.child("instanceUuid"));
    if is_true(Some(request.argument("vmSearch")?)) {
        vms(request, |vm| if instance { vm.instance_uuid == uuid } else { vm.bios_uuid == uuid })
    } else {
        hosts(request, |_, host_uuid| host_uuid == uuid)
    }
}

pub(super) fn by_dns_name(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let name = request.text("dnsName")?.to_owned();
    if is_true(Some(request.argument("vmSearch")?)) {
        vms(request, |vm| vm.power == PowerState::On && vm.guest_host_name.eq_ignore_ascii_case(&name))
    } else {
        hosts(request, |host_name, _| host_name.eq_ignore_ascii_case(&name))
    }
}

pub(super) fn by_ip(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let address = request.text("ip")?.to_owned();
    if is_true(Some(request.argument("vmSearch")?)) {
        vms(request, |vm| vm.power == PowerState::On && vm.ip_address == address)
    } else {
        hosts(request, |name, _| name == address)
    }
}

fn vms(request: &Request<'_>, wanted: impl Fn(&Vm) -> bool) -> Result<Reply, VimFault> {
    let vms = request.vcenter.inventory.vms().filter(|(_, vm)| wanted(vm)).map(|(id, _)| MoRef::from(id));
    answer(request, vms.collect())
}

fn hosts(request: &Request<'_>, wanted: impl Fn(&str, uuid::Uuid) -> bool) -> Result<Reply, VimFault> {
    let hosts = request.vcenter.inventory.hosts().filter(|(_, host)| wanted(&host.name, host.uuid));
    answer(request, hosts.map(|(id, _)| MoRef::from(id)).collect())
}

/// All results, or the first one, limited to the datacenter if one is given.
fn answer(request: &Request<'_>, mut objects: Vec<MoRef>) -> Result<Reply, VimFault> {
    request.this_service(Singleton::SearchIndex)?;
    if let Some(datacenter) = request.call.arguments.child("datacenter") {
        let datacenter = request.object(datacenter)?;
        let relations = &request.vcenter.wire.relations;
        objects.retain(|object| relations.descends(*object, datacenter));
    }
    if request.call.method.starts_with("FindAll") {
        Ok(Reply::Many(objects.into_iter().map(|object| Value::Ref(object.into())).collect()))
    } else {
        Ok(found(objects.first().copied()))
    }
}

fn found(object: Option<MoRef>) -> Reply {
    object.map_or(Reply::Nothing, |object| Reply::One(Value::Ref(object.into())))
}

/// A child in the sense of inventory paths: a VM is found in its folder or pool, not on its host.
pub(super) fn child_named(scope: &Scope<'_>, parent: MoRef, name: &str) -> Option<MoRef> {
    if matches!(parent, MoRef::Host(_)) {
        return None;
    }
    let is_named = |object: &MoRef| {
        !matches!(object, MoRef::Task(_))
            && matches!(scope.property(Target::Inventory(*object), "name"), Value::Simple { text, .. } if text == name)
    };
    scope.relations.members(parent).find(is_named)
}

/// These three characters are escaped in path names.
fn unescape(name: &str) -> String {
    name.replace("%2f", "/").replace("%2F", "/").replace("%5c", "\\").replace("%5C", "\\").replace("%25", "%")
}
