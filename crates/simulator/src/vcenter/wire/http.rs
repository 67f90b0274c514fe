//! HTTP around SOAP: the routes, the session cookie, and the faults that apply to any request.
//!
//! A method's answer has status 200, its fault 500, as SOAP 1.1 requires; a body that is too large gets 413.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::methods::{self, Caller, Outcome};
use super::soap::{self, Call};
use super::value::Reference;
use super::wait;
use crate::fault::{Fault, Side};
use crate::fault_http;
use crate::vcenter::vim_fault::VimFault;
use crate::world::World;

/// Far larger than any client's request.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
const BODY_WITHIN: Duration = Duration::from_secs(60);
/// The user agent is cut to this length. Events and the session list show it.
const USER_AGENT_CHARS_MAX: usize = 256;
const COOKIE: &str = "vmware_soap_session";

const VERSIONS: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\" ?>\n<namespaces version=\"1.0\"><namespace>\
    <name>urn:vim25</name><version>8.0.3.0</version><priorVersions><version>8.0.2.0</version>\
    <version>8.0.1.0</version><version>8.0.0.0</version><version>7.0.3.0</version><version>6.7.3</version>\
    <version>6.5</version></priorVersions></namespace></namespaces>";

/// The SOAP API at `/sdk`, as a service for sockets or for a client in the same process.
pub fn router(world: Arc<World>) -> Router {
    Router::new()
        .route("/sdk", post(handle))
        .route("/sdk/", post(handle))
        .route("/sdk/vim25", post(handle))
        .route("/sdk/vimServiceVersions.xml", get(versions))
        .with_state(world)
}

async fn versions(State(world): State<Arc<World>>) -> Response {
    let fault = fault_http::before(&world, Side::Vcenter, "get /sdk/vimServiceVersions.xml").await;
    fault.refusal().unwrap_or_else(|| fault.answer(answer(StatusCode::OK, VERSIONS.to_owned(), None)))
}

async fn handle(State(world): State<Arc<World>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = match tokio::time::timeout(BODY_WITHIN, to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return answer(StatusCode::PAYLOAD_TOO_LARGE, String::new(), None),
        Err(_) => return answer(StatusCode::REQUEST_TIMEOUT, String::new(), None),
    };
    let call = match std::str::from_utf8(&body) {
        Ok(text) => soap::read(text),
        Err(_) => Err(soap::SoapError::NoBody),
    };
    let call = match call {
        Ok(call) => call,
        Err(error) => return answer(StatusCode::INTERNAL_SERVER_ERROR, soap::write_unreadable(&error), None),
    };
    let address = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip());
    let caller = Caller {
        cookie: cookie(&parts.headers),
        ip_address: address.map_or_else(|| "127.0.0.1".to_owned(), |ip| ip.to_string()),
        user_agent: header_text(&parts.headers, header::USER_AGENT)
            .unwrap_or_default()
            .chars()
            .take(USER_AGENT_CHARS_MAX)
            .collect(),
    };

    let fault = fault_http::before(&world, Side::Vcenter, &call.method).await;
    if let Some(refusal) = fault.refusal() {
        return refusal;
    }
    let response = match execute(&world, &caller, &call).await {
        Ok(outcome) => answer(StatusCode::OK, soap::write_reply(&call.method, &outcome.reply), outcome.cookie),
        Err(vim_fault) => {
            let on = named_object(&call);
            answer(StatusCode::INTERNAL_SERVER_ERROR, soap::write_fault(&vim_fault, on.as_ref()), None)
        }
    };
    fault.answer(response)
}

async fn execute(world: &Arc<World>, caller: &Caller, call: &Call) -> Result<Outcome, VimFault> {
    let slow = world.with(|core, now| {
        let mut strike = |applies: fn(&Fault) -> bool| core.faults.strike(now, Side::Vcenter, &call.method, applies);
        // Without a session there is none to end. The fault remains for a caller that has one.
        if let Some(cookie) = caller.cookie.as_ref().filter(|cookie| core.vcenter.wire.sessions.contains_key(*cookie))
            && strike(|fault| matches!(fault, Fault::SessionExpired)).is_some()
        {
            core.vcenter.wire.end(cookie);
        }
        if !matches!(call.method.as_str(), "WaitForUpdatesEx" | "RetrievePropertiesEx") {
            return None;
        }
        match strike(|fault| matches!(fault, Fault::SlowCollector { .. })) {
            Some(Fault::SlowCollector { millis }) => Some(Duration::from_millis(millis)),
            _ => None,
        }
    });
    let outcome = match call.method.as_str() {
        "WaitForUpdatesEx" | "WaitForUpdates" | "CheckForUpdates" => {
            wait::wait(world, caller, call).await.map(|reply| Outcome { reply, cookie: None })
        }
        _ => world.with(|core, now| {
            let outcome = methods::call(&mut core.vcenter, now, caller, call)?;
            // Some tasks complete immediately, so they cannot fail halfway.
            if let Some(task) = methods::started_task(&outcome.reply).filter(|task| core.vcenter.is_under_way(*task))
                && core
                    .faults
                    .strike(now, Side::Vcenter, &call.method, |fault| matches!(fault, Fault::TaskFailsHalfway))
                    .is_some()
            {
                core.vcenter.fail_task_halfway(task);
            }
            Ok(outcome)
        }),
    };
    if let Some(wait) = slow {
        tokio::time::sleep(wait).await;
    }
    outcome
}

/// The object that the method was called on, if a fault can name it.
fn named_object(call: &Call) -> Option<Reference> {
    let this = call.arguments.child("_this")?;
    let target = super::target::Target::parse(this.reference_type.as_deref()?, this.text.trim(), "")?;
    Some(target.reference(""))
}

fn header_text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn cookie(headers: &HeaderMap) -> Option<String> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .find_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            (name.trim() == COOKIE).then(|| value.trim().trim_matches('"').to_owned())
        })
}

fn answer(status: StatusCode, text: String, cookie: Option<String>) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/xml; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Some(cookie) = cookie
        && let Ok(value) = HeaderValue::from_str(&format!("{COOKIE}={cookie}; Path=/; HttpOnly"))
    {
        headers.insert(header::SET_COOKIE, value);
    }
    response
}
