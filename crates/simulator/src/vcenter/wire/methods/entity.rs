//! Methods of all entities: names, folders, destruction; and tasks.

use super::search::child_named;
use super::{Request, task_reply, wrong};
use crate::vcenter::inventory::{Folder, FolderId, MoRef};
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::wire::properties::root_folder;
use crate::vcenter::wire::soap::Reply;
use crate::vcenter::wire::target::Target;
use crate::vcenter::wire::value::Value;

const NAME_CHARACTERS_MAX: usize = 80;
/// Deeper than any realistic folder tree; bounds every walk up the tree.
const FOLDER_DEPTH_MAX: usize = 32;
const FOLDERS_MAX: usize = 5_000;

pub(super) fn create_folder(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let parent = request.this_folder()?;
    let name = checked_name(request.text("name")?)?;
    let inventory = &request.vcenter.inventory;
    if depth(request, parent) >= FOLDER_DEPTH_MAX || inventory.folders().count() >= FOLDERS_MAX {
        return Err(wrong("name"));
    }
    let kind = inventory.folder(parent).ok_or(VimFault::ManagedObjectNotFound(parent.into()))?.kind;
    if let Some(object) = child_named(&request.scope(), parent.into(), &name) {
        return Err(VimFault::DuplicateName { name, object });
    }
    let id = request.vcenter.inventory.add_folder(Folder { name, kind, parent: Some(parent.into()) });
    Ok(Reply::One(Value::Ref(id.into())))
}

fn depth(request: &Request<'_>, folder: FolderId) -> usize {
    let relations = &request.vcenter.wire.relations;
    let up = |object: &MoRef| relations.owners(*object).first().copied();
    std::iter::successors(Some(MoRef::from(folder)), up).count()
}

pub(super) fn checked_name(name: &str) -> Result<String, VimFault> {
    let length = name.chars().count();
    if (1..=NAME_CHARACTERS_MAX).contains(&length) {
        Ok(name.to_owned())
    } else {
        Err(VimFault::InvalidName(name.chars().take(NAME_CHARACTERS_MAX).collect()))
    }
}

pub(super) fn rename(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let Target::Inventory(object) = request.this else { return request.no_such_method() };
    if matches!(object, MoRef::Task(_)) {
        return request.no_such_method();
    }
    let name = checked_name(request.text("newName")?)?;
    task_reply(request.vcenter.rename(object, &name, &request.actor, request.now))
}

/// VMs and empty folders can be destroyed; hosts, clusters and datacenters cannot.
pub(super) fn destroy(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    match request.this {
        Target::Inventory(MoRef::Vm(vm)) => task_reply(request.vcenter.destroy_vm(vm, &request.actor, request.now)),
        Target::Inventory(MoRef::Folder(folder)) => {
            let relations = &request.vcenter.wire.relations;
            let belongs_to_datacenter =
                relations.owners(folder.into()).iter().any(|owner| !matches!(owner, MoRef::Folder(_)));
            if belongs_to_datacenter || root_folder(&request.vcenter.inventory) == Some(folder) {
                return Err(VimFault::NotSupported);
            }
            if relations.members(folder).any(|member| !matches!(member, MoRef::Task(_))) {
                return Err(VimFault::InvalidState);
            }
            let name = request.vcenter.inventory.folder(folder).map_or_else(String::new, |folder| folder.name.clone());
            request.vcenter.inventory.remove_folder(folder);
            let task = request.vcenter.finished_task("Destroy_Task", folder.into(), name, &request.actor, request.now);
            task_reply(Ok(task))
        }
        Target::Inventory(MoRef::Task(_)) | Target::Singleton(_) | Target::Client(..) => request.no_such_method(),
        Target::Inventory(_) => Err(VimFault::NotSupported),
    }
}

pub(super) fn cancel_task(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let Target::Inventory(MoRef::Task(task)) = request.this else { return request.no_such_method() };
    request.vcenter.cancel_task(task, request.now)?;
    Ok(Reply::Nothing)
}
