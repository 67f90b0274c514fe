//! PropertyCollector and PropertyFilter.

use super::{Request, filter_specs, with_collector, wrong};
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::wire::collector::{Collector, Filter, FilterSpec, is_true, not_found, retrieve};
use crate::vcenter::wire::soap::Reply;
use crate::vcenter::wire::target::ClientObject;
use crate::vcenter::wire::value::Value;

impl Request<'_> {
    fn collector_mut(&mut self) -> Result<&mut Collector, VimFault> {
        let number = self.collector_number()?;
        self.session_mut()?.collectors.get_mut(&number).ok_or(VimFault::NotFound)
    }
}

fn contents(request: &Request<'_>) -> Result<Vec<Value>, VimFault> {
    request.collector_number()?;
    let specs = filter_specs(request.call, &request.session_key)?;
    retrieve(&request.scope(), &specs)
}

pub(super) fn retrieve_properties(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    contents(request).map(Reply::Many)
}

pub(super) fn retrieve_properties_ex(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let contents = contents(request)?;
    // An empty result is an empty answer.
    if contents.is_empty() {
        return Ok(Reply::Nothing);
    }
    let options = request.call.arguments.child("options");
    let max = match options.and_then(|options| options.child_text("maxObjects")) {
        None => None,
        Some(text) => {
            let max = text.parse::<i32>().ok().and_then(|max| usize::try_from(max).ok()).filter(|max| *max > 0);
            Some(max.ok_or_else(|| wrong("options.maxObjects"))?)
        }
    };
    Ok(Reply::One(request.collector_mut()?.first_page(contents, max)))
}

/// The next page, with the size of the first one.
pub(super) fn continue_retrieve(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let token = request.text("token")?.to_owned();
    let collector = request.collector_mut()?;
    let (rest, page) = collector.take_retrieval(&token)?;
    Ok(Reply::One(collector.first_page(rest, Some(page))))
}

pub(super) fn cancel_retrieve(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let token = request.text("token")?.to_owned();
    request.collector_mut()?.take_retrieval(&token)?;
    Ok(Reply::Nothing)
}

pub(super) fn create_filter(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let collector = request.collector_number()?;
    let spec = FilterSpec::read(request.argument("spec")?, &request.session_key)?;
    let partial_updates = is_true(request.call.arguments.child("partialUpdates"));
    let scope = request.scope();
    if let Some(gone) = spec.objects.iter().find(|object| !scope.exists(object.object)) {
        return Err(not_found(&scope, gone.object));
    }
    let filter = Filter::new(spec, partial_updates);
    let (cookie, now) = (request.cookie.clone(), request.now);
    with_collector(request.vcenter, &cookie, collector, now, |_, scope| filter.check(scope))??;
    let number = request.session_mut()?.number()?;
    request.collector_mut()?.filters.insert(number, filter);
    request.vcenter.wire.wake();
    Ok(request.made(ClientObject::PropertyFilter, number))
}

pub(super) fn destroy_filter(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let number = request.this_client(&[ClientObject::PropertyFilter])?;
    for collector in request.session_mut()?.collectors.values_mut() {
        collector.filters.remove(&number);
    }
    Ok(Reply::Nothing)
}

pub(super) fn create_collector(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    request.collector_number()?;
    let session = request.session_mut()?;
    let number = session.number()?;
    session.collectors.insert(number, Collector::default());
    Ok(request.made(ClientObject::PropertyCollector, number))
}

/// The default collector of a session cannot be destroyed.
pub(super) fn destroy_collector(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let number = request.this_client(&[ClientObject::PropertyCollector])?;
    request.session_mut()?.collectors.remove(&number);
    request.vcenter.wire.wake();
    Ok(Reply::Nothing)
}

pub(super) fn cancel_wait(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    request.collector_mut()?.cancels += 1;
    request.vcenter.wire.wake();
    Ok(Reply::Nothing)
}
