//! Quantities as a real kube-apiserver reads them: the test vectors of the client and of the simulator are what it says.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use serde_json::json;
use testkit::ControlPlane;

/// Each side has its own.
const VECTORS: [&str; 2] =
    ["crates/kubernetes/src/facts/scheduling/quantities.tsv", "crates/simulator/src/kubernetes/quantities.tsv"];
const RESOURCE: &str = "requests.cpu";

/// The canonical form of a quantity, or why the server does not accept it.
async fn read_by_the_server(quotas: &Api<DynamicObject>, text: &str) -> Result<String> {
    let quota = json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": { "name": "vector", "namespace": "default" },
        "spec": { "hard": { RESOURCE: text } },
    });
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    match quotas.create(&dry_run, &serde_json::from_value(quota)?).await {
        Ok(created) => {
            let read = created.data["spec"]["hard"][RESOURCE].as_str();
            Ok(read.with_context(|| format!("{text:?}: {created:?}"))?.to_owned())
        }
        Err(kube::Error::Api(status)) if status.code == 400 => Ok("unreadable".to_owned()),
        Err(kube::Error::Api(status))
            if status.code == 422 && status.message.contains("greater than or equal to 0") =>
        {
            Ok("negative".to_owned())
        }
        Err(error) => Err(error).with_context(|| format!("{text:?}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_vectors_of_client_and_simulator_are_what_the_server_reads() -> Result<()> {
    let plane = ControlPlane::start().await?;
    let connection =
        kubernetes::connect(&kubernetes::KubernetesCredentials::choose(Some(plane.kubeconfig()), None, None)).await?;
    let resource = ApiResource::erase::<ResourceQuota>(&());
    let quotas: Api<DynamicObject> = Api::namespaced_with(connection.client.client().clone(), "default", &resource);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in VECTORS {
        let path = root.join(file);
        let known = std::fs::read_to_string(&path)?;
        let mut read = String::new();
        for line in known.lines() {
            match line.split_once('\t') {
                Some((text, _)) => writeln!(read, "{text}\t{}", read_by_the_server(&quotas, text).await?)?,
                None => writeln!(read, "{line}")?,
            }
        }
        if std::env::var("BRIDGER_GOLDEN").is_ok_and(|mode| mode == "write") {
            std::fs::write(&path, &read)?;
        } else {
            ensure!(read == known, "{file} is not what the server reads; write it with BRIDGER_GOLDEN=write:\n{read}");
        }
    }
    Ok(())
}
