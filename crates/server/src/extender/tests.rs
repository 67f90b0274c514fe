//! The routes with valid and invalid requests.

use axum::http::Request;
use engine::extender::{BindExecutor, ExtenderSettings};
use engine::ports::{Binder, Binding, EventRecord, EventSink, PodLookup, PortError};
use engine::runtime::{Lease, Runtime, RuntimeSettings};
use futures::future::BoxFuture;
use model::World;
use model::event::{Event, NodeFacts, Source};
use model::scheduling::{NodeSchedulingFacts, PodSchedulingFacts};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;

/// Reads only the pod's metadata.
fn read_pod(json: &str) -> Result<PodFacts, String> {
    let pod: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let text = |name: &str| Some(pod["metadata"][name].as_str()?.to_owned());
    let missing = || "it has no metadata".to_owned();
    Ok(PodFacts {
        name: text("name").ok_or_else(missing)?,
        namespace: text("namespace").ok_or_else(missing)?,
        uid: text("uid").ok_or_else(missing)?,
        ..PodFacts::default()
    })
}

/// Ports without an API server: every binding succeeds.
struct Nowhere;

impl Binder for Nowhere {
    fn bind<'a>(&'a self, _: &'a Binding) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }
}

impl PodLookup for Nowhere {
    fn read<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<Option<PodFacts>, PortError>> {
        Box::pin(async { Ok(None) })
    }
}

impl EventSink for Nowhere {
    fn post<'a>(&'a self, _: &'a EventRecord) -> BoxFuture<'a, Result<(), PortError>> {
        Box::pin(async { Ok(()) })
    }
}

fn routes(in_sync: bool) -> ExtenderRoutes {
    let mut world = World::default();
    for source in [Source::Nodes, Source::Pods, Source::Namespaces] {
        world.apply(Event::RelistBegan(source));
        if source == Source::Nodes {
            for name in ["n1", "n2"] {
                let name = name.to_owned();
                let scheduling = NodeSchedulingFacts { allowed_pods: 10, ..NodeSchedulingFacts::default() };
                let scheduling = Some(Arc::new(scheduling));
                world.apply(Event::NodeApplied(NodeFacts { name, ready: true, scheduling, ..NodeFacts::default() }));
            }
        }
        if source == Source::Pods {
            let scheduler_name = engine::extender::DEFAULT_SCHEDULER.to_owned();
            let scheduling = PodSchedulingFacts { scheduler_name, ..PodSchedulingFacts::default() };
            let known = read_pod(&pod().to_string()).expect("a pod");
            world.apply(Event::PodApplied(PodFacts { scheduling: Some(Arc::new(scheduling)), ..known }));
        }
        if in_sync {
            world.apply(Event::RelistEnded(source));
        }
    }
    let mut runtime = Runtime::new(world, &RuntimeSettings::default(), Arc::new(Nowhere));
    let settings = ExtenderSettings::default();
    let executor = BindExecutor { binder: Arc::new(Nowhere), pods: Arc::new(Nowhere) };
    let (extender, controller) = Extender::new(runtime.world(), runtime.events(), runtime.waker(), settings);
    runtime.add(controller, Arc::new(executor), Lease::always());
    tokio::spawn(async move {
        // The runtime runs as long as the sender exists.
        let (_events, received) = tokio::sync::mpsc::channel(1);
        runtime.run(received).await;
    });
    ExtenderRoutes::new(extender, Arc::new(read_pod))
}

async fn post_to(routes: &ExtenderRoutes, path: &str, kind: &str, body: impl Into<Body>) -> (u16, String) {
    let request = Request::post(path).header("content-type", kind).body(body.into()).expect("a request");
    let response = router(routes.clone()).oneshot(request).await.expect("an answer");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, String::from_utf8(body.to_vec()).expect("text"))
}

async fn ask(routes: &ExtenderRoutes, path: &str, body: impl Into<Body>) -> (u16, Value) {
    let (status, text) = post_to(routes, path, "application/json", body).await;
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

fn pod() -> Value {
    json!({ "metadata": { "name": "p", "namespace": "ns", "uid": "u" } })
}

#[tokio::test]
async fn the_verbs_accept_names_and_whole_nodes() {
    let routes = routes(true);
    let names = json!({ "Pod": pod(), "Nodes": null, "NodeNames": ["n1", "n9"] }).to_string();
    for path in ["/filter", "/v1/filter"] {
        let (status, answer) = ask(&routes, path, names.clone()).await;
        assert_eq!((status, &answer["NodeNames"], &answer["Error"]), (200, &json!(["n1"]), &json!("")), "{answer}");
        assert_eq!(answer["FailedNodes"], json!({ "n9": "node(s) were not known to Bridger yet" }));
    }
    let node = json!({ "metadata": { "name": "n2" }, "status": { "any": ["thing", 1.5e300] } });
    let whole = json!({ "Pod": pod(), "Nodes": { "items": [node] }, "NodeNames": null }).to_string();
    let (_, answer) = ask(&routes, "/filter", whole.clone()).await;
    assert_eq!(answer["Nodes"]["items"], json!([node]));
    assert_eq!(answer["NodeNames"], Value::Null);
    let (_, answer) = ask(&routes, "/prioritize", whole).await;
    assert_eq!(answer, json!([{ "Host": "n2", "Score": 0 }]));
    let binding = json!({ "PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n1" }).to_string();
    assert_eq!(ask(&routes, "/bind", binding).await, (200, json!({ "Error": "" })));
    let other = json!({ "PodName": "q", "PodNamespace": "ns", "PodUID": "other", "Node": "n1" }).to_string();
    assert_eq!(ask(&routes, "/bind", other).await.1["Error"], "pod ns/q is not known to Bridger");
    let preempt = json!({ "Pod": pod(), "NodeNameToVictims": null, "NodeNameToMetaVictims": {
        "n1": { "Pods": [{ "UID": "v1" }, { "UID": "v2" }], "NumPDBViolations": 3 }, "n9": { "Pods": [] } } });
    let (_, answer) = ask(&routes, "/preempt", preempt.to_string()).await;
    let kept = json!({ "n1": { "Pods": [{ "UID": "v1" }, { "UID": "v2" }], "NumPDBViolations": 3 } });
    assert_eq!(answer["NodeNameToMetaVictims"], kept);
    let preempt = json!({ "Pod": pod(), "NodeNameToVictims": {
        "n1": { "Pods": [{ "metadata": { "uid": "v1" } }], "NumPDBViolations": 0 } }, "NodeNameToMetaVictims": null });
    let (_, answer) = ask(&routes, "/preempt", preempt.to_string()).await;
    assert_eq!(answer["NodeNameToMetaVictims"]["n1"]["Pods"], json!([{ "UID": "v1" }]));
    assert_eq!(routes.stats().requests_in_flight(), 0);
}

/// Status 200 with an error in the response.
const REPORTED: u16 = 299;

#[tokio::test]
async fn malformed_requests_are_rejected_and_other_errors_are_reported_in_the_response() {
    let routes = routes(true);
    let deep = format!("{{\"Pod\":{}{},\"NodeNames\":[]}}", "[".repeat(100_000), "]".repeat(100_000));
    let meta = |victims: Value| json!({ "Pod": pod(), "NodeNameToMetaVictims": victims }).to_string();
    let whole = |victims: Value| json!({ "Pod": pod(), "NodeNameToVictims": victims }).to_string();
    // The status of filter, prioritize and preempt. Only the response of filter has a member for errors.
    let cases = [
        ("malformed", "{\"Pod\":".to_owned(), [400, 400, 400]),
        ("empty", String::new(), [400, 400, 400]),
        ("not an object", "[1]".to_owned(), [400, 400, 400]),
        ("more than one", "{}{}".to_owned(), [400, 400, 400]),
        ("no pod", "{}".to_owned(), [REPORTED, 422, 422]),
        ("a pod without metadata", json!({ "Pod": {}, "NodeNames": ["n1"] }).to_string(), [REPORTED, 422, 422]),
        ("a deep pod", deep, [REPORTED, 422, 422]),
        // Preempt reads only the nodes of victims.
        ("invalid names", json!({ "Pod": pod(), "NodeNames": [1] }).to_string(), [400, 400, 200]),
        ("a node without metadata", json!({ "Pod": pod(), "Nodes": { "items": [{}] } }).to_string(), [400, 400, 200]),
        ("invalid victims", meta(json!([])), [200, 200, 400]),
        ("an invalid victim", meta(json!({ "n1": { "Pods": [7] } })), [200, 200, 400]),
        ("an invalid UID", meta(json!({ "n1": { "Pods": [{ "UID": {} }] } })), [200, 200, 400]),
        ("violations that are not a number", meta(json!({ "n1": { "NumPDBViolations": "1" } })), [200, 200, 400]),
        ("a victim without metadata", whole(json!({ "n1": { "Pods": [{}] } })), [200, 200, 400]),
    ];
    for (what, body, expected) in cases {
        for (path, expected) in ["/filter", "/prioritize", "/preempt"].into_iter().zip(expected) {
            let (status, answer) = ask(&routes, path, body.clone()).await;
            let has_error = answer["Error"].as_str().is_some_and(|error| !error.is_empty());
            let got = if status == 200 && has_error { REPORTED } else { status };
            assert_eq!(got, expected, "{what} {path}: {answer}");
        }
    }
    let names = json!({ "Pod": pod(), "NodeNames": [] }).to_string();
    for kind in ["text/plain", "", "application/vnd.kubernetes.protobuf"] {
        assert_eq!(post_to(&routes, "/filter", kind, names.clone()).await.0, 415, "{kind}");
    }
    assert_eq!(post_to(&routes, "/filter", "application/json; charset=utf-8", names.clone()).await.0, 200);
    let request = Request::get("/filter").body(Body::empty()).expect("a request");
    assert_eq!(router(routes.clone()).oneshot(request).await.expect("an answer").status(), 405);
    let mut request =
        Request::post("/filter").header("content-type", "application/json").body(Body::from(names)).expect("a request");
    request.extensions_mut().insert(ClientCertificate::Missing);
    assert_eq!(router(routes).oneshot(request).await.expect("an answer").status(), 403);
}

#[tokio::test]
async fn malformed_bindings_are_rejected_and_failed_bindings_are_reported_in_the_response() {
    // The pod is known, so only the rest of each request is wrong.
    let routes = routes(true);
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let with = |member: &str, value: &str| {
        let mut binding = json!({ "PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n1" });
        binding[member] = Value::Null;
        binding.to_string().replace(&format!("\"{member}\":null"), &format!("\"{member}\":{value}")).into_bytes()
    };
    let huge = format!("\"{}\"", "n".repeat(1 << 20));
    let refused: [(&str, Vec<u8>); 12] = [
        ("empty", Vec::new()),
        ("cut short", b"{\"PodName\":\"p\"".to_vec()),
        ("null", b"null".to_vec()),
        ("a list", b"[]".to_vec()),
        ("a string", b"\"p\"".to_vec()),
        ("more than one", [with("Node", "\"n1\""), b" {}".to_vec()].concat()),
        ("a name that is a number", with("PodName", "7")),
        ("a namespace that is an object", with("PodNamespace", "{}")),
        ("a UID that is a list", with("PodUID", "[\"u\"]")),
        ("a node that is deep", with("Node", &deep)),
        ("half a surrogate pair", with("Node", "\"\\ud800\"")),
        ("not UTF-8", [b"{\"Node\":\"".as_slice(), &[0xff, 0xfe], b"\"}"].concat()),
    ];
    for (what, body) in refused {
        let (status, answer) = ask(&routes, "/bind", body).await;
        assert_eq!(status, 400, "{what}: {answer}");
    }
    let reported: [(&str, Vec<u8>, &str); 6] = [
        ("empty", b"{}".to_vec(), "is not known to Bridger"),
        ("another pod", with("PodName", "\"q\""), "is not known to Bridger"),
        ("another UID", with("PodUID", "\"other\""), "was replaced by another pod"),
        ("no node", with("Node", "null"), "were not known to Bridger yet"),
        ("a huge node", with("Node", &huge), "is longer than that of any object"),
        ("a deep unknown member", with("Other", &deep), ""),
    ];
    for (what, body, expected) in reported {
        let (status, answer) = ask(&routes, "/bind", body).await;
        let error = answer["Error"].as_str().unwrap_or("no answer");
        assert_eq!(status, 200, "{what}: {answer}");
        assert!(error.contains(expected) && error.is_empty() == expected.is_empty(), "{what}: {error:.200}");
    }
}

#[tokio::test]
async fn requests_get_503_before_kubernetes_is_in_sync() {
    let routes = routes(false);
    let body = json!({ "Pod": pod(), "NodeNames": ["n1"], "PodName": "p", "PodNamespace": "ns" }).to_string();
    for verb in Verb::ALL {
        assert_eq!(ask(&routes, &format!("/{}", verb.name()), body.clone()).await.0, 503, "{verb:?}");
    }
}

/// A node with a realistic list of images, which is most of a node's size.
fn whole_node(number: usize) -> Value {
    let images: Vec<Value> = (0..50)
        .map(|image| {
            let digest = format!("{:064x}", number * 1000 + image);
            json!({ "names": [format!("registry.example.org/team/service-{image}@sha256:{digest}"),
                format!("registry.example.org/team/service-{image}:v1.{number}.{image}")], "sizeBytes": 123_456_789 })
        })
        .collect();
    json!({ "metadata": { "name": format!("node-{number}"), "labels": { "kubernetes.io/hostname": format!("node-{number}") } },
        "status": { "images": images } })
}

#[tokio::test]
async fn five_thousand_whole_nodes_are_accepted_and_a_body_beyond_the_limit_is_not() {
    let routes = routes(true);
    let nodes: Vec<Value> = (0..5000).map(whole_node).collect();
    let body = json!({ "Pod": pod(), "Nodes": { "items": nodes } }).to_string();
    assert!(body.len() > 40 << 20 && body.len() < BODY_BYTES_MAX, "{} bytes", body.len());
    let (status, answer) = ask(&routes, "/filter", body).await;
    assert_eq!(status, 200);
    assert_eq!(answer["FailedNodes"].as_object().map(serde_json::Map::len), Some(5000));
    let endless = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 1 << 16])));
    assert_eq!(ask(&routes, "/filter", Body::from_stream(endless)).await.0, 413);
}

#[tokio::test]
async fn number_8_a_large_body_keeps_its_permit_while_it_is_worked_on_also_without_its_client() {
    let mut routes = routes(true);
    let (began, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    routes.read_pod = Arc::new(move |json| {
        let _ = began.send(());
        let _ = may_go_on.lock().expect("a lock").recv();
        read_pod(json)
    });
    // A body of unknown length counts as large.
    let body = json!({ "Pod": pod(), "NodeNameToMetaVictims": {} }).to_string();
    let client = tokio::spawn({
        let routes = routes.clone();
        async move { ask(&routes, "/preempt", body).await }
    });
    has_begun.recv().await.expect("the work begins");
    client.abort();
    assert!(client.await.expect_err("it has not ended").is_cancelled());
    assert_eq!(routes.large_bodies.available_permits(), LARGE_BODIES_MAX - 1);
    drop(go_on);
    let given_back = async {
        while routes.large_bodies.available_permits() < LARGE_BODIES_MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), given_back).await.expect("the permit is given back");
}

fn request_bodies() -> Vec<(&'static str, Vec<u8>)> {
    let names = json!({ "Pod": pod(), "Nodes": null, "NodeNames": ["n1", "n2", "n\u{9}"] });
    let whole = json!({ "Pod": pod(), "Nodes": { "items": [{ "metadata": { "name": "n1" } }] }, "NodeNames": null });
    let bind = json!({ "PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n1" });
    let preempt =
        json!({ "Pod": pod(), "NodeNameToMetaVictims": { "n1": { "Pods": [{ "UID": "v" }], "NumPDBViolations": 0 } } });
    let victims = json!({ "Pod": pod(), "NodeNameToVictims": { "n1": { "Pods": [pod()], "NumPDBViolations": 1 } } });
    vec![
        ("/preempt", victims.to_string().into_bytes()),
        ("/filter", names.to_string().into_bytes()),
        ("/prioritize", names.to_string().into_bytes()),
        ("/filter", whole.to_string().into_bytes()),
        ("/bind", bind.to_string().into_bytes()),
        ("/preempt", preempt.to_string().into_bytes()),
    ]
}

#[derive(Clone, Debug)]
enum Mutation {
    Set(usize, u8),
    Cut(usize),
    Remove(usize, usize),
    Repeat(usize, usize),
    Insert(usize, &'static str),
}

fn mutations() -> impl Strategy<Value = Mutation> {
    const PIECES: &[&str] =
        &["null", "{}", "[]", "\"", "\\u0000", "1e999", ",", "[[[[", "true", "-0", "\u{feff}", "\"\\ud800\""];
    prop_oneof![
        (0..200usize, any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (0..200usize).prop_map(Mutation::Cut),
        (0..200usize, 1..20usize).prop_map(|(at, count)| Mutation::Remove(at, count)),
        (0..200usize, 1..40usize).prop_map(|(at, count)| Mutation::Repeat(at, count)),
        (0..200usize, proptest::sample::select(PIECES)).prop_map(|(at, text)| Mutation::Insert(at, text)),
    ]
}

fn mutate(body: &mut Vec<u8>, mutation: &Mutation) {
    let position = |at: usize| at % (body.len() + 1);
    match *mutation {
        Mutation::Set(at, byte) => {
            if let Some(old) = body.get_mut(at) {
                *old = byte;
            }
        }
        Mutation::Cut(at) => body.truncate(position(at)),
        Mutation::Remove(at, count) => {
            let from = position(at);
            body.drain(from..(from + count).min(body.len()));
        }
        Mutation::Repeat(at, count) => {
            let from = position(at);
            let part = body[from..(from + count).min(body.len())].to_vec();
            body.splice(from..from, part);
        }
        Mutation::Insert(at, text) => {
            let from = position(at);
            body.splice(from..from, text.bytes());
        }
    }
}

/// Few cases unless the full run is requested.
fn cases() -> u32 {
    if std::env::var("BRIDGER_TEST_COUNTS").as_deref() == Ok("full") { 20_000 } else { 2_000 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn mutated_requests_get_a_response_and_never_panic(
        which in 0..6usize,
        changes in proptest::collection::vec(mutations(), 1..4),
    ) {
        let (path, mut body) = request_bodies().swap_remove(which);
        for change in &changes {
            mutate(&mut body, change);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (status, text) =
            runtime.block_on(async { post_to(&routes(true), path, "application/json", body).await });
        prop_assert!([200, 400, 422].contains(&status), "{} {}", status, text);
        if status == 200 {
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok(), "{}", text);
        }
    }
}
