//! Runs the real kubectl on `bridger sandbox`.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::{Sandbox, eventually};
use tokio::io::{AsyncBufReadExt, BufReader};

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn kubectl_lists_nodes_and_pods_with_the_usual_columns() -> Result<()> {
    let sandbox = Sandbox::start(&["--hosts", "3", "--nodes", "6"]).await?;
    let kubectl = sandbox.kubectl();
    let nodes = kubectl.run(&["get", "nodes"]).await?;
    let mut lines = nodes.lines();
    let header: Vec<&str> = lines.next().context("a header")?.split_whitespace().collect();
    assert_eq!(header, ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]);
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 6, "{nodes}");
    assert!(rows.iter().all(|row| row[1] == "Ready"), "{nodes}");

    kubectl.run(&["create", "deployment", "web", "--image=nginx", "--replicas=2"]).await?;
    kubectl.run(&["rollout", "status", "deployment/web", "--timeout=60s"]).await?;
    let pods = kubectl.run(&["get", "pods", "-o", "wide"]).await?;
    let header: Vec<&str> = pods.lines().next().context("a header")?.split_whitespace().collect();
    assert_eq!(
        header,
        ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED", "NODE", "READINESS", "GATES"]
    );
    assert_eq!(pods.matches("Running").count(), 2, "{pods}");

    let described = kubectl.run(&["describe", "pods", "-l", "app=web"]).await?;
    for expected in ["Controlled By:", "ReplicaSet/web-", "Scheduled", "Started"] {
        assert!(described.contains(expected), "{expected:?} is missing:\n{described}");
    }
    let node = kubectl.run(&["describe", "node", "node-1"]).await?;
    for expected in ["System UUID:", "ProviderID:", "vsphere://", "Allocated resources"] {
        assert!(node.contains(expected), "{expected:?} is missing:\n{node}");
    }
    Ok(())
}

#[tokio::test]
async fn a_deployment_scales_and_a_watch_shows_it() -> Result<()> {
    let sandbox = Sandbox::start(&["--hosts", "3", "--nodes", "6"]).await?;
    let kubectl = sandbox.kubectl();
    kubectl.run(&["create", "deployment", "web", "--image=nginx", "--replicas=3"]).await?;
    let mut watch = kubectl
        .command(&["get", "pods", "-w", "--no-headers"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(watch.stdout.take().context("its output")?).lines();

    for replicas in [3usize, 5, 1] {
        kubectl.run(&["scale", "deployment/web", &format!("--replicas={replicas}")]).await?;
        eventually(SOON, || async {
            let pods = kubectl.run(&["get", "pods", "-l", "app=web", "--no-headers"]).await?;
            let running = pods.lines().filter(|line| line.contains("Running")).count();
            ensure!(running == replicas && pods.lines().count() == replicas, "expected {replicas}:\n{pods}");
            Ok(())
        })
        .await?;
    }
    let mut terminating = 0;
    while terminating < 4 {
        let line = tokio::time::timeout(SOON, lines.next_line()).await??.context("the watch ended")?;
        terminating += usize::from(line.contains("Terminating"));
    }
    Ok(())
}

#[tokio::test]
async fn apply_label_annotate_cordon_and_delete_work() -> Result<()> {
    let sandbox = Sandbox::start(&["--hosts", "2", "--nodes", "2"]).await?;
    let kubectl = sandbox.kubectl();
    let manifest =
        |value: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  key: {value}\n");
    assert!(kubectl.run_with(&["apply", "-f", "-"], &manifest("one")).await?.contains("created"));
    assert!(kubectl.run_with(&["apply", "-f", "-"], &manifest("one")).await?.contains("unchanged"));
    assert!(kubectl.run_with(&["apply", "-f", "-"], &manifest("two")).await?.contains("configured"));
    let applied =
        kubectl.run_with(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &manifest("three")).await?;
    assert!(applied.contains("serverside-applied"), "{applied}");
    let value = kubectl.run(&["get", "configmap", "settings", "-o", "jsonpath={.data.key}"]).await?;
    assert_eq!(value, "three");

    kubectl.run(&["label", "node", "node-1", "disk=ssd"]).await?;
    kubectl.run(&["annotate", "node", "node-1", "owner=us"]).await?;
    assert_eq!(kubectl.run(&["get", "nodes", "-l", "disk=ssd", "-o", "name"]).await?.trim(), "node/node-1");
    kubectl.run(&["cordon", "node-1"]).await?;
    assert!(kubectl.run(&["get", "node", "node-1"]).await?.contains("Ready,SchedulingDisabled"));
    kubectl.run(&["create", "deployment", "web", "--image=nginx", "--replicas=2"]).await?;
    kubectl.run(&["rollout", "status", "deployment/web", "--timeout=60s"]).await?;
    let on: String = kubectl.run(&["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"]).await?;
    assert_eq!(on, "node-2 node-2");

    kubectl.run(&["delete", "deployment", "web", "--wait=true", "--timeout=60s"]).await?;
    eventually(SOON, || async {
        let pods = kubectl.run(&["get", "pods", "-o", "name"]).await?;
        ensure!(pods.is_empty(), "{pods}");
        Ok(())
    })
    .await?;
    let missing = kubectl.try_run(&["get", "deployment", "web"]).await?;
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("Error from server (NotFound): deployments.apps \"web\" not found"), "{missing:?}");
    Ok(())
}

#[tokio::test]
async fn json_output_and_discovery_are_complete() -> Result<()> {
    let sandbox = Sandbox::start(&["--hosts", "2", "--nodes", "2"]).await?;
    let kubectl = sandbox.kubectl();
    let nodes: serde_json::Value = serde_json::from_str(&kubectl.run(&["get", "nodes", "-o", "json"]).await?)?;
    assert_eq!(nodes["items"].as_array().context("items")?.len(), 2);
    let node = &nodes["items"][0];
    let uuid = node["status"]["nodeInfo"]["systemUUID"].as_str().context("a system UUID")?;
    assert_eq!(node["spec"]["providerID"], format!("vsphere://{uuid}"));

    // The node's VM has the same UUID.
    let vm = sandbox.govc().run(&["object.collect", "-s", "/dc-1/vm/node-1", "config.uuid"]).await?;
    assert_eq!(vm.trim(), uuid);

    let resources = kubectl.run(&["api-resources", "-o", "name"]).await?;
    for expected in ["nodes", "pods", "deployments.apps", "leases.coordination.k8s.io", "poddisruptionbudgets.policy"] {
        assert!(resources.lines().any(|line| line == expected), "{expected:?} is missing:\n{resources}");
    }
    Ok(())
}
