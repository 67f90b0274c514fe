//! Tests the roles that `bridger manifests rbac` prints on a real kube-apiserver with RBAC: they are sufficient, and
//! allow nothing more. (`tests/rules` always runs `bridger run` with them.)

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use testkit::bridger::run_to_end;
use testkit::workdir::Workdir;
use testkit::{Bridger, ControlPlane, eventually};

const SOON: Duration = Duration::from_secs(30);

async fn printed(arguments: &[&str]) -> Result<String> {
    let finished = run_to_end(&[&["manifests", "rbac"], arguments].concat(), &[]).await?;
    ensure!(finished.code == Some(0), "{finished:?}");
    Ok(finished.stdout)
}

/// A kubeconfig with a token of this service account, as its pods have.
async fn kubeconfig(control_plane: &ControlPlane, workdir: &Workdir, account: &str) -> Result<PathBuf> {
    let token = control_plane.kubectl().run(&["create", "token", account, "-n", "kube-system"]).await?;
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(control_plane.kubeconfig())?)?;
    config["users"][0]["user"] = json!({ "token": token.trim() });
    Ok(workdir.write(&format!("{account}.kubeconfig"), config.to_string())?)
}

fn node() -> Value {
    let capacity = json!({ "cpu": "4", "memory": "8Gi", "pods": "10" });
    let ready = json!([{ "type": "Ready", "status": "True", "reason": "Test", "message": "",
        "lastHeartbeatTime": null, "lastTransitionTime": null }]);
    json!({ "metadata": { "name": "n1", "labels": { "kubernetes.io/hostname": "n1" } },
        "status": { "capacity": capacity, "allocatable": capacity, "conditions": ready } })
}

fn pod(name: &str, cpu: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "schedulerName": "bridger", "containers": [{ "name": "main",
        "image": "none", "resources": { "requests": { "cpu": cpu } } }] } })
}

#[tokio::test]
async fn the_scheduler_works_with_the_printed_role() -> Result<()> {
    let control_plane = ControlPlane::start_with(&["--disable-admission-plugins=TaintNodesByCondition"]).await?;
    let workdir = Workdir::create("rbac")?;
    let kubectl = control_plane.kubectl();
    kubectl.run_with(&["apply", "-f", "-"], &printed(&["--for", "scheduler"]).await?).await?;
    let client = control_plane.client().await?;
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(node())?).await?;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for (name, cpu) in [("fits", "1"), ("too-big", "100")] {
        pods.create(&PostParams::default(), &serde_json::from_value(pod(name, cpu))?).await?;
    }
    let account = kubeconfig(&control_plane, &workdir, "bridger-scheduler").await?;
    let environment = [("KUBECONFIG", account.display().to_string()), ("NO_COLOR", "1".to_owned())];
    let mut bridger = Bridger::start(&["scheduler", "--port", "0"], &environment)?;
    bridger.prints("Listening", SOON).await?;
    // A binding, a condition and both events are written with the role.
    let events: Api<Event> = Api::default_namespaced(client);
    eventually(SOON, || async {
        let bound = pods.get("fits").await?.spec.and_then(|spec| spec.node_name);
        ensure!(bound.as_deref() == Some("n1"), "{bound:?}\n{}", bridger.output());
        let waiting = pods.get("too-big").await?.status.and_then(|status| status.conditions).unwrap_or_default();
        let is_reported =
            waiting.iter().any(|it| it.type_ == "PodScheduled" && it.reason.as_deref() == Some("Unschedulable"));
        ensure!(is_reported, "{waiting:?}\n{}", bridger.output());
        let reasons: Vec<_> =
            events.list(&ListParams::default()).await?.into_iter().filter_map(|it| it.reason).collect();
        for reason in ["Scheduled", "FailedScheduling"] {
            ensure!(reasons.iter().any(|it| it == reason), "{reasons:?}\n{}", bridger.output());
        }
        Ok(())
    })
    .await?;
    // Figures are published a moment after a change.
    eventually(SOON, || async {
        let metrics = bridger.get("/metrics").await?;
        for expected in [
            "scheduler_cache_size{type=\"nodes\"} 1",
            "scheduler_cache_size{type=\"pods\"} 1",
            "scheduler_queue_incoming_pods_total{queue=\"active\",event=\"UnscheduledPodAdd\"} 2",
            "scheduler_unschedulable_pods{plugin=\"NodeResourcesFit\",profile=\"bridger\"} 1",
        ] {
            ensure!(metrics.contains(expected), "{expected} is missing:\n{metrics}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn number_6_permissions_for_leases_are_checked_in_the_namespace_of_the_lease() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let workdir = Workdir::create("lease-namespace")?;
    let kubectl = control_plane.kubectl();
    kubectl.run(&["create", "namespace", "elsewhere"]).await?;
    kubectl.run_with(&["apply", "-f", "-"], &printed(&["--for", "scheduler"]).await?).await?;
    let config = json!({ "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "leaderElection": { "leaderElect": true, "resourceNamespace": "elsewhere" },
        "profiles": [{ "schedulerName": "bridger" }] });
    let config = workdir.write("scheduler.json", config.to_string())?.display().to_string();
    let account = kubeconfig(&control_plane, &workdir, "bridger-scheduler").await?;
    let environment = [("KUBECONFIG", account.display().to_string()), ("NO_COLOR", "1".to_owned())];
    let arguments = ["scheduler", "--port", "0", "--config", &config];
    let finished = run_to_end(&arguments, &environment).await?;
    ensure!(finished.code == Some(2) && finished.stderr.contains("on leases"), "{finished:?}");

    let role = printed(&["--for", "scheduler", "--record-namespace", "elsewhere"]).await?;
    kubectl.run_with(&["apply", "-f", "-"], &role).await?;
    let mut bridger = Bridger::start(&arguments, &environment)?;
    bridger.prints("Listening", SOON).await
}

#[tokio::test]
async fn number_4_the_printed_roles_allow_nothing_else() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let kubectl = control_plane.kubectl();
    let all = [
        printed(&["--for", "run"]).await?,
        printed(&["--extender", "--labels", "off", "--rules", "off", "--name", "with-extender"]).await?,
        printed(&["--for", "scheduler"]).await?,
        printed(&["--for", "explain", "--name", "reader", "--record-namespace", "default"]).await?,
    ];
    kubectl.run_with(&["apply", "-f", "-"], &all.join("---\n")).await?;
    // Account, verb, resource, namespace (none: all), and whether it is allowed.
    let cases = [
        ("bridger", "patch", "nodes", None, true),
        ("bridger", "create", "pods/binding", None, false),
        ("with-extender", "create", "pods/binding", None, true),
        ("with-extender", "get", "pods", None, true),
        ("with-extender", "patch", "pods/status", None, false),
        ("bridger", "get", "pods", None, false),
        ("with-extender", "patch", "nodes", None, false),
        ("with-extender", "list", "configmaps", Some("kube-system"), false),
        ("with-extender", "create", "events", None, true),
        ("bridger", "update", "configmaps/bridger-rules-0", Some("kube-system"), true),
        ("bridger", "update", "configmaps/bridger-rules-31", Some("kube-system"), true),
        ("bridger", "delete", "configmaps/bridger-rules-0", Some("kube-system"), false),
        ("bridger", "update", "configmaps/bridger-rules-32", Some("kube-system"), false),
        ("bridger", "update", "configmaps/extension-apiserver-authentication", Some("kube-system"), false),
        ("bridger", "update", "configmaps", Some("kube-system"), false),
        ("bridger", "update", "configmaps/bridger-rules-0", Some("default"), false),
        ("bridger", "patch", "leases.coordination.k8s.io", Some("kube-system"), true),
        ("bridger", "patch", "leases.coordination.k8s.io", Some("default"), false),
        ("bridger", "delete", "leases.coordination.k8s.io", Some("kube-system"), false),
        ("bridger", "delete", "pods", None, false),
        ("with-extender", "delete", "pods", None, false),
        ("bridger", "get", "secrets", Some("kube-system"), false),
        ("bridger", "update", "nodes", None, false),
        ("bridger-scheduler", "delete", "pods", None, true),
        ("bridger-scheduler", "patch", "pods/status", None, true),
        ("bridger-scheduler", "list", "replicasets.apps", None, true),
        ("bridger-scheduler", "patch", "nodes", None, false),
        ("bridger-scheduler", "list", "configmaps", Some("kube-system"), false),
        ("reader", "watch", "pods", None, true),
        ("reader", "list", "configmaps", Some("default"), true),
        ("reader", "list", "configmaps", Some("kube-system"), false),
        ("reader", "create", "pods/binding", None, false),
        ("reader", "create", "events", None, false),
    ];
    for (account, verb, resource, namespace, expected) in cases {
        let user = format!("--as=system:serviceaccount:kube-system:{account}");
        let (resource, subresource) = match resource.split_once('/') {
            Some(("pods", subresource)) => ("pods", subresource),
            // A resource, or one object of it.
            _ => (resource, ""),
        };
        let subresource = format!("--subresource={subresource}");
        let mut arguments = vec!["auth", "can-i", verb, resource, &subresource, &user];
        match namespace {
            Some(namespace) => arguments.extend(["-n", namespace]),
            None => arguments.push("-A"),
        }
        let answer = kubectl.try_run(&arguments).await?;
        let may = answer.stdout.lines().last().with_context(|| format!("{arguments:?}: {answer:?}"))?.trim() == "yes";
        ensure!(may == expected, "{arguments:?}: {answer:?}");
    }
    Ok(())
}
