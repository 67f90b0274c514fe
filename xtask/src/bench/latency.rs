//! `cargo xtask bench latency`: how long a single pod waits for its binding, beside kube-scheduler.

use anyhow::{Context, Result};
use serde_json::Value;

use super::measurement::{example, measure};
use super::report::Report;
use super::rounds::Turns;

/// From a pod's creation to its binding: p50 and p99 of 300 pods, 10 per second, bridger scheduler and kube-scheduler.
///
/// A real kube-apiserver with 5000 nodes and 30,000 running pods that have anti-affinity, all default plugins. Each
/// scheduler runs, and has bound a few pods, before. Turns in pairs; the medians count. About eight minutes. Both with
/// the identity of kube-scheduler. Off: leader election, Bridger's lifting, API priority and fairness, limits on requests
/// in flight.
#[derive(clap::Args)]
pub struct Arguments {
    /// A small cluster and few pods; its figures do not count
    #[arg(long)]
    quick: bool,
    /// Only workloads whose name contains this
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// Turns of each scheduler
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
}

/// The maximum ratio to kube-scheduler's p99.
const P99_RATIO_MAX: f64 = 0.25;

pub fn run(arguments: &Arguments) -> Result<Report> {
    crate::peers::build()?;
    let built = super::build()?;
    let mut command = example(&built, "scheduler");
    command.args(["--latency", &format!("--turns={}", arguments.turns)]);
    if arguments.quick {
        command.arg("--quick");
    }
    if let Some(word) = &arguments.only {
        command.arg(format!("--only={word}"));
    }
    fill(&measure(&mut command)?)
}

fn fill(measured: &Value) -> Result<Report> {
    let mut report = Report::new("latency");
    let workloads = measured["rounds"]["loaded"].as_object().with_context(|| format!("rounds in {measured}"))?;
    for workload in workloads.keys() {
        let median = |who: &str, member: &str| {
            let turns = Turns::of(measured, &format!("/rounds/loaded/{workload}/{who}"), member)?;
            Ok::<f64, anyhow::Error>(turns.median())
        };
        let both =
            |member: &str| Ok::<_, anyhow::Error>((median("bridger", member)?, median("kube-scheduler", member)?));
        let (own, upstream) = both("wait_p99_ms")?;
        report.at_most(format!("{workload}, wait p99"), own, "ms", "kube-scheduler", upstream, P99_RATIO_MAX);
        let (own, upstream) = both("wait_p50_ms")?;
        report.beside(format!("{workload}, wait p50"), own, "ms", "kube-scheduler", upstream);
        let (own, upstream) = both("failed_attempts")?;
        report.beside(format!("{workload}, failed attempts"), own, "attempts", "kube-scheduler", upstream);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_median_p99_may_be_a_fourth() {
        let turns =
            |p99: [f64; 3]| p99.map(|p99| json!({ "wait_p50_ms": 2.0, "wait_p99_ms": p99, "failed_attempts": 0 }));
        for (own, missed) in [([9.0, 900.0, 8.0], 0), ([9.0, 11.0, 12.0], 1)] {
            let both = json!({ "bridger": turns(own), "kube-scheduler": turns([40.0, 40.0, 1.0]) });
            let report = fill(&json!({ "rounds": { "loaded": { "basic": both } } })).expect("all is there");
            assert_eq!(report.missed(), missed, "{own:?}");
        }
        let alone = json!({ "rounds": { "loaded": { "basic": { "bridger": turns([1.0; 3]) } } } });
        assert!(fill(&alone).is_err() && fill(&json!({})).is_err());
    }
}
