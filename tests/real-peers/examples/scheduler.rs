//! The measurements behind `cargo xtask bench scheduler`; prints one line of JSON.
//!
//! A real kube-apiserver with thousands of nodes, empty and with running pods that carry anti-affinity. Three schedulers in turn on
//! the same pods: kube-scheduler with its QPS raised, a null binder that does what any scheduler must and no more, and `bridger
//! scheduler`. Pods are created before the scheduler starts; the rate is counted over the binds of the first 95 %, as a watch
//! shows them, CPU time over the same span, memory at its peak; and how long the last Scheduled event takes to arrive.
//! `--only=WORD` and `--load=empty|loaded` select some rounds.
//!
//! With `null-binder KUBECONFIG` it is that null binder: a process of its own, so that its CPU time can be told.

#[path = "scheduler/contestant.rs"]
mod contestant;
#[path = "scheduler/null_binder.rs"]
mod null_binder;

use std::time::Duration;

use anyhow::{Context, Result};
use real_peers::bench::{Ask, Cluster, Round, Selection, Setup, Size, Until, Workload};
use serde_json::{Value, json};

use self::contestant::{Kind, SCHEDULER_NAME};

const FULL: Size =
    Size { nodes: 5000, hosts: 500, zones: 10, running: 30_000, measured: 2000, limit: Duration::from_secs(240) };
const QUICK: Size =
    Size { nodes: 300, hosts: 100, zones: 5, running: 600, measured: 200, limit: Duration::from_secs(60) };

fn workloads(size: &Size) -> Vec<Workload> {
    vec![
        Workload::new("basic", Ask::Nothing, Workload::ONE_GROUP),
        Workload::new("anti-affinity by node", Ask::ApartByNode, size.nodes / 2),
        Workload::new("anti-affinity by host", Ask::ApartByHost, size.hosts / 2),
        Workload::new("small services by host", Ask::ApartByHost, 5),
        Workload::new("affinity by zone", Ask::TogetherByZone, Workload::ONE_GROUP),
        Workload::new("preferred anti-affinity", Ask::RatherApart, Workload::ONE_GROUP),
        Workload::new("topology spread", Ask::Spread, Workload::ONE_GROUP),
    ]
}

#[tokio::main]
#[allow(clippy::print_stdout)]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, kubeconfig] = arguments.as_slice()
        && command == "null-binder"
    {
        return null_binder::run(kubeconfig.as_ref()).await;
    }
    let selection = Selection::parse(arguments)?;
    let size = if selection.quick { QUICK } else { FULL };
    let workloads = selection.of(workloads(&size))?;
    let setup = Setup { size, scheduler_name: SCHEDULER_NAME, until: Until::Told };
    let cluster = Cluster::start(setup).await.context("starting the cluster")?;
    let rounds = cluster.rounds::<Kind>(&selection, &workloads, show).await?;
    println!("{}", json!({ "rounds": rounds, "nodes": size.nodes, "running": size.running }));
    Ok(())
}

fn show(round: &Round) -> (String, Value) {
    let Round { pods_per_second, cpu_ms_per_pod, peak_mib, events_after_s } = *round;
    let line = format!(
        "{pods_per_second:>8.1} pods/s {cpu_ms_per_pod:>7.2} ms CPU/pod {peak_mib:>6.0} MiB, events after {:.1} s",
        events_after_s.unwrap_or_default(),
    );
    let figures = json!({ "pods_per_second": pods_per_second, "cpu_ms_per_pod": cpu_ms_per_pod, "peak_mib": peak_mib,
        "events_after_s": events_after_s });
    (line, figures)
}
