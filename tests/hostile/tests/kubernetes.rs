//! Objects of the API server: what is watched, up to a decision about it; leases; the lists of records.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use engine::ports::RecordStore;
use engine::runtime::LeaseStore;
use hostile::{Input, Memory, PeakAlloc, Target, alone, attack};
use http::Response;
use http_body_util::Full;
use judge::Profile;
use kubernetes::record_store::former_object_name;
use kubernetes::{ConfigMapRecordStore, LeaseObject};
use model::World;
use model::event::Event;
use scheduler::{Configuration, explain, plugins};
use serde_json::{Value, json};
use tower::service_fn;

#[global_allocator]
static MEMORY: PeakAlloc = hostile::MEMORY;

const WORDS: &[&str] = &[
    "\"9Ei\"",
    "\"1e308\"",
    "\"-1\"",
    "\"999999999999999999999n\"",
    "9223372036854775807",
    "-9223372036854775808",
    "4294967296",
    "\"maxSkew\":2147483647",
    "\"weight\":-100",
    "\"hostPort\":70000",
    "\"operator\":\"Gt\"",
    "\"operator\":\"Lt\"",
    "\"values\":[]",
    "\"labelSelector\":{}",
    "\"topologyKey\":\"\"",
    "\"nodeName\":\"n\"",
    "\"priority\":-2147483648",
    "\"creationTimestamp\":\"-009999-01-01T00:00:00Z\"",
    "\"deletionTimestamp\":\"x\"",
    "\"systemUUID\":\"\"",
    "\"addresses\":[{\"type\":\"InternalIP\",\"address\":\"::\"}]",
    "\"restartPolicy\":\"Always\"",
    "\"overhead\":{\"cpu\":\"9E\"}",
];

/// Random worlds with all features of the scheduler, as the judge gets them.
fn worlds() -> Vec<judge::World> {
    let numbers = Profile::ALL.into_iter().flat_map(|profile| (0..6).map(move |number| (profile, number)));
    numbers.map(|(profile, number)| judge::World::random(number, profile)).collect()
}

/// Some objects of each kind, the longest first: they have the most fields.
fn objects(worlds: &[judge::World]) -> Vec<Value> {
    const OF_A_KIND: usize = 12;
    let mut by_kind: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for world in worlds {
        let Value::Array(items) = world.to_list_json()["items"].take() else { panic!("a list") };
        for object in items {
            by_kind.entry(object["kind"].to_string()).or_default().push(object);
        }
    }
    assert_eq!(by_kind.len(), model::KUBERNETES_SOURCES.len(), "{:?}", by_kind.keys());
    let longest = |mut objects: Vec<Value>| {
        objects.sort_by_key(|object| std::cmp::Reverse(object.to_string().len()));
        objects.truncate(OF_A_KIND);
        objects
    };
    by_kind.into_values().flat_map(longest).collect()
}

fn event(object: &Value) -> Option<Event> {
    kubernetes::objects::applied(object).ok().flatten()
}

#[test]
fn number_10_no_kubernetes_object_is_dangerous() {
    let alone = alone();
    let worlds = worlds();
    // Objects that are known before, and a pod to decide about.
    let known: Vec<Event> = {
        let mut list = worlds[Profile::ALL.len()].to_list_json();
        let items = list["items"].as_array_mut().expect("a list");
        items.iter().map(|object| event(object).expect("a valid object")).collect()
    };
    let configuration = Configuration::from_value(&configuration(), &plugins::standard()).expect("a configuration");
    let profile = &configuration.profiles()[0];
    let samples: Vec<Vec<u8>> = objects(&worlds).iter().map(|object| object.to_string().into_bytes()).collect();
    let memory = Memory { fixed_bytes: 512 << 10, bytes_per_byte: 128 };
    let target = Target { name: "kubernetes-objects", samples: &samples, words: WORDS, memory };
    attack(&alone, &target, |Input { bytes, .. }| {
        let Some(event) = serde_json::from_slice(bytes).ok().and_then(|object: Value| event(&object)) else {
            return false;
        };
        let mut world = World::default();
        let pods = [&known[..], std::slice::from_ref(&event)].map(|events| {
            for event in events {
                world.apply(event.clone());
            }
            events.iter().rev().find_map(|event| match event {
                Event::PodApplied(pod) => world.pod_id(&pod.namespace, &pod.name),
                _ => None,
            })
        });
        // A pod that is finished, or has no scheduling facts, is not explained.
        for pod in pods.into_iter().flatten() {
            let _ = explain(&world, pod, profile);
        }
        true
    });
}

fn configuration() -> Value {
    json!({ "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration" })
}

/// A server that gives the same response to every request.
fn server(body: &Arc<Mutex<Bytes>>) -> kubernetes::Client {
    let body = body.clone();
    let service = service_fn(move |_| {
        let body = body.lock().expect("a body").clone();
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::new(body))))
    });
    kubernetes::Client::new(service, "default")
}

#[test]
fn number_10_no_lease_and_no_list_of_records_is_dangerous() {
    let alone = alone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let body = Arc::<Mutex<Bytes>>::default();
    let (lease, records) = runtime.block_on(async {
        let lease = LeaseObject::new(server(&body), "infra".to_owned(), "bridger".to_owned());
        (lease, ConfigMapRecordStore::new(server(&body), "infra".to_owned()))
    });
    let sample = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "bridger", "namespace": "infra", "resourceVersion": "7" },
        "spec": { "holderIdentity": "host-1_abc", "leaseDurationSeconds": 15, "leaseTransitions": 2,
            "acquireTime": "2023-11-14T22:13:20.000000Z", "renewTime": "2023-11-14T22:13:21.500000Z" } });
    let words = ["null", "\"9999-12-31T23:59:59.999999Z\"", "\"-009999-01-01T00:00:00Z\"", "2147483648", "-15"];
    let memory = Memory { fixed_bytes: 512 << 10, bytes_per_byte: 16 };
    let samples = [sample.to_string().into_bytes()];
    let target = Target { name: "lease", samples: &samples, words: &words, memory };
    attack(&alone, &target, |Input { bytes, .. }| {
        *body.lock().expect("a body") = Bytes::copy_from_slice(bytes);
        runtime.block_on(async {
            let Ok(Some(read)) = lease.get().await else { return false };
            // What was read is written again by a clean stop.
            lease.put(&read.record, Some(&read.version)).await.is_ok_and(|stored| stored == read)
        })
    });

    let map = |object: &str, name: &str, text: &str| {
        json!({ "metadata": { "name": object, "resourceVersion": "1" },
            "data": { "name": name, "record": text } })
    };
    let list = json!({ "apiVersion": "v1", "kind": "ConfigMapList", "metadata": { "resourceVersion": "9", "continue": "" },
        "items": [map("bridger-rules-0", "564d0d6e-aaaa/domain-c8", "{\"version\":1,\"rules\":{}}"),
            map(&former_object_name("564d0d6e-aaaa/domain-c9"), "564d0d6e-aaaa/domain-c9", "")] });
    let words = ["\"continue\":\"x\"", "\"data\":{}", "\"record\":\"\"", "\"items\":[", "\"binaryData\":{}"];
    let memory = Memory { fixed_bytes: 256 << 10, bytes_per_byte: 16 };
    let samples = [list.to_string().into_bytes()];
    let target = Target { name: "record-list", samples: &samples, words: &words, memory };
    attack(&alone, &target, |Input { bytes, .. }| {
        *body.lock().expect("a body") = Bytes::copy_from_slice(bytes);
        runtime.block_on(records.load()).is_ok_and(|stored| {
            stored.values().for_each(|stored| drop(drs::record::from_text(&stored.text)));
            !stored.is_empty()
        })
    });
}
