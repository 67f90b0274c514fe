//! kube-scheduler with Bridger as its extender, kube-apiserver and vcsim: anti-affinity between nodes holds between
//! physical hosts, whatever order pods come in and wherever VMs move.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use testkit::{Bridger, ControlPlane, Scheduler, Vcsim, VcsimOptions, eventually};

const HOSTS: u32 = 3;
const VMS: u32 = 6;
const SOON: Duration = Duration::from_secs(30);
/// kube-scheduler tries a pod again after a back-off of up to 10 s.
const RETRIED: Duration = Duration::from_secs(60);

struct Stage {
    _control_plane: ControlPlane,
    vcsim: Vcsim,
    bridger: Bridger,
    scheduler: Scheduler,
    pods: Api<Pod>,
    client: kube::Client,
}

fn node_of(vm: &str) -> String {
    vm.to_lowercase().replace('_', "-")
}

fn vm_name(number: u32) -> String {
    format!("DC0_C0_RP0_VM{number}")
}

fn host_name(number: u32) -> String {
    format!("DC0_C0_H{number}")
}

/// Two VMs on each host, a node for each VM.
async fn arrange(control_plane: &ControlPlane, vcsim: &Vcsim) -> Result<()> {
    let govc = vcsim.govc();
    let nodes: Api<Node> = Api::all(control_plane.client().await?);
    for number in 0..VMS {
        let vm = vm_name(number);
        move_vm(vcsim, &vm, &host_name(number % HOSTS)).await?;
        let uuid = govc.run(&["object.collect", "-s", &format!("/DC0/vm/{vm}"), "config.uuid"]).await?;
        let name = node_of(&vm);
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
            "status": {
                "capacity": { "cpu": "8", "memory": "16Gi", "pods": "110" },
                "allocatable": { "cpu": "8", "memory": "16Gi", "pods": "110" },
                "conditions": [{ "type": "Ready", "status": "True", "reason": "Test", "message": "",
                    "lastHeartbeatTime": null, "lastTransitionTime": null }],
                "nodeInfo": { "systemUUID": uuid.trim(), "machineID": "", "bootID": "", "kernelVersion": "", "osImage": "",
                    "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "",
                    "architecture": "" },
            },
        }))?;
        nodes.create(&PostParams::default(), &node).await?;
        control_plane.make_schedulable(&name).await?;
    }
    Ok(())
}

async fn host_of(vcsim: &Vcsim, vm: &str) -> Result<String> {
    let govc = vcsim.govc();
    let reference = govc.run(&["object.collect", "-s", &format!("/DC0/vm/{vm}"), "runtime.host"]).await?;
    Ok(govc.run(&["object.collect", "-s", reference.trim(), "name"]).await?.trim().to_owned())
}

async fn move_vm(vcsim: &Vcsim, vm: &str, host: &str) -> Result<()> {
    if host_of(vcsim, vm).await? != host {
        let path = format!("/DC0/host/DC0_C0/{host}");
        vcsim.govc().run(&["vm.migrate", "-host", &path, vm]).await?;
    }
    Ok(())
}

/// What `bridger manifests scheduler-config` prints, for this Bridger.
async fn scheduler_config(address: &str) -> Result<Value> {
    let url = format!("http://{address}/v1");
    let printed = testkit::bridger::run_to_end(&["manifests", "scheduler-config", "--url", &url], &[]).await?;
    ensure!(printed.code == Some(0), "{printed:?}");
    Ok(serde_saphyr::from_str(&printed.stdout)?)
}

impl Stage {
    /// With hosts that are in maintenance from the start: vcsim sends no update when one enters it.
    async fn start(in_maintenance: &[u32]) -> Result<Stage> {
        let control_plane = ControlPlane::start().await?;
        let options = VcsimOptions { hosts_per_cluster: HOSTS, vms_per_cluster: VMS, ..VcsimOptions::default() };
        let vcsim = Vcsim::start(&options).await?;
        arrange(&control_plane, &vcsim).await?;
        for number in in_maintenance {
            let path = format!("/DC0/host/DC0_C0/{}", host_name(*number));
            vcsim.govc().run(&["host.maintenance.enter", &path]).await?;
        }
        let environment = [
            ("KUBECONFIG", control_plane.kubeconfig().display().to_string()),
            ("GOVC_URL", vcsim.govc_url()),
            ("GOVC_INSECURE", "true".to_owned()),
            ("NO_COLOR", "1".to_owned()),
        ];
        let mut bridger = Bridger::start(&["run", "--port", "0", "--listen", "127.0.0.1"], &environment)?;
        bridger.prints(&format!("{VMS} of {VMS} matched to a VM"), SOON).await?;
        let scheduler = Scheduler::start(&control_plane, Some(scheduler_config(&bridger.address()?).await?)).await?;
        let client = control_plane.client().await?;
        let pods = Api::default_namespaced(client.clone());
        Ok(Stage { _control_plane: control_plane, vcsim, bridger, scheduler, pods, client })
    }

    async fn create(&self, app: &str, name: &str) -> Result<()> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "app": app } },
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "main", "image": "none", "resources": { "requests": { "cpu": "100m" } } }],
                "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
                    "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": app } } }] } },
            },
        }))?;
        self.pods.create(&PostParams::default(), &pod).await?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// The nodes that pods of this app are bound to, by pod.
    async fn placed(&self, app: &str) -> Result<BTreeMap<String, String>> {
        let listed = self.pods.list(&ListParams::default().labels(&format!("app={app}"))).await?;
        let placed = listed.items.into_iter().filter_map(|pod| Some((pod.metadata.name?, pod.spec?.node_name?)));
        Ok(placed.collect())
    }

    async fn placed_becomes(&self, app: &str, count: usize, within: Duration) -> Result<BTreeMap<String, String>> {
        eventually(within, || async {
            let placed = self.placed(app).await?;
            ensure!(
                placed.len() == count,
                "{placed:?} instead of {count}:\n{}\n{}",
                self.scheduler.log_tail(),
                self.bridger.output()
            );
            Ok(placed)
        })
        .await
    }

    /// The physical hosts of some nodes, by vcsim's own word.
    async fn hosts_of(&self, nodes: impl IntoIterator<Item = &String>) -> Result<Vec<String>> {
        let mut hosts = Vec::new();
        for node in nodes {
            let number = (0..VMS).find(|number| node_of(&vm_name(*number)) == *node).context("a node of ours")?;
            hosts.push(host_of(&self.vcsim, &vm_name(number)).await?);
        }
        Ok(hosts)
    }

    async fn apart(&self, app: &str, count: usize) -> Result<()> {
        let placed = self.placed(app).await?;
        let hosts = self.hosts_of(placed.values()).await?;
        let distinct: BTreeSet<&String> = hosts.iter().collect();
        ensure!(distinct.len() == count && hosts.len() == count, "{placed:?} are on {hosts:?}");
        Ok(())
    }

    /// Waits until kube-scheduler says why the pod waits.
    async fn waits_because(&self, name: &str, expected: &str) -> Result<()> {
        eventually(SOON, || async {
            let pod = self.pods.get(name).await?;
            let conditions = pod.status.and_then(|status| status.conditions).unwrap_or_default();
            let Some(condition) = conditions.iter().find(|condition| condition.type_ == "PodScheduled") else {
                bail!("nothing is said of {name}")
            };
            let message = condition.message.clone().unwrap_or_default();
            ensure!(condition.status == "False" && message.contains(expected), "{message}");
            Ok(())
        })
        .await
    }
}

#[tokio::test]
async fn replicas_land_on_different_hosts_and_moves_are_followed() -> Result<()> {
    let stage = Stage::start(&[]).await?;
    for replica in ["a1", "a2", "a3"] {
        stage.create("a", replica).await?;
    }
    stage.placed_becomes("a", 3, RETRIED).await?;
    stage.apart("a", 3).await?;

    // A fourth one waits, and both kube-scheduler and Bridger say why.
    stage.create("a", "a4").await?;
    stage.waits_because("a4", "6 node(s) didn't match pod anti-affinity rules between physical hosts").await?;
    let events: Api<Event> = Api::default_namespaced(stage.client.clone());
    eventually(SOON, || async {
        let listed = events.list(&ListParams::default().fields("involvedObject.name=a4")).await?;
        let told: Vec<String> = listed
            .items
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("NoHostFits"))
            .filter_map(|event| event.message)
            .collect();
        let names_both = |text: &String| text.contains("default/a") && text.contains("DC0_C0_H");
        ensure!(told.len() == 1 && told.iter().all(names_both), "{told:?}");
        Ok(())
    })
    .await?;

    // The VM of the third replica moves to another replica's host: its own host is free.
    let placed = stage.placed("a").await?;
    let (vm_of, host_of_first) = {
        let vm = (0..VMS).map(vm_name).find(|vm| node_of(vm) == placed["a3"]).context("the VM")?;
        (vm, stage.hosts_of([&placed["a1"]]).await?.remove(0))
    };
    let freed = stage.hosts_of([&placed["a3"]]).await?.remove(0);
    move_vm(&stage.vcsim, &vm_of, &host_of_first).await?;
    let placed = stage.placed_becomes("a", 4, RETRIED).await?;
    assert_eq!(stage.hosts_of([&placed["a4"]]).await?, [freed]);

    // The second replica goes; the third one's VM moves to the host it was on: that host is taken again.
    let emptied = stage.hosts_of([&placed["a2"]]).await?.remove(0);
    stage.delete("a2").await?;
    move_vm(&stage.vcsim, &vm_of, &emptied).await?;
    eventually(SOON, || async {
        let nodes: Api<Node> = Api::all(stage.client.clone());
        let labels = nodes.get(&placed["a3"]).await?.metadata.labels.unwrap_or_default();
        ensure!(labels.get("alpha.cna.vmware.com/host") == Some(&emptied), "{labels:?}");
        Ok(())
    })
    .await?;
    stage.create("a", "a5").await?;
    stage.waits_because("a5", "between physical hosts").await?;

    let metrics = stage.bridger.get("/metrics").await?;
    for expected in [
        "bridger_extender_requests_total{verb=\"filter\",outcome=\"ok\"}",
        "bridger_extender_requests_total{verb=\"bind\",outcome=\"ok\"} 4",
        "bridger_extender_seconds_bucket",
    ] {
        assert!(metrics.contains(expected), "{expected} is missing:\n{metrics}");
    }
    Ok(())
}

/// Replicas that are created together: kube-scheduler does not tell an extender what it has placed and not bound yet.
#[tokio::test]
async fn replicas_created_together_never_share_a_host() -> Result<()> {
    let stage = Stage::start(&[]).await?;
    for round in 0..testkit::count(6, 100) {
        let app = format!("round-{round}");
        let names: Vec<String> = (0..3).map(|replica| format!("{app}-{replica}")).collect();
        futures::future::try_join_all(names.iter().map(|name| stage.create(&app, name))).await?;
        let placed = stage.placed_becomes(&app, 3, RETRIED).await?;
        // Nothing moves here: the hosts are those the VMs were put on.
        let hosts: BTreeSet<u32> = placed
            .values()
            .map(|node| (0..VMS).find(|number| node_of(&vm_name(*number)) == *node).map(|number| number % HOSTS))
            .collect::<Option<_>>()
            .context("nodes of ours")?;
        ensure!(hosts.len() == 3, "round {round}: {placed:?}");
        futures::future::try_join_all(names.iter().map(|name| stage.delete(name))).await?;
    }
    stage.apart("none", 0).await?;
    Ok(())
}

#[tokio::test]
async fn a_host_in_maintenance_takes_no_pods_and_a_lost_vcenter_changes_nothing() -> Result<()> {
    let mut stage = Stage::start(&[0]).await?;
    eventually(SOON, || async {
        let answer = ask(&stage, "b", &(0..VMS).map(|number| node_of(&vm_name(number))).collect::<Vec<_>>()).await?;
        let refused = answer["FailedAndUnresolvableNodes"].as_object().map(serde_json::Map::len);
        ensure!(refused == Some(2), "{answer}");
        Ok(())
    })
    .await
    .context("two nodes shall be refused")?;
    stage.vcsim.kill();
    eventually(SOON, || async {
        let ready = stage.bridger.get("/readyz").await?;
        ensure!(ready.contains("ready, degraded"), "{ready}");
        Ok(())
    })
    .await
    .context("the vCenter shall be missed")?;
    // The last known hosts serve on.
    for replica in ["b1", "b2", "b3"] {
        stage.create("b", replica).await?;
    }
    let placed = stage.placed_becomes("b", 2, RETRIED).await?;
    let hosts: BTreeSet<u32> = placed
        .values()
        .filter_map(|node| (0..VMS).find(|number| node_of(&vm_name(*number)) == *node).map(|number| number % HOSTS))
        .collect();
    assert_eq!(hosts, BTreeSet::from([1, 2]));
    Ok(())
}

/// Asks Bridger's filter itself, as kube-scheduler would.
async fn ask(stage: &Stage, app: &str, nodes: &[String]) -> Result<Value> {
    let pod =
        json!({ "metadata": { "name": "probe", "namespace": "default", "uid": "probe", "labels": { "app": app } } });
    stage.bridger.post("/filter", &json!({ "Pod": pod, "Nodes": null, "NodeNames": nodes })).await
}
