//! SessionManager and OptionManager.

use super::{Caller, Outcome, Request, wrong};
use crate::clock::SimTime;
use crate::vcenter::Vcenter;
use crate::vcenter::inventory::Event;
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::wire::properties::{option_value, options, user_session};
use crate::vcenter::wire::soap::{Call, Reply};
use crate::vcenter::wire::target::Singleton;
use crate::vcenter::wire::value::Value;

pub(super) fn login(vcenter: &mut Vcenter, now: SimTime, caller: &Caller, call: &Call) -> Result<Outcome, VimFault> {
    let user = call.arguments.child_text("userName").ok_or_else(|| wrong("userName"))?;
    let password = call.arguments.child("password").map(|element| element.text.as_str()).unwrap_or_default();
    if user != vcenter.config.username || password != vcenter.config.password {
        return Err(VimFault::InvalidLogin);
    }
    if let Some(cookie) = &caller.cookie {
        vcenter.wire.end(cookie);
    }
    let cookie = vcenter.wire.login(user, &caller.ip_address, &caller.user_agent, now)?;
    let Caller { ip_address, user_agent, .. } = caller;
    let message = format!("User {user}@{ip_address} logged in as {user_agent}");
    post(vcenter, "UserLoginSessionEvent", user, now, message);
    let session = vcenter.wire.sessions.get(&cookie).ok_or(VimFault::NotAuthenticated)?;
    Ok(Outcome { reply: Reply::One(user_session(session)), cookie: Some(cookie) })
}

pub(super) fn logout(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    request.this_service(Singleton::SessionManager)?;
    request.vcenter.wire.end(&request.cookie);
    let user = request.actor.user.clone();
    let message = format!("User {user} logged out");
    post(request.vcenter, "UserLogoutSessionEvent", &user, request.now, message);
    Ok(Reply::Nothing)
}

pub(super) fn is_active(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    request.this_service(Singleton::SessionManager)?;
    let (key, user) = (request.text("sessionID")?, request.text("userName")?);
    let active = request.vcenter.wire.sessions.values().any(|session| session.key == key && session.user == user);
    Ok(Reply::One(Value::bool(active)))
}

pub(super) fn terminate(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    request.this_service(Singleton::SessionManager)?;
    let mut cookies = Vec::new();
    for key in request.call.arguments.children_named("sessionId") {
        let key = key.text.trim();
        // A client ends its own session with Logout.
        if key == request.session_key {
            return Err(wrong("sessionId"));
        }
        cookies.push(request.vcenter.wire.cookie_of(key).ok_or(VimFault::NotFound)?);
    }
    for cookie in cookies {
        request.vcenter.wire.end(&cookie);
    }
    Ok(Reply::Nothing)
}

/// A name that ends in a dot selects all options below it; an empty name selects all.
pub(super) fn query_options(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    request.this_service(Singleton::OptionManager)?;
    let wanted = request.call.arguments.child_text("name").unwrap_or_default();
    let matches = |key: &str| wanted.is_empty() || key == wanted || (wanted.ends_with('.') && key.starts_with(wanted));
    let found = options(&request.scope()).into_iter().filter(|(key, _)| matches(key));
    let found: Vec<Value> = found.map(option_value).collect();
    if found.is_empty() { Err(VimFault::InvalidName(wanted.to_owned())) } else { Ok(Reply::Many(found)) }
}

fn post(vcenter: &mut Vcenter, type_name: &'static str, user: &str, now: SimTime, message: String) {
    vcenter.inventory.post_event(Event {
        key: 0,
        type_name,
        created_at: now,
        user: user.to_owned(),
        message,
        datacenter: None,
        cluster: None,
        host: None,
        source_host: None,
        vm: None,
    });
}
