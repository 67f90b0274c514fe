//! Runs kube-scheduler and Bridger over HTTPS with certificates on both sides, without a vCenter: physical hosts come
//! from the node label.

#[path = "extender_tls/places.rs"]
mod places;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use testkit::pki::Authority;
use testkit::workdir::Workdir;
use testkit::{Bridger, ControlPlane, Scheduler, eventually};

const SOON: Duration = Duration::from_secs(30);

fn node(name: &str, host: &str) -> Result<Node> {
    let capacity = json!({ "cpu": "8", "memory": "16Gi", "pods": "110" });
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "alpha.cna.vmware.com/host": host } },
        "status": { "capacity": capacity, "allocatable": capacity, "conditions": [{ "type": "Ready", "status": "True",
            "reason": "Test", "message": "", "lastHeartbeatTime": null, "lastTransitionTime": null }] },
    }))?)
}

fn replica(name: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "app": "web" } },
        "spec": {
            "containers": [{ "name": "main", "image": "none" }],
            "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
                "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } } }] } },
        },
    }))?)
}

async fn bound(pods: &Api<Pod>, name: &str) -> Result<Option<String>> {
    Ok(pods.get(name).await?.spec.and_then(|spec| spec.node_name))
}

#[tokio::test]
async fn number_7_the_extender_works_with_mutual_tls_and_allowed_names_and_hosts_from_the_label() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let nodes: Api<Node> = Api::all(control_plane.client().await?);
    for (name, host) in [("n1", "esx-1"), ("n2", "esx-1"), ("n3", "esx-2")] {
        nodes.create(&PostParams::default(), &node(name, host)?).await?;
        control_plane.make_schedulable(name).await?;
    }
    let workdir = Workdir::create("extender-tls")?;
    let authority = Authority::create("bridger")?;
    let write = |name: &str, text: &str| anyhow::Ok(workdir.write(name, text)?.display().to_string());
    let ca = write("ca.crt", &authority.certificate())?;
    let server = authority.server()?;
    let (certificate, key) = (write("tls.crt", &server.certificate)?, write("tls.key", &server.key)?);
    let client = authority.client("system:kube-scheduler", &[])?;
    let (client_certificate, client_key) =
        (write("client.crt", &client.certificate)?, write("client.key", &client.key)?);
    let other = authority.client("system:kube-controller-manager", &[])?;
    let (other_certificate, other_key) = (write("other.crt", &other.certificate)?, write("other.key", &other.key)?);

    let variables = [("KUBECONFIG", control_plane.kubeconfig().display().to_string())];
    let arguments = [
        ["run", "--port", "0"],
        ["--extender-port", "0", "--tls-cert-file"],
        [&certificate, "--tls-key-file", &key],
        ["--client-ca-file", &ca, "--listen=127.0.0.1"],
    ]
    .concat();
    let mut bridger = Bridger::start(&arguments, &variables)?;
    bridger.prints("Listening   https://", SOON).await?;
    bridger.prints("of 3 matched", SOON).await?;

    let url = format!("https://{}/v1", bridger.extender_address()?);
    let with_certificate = ["--client-cert-file", &client_certificate, "--client-key-file", &client_key];
    let config = async |extra: &[&str]| -> Result<Value> {
        let arguments = [&["manifests", "scheduler-config", "--url", &url, "--ca-file", &ca], extra].concat();
        let printed = testkit::bridger::run_to_end(&arguments, &[]).await?;
        ensure!(printed.code == Some(0), "{printed:?}");
        Ok(serde_saphyr::from_str(&printed.stdout)?)
    };
    let pods: Api<Pod> = Api::default_namespaced(control_plane.client().await?);

    // Without a client certificate, or with that of another client of the same authority, kube-scheduler is rejected
    // and logs it.
    pods.create(&PostParams::default(), &replica("a")?).await?;
    for extra in [&[][..], &["--client-cert-file", &other_certificate, "--client-key-file", &other_key]] {
        let scheduler = Scheduler::start(&control_plane, Some(config(extra).await?)).await?;
        eventually(SOON, || async {
            let log = scheduler.log_tail();
            ensure!(log.contains("code 403"), "{log}");
            Ok(())
        })
        .await?;
        assert_eq!(bound(&pods, "a").await?, None);
    }

    let _scheduler = Scheduler::start(&control_plane, Some(config(&with_certificate).await?)).await?;
    pods.create(&PostParams::default(), &replica("b")?).await?;
    let placed = eventually(SOON, || async {
        let (a, b) = (bound(&pods, "a").await?, bound(&pods, "b").await?);
        Ok((a.context("a is not bound")?, b.context("b is not bound")?))
    })
    .await?;
    assert!(placed.0 == "n3" || placed.1 == "n3", "one on each host: {placed:?}");
    pods.create(&PostParams::default(), &replica("c")?).await?;
    eventually(SOON, || async {
        let status = pods.get("c").await?.status.and_then(|status| status.conditions).unwrap_or_default();
        let text = status.iter().filter_map(|condition| condition.message.clone()).collect::<String>();
        ensure!(text.contains("between physical hosts"), "{text}");
        Ok(())
    })
    .await
}
