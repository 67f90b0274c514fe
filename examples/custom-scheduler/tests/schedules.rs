//! The example schedules on a real kube-apiserver: its plugins order, filter, wait, work before the binding and bind.

mod stage;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use stage::{SOON, Stage, arguments};

#[tokio::test]
async fn both_plugins_decide_and_work() -> Result<()> {
    let stage = Stage::start().await?;
    let mut scheduler = stage.scheduler(&arguments(&json!({ "licences": 4 })))?;
    scheduler.prints("Listening", SOON).await?;
    for name in ["a", "b"] {
        stage.create(name, Some("2")).await?;
        stage.is_bound(name).await?;
        let pod = stage.pod(name).await?;
        ensure!(pod["metadata"]["annotations"]["example.com/licences-checked-out"] == "2", "PreBind marks it: {pod}");
    }
    // Together, because Licences scores nodes with licensed pods higher.
    let nodes = [stage.pod("a").await?, stage.pod("b").await?].map(|pod| pod["spec"]["nodeName"].clone());
    ensure!(nodes[0] == nodes[1], "{nodes:?}");
    stage.create("c", Some("2")).await?;
    stage.waits_because("c", "2 licences are needed, 0 are free").await?;
    stage.create("odd", Some("many")).await?;
    for name in ["d", "e"] {
        stage.create(name, None).await?;
        stage.is_bound(name).await?;
    }
    // Two pods of the namespace on each node: the third filter is NamespaceSpread's.
    stage.create("f", None).await?;
    stage.waits_because("f", "node(s) already run 2 pods of the namespace").await?;
    stage.kubectl.run(&["delete", "pod", "f", "--force", "--grace-period=0"]).await?;
    // A deleted pod gives back its licences and its place.
    stage.kubectl.run(&["delete", "pod", "a", "--force", "--grace-period=0"]).await?;
    stage.is_bound("c").await?;
    ensure!(stage.pod("odd").await?["spec"]["nodeName"].is_null(), "PreEnqueue gates a pod with an invalid label");
    Ok(())
}

#[tokio::test]
async fn waiting_pods_are_allowed_and_rejected_by_the_licence_server() -> Result<()> {
    let stage = Stage::start().await?;
    let mut scheduler = stage.scheduler(&arguments(&json!({ "licences": 4, "approvalWithinMs": 600_000 })))?;
    scheduler.prints("Listening", SOON).await?;
    for name in ["a", "b"] {
        stage.create(name, Some("1")).await?;
        stage.is_announced(name).await?;
    }
    let answers = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "licence-server" },
        "data": { "a": "granted", "b": "refused" },
    });
    stage.kubectl.run_with(&["create", "-f", "-"], &answers.to_string()).await?;
    stage.is_bound("a").await?;
    stage.waits_because("b", "the licence server refuses").await
}

#[tokio::test]
async fn the_queue_sort_plugin_decides_which_pods_go_first() -> Result<()> {
    let stage = Stage::start().await?;
    // Two of these four fit: one per node. The licensed ones came last, and go first.
    for (name, licences) in [("old-1", None), ("old-2", None), ("new-1", Some("1")), ("new-2", Some("1"))] {
        stage.create(name, licences).await?;
    }
    let mut scheduler = stage.scheduler(&json!([
        { "name": "NamespaceSpread", "args": { "podsPerNodeMax": 1 } },
        { "name": "Licences", "args": { "licences": 4 } },
    ]))?;
    scheduler.prints("Listening", SOON).await?;
    for name in ["new-1", "new-2"] {
        stage.is_bound(name).await?;
    }
    for name in ["old-1", "old-2"] {
        stage.waits_because(name, "node(s) already run 1 pods of the namespace").await?;
    }
    Ok(())
}

#[tokio::test]
async fn arguments_are_validated() -> Result<()> {
    let stage = Stage::start().await?;
    let wrong = json!([
        { "name": "NamespaceSpread", "args": { "podsPerNodeMax": 0 } },
        { "name": "Licences", "args": { "licences": 4 } },
    ]);
    let mut scheduler = stage.scheduler(&wrong)?;
    scheduler
        .prints("profiles[0].pluginConfig[0].args: podsPerNodeMax must be at least 1", SOON)
        .await
        .context("the error names the plugin and the problem")?;
    Ok(())
}
