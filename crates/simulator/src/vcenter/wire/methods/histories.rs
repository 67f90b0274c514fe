//! EventManager, TaskManager and their history collectors.

use super::{Request, wrong};
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::wire::history::{self, History, HistoryFilter, HistoryKind, PAGE_MAX};
use crate::vcenter::wire::properties::event_value;
use crate::vcenter::wire::soap::Reply;
use crate::vcenter::wire::target::{ClientObject, Singleton};

const COLLECTORS: &[ClientObject] = &[ClientObject::EventHistoryCollector, ClientObject::TaskHistoryCollector];

/// The newest events that match the filter, oldest first, limited to one page.
pub(super) fn query_events(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    request.this_service(Singleton::EventManager)?;
    let filter = HistoryFilter::read(request.argument("filter")?, &request.session_key)?;
    let scope = request.scope();
    let limit = filter.max_count().unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let mut events: Vec<_> = history::events(&filter, scope.inventory, scope.relations).rev().take(limit).collect();
    events.reverse();
    Ok(Reply::Many(events.into_iter().map(|event| event_value(&scope, event)).collect()))
}

pub(super) fn create(request: &mut Request<'_>, collector: ClientObject) -> Result<Reply, VimFault> {
    let (manager, kind) = match collector {
        ClientObject::TaskHistoryCollector => (Singleton::TaskManager, HistoryKind::Tasks),
        _ => (Singleton::EventManager, HistoryKind::Events),
    };
    request.this_service(manager)?;
    let filter = HistoryFilter::read(request.argument("filter")?, &request.session_key)?;
    let session = request.session_mut()?;
    let number = session.number()?;
    session.histories.insert(number, History::new(kind, filter));
    Ok(request.made(collector, number))
}

pub(super) fn read_next(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    read(request, History::read_next)
}

pub(super) fn read_previous(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    read(request, History::read_previous)
}

type Reader =
    fn(&mut History, usize, &crate::vcenter::Inventory, &crate::vcenter::wire::relations::Relations) -> Vec<u64>;

fn read(request: &mut Request<'_>, reader: Reader) -> Result<Reply, VimFault> {
    let count = page_size(request)?;
    let (kind, numbers) = with_history(request, |history, inventory, relations| {
        (history.kind, reader(history, count, inventory, relations))
    })?;
    let wants_tasks = request.call.method.ends_with("Tasks");
    if wants_tasks != (kind == HistoryKind::Tasks) {
        return request.no_such_method();
    }
    Ok(Reply::Many(request.scope().history_items(kind, &numbers)))
}

pub(super) fn set_page_size(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let size = page_size(request)?;
    with_history(request, |history, _, _| history.page_size = size)?;
    // `latestPage` has changed.
    request.vcenter.wire.wake();
    Ok(Reply::Nothing)
}

pub(super) fn reset(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    with_history(request, History::reset)?;
    Ok(Reply::Nothing)
}

pub(super) fn rewind(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    with_history(request, |history, _, _| history.rewind())?;
    Ok(Reply::Nothing)
}

pub(super) fn destroy(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let number = request.this_client(COLLECTORS)?;
    request.session_mut()?.histories.remove(&number);
    Ok(Reply::Nothing)
}

fn page_size(request: &Request<'_>) -> Result<usize, VimFault> {
    let count: i32 = request.number("maxCount")?;
    let count = usize::try_from(count).ok().filter(|count| (1..=PAGE_MAX).contains(count));
    count.ok_or_else(|| wrong("maxCount"))
}

fn with_history<R>(
    request: &mut Request<'_>,
    act: impl FnOnce(&mut History, &crate::vcenter::Inventory, &crate::vcenter::wire::relations::Relations) -> R,
) -> Result<R, VimFault> {
    let number = request.this_client(COLLECTORS)?;
    let vcenter = &mut *request.vcenter;
    let session = vcenter.wire.sessions.get_mut(&request.cookie).ok_or(VimFault::NotAuthenticated)?;
    let history = session.histories.get_mut(&number).ok_or(VimFault::NotFound)?;
    Ok(act(history, &vcenter.inventory, &vcenter.wire.relations))
}
