//! The watcher and client of kube-rs on the embedded API, in process and in virtual time.

mod kubernetes_api_support;

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kubernetes_api_support::{Client, pod};
use serde_json::json;
use simulator::fault::Fault;

/// The state of a watcher's user: the names of the existing objects.
#[derive(Default)]
struct Mirror {
    names: BTreeSet<String>,
    arriving: BTreeSet<String>,
    relists: usize,
}

impl Mirror {
    fn apply(&mut self, event: watcher::Event<ConfigMap>) {
        let name = |object: &ConfigMap| object.metadata.name.clone().unwrap_or_default();
        match event {
            watcher::Event::Apply(object) => {
                self.names.insert(name(&object));
            }
            watcher::Event::Delete(object) => {
                self.names.remove(&name(&object));
            }
            watcher::Event::Init => {
                self.relists += 1;
                self.arriving.clear();
            }
            watcher::Event::InitApply(object) => {
                self.arriving.insert(name(&object));
            }
            watcher::Event::InitDone => self.names = std::mem::take(&mut self.arriving),
        }
    }
}

async fn survives(streaming: bool) {
    let client = Client::new();
    let kube = kube::Client::new(client.router.clone(), "default");
    let maps: Api<ConfigMap> = Api::default_namespaced(kube);
    let config = if streaming { watcher::Config::default().streaming_lists() } else { watcher::Config::default() };
    let mut stream = watcher(maps.clone(), config).default_backoff().boxed();
    let mut mirror = Mirror::default();
    let map = |name: &str| ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
        ..Default::default()
    };
    let mut wanted = BTreeSet::new();
    for round in 0..12 {
        match round % 4 {
            1 => client.add_fault("watch configmaps", Fault::WatchCut { after_events: 0 }, 1),
            2 => client.add_fault("watch configmaps", Fault::WatchGone, 1),
            3 => client.add_fault("*configmaps", Fault::HttpStatus { status: 500 }, 2),
            _ => (),
        }
        let name = format!("m{round}");
        // The injected 500 may also hit the writer, which retries as a client does.
        while maps.create(&PostParams::default(), &map(&name)).await.is_err() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        wanted.insert(name);
        if round % 3 == 2 {
            let gone = format!("m{}", round - 1);
            while maps.delete(&gone, &Default::default()).await.is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            wanted.remove(&gone);
        }
        // Longer than the longest back-off: by then the watcher has caught up in any case.
        let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
        while let Ok(item) = tokio::time::timeout_at(deadline, stream.next()).await {
            if let Some(Ok(event)) = item {
                mirror.apply(event);
            }
        }
        assert_eq!(mirror.names, wanted, "round {round}");
    }
    assert!(mirror.relists > 1, "a 410 makes the watcher list again");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_survives_cuts_gone_versions_and_errors() {
    survives(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_streams_its_lists_survives_them_too() {
    survives(true).await;
}

#[tokio::test(start_paused = true)]
async fn typed_clients_round_trip() {
    let client = Client::new();
    let kube = kube::Client::new(client.router.clone(), "default");
    client.post("/api/v1/nodes", &json!({ "metadata": { "name": "n1" } })).await;
    client.post("/api/v1/namespaces/default/pods", &pod("p", &json!({}))).await;
    let nodes: Api<Node> = Api::all(kube.clone());
    let labels = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "labels": { "host": "h1" } } });
    let node = nodes.patch("n1", &PatchParams::apply("bridger").force(), &Patch::Apply(labels)).await.unwrap();
    assert_eq!(node.metadata.labels.unwrap()["host"], "h1");
    let pods: Api<Pod> = Api::default_namespaced(kube.clone());
    assert_eq!(pods.list(&ListParams::default().fields("spec.nodeName=")).await.unwrap().items.len(), 1);
    assert_eq!(pods.list_metadata(&ListParams::default()).await.unwrap().items.len(), 1);
    pods.evict("p", &Default::default()).await.unwrap();
    assert!(pods.get_opt("p").await.unwrap().is_none(), "a pod that never ran is removed immediately");
    assert_eq!(kube.apiserver_version().await.unwrap().minor, "36");
    assert!(kube.list_api_groups().await.unwrap().groups.iter().any(|group| group.name == "policy"));
}
