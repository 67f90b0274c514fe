//! `cargo xtask bench scheduler`: compares `bridger scheduler` with kube-scheduler and with a binder that decides
//! nothing.

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::Value;

use super::measurement::{example, measure};
use super::report::Report;
use super::rounds::{Load, Rounds, Turns};

/// kube-scheduler with its QPS raised, a null binder (watches, binds in turn, posts the event), and bridger scheduler.
///
/// A real kube-apiserver with 5000 nodes, empty and with 30,000 running pods that have anti-affinity; for seven
/// workloads pods per second until all are bound, the time to 95 % and to all, failed attempts, CPU time per pod, peak
/// memory, and how long the Scheduled events take. In the loaded cluster also, without the null binder: preemption on
/// full nodes, and pods with claims. All with the identity of kube-scheduler. Off: leader election, Bridger's lifting,
/// API priority and fairness, limits on requests in flight, the protection of volumes in use.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    rounds: Rounds,
    /// Instead, measure what the other features cost scheduling: `bridger scheduler` in turn with `bridger run` that
    /// also labels nodes, writes rules and serves as an extender, with a vCenter that has a VM for each node
    #[arg(long, value_name = "PARTS")]
    with: Option<With>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum With {
    All,
}

const OF_NULL_BINDER_MIN: f64 = 0.9;
/// The minimum ratios to kube-scheduler's rate in workloads that the null binder cannot schedule, by the first word of
/// their names.
const SCENE_RATIOS_MIN: [(&str, f64); 2] = [("preemption", 20.0), ("volumes", 8.0)];
/// The minimum ratio to kube-scheduler's rate in a loaded cluster.
const LOADED_RATIO_MIN: f64 = 8.0;
const CPU_RATIO_MAX: f64 = 0.1;
const EVENTS_AFTER_S_MAX: f64 = 5.0;
/// The minimum ratio of the rate with all features to the rate without.
const WITH_ALL_MIN: f64 = 0.9;
/// The maximum ratio of the wait of pods, at the 99th percentile.
const WITH_ALL_WAIT_MAX: f64 = 1.5;

pub fn run(arguments: &Arguments) -> Result<Report> {
    crate::peers::build()?;
    let built = super::build()?;
    let mut command = example(&built, "scheduler");
    arguments.rounds.add_to(&mut command);
    if arguments.with == Some(With::All) {
        command.arg("--with=all");
        println!("bench: 140 rounds of scheduling; {}", arguments.rounds.takes("more than an hour"));
        return fill_with_all(&measure(&mut command)?, &arguments.rounds);
    }
    println!("bench: 110 rounds of scheduling or more; {}", arguments.rounds.takes("about an hour"));
    fill(&measure(&mut command)?, &arguments.rounds)
}

fn fill(measured: &Value, rounds: &Rounds) -> Result<Report> {
    let mut report = Report::new("scheduler");
    for load in rounds.loads() {
        let name = load.name();
        let workloads = measured["rounds"][name].as_object().with_context(|| format!("{name} in {measured}"))?;
        for workload in workloads.keys() {
            let what = format!("{name}: {workload}");
            let figure =
                |who: &str, member: &str| Turns::of(measured, &format!("/rounds/{name}/{workload}/{who}"), member);
            let rates = |who: &str| figure(who, "pods_per_second");
            let scene = SCENE_RATIOS_MIN.into_iter().find(|(word, _)| workload.starts_with(word));
            let (own, upstream) = (rates("bridger")?, rates("kube-scheduler")?.most());
            if scene.is_none() {
                let limit = rates("null binder")?.most();
                report.at_least(what.clone(), own.most(), "pods/s", "null binder", limit, OF_NULL_BINDER_MIN);
            }
            let goal = scene.map(|(_, goal)| goal).or((load == Load::Loaded).then_some(LOADED_RATIO_MIN));
            match goal {
                Some(goal) => report.at_least(what.clone(), own.least(), "pods/s", "kube-scheduler", upstream, goal),
                None => report.beside(what.clone(), own.least(), "pods/s", "kube-scheduler", upstream),
            }
            for (member, noun, unit, limit) in
                [("cpu_ms_per_pod", "CPU", "ms/pod", Some(CPU_RATIO_MAX)), ("peak_mib", "peak memory", "MiB", None)]
            {
                let most = |who: &str| Ok::<f64, anyhow::Error>(figure(who, member)?.most());
                let (what, own, upstream) = (format!("{what}, {noun}"), most("bridger")?, most("kube-scheduler")?);
                match limit {
                    Some(limit) => report.at_most(what.clone(), own, unit, "kube-scheduler", upstream, limit),
                    None => report.beside(what.clone(), own, unit, "kube-scheduler", upstream),
                }
                if scene.is_none() {
                    report.beside(what, own, unit, "null binder", most("null binder")?);
                }
            }
            let most = |who: &str, member: &str| Ok::<f64, anyhow::Error>(figure(who, member)?.most());
            for (member, noun, unit) in [
                ("most_took_s", "time to 95 %", "s"),
                ("took_s", "time to 100 %", "s"),
                ("failed_attempts", "failed attempts", "attempts"),
            ] {
                let own = most("bridger", member)?;
                for who in ["kube-scheduler", "null binder"].into_iter().take(if scene.is_none() { 2 } else { 1 }) {
                    report.beside(format!("{what}, {noun}, most"), own, unit, who, most(who, member)?);
                }
            }
            let after = figure("bridger", "events_after_s")?.most();
            report.limit(format!("{what}, last event after"), after, "s", EVENTS_AFTER_S_MAX);
        }
    }
    Ok(report)
}

/// The contenders took turns in pairs: the median of the pairs' ratios counts.
fn fill_with_all(measured: &Value, rounds: &Rounds) -> Result<Report> {
    let mut report = Report::new("scheduler-with-all");
    for load in rounds.loads() {
        let name = load.name();
        let workloads = measured["rounds"][name].as_object().with_context(|| format!("{name} in {measured}"))?;
        for workload in workloads.keys() {
            let what = format!("{name}: {workload}");
            let both = |member: &str| {
                let turns = |who: &str| Turns::of(measured, &format!("/rounds/{name}/{workload}/{who}"), member);
                Ok::<_, anyhow::Error>((turns("bridger with all")?, turns("bridger")?))
            };
            let (all, alone) = both("pods_per_second")?;
            let ratio = all.ratios(&alone).median();
            report.at_least(format!("{what}, rate, of pairs"), ratio, "x", "bridger alone", 1.0, WITH_ALL_MIN);
            let (all, alone) = both("wait_p99_ms")?;
            let ratio = all.ratios(&alone).median();
            report.at_most(format!("{what}, wait p99, of pairs"), ratio, "x", "bridger alone", 1.0, WITH_ALL_WAIT_MAX);
            for (member, noun, unit) in [
                ("pods_per_second", "rate", "pods/s"),
                ("wait_p50_ms", "wait p50", "ms"),
                ("wait_p99_ms", "wait p99", "ms"),
                ("cpu_ms_per_pod", "CPU", "ms/pod"),
                ("peak_mib", "peak memory", "MiB"),
            ] {
                let (all, alone) = both(member)?;
                report.beside(format!("{what}, {noun}, median"), all.median(), unit, "bridger alone", alone.median());
            }
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
        let round = |rate: f64, cpu: f64| {
            json!([{ "pods_per_second": rate, "cpu_ms_per_pod": cpu, "peak_mib": 100.0, "events_after_s": 0.2,
                "most_took_s": 1.0, "took_s": 1.1, "failed_attempts": 0 }])
        };
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

    #[test]
    fn workloads_that_the_null_binder_cannot_schedule_have_their_own_goals() {
        let round = |rate: f64| {
            json!([{ "pods_per_second": rate, "cpu_ms_per_pod": 0.5, "peak_mib": 100.0, "events_after_s": 0.2,
                "most_took_s": 1.0, "took_s": 1.1, "failed_attempts": 0 }])
        };
        // kube-scheduler's CPU time per pod is the same: this row always fails.
        for (workload, rate, missed) in [
            ("preemption", 201.0, 1),
            ("preemption", 199.0, 2),
            ("volumes, local", 81.0, 1),
            ("volumes, local", 79.0, 2),
            ("volumes, provisioned", 79.0, 2),
        ] {
            let rounds = json!({ "kube-scheduler": round(10.0), "bridger": round(rate) });
            let measured = json!({ "rounds": { "loaded": { workload: rounds } } });
            let report = fill(&measured, &Rounds::some(Some(workload), Some(Load::Loaded))).expect("all is there");
            assert_eq!(report.missed(), missed, "{workload}: {rate} pods/s");
        }
        // Any other workload needs the null binder.
        let rounds = json!({ "kube-scheduler": round(10.0), "bridger": round(100.0) });
        let measured = json!({ "rounds": { "loaded": { "basic": rounds } } });
        assert!(fill(&measured, &Rounds::some(Some("basic"), Some(Load::Loaded))).is_err());
    }

    #[test]
    fn with_all_features_rate_and_wait_have_limits() {
        let turns = |rate: f64, wait: f64| {
            json!([{ "pods_per_second": rate, "cpu_ms_per_pod": 0.5, "peak_mib": 100.0, "wait_p50_ms": 2.0,
                "wait_p99_ms": wait }])
        };
        // Rate and p99 with all, against 1000 pods/s and 10 ms; and the number of rows that fail.
        for (rate, wait, missed) in [(950.0, 14.0, 0), (890.0, 14.0, 1), (950.0, 16.0, 1), (890.0, 16.0, 2)] {
            let workload = json!({ "bridger": turns(1000.0, 10.0), "bridger with all": turns(rate, wait) });
            let measured = json!({ "rounds": { "loaded": { "basic": workload } } });
            let report = fill_with_all(&measured, &Rounds::some(None, Some(Load::Loaded))).expect("all is there");
            assert_eq!(report.missed(), missed, "{rate} pods/s and {wait} ms");
            assert!(fill_with_all(&measured, &Rounds::default()).is_err());
        }
        let alone = json!({ "rounds": { "loaded": { "basic": { "bridger": turns(1000.0, 10.0) } } } });
        assert!(fill_with_all(&alone, &Rounds::some(None, Some(Load::Loaded))).is_err());
    }
}
