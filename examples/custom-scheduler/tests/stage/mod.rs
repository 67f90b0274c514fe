//! A real kube-apiserver with two nodes, and the example as its scheduler.

// Each test uses a part of it.
#![allow(dead_code)]

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::workdir::Workdir;
use testkit::{Bridger, ControlPlane, Kubectl, eventually};

pub const SOON: Duration = Duration::from_secs(30);

pub struct Stage {
    control_plane: ControlPlane,
    pub kubectl: Kubectl,
    workdir: Workdir,
    started: AtomicU32,
}

impl Stage {
    pub async fn start() -> Result<Stage> {
        let control_plane = ControlPlane::start().await?;
        let kubectl = control_plane.kubectl();
        for node in ["n1", "n2"] {
            let resources = json!({ "cpu": "8", "memory": "16Gi", "pods": "110" });
            let manifest = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": node, "labels": { "kubernetes.io/hostname": node } },
                "status": { "capacity": resources, "allocatable": resources },
            });
            kubectl.run_with(&["create", "-f", "-"], &manifest.to_string()).await?;
            control_plane.make_schedulable(node).await?;
        }
        Ok(Stage { kubectl, control_plane, workdir: Workdir::create("custom-scheduler")?, started: AtomicU32::new(0) })
    }

    /// Starts the example, without leader election.
    pub fn scheduler(&self, arguments: &Value) -> Result<Bridger> {
        self.scheduler_with(arguments, &json!({ "leaderElect": false }))
    }

    pub fn scheduler_with(&self, arguments: &Value, election: &Value) -> Result<Bridger> {
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": election,
            "profiles": [{
                "schedulerName": "custom",
                "plugins": {
                    "multiPoint": { "enabled": [{ "name": "NamespaceSpread" }, { "name": "Licences" }] },
                    "queueSort": { "enabled": [{ "name": "Licences" }], "disabled": [{ "name": "PrioritySort" }] },
                    // Before DefaultBinder, which takes every pod.
                    "bind": { "enabled": [{ "name": "Licences" }, { "name": "DefaultBinder" }] },
                },
                "pluginConfig": arguments,
            }],
        });
        // A file for each process: another one may not have read its own yet.
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let config = self.workdir.write(&format!("config-{number}.yaml"), config.to_string())?;
        let kubeconfig = self.control_plane.kubeconfig().display().to_string();
        let program = Path::new(env!("CARGO_BIN_EXE_custom-scheduler"));
        let config = config.display().to_string();
        let arguments = ["--config", &config, "--port", "0"];
        Bridger::start_build(Some(program), &arguments, &[("KUBECONFIG", kubeconfig), ("NO_COLOR", "1".to_owned())])
    }

    pub async fn create(&self, name: &str, licences: Option<&str>) -> Result<()> {
        let labels = licences.map_or_else(|| json!({}), |licences| json!({ "example.com/licences": licences }));
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "labels": labels },
            "spec": { "schedulerName": "custom", "containers": [{ "name": "main", "image": "none" }] },
        });
        self.kubectl.run_with(&["create", "-f", "-"], &pod.to_string()).await?;
        Ok(())
    }

    pub async fn pod(&self, name: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.kubectl.run(&["get", "pod", name, "-o", "json"]).await?)?)
    }

    pub async fn is_bound(&self, name: &str) -> Result<()> {
        eventually(SOON, || async {
            let pod = self.pod(name).await?;
            ensure!(pod["spec"]["nodeName"].is_string(), "{name} is pending: {}", pod["status"]);
            Ok(())
        })
        .await
    }

    /// Its nominated node is written: it waits at Permit, or its executor works at PreBind.
    pub async fn is_announced(&self, name: &str) -> Result<()> {
        eventually(SOON, || async {
            let pod = self.pod(name).await?;
            ensure!(pod["spec"]["nodeName"].is_null(), "{name} is bound");
            ensure!(pod["status"]["nominatedNodeName"].is_string(), "{name}: {}", pod["status"]);
            Ok(())
        })
        .await
    }

    pub async fn waits_because(&self, name: &str, reason: &str) -> Result<()> {
        eventually(SOON, || async {
            let pod = self.pod(name).await?;
            ensure!(pod["spec"]["nodeName"].is_null(), "{name} is bound");
            ensure!(pod["status"].to_string().contains(reason), "{name}: {}", pod["status"]);
            Ok(())
        })
        .await
    }
}

/// The arguments of both plugins. `licences` are those of Licences.
pub fn arguments(licences: &Value) -> Value {
    json!([
        { "name": "NamespaceSpread", "args": { "podsPerNodeMax": 2 } },
        { "name": "Licences", "args": licences },
    ])
}
