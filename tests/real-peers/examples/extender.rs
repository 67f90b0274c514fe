//! The measurements behind `cargo xtask bench extender`; prints one line of JSON.
//!
//! 1. Throughput: a real kube-apiserver with thousands of nodes, empty and with running pods that carry anti-affinity.
//!    kube-scheduler in four ways: with its own InterPodAffinity, with Bridger as its extender, with an extender that agrees
//!    with everything (what an extender costs at least), and with neither (what the machine can do at most). Pods are
//!    created before the scheduler starts; the rate is counted over the binds of the first 95 %, as a watch shows them.
//! 2. Latency: a filter request with 5000 names, from the whole request to the whole answer, in a server whose world holds
//!    few pods and many.

#[path = "extender/cluster.rs"]
mod cluster;
#[path = "extender/latency.rs"]
mod latency;
#[path = "extender/ways.rs"]
mod ways;

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use self::cluster::{Cluster, Workload};
use self::ways::Way;

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
    Size { nodes: 5000, hosts: 500, zones: 10, running: 30_000, measured: 1000, limit: Duration::from_secs(240) };
const QUICK: Size =
    Size { nodes: 500, hosts: 50, zones: 5, running: 1500, measured: 100, limit: Duration::from_secs(60) };

#[tokio::main]
#[allow(clippy::print_stdout)]
async fn main() -> Result<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let size = if quick { QUICK } else { FULL };
    let latency = latency::measure(if quick { 20_000 } else { 150_000 }).await.context("measuring latency")?;
    let throughput = throughput(size).await.context("measuring throughput")?;
    println!(
        "{}",
        json!({ "latency": latency, "throughput": throughput, "nodes": size.nodes, "running": size.running })
    );
    Ok(())
}

#[allow(clippy::print_stderr)]
async fn throughput(size: Size) -> Result<Value> {
    let cluster = Cluster::start(size).await?;
    let mut loads = Map::new();
    for load in ["empty", "loaded"] {
        if load == "loaded" {
            eprintln!("bench: {} running pods", size.running);
            cluster.fill().await?;
        }
        let mut workloads = Map::new();
        for workload in Workload::ALL {
            let mut rates = Map::new();
            for way in Way::ALL {
                let round = cluster.round(way, workload).await;
                let round = round.with_context(|| format!("{load}, {}, {}", workload.name(), way.name()))?;
                eprintln!("bench: {load:<7} {:<22} {:<10} {:>8.1} pods/s", workload.name(), way.name(), round);
                rates.insert(way.name().to_owned(), json!(round));
            }
            workloads.insert(workload.name().to_owned(), Value::Object(rates));
        }
        loads.insert(load.to_owned(), Value::Object(workloads));
    }
    Ok(Value::Object(loads))
}
