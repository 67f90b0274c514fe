//! The measurements behind `cargo xtask bench label`; prints one line of JSON. With the argument `latency`, only the
//! first.
//!
//! 1. Latency: kube-apiserver, vcsim with 100 VMs, and `bridger run`. For each of 200 moves, the time from the end of
//!    the move until a watch shows the label; and, in the same run, until a plain property collector shows the VM's
//!    host, which is the part that vcsim itself takes.
//! 2. Scale: `bridger run` on a sandbox of 5000 nodes: how long the first full labelling takes at the default rate, how
//!    much memory it needs, and how many writes follow while nothing changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use testkit::{Bridger, ControlPlane, Sandbox, Vcsim, VcsimOptions, usage};
use tokio::sync::mpsc;
use vsphere::property::{self, Selection, Watch};
use vsphere::transport::Transport;
use vsphere::{Client, Endpoint, ManagedObject, Trust};

const VMS: u32 = 100;
const HOSTS: u32 = 10;
const MOVES: usize = 200;
const KEY: &str = "alpha.cna.vmware.com/host";
const LIMIT: Duration = Duration::from_secs(30);
const SCALE_NODES: usize = 5000;
/// How long writes are counted after everything is labelled.
const QUIET: Duration = Duration::from_secs(20);

const WATCHED: &[Selection<'_>] = &[Selection { kind: "VirtualMachine", paths: &["runtime.host"] }];

#[tokio::main]
#[allow(clippy::print_stdout)]
async fn main() -> Result<()> {
    let latency = latency().await.context("measuring latency")?;
    if std::env::args().nth(1).as_deref() == Some("latency") {
        println!("{latency}");
        return Ok(());
    }
    let scale = scale().await.context("measuring scale")?;
    println!("{}", json!({ "latency": latency, "scale": scale }));
    Ok(())
}

async fn connect(vcsim: &Vcsim) -> Result<Arc<Client>> {
    let (endpoint, credentials) = Endpoint::parse(&vcsim.govc_url())?;
    let transport = Transport::network(&Trust::Insecure)?;
    Ok(Arc::new(Client::connect(transport, endpoint, credentials.context("credentials")?).await?))
}

struct Machine {
    vm: ManagedObject,
    node: String,
    host: String,
}

/// The VMs with UUID and host id, and the names of all hosts by id.
async fn inventory(client: &Arc<Client>) -> Result<(Vec<(ManagedObject, String, String)>, BTreeMap<String, String>)> {
    let selections = [
        Selection { kind: "VirtualMachine", paths: &["config.uuid", "runtime.host"] },
        Selection { kind: "HostSystem", paths: &["name"] },
    ];
    let root = client.content().root_folder.clone();
    let mut watch = Watch::start(client.clone(), &root, &selections).await?;
    let (mut vms, mut hosts) = (Vec::new(), BTreeMap::new());
    loop {
        let updates = watch.next(Duration::from_secs(5)).await?;
        for update in &updates.objects {
            let text = |path: &str| {
                let change = update.changes.iter().find(|change| change.path == path)?;
                change.value.as_ref().map(|value| value.text.trim().to_owned())
            };
            match update.object.kind.as_str() {
                "HostSystem" => {
                    hosts.insert(update.object.id.clone(), text("name").context("a host's name")?);
                }
                _ => vms.push((
                    update.object.clone(),
                    text("config.uuid").context("a VM's UUID")?,
                    text("runtime.host").context("a VM's host")?,
                )),
            }
        }
        if updates.complete {
            watch.stop().await?;
            return Ok((vms, hosts));
        }
    }
}

async fn latency() -> Result<Value> {
    let control_plane = ControlPlane::start().await?;
    let options = VcsimOptions { hosts_per_cluster: HOSTS, vms_per_cluster: VMS, ..VcsimOptions::default() };
    let vcsim = Vcsim::start(&options).await?;
    let client = connect(&vcsim).await?;
    let (vms, hosts) = inventory(&client).await?;
    let nodes: Api<Node> = Api::all(control_plane.client().await?);
    let mut machines = Vec::new();
    for (number, (vm, uuid, host)) in vms.into_iter().enumerate() {
        let node = format!("node-{number}");
        nodes.create(&PostParams::default(), &node_object(&node, &uuid)?).await?;
        machines.push(Machine { vm, node, host });
    }
    let environment = [
        ("KUBECONFIG", control_plane.kubeconfig().display().to_string()),
        ("GOVC_URL", vcsim.govc_url()),
        ("GOVC_INSECURE", "true".to_owned()),
    ];
    let mut bridger = Bridger::start(&["run", "--port", "0"], &environment)?;
    bridger.prints(&format!("{VMS} of {VMS} matched"), LIMIT).await?;

    let (labels, mut label_seen) = mpsc::unbounded_channel();
    let watching = tokio::spawn(watch_labels(nodes.clone(), labels));
    let (bare, mut bare_seen) = mpsc::unbounded_channel();
    // A separate session and property collector, as Bridger has.
    let collecting = tokio::spawn(watch_hosts(connect(&vcsim).await?, bare));
    let mut labelled: BTreeMap<String, String> = BTreeMap::new();
    while labelled.len() < machines.len() {
        let (node, host, _) = next(&mut label_seen).await?;
        labelled.insert(node, host);
    }

    let host_ids: Vec<String> =
        hosts.iter().filter(|(_, name)| name.starts_with("DC0_C0_")).map(|(id, _)| id.clone()).collect();
    ensure!(host_ids.len() == HOSTS as usize, "{hosts:?}");
    let (mut to_label, mut to_bare, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..MOVES {
        let index = number % machines.len();
        let machine = &mut machines[index];
        let target = host_ids.iter().cycle().skip(number * 7).find(|id| **id != machine.host).context("a target")?;
        machine.host.clone_from(target);
        let ended = relocate(&client, &machine.vm, target).await?;
        let bare_at = loop {
            let (vm, host, at) = next(&mut bare_seen).await?;
            if vm == machine.vm.id && host == *target {
                break at;
            }
        };
        let label_at = loop {
            let (node, host, at) = next(&mut label_seen).await?;
            if node == machine.node && host == hosts[target] {
                break at;
            }
        };
        to_label.push(since(ended, label_at));
        to_bare.push(since(ended, bare_at));
        added.push(since(bare_at, label_at));
        // Varies, to avoid synchronizing with a timer.
        tokio::time::sleep(Duration::from_millis(20 + (number as u64 * 13) % 40)).await;
    }
    watching.abort();
    collecting.abort();
    Ok(json!({ "label_ms": quantiles(to_label), "vcsim_ms": quantiles(to_bare), "added_ms": quantiles(added) }))
}

type Observed = (String, String, Instant);

async fn next(observed: &mut mpsc::UnboundedReceiver<Observed>) -> Result<Observed> {
    tokio::time::timeout(LIMIT, observed.recv()).await.context("nothing observed in time")?.context("the watch ended")
}

/// Sends each label with the time at which the watch showed it.
async fn watch_labels(nodes: Api<Node>, observed: mpsc::UnboundedSender<Observed>) -> Result<()> {
    let mut stream = nodes.watch(&WatchParams::default(), "0").await?.boxed();
    while let Some(event) = stream.next().await {
        if let WatchEvent::Added(node) | WatchEvent::Modified(node) = event? {
            let at = Instant::now();
            let host = node.metadata.labels.and_then(|labels| labels.get(KEY).cloned());
            if let (Some(name), Some(host)) = (node.metadata.name, host) {
                observed.send((name, host, at))?;
            }
        }
    }
    Ok(())
}

/// Sends each VM's host as a plain property collector shows it: the part of the latency that is vcsim's own.
async fn watch_hosts(client: Arc<Client>, observed: mpsc::UnboundedSender<Observed>) -> Result<()> {
    let root = client.content().root_folder.clone();
    let mut watch = Watch::start(client, &root, WATCHED).await?;
    loop {
        let updates = watch.next(Duration::from_secs(30)).await?;
        let at = Instant::now();
        for update in updates.objects {
            for change in update.changes {
                if let Some(value) = change.value {
                    observed.send((update.object.id.clone(), value.text.trim().to_owned(), at))?;
                }
            }
        }
    }
}

/// Moves a VM. Returns the time at which the task was observed to have succeeded.
async fn relocate(client: &Client, vm: &ManagedObject, host: &str) -> Result<Instant> {
    let host = ManagedObject::new("HostSystem", host);
    let task = client
        .call_for_object("RelocateVM_Task", vm, |body| {
            body.nest("spec", |spec| {
                spec.reference("host", &host);
            });
        })
        .await?;
    let deadline = Instant::now() + LIMIT;
    loop {
        let state = property::read(client, &task, &["info.state"]).await?;
        let state = state.first().and_then(|change| change.value.as_ref()).map(|value| value.text.trim().to_owned());
        match state.as_deref() {
            Some("success") => return Ok(Instant::now()),
            Some("error") => bail!("the move of {vm} failed"),
            _ if Instant::now() > deadline => bail!("the move of {vm} does not complete"),
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}

fn node_object(name: &str, uuid: &str) -> Result<Node> {
    let empty = "";
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name },
        "status": { "nodeInfo": {
            "systemUUID": uuid, "machineID": empty, "bootID": empty, "kernelVersion": empty, "osImage": empty,
            "containerRuntimeVersion": empty, "kubeletVersion": empty, "kubeProxyVersion": empty,
            "operatingSystem": empty, "architecture": empty,
        } },
    }))?)
}

/// Milliseconds. Zero if `to` was observed before the end of the move was.
fn since(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1000.0
}

fn quantiles(mut values: Vec<f64>) -> Value {
    values.sort_by(f64::total_cmp);
    let at = |share: usize| values[(values.len() * share / 100).min(values.len() - 1)];
    json!({ "p50": at(50), "p99": at(99) })
}

async fn scale() -> Result<Value> {
    let nodes = SCALE_NODES.to_string();
    let sandbox = Sandbox::start(&["--nodes", &nodes, "--hosts", "500", "--drs", "off", "--no-placer"]).await?;
    let environment = [
        ("KUBECONFIG", sandbox.kubeconfig().display().to_string()),
        ("GOVC_URL", sandbox.govc_url().to_owned()),
        ("GOVC_INSECURE", "true".to_owned()),
    ];
    let started = Instant::now();
    let mut bridger = Bridger::start(&["run", "--port", "0"], &environment)?;
    bridger.prints("Listening", LIMIT).await?;
    let deadline = started + Duration::from_secs(180);
    while writes(&bridger).await? < SCALE_NODES {
        ensure!(Instant::now() < deadline, "not labelled in time:\n{}", bridger.output());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    tokio::time::sleep(QUIET).await;
    let later = writes(&bridger).await?.saturating_sub(SCALE_NODES);
    let peak_mib = usage::peak_mib(bridger.pid().context("its process id")?)?;
    Ok(json!({ "nodes": SCALE_NODES, "seconds": seconds, "mib": peak_mib, "writes_later": later }))
}

/// The number of labels written, from Bridger's metrics.
async fn writes(bridger: &Bridger) -> Result<usize> {
    let metrics = bridger.get("/metrics").await?;
    let line = metrics.lines().find_map(|line| line.strip_prefix("bridger_label_writes_total{outcome=\"ok\"} "));
    Ok(line.context("the counter")?.trim().parse()?)
}
