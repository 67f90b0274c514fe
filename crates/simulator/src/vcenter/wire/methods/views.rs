//! ViewManager, ContainerView and ListView.

use std::collections::BTreeSet;

use super::{Request, wrong};
use crate::vcenter::inventory::MoRef;
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::wire::collector::is_true;
use crate::vcenter::wire::soap::Reply;
use crate::vcenter::wire::target::{ClientObject, Singleton, Target};
use crate::vcenter::wire::value::Value;
use crate::vcenter::wire::view::{ContainerView, View};

/// More than there are types.
const TYPES_MAX: usize = 100;

pub(super) fn create_container_view(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    request.this_service(Singleton::ViewManager)?;
    let container = request.object(request.argument("container")?)?;
    if matches!(container, MoRef::Vm(_) | MoRef::Task(_) | MoRef::Datastore(_) | MoRef::Network(_)) {
        return Err(wrong("container"));
    }
    let types = request.call.arguments.children_named("type").map(|child| child.text.trim().to_owned());
    let types: Vec<String> = types.take(TYPES_MAX + 1).collect();
    if types.len() > TYPES_MAX {
        return Err(wrong("type"));
    }
    let recursive = is_true(request.call.arguments.child("recursive"));
    let vcenter = &request.vcenter;
    let view = ContainerView::new(container, types, recursive, &vcenter.inventory, &vcenter.wire.relations);
    keep(request, ClientObject::ContainerView, View::Container(view))
}

pub(super) fn create_list_view(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    request.this_service(Singleton::ViewManager)?;
    let (members, _) = objects(request, "obj");
    keep(request, ClientObject::ListView, View::List { members, stamp: 0 })
}

fn keep(request: &mut Request<'_>, kind: ClientObject, view: View) -> Result<Reply, VimFault> {
    let session = request.session_mut()?;
    let number = session.number()?;
    session.views.insert(number, view);
    Ok(request.made(kind, number))
}

/// The objects in the arguments without duplicates, and the references that cannot be resolved.
fn objects(request: &Request<'_>, name: &str) -> (Vec<Target>, Vec<Value>) {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let mut unresolved = Vec::new();
    for element in request.call.arguments.children_named(name) {
        match request.target(element) {
            Ok(target) if !seen.insert(target) => (),
            Ok(target) => found.push(target),
            Err(_) => unresolved.push(Value::Foreign {
                type_name: element.reference_type.clone().unwrap_or_default(),
                value: element.text.trim().to_owned(),
            }),
        }
    }
    (found, unresolved)
}

pub(super) fn modify_list_view(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let (add, unresolved) = objects(request, "add");
    let removed = request.call.arguments.children_named("remove");
    let removed: BTreeSet<Target> =
        removed.filter_map(|element| Target::read(element, &request.session_key).ok()).collect();
    change_list(request, unresolved, |members| {
        members.retain(|member| !removed.contains(member));
        let there: BTreeSet<Target> = members.iter().copied().collect();
        members.extend(add.into_iter().filter(|target| !there.contains(target)));
    })
}

pub(super) fn reset_list_view(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let (new, unresolved) = objects(request, "obj");
    change_list(request, unresolved, |members| *members = new)
}

fn change_list(
    request: &mut Request<'_>,
    unresolved: Vec<Value>,
    change: impl FnOnce(&mut Vec<Target>),
) -> Result<Reply, VimFault> {
    let number = request.this_client(&[ClientObject::ListView])?;
    if let Some(View::List { members, stamp }) = request.session_mut()?.views.get_mut(&number) {
        change(members);
        *stamp += 1;
    }
    // A filter may follow the view, and its client may be waiting.
    request.vcenter.wire.wake();
    Ok(Reply::Many(unresolved))
}

pub(super) fn destroy_view(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let number = request.this_client(&[ClientObject::ContainerView, ClientObject::ListView])?;
    request.session_mut()?.views.remove(&number);
    request.vcenter.wire.wake();
    Ok(Reply::Nothing)
}
