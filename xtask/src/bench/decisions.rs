//! `cargo xtask bench decisions`: how fast the scheduler decides, without an API server.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::report::Report;
use crate::workspace::{self, succeed};

/// Decisions per second of core time: 5000 nodes, all default plugins, all nodes scored, ten workloads.
///
/// With 150,000 running pods, and for comparison with 10,000: a decision must not cost more with more pods. Measured by
/// criterion, in the core time of one thread. Then each workload again without and with the plugin metrics, in turns:
/// they must cost at most 5 %. At last each workload, preemption on full nodes, and pods with claims, with 5000 and with
/// 50,000 nodes, in turns: the cost must grow linearly at worst. About five minutes.
#[derive(clap::Args)]
pub struct Arguments {}

const FEW: u64 = 10_000;
const MANY: u64 = 150_000;
const PER_SECOND_MIN: f64 = 10_000.0;
/// For the workload in which pods share no results.
const PER_SECOND_UNEQUAL_MIN: f64 = 2_000.0;
const UNEQUAL: &str = "no two pods equal";
/// The growth of the cost of a decision, from few pods to many.
const GROWTH_MAX: f64 = 1.3;
/// The cost of a decision with the plugin metrics, beside one without.
const METRICS_MAX: f64 = 1.05;
/// The number of workloads. A run that measured fewer is an error.
const WORKLOADS: usize = 10;
/// The numbers of nodes whose costs are compared.
const NODES: [&str; 2] = ["5000", "50000"];
/// The growth of the cost of a decision from 5000 to 50,000 nodes: linear at worst.
const NODES_GROWTH_MAX: f64 = 10.0;
/// Further workloads that are measured only with both numbers of nodes, and the minimum decisions per second with 5000.
const FURTHER: [(&str, f64); 3] =
    [("preemption", 2_000.0), ("volumes, local", 200.0), ("volumes, provisioned", 1_000.0)];

/// Decisions per second, by workload and number of running pods.
pub type Rates = BTreeMap<String, BTreeMap<u64, f64>>;

pub fn run(_: &Arguments) -> Result<Report> {
    let home = workspace::target().join("criterion");
    let folder = home.join("decisions");
    if folder.exists() {
        // Results of an earlier run must not be mistaken for this run's.
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    let (turns, growth) = (home.join("probe-turns.json"), home.join("growth-turns.json"));
    for file in [&turns, &growth].into_iter().filter(|file| file.exists()) {
        fs::remove_file(file).with_context(|| format!("removing {}", file.display()))?;
    }
    fs::create_dir_all(&home).with_context(|| format!("creating {}", home.display()))?;
    println!("bench: 10 workloads with 10,000 and with 150,000 pods, with plugin metrics, then with 50,000 nodes");
    let mut command = workspace::cargo();
    command.args(["bench", "--profile", super::PROFILE, "--package", "scheduler", "--bench", "decisions"]);
    command.env("CRITERION_HOME", &home).env("BRIDGER_PROBE_TURNS", &turns);
    succeed(command.env("BRIDGER_GROWTH_TURNS", &growth))?;
    fill(&read(&folder)?, &read_turns(&turns)?, &read_growth(&growth)?)
}

/// Microseconds per decision with each number of nodes, by workload: the medians of their turns.
type Growth = BTreeMap<String, [f64; 2]>;

fn read_growth(file: &Path) -> Result<Growth> {
    let read = json(file)?;
    let by_workload = read["turns"].as_object().with_context(|| format!("turns in {}", file.display()))?;
    let costs = by_workload.iter().map(|(workload, turns)| {
        let costs = NODES.map(|nodes| median(&turns[nodes]));
        let [Some(few), Some(many)] = costs else { bail!("turns of {workload} in {}", file.display()) };
        Ok((workload.clone(), [few / 1000.0, many / 1000.0]))
    });
    costs.collect()
}

/// The median of numbers.
fn median(of: &Value) -> Option<f64> {
    let mut sorted: Vec<f64> = of.as_array()?.iter().filter_map(Value::as_f64).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// Microseconds per decision without and with the plugin metrics, by workload: the medians of their turns.
type Turns = BTreeMap<String, (f64, f64)>;

fn read_turns(file: &Path) -> Result<Turns> {
    let read = json(file)?;
    let batch = read["batch"].as_f64().with_context(|| format!("batch in {}", file.display()))?;
    let by_workload = read["turns"].as_object().with_context(|| format!("turns in {}", file.display()))?;
    let costs = by_workload.iter().map(|(workload, turns)| {
        let cost = |kind: &str| Some(median(&turns[kind])? / batch / 1000.0);
        let both = cost("without").zip(cost("with"));
        Ok((workload.clone(), both.with_context(|| format!("turns of {workload}"))?))
    });
    costs.collect()
}

/// Reads criterion's results: a folder per workload, with a folder per number of pods.
pub fn read(folder: &Path) -> Result<Rates> {
    let mut rates = Rates::new();
    for workload in folders(folder)? {
        for of_pods in folders(&workload)? {
            let new = of_pods.join("new");
            if !new.exists() {
                continue;
            }
            let (what, estimates) = (json(&new.join("benchmark.json"))?, json(&new.join("estimates.json"))?);
            let name = what["function_id"].as_str().with_context(|| format!("function_id in {what}"))?;
            let pods = what["value_str"].as_str().and_then(|text| text.parse().ok());
            let pods = pods.with_context(|| format!("value_str in {what}"))?;
            let batch = what["throughput"]["Elements"].as_f64().with_context(|| format!("throughput in {what}"))?;
            // The median, because other load on the machine may slow single batches.
            let nanoseconds = estimates["median"]["point_estimate"].as_f64();
            let nanoseconds = nanoseconds.with_context(|| format!("median in {estimates}"))?;
            rates.entry(name.to_owned()).or_default().insert(pods, batch / nanoseconds * 1e9);
        }
    }
    Ok(rates)
}

fn folders(parent: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = fs::read_dir(parent).with_context(|| format!("reading {}", parent.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.is_dir() && path.file_name().is_some_and(|name| name != "report"));
    paths.sort();
    Ok(paths)
}

fn json(file: &Path) -> Result<Value> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("reading {}", file.display()))
}

fn fill(rates: &Rates, turns: &Turns, growth: &Growth) -> Result<Report> {
    for (measured, expected) in
        [(rates.len(), WORKLOADS), (turns.len(), WORKLOADS), (growth.len(), WORKLOADS + FURTHER.len())]
    {
        if measured != expected {
            bail!("{measured} workloads were measured, not {expected}");
        }
    }
    let mut report = Report::new("decisions");
    for (workload, by_pods) in rates {
        let rate = |pods: u64| by_pods.get(&pods).copied().with_context(|| format!("{workload} with {pods} pods"));
        let (few, many) = (rate(FEW)?, rate(MANY)?);
        let goal = if workload == UNEQUAL { PER_SECOND_UNEQUAL_MIN } else { PER_SECOND_MIN };
        report.at_least(workload.clone(), many, "/s", "goal", goal, 1.0);
        report.at_most(format!("{workload}, cost"), 1e6 / many, "us", "10,000 pods", 1e6 / few, GROWTH_MAX);
    }
    for (workload, (without, with)) in turns {
        report.at_most(format!("{workload}, plugin metrics"), *with, "us", "without", *without, METRICS_MAX);
    }
    for (workload, goal) in FURTHER {
        let [few, _] = growth.get(workload).with_context(|| format!("{workload} was not measured"))?;
        report.at_least(workload, 1e6 / few, "/s", "goal", goal, 1.0);
    }
    for (workload, [few, many]) in growth {
        report.at_most(format!("{workload}, 50,000 nodes"), *many, "us", "5000 nodes", *few, NODES_GROWTH_MAX);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes criterion's files for each workload, with these costs of a decision.
    fn measured(folder: &Path, workloads: usize, few_us: f64, many_us: f64) {
        for number in 0..workloads {
            let name = if number == 0 { UNEQUAL.to_owned() } else { format!("workload {number}") };
            for (pods, cost_us) in [(FEW, few_us), (MANY, many_us)] {
                let new = folder.join(&name).join(pods.to_string()).join("new");
                fs::create_dir_all(&new).expect("a folder");
                let what = serde_json::json!({ "function_id": name, "value_str": pods.to_string(),
                    "throughput": { "Elements": 4000 } });
                let estimates = serde_json::json!({ "median": { "point_estimate": cost_us * 4000.0 * 1000.0 } });
                fs::write(new.join("benchmark.json"), what.to_string()).expect("a file");
                fs::write(new.join("estimates.json"), estimates.to_string()).expect("a file");
            }
        }
        fs::create_dir_all(folder.join("report")).expect("a folder");
    }

    /// Turns of batches of 4000, with these costs of a decision; the odd turn out is other load on the machine.
    fn turns(folder: &Path, workloads: usize, without_us: f64, with_us: f64) -> Result<Turns> {
        let times = |us: f64| [us, us, 100.0 * us].map(|us| us * 4000.0 * 1000.0);
        let turns = |number| {
            (format!("workload {number}"), serde_json::json!({ "without": times(without_us), "with": times(with_us) }))
        };
        let turns: serde_json::Map<String, Value> = (0..workloads).map(turns).collect();
        let file = folder.join("turns.json");
        fs::write(&file, serde_json::json!({ "batch": 4000, "turns": turns }).to_string())?;
        read_turns(&file)
    }

    /// Turns of the first workloads, with these costs of a decision in the small and in the large cluster.
    fn growth(folder: &Path, workloads: usize, few_us: f64, many_us: f64) -> Result<Growth> {
        let of_all = (0..WORKLOADS).map(|number| format!("workload {number}"));
        let names = of_all.chain(FURTHER.iter().map(|(name, _)| (*name).to_owned()));
        let times = |us: f64| [us, 100.0 * us, us].map(|us| us * 1000.0);
        let turns = names.take(workloads);
        let turns = turns.map(|name| (name, serde_json::json!({ "5000": times(few_us), "50000": times(many_us) })));
        let turns: serde_json::Map<String, Value> = turns.collect();
        let file = folder.join("growth.json");
        fs::write(&file, serde_json::json!({ "turns": turns }).to_string())?;
        read_growth(&file)
    }

    const ALL: usize = WORKLOADS + FURTHER.len();

    fn missed(workloads: usize, few_us: f64, many_us: f64) -> Result<usize> {
        let folder = tempfile::tempdir()?;
        let (turns, growth) = (turns(folder.path(), WORKLOADS, 20.0, 20.0)?, growth(folder.path(), ALL, 100.0, 900.0)?);
        measured(folder.path(), workloads, few_us, many_us);
        Ok(fill(&read(folder.path())?, &turns, &growth)?.missed())
    }

    #[test]
    fn the_cost_of_a_decision_may_grow_with_the_nodes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        let turns = turns(path, WORKLOADS, 20.0, 20.0).expect("turns");
        measured(&path.join("rates"), WORKLOADS, 50.0, 50.0);
        let rates = read(&path.join("rates")).expect("rates");
        // Microseconds with 5000 and with 50,000 nodes, and the number of rows that fail.
        for (few, many, expected) in [(100.0, 990.0, 0), (100.0, 1010.0, ALL), (600.0, 600.0, 1), (6000.0, 6000.0, 3)] {
            let growth = growth(path, ALL, few, many).expect("turns");
            let report = fill(&rates, &turns, &growth).expect("all is there");
            assert_eq!(report.missed(), expected, "{few} and {many} us");
        }
        let few = growth(path, ALL - 1, 1.0, 1.0).expect("turns");
        assert!(fill(&rates, &turns, &few).is_err(), "a workload is missing");
        fs::write(path.join("one size"), r#"{ "turns": { "basic": { "5000": [1] } } }"#).expect("a file");
        assert!(read_growth(&path.join("one size")).is_err());
        assert!(read_growth(&path.join("nothing")).is_err());
    }

    #[test]
    fn plugin_metrics_may_cost_5_percent() {
        let folder = tempfile::tempdir().expect("a folder");
        for (with_us, expected) in [(19.0, 0), (20.9, 0), (21.1, 10)] {
            let (folder, turns) = (folder.path(), turns(folder.path(), WORKLOADS, 20.0, with_us).expect("turns"));
            measured(&folder.join("rates"), WORKLOADS, 50.0, 50.0);
            let growth = growth(folder, ALL, 100.0, 900.0).expect("turns");
            let report = fill(&read(&folder.join("rates")).expect("rates"), &turns, &growth).expect("all is there");
            assert_eq!(report.missed(), expected, "{with_us} us");
        }
        let few = turns(folder.path(), WORKLOADS - 1, 20.0, 20.0).expect("turns");
        let growth = growth(folder.path(), ALL, 100.0, 900.0).expect("turns");
        let rates = read(&folder.path().join("rates")).expect("rates");
        assert!(fill(&rates, &few, &growth).is_err(), "a workload is missing");
        assert!(read_turns(&folder.path().join("nothing")).is_err());
    }

    #[test]
    fn each_limit_can_be_missed() {
        // Microseconds per decision with few and with many pods, and the number of rows that fail.
        let cases = [(50.0, 60.0, 0), (90.0, 110.0, 9), (50.0, 70.0, 10), (400.0, 600.0, 20)];
        for (few, many, expected) in cases {
            assert_eq!(missed(WORKLOADS, few, many).expect("all is there"), expected, "{few} and {many} us");
        }
    }

    #[test]
    fn a_run_with_missing_workloads_fails() {
        assert!(missed(WORKLOADS - 1, 50.0, 50.0).is_err());
        let folder = tempfile::tempdir().expect("a folder");
        assert!(read(&folder.path().join("nothing")).is_err());
    }
}
