//! Preemption across the nodes of a physical host: the whole service on the embedded servers, in virtual time.
//!
//! Two hosts. A pod of low priority on each host keeps others of its app off it, and all nodes of a host but one are full. A
//! pod of high priority of that app fits the free nodes as soon as the pod on another node of the host is evicted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridger::compose::{PartSettings, compose};
use bridger::in_process;
use bridger::service::outside::Service;
use model::LiftSettings;
use serde_json::{Value, json};
use simulated::in_virtual_time;
use simulator::kubernetes::defaults;
use simulator::kubernetes::kinds::KindId;
use simulator::seed::Seed;
use simulator::vcenter::DrsLevel;
use simulator::{Clock, World, world};

const APP: &str = "db";
const NODES: u32 = 8;
const LOW: i32 = 1;
const HIGH: i32 = 1000;

struct Run {
    world: Arc<World>,
    // Dropping it stops Bridger.
    _service: Service,
}

impl Run {
    async fn start(host_preemption: bool) -> Run {
        let vcenter = simulator::vcenter::Config {
            hosts: 2,
            nodes: NODES,
            drs: DrsLevel::Off,
            ..simulator::vcenter::Config::default()
        };
        let config = world::Config { seed: Seed(7), vcenter, ..world::Config::default() };
        let world = World::new(&config, Clock::virtual_time());
        tokio::spawn(world.clone().run());
        let outside = in_process::outside(&world, &config).expect("the embedded servers");
        let parts = PartSettings {
            lifting: LiftSettings { host_preemption, ..LiftSettings::default() },
            rules: None,
            extender: None,
            ..in_process::parts_with_scheduler().expect("the default profile")
        };
        let mut service = Service::new();
        compose(parts, outside, &mut service);
        Run { world, _service: service }
    }

    fn create(&self, kind: KindId, mut object: Value) {
        self.world.with(|core, now| {
            defaults::apply(kind, &mut object, core.kubernetes.store());
            core.kubernetes.store_mut().create(kind, object, now).expect("a new object");
        });
    }

    fn pod(&self, name: &str) -> Option<Value> {
        self.world.with(|core, _| {
            let mut pods = core.kubernetes.store().list(KindId::POD, None);
            pods.find(|pod| pod["metadata"]["name"] == name).map(|pod| (**pod).clone())
        })
    }

    fn events_of(&self, pod: &str) -> Vec<(String, String)> {
        self.world.with(|core, _| {
            let events = core.kubernetes.store().list(KindId::EVENT, None);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let of_pod =
                events.filter(|event| event["regarding"]["name"] == pod || event["involvedObject"]["name"] == pod);
            let parts = |event: &Value| {
                let note = if event["note"].is_null() { &event["message"] } else { &event["note"] };
                (text(&event["reason"]), text(note))
            };
            of_pod.map(|event| parts(event)).collect()
        })
    }

    fn host_of(&self, node: &str) -> String {
        self.world.with(|core, _| {
            let inventory = core.vcenter.inventory();
            let vm = inventory.vms().find(|(_, vm)| vm.guest_host_name == node).expect("the VM of the node").1;
            format!("{:?}", vm.host)
        })
    }
}

/// A pod that waits for a scheduler, or runs on a node.
fn pod(name: &str, app: &str, priority: i32, cpu: &str, node: Option<&str>) -> Value {
    let term = json!({ "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": APP } } });
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": app } },
        "spec": {
            "priority": priority,
            "terminationGracePeriodSeconds": 30,
            "containers": [{ "name": "main", "image": "none", "resources": { "requests": { "cpu": cpu } } }],
        },
    });
    if app == APP {
        pod["spec"]["affinity"] =
            json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } });
    }
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

/// Two nodes of one host: on the first one runs a pod of low priority, and there is no room; the second one is free.
struct Pair {
    low: String,
    free: String,
}

/// What became of the pod of high priority.
struct Outcome {
    run: Run,
    pairs: Vec<Pair>,
    /// As soon as it was nominated to a node.
    nominated: Option<Value>,
    /// After ten minutes.
    late: Value,
}

async fn outcome(host_preemption: bool) -> Outcome {
    let run = Run::start(host_preemption).await;
    let mut by_host: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in (1..=NODES).map(|number| format!("node-{number}")) {
        by_host.entry(run.host_of(&node)).or_default().push(node);
    }
    assert_eq!(by_host.len(), 2, "{by_host:?}");
    let mut pairs = Vec::new();
    for nodes in by_host.into_values() {
        let [low, free, others @ ..] = nodes.as_slice() else { panic!("a host has too few nodes: {nodes:?}") };
        run.create(KindId::POD, pod(&format!("low-on-{low}"), APP, LOW, "100m", Some(low)));
        for node in others.iter().chain([low]) {
            run.create(KindId::POD, pod(&format!("full-{node}"), "full", HIGH, "7500m", Some(node)));
        }
        pairs.push(Pair { low: low.clone(), free: free.clone() });
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    run.create(KindId::POD, pod("high", APP, HIGH, "1", None));
    let mut nominated = None;
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        nominated = run.pod("high").filter(|pod| pod["status"]["nominatedNodeName"].is_string());
        if nominated.is_some() {
            break;
        }
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    let late = run.pod("high").expect("the pod");
    Outcome { run, pairs, nominated, late }
}

#[test]
fn a_pod_on_another_node_of_the_host_is_evicted_and_the_pod_runs_on_the_nominated_node() {
    in_virtual_time(async {
        let Outcome { run, pairs, nominated, late } = outcome(true).await;
        let nominated = nominated.unwrap_or_else(|| panic!("never nominated: {late}"));
        // While the victim ends, the pod waits.
        assert!(nominated["spec"]["nodeName"].is_null(), "{nominated}");
        let node = nominated["status"]["nominatedNodeName"].as_str().expect("a name");
        assert_eq!(late["spec"]["nodeName"], node, "{late}");
        let (chosen, spared): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().partition(|pair| pair.free == node);
        let ([chosen], [spared]) = (chosen.as_slice(), spared.as_slice()) else { panic!("{node} is not free") };
        assert!(run.pod(&format!("low-on-{}", chosen.low)).is_none(), "it was evicted");
        assert!(run.pod(&format!("low-on-{}", spared.low)).is_some(), "one victim is enough");
        for pair in &pairs {
            assert!(run.pod(&format!("full-{}", pair.low)).is_some(), "a pod of the same priority stays");
        }
        let uid = late["metadata"]["uid"].as_str().expect("a uid");
        let expected = format!("Preempted by pod {uid} on node {node}; this pod runs on node {}", chosen.low);
        let events = run.events_of(&format!("low-on-{}", chosen.low));
        assert!(events.contains(&("Preempted".to_owned(), expected)), "{events:?}");
    });
}

#[test]
fn without_the_setting_the_pod_stays_pending() {
    in_virtual_time(async {
        let Outcome { run, pairs, nominated, late } = outcome(false).await;
        assert!(nominated.is_none(), "{nominated:?}");
        assert!(late["spec"]["nodeName"].is_null() && late["status"]["nominatedNodeName"].is_null(), "{late}");
        let message = late["status"]["conditions"][0]["message"].as_str().expect("a reason");
        assert!(message.contains("2 node(s) didn't match pod anti-affinity rules between physical hosts"), "{message}");
        assert!(pairs.iter().all(|pair| run.pod(&format!("low-on-{}", pair.low)).is_some()));
    });
}
