//! HostSystem.

use super::{Request, task_reply};
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::wire::soap::Reply;

pub(super) fn enter_maintenance(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    let host = request.this_host()?;
    let timeout_s: i32 = request.number("timeout")?;
    task_reply(request.vcenter.enter_maintenance(host, timeout_s, &request.actor, request.now))
}
