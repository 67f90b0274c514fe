//! Tests the test kit itself: its peers are real, and never outlive the test.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use serde_json::json;
use testkit::process::Process;
use testkit::workdir::Workdir;
use testkit::{ControlPlane, Scheduler, Vcsim, VcsimOptions, eventually};

fn node(name: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "status": {
            "capacity": { "cpu": "4", "memory": "8Gi", "pods": "110" },
            "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" },
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Test", "message": "",
                "lastHeartbeatTime": null, "lastTransitionTime": null }],
        },
    }))
    .expect("a node")
}

fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "containers": [{ "name": "main", "image": "none", "resources": { "requests": { "cpu": "100m" } } }] },
    }))
    .expect("a pod")
}

#[tokio::test]
async fn nodes_and_pods_are_created_and_watched() -> Result<()> {
    let control_plane = ControlPlane::shared().await;
    let namespace = control_plane.namespace("watched").await?;
    let client = control_plane.client().await?;
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &node("watched-node")).await?;

    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let mut watch = pods.watch(&WatchParams::default(), "0").await?.boxed();
    pods.create(&PostParams::default(), &pod("first")).await?;
    let seen = tokio::time::timeout(Duration::from_secs(10), async {
        while let Some(event) = watch.next().await {
            if let WatchEvent::Added(pod) = event? {
                return Ok(pod.metadata.name);
            }
        }
        anyhow::bail!("the watch ended")
    })
    .await??;
    assert_eq!(seen.as_deref(), Some("first"));

    // kubectl sees the same cluster.
    let listed = control_plane.kubectl().run(&["get", "pods", "-n", &namespace, "-o", "name"]).await?;
    assert_eq!(listed.trim(), "pod/first");
    Ok(())
}

#[tokio::test]
async fn rbac_is_on() -> Result<()> {
    let control_plane = ControlPlane::shared().await;
    let unprivileged = testkit::control_plane::client_from(&control_plane.kubeconfig_for("unprivileged", &[])?).await?;
    let error = Api::<Node>::all(unprivileged).list(&kube::api::ListParams::default()).await.expect_err("forbidden");
    assert!(error.to_string().contains("cannot list resource \"nodes\""), "{error}");
    Ok(())
}

#[tokio::test]
async fn kube_scheduler_binds_a_pod_under_its_own_identity() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let client = control_plane.client().await?;
    Api::<Node>::all(client.clone()).create(&PostParams::default(), &node("only-node")).await?;
    control_plane.make_schedulable("only-node").await?;
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{ "schedulerName": "by-config" }],
    });
    let scheduler = Scheduler::start(&control_plane, Some(config)).await?;
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let mut wanted = pod("to-bind");
    wanted.spec.as_mut().expect("a spec").scheduler_name = Some("by-config".to_owned());
    pods.create(&PostParams::default(), &wanted).await?;
    let bound = eventually(Duration::from_secs(30), || async {
        let pod = pods.get("to-bind").await?;
        pod.spec.and_then(|spec| spec.node_name).ok_or_else(|| anyhow::anyhow!("not bound:\n{}", scheduler.log_tail()))
    })
    .await?;
    assert_eq!(bound, "only-node");
    // The benchmarks count its attempts. It counts one after the server has bound the pod.
    eventually(Duration::from_secs(10), || async {
        let metrics = scheduler.metrics().await?;
        let counted = r#"scheduler_schedule_attempts_total{profile="by-config",result="scheduled"} 1"#;
        anyhow::ensure!(metrics.lines().any(|line| line == counted), "not counted:\n{metrics}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_api_server_keeps_its_data_after_a_kill_and_restart() -> Result<()> {
    let mut control_plane = ControlPlane::start().await?;
    control_plane.namespace("before-the-crash").await?;
    control_plane.kill_apiserver();
    assert!(control_plane.kubectl().run(&["get", "namespaces", "--request-timeout=2s"]).await.is_err());
    control_plane.restart_apiserver().await?;
    let listed = control_plane.kubectl().run(&["get", "namespaces", "-o", "name"]).await?;
    assert!(listed.contains("namespace/before-the-crash"), "{listed}");
    Ok(())
}

#[tokio::test]
async fn govc_creates_a_rule_on_vcsim_and_reads_it_back() -> Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let govc = vcsim.govc();
    assert!(govc.run(&["about"]).await?.contains("VMware vCenter Server"));
    let vms = govc.run(&["ls", "-t", "VirtualMachine", "vm"]).await?;
    let names: Vec<&str> = vms.lines().filter_map(|path| path.rsplit('/').next()).take(2).collect();
    let [one, two] = names[..] else { anyhow::bail!("two VMs are expected:\n{vms}") };
    let cluster = "DC0_C0";
    govc.run(&["cluster.rule.create", "-cluster", cluster, "-name", "anti", "-enable", "-anti-affinity", one, two])
        .await?;
    let info = govc.run(&["cluster.rule.info", "-cluster", cluster, "-name", "anti"]).await?;
    assert!(info.contains("ClusterAntiAffinityRuleSpec"), "{info}");
    assert!(info.contains(one) && info.contains(two), "{info}");
    Ok(())
}

#[tokio::test]
async fn vcsim_rejects_a_wrong_password() -> Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let url = vcsim.govc_url().replace(testkit::vcsim::PASSWORD, "wrong");
    let error = testkit::Govc::new(&peers::Peers::locate()?, &url).run(&["about"]).await.expect_err("a wrong password");
    assert!(error.to_string().contains("Login failure"), "{error}");
    Ok(())
}

fn alive(pid: u32) -> bool {
    // A zombie process still has a folder in /proc but counts as exited.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

fn gone_within(pid: u32, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while alive(pid) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    !alive(pid)
}

#[tokio::test]
async fn waiting_for_output_ends_with_the_output_the_programs_exit_or_a_timeout() -> Result<()> {
    let workdir = Workdir::create("waiting")?;
    let shell = |name: &str, script: &str| {
        Process::start(workdir.path(), name, Path::new("sh"), &["-c".to_owned(), script.to_owned()])
    };
    let number = |log: &str| log.trim().parse::<u32>().ok();
    // Output counts even if the program has exited.
    assert_eq!(shell("prints", "echo 42")?.prints(Duration::from_secs(10), number).await?, 42);
    let error = shell("ends", "echo words; exit 3")?.prints(Duration::from_secs(10), number).await.expect_err("exit");
    assert!(error.to_string().contains("ends exited") && error.to_string().contains("words"), "{error}");
    let error = shell("stays", "sleep 60")?.prints(Duration::from_millis(50), number).await.expect_err("a limit");
    assert!(error.to_string().contains("stays was not ready"), "{error}");
    Ok(())
}

fn started(process: &Process) -> u32 {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match process.pid() {
            Some(pid) => return pid,
            None if Instant::now() > deadline => panic!("it did not start"),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[test]
fn a_process_ends_on_drop_and_on_panic() {
    let workdir = Workdir::create("drop").expect("a folder");
    let sleeper = || Process::start(workdir.path(), "sleep", Path::new("sleep"), &["600".to_owned()]).expect("sleep");
    let process = sleeper();
    let pid = started(&process);
    assert!(alive(pid));
    drop(process);
    assert!(gone_within(pid, Duration::from_secs(1)));

    let (sender, receiver) = std::sync::mpsc::channel();
    let panicking = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let process = sleeper();
                sender.send(started(&process)).expect("sent");
                std::panic::resume_unwind(Box::new("on purpose"));
            })
            .join()
    });
    assert!(panicking.is_err());
    assert!(gone_within(receiver.recv().expect("a pid"), Duration::from_secs(1)));
}

#[test]
fn a_process_ends_when_the_test_binary_is_killed() -> Result<()> {
    // This test runs itself in a child that starts a process and waits; the child is then killed with -9.
    const CHILD: &str = "BRIDGER_KIT_CHILD";
    if let Ok(folder) = std::env::var(CHILD) {
        let _process = Process::start(Path::new(&folder), "sleep", Path::new("sleep"), &["600".to_owned()])?;
        std::thread::sleep(Duration::from_secs(60));
        return Ok(());
    }
    let workdir = Workdir::create("killed")?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--exact", "a_process_ends_when_the_test_binary_is_killed"])
        .env(CHILD, workdir.path())
        .spawn()?;
    let deadline = Instant::now() + Duration::from_secs(20);
    let pid = loop {
        let written = std::fs::read_to_string(workdir.join("sleep.pid")).unwrap_or_default();
        match written.trim().parse::<u32>() {
            Ok(pid) => break pid,
            Err(_) if Instant::now() > deadline => anyhow::bail!("the child started nothing"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert!(alive(pid));
    child.kill()?;
    child.wait()?;
    assert!(gone_within(pid, Duration::from_secs(2)), "{pid} outlived its test");
    Ok(())
}

#[test]
fn logs_are_kept_when_a_test_fails_and_removed_when_it_passes() {
    let passed = Workdir::create("passed").expect("a folder");
    let path = passed.path().to_owned();
    drop(passed);
    assert!(!path.exists());

    let (sender, receiver) = std::sync::mpsc::channel();
    let failing = std::thread::spawn(move || {
        let workdir = Workdir::create("failed").expect("a folder");
        workdir.write("peer.log", "last words").expect("written");
        sender.send(workdir.path().to_owned()).expect("sent");
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(failing.join().is_err());
    let kept = receiver.recv().expect("a path");
    assert_eq!(std::fs::read_to_string(kept.join("peer.log")).expect("kept"), "last words");
    std::fs::remove_dir_all(kept).expect("removed");
}
