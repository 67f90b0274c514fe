//! `cargo xtask bench compare`: compares this checkout with another, in turns.
//!
//! In: a folder with another checkout whose programs are built. Out: each figure that both have, before and after.
//! Nothing of the other checkout is built or changed. If the program itself is measured, this checkout's benchmark
//! measures both, in one cluster if possible. Measurements inside a benchmark's process use each checkout's own
//! benchmark.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::Value;

use super::measurement::{example, measure};
use super::report::Report;
use super::{decisions, rounds::Turns};
use crate::workspace::{self, succeed};

/// Compares this checkout with another, in turns: decisions, labels, scheduler and extender (small clusters), the best
/// of each figure.
///
/// The other checkout must be built: `cargo xtask bench scheduler --quick --only basic` there builds the programs,
/// `cargo bench --workspace --bench decisions --no-run` the decisions. Fails if a figure is worse by more than 10 %.
#[derive(clap::Args)]
pub struct Arguments {
    /// The other checkout
    #[arg(long, value_name = "FOLDER")]
    before: PathBuf,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
    /// Only this measurement; may be repeated
    #[arg(long, value_name = "MEASUREMENT")]
    only: Vec<Measurement>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measurement {
    Decisions,
    Label,
    Scheduler,
    Extender,
}

/// The share by which a figure may be worse.
const WORSE_MAX: f64 = 0.1;
/// Cargo's folders in which a benchmark may have been built.
const PROFILES: [&str; 2] = ["dist", "release"];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Figure {
    value: f64,
    unit: &'static str,
    better: Better,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    More,
    Less,
}

impl Figure {
    fn more(value: f64, unit: &'static str) -> Figure {
        Figure { value, unit, better: Better::More }
    }

    fn less(value: f64, unit: &'static str) -> Figure {
        Figure { value, unit, better: Better::Less }
    }

    fn best(self, other: Figure) -> Figure {
        let value = match self.better {
            Better::More => self.value.max(other.value),
            Better::Less => self.value.min(other.value),
        };
        Figure { value, ..self }
    }
}

type Figures = BTreeMap<String, Figure>;

pub fn run(arguments: &Arguments) -> Result<Report> {
    let measurements = match arguments.only.is_empty() {
        true => Measurement::value_variants(),
        false => &arguments.only,
    };
    crate::peers::build()?;
    let before = Checkout::at("before", arguments.before.join("target"));
    before.has_all(measurements)?;
    let built = super::build()?;
    if measurements.contains(&Measurement::Decisions) {
        let bench =
            ["bench", "--profile", super::PROFILE, "--package", "scheduler", "--bench", "decisions", "--no-run"];
        succeed(workspace::cargo().args(bench))?;
    }
    let [before, after] = [before, Checkout { programs: Some(built), ..Checkout::at("after", workspace::target()) }];
    let mut best = Best::default();
    for measurement in measurements {
        let started = Instant::now();
        match measurement {
            Measurement::Decisions => best.in_turn(arguments.turns, &[&before, &after], Checkout::measure_decisions)?,
            Measurement::Label => best.in_turn(arguments.turns, &[&before, &after], |checkout| {
                let mut command = example(&after.programs()?, "label");
                Ok(of_label(&measure(command.env("BRIDGER_BIN", checkout.programs()?.join("bridger")))?))
            })?,
            Measurement::Scheduler => best.in_one_run(arguments.turns, "scheduler", [&before, &after])?,
            Measurement::Extender => {
                best.in_turn(arguments.turns, &[&before, &after], |checkout| {
                    let mut command = example(&checkout.programs()?, "extender");
                    Ok(of_latency(&measure(command.args(["latency", "--quick"]))?))
                })?;
                best.in_one_run(arguments.turns, "extender", [&before, &after])?;
            }
        }
        println!("bench: {measurement:?} took {:.1} minutes", started.elapsed().as_secs_f64() / 60.0);
    }
    fill(&best.before, &best.after)
}

/// The best of each figure so far.
#[derive(Default)]
struct Best {
    before: Figures,
    after: Figures,
}

impl Best {
    /// Measures both checkouts in turn, with one process per turn.
    fn in_turn(
        &mut self,
        turns: u32,
        checkouts: &[&Checkout; 2],
        measure: impl Fn(&Checkout) -> Result<Figures>,
    ) -> Result<()> {
        for turn in 1..=turns {
            for (checkout, best) in checkouts.iter().zip([&mut self.before, &mut self.after]) {
                println!("bench: turn {turn} of {turns}, {}", checkout.name);
                keep_best(best, measure(checkout)?);
            }
        }
        Ok(())
    }

    /// Measures both programs in turn on one cluster, with this checkout's benchmark.
    fn in_one_run(&mut self, turns: u32, name: &str, [before, after]: [&Checkout; 2]) -> Result<()> {
        let mut command = example(&after.programs()?, name);
        command.arg("--quick").arg(format!("--turns={turns}"));
        command.arg(format!("--before={}", before.programs()?.join("bridger").display()));
        let measured = measure(&mut command)?;
        keep_best(&mut self.before, of_rounds(name, "before", &measured));
        keep_best(&mut self.after, of_rounds(name, "bridger", &measured));
        Ok(())
    }
}

/// One of the two checkouts.
struct Checkout {
    name: &'static str,
    target: PathBuf,
    /// The folder of `bridger` and the examples, if known.
    programs: Option<PathBuf>,
}

impl Checkout {
    fn at(name: &'static str, target: PathBuf) -> Checkout {
        Checkout { name, target, programs: None }
    }

    /// Checked before anything is measured, and before this checkout is built.
    fn has_all(&self, measurements: &[Measurement]) -> Result<()> {
        for measurement in measurements {
            match measurement {
                Measurement::Decisions => drop(self.decisions()?),
                Measurement::Label | Measurement::Scheduler => drop(self.programs()?),
                Measurement::Extender => {
                    let program = self.programs()?.join("examples/extender");
                    if !program.is_file() {
                        bail!("{} is not built", program.display());
                    }
                }
            }
        }
        Ok(())
    }

    fn programs(&self) -> Result<PathBuf> {
        let built = PROFILES.iter().map(|profile| self.target.join(profile).join("bridger"));
        let newest = || newest(built).and_then(|program| program.parent().map(Path::to_owned));
        let folder = self.programs.clone().or_else(newest);
        folder.with_context(|| format!("{} has no bridger in {PROFILES:?}", self.target.display()))
    }

    /// The newest criterion program. Cargo adds a hash to its name and does not delete older ones.
    fn decisions(&self) -> Result<PathBuf> {
        let folders = PROFILES.iter().map(|profile| self.target.join(profile).join("deps"));
        let entries = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().filter_map(Result::ok);
        let is_program = |path: &PathBuf| {
            path.extension().is_none()
                && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("decisions-"))
        };
        let programs = entries.map(|entry| entry.path()).filter(is_program);
        newest(programs).with_context(|| format!("{} has no decisions benchmark", self.target.display()))
    }

    fn measure_decisions(&self) -> Result<Figures> {
        let home = self.target.join("criterion-compare");
        if home.exists() {
            fs::remove_dir_all(&home).with_context(|| format!("removing {}", home.display()))?;
        }
        let mut command = Command::new(self.decisions()?);
        succeed(command.arg("--bench").env("CRITERION_HOME", &home))?;
        Ok(of_decisions(&decisions::read(&home.join("decisions"))?))
    }
}

fn newest(files: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let dated = |file: PathBuf| {
        let changed: SystemTime = fs::metadata(&file).and_then(|data| data.modified()).ok()?;
        Some((changed, file))
    };
    files.filter_map(dated).max().map(|(_, file)| file)
}

fn of_decisions(rates: &decisions::Rates) -> Figures {
    let rows = rates.iter().flat_map(|(workload, by_pods)| {
        by_pods.iter().map(move |(pods, rate)| (format!("decisions: {workload}, {pods} pods"), *rate))
    });
    rows.map(|(name, rate)| (name, Figure::more(rate, "/s"))).collect()
}

fn of_label(measured: &Value) -> Figures {
    one(measured, "label: added, p99", "/latency/added_ms/p99", "ms")
        .chain(one(measured, "label: first labelling of 5000 nodes", "/scale/seconds", "s"))
        .collect()
}

fn of_latency(measured: &Value) -> Figures {
    one(measured, "extender: filter, p99", "/latency/many/p99_ms", "ms").collect()
}

/// A figure for which less is better. A missing figure is omitted, so it is not compared.
fn one(measured: &Value, name: &str, path: &str, unit: &'static str) -> impl Iterator<Item = (String, Figure)> {
    let value = measured.pointer(path).and_then(Value::as_f64);
    value.map(|value| (name.to_owned(), Figure::less(value, unit))).into_iter()
}

/// This contender's best turn, for each load and workload.
fn of_rounds(name: &str, contender: &str, measured: &Value) -> Figures {
    let (rounds, member) = (if name == "scheduler" { "/rounds" } else { "/throughput" }, "pods_per_second");
    let mut figures = Figures::new();
    for (load, workloads) in measured.pointer(rounds).and_then(Value::as_object).into_iter().flatten() {
        for (workload, ways) in workloads.as_object().into_iter().flatten() {
            if let Ok(turns) = Turns::of(ways, &format!("/{contender}"), member) {
                figures.insert(format!("{name}: {load}: {workload}"), Figure::more(turns.most(), "pods/s"));
            }
        }
    }
    figures
}

fn keep_best(best: &mut Figures, turn: Figures) {
    for (name, figure) in turn {
        best.entry(name).and_modify(|known| *known = known.best(figure)).or_insert(figure);
    }
}

/// Compares each figure that both have. It is an error if there is none.
fn fill(before: &Figures, after: &Figures) -> Result<Report> {
    let mut report = Report::new("compare");
    let mut compared = 0;
    for (name, new) in after {
        let Some(old) = before.get(name) else { continue };
        compared += 1;
        match new.better {
            Better::More => report.at_least(name, new.value, new.unit, "before", old.value, 1.0 - WORSE_MAX),
            Better::Less => report.at_most(name, new.value, new.unit, "before", old.value, 1.0 + WORSE_MAX),
        }
    }
    let only_in = |one: &Figures, other: &Figures, name: &str| {
        let missing: Vec<&str> = one.keys().filter(|key| !other.contains_key(*key)).map(String::as_str).collect();
        if !missing.is_empty() {
            println!("bench: measured only {name}: {}", missing.join("; "));
        }
    };
    only_in(before, after, "before");
    only_in(after, before, "after");
    if compared == 0 {
        bail!("the two checkouts have no figure in common");
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn alone(figure: Figure) -> Figures {
        Figures::from([("a".to_owned(), figure)])
    }

    #[test]
    fn a_figure_may_be_worse_by_a_tenth_and_better_by_anything() {
        let (rate, time) = (|value| alone(Figure::more(value, "/s")), |value| alone(Figure::less(value, "ms")));
        for (before, after, missed) in [
            (rate(100.0), rate(91.0), 0),
            (rate(100.0), rate(89.0), 1),
            (rate(100.0), rate(500.0), 0),
            (time(100.0), time(109.0), 0),
            (time(100.0), time(111.0), 1),
            (time(100.0), time(1.0), 0),
        ] {
            assert_eq!(fill(&before, &after).expect("one figure").missed(), missed, "{before:?} {after:?}");
        }
        assert!(fill(&Figures::new(), &rate(1.0)).is_err());
    }

    #[test]
    fn the_best_turn_of_each_figure_counts() {
        for (figure, turns, expected) in [
            (Figure::more as fn(f64, &'static str) -> Figure, [2.0, 3.0, 1.0], 3.0),
            (Figure::less, [2.0, 3.0, 1.0], 1.0),
        ] {
            let mut best = Figures::new();
            turns.into_iter().for_each(|value| keep_best(&mut best, alone(figure(value, "unit"))));
            assert_eq!(best["a"].value, expected);
        }
    }

    #[test]
    fn each_measurement_has_its_figures() {
        let label = json!({ "latency": { "added_ms": { "p99": 30.0 } }, "scale": { "seconds": 50.0 } });
        let scheduler = json!({ "rounds": { "loaded": { "basic": {
            "bridger": [{ "pods_per_second": 8.0 }, { "pods_per_second": 9.0 }],
            "before": [{ "pods_per_second": 7.0 }, { "pods_per_second": 6.0 }] } } } });
        let turns = |rates: [f64; 2]| rates.map(|rate| json!({ "pods_per_second": rate }));
        let preferred = json!({ "bridger": turns([5.0, 4.0]), "before": turns([3.0, 2.0]) });
        let extender = json!({ "throughput": { "empty": { "preferred": preferred } },
            "latency": { "many": { "p99_ms": 0.3 } } });
        for (found, expected) in [
            (of_label(&label), &[("label: added, p99", 30.0), ("label: first labelling of 5000 nodes", 50.0)][..]),
            (of_latency(&extender), &[("extender: filter, p99", 0.3)]),
            (of_rounds("scheduler", "bridger", &scheduler), &[("scheduler: loaded: basic", 9.0)]),
            (of_rounds("scheduler", "before", &scheduler), &[("scheduler: loaded: basic", 7.0)]),
            (of_rounds("extender", "bridger", &extender), &[("extender: empty: preferred", 5.0)]),
            (of_rounds("extender", "before", &extender), &[("extender: empty: preferred", 3.0)]),
            (of_label(&json!({})), &[]),
            (of_rounds("extender", "before", &json!({})), &[]),
        ] {
            let found: Vec<(&str, f64)> = found.iter().map(|(name, figure)| (name.as_str(), figure.value)).collect();
            assert_eq!(found, expected);
        }
        let rates = decisions::Rates::from([("basic".to_owned(), BTreeMap::from([(10_000, 7.0), (150_000, 6.0)]))]);
        let found = of_decisions(&rates);
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["decisions: basic, 10000 pods", "decisions: basic, 150000 pods"]);
    }

    #[test]
    fn missing_programs_are_reported_before_anything_is_measured() {
        let folder = tempfile::tempdir().expect("a folder");
        let checkout = Checkout::at("before", folder.path().to_owned());
        for measurement in Measurement::value_variants() {
            assert!(checkout.has_all(&[*measurement]).is_err(), "{measurement:?}");
        }
        for file in ["release/bridger", "release/deps/decisions-0a", "release/deps/decisions-0a.d"] {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().expect("a parent")).expect("a folder");
            fs::write(&file, "").expect("a file");
        }
        assert!(checkout.has_all(&[Measurement::Decisions, Measurement::Label, Measurement::Scheduler]).is_ok());
        assert!(checkout.has_all(&[Measurement::Extender]).is_err());
        assert!(checkout.decisions().is_ok_and(|program| program.ends_with("release/deps/decisions-0a")));
    }
}
