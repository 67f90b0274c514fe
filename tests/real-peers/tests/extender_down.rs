//! While Bridger is down, no profile of a kube-scheduler with its extender places a pod; a scheduler process without the
//! extender does. This is what docs/extender.md advises for Bridger's own pods.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use testkit::{ControlPlane, Scheduler, eventually};

const SOON: Duration = Duration::from_secs(30);
/// A second profile of the kube-scheduler that calls the extender.
const OTHER_PROFILE: &str = "other-profile";
/// The scheduler process without the extender.
const OWN_PROCESS: &str = "own-process";

async fn create_node(control_plane: &ControlPlane) -> Result<()> {
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": "n1", "labels": { "kubernetes.io/hostname": "n1" } },
        "status": {
            "capacity": { "cpu": "8", "memory": "16Gi", "pods": "110" },
            "allocatable": { "cpu": "8", "memory": "16Gi", "pods": "110" },
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Test", "message": "",
                "lastHeartbeatTime": null, "lastTransitionTime": null }],
        },
    }))?;
    Api::all(control_plane.client().await?).create(&PostParams::default(), &node).await?;
    control_plane.make_schedulable("n1").await
}

async fn create_pod(pods: &Api<Pod>, scheduler: &str) -> Result<()> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": format!("for-{scheduler}") },
        "spec": { "schedulerName": scheduler, "containers": [{ "name": "main", "image": "none" }] },
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    Ok(())
}

async fn node_of(pods: &Api<Pod>, scheduler: &str) -> Result<Option<String>> {
    Ok(pods.get(&format!("for-{scheduler}")).await?.spec.and_then(|spec| spec.node_name))
}

#[tokio::test]
async fn number_1_while_the_extender_is_down_only_a_scheduler_process_without_it_places_pods() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    create_node(&control_plane).await?;
    // Nothing listens there.
    let [closed] = testkit::ports::free()?;
    let url = format!("http://127.0.0.1:{closed}/v1");
    let printed = testkit::bridger::run_to_end(&["manifests", "scheduler-config", "--url", &url], &[]).await?;
    let mut config: Value = serde_saphyr::from_str(&printed.stdout)?;
    ensure!(config["extenders"][0]["ignorable"] == false, "{config}");
    let mut second = config["profiles"][0].clone();
    second["schedulerName"] = json!(OTHER_PROFILE);
    config["profiles"].as_array_mut().into_iter().for_each(|profiles| profiles.push(second.clone()));
    let scheduler = Scheduler::start(&control_plane, Some(config)).await?;

    let client = control_plane.client().await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let events: Api<Event> = Api::default_namespaced(client);
    let with_extender = ["default-scheduler", OTHER_PROFILE];
    for name in with_extender.into_iter().chain([OWN_PROCESS]) {
        create_pod(&pods, name).await?;
    }
    for name in with_extender {
        let listed = ListParams::default().fields(&format!("reason=FailedScheduling,involvedObject.name=for-{name}"));
        eventually(SOON, || async {
            let found = events.list(&listed).await?;
            let messages: Vec<String> = found.items.into_iter().filter_map(|event| event.message).collect();
            let names_it = messages.iter().any(|message| message.contains(&format!("{url}/filter")));
            ensure!(names_it, "{name}: {messages:?}\n{}", scheduler.log_tail());
            Ok(())
        })
        .await?;
    }

    let own = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{ "schedulerName": OWN_PROCESS }],
    });
    let own = Scheduler::start(&control_plane, Some(own)).await?;
    eventually(SOON, || async {
        let node = node_of(&pods, OWN_PROCESS).await?;
        ensure!(node.as_deref() == Some("n1"), "{node:?}\n{}", own.log_tail());
        Ok(())
    })
    .await?;
    for name in with_extender {
        ensure!(node_of(&pods, name).await?.is_none(), "the pod of {name} must still be pending");
    }
    Ok(())
}
