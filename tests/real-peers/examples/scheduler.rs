//! The measurements behind `cargo xtask bench scheduler`; prints one line of JSON.
//!
//! A real kube-apiserver with thousands of nodes, empty and with running pods that carry anti-affinity. Three schedulers in turn on
//! the same pods: kube-scheduler with its QPS raised, a null binder that does what any scheduler must and no more, and `bridger
//! scheduler`. Pods are created before the scheduler starts; the rate is counted over the binds of the first 95 %, as a watch
//! shows them, CPU time over the same span, memory at its peak; and how long the last Scheduled event takes to arrive.
//!
//! With `null-binder KUBECONFIG` it is that null binder: a process of its own, so that its CPU time can be told.

#[path = "scheduler/cluster.rs"]
mod cluster;
#[path = "scheduler/contestant.rs"]
mod contestant;
#[path = "scheduler/null_binder.rs"]
mod null_binder;

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use self::cluster::{Cluster, Workload};
use self::contestant::Kind;

/// How large everything is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub nodes: usize,
    pub hosts: usize,
    pub zones: usize,
    /// Pods that run already, in the loaded rounds.
    pub running: usize,
    /// Pods that are scheduled and counted.
    pub measured: usize,
    /// No round takes longer.
    pub limit: Duration,
}

const FULL: Size =
    Size { nodes: 5000, hosts: 500, zones: 10, running: 30_000, measured: 2000, limit: Duration::from_secs(240) };
const QUICK: Size =
    Size { nodes: 300, hosts: 100, zones: 5, running: 600, measured: 200, limit: Duration::from_secs(60) };

#[tokio::main]
#[allow(clippy::print_stdout, clippy::print_stderr)]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, kubeconfig] = arguments.as_slice()
        && command == "null-binder"
    {
        return null_binder::run(kubeconfig.as_ref()).await;
    }
    let size = if arguments.iter().any(|argument| argument == "--quick") { QUICK } else { FULL };
    let only = arguments.iter().find_map(|argument| argument.strip_prefix("--only="));
    let cluster = Cluster::start(size).await.context("starting the cluster")?;
    let mut loads = Map::new();
    for load in ["empty", "loaded"] {
        if load == "loaded" {
            eprintln!("bench: {} running pods", size.running);
            cluster.fill().await?;
        }
        let mut workloads = Map::new();
        for workload in Workload::ALL.into_iter().filter(|it| only.is_none_or(|only| it.name().contains(only))) {
            let mut rounds = Map::new();
            for kind in Kind::ALL {
                let round = cluster.round(kind, workload).await;
                let round = round.with_context(|| format!("{load}, {}, {}", workload.name(), kind.name()))?;
                eprintln!(
                    "bench: {load:<7} {:<24} {:<15} {:>8.1} pods/s {:>7.2} ms CPU/pod {:>6.0} MiB, events after {:.1} s",
                    workload.name(),
                    kind.name(),
                    round.pods_per_second,
                    round.cpu_ms_per_pod,
                    round.peak_mib,
                    round.events_after_s,
                );
                rounds.insert(kind.name().to_owned(), round.to_json());
            }
            workloads.insert(workload.name().to_owned(), Value::Object(rounds));
        }
        loads.insert(load.to_owned(), Value::Object(workloads));
    }
    println!("{}", json!({ "rounds": loads, "nodes": size.nodes, "running": size.running }));
    Ok(())
}
