//! Tests `bridger manifests all` on a real kube-apiserver: every object is accepted as it is, and Bridger works with
//! exactly the account, the roles and the configuration that it contains.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::bridger::run_to_end;
use testkit::workdir::Workdir;
use testkit::{Bridger, ControlPlane, eventually};

const SOON: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "bridger-system";

async fn manifests(arguments: &[&str]) -> Result<String> {
    let finished = run_to_end(&[&["manifests", "all"], arguments].concat(), &[]).await?;
    ensure!(finished.code == Some(0), "{finished:?}");
    Ok(finished.stdout)
}

/// Installations that differ in every part that the objects depend on.
const INSTALLATIONS: &[&[&str]] = &[
    &[],
    &["--set", "parts.labels=false", "--set", "parts.rules=false", "--set", "parts.scheduling=true"],
    &[
        "--set",
        "vcenters=[{name: one, url: 'https://one.example.org', credentialsSecret: shared, caConfigMap: authority}, \
         {name: two, url: 'https://two.example.org', credentialsSecret: shared, thumbprint: 'AA:BB', vmTags: [node]}]",
        "--set",
        "parts.extender=true",
        "--set",
        "image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000",
        "--set",
        "settings={policy: {reserve: 0}, lift: [kubernetes.io/hostname]}",
    ],
    &[
        "--set",
        "parts.scheduling=true",
        "--set",
        "schedulerConfiguration={profiles: [{schedulerName: packed}]}",
        "--set",
        "replicas=1",
        "--set",
        "networkPolicy.enabled=false",
        "--set",
        "podLabels={team: platform}",
        "--set",
        "nodeSelector={node-role.kubernetes.io/control-plane: ''}",
        "--set",
        "imagePullSecrets=[{name: registry}]",
    ],
];

#[tokio::test]
async fn every_object_is_accepted_by_the_api_server_as_it_is() -> Result<()> {
    let control_plane = ControlPlane::shared().await;
    let kubectl = control_plane.kubectl();
    kubectl.run(&["create", "namespace", NAMESPACE]).await?;
    for installation in INSTALLATIONS {
        let yaml = manifests(&[*installation, &["--no-namespace"]].concat()).await?;
        // Unknown fields are errors, and so is whatever the server would reject.
        let checked = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
        kubectl.run_with(&checked, &yaml).await.with_context(|| format!("{installation:?}:\n{yaml}"))?;
    }
    Ok(())
}

/// Runs Bridger as its Deployment would: with the token of the service account and the file of the ConfigMap.
#[tokio::test]
async fn bridger_works_with_the_installed_account_and_configuration() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let workdir = Workdir::create("install")?;
    let kubectl = control_plane.kubectl();
    let yaml = manifests(&["--set", "metrics.port=12346", "--set", "networkPolicy.enabled=false"]).await?;
    kubectl.run_with(&["apply", "-f", "-"], &yaml).await?;
    let account = token_of(&control_plane, &workdir, "bridger").await?;
    let map = kubectl.run(&["get", "configmap", "bridger", "-n", NAMESPACE, "-o", "json"]).await?;
    let map: Value = serde_json::from_str(&map)?;
    let configuration = map["data"]["bridger.yaml"].as_str().context("the configuration file")?;
    let file = workdir.write("bridger.yaml", configuration)?.display().to_string();
    let environment = [("KUBECONFIG", account.display().to_string()), ("NO_COLOR", "1".to_owned())];
    let mut bridger =
        Bridger::start(&["run", "--config", &file, "--port", "0", "--listen", "127.0.0.1"], &environment)?;
    bridger.prints("Listening", SOON).await?;
    eventually(SOON, || async {
        let ready = bridger.get("/readyz").await?;
        ensure!(ready.contains("ready"), "{ready}\n{}", bridger.output());
        Ok(())
    })
    .await?;
    // The lease is in the namespace of the installation.
    eventually(SOON, || async {
        let lease =
            kubectl.run(&["get", "lease", "bridger", "-n", NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}"]).await?;
        ensure!(!lease.is_empty(), "nobody holds the lease\n{}", bridger.output());
        Ok(())
    })
    .await?;
    let user = format!("--as=system:serviceaccount:{NAMESPACE}:bridger");
    for (verb, resource, allowed) in [
        ("update", "configmaps/bridger-rules-31", "yes"),
        ("update", "configmaps/other", "no"),
        ("update", "configmaps", "no"),
    ] {
        let answer = kubectl.try_run(&["auth", "can-i", verb, resource, "-n", NAMESPACE, &user]).await?;
        ensure!(answer.stdout.trim() == allowed, "{verb} {resource}: {answer:?}");
    }
    for (verb, resource, namespace) in [
        ("get", "secrets", "default"),
        ("create", "pods/exec", "default"),
        ("delete", "pods", "default"),
        ("delete", "nodes", "default"),
    ] {
        let answer = kubectl.try_run(&["auth", "can-i", verb, resource, "-n", namespace, &user]).await?;
        ensure!(answer.stdout.trim().ends_with("no"), "{verb} {resource}: {answer:?}");
    }
    Ok(())
}

async fn token_of(control_plane: &ControlPlane, workdir: &Workdir, account: &str) -> Result<PathBuf> {
    let token = control_plane.kubectl().run(&["create", "token", account, "-n", NAMESPACE]).await?;
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(control_plane.kubeconfig())?)?;
    config["users"][0]["user"] = json!({ "token": token.trim() });
    Ok(workdir.write(&format!("{account}.kubeconfig"), config.to_string())?)
}
