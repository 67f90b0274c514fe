//! Compares the load of physical hosts, as read from vcsim and the embedded vCenter, with govc's output, and tests how
//! the extender uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use model::event::{Event, HostLoadFacts, VcenterId};
use serde_json::{Value, json};
use testkit::{Bridger, Govc, Sandbox, Vcsim, VcsimOptions, eventually};
use tokio::sync::{mpsc, watch};
use vsphere::{Settings, VcenterConfig, VcenterStatus, inventory};

const SOON: Duration = Duration::from_secs(60);

/// The load by host, as govc shows it.
async fn loads_by_govc(govc: &Govc) -> Result<BTreeMap<String, HostLoadFacts>> {
    let paths = govc.run(&["find", "/", "-type", "h"]).await?;
    let mut arguments = vec!["host.info", "-json"];
    arguments.extend(paths.split_whitespace());
    let info: Value = serde_json::from_str(&govc.run(&arguments).await?)?;
    let hosts = info["hostSystems"].as_array().context("hosts")?;
    // govc omits zeros in its JSON.
    let used_of = |used: &Value| used.as_u64().unwrap_or(0);
    let load = |host: &Value| {
        let (hardware, used) = (&host["summary"]["hardware"], &host["summary"]["quickStats"]);
        let facts = HostLoadFacts {
            cpu_used_mhz: used_of(&used["overallCpuUsage"]),
            cpu_capacity_mhz: hardware["cpuMhz"].as_u64()? * hardware["numCpuCores"].as_u64()?,
            memory_used_mib: used_of(&used["overallMemoryUsage"]),
            memory_capacity_mib: hardware["memorySize"].as_u64()? / (1 << 20),
        };
        Some((host["name"].as_str()?.to_owned(), facts))
    };
    hosts.iter().map(load).collect::<Option<_>>().with_context(|| info.to_string())
}

/// The load by host, as the inventory watch reports it.
struct Watched {
    events: mpsc::Receiver<Event>,
    run: tokio::task::JoinHandle<()>,
    loads: BTreeMap<String, HostLoadFacts>,
}

impl Watched {
    fn start(url: &str) -> Result<Watched> {
        let mut config = VcenterConfig::from_settings(&Settings::default(), |name| match name {
            "GOVC_URL" => Some(url.to_owned()),
            "GOVC_INSECURE" => Some("true".to_owned()),
            _ => None,
        })?;
        config.timing.read_again_every = Duration::from_secs(1);
        let (sender, events) = mpsc::channel(64);
        let (status, _) = watch::channel(VcenterStatus::default());
        let jitter = engine::runtime::Jitter::from_seed(1);
        let run = tokio::spawn(inventory::run(
            config,
            VcenterId(0),
            inventory::Instances::default(),
            sender,
            status,
            jitter,
            std::future::pending(),
        ));
        Ok(Watched { events, run, loads: BTreeMap::new() })
    }

    /// Waits until the watched loads equal govc's. Loads change all the time, so both are read in each attempt.
    async fn until_equal(&mut self, govc: &Govc, so: impl Fn(&BTreeMap<String, HostLoadFacts>) -> bool) -> Result<()> {
        let deadline = tokio::time::Instant::now() + SOON;
        loop {
            while let Ok(event) = self.events.try_recv() {
                if let Event::HostApplied { host, .. } = event
                    && let Some(load) = host.load
                {
                    self.loads.insert(host.name, load);
                }
            }
            let shown = loads_by_govc(govc).await?;
            if self.loads == shown && so(&shown) {
                return Ok(());
            }
            ensure!(tokio::time::Instant::now() < deadline, "the watch has {:#?}, govc shows {shown:#?}", self.loads);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.run.abort();
    }
}

#[tokio::test]
async fn the_load_of_vcsims_hosts_is_what_govc_shows() -> Result<()> {
    let vcsim = Vcsim::start(&VcsimOptions::default()).await?;
    Watched::start(&vcsim.govc_url())?
        .until_equal(&vcsim.govc(), |loads| loads.values().all(|load| load.cpu_used_mhz > 0))
        .await
}

#[tokio::test]
async fn the_load_of_the_embedded_hosts_is_what_govc_shows_and_follows_the_vms() -> Result<()> {
    let sandbox = Sandbox::start(&["--hosts", "2", "--nodes", "4", "--drs", "off"]).await?;
    let govc = sandbox.govc();
    let mut watched = Watched::start(sandbox.govc_url())?;
    watched.until_equal(&govc, |loads| loads.values().any(|load| load.memory_used_mib > 0)).await?;
    for node in 1..=4 {
        govc.run(&["vm.power", "-off", "-force", &format!("node-{node}")]).await?;
    }
    watched.until_equal(&govc, |loads| loads.values().all(|load| load.memory_used_mib == 0)).await
}

/// One node on the first host, three on the second, eight on the third: if only the load counts, the extender prefers
/// nodes on idle hosts.
#[tokio::test]
async fn the_extender_prefers_the_least_loaded_host() -> Result<()> {
    let sandbox = Sandbox::start(&["--hosts", "3", "--nodes", "12", "--drs", "off", "--speed", "30"]).await?;
    let govc = sandbox.govc();
    let host_of = |node: usize| [1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3][node - 1];
    for node in 1..=12 {
        let (path, host) = (format!("/dc-1/vm/node-{node}"), format!("esx-{}.lab", host_of(node)));
        let reference = govc.run(&["object.collect", "-s", &path, "runtime.host"]).await?;
        if govc.run(&["object.collect", "-s", reference.trim(), "name"]).await?.trim() != host {
            govc.run(&["vm.migrate", "-host", &format!("/dc-1/host/cluster-1/{host}"), &path]).await?;
        }
    }
    let environment = [
        ("KUBECONFIG", sandbox.kubeconfig().display().to_string()),
        ("GOVC_URL", sandbox.govc_url().to_owned()),
        ("GOVC_INSECURE", "true".to_owned()),
        ("NO_COLOR", "1".to_owned()),
    ];
    let flags = ["run", "--port", "0", "--listen", "127.0.0.1", "--host-load-weight", "100", "--extender-port", "0"];
    let mut bridger = Bridger::start(&flags, &environment)?;
    bridger.prints("12 of 12 matched to a VM", SOON).await?;
    eventually(SOON, || async {
        let scores = prioritize(&bridger, &(1..=12).map(|node| format!("node-{node}")).collect::<Vec<_>>()).await?;
        let mut by_host: BTreeMap<usize, BTreeSet<i64>> = BTreeMap::new();
        for (number, score) in scores.iter().enumerate() {
            by_host.entry(host_of(number + 1)).or_default().insert(*score);
        }
        let each: Vec<i64> = by_host.values().flatten().copied().collect();
        let loads = loads_by_govc(&govc).await?;
        // One score per host: the fewer VMs, the more idle the host.
        ensure!(
            each.len() == 3 && each[0] >= each[1] && each[1] >= each[2] && each[0] > each[2],
            "{scores:?} with {loads:#?}"
        );
        Ok(())
    })
    .await
}

async fn prioritize(bridger: &Bridger, nodes: &[String]) -> Result<Vec<i64>> {
    let pod = json!({ "metadata": { "name": "probe", "namespace": "default", "uid": "probe" } });
    let answer = bridger.post("/v1/prioritize", &json!({ "Pod": pod, "Nodes": null, "NodeNames": nodes })).await?;
    let scores = answer.as_array().with_context(|| answer.to_string())?;
    scores.iter().map(|entry| entry["Score"].as_i64().with_context(|| answer.to_string())).collect()
}
