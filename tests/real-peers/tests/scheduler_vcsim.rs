//! Runs `bridger scheduler --url` with kube-apiserver and vcsim: the hosts of nodes come live from vSphere, without
//! host labels; decisions follow vMotions, and a host in maintenance gets no pods.

#[path = "machines/mod.rs"]
mod machines;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use machines::{Machines, VMS, anti_affine_spec, host_name, node_name, node_names, unschedulable_message};
use serde_json::json;
use testkit::vcsim::{PASSWORD, USERNAME};
use testkit::{Bridger, eventually};

const SOON: Duration = Duration::from_secs(30);
const IN_MAINTENANCE: u32 = 2;
const TAKES_NO_PODS: &str = "2 node(s) run on a physical host that takes no pods";
const BETWEEN_HOSTS: &str = "2 node(s) didn't match pod anti-affinity rules between physical hosts";

struct Stage {
    machines: Machines,
    bridger: Bridger,
    pods: Api<Pod>,
}

impl Stage {
    async fn start() -> Result<Stage> {
        let machines = Machines::start(&[IN_MAINTENANCE]).await?;
        let kubeconfig = machines.control_plane.kubeconfig_for("system:kube-scheduler", &[])?;
        let environment = [
            ("KUBECONFIG", kubeconfig.display().to_string()),
            ("GOVC_USERNAME", USERNAME.to_owned()),
            ("GOVC_PASSWORD", PASSWORD.to_owned()),
            ("NO_COLOR", "1".to_owned()),
        ];
        let url = machines.vcsim.govc_url().replacen(&format!("{USERNAME}:{PASSWORD}@"), "", 1);
        let mut bridger = Bridger::start(
            &["scheduler", "--port", "0", "--leader-elect=false", "--url", &url, "--insecure"],
            &environment,
        )?;
        bridger.prints("Listening", SOON).await?;
        let pods = Api::default_namespaced(machines.control_plane.client().await?);
        let stage = Stage { machines, bridger, pods };
        eventually(SOON, || async {
            let metrics = stage.bridger.get("/metrics").await?;
            ensure!(metrics.contains(&format!("bridger_nodes{{machine=\"found\"}} {VMS}\n")), "{metrics}");
            Ok(())
        })
        .await?;
        Ok(stage)
    }

    /// Creates a pod with anti-affinity to its app, and with a node selector if a node is given.
    async fn create(&self, app: &str, name: &str, node: Option<&str>) -> Result<()> {
        let mut spec = anti_affine_spec(app, "bridger");
        if let Some(node) = node {
            spec["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
        }
        let pod = json!({ "metadata": { "name": name, "labels": { "app": app } }, "spec": spec });
        self.pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    }

    /// Waits until the pod is placed, and returns its node.
    async fn placed(&self, name: &str) -> Result<String> {
        eventually(SOON, || async {
            let pod = self.pods.get(name).await?;
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            node.with_context(|| format!("{name}: {:?}\n{}", unschedulable_message(&pod), self.bridger.output()))
        })
        .await
    }

    /// Waits until the pod's status has these reasons why it is pending.
    async fn waits_because(&self, name: &str, expected: &[&str]) -> Result<()> {
        eventually(SOON, || async {
            let pod = self.pods.get(name).await?;
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            let message = unschedulable_message(&pod).with_context(|| format!("{name} has no reason, on {node:?}"))?;
            ensure!(expected.iter().all(|text| message.contains(text)), "{name}: {message}");
            Ok(())
        })
        .await
    }

    /// The physical host of every placed pod, from vcsim.
    async fn hosts(&self) -> Result<BTreeMap<String, String>> {
        let mut hosts = BTreeMap::new();
        for pod in self.pods.list(&ListParams::default()).await? {
            if let (Some(name), Some(node)) = (pod.metadata.name, pod.spec.and_then(|spec| spec.node_name)) {
                hosts.insert(name, self.machines.host_of(&node).await?);
            }
        }
        Ok(hosts)
    }
}

#[tokio::test]
async fn hosts_come_live_from_vsphere_and_decisions_follow_moves() -> Result<()> {
    let stage = Stage::start().await?;
    let nodes: Api<Node> = Api::all(stage.machines.control_plane.client().await?);
    for name in node_names() {
        let labels = nodes.get(&name).await?.metadata.labels.unwrap_or_default();
        ensure!(!labels.contains_key("alpha.cna.vmware.com/host"), "{labels:?}");
    }

    // Two hosts can run pods, so two replicas are placed, on different hosts. Each host has another node, but the third
    // replica must not use it.
    stage.create("a", "a1", None).await?;
    stage.create("a", "a2", None).await?;
    let (first, second) = (stage.placed("a1").await?, stage.placed("a2").await?);
    let (kept, freed) = (stage.machines.host_of(&first).await?, stage.machines.host_of(&second).await?);
    ensure!(kept != freed, "{first} and {second} are both on {kept}");
    stage.create("a", "a3", None).await?;
    stage.waits_because("a3", &[TAKES_NO_PODS, BETWEEN_HOSTS]).await?;
    stage.create("c", "c1", Some(&node_name(IN_MAINTENANCE))).await?;
    stage.waits_because("c1", &["1 node(s) run on a physical host that takes no pods"]).await?;

    // The second replica's VM moves to the first one's host. Only because of this move, the third replica is placed.
    stage.machines.migrate(&second, &kept).await?;
    let third = stage.placed("a3").await?;
    ensure!(stage.machines.host_of(&third).await? == freed, "{third} is not on {freed}");

    // Two other pods: the first on that VM, the second with a node on the VM's current host. The second stays pending
    // until the VM moves back, which shows that Bridger observed this move.
    stage.create("b", "b1", Some(&second)).await?;
    stage.placed("b1").await?;
    stage.create("b", "b2", Some(&first)).await?;
    stage.waits_because("b2", &["1 node(s) didn't match pod anti-affinity rules between physical hosts"]).await?;
    stage.pods.delete("a3", &DeleteParams::default().grace_period(0)).await?;
    stage.machines.migrate(&second, &freed).await?;
    stage.placed("b2").await?;
    // So the host that the third replica left is occupied again.
    stage.create("a", "a4", None).await?;
    stage.waits_because("a4", &[TAKES_NO_PODS, BETWEEN_HOSTS]).await?;

    let hosts = stage.hosts().await?;
    let placed: Vec<&str> = hosts.keys().map(String::as_str).collect();
    ensure!(placed == ["a1", "a2", "b1", "b2"], "{hosts:?}");
    ensure!(hosts.values().all(|host| *host != host_name(IN_MAINTENANCE)), "{hosts:?}");
    ensure!(hosts["a1"] != hosts["a2"] && hosts["b1"] != hosts["b2"], "{hosts:?}");
    Ok(())
}
