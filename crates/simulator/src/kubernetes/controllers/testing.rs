//! A cluster that tests of the controllers drive step by step.
//!
//! It binds pods to the nodes round-robin, so that these tests need no placer.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::clock::SimTime;
use crate::kubernetes::deletion::{self, DeleteOptions};
use crate::kubernetes::json::{put, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::store::ObjectKey;
use crate::kubernetes::{Config, Happening, Kubernetes, NodeMachine, defaults, pod};
use crate::seed::Seed;

pub(crate) struct Bench {
    pub kubernetes: Kubernetes,
    pub now: SimTime,
    pub happenings: Vec<String>,
    nodes: u8,
    bound: usize,
}

impl Bench {
    pub(crate) fn with_nodes(nodes: u8) -> Bench {
        Bench::with(nodes, &Config::default())
    }

    pub(crate) fn with(nodes: u8, config: &Config) -> Bench {
        let now = SimTime::VIRTUAL_START;
        let kubernetes = Kubernetes::new(config, Seed(1), now);
        let mut bench = Bench { kubernetes, now, happenings: Vec::new(), nodes, bound: 0 };
        if bench.get(KindId::NAMESPACE, "default").is_none() {
            bench.create(
                KindId::NAMESPACE,
                json!({ "metadata": { "name": "default" }, "spec": { "finalizers": ["kubernetes"] } }),
            );
        }
        for number in 1..=nodes {
            bench.start_machine(number);
        }
        bench.settle();
        bench
    }

    pub(crate) fn start_machine(&mut self, number: u8) {
        let machine = NodeMachine {
            name: format!("node-{number}"),
            bios_uuid: Uuid::from_bytes([number; 16]),
            ip_address: format!("192.0.2.{number}"),
            cpu_count: 8,
            memory_mib: 32 * 1024,
        };
        self.kubernetes.machine_started(&machine, self.now);
        self.settle();
    }

    pub(crate) fn stop_machine(&mut self, node: &str) {
        self.kubernetes.machine_stopped(node, bios_uuid_of(node), self.now);
        self.settle();
    }

    pub(crate) fn destroy_machine(&mut self, node: &str) {
        self.kubernetes.machine_destroyed(node, bios_uuid_of(node), self.now);
        self.settle();
    }

    pub(crate) fn get(&self, kind: KindId, name: &str) -> Option<Arc<Value>> {
        let namespace = if kind.kind().namespaced { "default" } else { "" };
        self.kubernetes.store().get(kind, namespace, name).cloned()
    }

    pub(crate) fn list(&self, kind: KindId) -> Vec<Arc<Value>> {
        self.kubernetes.store().list(kind, None).cloned().collect()
    }

    pub(crate) fn pods(&self) -> Vec<Arc<Value>> {
        self.list(KindId::POD)
    }

    pub(crate) fn create(&mut self, kind: KindId, mut object: Value) {
        defaults::apply(kind, &mut object, self.kubernetes.store());
        self.kubernetes.store_mut().create(kind, object, self.now).unwrap();
        self.settle();
    }

    /// A pod with one container, merged with `metadata` and `spec` of `extra`.
    pub(crate) fn create_pod(&mut self, name: &str, extra: &Value) {
        let mut pod = json!({ "spec": { "containers": [{ "name": "c", "image": "i" }] } });
        for part in ["metadata", "spec"] {
            for (key, value) in extra[part].as_object().into_iter().flatten() {
                put(&mut pod, &[part, key], value.clone());
            }
        }
        put(&mut pod, &["metadata", "name"], json!(name));
        put(&mut pod, &["metadata", "namespace"], json!("default"));
        put(&mut pod, &["status", "phase"], json!("Pending"));
        self.kubernetes.store_mut().create(KindId::POD, pod, self.now).unwrap();
        self.settle();
    }

    pub(crate) fn edit(&mut self, kind: KindId, name: &str, edit: impl FnOnce(&mut Value)) {
        let namespace = if kind.kind().namespaced { "default" } else { "" };
        self.kubernetes.store_mut().edit(kind, namespace, name, edit).unwrap();
        self.settle();
    }

    pub(crate) fn delete(&mut self, kind: KindId, name: &str) {
        self.delete_with(kind, name, &DeleteOptions::default());
    }

    pub(crate) fn delete_with(&mut self, kind: KindId, name: &str, options: &DeleteOptions) {
        let namespace = if kind.kind().namespaced { "default" } else { "" };
        deletion::delete(self.kubernetes.store_mut(), kind, namespace, name, options, self.now).unwrap();
        self.settle();
    }

    /// Lets this many seconds pass, and a tenth of a second for the controllers.
    pub(crate) fn run_for_seconds(&mut self, seconds: u64) {
        self.run_watching(seconds, |_| ());
    }

    /// Like [`Bench::run_for_seconds`], but calls `look` after every step.
    pub(crate) fn run_watching(&mut self, seconds: u64, mut look: impl FnMut(&Bench)) {
        let end = self.now.after(Duration::from_millis(seconds * 1000 + 100));
        let mut steps = 0;
        while let Some(due) = self.kubernetes.next_due().filter(|due| *due <= end) {
            steps += 1;
            assert!(steps < 200_000, "the controllers do not converge; the last lines: {:#?}", self.last_lines());
            self.now = self.kubernetes.step(due.max(self.now));
            self.settle();
            look(self);
        }
        self.now = end;
    }

    fn last_lines(&self) -> &[String] {
        &self.happenings[self.happenings.len().saturating_sub(10)..]
    }

    fn settle(&mut self) {
        self.kubernetes.observe(self.now);
        self.bind();
        for happening in self.kubernetes.take_happenings() {
            self.note(&happening);
        }
    }

    fn note(&mut self, happening: &Happening) {
        self.happenings.push(format!("{} {happening}", self.now));
    }

    fn bind(&mut self) {
        if self.nodes == 0 {
            return;
        }
        let unbound: Vec<ObjectKey> = self
            .pods()
            .iter()
            .filter(|object| text(&object["spec"]["nodeName"]).is_empty() && pod::is_active(object))
            .map(|object| ObjectKey::of(object))
            .collect();
        for key in unbound {
            let node = format!("node-{}", self.bound % usize::from(self.nodes) + 1);
            self.bound += 1;
            self.kubernetes
                .store_mut()
                .edit(KindId::POD, &key.namespace, &key.name, |pod| put(pod, &["spec", "nodeName"], json!(node)))
                .unwrap();
        }
        self.kubernetes.observe(self.now);
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let run = || {
        let mut bench = Bench::with_nodes(3);
        bench.create(
            KindId::DEPLOYMENT,
            json!({ "metadata": { "name": "web", "namespace": "default" }, "spec": { "replicas": 5,
                "selector": { "matchLabels": { "app": "web" } },
                "template": { "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{ "name": "c", "image": "one" }] } } } }),
        );
        bench.run_for_seconds(30);
        bench.stop_machine("node-2");
        bench.run_for_seconds(600);
        bench.start_machine(2);
        bench.edit(KindId::DEPLOYMENT, "web", |object| {
            object["spec"]["template"]["spec"]["containers"][0]["image"] = json!("two");
        });
        bench.run_for_seconds(600);
        (bench.happenings, bench.kubernetes.version())
    };
    let (first, second) = (run(), run());
    assert_eq!(first, second);
    assert!(first.0.iter().any(|line| line.ends_with("deployment default/web rolled out revision 2")), "{first:#?}");
}

#[test]
fn after_a_compaction_everything_is_reconciled_again() {
    let mut bench = Bench::with_nodes(1);
    bench.create_pod("p", &json!({}));
    let store = bench.kubernetes.store_mut();
    for _ in 0..3 {
        store
            .create(
                KindId::CONFIG_MAP,
                json!({ "metadata": { "generateName": "c", "namespace": "default" } }),
                SimTime::VIRTUAL_START,
            )
            .unwrap();
    }
    store.edit(KindId::NODE, "", "node-1", |node| put(node, &["spec", "unschedulable"], json!(true))).unwrap();
    store.compact(0);
    bench.run_for_seconds(10);
    bench.edit(
        KindId::CONFIG_MAP,
        &{
            let first = bench.list(KindId::CONFIG_MAP)[0].clone();
            text(&first["metadata"]["name"]).to_owned()
        },
        |map| put(map, &["data", "a"], json!("b")),
    );
    bench.run_for_seconds(10);
    assert!(pod::is_ready(&bench.get(KindId::POD, "p").unwrap()));
    assert!(!bench.get(KindId::NODE, "node-1").unwrap()["spec"]["taints"].is_null());
}

#[test]
fn five_thousand_nodes_register_quickly_and_idle_cheaply() {
    let now = SimTime::VIRTUAL_START;
    let begun = std::time::Instant::now();
    let mut kubernetes = Kubernetes::new(&Config::default(), Seed(1), now);
    for number in 0..5000_u32 {
        kubernetes.machine_started(
            &NodeMachine {
                name: format!("node-{number}"),
                bios_uuid: Uuid::from_u128(u128::from(number)),
                ip_address: "192.0.2.1".to_owned(),
                cpu_count: 8,
                memory_mib: 32 * 1024,
            },
            now,
        );
        kubernetes.observe(now);
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "registering took {took:?}");
    let mut steps = 0;
    while kubernetes.next_due().is_some_and(|due| due <= now.after(Duration::from_secs(60))) {
        kubernetes.step(now.after(Duration::from_secs(60)));
        kubernetes.observe(now);
        steps += 1;
    }
    assert!(steps < 1500, "{steps} steps in an idle minute: one heartbeat per node every five minutes is about 1000");
}

/// The BIOS UUID of the machine that [`Bench::start_machine`] starts under this name.
fn bios_uuid_of(node: &str) -> Uuid {
    Uuid::from_bytes([node.strip_prefix("node-").and_then(|number| number.parse().ok()).expect("a node's name"); 16])
}
