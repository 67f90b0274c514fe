//! `cargo xtask bench scheduler`: `bridger scheduler` beside kube-scheduler and beside a binder that decides nothing.

use anyhow::{Context, Result};
use serde_json::Value;

use super::measurement::{example, measure};
use super::report::Report;
use super::rounds::{Load, Rounds};

/// kube-scheduler with its QPS raised, a null binder (watches, binds in turn, posts the event), and bridger scheduler.
///
/// A real kube-apiserver with 5000 nodes, empty and with 30,000 running pods that carry anti-affinity; for seven workloads pods per
/// second, CPU time per pod, peak memory, and how long the Scheduled events take.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    rounds: Rounds,
}

const OF_NULL_BINDER_MIN: f64 = 0.9;
/// Loaded, in multiples of kube-scheduler's rate.
const LOADED_RATIO_MIN: f64 = 8.0;
const CPU_RATIO_MAX: f64 = 0.1;
const EVENTS_AFTER_S_MAX: f64 = 5.0;

pub fn run(arguments: &Arguments) -> Result<Report> {
    crate::peers::build()?;
    let release = super::build_release()?;
    let mut command = example(&release, "scheduler");
    arguments.rounds.ask(&mut command);
    println!("bench: 42 rounds of scheduling; {}", arguments.rounds.takes("about an hour"));
    fill(&measure(&mut command)?, &arguments.rounds)
}

fn fill(measured: &Value, rounds: &Rounds) -> Result<Report> {
    let mut report = Report::new("scheduler");
    for load in rounds.loads() {
        let name = load.name();
        let workloads = measured["rounds"][name].as_object().with_context(|| format!("{name} in {measured}"))?;
        for (workload, rounds) in workloads {
            let what = format!("{name}: {workload}");
            let figure = |who: &str, name: &str| {
                rounds[who][name].as_f64().with_context(|| format!("{what}, {who}, {name} in {measured}"))
            };
            let rate = |who: &str| figure(who, "pods_per_second");
            let own = rate("bridger")?;
            report.at_least(what.clone(), own, "pods/s", "null binder", rate("null binder")?, OF_NULL_BINDER_MIN);
            let upstream = rate("kube-scheduler")?;
            match load {
                Load::Loaded => {
                    report.at_least(what.clone(), own, "pods/s", "kube-scheduler", upstream, LOADED_RATIO_MIN)
                }
                Load::Empty => report.beside(what.clone(), own, "pods/s", "kube-scheduler", upstream),
            }
            let cpu = |who: &str| figure(who, "cpu_ms_per_pod");
            let (own, upstream) = (cpu("bridger")?, cpu("kube-scheduler")?);
            report.at_most(format!("{what}, CPU"), own, "ms/pod", "kube-scheduler", upstream, CPU_RATIO_MAX);
            report.beside(format!("{what}, CPU"), own, "ms/pod", "null binder", cpu("null binder")?);
            let peak = |who: &str| figure(who, "peak_mib");
            report.beside(
                format!("{what}, peak memory"),
                peak("bridger")?,
                "MiB",
                "kube-scheduler",
                peak("kube-scheduler")?,
            );
            let after = figure("bridger", "events_after_s")?;
            report.limit(format!("{what}, last event after"), after, "s", EVENTS_AFTER_S_MAX);
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_figure_has_its_row() {
        let round = |rate: f64, cpu: f64| json!({ "pods_per_second": rate, "cpu_ms_per_pod": cpu, "peak_mib": 100.0, "events_after_s": 0.2 });
        let rounds = json!({ "kube-scheduler": round(50.0, 10.0), "null binder": round(600.0, 0.5), "bridger": round(590.0, 0.6) });
        let loads = json!({ "empty": { "basic": rounds }, "loaded": { "basic": rounds } });
        let all = Rounds::default();
        assert!(fill(&json!({ "rounds": loads }), &all).is_ok());
        assert!(fill(&json!({}), &all).is_err());
        assert!(fill(&json!({ "rounds": { "empty": {}, "loaded": { "basic": {} } } }), &all).is_err());
        let some = json!({ "rounds": { "loaded": { "basic": rounds } } });
        assert!(fill(&some, &Rounds::some(Some("basic"), Some(Load::Loaded))).is_ok());
        assert!(fill(&some, &Rounds::some(Some("basic"), None)).is_err());
    }
}
