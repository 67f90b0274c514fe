//! Compares `bridger explain` on a live cluster, on its `bridger snapshot`, and on kubectl's output: the answers must
//! be the same.

#[path = "scheduler/cluster.rs"]
mod cluster;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use testkit::bridger::run_to_end;
use testkit::{ControlPlane, Sandbox};

const KINDS: &str = "nodes,namespaces,pods,services,replicationcontrollers,replicasets,statefulsets";

async fn explained(arguments: &[&str], environment: &[(&str, String)]) -> Result<Value> {
    let arguments: Vec<&str> = ["explain"].iter().chain(arguments).chain(&["-o", "json"]).copied().collect();
    let finished = run_to_end(&arguments, environment).await?;
    ensure!(finished.code == Some(0), "{arguments:?}: {finished:?}");
    Ok(serde_json::from_str(&finished.stdout)?)
}

#[tokio::test]
async fn explain_gives_the_same_answer_live_from_a_snapshot_and_from_a_list() -> Result<()> {
    let control_plane = ControlPlane::start_with(&["--disable-admission-plugins=TaintNodesByCondition"]).await?;
    let client = control_plane.client().await?;
    let (nodes, pods): (Api<Node>, Api<Pod>) = (Api::all(client.clone()), Api::default_namespaced(client));
    for node in cluster::nodes() {
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    }
    let (own, _) = cluster::pods(70);
    // Some pods already run. No scheduler runs for the rest.
    for (number, mut pod) in own.into_iter().enumerate() {
        if number < 28 {
            pod["spec"]["nodeName"] = json!(cluster::node_name(number));
        }
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    }
    let workdir = testkit::workdir::Workdir::create("explain-live")?;
    let environment = [("KUBECONFIG", control_plane.kubeconfig().display().to_string())];
    let snapshot = workdir.join("snapshot.json").display().to_string();
    let written = run_to_end(&["snapshot", &snapshot], &environment).await?;
    ensure!(written.code == Some(0), "{written:?}");
    let kubectl = control_plane.kubectl();
    let json = workdir.write("list.json", kubectl.run(&["get", KINDS, "-A", "-o", "json"]).await?)?;
    let yaml = workdir.write("list.yaml", kubectl.run(&["get", KINDS, "-A", "-o", "yaml"]).await?)?;
    let (json, yaml) = (json.display().to_string(), yaml.display().to_string());
    let mut rejecting = std::collections::BTreeSet::new();
    // One pod of each policy, running and pending.
    for number in (0..7).chain(28..35) {
        let pod = format!("default/pod-{number}");
        let live = explained(&[&pod, "--unbound"], &environment).await?;
        for file in [&snapshot, &json, &yaml] {
            let from_file = explained(&[&pod, "--unbound", "--snapshot", file], &[]).await?;
            ensure!(live == from_file, "{pod}, {file}:\n{live}\n{from_file}");
        }
        let nodes = live["nodes"].as_array().into_iter().flatten();
        rejecting.extend(nodes.filter_map(|node| node["plugin"].as_str().map(str::to_owned)));
        // The text output for people.
        let table = run_to_end(&["explain", &pod, "--unbound", "--snapshot", &json], &[]).await?;
        ensure!(table.stdout.contains(&format!("of 40 nodes can run {pod}; best: ")), "{table:?}");
    }
    ensure!(rejecting.len() >= 4, "too few plugins rejected a node: {rejecting:?}");
    // The answer for a running pod is its node.
    let bound = explained(&["default/pod-0", "--snapshot", &json], &[]).await?;
    ensure!(bound["best"] == json!([cluster::node_name(0)]) && bound["feasible"] == 1, "{bound}");
    let missing = run_to_end(&["explain", "default/missing", "--snapshot", &json], &[]).await?;
    ensure!(missing.code == Some(2) && missing.stderr.contains("there is no pod default/missing"), "{missing:?}");
    Ok(())
}

#[tokio::test]
async fn explain_works_on_the_sandbox() -> Result<()> {
    let sandbox = Sandbox::start(&["--hosts", "2", "--nodes", "2"]).await?;
    let environment = [("KUBECONFIG", sandbox.kubeconfig().display().to_string())];
    let manifest = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},
        "spec":{"schedulerName":"no-scheduler","containers":[{"name":"main","image":"none"}]}}"#;
    sandbox.kubectl().run_with(&["apply", "-f", "-"], manifest).await?;
    let live = explained(&["default/web"], &environment).await?;
    ensure!(live["feasible"].as_u64() > Some(0), "{live}");
    Ok(())
}
