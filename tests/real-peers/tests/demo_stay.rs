//! Runs the real kubectl and govc against `bridger demo --stay`: the demo shows their changes, and Bridger reacts.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use peers::Peers;
use testkit::{Bridger, Govc, Kubectl, eventually};

const SOON: Duration = Duration::from_secs(60);
/// Enough for a DRS period and a move.
const AFTER_DRS: Duration = Duration::from_secs(180);

fn exported(output: &str, name: &str) -> Result<String> {
    let (_, rest) = output.split_once(&format!("{name}=")).with_context(|| format!("no {name} in:\n{output}"))?;
    Ok(rest.split_whitespace().next().unwrap_or_default().to_owned())
}

/// The value of the host label on each node where a pod of the service runs.
async fn hosts_of(kubectl: &Kubectl, service: &str) -> Result<Vec<String>> {
    let selector = format!("app={service}");
    let nodes = kubectl.run(&["get", "pods", "-l", &selector, "-o", "jsonpath={.items[*].spec.nodeName}"]).await?;
    let mut hosts = Vec::new();
    for node in nodes.split_whitespace() {
        let path = r"jsonpath={.metadata.labels.alpha\.cna\.vmware\.com/host}";
        hosts.push(kubectl.run(&["get", "node", node, "-o", path]).await?.trim().to_owned());
    }
    hosts.sort();
    Ok(hosts)
}

fn are_distinct(hosts: &[String]) -> bool {
    hosts.windows(2).all(|pair| pair[0] != pair[1])
}

#[tokio::test]
async fn kubectl_and_govc_can_be_used_after_the_demo() -> Result<()> {
    let peers = Peers::locate()?;
    let mut demo = Bridger::start(
        &[
            "demo",
            "--headless",
            "--speed",
            "max",
            "--stay",
            "--for",
            "10m",
            "--kubernetes-port",
            "0",
            "--vcenter-port",
            "0",
            "--port",
            "0",
        ],
        &[],
    )?;
    demo.prints("Listening   http://", SOON).await?;
    let output = demo.output();
    ensure!(output.contains("no service was down"), "the verdict must come first:\n{output}");
    let kubeconfig = exported(&output, "KUBECONFIG")?;
    let kubectl = Kubectl::new(&peers, Path::new(&kubeconfig));
    let govc = Govc::new(&peers, &exported(&output, "GOVC_URL")?);

    // A fourth replica goes to a fourth host.
    kubectl.run(&["scale", "deployment", "cart", "--replicas=4"]).await?;
    kubectl.run(&["rollout", "status", "deployment", "cart", "--timeout=60s"]).await?;
    let hosts = hosts_of(&kubectl, "cart").await?;
    ensure!(hosts.len() == 4 && are_distinct(&hosts), "{hosts:?}");
    demo.prints("cart is scaled from 3 to 4", SOON).await?;
    eventually(SOON, || async {
        let rules = govc.run(&["cluster.rule.ls", "-cluster", "cluster-1"]).await?;
        ensure!(rules.contains("bridger-"), "{rules}");
        Ok(())
    })
    .await?;

    // The user moves a replica's VM to the host of another replica. Because of the rule, DRS moves it away again.
    let pods = kubectl.run(&["get", "pods", "-l", "app=cart", "-o", "jsonpath={.items[0].spec.nodeName}"]).await?;
    let node = pods.trim();
    let own =
        kubectl.run(&["get", "node", node, "-o", r"jsonpath={.metadata.labels.alpha\.cna\.vmware\.com/host}"]).await?;
    let target = hosts.iter().find(|host| **host != own.trim()).context("another host")?;
    govc.run(&["vm.migrate", "-host", &format!("cluster-1/{target}"), node]).await?;
    demo.prints(&format!("{node} is moved from"), SOON).await?;
    demo.prints("replicas of cart share", SOON).await?;
    demo.prints("a rule was violated", AFTER_DRS).await?;
    eventually(SOON, || async {
        let hosts = hosts_of(&kubectl, "cart").await?;
        ensure!(are_distinct(&hosts), "{hosts:?}");
        Ok(())
    })
    .await?;
    let ready = demo.get("/readyz").await?;
    ensure!(ready.starts_with("HTTP/1.1 200"), "{ready}");

    demo.stop();
    ensure!(!Path::new(&kubeconfig).exists(), "its files must be removed on exit");
    Ok(())
}
