//! The flags that select scheduling rounds, shared by the benchmarks of schedulers, and the figures of several turns.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde_json::Value;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct Rounds {
    /// A small cluster: minutes instead of half an hour or more; its figures do not count
    #[arg(long)]
    quick: bool,
    /// Only workloads whose name contains this; only their goals are checked
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// Only an empty cluster, or only one with running pods; only its goals are checked
    #[arg(long, value_name = "LOAD")]
    load: Option<Load>,
    /// Minimum number of turns of each contender, until its best is confirmed; with `--with all`, the exact number
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,
}

/// Whether pods already run in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    Empty,
    Loaded,
}

impl Load {
    pub const fn name(self) -> &'static str {
        match self {
            Load::Empty => "empty",
            Load::Loaded => "loaded",
        }
    }
}

impl Rounds {
    /// Adds the selection to the measurement's arguments.
    pub fn add_to(&self, command: &mut Command) {
        if self.quick {
            command.arg("--quick");
        }
        if let Some(word) = &self.only {
            command.arg(format!("--only={word}"));
        }
        if let Some(load) = self.load {
            command.arg(format!("--load={}", load.name()));
        }
        if let Some(turns) = self.turns {
            command.arg(format!("--turns={turns}"));
        }
    }

    /// How long it takes, for the progress message.
    pub fn takes(&self, everything: &'static str) -> &'static str {
        match (self.quick, self.are_all()) {
            (true, _) => "a few minutes",
            (false, true) => everything,
            (false, false) => "only some of them",
        }
    }

    /// Whether all rounds are selected.
    pub const fn are_all(&self) -> bool {
        self.only.is_none() && self.load.is_none()
    }

    /// The measured loads, the most important first.
    pub fn loads(&self) -> impl Iterator<Item = Load> {
        [Load::Loaded, Load::Empty].into_iter().filter(|load| self.load.is_none_or(|only| only == *load))
    }

    pub fn include(&self, workload: &str) -> bool {
        self.only.as_ref().is_none_or(|word| workload.contains(word))
    }
}

/// A figure of one contender for each of its turns.
///
/// Other load on the machine only slows a contender down. So the best turns of two contenders with equally many turns
/// are compared (the measurement continues until another turn confirms each best). Against a contender with a single
/// turn, the worst of several turns counts, so that their number is not an advantage.
pub struct Turns(Vec<f64>);

impl Turns {
    /// `member` is the key of the figure in each turn; empty if a turn is the figure itself.
    pub fn of(measured: &Value, path: &str, member: &str) -> Result<Turns> {
        let turns =
            measured.pointer(path).and_then(Value::as_array).with_context(|| format!("{path} in {measured}"))?;
        let figure = |turn: &Value| match member {
            "" => turn.as_f64(),
            _ => turn[member].as_f64(),
        };
        let figures: Option<Vec<f64>> = turns.iter().map(figure).collect();
        let figures = figures.with_context(|| format!("{member} of {path} in {measured}"))?;
        ensure!(!figures.is_empty(), "no turn of {path} in {measured}");
        Ok(Turns(figures))
    }

    pub fn most(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    pub fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// For an even number of turns, the lower of the two middle ones.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
    }

    /// The ratio of each turn to the other contender's turn of the same pair.
    pub fn ratios(&self, others: &Turns) -> Turns {
        Turns(self.0.iter().zip(&others.0).map(|(own, other)| own / other).collect())
    }
}

#[cfg(test)]
impl Rounds {
    pub fn some(only: Option<&str>, load: Option<Load>) -> Rounds {
        Rounds { quick: false, only: only.map(str::to_owned), load, turns: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_is_passed_to_the_measurement() {
        let arguments_of = |rounds: &Rounds| {
            let mut command = Command::new("true");
            rounds.add_to(&mut command);
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert!(arguments_of(&Rounds::default()).is_empty());
        let rounds = Rounds { quick: true, turns: Some(7), ..Rounds::some(Some("by host"), Some(Load::Loaded)) };
        assert_eq!(arguments_of(&rounds), ["--quick", "--only=by host", "--load=loaded", "--turns=7"]);
    }

    #[test]
    fn turns_have_a_best_a_worst_and_a_median() {
        let measured = serde_json::json!({ "plain": [2.0, 3.0, 1.0], "with member": [{ "s": 5.0 }], "none": [] });
        let turns = Turns::of(&measured, "/plain", "").expect("turns");
        assert_eq!((turns.most(), turns.least(), turns.median()), (3.0, 1.0, 2.0));
        let beside = Turns::of(&serde_json::json!({ "plain": [1.0, 1.0, 2.0] }), "/plain", "").expect("turns");
        assert_eq!(turns.ratios(&beside).0, [2.0, 3.0, 0.5]);
        assert_eq!(Turns::of(&measured, "/with member", "s").expect("a turn").most(), 5.0);
        for (path, member) in [("/none", ""), ("/nowhere", ""), ("/with member", "t"), ("/plain", "s")] {
            assert!(Turns::of(&measured, path, member).is_err(), "{path} {member}");
        }
    }
}
