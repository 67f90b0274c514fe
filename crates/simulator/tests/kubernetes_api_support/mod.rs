//! An in-process client of the embedded API: requests in, statuses and JSON out.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use simulator::fault::{Fault, FaultRule, Frequency, Side};
use simulator::kubernetes::api;
use simulator::{Clock, World, vcenter, world};
use tower::ServiceExt;

pub struct Client {
    pub world: Arc<World>,
    pub router: Router,
}

impl Client {
    #[must_use]
    pub fn new() -> Client {
        // No machines: the tests create the nodes they need.
        let vcenter = vcenter::Config { nodes: 0, ..vcenter::Config::default() };
        let world = World::new(&world::Config { vcenter, ..world::Config::default() }, Clock::virtual_time());
        Client { router: api::router(world.clone()), world }
    }

    pub async fn raw(&self, request: Request<Body>) -> (StatusCode, Vec<u8>) {
        let response = self.router.clone().oneshot(request).await.expect("the router never fails");
        let status = response.status();
        let body = response.into_body().collect().await.map(|body| body.to_bytes().to_vec());
        (status, body.unwrap_or_default())
    }

    pub async fn send(&self, method: Method, path: &str, content_type: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content_type);
        let (status, body) = self.raw(request.body(body).expect("a well-formed request")).await;
        (status.as_u16(), serde_json::from_slice(&body).unwrap_or_default())
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.send(Method::GET, path, "application/json", &Value::Null).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(Method::POST, path, "application/json", body).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(Method::PUT, path, "application/json", body).await
    }

    pub async fn patch(&self, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let format = if kind == "apply" { "yaml" } else { "json" };
        self.send(Method::PATCH, path, &format!("application/{kind}-patch+{format}"), body).await
    }

    pub async fn delete(&self, path: &str) -> (u16, Value) {
        self.send(Method::DELETE, path, "application/json", &Value::Null).await
    }

    /// The events of a watch that ends by its own timeout.
    pub async fn watch(&self, path: &str) -> Vec<Value> {
        let request = Request::builder().uri(path).body(Body::empty()).expect("a well-formed request");
        let (status, body) = self.raw(request).await;
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
        String::from_utf8(body).expect("text").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    pub fn add_fault(&self, methods: &str, fault: Fault, times: u32) {
        let rule = FaultRule::new(Side::Kubernetes, methods, fault, Frequency::Times(times));
        self.world.with(|core, _| core.faults.add(rule)).expect("few rules");
    }
}

#[must_use]
pub fn pod(name: &str, labels: &Value) -> Value {
    json!({ "metadata": { "name": name, "labels": labels }, "spec": { "containers": [{ "name": "c", "image": "i:1" }] } })
}

#[must_use]
pub fn config_map(name: &str, labels: &Value) -> Value {
    json!({ "metadata": { "name": name, "labels": labels }, "data": { "a": "1" } })
}

/// Events as `TYPE name`.
#[must_use]
pub fn summary(events: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events.iter().map(|e| format!("{} {}", text(&e["type"]), text(&e["object"]["metadata"]["name"]))).collect()
}
