//! Requests to the extender: all four verbs, with whole nodes and with names.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use engine::extender::{BindExecutor, DEFAULT_SCHEDULER, Extender, ExtenderSettings};
use engine::ports::{Binder, Binding, EventRecord, EventSink, PodLookup, PortError};
use engine::runtime::{Lease, Runtime, RuntimeSettings};
use futures::future::BoxFuture;
use hostile::{Input, Memory, PeakAlloc, Target, alone, attack};
use http::Request;
use http_body_util::{BodyExt, Full};
use model::World;
use model::event::{Event, NodeFacts, PodFacts, Source};
use model::scheduling::{NodeSchedulingFacts, PodSchedulingFacts};
use server::ExtenderRoutes;
use tower::{Service, ServiceExt};

#[global_allocator]
static MEMORY: PeakAlloc = hostile::MEMORY;

const POD: &str = r#"{"metadata":{"name":"p","namespace":"a","uid":"u","labels":{"app":"web"}},"spec":{"schedulerName":
    "default-scheduler","affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":
    "kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"web"}}}],"preferredDuringSchedulingIgnoredDuringExecution":
    [{"weight":5,"podAffinityTerm":{"topologyKey":"zone","labelSelector":{"matchExpressions":[{"key":"app","operator":"In",
    "values":["web"]}]}}}]}},"containers":[{"name":"c","resources":{"requests":{"cpu":"100m"}}}]}}"#;

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

fn routes() -> ExtenderRoutes {
    let read_pod = |json: &str| kubernetes::pod_json::read_pod(json).map_err(|error| error.to_string());
    let mut world = World::default();
    for source in [Source::Nodes, Source::Pods, Source::Namespaces] {
        world.apply(Event::RelistBegan(source));
        match source {
            Source::Nodes => {
                for name in ["n1", "n2"] {
                    let name = name.to_owned();
                    let facts = NodeSchedulingFacts { allowed_pods: 110, ..NodeSchedulingFacts::default() };
                    let scheduling = Some(Arc::new(facts));
                    let node = NodeFacts { name, ready: true, scheduling, ..NodeFacts::default() };
                    world.apply(Event::NodeApplied(node));
                }
            }
            Source::Pods => {
                // Without what a scheduler reads from it, no pod gets past the admission of a binding.
                let scheduler_name = DEFAULT_SCHEDULER.to_owned();
                let facts = PodSchedulingFacts { scheduler_name, ..PodSchedulingFacts::default() };
                let pod = PodFacts { scheduling: Some(Arc::new(facts)), ..read_pod(POD).expect("a pod") };
                world.apply(Event::PodApplied(pod));
            }
            _ => (),
        }
        world.apply(Event::RelistEnded(source));
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

#[test]
fn number_10_no_request_to_the_extender_is_dangerous() {
    let alone = alone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let mut router = runtime.block_on(async { server::extender::router(routes()) });
    let victims = r#"{"n1":{"Pods":[{"UID":"u"}],"NumPDBViolations":1},"n2":{"Pods":[]}}"#;
    let whole = r#"{"n1":{"Pods":[{"metadata":{"name":"v","namespace":"a","uid":"v"}}],"NumPDBViolations":0}}"#;
    let requests = [
        ("/v1/filter", format!(r#"{{"Pod":{POD},"Nodes":null,"NodeNames":["n1","n2","n3"]}}"#)),
        (
            "/filter",
            format!(
                r#"{{"pod":{POD},"nodes":{{"items":[{{"metadata":{{"name":"n1"}}}},{{"metadata":{{"name":"n2"}}}}]}}}}"#
            ),
        ),
        ("/prioritize", format!(r#"{{"Pod":{POD},"NodeNames":["n1","n2"]}}"#)),
        ("/bind", r#"{"PodName":"p","PodNamespace":"a","PodUID":"u","Node":"n1"}"#.to_owned()),
        ("/preempt", format!(r#"{{"Pod":{POD},"NodeNameToMetaVictims":{victims}}}"#)),
        ("/preempt", format!(r#"{{"Pod":{POD},"NodeNameToVictims":{whole}}}"#)),
    ];
    let samples: Vec<Vec<u8>> = requests.iter().map(|(_, body)| body.clone().into_bytes()).collect();
    let words = [
        "\"Pod\":",
        "\"NodeNames\":",
        "\"NodeNameToVictims\":",
        "\"n1\",",
        "\"metadata\":{",
        "\"labelSelector\":{}",
        "\"weight\":100",
        "1e3m",
        "9Ei",
    ];
    let mut ask = |path: &str, bytes: &[u8]| {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::copy_from_slice(bytes)));
        runtime.block_on(async {
            let ready = ServiceExt::<Request<Full<Bytes>>>::ready(&mut router).await;
            let answer = ready.expect("a router").call(request.expect("a request")).await;
            let answer = answer.unwrap_or_else(|never: Infallible| match never {});
            let status = answer.status().as_u16();
            (status, answer.into_body().collect().await.expect("a body").to_bytes())
        })
    };
    // Every step of a binding is attacked: as it is, the request is executed.
    let (_, body) = ask("/bind", requests[3].1.as_bytes());
    assert_eq!(body, Bytes::from_static(br#"{"Error":""}"#));
    let memory = Memory { fixed_bytes: 6 << 20, bytes_per_byte: 32 };
    let target = Target { name: "extender", samples: &samples, words: &words, memory };
    attack(&alone, &target, |Input { bytes, sample }| {
        let (status, body) = ask(requests[sample].0, bytes);
        assert!([200, 400, 422].contains(&status), "status {status}");
        status == 200 && serde_json::from_slice::<serde_json::Value>(&body).is_ok()
    });
}
