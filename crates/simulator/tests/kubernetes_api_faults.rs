//! Every fault of the embedded Kubernetes API from a client's view.

#[path = "kubernetes_api_support/mod.rs"]
mod support;

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use futures::StreamExt;
use http::{Request, StatusCode, header};
use serde_json::{Value, json};
use simulator::fault::Fault;
use support::{Client, config_map, summary};
use tokio::time::Instant;
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=100";

async fn with_maps(names: &[&str]) -> Client {
    let client = Client::new();
    for name in names {
        assert_eq!(client.post(MAPS, &config_map(name, &json!({}))).await.0, 201);
    }
    client
}

async fn open(client: &Client, request: Request<Body>) -> (StatusCode, Option<String>, BodyDataStream) {
    let response = client.router.clone().oneshot(request).await.unwrap();
    let retry_after = response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().unwrap().to_owned());
    (response.status(), retry_after, response.into_body().into_data_stream())
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

fn create(name: &str) -> Request<Body> {
    let body = Body::from(config_map(name, &json!({})).to_string());
    Request::post(MAPS).header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
}

/// The next event of a watch and the seconds until it arrived; `None` if the stream is cut.
async fn next(stream: &mut BodyDataStream) -> (Option<String>, u64) {
    let started = Instant::now();
    let event = match stream.next().await.expect("the watch has not run out") {
        Ok(line) => Some(summary(&[serde_json::from_slice::<Value>(&line).unwrap()]).remove(0)),
        Err(_) => None,
    };
    (event, started.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn latency_delays_any_request() {
    let client = Client::new();
    for (method, path) in
        [("list configmaps", MAPS), ("get /version", "/version"), ("get /healthz", "/healthz"), ("get /apis", "/apis")]
    {
        client.add_fault(method, Fault::Latency { millis: 4_000 }, 1);
        for seconds in [4, 0] {
            let started = Instant::now();
            assert_eq!(client.raw(get(path)).await.0, StatusCode::OK);
            assert_eq!(started.elapsed().as_secs(), seconds, "{method}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_status_has_no_other_effect() {
    let client = Client::new();
    for status in [500, 503, 429] {
        client.add_fault("create configmaps", Fault::HttpStatus { status }, 1);
        let (found, retry_after, _) = open(&client, create("a")).await;
        assert_eq!(found.as_u16(), status);
        assert_eq!(retry_after.as_deref(), (status == 429).then_some("1"));
        assert_eq!(client.get(&format!("{MAPS}/a")).await.0, 404);
    }
    client.add_fault("create selfsubjectaccessreviews", Fault::HttpStatus { status: 503 }, 1);
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(client.post(review, &json!({ "spec": {} })).await.0, 503);
    assert_eq!(client.post(review, &json!({ "spec": {} })).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_connection_has_an_effect() {
    let client = Client::new();
    client.add_fault("create configmaps", Fault::DropConnection, 1);
    let (_, _, mut body) = open(&client, create("a")).await;
    assert!(body.next().await.expect("an end").is_err());
    assert_eq!(client.get(&format!("{MAPS}/a")).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn events_arrive_twice_or_in_another_order() {
    let client = with_maps(&["a", "b"]).await;
    client.add_fault("watch configmaps", Fault::DuplicateEvents, 1);
    assert_eq!(summary(&client.watch(WATCH).await), ["ADDED a", "ADDED a", "ADDED b", "ADDED b"]);
    client.add_fault("watch *", Fault::ReorderedEvents, 1);
    assert_eq!(summary(&client.watch(WATCH).await), ["ADDED b", "ADDED a"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_gets_gone() {
    let client = with_maps(&["a"]).await;
    client.add_fault("watch *", Fault::WatchGone, 1);
    let events = client.watch(WATCH).await;
    assert_eq!((&events[0]["type"], &events[0]["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(events.len(), 1);
    assert_eq!(summary(&client.watch(WATCH).await), ["ADDED a"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_cut_after_the_configured_events() {
    for after_events in 0..=3 {
        let client = with_maps(&["a", "b"]).await;
        client.add_fault("watch *", Fault::WatchCut { after_events }, 1);
        let (_, _, mut stream) = open(&client, get(WATCH)).await;
        let mut sent = 0;
        while let (Some(_), _) = next(&mut stream).await {
            sent += 1;
            if sent == 2 && after_events == 3 {
                client.post(MAPS, &config_map("c", &json!({}))).await;
            }
        }
        assert_eq!(sent, after_events);
        assert!(stream.next().await.is_none(), "nothing follows the cut");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_watch_is_silent_and_then_continues() {
    let client = with_maps(&["a"]).await;
    let (_, _, mut stream) = open(&client, get(WATCH)).await;
    assert_eq!(next(&mut stream).await, (Some("ADDED a".to_owned()), 0));
    client.add_fault("watch *", Fault::WatchStale { millis: 30_000 }, 1);
    client.post(MAPS, &config_map("b", &json!({}))).await;
    assert_eq!(next(&mut stream).await, (Some("ADDED b".to_owned()), 30), "open watches are affected too");
    client.post(MAPS, &config_map("c", &json!({}))).await;
    assert_eq!(next(&mut stream).await, (Some("ADDED c".to_owned()), 0));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(stream.next().await.is_none(), "the timeout has passed");
}
