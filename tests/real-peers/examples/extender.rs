//! The measurements behind `cargo xtask bench extender`; prints one line of JSON.
//!
//! 1. Throughput: a real kube-apiserver with thousands of nodes, empty and with running pods that have anti-affinity.
//!    kube-scheduler runs in four ways: with its own InterPodAffinity, with Bridger as its extender, with an extender
//!    that accepts everything (the minimum cost of an extender), and with neither (the maximum of the machine). Pods
//!    are created before the scheduler starts. kube-scheduler and the extenders that bind have the identity of
//!    kube-scheduler. The rate is that of all binds, as a watch shows them; the time to 95 % and to all of them and the attempts
//!    that failed, for example because of a conflict at the binding, are measured too.
//! 2. Latency: a filter request with 5000 names, from the complete request to the complete answer, in a server whose
//!    world has few pods, and many. Skipped if `--only=WORD` or `--load=empty|loaded` selects rounds of the first. With
//!    `latency`, only this is measured.
//!
//! With `--before=PROGRAM`, the first compares only another build of Bridger and this build, at least `--turns=NUMBER`
//! times each, until the best of each is confirmed. The second is skipped, because it measures only the code that this
//! program is built from.

#[path = "extender/latency.rs"]
mod latency;
#[path = "extender/ways.rs"]
mod ways;

use std::time::Duration;

use anyhow::{Context, Result};
use mimalloc::MiMalloc;
use real_peers::bench::{Arrival, Cluster, Constraint, Round, Selection, Setup, Size, Until, Workload};
use serde_json::{Value, json};

use self::ways::Way;

/// The allocator of the extender that accepts everything is that of Bridger.
#[global_allocator]
static MEMORY: MiMalloc = MiMalloc;

const FULL: Size =
    Size { nodes: 5000, hosts: 500, zones: 10, running: 30_000, measured: 1000, limit: Duration::from_secs(240) };
const QUICK: Size =
    Size { nodes: 500, hosts: 50, zones: 5, running: 1500, measured: 100, limit: Duration::from_secs(60) };

/// Measured pods when two builds of Bridger are compared on a small cluster. With fewer, a round is too short to
/// compare.
const COMPARED: usize = 500;

const WORKLOADS: [Workload; 4] = [
    Workload::new("anti-affinity by node", Constraint::AntiAffinityByNode, Workload::ONE_GROUP),
    Workload::new("anti-affinity by host", Constraint::AntiAffinityByHost, 40),
    Workload::new("affinity by zone", Constraint::AffinityByZone, Workload::ONE_GROUP),
    Workload::new("preferred", Constraint::PreferredAntiAffinityAndAffinity, Workload::ONE_GROUP),
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
    let setup = Setup { size, scheduler_name: ways::SCHEDULER_NAME, until: Until::Bound, arrival: Arrival::Before };
    let cluster = Cluster::start(setup).await.context("starting the cluster")?;
    let ways = Way::all(selection.before());
    let rounds = cluster.rounds(&ways, &selection, &workloads, |round| {
        let Round { pods_per_second, took_s, most_took_s, failed_attempts, .. } = *round;
        let line = format!(
            "{pods_per_second:>8.1} pods/s, 95 % in {most_took_s:.2} s, all in {took_s:.2} s, {failed_attempts} attempts failed"
        );
        let figures = json!({ "pods_per_second": pods_per_second, "took_s": took_s, "most_took_s": most_took_s,
            "failed_attempts": failed_attempts });
        (line, figures)
    });
    let throughput = rounds.await.context("measuring throughput")?;
    println!(
        "{}",
        json!({ "latency": latency, "throughput": throughput, "nodes": size.nodes, "running": size.running })
    );
    Ok(())
}
