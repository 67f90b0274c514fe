//! Sends invalid pods to the extender's routes, with the pod parser of the binary: malformed, with wrong types, deep,
//! huge, without metadata. Each gets an answer, a rejection or an error; none causes a panic.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use engine::extender::{Extender, ExtenderSettings};
use engine::runtime::WorldOwner;
use http::Request;
use model::World;
use model::event::{Event, NodeFacts, Source};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};
use server::ExtenderRoutes;
use testkit::count;
use tower::ServiceExt;

const ANSWER_BYTES_MAX: usize = 16 << 20;
const DEPTH: usize = 100_000;
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Two nodes, and a pod on the first with anti-affinity to pods of its app.
fn router() -> Router {
    let mut world = World::default();
    for source in [Source::Nodes, Source::Namespaces, Source::Pods] {
        world.apply(Event::RelistBegan(source));
        match source {
            Source::Nodes => {
                for name in ["n1", "n2"] {
                    let labels = [("kubernetes.io/hostname".to_owned(), name.to_owned())].into();
                    let node = NodeFacts { name: name.to_owned(), labels, ready: true, ..NodeFacts::default() };
                    world.apply(Event::NodeApplied(node));
                }
            }
            Source::Pods => {
                let mut placed = pod();
                placed["metadata"]["uid"] = "placed".into();
                placed["metadata"]["name"] = "placed".into();
                placed["spec"]["nodeName"] = "n1".into();
                let facts = kubernetes::pod_json::read_pod(&placed.to_string()).expect("a pod");
                world.apply(Event::PodApplied(facts));
            }
            _ => (),
        }
        world.apply(Event::RelistEnded(source));
    }
    let extender = Extender::answering(WorldOwner::new(world).shared(), ExtenderSettings::default());
    let read_pod = Arc::new(|json: &str| kubernetes::pod_json::read_pod(json).map_err(|error| error.to_string()));
    server::extender::router(ExtenderRoutes::new(extender, read_pod))
}

/// A pod with every field that is read.
fn pod() -> Value {
    let term = json!({ "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "a" },
        "matchExpressions": [{ "key": "app", "operator": "In", "values": ["a"] }] }, "namespaces": ["ns"],
        "namespaceSelector": { "matchLabels": { "team": "x" } } });
    let weighted = json!([{ "weight": 10, "podAffinityTerm": term }]);
    let nodes = json!({ "matchExpressions": [{ "key": "disk", "operator": "Exists" }],
        "matchFields": [{ "key": "metadata.name", "operator": "NotIn", "values": ["n9"] }] });
    json!({
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u", "labels": { "app": "a" }, "annotations": { "bridger.dev/lift": "on" },
            "creationTimestamp": "2026-01-02T03:04:05Z", "resourceVersion": "7",
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "o", "controller": true }],
        },
        "spec": {
            "nodeSelector": { "disk": "fast" },
            "containers": [{ "name": "main", "image": "none", "resources": { "requests": { "cpu": "100m" } } }],
            "affinity": {
                "podAntiAffinity": { REQUIRED: [term], PREFERRED: weighted },
                "podAffinity": { REQUIRED: [], PREFERRED: weighted },
                "nodeAffinity": { REQUIRED: { "nodeSelectorTerms": [nodes] },
                    PREFERRED: [{ "weight": 1, "preference": nodes }] },
            },
        },
        "status": { "phase": "Pending" },
    })
}

/// The pod with one value replaced by text, because some replacements are not valid JSON.
fn with(pointer: &str, text: &str) -> String {
    const MARK: &str = "\u{1}replaced\u{1}";
    let mut pod = pod();
    match pod.pointer_mut(pointer) {
        Some(value) => *value = MARK.into(),
        None => {
            let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
            pod.pointer_mut(parent).expect("an object")[name] = MARK.into();
        }
    }
    pod.to_string().replace(&Value::from(MARK).to_string(), text)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// A valid pod, possibly with unusual content, gets an answer.
    Answered,
    /// Valid JSON that is not a pod gets an error, in the `Error` member if the verb has one.
    Reported,
    /// The whole request is not valid JSON.
    Rejected,
}

/// Sends the pod to each verb. Returns the outcome if it is the same for all, and the text of the first answer.
async fn ask_all(router: &Router, pod: &str) -> Result<(Outcome, String), String> {
    let mut outcomes = Vec::new();
    for (path, rest) in [
        ("/filter", r#""Nodes":null,"NodeNames":["n1","n2"]"#),
        ("/filter", r#""Nodes":{"items":[{"metadata":{"name":"n2"}}]},"NodeNames":null"#),
        ("/prioritize", r#""Nodes":null,"NodeNames":["n1","n2"]"#),
        ("/preempt", r#""NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"placed"}],"NumPDBViolations":0}}"#),
    ] {
        let body = format!("{{\"Pod\":{pod},{rest}}}");
        let request = Request::post(path).header("content-type", "application/json").body(Body::from(body));
        let response = router.clone().oneshot(request.map_err(|error| error.to_string())?).await;
        let response = response.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), ANSWER_BYTES_MAX).await.map_err(|error| error.to_string())?;
        let text = String::from_utf8(body.to_vec()).map_err(|error| error.to_string())?;
        let answer = match status {
            200 => serde_json::from_str::<Value>(&text).map_err(|error| format!("{path}: {error}: {text:.200}"))?,
            _ => Value::Null,
        };
        let is_reported = answer["Error"].as_str().is_some_and(|error| !error.is_empty());
        let outcome = match (path, status) {
            ("/filter", 200) if is_reported => Outcome::Reported,
            (_, 200) => Outcome::Answered,
            ("/prioritize" | "/preempt", 422) => Outcome::Reported,
            (_, 400) => Outcome::Rejected,
            _ => return Err(format!("{path}: {status} {text:.200}")),
        };
        outcomes.push((outcome, text));
    }
    let (first, text) = outcomes.swap_remove(0);
    match outcomes.iter().all(|(outcome, _)| *outcome == first) {
        true => Ok((first, text)),
        false => Err(format!("{first:?} {text:.200}, and then {outcomes:.200?}")),
    }
}

#[tokio::test]
async fn an_invalid_pod_gets_an_error_and_an_unusual_one_an_answer() {
    use Outcome::{Answered, Rejected, Reported};
    let router = router();
    let deep = "[".repeat(DEPTH) + &"]".repeat(DEPTH);
    let deep_object = "{\"a\":".repeat(DEPTH) + "1" + &"}".repeat(DEPTH);
    let many = |count: usize, one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>().join(",");
    let labels = format!("{{{}}}", many(50_000, &|number| format!("\"label-{number}\":\"{number}\"")));
    let term = |number: usize| {
        format!(
            "{{\"topologyKey\":\"kubernetes.io/hostname\",\"labelSelector\":{{\"matchLabels\":{{\"app\":\"b{number}\"}}}}}}"
        )
    };
    let terms = format!("[{}]", many(2_000, &term));
    let containers = format!("[{}]", many(50_000, &|number| format!("{{\"name\":\"c{number}\"}}")));
    let long = format!("\"{}\"", "x".repeat(1 << 20));
    let anti = format!("/spec/affinity/podAntiAffinity/{REQUIRED}");
    let weight = format!("/spec/affinity/podAntiAffinity/{PREFERRED}/0/weight");
    let expression = format!("{anti}/0/labelSelector/matchExpressions/0");
    let cases = [
        ("a normal pod", pod().to_string(), Answered),
        ("nothing", "null".to_owned(), Reported),
        ("a number", "7".to_owned(), Reported),
        ("a text", "\"p\"".to_owned(), Reported),
        ("a list", "[]".to_owned(), Reported),
        ("an empty object", "{}".to_owned(), Reported),
        ("cut short", "{\"metadata\":{".to_owned(), Rejected),
        ("null metadata", with("/metadata", "null"), Reported),
        ("empty metadata", with("/metadata", "{}"), Reported),
        ("metadata that is a list", with("/metadata", "[]"), Reported),
        ("metadata twice", with("/metadata", "{},\"metadata\":{}"), Reported),
        ("no name", with("/metadata/name", "null"), Reported),
        ("an empty name", with("/metadata/name", "\"\""), Reported),
        ("a name that is a number", with("/metadata/name", "7"), Reported),
        ("half a surrogate pair", with("/metadata/name", "\"\\ud800\""), Reported),
        ("a name without letters", with("/metadata/name", "\"\\u0000\\n\\\"\\\\\""), Answered),
        ("a long name", with("/metadata/name", &long), Answered),
        ("no namespace", with("/metadata/namespace", "null"), Reported),
        ("no UID", with("/metadata/uid", "null"), Reported),
        ("labels in a list", with("/metadata/labels", "[]"), Reported),
        ("a label that is a number", with("/metadata/labels/app", "1"), Reported),
        ("no labels", with("/metadata/labels", "null"), Answered),
        ("many labels", with("/metadata/labels", &labels), Answered),
        ("deep labels", with("/metadata/labels", &deep_object), Reported),
        ("an owner without a kind", with("/metadata/ownerReferences", "[{}]"), Reported),
        ("deep metadata that is not read", with("/metadata/managedFields", &deep), Answered),
        ("a deep time of deletion", with("/metadata/deletionTimestamp", &deep_object), Answered),
        ("a spec that is a number", with("/spec", "7"), Reported),
        ("no spec", with("/spec", "null"), Answered),
        ("a deep spec", with("/spec", &deep), Reported),
        ("containers that are not read", with("/spec/containers", &deep), Answered),
        ("many containers", with("/spec/containers", &containers), Answered),
        ("a node that is a list", with("/spec/nodeName", "[]"), Reported),
        ("deep affinity", with("/spec/affinity", &deep), Reported),
        ("affinity that is a text", with("/spec/affinity", "\"x\""), Reported),
        ("terms in an object", with(&anti, "{}"), Reported),
        ("a term that is a number", with(&anti, "[7]"), Reported),
        ("an empty term", with(&anti, "[{}]"), Answered),
        ("many terms", with(&anti, &terms), Answered),
        ("a weight that is a text", with(&weight, "\"heavy\""), Reported),
        ("a weight that overflows", with(&weight, "1e999"), Reported),
        ("a weight of 64 bits", with(&weight, "1099511627776"), Reported),
        ("an expression without an operator", with(&expression, "{\"key\":\"a\"}"), Reported),
        ("an unknown operator", with(&format!("{expression}/operator"), "\"Near\""), Answered),
        ("a status that is a list of lists", with("/status", "[[]]"), Reported),
    ];
    for (what, pod, expected) in cases {
        let (outcome, text) = ask_all(&router, &pod).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(outcome, expected, "{what}: {text:.300}");
    }
}

struct Dice(ChaCha8Rng);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.next_u64() % bound.max(1) as u64).unwrap_or(0)
    }
}

/// A value that may replace any other.
fn strange(dice: &mut Dice) -> Value {
    let values = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("\u{0}\u{feff}"),
        json!([]),
        json!([null]),
        json!([[[[[]]]]]),
        json!({}),
        json!({ "metadata": null, "key": {} }),
    ];
    values[dice.below(values.len())].clone()
}

/// The number of values inside a value, including itself.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Object(members) => members.values().map(size).sum(),
        Value::Array(items) => items.iter().map(size).sum(),
        _ => 0,
    }
}

/// The value with this number, counted as [`size`] does.
fn value_at(value: &mut Value, number: usize) -> &mut Value {
    if number == 0 {
        return value;
    }
    let mut left = number - 1;
    let inner: Vec<&mut Value> = match value {
        Value::Object(members) => members.values_mut().collect(),
        Value::Array(items) => items.iter_mut().collect(),
        _ => unreachable!("a number within its size"),
    };
    for one in inner {
        let size = size(one);
        if left < size {
            return value_at(one, left);
        }
        left -= size;
    }
    unreachable!("a number within its size")
}

/// Replaces random values of a pod by values of other types. The parser and all verbs must agree on the outcome.
#[tokio::test]
#[allow(clippy::print_stdout)]
async fn a_pod_with_strange_values_gets_an_answer_or_an_error_and_never_a_panic() {
    let router = router();
    let (mut answered, mut reported) = (0, 0);
    let pods = count(2_000, 20_000);
    for seed in 0..pods as u64 {
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
        let mut pod = pod();
        for _ in 0..=dice.below(2) {
            let number = dice.below(size(&pod));
            *value_at(&mut pod, number) = strange(&mut dice);
        }
        let (outcome, text) =
            ask_all(&router, &pod.to_string()).await.unwrap_or_else(|error| panic!("seed {seed}: {error}\n{pod}"));
        match outcome {
            Outcome::Answered => answered += 1,
            Outcome::Reported => reported += 1,
            Outcome::Rejected => panic!("seed {seed}: {text}\n{pod}"),
        }
    }
    println!("{pods} pods with strange values: {answered} answered, {reported} reported");
    assert!(answered * 20 > pods && reported * 20 > pods, "{answered} answered and {reported} reported of {pods}");
}
