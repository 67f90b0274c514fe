//! Runs `bridger run` with a real kube-apiserver and vcsim: labels become correct and stay correct.

#[path = "run_labels/node_restriction.rs"]
mod node_restriction;
#[path = "run_labels/several_vcenters.rs"]
mod several_vcenters;
#[path = "run_labels/trust.rs"]
mod trust;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{Bridger, ControlPlane, Sandbox, Vcsim, VcsimOptions, eventually};
use vsphere::transport::Transport;
use vsphere::{Client, Endpoint, ManagedObject, Trust};

const KEY: &str = "alpha.cna.vmware.com/host";
const SOON: Duration = Duration::from_secs(20);
/// After a lost connection, because the back-off may have grown.
const LATER: Duration = Duration::from_secs(90);

struct Stage {
    control_plane: ControlPlane,
    vcsim: Vcsim,
    bridger: Bridger,
}

fn environment(control_plane: &ControlPlane, vcsim: &Vcsim) -> Vec<(&'static str, String)> {
    vec![
        ("KUBECONFIG", control_plane.kubeconfig().display().to_string()),
        ("GOVC_URL", vcsim.govc_url()),
        ("GOVC_INSECURE", "true".to_owned()),
        ("NO_COLOR", "1".to_owned()),
    ]
}

const RUN: &[&str] = &["run", "--port", "0", "--listen", "127.0.0.1"];

async fn vm_uuid(vcsim: &Vcsim, vm: &str) -> Result<String> {
    let uuid = vcsim.govc().run(&["object.collect", "-s", &format!("/DC0/vm/{vm}"), "config.uuid"]).await?;
    Ok(uuid.trim().to_owned())
}

async fn host_of(vcsim: &Vcsim, vm: &str) -> Result<String> {
    let govc = vcsim.govc();
    let reference = govc.run(&["object.collect", "-s", &format!("/DC0/vm/{vm}"), "runtime.host"]).await?;
    Ok(govc.run(&["object.collect", "-s", reference.trim(), "name"]).await?.trim().to_owned())
}

/// The name and reference of another host of the cluster.
async fn other_host(vcsim: &Vcsim, vm: &str) -> Result<(String, String)> {
    let here = host_of(vcsim, vm).await?;
    let listed = vcsim.govc().run(&["find", "-i", "/", "-type", "h"]).await?;
    for reference in listed.split_whitespace().filter(|word| word.starts_with("HostSystem:")) {
        let name = vcsim.govc().run(&["object.collect", "-s", reference, "name"]).await?.trim().to_owned();
        if name != here && name.starts_with("DC0_C0") {
            return Ok((name, reference.to_owned()));
        }
    }
    anyhow::bail!("no other host:\n{listed}")
}

/// Moves a VM without a task, as a third party would: only the VM's host changes. (vcsim requires a typed reference,
/// which govc cannot send.)
async fn move_without_task(vcsim: &Vcsim, vm: &str, host: &str) -> Result<()> {
    let (endpoint, credentials) = Endpoint::parse(&vcsim.govc_url())?;
    let transport = Transport::network(&Trust::Insecure)?;
    let client = Client::connect(transport, endpoint, credentials.context("in the URL")?).await?;
    let listed = vcsim.govc().run(&["find", "-i", "/", "-type", "m", "-name", vm]).await?;
    let id = listed.split_whitespace().find_map(|word| word.strip_prefix("VirtualMachine:")).context("the VM")?;
    let host = ManagedObject::new("HostSystem", host);
    client
        .call("ReconfigVM_Task", &ManagedObject::new("VirtualMachine", id), |body| {
            body.nest("spec", |spec| {
                spec.nest_typed("extraConfig", "OptionValue", |option| {
                    option.text("key", "SET.runtime.host").typed_reference("value", &host);
                });
            });
        })
        .await?;
    Ok(client.logout().await?)
}

impl Stage {
    /// Starts Bridger with a node for each of these VMs, identified by its system UUID.
    async fn start(vms: &[&str]) -> Result<Stage> {
        let control_plane = ControlPlane::start().await?;
        let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
        for vm in vms {
            add_node(&control_plane, &vcsim, vm).await?;
        }
        let mut bridger = Bridger::start(RUN, &environment(&control_plane, &vcsim))?;
        bridger.prints("Listening", SOON).await?;
        Ok(Stage { control_plane, vcsim, bridger })
    }

    async fn labels(&self, node: &str) -> Result<Value> {
        let object = self.control_plane.kubectl().run(&["get", "node", node, "-o", "json"]).await?;
        Ok(serde_json::from_str::<Value>(&object)?["metadata"]["labels"].clone())
    }

    async fn becomes(&self, node: &str, host: &str, within: Duration) -> Result<()> {
        eventually(within, || async {
            let labels = self.labels(node).await?;
            ensure!(labels[KEY] == host, "{node} should be on {host}: {labels}\n{}", self.bridger.output());
            Ok(())
        })
        .await
    }

    async fn becomes_correct(&self, vm: &str, within: Duration) -> Result<()> {
        let host = host_of(&self.vcsim, vm).await?;
        self.becomes(&vm.to_lowercase().replace('_', "-"), &host, within).await
    }
}

async fn add_node(control_plane: &ControlPlane, vcsim: &Vcsim, vm: &str) -> Result<()> {
    let name = vm.to_lowercase().replace('_', "-");
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "of": "another-client" } },
        "status": { "nodeInfo": {
            "systemUUID": vm_uuid(vcsim, vm).await?.to_uppercase(), "machineID": "", "bootID": "", "kernelVersion": "", "osImage": "",
            "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "", "architecture": "" } },
    });
    control_plane.kubectl().run_with(&["create", "-f", "-"], &node.to_string()).await?;
    Ok(())
}

#[tokio::test]
async fn labels_follow_moves_new_nodes_and_lost_sessions() -> Result<()> {
    let mut stage = Stage::start(&["DC0_C0_RP0_VM0", "DC0_C0_RP0_VM1"]).await?;
    stage.becomes_correct("DC0_C0_RP0_VM0", SOON).await?;
    stage.becomes_correct("DC0_C0_RP0_VM1", SOON).await?;
    assert_eq!(stage.labels("dc0-c0-rp0-vm0").await?["of"], "another-client", "other labels must not change");
    stage.bridger.prints("2 of 2 matched to a VM", SOON).await?;

    // A vMotion.
    let (target, reference) = other_host(&stage.vcsim, "DC0_C0_RP0_VM0").await?;
    stage.vcsim.govc().run(&["vm.migrate", "-host", &reference, "DC0_C0_RP0_VM0"]).await?;
    stage.becomes("dc0-c0-rp0-vm0", &target, SOON).await?;
    let events = stage.control_plane.kubectl().run(&["get", "events", "-A", "-o", "json"]).await?;
    assert!(events.contains("moved from ") && events.contains(&format!("to {target}")), "{events}");

    // A move by a third party, without a vCenter task.
    let (target, reference) = other_host(&stage.vcsim, "DC0_C0_RP0_VM1").await?;
    move_without_task(&stage.vcsim, "DC0_C0_RP0_VM1", reference.trim_start_matches("HostSystem:")).await?;
    stage.becomes("dc0-c0-rp0-vm1", &target, SOON).await?;

    // A node added later.
    add_node(&stage.control_plane, &stage.vcsim, "DC0_C0_RP0_VM2").await?;
    stage.becomes_correct("DC0_C0_RP0_VM2", SOON).await?;

    // A wrong label set by another client is corrected.
    stage
        .control_plane
        .kubectl()
        .run(&["label", "node", "dc0-c0-rp0-vm2", "--overwrite", &format!("{KEY}=wrong")])
        .await?;
    stage.becomes_correct("DC0_C0_RP0_VM2", SOON).await?;

    // All sessions are removed.
    let govc = stage.vcsim.govc();
    for line in govc.run(&["session.ls"]).await?.lines().skip(1) {
        let _ = govc.try_run(&["session.rm", line.split_whitespace().next().unwrap_or_default()]).await?;
    }
    let (target, reference) = other_host(&stage.vcsim, "DC0_C0_RP0_VM0").await?;
    govc.run(&["vm.migrate", "-host", &reference, "DC0_C0_RP0_VM0"]).await?;
    stage.becomes("dc0-c0-rp0-vm0", &target, LATER).await?;
    assert!(!stage.bridger.output().contains(testkit::vcsim::PASSWORD), "a password in the output");
    Ok(())
}

#[tokio::test]
async fn a_vcenter_outage_leaves_labels_unchanged_and_updates_resume_afterwards() -> Result<()> {
    let mut stage = Stage::start(&["DC0_C0_RP0_VM0"]).await?;
    stage.becomes_correct("DC0_C0_RP0_VM0", SOON).await?;
    let before = stage.labels("dc0-c0-rp0-vm0").await?;
    stage.vcsim.kill();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(stage.labels("dc0-c0-rp0-vm0").await?, before);
    let ready = stage.bridger.get("/readyz").await?;
    assert!(ready.contains("ready, degraded"), "{ready}");

    stage.vcsim.restart().await?;
    let (target, reference) = other_host(&stage.vcsim, "DC0_C0_RP0_VM0").await?;
    stage.vcsim.govc().run(&["vm.migrate", "-host", &reference, "DC0_C0_RP0_VM0"]).await?;
    stage.becomes("dc0-c0-rp0-vm0", &target, LATER).await
}

#[tokio::test]
async fn updates_resume_after_an_api_server_crash() -> Result<()> {
    let mut stage = Stage::start(&["DC0_C0_RP0_VM0"]).await?;
    stage.becomes_correct("DC0_C0_RP0_VM0", SOON).await?;
    stage.control_plane.kill_apiserver();
    let (target, reference) = other_host(&stage.vcsim, "DC0_C0_RP0_VM0").await?;
    stage.vcsim.govc().run(&["vm.migrate", "-host", &reference, "DC0_C0_RP0_VM0"]).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    stage.control_plane.restart_apiserver().await?;
    stage.becomes("dc0-c0-rp0-vm0", &target, LATER).await
}

#[tokio::test]
async fn a_dry_run_writes_nothing() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    add_node(&control_plane, &vcsim, "DC0_C0_RP0_VM0").await?;
    let mut bridger = Bridger::start(&[RUN, &["--dry-run"]].concat(), &environment(&control_plane, &vcsim))?;
    bridger.prints("would label", SOON).await?;
    let node = control_plane.kubectl().run(&["get", "node", "dc0-c0-rp0-vm0", "-o", "json"]).await?;
    assert!(!node.contains(KEY), "{node}");
    Ok(())
}

#[tokio::test]
async fn invalid_input_gets_a_clear_message_and_an_exit_code() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let good = environment(&control_plane, &vcsim);
    let with = |name: &'static str, value: &str| {
        let mut changed: Vec<(&str, String)> = good.iter().filter(|(known, _)| *known != name).cloned().collect();
        changed.push((name, value.to_owned()));
        changed
    };
    let unprivileged = control_plane.kubeconfig_for("unprivileged", &[])?;
    let [closed] = testkit::ports::free()?;
    let secret = testkit::vcsim::PASSWORD;
    let unreachable = with("GOVC_URL", &format!("https://u:{secret}@127.0.0.1:{closed}"));
    // A service starts without its vCenter; a command needs it.
    let (run, plan) = (RUN, &["plan"][..]);
    let cases = [
        ("wrong URL", run, vec![], with("GOVC_URL", "ftp://vc"), 2, "https://"),
        ("no such CA file", run, vec!["--ca-file", "/nonexistent"], with("GOVC_INSECURE", "false"), 2, "/nonexistent"),
        ("unreachable", plan, vec![], unreachable, 1, "cannot reach"),
        ("TLS unknown", plan, vec![], with("GOVC_INSECURE", "false"), 2, "--thumbprint"),
        ("wrong password", plan, vec![], with("GOVC_PASSWORD", "wrong"), 2, "password is wrong"),
        ("no such cluster", plan, vec!["--cluster", "none"], good.clone(), 2, "DC0_C0"),
        ("no kubeconfig", run, vec![], with("KUBECONFIG", "/nonexistent/kubeconfig"), 2, "/nonexistent/kubeconfig"),
        ("no RBAC", run, vec![], with("KUBECONFIG", &unprivileged.display().to_string()), 2, "\"list\" on nodes"),
        ("a password in a flag", run, vec!["--url", "https://u:hunter2@vc"], good.clone(), 2, "GOVC_PASSWORD"),
    ];
    for (what, command, extra, variables, code, expected) in cases {
        let arguments = [command, &extra].concat();
        let finished = testkit::bridger::run_to_end(&arguments, &variables).await.context(what)?;
        assert_eq!(finished.code, Some(code), "{what}: {finished:?}");
        assert!(finished.stderr.contains(expected), "{what}: {finished:?}");
        assert!(finished.stderr.lines().count() <= 2, "{what}: {finished:?}");
        assert!(!finished.stderr.contains(secret) && !finished.stderr.contains("hunter2"), "{what}: {finished:?}");
    }

    // The same vCenter under two names.
    let (_, rest) = vcsim.govc_url().rsplit_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).context("a URL")?;
    let one = format!("https://{rest}");
    let two = one.replace("127.0.0.1", "localhost");
    let variables =
        [with("GOVC_USERNAME", testkit::vcsim::USERNAME), vec![("GOVC_PASSWORD", secret.to_owned())]].concat();
    let finished = testkit::bridger::run_to_end(&["plan", "--url", &one, "--url", &two], &variables).await?;
    assert_eq!(finished.code, Some(2), "{finished:?}");
    assert!(finished.stderr.contains("same vCenter"), "{finished:?}");
    Ok(())
}

#[tokio::test]
async fn one_vcenter_down_does_not_stop_the_other() -> Result<()> {
    let sandbox = Sandbox::start(&["--hosts", "2", "--nodes", "3", "--drs", "off", "--speed", "20"]).await?;
    let mut vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    let workdir = testkit::workdir::Workdir::create("two-vcenters")?;
    let mut config = String::from("vcenters:\n");
    for (name, url) in [("sandbox", sandbox.govc_url().to_owned()), ("vcsim", vcsim.govc_url())] {
        let (endpoint, credentials) = Endpoint::parse(&url)?;
        let credentials = credentials.context("in the URL")?;
        let username = workdir.write(&format!("{name}-username"), &credentials.username)?;
        let password = workdir.write(&format!("{name}-password"), format!("{}\n", credentials.password))?;
        config.push_str(&format!(
            "  - url: https://{}/sdk\n    usernameFile: {}\n    passwordFile: {}\n    insecure: true\n",
            endpoint.host(),
            username.display(),
            password.display()
        ));
    }
    let file = workdir.write("bridger.yaml", config)?;
    let variables = [("KUBECONFIG", sandbox.kubeconfig().display().to_string()), ("NO_COLOR", "1".to_owned())];
    let mut bridger = Bridger::start(&[RUN, &["--config", &file.display().to_string()]].concat(), &variables)?;
    bridger.prints("3 of 3 matched to a VM", SOON).await?;
    vcsim.kill();
    eventually(SOON, || async {
        let ready = bridger.get("/readyz").await?;
        ensure!(ready.contains("ready, degraded"), "{ready}");
        Ok(())
    })
    .await?;
    let label = || async {
        let path = format!("jsonpath={{.metadata.labels.{}}}", KEY.replace('.', "\\."));
        sandbox.kubectl().run(&["get", "node", "node-1", "-o", &path]).await
    };
    let target = if label().await? == "esx-1.lab" { "esx-2.lab" } else { "esx-1.lab" };
    sandbox.govc().run(&["vm.migrate", "-host", &format!("cluster-1/{target}"), "node-1"]).await?;
    eventually(SOON, || async {
        let now = label().await?;
        ensure!(now == target, "{now} should be {target}:\n{}", bridger.output());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn bridger_runs_without_a_vcenter() -> Result<()> {
    let sandbox = Sandbox::start(&["--hosts", "2", "--nodes", "2"]).await?;
    let variables = [("KUBECONFIG", sandbox.kubeconfig().display().to_string())];
    let mut bridger = Bridger::start(RUN, &variables)?;
    bridger.prints("vCenter     none", SOON).await?;
    bridger.prints("0 of 2 matched to a VM", SOON).await?;
    let ready = bridger.get("/readyz").await?;
    assert!(ready.ends_with("\r\n\r\nready\n"), "{ready}");
    Ok(())
}

#[tokio::test]
async fn number_7_the_old_command_line_means_run_with_the_extender() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    add_node(&control_plane, &vcsim, "DC0_C0_RP0_VM0").await?;
    let (endpoint, credentials) = Endpoint::parse(&vcsim.govc_url())?;
    let credentials = credentials.context("in the URL")?;
    let mut variables = environment(&control_plane, &vcsim);
    variables.retain(|(name, _)| *name != "GOVC_URL");
    variables.extend([("GOVC_USERNAME", credentials.username), ("GOVC_PASSWORD", credentials.password)]);
    let [port] = testkit::ports::free()?;
    let (url, port) = (format!("https://{}/sdk", endpoint.host()), port.to_string());
    // The port of health and metrics is not the extender's.
    let arguments = ["-cluster", "DC0_C0", "-url", &url, "-port", &port, "--port", "0"];
    let mut bridger = Bridger::start(&arguments, &variables)?;
    bridger.prints(&format!("Extender    http://127.0.0.1:{port} "), SOON).await?;
    bridger.prints("1 of 1 matched to a VM", SOON).await?;
    let host = host_of(&vcsim, "DC0_C0_RP0_VM0").await?;
    Stage { control_plane, vcsim, bridger }.becomes("dc0-c0-rp0-vm0", &host, SOON).await
}
