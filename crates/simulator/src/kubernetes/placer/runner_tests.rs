//! The complete placer in a world with virtual time, with and without extenders.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use http::StatusCode;
use uuid::Uuid;

use super::*;
use crate::Clock;
use crate::kubernetes::NodeMachine;
use crate::kubernetes::json::items;
use crate::kubernetes::placer::{ExtenderConfig, Transport};
use crate::seed::Seed;
use crate::world::Config;

/// A world with this many nodes and running time.
fn world(nodes: u8, seed: u64) -> Arc<World> {
    let mut config = Config { seed: Seed(seed), ..Config::default() };
    config.vcenter.nodes = 0;
    let world = World::new(&config, Clock::virtual_time());
    world.with(|core, now| {
        let store = core.kubernetes.store_mut();
        if store.get(KindId::NAMESPACE, "", "default").is_none() {
            store.create(KindId::NAMESPACE, json!({ "metadata": { "name": "default" } }), now).unwrap();
        }
        for number in 1..=nodes {
            let machine = NodeMachine {
                name: format!("node-{number}"),
                bios_uuid: Uuid::from_bytes([number; 16]),
                ip_address: format!("192.0.2.{number}"),
                cpu_count: 4,
                memory_mib: 8 * 1024,
            };
            core.kubernetes.machine_started(&machine, now);
        }
    });
    tokio::spawn(world.clone().run());
    world
}

fn create_pods(world: &World, count: usize, cpu: &str) {
    world.with(|core, now| {
        for number in 0..count {
            let pod = json!({ "metadata": { "name": format!("p{number}"), "namespace": "default" },
                "spec": { "containers": [{ "name": "c", "image": "i",
                    "resources": { "requests": { "cpu": cpu, "memory": "64Mi" } } }] } });
            core.kubernetes.store_mut().create(KindId::POD, pod, now).unwrap();
        }
    });
}

fn placed(world: &World) -> BTreeMap<String, String> {
    world.with(|core, _| {
        core.kubernetes
            .store()
            .list(KindId::POD, None)
            .map(|object| (text(&object["metadata"]["name"]).to_owned(), pod::node_name(object).to_owned()))
            .collect()
    })
}

fn scheduled_condition(world: &World, name: &str) -> (String, String) {
    world.with(|core, _| {
        let object = core.kubernetes.store().get(KindId::POD, "default", name).unwrap();
        let known = condition::find(object, "PodScheduled").cloned().unwrap_or_default();
        (text(&known["reason"]).to_owned(), text(&known["message"]).to_owned())
    })
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_spread_and_the_same_seed_gives_the_same_placement() {
    let place = async |seed: u64| {
        let world = world(5, seed);
        let placer = tokio::spawn(run(world.clone(), PlacerConfig { seed: Seed(seed), ..PlacerConfig::default() }));
        create_pods(&world, 10, "500m");
        pass(10).await;
        placer.abort();
        let running = world.with(|core, _| {
            core.kubernetes.store().list(KindId::POD, None).filter(|object| pod::is_ready(object)).count()
        });
        assert_eq!(running, 10);
        placed(&world)
    };
    let first = place(1).await;
    let mut per_node: BTreeMap<&String, usize> = BTreeMap::new();
    for node in first.values() {
        *per_node.entry(node).or_default() += 1;
    }
    assert!(per_node.values().all(|count| *count == 2), "{per_node:?}");
    assert_eq!(first, place(1).await);
    assert_ne!(first, place(2).await);
}

#[tokio::test(start_paused = true)]
async fn an_unschedulable_pod_is_reported_and_placed_when_capacity_is_free() {
    let world = world(1, 1);
    tokio::spawn(run(world.clone(), PlacerConfig::default()));
    create_pods(&world, 3, "1500m");
    pass(30).await;
    let waiting: Vec<String> =
        placed(&world).into_iter().filter(|(_, node)| node.is_empty()).map(|(name, _)| name).collect();
    assert_eq!(waiting, ["p2"]);
    let (reason, message) = scheduled_condition(&world, "p2");
    assert_eq!(reason, "Unschedulable");
    assert!(message.starts_with("0/1 nodes are available: 1 Insufficient cpu."), "{message}");
    let events = world.with(|core, _| {
        core.kubernetes
            .store()
            .list(KindId::EVENT, None)
            .filter(|event| event["reason"] == "FailedScheduling")
            .map(|event| event["count"].as_u64().unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(events, [1], "there is no retry while nothing changes");
    world.with(|core, _| core.kubernetes.store_mut().remove(KindId::POD, "default", "p0").unwrap());
    pass(15).await;
    assert_eq!(placed(&world)["p2"], "node-1");
}

#[tokio::test(start_paused = true)]
async fn gated_foreign_and_terminating_pods_are_ignored() {
    let world = world(1, 1);
    tokio::spawn(run(world.clone(), PlacerConfig::default()));
    world.with(|core, now| {
        let store = core.kubernetes.store_mut();
        for (name, spec) in [
            ("gated", json!({ "schedulingGates": [{ "name": "wait" }] })),
            ("foreign", json!({ "schedulerName": "bridger" })),
            ("plain", json!({})),
        ] {
            let pod = json!({ "metadata": { "name": name, "namespace": "default" }, "spec": spec });
            store.create(KindId::POD, pod, now).unwrap();
        }
    });
    pass(5).await;
    let nodes = placed(&world);
    assert_eq!((nodes["gated"].as_str(), nodes["foreign"].as_str(), nodes["plain"].as_str()), ("", "", "node-1"));
    world.with(|core, _| {
        let ungate = |pod: &mut Value| put(pod, &["spec", "schedulingGates"], json!([]));
        core.kubernetes.store_mut().edit(KindId::POD, "default", "gated", ungate).unwrap();
    });
    pass(5).await;
    assert_eq!(placed(&world)["gated"], "node-1");
}

/// An extender that forbids node-1, prefers node-3, and binds through the world's store.
#[derive(Clone)]
struct Extender {
    world: Arc<World>,
    asked: Arc<Mutex<Vec<Value>>>,
    broken: Arc<Mutex<bool>>,
}

impl Extender {
    fn router(&self) -> Router {
        Router::new()
            .route("/x/filter", post(filter))
            .route("/x/prioritize", post(prioritize))
            .route("/x/bind", post(bind_pod))
            .with_state(self.clone())
    }
}

fn names(arguments: &Value) -> Vec<String> {
    let names = items(&arguments["NodeNames"]).iter().map(|name| text(name).to_owned());
    let objects = items(&arguments["Nodes"]["items"]).iter().map(|node| text(&node["metadata"]["name"]).to_owned());
    names.chain(objects).collect()
}

async fn filter(State(extender): State<Extender>, Json(arguments): Json<Value>) -> (StatusCode, Json<Value>) {
    if *extender.broken.lock().unwrap() {
        return (StatusCode::INTERNAL_SERVER_ERROR, Json(Value::Null));
    }
    let left: Vec<String> = names(&arguments).into_iter().filter(|name| name != "node-1").collect();
    let whole = items(&arguments["Nodes"]["items"]).iter().filter(|node| node["metadata"]["name"] != "node-1");
    let answer = if arguments["NodeNames"].is_null() {
        json!({ "nodes": { "items": whole.collect::<Vec<_>>() }, "failedNodes": { "node-1": "forbidden host" } })
    } else {
        json!({ "nodenames": left, "FailedNodes": { "node-1": "forbidden host" }, "Error": "" })
    };
    extender.asked.lock().unwrap().push(arguments);
    (StatusCode::OK, Json(answer))
}

async fn prioritize(State(_): State<Extender>, Json(arguments): Json<Value>) -> Json<Value> {
    let scores = names(&arguments).into_iter().map(|name| {
        let score = if name == "node-3" { 10 } else { 0 };
        json!({ "Host": name, "Score": score })
    });
    Json(Value::Array(scores.collect()))
}

async fn bind_pod(State(extender): State<Extender>, Json(arguments): Json<Value>) -> Json<Value> {
    extender.world.with(|core, _| {
        let (namespace, name) = (text(&arguments["PodNamespace"]), text(&arguments["PodName"]));
        core.kubernetes
            .store_mut()
            .edit(KindId::POD, namespace, name, |pod| {
                put(pod, &["spec", "nodeName"], arguments["Node"].clone());
                put(pod, &["metadata", "annotations", "bound-by"], json!("extender"));
            })
            .unwrap();
    });
    Json(json!({ "Error": "" }))
}

fn with_extender(nodes: u8) -> (Arc<World>, Extender) {
    let world = world(nodes, 1);
    let extender = Extender { world: world.clone(), asked: Arc::default(), broken: Arc::default() };
    (world, extender)
}

#[tokio::test(start_paused = true)]
async fn an_extender_filters_prioritizes_and_binds() {
    for (node_cache_capable, binds) in [(true, false), (false, false), (true, true)] {
        let (world, extender) = with_extender(3);
        let mut config = ExtenderConfig::new("http://extender/x", Transport::in_process(extender.router()));
        config.node_cache_capable = node_cache_capable;
        config.bind_verb = binds.then(|| "bind".to_owned());
        tokio::spawn(run(world.clone(), PlacerConfig { extenders: vec![config], ..PlacerConfig::default() }));
        create_pods(&world, 3, "100m");
        pass(30).await;
        let nodes = placed(&world);
        assert!(nodes.values().all(|node| node == "node-3"), "{nodes:?} ({node_cache_capable}, {binds})");
        let asked = extender.asked.lock().unwrap();
        assert_eq!(asked[0]["NodeNames"].is_array(), node_cache_capable);
        assert_eq!(asked[0]["Nodes"].is_null(), node_cache_capable);
        let by_extender = world.with(|core, _| {
            let pods = core.kubernetes.store().list(KindId::POD, None);
            pods.filter(|pod| pod["metadata"]["annotations"]["bound-by"] == "extender").count()
        });
        assert_eq!(by_extender, if binds { 3 } else { 0 });
    }
}

#[tokio::test(start_paused = true)]
async fn an_extender_can_reject_every_node() {
    let (world, extender) = with_extender(1);
    let config = ExtenderConfig::new("http://extender/x", Transport::in_process(extender.router()));
    tokio::spawn(run(world.clone(), PlacerConfig { extenders: vec![config], ..PlacerConfig::default() }));
    create_pods(&world, 1, "100m");
    pass(5).await;
    let (reason, message) = scheduled_condition(&world, "p0");
    assert_eq!(reason, "Unschedulable");
    assert!(message.starts_with("0/1 nodes are available: 1 forbidden host."), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_failing_extender_blocks_pods_unless_it_is_ignorable() {
    for ignorable in [false, true] {
        let (world, extender) = with_extender(3);
        *extender.broken.lock().unwrap() = true;
        let mut config = ExtenderConfig::new("http://extender/x", Transport::in_process(extender.router()));
        config.ignorable = ignorable;
        tokio::spawn(run(world.clone(), PlacerConfig { extenders: vec![config], ..PlacerConfig::default() }));
        create_pods(&world, 1, "100m");
        pass(5).await;
        assert_eq!(!placed(&world)["p0"].is_empty(), ignorable);
        if !ignorable {
            assert_eq!(scheduled_condition(&world, "p0").0, "SchedulerError");
            *extender.broken.lock().unwrap() = false;
            pass(15).await;
            assert_eq!(placed(&world)["p0"], "node-3", "it is retried");
        }
    }
}

#[tokio::test]
async fn an_extender_is_called_over_a_socket() {
    let (world, extender) = with_extender(3);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router: Router<()> = extender.router();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let config = ExtenderConfig::new(&format!("http://{address}/x"), Transport::http());
    tokio::spawn(run(world.clone(), PlacerConfig { extenders: vec![config], ..PlacerConfig::default() }));
    create_pods(&world, 1, "100m");
    for _ in 0..100 {
        if !placed(&world)["p0"].is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(placed(&world)["p0"], "node-3");
}

#[tokio::test(start_paused = true)]
async fn a_silent_extender_times_out() {
    let (world, _) = with_extender(2);
    let silent = tower::service_fn(|_: http::Request<Body>| async {
        std::future::pending::<()>().await;
        Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty()))
    });
    let config = ExtenderConfig::new("http://extender/x", Transport::in_process(silent));
    tokio::spawn(run(world.clone(), PlacerConfig { extenders: vec![config], ..PlacerConfig::default() }));
    create_pods(&world, 1, "100m");
    pass(6).await;
    assert!(scheduled_condition(&world, "p0").1.contains("no answer within 5s"));
}

#[test]
fn a_placement_among_five_thousand_nodes_is_fast() {
    let now = SimTime::VIRTUAL_START;
    let mut kubernetes = Kubernetes::new(&crate::kubernetes::Config::default(), Seed(1), now);
    for number in 0..5000_u32 {
        let machine = NodeMachine {
            name: format!("node-{number}"),
            bios_uuid: Uuid::from_u128(u128::from(number)),
            ip_address: "192.0.2.1".to_owned(),
            cpu_count: 8,
            memory_mib: 32 * 1024,
        };
        kubernetes.machine_started(&machine, now);
    }
    let mut placer = Placer::new(PlacerConfig::default());
    for number in 0..50 {
        let pod = json!({ "metadata": { "name": format!("p{number}"), "namespace": "default", "labels": { "a": "b" } },
            "spec": { "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
                { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "a": "b" } } }] } } } });
        kubernetes.store_mut().create(KindId::POD, pod, now).unwrap();
    }
    placer.take_in(&kubernetes, now);
    let begun = std::time::Instant::now();
    while matches!(placer.look(&mut kubernetes, now), Turn::Done) {}
    let took = begun.elapsed() / 50;
    assert!(took < Duration::from_millis(200), "a placement took {took:?}");
    assert!(kubernetes.store().list(KindId::POD, None).all(|object| !pod::node_name(object).is_empty()));
}

#[test]
fn a_pod_deleted_in_compacted_history_is_not_retried_forever() {
    let now = SimTime::VIRTUAL_START;
    let mut kubernetes = Kubernetes::new(&crate::kubernetes::Config::default(), Seed(1), now);
    let mut placer = Placer::new(PlacerConfig::default());
    let pod = json!({ "metadata": { "name": "p", "namespace": "default" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    kubernetes.store_mut().create(KindId::POD, pod, now).unwrap();
    assert!(matches!(placer.look(&mut kubernetes, now), Turn::Done), "there is no node");
    assert!(matches!(placer.look(&mut kubernetes, now), Turn::Idle { until: Some(_) }));
    kubernetes.store_mut().remove(KindId::POD, "default", "p").unwrap();
    kubernetes.store_mut().compact(0);
    let later = now.after(Duration::from_secs(600));
    assert!(matches!(placer.look(&mut kubernetes, later), Turn::Done));
    assert!(matches!(placer.look(&mut kubernetes, later), Turn::Idle { until: None }));
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_with_its_volumes() {
    let world = world(3, 1);
    tokio::spawn(run(world.clone(), PlacerConfig::default()));
    let claim = |name: &str, class: &str| {
        json!({ "metadata": { "name": name, "namespace": "default" }, "spec": { "storageClassName": class,
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } })
    };
    let create = |kind: KindId, mut object: Value| {
        world.with(|core, now| {
            crate::kubernetes::defaults::apply(kind, &mut object, core.kubernetes.store());
            core.kubernetes.store_mut().create(kind, object, now).unwrap();
        });
    };
    let on_node_2 = json!([{ "matchLabelExpressions": [{ "key": "kubernetes.io/hostname", "values": ["node-2"] }] }]);
    for (name, mode) in [("wait", "WaitForFirstConsumer"), ("now", "Immediate")] {
        let class = json!({ "metadata": { "name": name }, "provisioner": "csi.vsphere.vmware.com",
            "volumeBindingMode": mode, "allowedTopologies": on_node_2 });
        create(KindId::STORAGE_CLASS, class);
    }
    let pod = |name: &str| {
        json!({ "metadata": { "name": name, "namespace": "default" }, "spec": {
            "containers": [{ "name": "c", "image": "i" }],
            "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": name } }] } })
    };
    for name in ["wait", "now", "none"] {
        create(KindId::POD, pod(name));
    }
    pass(5).await;
    assert!(placed(&world).values().all(String::is_empty), "{:?}", placed(&world));
    assert_eq!(
        scheduled_condition(&world, "none").1,
        "0/3 nodes are available: persistentvolumeclaim \"none\" not found. not found"
    );
    create(KindId::PERSISTENT_VOLUME_CLAIM, claim("wait", "wait"));
    create(KindId::PERSISTENT_VOLUME_CLAIM, claim("now", "now"));
    for _ in 0..40 {
        pass(1).await;
        world.with(|core, _| {
            let store = core.kubernetes.store();
            for name in ["wait", "now"] {
                let claim = store.get(KindId::PERSISTENT_VOLUME_CLAIM, "default", name).unwrap();
                let is_bound = claim["status"]["phase"] == "Bound";
                let pod = store.get(KindId::POD, "default", name).unwrap();
                assert!(is_bound || pod::node_name(pod).is_empty(), "{name} is bound before its claim");
            }
        });
    }
    let expected = [("none", ""), ("now", "node-2"), ("wait", "node-2")];
    assert_eq!(placed(&world), expected.map(|(pod, node)| (pod.to_owned(), node.to_owned())).into());
    world.with(|core, _| {
        let running = core.kubernetes.store().list(KindId::POD, None).filter(|pod| pod::is_running(pod)).count();
        assert_eq!(running, 2);
    });
}
