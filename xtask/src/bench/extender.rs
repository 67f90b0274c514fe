//! `cargo xtask bench extender`: kube-scheduler with Bridger as its extender, and without.

use anyhow::Result;
use serde_json::Value;

use super::measurement::{example, figure, measure};
use super::report::Report;
use super::rounds::{Load, Rounds, Turns};

/// kube-scheduler with its own InterPodAffinity, with Bridger, with an extender that accepts everything, with neither.
///
/// A real kube-apiserver with 5000 nodes, empty and with 30,000 running pods that have anti-affinity; pods per second
/// for four workloads until all are bound, the time to 95 % and to all, failed attempts. All with the identity of
/// kube-scheduler. Off: leader election, Bridger's lifting, labels and rules, API priority and fairness, limits on
/// requests in flight. Without --only and --load also the time of a filter request with 5000 names in the server, at 1,000
/// and at 150,000 pods.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    rounds: Rounds,
}

const WORKLOADS: [&str; 4] = ["anti-affinity by node", "anti-affinity by host", "affinity by zone", "preferred"];
/// The minimum ratio of Bridger to the in-tree plugin in a loaded cluster; higher where the plugin is slowest.
const LOADED_RATIO_MIN: f64 = 2.5;
const LOADED_AFFINITY_RATIO_MIN: f64 = 3.5;
/// The minimum ratio of Bridger to an extender that accepts everything, in a loaded cluster.
const OF_AGREEING_MIN: f64 = 0.9;
const FILTER_P99_MS_MAX: f64 = 2.0;
const GROWTH_MAX: f64 = 1.5;
const BYTES_PER_POD_MAX: f64 = 400.0;

pub fn run(arguments: &Arguments) -> Result<Report> {
    crate::peers::build()?;
    let built = super::build()?;
    let mut command = example(&built, "extender");
    arguments.rounds.add_to(&mut command);
    println!("bench: 64 rounds of scheduling or more; {}", arguments.rounds.takes("about half an hour"));
    fill(&measure(&mut command)?, &arguments.rounds)
}

fn fill(measured: &Value, rounds: &Rounds) -> Result<Report> {
    let number = |path: &str| figure(measured, path);
    let mut report = Report::new("extender");
    for load in rounds.loads() {
        for workload in WORKLOADS.into_iter().filter(|workload| rounds.include(workload)) {
            let turns = |way: &str, member: &str| {
                Turns::of(measured, &format!("/throughput/{}/{workload}/{way}", load.name()), member)
            };
            let rates = |way: &str| turns(way, "pods_per_second");
            let (bridger, in_tree) = (rates("bridger")?, rates("in-tree")?.most());
            let what = format!("{}: {workload}", load.name());
            let is_affinity = workload.starts_with("affinity");
            let goal = match (load, is_affinity) {
                (Load::Loaded, true) => Some(LOADED_AFFINITY_RATIO_MIN),
                (Load::Loaded, false) => Some(LOADED_RATIO_MIN),
                (Load::Empty, true) => Some(1.0),
                (Load::Empty, false) => None,
            };
            match goal {
                Some(goal) => report.at_least(what.clone(), bridger.least(), "pods/s", "in-tree", in_tree, goal),
                None => report.beside(what.clone(), bridger.least(), "pods/s", "in-tree", in_tree),
            }
            let agreeing = rates("agreeing")?.most();
            match load {
                Load::Loaded => {
                    report.at_least(what.clone(), bridger.most(), "pods/s", "agreeing", agreeing, OF_AGREEING_MIN)
                }
                Load::Empty => report.beside(what.clone(), bridger.most(), "pods/s", "agreeing", agreeing),
            }
            report.beside(what.clone(), bridger.least(), "pods/s", "neither", rates("neither")?.most());
            for (member, noun, unit) in [
                ("most_took_s", "time to 95 %", "s"),
                ("took_s", "time to 100 %", "s"),
                ("failed_attempts", "failed attempts", "attempts"),
            ] {
                let own = turns("bridger", member)?.most();
                for way in ["in-tree", "agreeing", "neither"] {
                    report.beside(format!("{what}, {noun}, most"), own, unit, way, turns(way, member)?.most());
                }
            }
        }
    }
    if !rounds.are_all() {
        return Ok(report);
    }
    let (few, many) = (number("/latency/few/p99_ms")?, number("/latency/many/p99_ms")?);
    let pods = number("/latency/pods_many")?;
    report.limit(format!("filter, 5000 names, {pods} pods, p99"), many, "ms", FILTER_P99_MS_MAX);
    report.beside(format!("filter, 5000 names, {pods} pods, p50"), number("/latency/many/p50_ms")?, "ms", "p99", many);
    report.at_most(format!("filter at {pods} pods, p99"), many, "ms", "at 1000", few, GROWTH_MAX);
    report.limit("memory of the world per pod", number("/latency/bytes_per_pod")?, "bytes", BYTES_PER_POD_MAX);
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_figure_has_its_row() {
        let turn =
            |rate: f64| json!({ "pods_per_second": rate, "took_s": 2.0, "most_took_s": 1.0, "failed_attempts": 3 });
        let rates = json!({ "in-tree": [turn(40.0)], "bridger": [turn(140.0), turn(150.0)],
            "agreeing": [turn(160.0), turn(120.0)], "neither": [turn(300.0)] });
        let workloads: Value = WORKLOADS.iter().map(|name| ((*name).to_owned(), rates.clone())).collect();
        let latency = json!({ "few": { "p50_ms": 0.5, "p99_ms": 1.0 }, "many": { "p50_ms": 0.5, "p99_ms": 1.2 },
            "pods_many": 150_000, "bytes_per_pod": 300.0 });
        let measured = json!({ "throughput": { "empty": workloads, "loaded": workloads }, "latency": latency });
        assert!(fill(&measured, &Rounds::default()).is_ok());
        assert!(fill(&json!({}), &Rounds::default()).is_err());
        // With a selection, only the selected rounds are required, and all of them are.
        let some = json!({ "throughput": { "loaded": { "preferred": rates } }, "latency": null });
        assert!(fill(&some, &Rounds::some(Some("pref"), Some(Load::Loaded))).is_ok());
        assert!(fill(&some, &Rounds::some(Some("pref"), None)).is_err());
        assert!(fill(&some, &Rounds::some(Some("by"), Some(Load::Loaded))).is_err());
    }
}
