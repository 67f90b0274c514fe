//! The measurements behind `cargo xtask bench scheduler`; prints one line of JSON.
//!
//! A real kube-apiserver with thousands of nodes, empty and with running pods that have anti-affinity. Three schedulers
//! take turns on the same pods: kube-scheduler with its QPS raised, a null binder that does only what every scheduler
//! must do, and `bridger scheduler`. All have the identity of kube-scheduler and no leader election. Pods are created
//! before the scheduler starts. Measured are the rate of all binds, as a watch shows them, the time to 95 % and to all of
//! them, the attempts that failed, the CPU time, the peak memory, and how long the last Scheduled event takes to arrive.
//! Two more kinds of workloads are measured in the loaded cluster: pods for which pods of lower priority must leave full
//! nodes, and pods with claims whose volumes are bound with the node. The null binder takes no part in them, because it
//! decides neither. Their pods are created while the scheduler runs, and the time counts from the first creation.
//! `--only=WORD` and `--load=empty|loaded` select rounds. With `--before=PROGRAM`, only another build of Bridger and this
//! build are compared, at least `--turns=NUMBER` times each, until the best of each is confirmed.
//!
//! With `--with=all`, two other contenders take turns: `bridger scheduler`, and `bridger run` with labels, rules,
//! extender and scheduling on, connected to a vCenter that has a VM for each node. Both run before pods are created,
//! and the wait of pods is measured, too. They take turns in pairs, `--turns=NUMBER` of them.
//!
//! With `--latency`, kube-scheduler and Bridger take turns in pairs, in the loaded cluster: pods arrive one by one, 10 per
//! second, and their wait from creation to binding is measured.
//!
//! With `null-binder KUBECONFIG`, this program is the null binder: a separate process, so that its CPU time can be
//! measured.

#[path = "scheduler/contestant.rs"]
mod contestant;
#[path = "scheduler/latency.rs"]
mod latency;
#[path = "scheduler/null_binder.rs"]
mod null_binder;
#[path = "scheduler/with_all.rs"]
mod with_all;

use std::time::Duration;

use anyhow::{Context, Result};
use mimalloc::MiMalloc;
use real_peers::bench::{
    Arrival, Cluster, Constraint, Round, Scene, Selection, Setup, Size, Source, Until, Waits, Workload,
};
use serde_json::{Value, json};

use self::contestant::{Kind, SCHEDULER_NAME};
use self::latency::Single;
use self::with_all::{Machines, With};

/// The null binder's allocator is that of Bridger.
#[global_allocator]
static MEMORY: MiMalloc = MiMalloc;

const FULL: Size =
    Size { nodes: 5000, hosts: 500, zones: 10, running: 30_000, measured: 2000, limit: Duration::from_secs(240) };
const QUICK: Size =
    Size { nodes: 300, hosts: 100, zones: 5, running: 600, measured: 200, limit: Duration::from_secs(60) };
/// Measured pods when two builds of Bridger are compared on a small cluster. With fewer, a round is too short to
/// compare.
const COMPARED: usize = 1500;
/// Pods created at a constant rate after the counted pods are bound, and how many per second.
const EVENLY_FULL: (usize, u32) = (600, 100);
const EVENLY_QUICK: (usize, u32) = (100, 50);
/// Pairs of turns with and without the other features. Odd, so that there is a median.
const PAIRS: usize = 5;

/// So many that kube-scheduler needs at most about a minute.
struct Scenes {
    preemption: usize,
    /// Pods with local volumes, and the nodes that have one.
    local: (usize, usize),
    provisioned: usize,
}

const SCENES_FULL: Scenes = Scenes { preemption: 400, local: (40, 200), provisioned: 500 };
const SCENES_QUICK: Scenes = Scenes { preemption: 50, local: (20, 50), provisioned: 50 };

fn scenes(quick: bool) -> [Workload; 3] {
    let Scenes { preemption, local: (local, nodes), provisioned } = if quick { SCENES_QUICK } else { SCENES_FULL };
    [
        Workload::in_scene("preemption", Scene::Preemption { pods: preemption }),
        Workload::in_scene("volumes, local", Scene::Volumes { pods: local, source: Source::Local { nodes } }),
        Workload::in_scene("volumes, provisioned", Scene::Volumes { pods: provisioned, source: Source::Provisioned }),
    ]
}

fn workloads(size: &Size) -> Vec<Workload> {
    vec![
        Workload::new("basic", Constraint::Nothing, Workload::ONE_GROUP),
        Workload::new("anti-affinity by node", Constraint::AntiAffinityByNode, size.nodes / 2),
        Workload::new("anti-affinity by host", Constraint::AntiAffinityByHost, size.hosts / 2),
        Workload::new("small services by host", Constraint::AntiAffinityByHost, 5),
        Workload::new("affinity by zone", Constraint::AffinityByZone, Workload::ONE_GROUP),
        Workload::new("preferred anti-affinity", Constraint::PreferredAntiAffinity, Workload::ONE_GROUP),
        Workload::new("topology spread", Constraint::Spread, Workload::ONE_GROUP),
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
    let (instead, arguments): (Vec<String>, Vec<String>) =
        arguments.into_iter().partition(|argument| argument == "--with=all" || argument == "--latency");
    let selection = Selection::parse(arguments)?;
    let mut size = if selection.quick { QUICK } else { FULL };
    if selection.quick && selection.before().is_some() {
        size.measured = COMPARED;
    }
    let setup = Setup { size, scheduler_name: SCHEDULER_NAME, until: Until::EventsPosted, arrival: Arrival::Before };
    let rounds = if instead.is_empty() {
        let mut workloads = workloads(&size);
        workloads.extend(scenes(selection.quick));
        let workloads = selection.of(workloads)?;
        let cluster = Cluster::start(setup).await.context("starting the cluster")?;
        let own = std::env::current_exe()?;
        cluster.rounds(&Kind::all(&own, selection.before()), &selection, &workloads, show).await?
    } else if instead == ["--latency"] {
        let workloads = selection.of(latency::workloads(&size))?;
        let cluster = Cluster::start(latency::setup(setup, selection.quick)).await.context("starting the cluster")?;
        let selection = selection.in_pairs(latency::PAIRS).only_loaded();
        cluster.rounds(&Single::both(), &selection, &workloads, show).await?
    } else {
        let workloads = selection.of(workloads(&size))?;
        let (evenly, per_second) = if selection.quick { EVENLY_QUICK } else { EVENLY_FULL };
        let setup = Setup { arrival: Arrival::During { evenly, per_second }, ..setup };
        let machines = Machines::start(&size).await.context("starting the vCenter")?;
        let uuids = machines.system_uuids().await.context("reading its VMs")?;
        let cluster = Cluster::start_on(setup, &uuids).await.context("starting the cluster")?;
        machines.label(cluster.control_plane()).await.context("labelling nodes")?;
        let selection = selection.in_pairs(PAIRS);
        cluster.rounds(&[With::Nothing, With::All(&machines)], &selection, &workloads, show).await?
    };
    println!("{}", json!({ "rounds": rounds, "nodes": size.nodes, "running": size.running }));
    Ok(())
}

fn show(round: &Round) -> (String, Value) {
    let Round { pods_per_second, cpu_ms_per_pod, peak_mib, events_after_s, waits, .. } = *round;
    let Round { took_s, most_took_s, failed_attempts, .. } = *round;
    let mut line = format!(
        "{pods_per_second:>8.1} pods/s {cpu_ms_per_pod:>7.2} ms CPU/pod {peak_mib:>6.0} MiB, events after {:.1} s, \
         95 % in {most_took_s:.2} s, all in {took_s:.2} s, {failed_attempts} attempts failed",
        events_after_s.unwrap_or_default(),
    );
    let mut figures = json!({ "pods_per_second": pods_per_second, "cpu_ms_per_pod": cpu_ms_per_pod, "peak_mib": peak_mib,
        "events_after_s": events_after_s, "took_s": took_s, "most_took_s": most_took_s,
        "failed_attempts": failed_attempts });
    if let Some(Waits { p50_ms, p99_ms }) = waits {
        line.push_str(&format!(", waits {p50_ms:.1} ms, p99 {p99_ms:.1} ms"));
        figures["wait_p50_ms"] = json!(p50_ms);
        figures["wait_p99_ms"] = json!(p99_ms);
    }
    (line, figures)
}
