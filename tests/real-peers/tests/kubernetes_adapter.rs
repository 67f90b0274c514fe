//! Tests the Kubernetes adapter with a real kube-apiserver: its watches, its writes, and its errors without permission.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use engine::ports::{
    EventRecord, EventSink, LabelChanges, LabelStore, NodeBefore, Occurrence, PortError, Regarding, Severity,
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kubernetes::{
    Access, ConnectError, Connection, EventWriter, KubernetesCredentials, Need, NodeLabelWriter, watch_needs,
};
use model::event::{Event, NamespaceFacts, NodeFacts, PodFacts, Source};
use model::{Part, Parts};
use serde_json::{Value, json};
use testkit::{ControlPlane, eventually};
use tokio::sync::mpsc;

const HOST: &str = "alpha.cna.vmware.com/host";
const UUID: &str = "4230f3a1-1c5f-9d3b-6d5a-0f5b1f6f2f01";
/// Enough for a slow machine; the awaited changes usually take milliseconds.
const LIMIT: Duration = Duration::from_secs(60);

async fn connect_with(kubeconfig: &Path) -> Result<Connection> {
    let credentials = KubernetesCredentials::choose(Some(kubeconfig), None, None);
    Ok(kubernetes::connect(&credentials).await?)
}

fn needs() -> Vec<Need> {
    let done = Access::of(Part::NodeLabels).iter().flat_map(|access| access.needs());
    watch_needs(Part::NodeLabels.into()).chain(done.copied()).collect()
}

/// The state that a receiver derives from the events. By contract, a relist replaces it.
#[derive(Default)]
struct Picture {
    nodes: BTreeMap<String, NodeFacts>,
    pods: BTreeMap<String, PodFacts>,
    namespaces: BTreeMap<String, NamespaceFacts>,
    /// `began`, `ended` and `lost`, per source, in order.
    turns: BTreeMap<Source, Vec<&'static str>>,
    listed: BTreeMap<Source, Vec<String>>,
}

impl Picture {
    fn apply(&mut self, event: Event) {
        match event {
            Event::RelistBegan(source) => {
                self.turns.entry(source).or_default().push("began");
                self.listed.insert(source, Vec::new());
            }
            Event::RelistEnded(source) => {
                self.turns.entry(source).or_default().push("ended");
                let listed = self.listed.remove(&source).unwrap_or_default();
                match source {
                    Source::Nodes => self.nodes.retain(|key, _| listed.contains(key)),
                    Source::Pods => self.pods.retain(|key, _| listed.contains(key)),
                    Source::Namespaces => self.namespaces.retain(|key, _| listed.contains(key)),
                    Source::Workload(_) | Source::DisruptionBudgets | Source::Volume(_) | Source::Vcenter(_) => (),
                }
            }
            Event::Lost(source) => self.turns.entry(source).or_default().push("lost"),
            Event::NodeApplied(node) => {
                self.note(Source::Nodes, &node.name);
                self.nodes.insert(node.name.clone(), node);
            }
            Event::NodeDeleted { name } => drop(self.nodes.remove(&name)),
            Event::PodApplied(pod) => {
                let key = format!("{}/{}", pod.namespace, pod.name);
                self.note(Source::Pods, &key);
                self.pods.insert(key, pod);
            }
            Event::PodDeleted { namespace, name } => drop(self.pods.remove(&format!("{namespace}/{name}"))),
            Event::NamespaceApplied(namespace) => {
                self.note(Source::Namespaces, &namespace.name);
                self.namespaces.insert(namespace.name.clone(), namespace);
            }
            Event::NamespaceDeleted { name } => drop(self.namespaces.remove(&name)),
            other => panic!("not of Kubernetes: {other:?}"),
        }
    }

    fn note(&mut self, source: Source, key: &str) {
        if let Some(listed) = self.listed.get_mut(&source) {
            listed.push(key.to_owned());
        }
    }

    /// Whether this was the last turn of every source.
    fn all_are(&self, turn: &str) -> bool {
        [Source::Nodes, Source::Pods, Source::Namespaces]
            .iter()
            .all(|source| self.turns.get(source).and_then(|turns| turns.last()).is_some_and(|last| *last == turn))
    }
}

/// A running watch, and the state so far.
struct Watching {
    events: mpsc::Receiver<Event>,
    picture: Picture,
    task: tokio::task::JoinHandle<()>,
}

impl Watching {
    fn start(connection: &Connection) -> Watching {
        // A small channel, so that the watch has to wait for its receiver.
        let (sender, events) = mpsc::channel(8);
        // Without the extender, scheduling fields are not read.
        let parts = Parts::of(&[Part::NodeLabels, Part::DrsRules]);
        let task = tokio::spawn(kubernetes::watch(connection.client.clone(), sender, 1, parts));
        Watching { events, picture: Picture::default(), task }
    }

    async fn until(&mut self, what: &str, is_so: impl Fn(&Picture) -> bool) -> Result<()> {
        let deadline = tokio::time::Instant::now() + LIMIT;
        while !is_so(&self.picture) {
            match tokio::time::timeout_at(deadline, self.events.recv()).await {
                Ok(Some(event)) => self.picture.apply(event),
                Ok(None) => bail!("the watch ended while waiting until {what}"),
                Err(_) => bail!("not within {} s: {what}; received: {:?}", LIMIT.as_secs(), self.picture.turns),
            }
        }
        Ok(())
    }

    /// Drops the receiver. The watch then ends by itself.
    async fn end(self) -> Result<()> {
        drop(self.events);
        tokio::time::timeout(Duration::from_secs(5), self.task).await.context("the watch does not end")??;
        Ok(())
    }
}

async fn create_node(client: &kube::Client, node: Value) -> Result<Node> {
    Ok(Api::all(client.clone()).create(&PostParams::default(), &serde_json::from_value(node)?).await?)
}

#[tokio::test]
async fn the_watch_reports_added_changed_and_deleted_nodes() -> Result<()> {
    let control_plane = ControlPlane::shared().await;
    let connection = connect_with(control_plane.kubeconfig()).await?;
    let mut watching = Watching::start(&connection);
    watching.until("all three are in sync", |picture| picture.all_are("ended")).await?;

    let created = create_node(
        connection.client.client(),
        json!({
            "metadata": { "name": "seen-1", "labels": { "zone": "a" } },
            "spec": { "providerID": format!("vsphere://{UUID}") },
            "status": {
                "nodeInfo": {
                    "systemUUID": UUID.to_uppercase(), "machineID": "", "bootID": "", "kernelVersion": "", "osImage": "",
                    "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
                    "operatingSystem": "linux", "architecture": "amd64",
                },
                "addresses": [
                    { "type": "InternalIP", "address": "10.0.0.9" },
                    { "type": "Hostname", "address": "Seen-1" },
                ],
                "conditions": [{ "type": "Ready", "status": "True", "reason": "", "message": "",
                    "lastHeartbeatTime": null, "lastTransitionTime": null }],
            },
        }),
    )
    .await?;
    watching.until("the node is seen", |picture| picture.nodes.contains_key("seen-1")).await?;
    let uuid = UUID.parse().ok();
    assert_eq!(
        watching.picture.nodes["seen-1"],
        NodeFacts {
            scheduling: None,
            name: "seen-1".to_owned(),
            uid: created.metadata.uid.context("a uid")?,
            labels: [("zone".to_owned(), "a".to_owned())].into(),
            system_uuid: uuid,
            provider_uuid: uuid,
            ip_addresses: vec!["10.0.0.9".parse()?],
            dns_names: vec!["seen-1".to_owned()],
            ready: true,
        }
    );

    let kubectl = control_plane.kubectl();
    kubectl.run(&["label", "node", "seen-1", "zone=b", "--overwrite"]).await?;
    watching.until("the label changes", |picture| picture.nodes["seen-1"].labels["zone"] == "b").await?;
    kubectl.run(&["delete", "node", "seen-1"]).await?;
    watching.until("the node is deleted", |picture| !picture.nodes.contains_key("seen-1")).await?;
    assert!(watching.picture.turns.values().all(|turns| turns == &["began", "ended"]), "a source was lost");
    watching.end().await
}

#[tokio::test]
async fn the_watch_reports_added_bound_finished_and_deleted_pods() -> Result<()> {
    let control_plane = ControlPlane::shared().await;
    let namespace = control_plane.namespace("pods-seen").await?;
    let connection = connect_with(control_plane.kubeconfig()).await?;
    let kubectl = control_plane.kubectl();
    let pod = |name: &str, node: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": namespace, "labels": { "app": name } },
            "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "none" }] },
        })
        .to_string()
    };
    kubectl.run_with(&["create", "-f", "-"], &pod("early", Value::Null)).await?;
    kubectl.run_with(&["create", "-f", "-"], &pod("done", json!("some-node"))).await?;
    let finish = json!({ "status": { "phase": "Succeeded" } }).to_string();
    let finish = ["patch", "pod", "done", "-n", &namespace, "--subresource=status", "--type=merge", "-p", &finish];
    kubectl.run(&finish).await?;

    let mut watching = Watching::start(&connection);
    watching.until("the pods are listed", |picture| picture.all_are("ended")).await?;
    assert_eq!(watching.picture.pods["pods-seen/early"].labels["app"], "early");
    assert!(!watching.picture.pods.contains_key("pods-seen/done"), "a finished pod must not be listed");

    kubectl.run_with(&["create", "-f", "-"], &pod("bound", json!("some-node"))).await?;
    let node_of = |picture: &Picture, key: &str| picture.pods.get(key).and_then(|pod| pod.node.clone());
    watching
        .until("the pod is bound", |picture| node_of(picture, "pods-seen/bound").as_deref() == Some("some-node"))
        .await?;
    // No kubelet confirms the deletion, so the pod stays until it is deleted with force.
    kubectl.run(&["delete", "pod", "bound", "-n", &namespace, "--wait=false"]).await?;
    watching.until("the pod is terminating", |picture| picture.pods["pods-seen/bound"].terminating).await?;
    kubectl.run(&["delete", "pod", "bound", "-n", &namespace, "--force", "--grace-period=0"]).await?;
    watching.until("the pod is deleted", |picture| !picture.pods.contains_key("pods-seen/bound")).await?;

    let fail = finish.map(|word| if word == "done" { "early" } else { word });
    kubectl.run(&fail).await?;
    watching.until("the finished pod is removed", |picture| !picture.pods.contains_key("pods-seen/early")).await?;
    watching.end().await
}

#[tokio::test]
async fn the_watch_reports_added_changed_and_deleted_namespaces() -> Result<()> {
    let control_plane = ControlPlane::shared().await;
    let connection = connect_with(control_plane.kubeconfig()).await?;
    let mut watching = Watching::start(&connection);
    control_plane.namespace("short-lived").await?;
    watching.until("it is seen", |picture| picture.namespaces.contains_key("short-lived")).await?;
    control_plane.kubectl().run(&["label", "namespace", "short-lived", "team=a"]).await?;
    let team = |picture: &Picture| picture.namespaces["short-lived"].labels.get("team").cloned();
    watching.until("its label is seen", |picture| team(picture).as_deref() == Some("a")).await?;

    // No controller runs here that would finish the deletion.
    let namespaces: Api<Namespace> = Api::all(connection.client.client().clone());
    namespaces.delete("short-lived", &DeleteParams::default()).await?;
    let mut namespace = serde_json::to_value(namespaces.get("short-lived").await?)?;
    namespace["spec"]["finalizers"] = json!([]);
    let request = http::Request::put("/api/v1/namespaces/short-lived/finalize")
        .header("content-type", "application/json")
        .body(namespace.to_string().into_bytes())?;
    connection.client.client().request_text(request).await?;
    watching.until("it is deleted", |picture| !picture.namespaces.contains_key("short-lived")).await?;
    watching.end().await
}

/// The object without the fields that every write changes.
fn comparable(node: &Node) -> Result<Value> {
    let mut value = serde_json::to_value(node)?;
    let metadata = value["metadata"].as_object_mut().context("metadata")?;
    metadata.remove("resourceVersion");
    metadata.remove("managedFields");
    Ok(value)
}

#[tokio::test]
async fn a_label_patch_changes_only_its_own_keys() -> Result<()> {
    let control_plane = ControlPlane::shared().await;
    let connection = connect_with(control_plane.kubeconfig()).await?;
    let before = create_node(
        connection.client.client(),
        json!({
            "metadata": {
                "name": "labelled", "labels": { "zone": "a", "other/host": "x" }, "annotations": { "note": "keep" },
            },
            "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }], "unschedulable": true },
        }),
    )
    .await?;
    let nodes: Api<Node> = Api::all(connection.client.client().clone());
    let labels = NodeLabelWriter::new(connection.client.clone());
    let change = |value: Option<&str>| LabelChanges::from([(HOST.to_owned(), value.map(str::to_owned))]);

    let uid = before.metadata.uid.clone().context("a UID")?;
    let seen = |value: Option<&str>| NodeBefore { uid: uid.clone(), labels: change(value), has_labels: true };
    labels.change_labels("labelled", &seen(None), &change(Some("esx-1"))).await?;
    let after = nodes.get("labelled").await?;
    let mut expected = comparable(&before)?;
    expected["metadata"]["labels"][HOST] = json!("esx-1");
    assert_eq!(comparable(&after)?, expected);
    let managed = serde_json::to_value(&after.metadata.managed_fields)?;
    let ours: Vec<&Value> =
        managed.as_array().context("fields")?.iter().filter(|entry| entry["manager"] == "bridger").collect();
    assert_eq!(ours.len(), 1);
    assert_eq!(ours[0]["operation"], "Update");
    assert_eq!(ours[0]["fieldsV1"], json!({ "f:metadata": { "f:labels": { (format!("f:{HOST}")): {} } } }));

    // Repeating the patch changes nothing, not even the resource version.
    labels.change_labels("labelled", &seen(Some("esx-1")), &change(Some("esx-1"))).await?;
    assert_eq!(nodes.get("labelled").await?.metadata.resource_version, after.metadata.resource_version);

    // Changes of other clients are kept.
    let others = Patch::Merge(json!({ "metadata": { "labels": { "zone": "b", "new": "1" } } }));
    nodes.patch("labelled", &PatchParams::default(), &others).await?;
    labels.change_labels("labelled", &seen(Some("esx-1")), &change(Some("esx-2"))).await?;
    expected["metadata"]["labels"] = json!({ "zone": "b", "new": "1", "other/host": "x", (HOST): "esx-2" });
    assert_eq!(comparable(&nodes.get("labelled").await?)?, expected);

    // Late writes change nothing: those made for another value, for a node without labels, or for an earlier node.
    let another = NodeBefore { uid: "another".to_owned(), ..seen(Some("esx-2")) };
    let unlabelled = NodeBefore { has_labels: false, ..seen(None) };
    for before in [seen(Some("esx-1")), seen(None), another, unlabelled] {
        let outcome = labels.change_labels("labelled", &before, &change(Some("esx-3"))).await;
        let is_refused = matches!(outcome, Err(PortError::Transient(ref why)) if why.contains("changed it meanwhile"));
        assert!(is_refused, "{before:?}: {outcome:?}");
    }
    assert_eq!(comparable(&nodes.get("labelled").await?)?, expected);

    labels.change_labels("labelled", &seen(Some("esx-2")), &change(None)).await?;
    expected["metadata"]["labels"] = json!({ "zone": "b", "new": "1", "other/host": "x" });
    assert_eq!(comparable(&nodes.get("labelled").await?)?, expected);

    let outcome = labels.change_labels("no-such-node", &seen(None), &change(Some("esx-1"))).await;
    assert_eq!(outcome, Err(PortError::NotFound("node no-such-node".to_owned())));
    let outcome = labels.change_labels("labelled", &seen(None), &change(Some("not a label value"))).await;
    assert!(matches!(outcome, Err(PortError::Permanent(ref why)) if why.contains("HTTP 422")), "{outcome:?}");
    let unprivileged = connect_with(&control_plane.kubeconfig_for("label-unprivileged", &[])?).await?;
    let unprivileged = NodeLabelWriter::new(unprivileged.client);
    let outcome = unprivileged.change_labels("labelled", &seen(None), &change(Some("esx-1"))).await;
    assert!(matches!(outcome, Err(PortError::Permanent(ref why)) if why.contains("HTTP 403")), "{outcome:?}");

    // The first label of a node that has none.
    let bare = create_node(connection.client.client(), json!({ "metadata": { "name": "bare" } })).await?;
    let uid = bare.metadata.uid.context("a UID")?;
    let before = NodeBefore { uid, labels: change(None), has_labels: false };
    labels.change_labels("bare", &before, &change(Some("esx-1"))).await?;
    let found = nodes.get("bare").await?.metadata.labels.unwrap_or_default();
    assert_eq!(found.get(HOST).map(String::as_str), Some("esx-1"));
    Ok(())
}

fn record(regarding: Regarding, severity: Severity, reason: &'static str, message: &str) -> EventRecord {
    let occurrence = Occurrence { regarding, severity, reason, message: message.to_owned(), reporter: None };
    EventRecord { occurrence, count: 1, since: Duration::ZERO }
}

#[tokio::test]
async fn kubectl_describe_shows_recorded_events() -> Result<()> {
    let control_plane = ControlPlane::shared().await;
    let namespace = control_plane.namespace("noticed").await?;
    let connection = connect_with(control_plane.kubeconfig()).await?;
    let node = create_node(connection.client.client(), json!({ "metadata": { "name": "noticed" } })).await?;
    let kubectl = control_plane.kubectl();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p1", "namespace": namespace },
        "spec": { "containers": [{ "name": "main", "image": "none" }] },
    });
    kubectl.run_with(&["create", "-f", "-"], &pod.to_string()).await?;
    let pod_uid = kubectl.run(&["get", "pod", "p1", "-n", &namespace, "-o", "jsonpath={.metadata.uid}"]).await?;

    let writer = EventWriter::new(connection.client.clone(), Arc::new(jiff::Timestamp::now));
    let uid = node.metadata.uid.context("a uid")?;
    let about_node = Regarding::Node { name: "noticed".to_owned(), uid };
    let about_pod = Regarding::Pod { namespace: namespace.clone(), name: "p1".to_owned(), uid: pod_uid };
    let post = async |about: &Regarding, severity, reason, message: &str| {
        writer.post(&record(about.clone(), severity, reason, message)).await
    };
    post(&about_node, Severity::Normal, "HostChanged", "moved from esx-1 to esx-2").await?;
    post(&about_node, Severity::Normal, "HostChanged", "moved from esx-2 to esx-1").await?;
    post(&about_pod, Severity::Warning, "RuleCapped", &format!("too few hosts {}", "ä".repeat(2000))).await?;

    let shown = kubectl.run(&["describe", "node", "noticed"]).await?;
    for part in ["Normal  HostChanged", "bridger  moved from esx-1 to esx-2", "bridger  moved from esx-2 to esx-1"] {
        assert!(shown.contains(part), "{part} is not in:\n{shown}");
    }
    let shown = kubectl.run(&["describe", "pod", "p1", "-n", &namespace]).await?;
    assert!(shown.contains("Warning  RuleCapped") && shown.contains("bridger  too few hosts"), "{shown}");

    let unprivileged = connect_with(&control_plane.kubeconfig_for("event-unprivileged", &[])?).await?;
    let writer = EventWriter::new(unprivileged.client, Arc::new(jiff::Timestamp::now));
    let outcome = writer.post(&record(about_node, Severity::Normal, "HostChanged", "no")).await;
    assert!(matches!(outcome, Err(PortError::Permanent(ref why)) if why.contains("HTTP 403")), "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn preflight_identifies_the_server_and_names_denied_permissions() -> Result<()> {
    let control_plane = ControlPlane::shared().await;
    let admin = connect_with(control_plane.kubeconfig()).await?;
    assert_eq!(admin.server, control_plane.url());
    // The server itself creates this namespace, a moment after it is ready.
    let namespaces: Api<Namespace> = Api::all(admin.client.client().clone());
    let system = eventually(LIMIT, || async { Ok(namespaces.get("kube-system").await?) }).await?;
    let facts = kubernetes::preflight(&admin, &needs()).await?;
    assert_eq!(facts.cluster_uid, system.metadata.uid);
    assert!(facts.version.as_deref().is_some_and(|version| version.starts_with("v1.")), "{facts:?}");

    let user = "preflight-user";
    let kubeconfig = control_plane.kubeconfig_for(user, &[])?;
    let connection = connect_with(&kubeconfig).await?;
    let denied = |verb: &str, resource: &str| ConnectError::Denied {
        server: control_plane.url().to_owned(),
        verb: verb.to_owned(),
        resource: resource.to_owned(),
    };
    assert_eq!(kubernetes::preflight(&connection, &needs()).await, Err(denied("list", "nodes")));

    // After each grant, the error names the next missing permission.
    let kubectl = control_plane.kubectl();
    let mut granted = vec![];
    for (grant, missing) in [
        ("nodes=list", Some(("watch", "nodes"))),
        ("nodes=list,watch;pods=list,watch", Some(("list", "namespaces"))),
        ("nodes=list,watch;pods=list,watch;namespaces=list,watch", Some(("patch", "nodes"))),
        ("nodes=list,watch,patch;pods=list,watch;namespaces=list,watch", Some(("create", "events"))),
        ("nodes=list,watch,patch;pods=list,watch;namespaces=list,watch;events=create", Some(("get", "leases"))),
        ("nodes=list,watch,patch;pods=list,watch;namespaces=list,watch;events=create;leases=get,create,patch", None),
    ] {
        let rules: Vec<Value> = grant
            .split(';')
            .filter_map(|rule| rule.split_once('='))
            .map(|(resource, verbs)| {
                let group = if resource == "leases" { "coordination.k8s.io" } else { "" };
                json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs.split(',').collect::<Vec<_>>() })
            })
            .collect();
        let kind = |kind: &str| json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind });
        let (mut role, mut binding) = (kind("ClusterRole"), kind("ClusterRoleBinding"));
        role["metadata"] = json!({ "name": user });
        role["rules"] = json!(rules);
        binding["metadata"] = json!({ "name": user });
        binding["roleRef"] = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user });
        binding["subjects"] = json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }]);
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": [role, binding] });
        kubectl.run_with(&["apply", "-f", "-"], &list.to_string()).await?;
        let expected = missing.map(|(verb, resource)| denied(verb, resource));
        // The authorizer learns of a grant through a watch, so it takes a moment.
        eventually(LIMIT, || async {
            let answer = kubernetes::preflight(&connection, &needs()).await.err();
            if answer == expected { Ok(()) } else { Err(anyhow!("{grant}: {answer:?}")) }
        })
        .await?;
        granted.push(grant);
    }
    assert_eq!(granted.len(), 6);
    Ok(())
}

/// The administrator's kubeconfig, changed.
fn altered(control_plane: &ControlPlane, name: &str, change: impl FnOnce(&mut Value)) -> Result<PathBuf> {
    let original = control_plane.kubeconfig();
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(original)?)?;
    change(&mut config);
    let path = original.with_file_name(name);
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

#[tokio::test]
async fn each_connection_problem_has_a_clear_one_line_error() -> Result<()> {
    let control_plane = ControlPlane::shared().await;
    let token = altered(control_plane, "token.kubeconfig", |config| {
        config["users"][0]["user"] = json!({ "token": "s3cret-token" });
    })?;
    let anonymous = altered(control_plane, "anonymous.kubeconfig", |config| {
        config["users"][0]["user"] = json!({});
    })?;
    let trust = altered(control_plane, "trust.kubeconfig", |config| {
        config["clusters"][0]["cluster"]["certificate-authority-data"].take();
    })?;
    let plain = altered(control_plane, "plain.kubeconfig", |config| {
        config["clusters"][0]["cluster"]["server"] = json!(control_plane.url().replace("https", "http"));
    })?;
    // Nothing listens on port 1.
    let closed = altered(control_plane, "closed.kubeconfig", |config| {
        config["clusters"][0]["cluster"]["server"] = json!("https://127.0.0.1:1");
    })?;
    let name = altered(control_plane, "name.kubeconfig", |config| {
        config["clusters"][0]["cluster"]["server"] = json!("https://no-such-host.invalid:6443");
    })?;
    let cases = [
        (token, "does not accept these credentials (401 Unauthorized)"),
        (anonymous, "does not allow \"create\" on selfsubjectaccessreviews"),
        (trust, "is not trusted"),
        (plain, "unexpected answer: HTTP 400"),
        (closed, "https://127.0.0.1:1 can't be reached: Connection refused"),
        (name, "https://no-such-host.invalid:6443 can't be reached"),
    ];
    for (kubeconfig, expected) in cases {
        let connection = connect_with(&kubeconfig).await?;
        let answer = kubernetes::preflight(&connection, &needs()).await;
        let text = answer.err().with_context(|| format!("{} is accepted", kubeconfig.display()))?.to_string();
        assert!(text.contains(expected), "{text}\nexpected: {expected}");
        assert!(!text.contains("s3cret") && !text.contains('\n'), "{text}");
    }
    Ok(())
}

#[tokio::test]
async fn after_an_api_server_crash_everything_is_listed_again_and_nothing_is_missed() -> Result<()> {
    let mut control_plane = ControlPlane::start().await?;
    let connection = connect_with(control_plane.kubeconfig()).await?;
    // More than one page.
    let created = futures::stream::iter(0..620)
        .map(|number| create_node(connection.client.client(), json!({ "metadata": { "name": format!("n-{number}") } })))
        .buffer_unordered(16)
        .filter(|outcome| std::future::ready(outcome.is_ok()))
        .count()
        .await;
    assert_eq!(created, 620);
    let mut watching = Watching::start(&connection);
    watching.until("all are in sync", |picture| picture.all_are("ended")).await?;
    assert_eq!(watching.picture.nodes.len(), 620);

    control_plane.kill_apiserver();
    watching.until("all three are lost", |picture| picture.all_are("lost")).await?;
    assert_eq!(watching.picture.nodes.len(), 620, "known nodes must be kept");

    control_plane.restart_apiserver().await?;
    // Changes while the watch may not have been restored yet.
    let kubectl = control_plane.kubectl();
    eventually(LIMIT, || async { kubectl.run(&["get", "namespace", "default"]).await }).await?;
    kubectl.run(&["delete", "node", "n-7", "n-8"]).await?;
    kubectl.run(&["label", "node", "n-9", "moved=yes"]).await?;
    create_node(&control_plane.client().await?, json!({ "metadata": { "name": "late" } })).await?;
    let is_current = |picture: &Picture| {
        picture.nodes.len() == 619
            && picture.nodes.contains_key("late")
            && !picture.nodes.contains_key("n-7")
            && picture.nodes["n-9"].labels.contains_key("moved")
    };
    watching.until("the picture is current", |picture| picture.all_are("ended") && is_current(picture)).await?;
    for (source, turns) in &watching.picture.turns {
        assert_eq!(turns[..3], ["began", "ended", "lost"], "{source:?}");
        assert!(turns[3..].contains(&"began"), "{source:?}: {turns:?}");
        assert!(turns.windows(2).all(|pair| pair != ["lost", "lost"]), "{source:?}: {turns:?}");
    }
    // The watch continues.
    kubectl.run(&["delete", "node", "late"]).await?;
    watching.until("a later change is seen", |picture| !picture.nodes.contains_key("late")).await?;
    watching.end().await
}
