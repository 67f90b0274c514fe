//! The events of `bridger run` as an extender, on a real kube-apiserver: on which pods, and what they say.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use testkit::{Bridger, ControlPlane, eventually};

const SOON: Duration = Duration::from_secs(30);
const TENANT: &str = "tenant";

fn pod(name: &str, change: Value) -> Result<Pod> {
    let mut pod = json!({ "metadata": { "name": name, "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "image": "none" }] } });
    if let (Some(spec), Value::Object(change)) = (pod["spec"].as_object_mut(), change) {
        spec.extend(change);
    }
    Ok(serde_json::from_value(pod)?)
}

#[tokio::test]
async fn number_4_only_known_pods_get_an_event_and_none_names_a_pod_of_another_namespace() -> Result<()> {
    let control_plane = ControlPlane::start_with(&["--disable-admission-plugins=TaintNodesByCondition"]).await?;
    let client = control_plane.client().await?;
    control_plane.namespace(TENANT).await?;
    let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(client.clone()), Api::default_namespaced(client.clone()));
    let labels = json!({ "kubernetes.io/hostname": "n1", "alpha.cna.vmware.com/host": "h1" });
    let node = json!({ "metadata": { "name": "n1", "labels": labels } });
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    // On the node is a pod of a tenant, which the others avoid.
    let blocking = pod("blocking-name", json!({ "nodeName": "n1" }))?;
    Api::namespaced(client.clone(), TENANT).create(&PostParams::default(), &blocking).await?;
    let apart = json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
        { "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } },
          "namespaces": [TENANT] }] } } });
    let known = pods.create(&PostParams::default(), &pod("known", apart.clone())?).await?;
    let mut unknown = pod("unknown", apart)?;
    unknown.metadata.namespace = Some("default".to_owned());
    unknown.metadata.uid = Some("7c2f0b5e-6f0a-4a53-9d8a-0d6a5b1c2d3e".to_owned());

    let environment = [("KUBECONFIG", control_plane.kubeconfig().display().to_string())];
    let arguments = ["run", "--port", "0", "--extender-port", "0", "--leader-elect=false"];
    let mut bridger = Bridger::start(&arguments, &environment)?;
    bridger.prints("Listening", SOON).await?;
    let rejected = async |pod: &Pod| {
        let answer = bridger.post("/filter", &json!({ "Pod": pod, "NodeNames": ["n1"] })).await?;
        let is_rejected = answer["NodeNames"].as_array().is_none_or(Vec::is_empty);
        ensure!(is_rejected && answer["Error"].as_str().unwrap_or_default().is_empty(), "{answer}");
        Ok(())
    };
    eventually(SOON, || rejected(&unknown)).await?;
    let events: Api<Event> = Api::all(client);
    let found = eventually(SOON, || async {
        // Each request is a reason for an event, which is posted when the pod is known.
        rejected(&known).await?;
        let listed = events.list(&ListParams::default().fields("reason=NoHostFits")).await?.items;
        ensure!(!listed.is_empty(), "no event");
        Ok(listed)
    })
    .await?;
    let about: Vec<Option<&str>> = found.iter().map(|event| event.involved_object.name.as_deref()).collect();
    assert_eq!(about, [Some("known")]);
    let message = found[0].message.as_deref().unwrap_or_default();
    ensure!(message.contains("n1") || message.contains("h1"), "{message}");
    ensure!(!message.contains("blocking-name"), "{message}");
    Ok(())
}
