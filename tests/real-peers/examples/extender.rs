//! The measurements behind `cargo xtask bench extender`; prints one line of JSON.
//!
//! 1. Throughput: a real kube-apiserver with thousands of nodes, empty and with running pods that carry anti-affinity.
//!    kube-scheduler in four ways: with its own InterPodAffinity, with Bridger as its extender, with an extender that agrees
//!    with everything (what an extender costs at least), and with neither (what the machine can do at most). Pods are
//!    created before the scheduler starts; the rate is counted over the binds of the first 95 %, as a watch shows them.
//! 2. Latency: a filter request with 5000 names, from the whole request to the whole answer, in a server whose world holds
//!    few pods and many. Not where `--only=WORD` or `--load=empty|loaded` select some rounds of the first. With `latency` alone
//!    nothing else.
//!
//! With `--before=PROGRAM` another build of Bridger and this one are the only ways of the first, `--turns=NUMBER` times each at
//! least, until the best of each is confirmed; the second is of the code this program is built from, and left out.

#[path = "extender/latency.rs"]
mod latency;
#[path = "extender/ways.rs"]
mod ways;

use std::time::Duration;

use anyhow::{Context, Result};
use real_peers::bench::{Arrival, Ask, Cluster, Selection, Setup, Size, Until, Workload};
use serde_json::{Value, json};

use self::ways::Way;

const FULL: Size =
    Size { nodes: 5000, hosts: 500, zones: 10, running: 30_000, measured: 1000, limit: Duration::from_secs(240) };
const QUICK: Size =
    Size { nodes: 500, hosts: 50, zones: 5, running: 1500, measured: 100, limit: Duration::from_secs(60) };

/// Of two builds of Bridger on a small cluster: with fewer a round takes so little time that luck decides.
const COMPARED: usize = 500;

const WORKLOADS: [Workload; 4] = [
    Workload::new("anti-affinity by node", Ask::ApartByNode, Workload::ONE_GROUP),
    Workload::new("anti-affinity by host", Ask::ApartByHost, 40),
    Workload::new("affinity by zone", Ask::TogetherByZone, Workload::ONE_GROUP),
    Workload::new("preferred", Ask::RatherApartAndNear, Workload::ONE_GROUP),
];

#[tokio::main]
#[allow(clippy::print_stdout)]
async fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_latency_alone = arguments.iter().any(|argument| argument == "latency");
    arguments.retain(|argument| argument != "latency");
    let selection = Selection::parse(arguments)?;
    let workloads = selection.of(WORKLOADS.to_vec())?;
    let (mut size, pods_many) = if selection.quick { (QUICK, 20_000) } else { (FULL, 150_000) };
    if selection.quick && selection.before().is_some() {
        size.measured = COMPARED;
    }
    let latency = match selection.is_everything() && selection.before().is_none() {
        true => latency::measure(pods_many).await.context("measuring latency")?,
        false => Value::Null,
    };
    if is_latency_alone {
        println!("{}", json!({ "latency": latency }));
        return Ok(());
    }
    let setup = Setup { size, scheduler_name: ways::SCHEDULER_NAME, until: Until::Counted, arrival: Arrival::Before };
    let cluster = Cluster::start(setup).await.context("starting the cluster")?;
    let ways = Way::all(selection.before());
    let rounds = cluster.rounds(&ways, &selection, &workloads, |round| {
        (format!("{:>8.1} pods/s", round.pods_per_second), json!(round.pods_per_second))
    });
    let throughput = rounds.await.context("measuring throughput")?;
    println!(
        "{}",
        json!({ "latency": latency, "throughput": throughput, "nodes": size.nodes, "running": size.running })
    );
    Ok(())
}
