//! Runs the real govc on `bridger sandbox`: DRS, maintenance, HA. The world runs faster than real time, so that a DRS
//! period takes a second or two.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use testkit::{Govc, Sandbox, eventually};

/// More than twenty simulated minutes at the speed used here.
const SOON: Duration = Duration::from_secs(60);
const SPEED: &str = "30";

async fn host_of(govc: &Govc, vm: &str) -> Result<String> {
    let host = govc.run(&["object.collect", "-s", &format!("/dc-1/vm/{vm}"), "runtime.host"]).await?;
    let reference = host.trim().to_owned();
    let name = govc.run(&["object.collect", "-s", &reference, "name"]).await?;
    Ok(name.trim().to_owned())
}

async fn vms_on(govc: &Govc, host: &str) -> Result<usize> {
    let found = govc.run(&["object.collect", "-s", &format!("/dc-1/host/cluster-1/{host}"), "vm"]).await?;
    Ok(found.split([',', '\n']).filter(|part| !part.trim().is_empty()).count())
}

#[tokio::test]
async fn drs_separates_the_vms_of_a_new_rule() -> Result<()> {
    let sandbox = Sandbox::start(&["--hosts", "3", "--nodes", "6", "--speed", SPEED]).await?;
    let govc = sandbox.govc();
    // Move two VMs to the same host.
    eventually(SOON, || async {
        let host = host_of(&govc, "node-1").await?;
        if host_of(&govc, "node-2").await? != host {
            // DRS may be moving either of them at this moment; then this is retried.
            govc.run(&["vm.migrate", "-host", &format!("cluster-1/{host}"), "node-2"]).await?;
        }
        Ok(())
    })
    .await?;
    govc.run(&[
        "cluster.rule.create",
        "-cluster",
        "cluster-1",
        "-name",
        "anti",
        "-enable",
        "-anti-affinity",
        "node-1",
        "node-2",
    ])
    .await?;
    eventually(SOON, || async {
        let (one, two) = (host_of(&govc, "node-1").await?, host_of(&govc, "node-2").await?);
        ensure!(one != two, "both are on {one}");
        Ok(())
    })
    .await?;
    let info = govc.run(&["cluster.rule.info", "-cluster", "cluster-1", "-name", "anti"]).await?;
    assert!(
        info.contains("ClusterAntiAffinityRuleSpec") && info.contains("node-1") && info.contains("node-2"),
        "{info}"
    );
    Ok(())
}

#[tokio::test]
async fn maintenance_evacuates_and_an_impossible_rule_stalls_it() -> Result<()> {
    let sandbox = Sandbox::start(&["--hosts", "3", "--nodes", "6", "--speed", SPEED]).await?;
    let govc = sandbox.govc();
    assert!(vms_on(&govc, "esx-1.lab").await? > 0);
    govc.run(&["host.maintenance.enter", "/dc-1/host/cluster-1/esx-1.lab"]).await?;
    assert_eq!(vms_on(&govc, "esx-1.lab").await?, 0);
    govc.run(&["host.maintenance.exit", "/dc-1/host/cluster-1/esx-1.lab"]).await?;

    // The anti-affinity rule has as many VMs as there are hosts: without one host, one VM has no target.
    govc.run(&[
        "cluster.rule.create",
        "-cluster",
        "cluster-1",
        "-name",
        "wide",
        "-enable",
        "-anti-affinity",
        "node-1",
        "node-2",
        "node-3",
    ])
    .await?;
    eventually(SOON, || async {
        let mut hosts = Vec::new();
        for vm in ["node-1", "node-2", "node-3"] {
            hosts.push(host_of(&govc, vm).await?);
        }
        hosts.sort();
        hosts.dedup();
        ensure!(hosts.len() == 3, "not yet on different hosts: {hosts:?}");
        Ok(())
    })
    .await?;
    // A limit of 120 simulated seconds: the task times out instead of waiting forever.
    let stalled =
        govc.try_run(&["host.maintenance.enter", "-timeout", "120", "/dc-1/host/cluster-1/esx-2.lab"]).await?;
    assert_ne!(stalled.code, Some(0), "{stalled:?}");
    assert!(sandbox.output().contains("cannot enter maintenance"), "{}", sandbox.output());
    assert!(vms_on(&govc, "esx-2.lab").await? >= 1);
    Ok(())
}

#[tokio::test]
async fn the_vms_of_a_failed_host_restart_elsewhere_and_their_nodes_return() -> Result<()> {
    let sandbox = Sandbox::start(&["--hosts", "3", "--nodes", "6", "--speed", SPEED]).await?;
    let govc = sandbox.govc();
    let host = host_of(&govc, "node-1").await?;
    sandbox.control("POST", &format!("hosts/{host}/fail"), serde_json::Value::Null).await?;
    eventually(SOON, || async {
        let now = host_of(&govc, "node-1").await?;
        ensure!(now != host, "node-1 is still on {host}");
        let power = govc.run(&["object.collect", "-s", "/dc-1/vm/node-1", "runtime.powerState"]).await?;
        ensure!(power.trim() == "poweredOn", "{power}");
        Ok(())
    })
    .await?;
    eventually(SOON, || async {
        let nodes = sandbox.kubectl().run(&["get", "nodes", "--no-headers"]).await?;
        ensure!(nodes.lines().all(|line| line.split_whitespace().nth(1) == Some("Ready")), "{nodes}");
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_conflicting_rule_is_disabled() -> Result<()> {
    let sandbox = Sandbox::start(&["--hosts", "3", "--nodes", "4"]).await?;
    let govc = sandbox.govc();
    let create = ["cluster.rule.create", "-cluster", "cluster-1", "-enable"];
    govc.run(&[&create[..], &["-name", "older", "-anti-affinity", "node-1", "node-2"]].concat()).await?;
    govc.run(&[&create[..], &["-name", "newer", "-affinity", "node-1", "node-2"]].concat()).await?;
    let config = govc.run(&["object.collect", "-s", "-json", "/dc-1/host/cluster-1", "configurationEx"]).await?;
    let config: serde_json::Value = serde_json::from_str(&config)?;
    let rules = config
        .pointer("/0/val/rule")
        .or_else(|| config.pointer("/0/Val/rule"))
        .or_else(|| config.pointer("/rule"))
        .and_then(serde_json::Value::as_array)
        .with_context(|| format!("rules in {config}"))?;
    let enabled = |name: &str| {
        rules.iter().find(|rule| rule["name"] == name).map(|rule| rule["enabled"].as_bool().unwrap_or(false))
    };
    assert_eq!((enabled("older"), enabled("newer")), (Some(true), Some(false)), "{config}");
    Ok(())
}

#[tokio::test]
async fn everyday_commands_work() -> Result<()> {
    // Without DRS, because a VM that is being moved rejects power operations, as on a real vCenter.
    let sandbox = Sandbox::start(&["--hosts", "2", "--nodes", "4", "--drs", "off", "--speed", SPEED]).await?;
    let govc = sandbox.govc();
    let cluster = "/dc-1/host/cluster-1";
    for (arguments, expected) in [
        (&["about"][..], "VMware vCenter Server"),
        (&["ls"], "/dc-1/vm"),
        (&["ls", "host/cluster-1"], "esx-1.lab"),
        (&["find", "-type", "m"], "node-3"),
        (&["find", "/", "-type", "h"], "esx-2.lab"),
        (&["vm.info", "node-1"], "Power state:"),
        (&["host.info", "-host", "cluster-1/esx-1.lab"], "Logical CPUs:"),
        (&["cluster.group.create", "-cluster", cluster, "-name", "vms", "-vm", "node-1", "node-2"], ""),
        (&["cluster.group.ls", "-cluster", cluster], "vms"),
        (&["cluster.group.create", "-cluster", cluster, "-name", "hosts", "-host", "esx-1.lab"], ""),
        (
            &[
                "cluster.rule.create",
                "-cluster",
                cluster,
                "-name",
                "pinned",
                "-enable",
                "-vm-host",
                "-vm-group",
                "vms",
                "-host-affine-group",
                "hosts",
            ],
            "",
        ),
        (&["cluster.rule.ls", "-cluster", cluster], "pinned"),
        (&["cluster.rule.remove", "-cluster", cluster, "-name", "pinned"], ""),
        (&["cluster.group.remove", "-cluster", cluster, "-name", "vms"], ""),
        (&["vm.power", "-off", "-force", "node-4"], "OK"),
        (&["vm.power", "-on", "node-4"], "OK"),
        (&["events", "-n", "5"], "node-4"),
        (&["session.ls"], "administrator"),
    ] {
        let printed = govc.run(arguments).await.with_context(|| format!("govc {}", arguments.join(" ")))?;
        assert!(printed.contains(expected), "govc {}: {expected:?} is missing:\n{printed}", arguments.join(" "));
    }
    // After the VM was powered off and on, its node becomes ready again.
    eventually(SOON, || async {
        let node = sandbox.kubectl().run(&["get", "node", "node-4", "--no-headers"]).await?;
        ensure!(node.split_whitespace().nth(1) == Some("Ready"), "{node}");
        Ok(())
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_new_vm_with_the_node_role_becomes_a_node() -> Result<()> {
    let sandbox = Sandbox::start(&["--hosts", "2", "--nodes", "2", "--drs", "off", "--speed", SPEED]).await?;
    let govc = sandbox.govc();
    govc.run(&["vm.create", "-on=false", "-c", "2", "-m", "4096", "-pool", "cluster-1/Resources", "fresh"]).await?;
    govc.run(&["vm.change", "-vm", "fresh", "-e", "guestinfo.bridger.role=node"]).await?;
    govc.run(&["vm.power", "-on", "fresh"]).await?;
    eventually(SOON, || async {
        let node = sandbox.kubectl().run(&["get", "node", "fresh", "--no-headers"]).await?;
        ensure!(node.split_whitespace().nth(1) == Some("Ready"), "{node}");
        Ok(())
    })
    .await?;
    govc.run(&["vm.destroy", "fresh"]).await?;
    eventually(SOON, || async {
        if sandbox.kubectl().try_run(&["get", "node", "fresh"]).await?.code == Some(0) {
            bail!("the node still exists");
        }
        Ok(())
    })
    .await?;
    Ok(())
}
