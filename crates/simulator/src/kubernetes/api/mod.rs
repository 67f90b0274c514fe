//! The Kubernetes API over HTTP.
//!
//! In: HTTP requests, from a socket or in process (the router is a tower service). Out: the answers of a
//! kube-apiserver, for the kinds of the table. The only state of this layer is the number of open watches: it parses
//! the request, calls the world once, and writes the answer.
//!
//! Invariants: every request gets an answer with a status in bounded time; a body is at most [`body::BYTES_MAX`] long;
//! the world is not locked while waiting for a client.

mod admission;
pub mod binding;
mod body;
mod bootstrap;
mod delete;
mod discovery;
pub mod eviction;
mod fields;
mod list;
mod media;
mod new_event;
mod openapi;
mod patch;
mod path;
mod protobuf;
mod query;
mod render;
mod scale;
pub mod selector;
mod shape;
mod table;
mod validation;
mod watch;
mod watch_faults;
mod write;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderValue, Method, StatusCode, header, request};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::error::{ApiError, FieldError};
use super::kinds::KindId;
use crate::fault::Side;
use crate::fault_http;
use crate::world::World;
use list::{Page, Selection};
use patch::PatchType;
use path::{Route, Target};
use query::Query;
use render::{Writer, error_response, json_response, success};
use watch::{WatchOptions, Watcher};
use watch_faults::WatchFaults;
use write::WriteOptions;

pub use bootstrap::bootstrap;

/// How many watches may be open at the same time.
const WATCHES_MAX: usize = 5_000;

#[derive(Clone)]
struct Api {
    world: Arc<World>,
    watches: Arc<Semaphore>,
}

/// The API as a tower service.
pub fn router(world: Arc<World>) -> Router {
    Router::new().fallback(serve).with_state(Api { world, watches: Arc::new(Semaphore::new(WATCHES_MAX)) })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    fn of(method: &Method, target: &Target, query: &Query) -> Result<Verb, ApiError> {
        let in_scope = target.namespace.is_some() || !target.kind.kind().namespaced;
        let verb = match (method.as_str(), &target.name, target.subresource.as_deref()) {
            ("GET" | "HEAD", _, None) if query.flag("watch") => Verb::Watch,
            ("GET" | "HEAD", None, _) => Verb::List,
            ("POST", None, _) if in_scope => Verb::Create,
            ("DELETE", None, _) if in_scope => Verb::DeleteCollection,
            ("POST", Some(_), Some("binding" | "eviction")) => Verb::Create,
            (_, Some(_), Some("binding" | "eviction")) => return Err(ApiError::MethodNotAllowed),
            ("GET" | "HEAD", Some(_), _) => Verb::Get,
            ("PUT", Some(_), _) => Verb::Update,
            ("PATCH", Some(_), _) => Verb::Patch,
            ("DELETE", Some(_), None) => Verb::Delete,
            _ => return Err(ApiError::MethodNotAllowed),
        };
        Ok(verb)
    }
}

async fn serve(State(api): State<Api>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    match path::parse(parts.uri.path()) {
        Route::Resource(target) => match Verb::of(&parts.method, &target, &query) {
            Ok(verb) => with_faults(&api, &parts, body, &target, verb, &query).await,
            Err(error) => error_response(&error),
        },
        Route::Bindings { namespace } => {
            let name = None;
            let subresource = Some("binding".to_owned());
            let target =
                Target { kind: KindId::POD, namespace: Some(namespace), name, subresource, as_new_event: false };
            if parts.method == Method::POST {
                with_faults(&api, &parts, body, &target, Verb::Create, &query).await
            } else {
                error_response(&ApiError::MethodNotAllowed)
            }
        }
        route => {
            let method = match &route {
                Route::Review { resource, .. } => format!("create {resource}"),
                _ => format!("{} {}", parts.method.as_str().to_lowercase(), parts.uri.path()),
            };
            let fault = fault_http::before(&api.world, Side::Kubernetes, &method).await;
            match fault.refusal() {
                Some(refusal) => refusal,
                None => fault.answer(about_itself(&parts, body, route).await),
            }
        }
    }
}

/// Requests that are not for objects.
async fn about_itself(parts: &request::Parts, body: Body, route: Route) -> Response {
    match route {
        Route::Review { api_version, resource } => review(parts, body, &api_version, &resource).await,
        Route::NoResource => error_response(&ApiError::NoSuchResource),
        Route::Nothing => plain(StatusCode::NOT_FOUND, "404 page not found\n"),
        route if parts.method == Method::GET || parts.method == Method::HEAD => describe(parts, &route),
        _ => error_response(&ApiError::MethodNotAllowed),
    }
}

/// Answers for discovery and other information about the API.
fn describe(parts: &request::Parts, route: &Route) -> Response {
    let aggregated = media::wants_aggregated_discovery(&parts.headers);
    let document = match route {
        Route::Health => return plain(StatusCode::OK, "ok"),
        Route::CoreVersions | Route::Groups if aggregated => {
            let document = discovery::aggregated(*route == Route::CoreVersions);
            let mut response = json_response(StatusCode::OK, document.to_string());
            response.headers_mut().insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
            );
            return response;
        }
        Route::Version => discovery::version(),
        Route::CoreVersions => discovery::core_versions(),
        Route::Groups => discovery::groups(),
        Route::Group(name) => discovery::group(name),
        Route::Resources { group, version } => discovery::resources(group, version),
        Route::OpenApiIndex => openapi::index(),
        Route::OpenApi { group, version } => openapi::document(group, version),
        _ => return error_response(&ApiError::NoSuchResource),
    };
    json_response(StatusCode::OK, document.to_string())
}

/// Every user is allowed to do everything.
async fn review(parts: &request::Parts, body: Body, api_version: &str, resource: &str) -> Response {
    if parts.method != Method::POST {
        return error_response(&ApiError::MethodNotAllowed);
    }
    let read = match body::read(body).await {
        Ok(bytes) => body::decode(&bytes, &media::content_type(&parts.headers), "Review"),
        Err(error) => Err(error),
    };
    let mut review = match read {
        Ok(review) if review.is_object() => review,
        Ok(_) => return error_response(&ApiError::BadRequest("the body is not an object".to_owned())),
        Err(error) => return error_response(&error),
    };
    review["apiVersion"] = json!(api_version);
    review["status"] = match resource {
        "selfsubjectreviews" => {
            json!({ "userInfo": { "username": "admin", "groups": ["system:masters", "system:authenticated"] } })
        }
        "selfsubjectrulesreviews" => json!({
            "incomplete": false, "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
            "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
        }),
        _ => json!({ "allowed": true }),
    };
    json_response(StatusCode::CREATED, review.to_string())
}

async fn with_faults(
    api: &Api,
    parts: &request::Parts,
    body: Body,
    target: &Target,
    verb: Verb,
    query: &Query,
) -> Response {
    let method = format!("{} {}", verb.name(), target.resource());
    let fault = fault_http::before(&api.world, Side::Kubernetes, &method).await;
    if let Some(refusal) = fault.refusal() {
        return refusal;
    }
    let answer = answer(api, parts, body, target, verb, query, &method).await;
    fault.answer(answer.unwrap_or_else(|error| error_response(&error)))
}

async fn answer(
    api: &Api,
    parts: &request::Parts,
    body: Body,
    target: &Target,
    verb: Verb,
    query: &Query,
    method: &str,
) -> Result<Response, ApiError> {
    let writer = Writer::new(target, media::rendering(&parts.headers)?, query)?;
    match verb {
        Verb::Get | Verb::List => get(api, target, query, &writer),
        Verb::Watch => open_watch(api, target, query, writer, method),
        Verb::Create | Verb::Update | Verb::Patch => {
            let content_type = media::content_type(&parts.headers);
            let bytes = body::read(body).await?;
            write_answer(api, target, verb, query, &writer, &content_type, &bytes)
        }
        Verb::Delete | Verb::DeleteCollection => {
            let content_type = media::content_type(&parts.headers);
            let bytes = body::read(body).await?;
            let body =
                if bytes.is_empty() { Value::Null } else { body::decode(&bytes, &content_type, "DeleteOptions")? };
            delete_answer(api, target, query, &writer, &body)
        }
    }
}

fn get(api: &Api, target: &Target, query: &Query, writer: &Writer) -> Result<Response, ApiError> {
    if target.name.is_none() {
        let selection = Selection::read(target, query)?;
        let (page, now) = api.world.with(|core, now| (list::page(core.kubernetes.store(), &selection, query), now));
        return Ok(json_response(StatusCode::OK, writer.list(&page?, now)));
    }
    let (found, now) = api.world.with(|core, now| {
        let store = core.kubernetes.store();
        let found = match target.subresource.as_deref() {
            Some("scale") => scale::get(store, target).map(Arc::new).map_err(Some),
            _ => write::existing(store, target).ok_or(None),
        };
        (found, now)
    });
    let object = found.map_err(|error| error.unwrap_or_else(|| write::not_found(target)))?;
    if target.subresource.as_deref() == Some("scale") {
        return Ok(json_response(StatusCode::OK, object.to_string()));
    }
    Ok(json_response(StatusCode::OK, writer.object(&object, now)))
}

fn open_watch(api: &Api, target: &Target, query: &Query, writer: Writer, method: &str) -> Result<Response, ApiError> {
    let selection = Selection::read(target, query)?;
    let version = api.world.with(|core, _| core.kubernetes.version());
    let options = WatchOptions::read(query, version)?;
    let permit = api
        .watches
        .clone()
        .try_acquire_owned()
        .map_err(|_| ApiError::TooManyRequests("too many open watches, please try again later".to_owned()))?;
    let watcher = Watcher::new(api.world.clone(), selection, writer, options, WatchFaults::new(method), permit);
    Ok(json_response(StatusCode::OK, Body::from_stream(watcher.stream())))
}

fn write_answer(
    api: &Api,
    target: &Target,
    verb: Verb,
    query: &Query,
    writer: &Writer,
    content_type: &str,
    bytes: &[u8],
) -> Result<Response, ApiError> {
    let (patch_type, options_kind) = match verb {
        Verb::Patch => (Some(PatchType::of_content_type(content_type)?), "PatchOptions"),
        Verb::Update => (None, "UpdateOptions"),
        _ => (None, "CreateOptions"),
    };
    let kind = target.kind.kind().kind;
    let body = if patch_type.is_none() && content_type.ends_with("patch+json") {
        return Err(ApiError::UnsupportedMediaType("415: Unsupported Media Type".to_owned()));
    } else {
        body::decode(bytes, content_type, kind)?
    };
    let options = WriteOptions {
        dry_run: query.dry_run(options_kind)?,
        field_manager: query.text("fieldManager"),
        force: query.flag("force"),
        strict: query.text("fieldValidation") == Some("Strict"),
    };
    if let (Some(sub @ ("binding" | "eviction")), Verb::Create) = (target.subresource.as_deref(), verb) {
        act_on_pod(api, target, sub, query, &body, options.dry_run)?;
        return Ok(json_response(StatusCode::CREATED, success(Some(201), None).to_string()));
    }
    if target.subresource.as_deref() == Some("scale") {
        let scale = api.world.with(|core, _| {
            let store = core.kubernetes.store_mut();
            match patch_type {
                Some(patch_type) => scale::patch(store, target, patch_type, body, options.dry_run),
                None => scale::replace(store, target, &body, options.dry_run),
            }
        })?;
        return Ok(json_response(StatusCode::OK, scale.to_string()));
    }
    let (written, now) = api.world.with(|core, now| {
        let store = core.kubernetes.store_mut();
        let written = match (verb, patch_type) {
            (_, Some(patch_type)) => write::patch(store, target, patch_type, body, options, now),
            (Verb::Update, None) => write::replace(store, target, body, options, now),
            _ => write::create(store, target, body, options, now),
        };
        (written, now)
    });
    let written = written?;
    let status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_response(status, writer.object(&written.object, now)))
}

fn act_on_pod(
    api: &Api,
    target: &Target,
    subresource: &str,
    query: &Query,
    body: &Value,
    dry_run: bool,
) -> Result<(), ApiError> {
    let in_body = body["metadata"]["name"].as_str().unwrap_or_default();
    // `POST .../bindings` has the pod's name only in its body.
    let pod = target.name.as_deref().unwrap_or(in_body);
    let namespace = target.store_namespace();
    if subresource == "binding" {
        return api
            .world
            .with(|core, now| binding::bind(core.kubernetes.store_mut(), namespace, pod, body, dry_run, now));
    }
    if in_body != pod {
        return Err(ApiError::BadRequest("name in URL does not match name in Eviction object".to_owned()));
    }
    let (options, dry_delete) = delete::options(query, &body["deleteOptions"])?;
    let dry_run = dry_run || dry_delete;
    api.world.with(|core, now| eviction::evict(core.kubernetes.store_mut(), namespace, pod, &options, dry_run, now))
}

fn delete_answer(
    api: &Api,
    target: &Target,
    query: &Query,
    writer: &Writer,
    body: &Value,
) -> Result<Response, ApiError> {
    let (options, dry_run) = delete::options(query, body)?;
    if target.name.is_some() {
        let (shown, now) =
            api.world.with(|core, now| (delete::one(core.kubernetes.store_mut(), target, &options, dry_run, now), now));
        let shown = shown?;
        let text = if shown["kind"] == "Status" { shown.to_string() } else { writer.object(&shown, now) };
        return Ok(json_response(StatusCode::OK, text));
    }
    let selection = Selection::read(target, query)?;
    let (deleted, version, now) = api.world.with(|core, now| {
        let store = core.kubernetes.store_mut();
        let deleted = delete::selected(store, &selection, &options, dry_run, now);
        (deleted, store.version(), now)
    });
    let page = Page { version, items: deleted?, continue_token: None, remaining: None };
    Ok(json_response(StatusCode::OK, writer.list(&page, now)))
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
