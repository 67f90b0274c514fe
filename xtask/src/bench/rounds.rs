//! Rounds of scheduling: which are measured, by flags that the benchmarks of schedulers share, and what counts of several turns.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde_json::Value;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct Rounds {
    /// A small cluster: minutes instead of half an hour or more; no figure of it counts
    #[arg(long)]
    quick: bool,
    /// Only workloads whose name contains this; only goals of what is measured are judged
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// Only an empty cluster, or only one with running pods; only goals of what is measured are judged
    #[arg(long, value_name = "LOAD")]
    load: Option<Load>,
    /// Turns of each contender: at least so many, until its best is confirmed; exactly so many with `--with all`
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,
}

/// What runs in the cluster already.
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
    /// Tells the measurement.
    pub fn ask(&self, command: &mut Command) {
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

    /// How long it takes, for people.
    pub fn takes(&self, everything: &'static str) -> &'static str {
        match (self.quick, self.are_all()) {
            (true, _) => "some minutes",
            (false, true) => everything,
            (false, false) => "a part of them",
        }
    }

    /// No round is left out.
    pub const fn are_all(&self) -> bool {
        self.only.is_none() && self.load.is_none()
    }

    /// The loads that are measured, the one that counts most first.
    pub fn loads(&self) -> impl Iterator<Item = Load> {
        [Load::Loaded, Load::Empty].into_iter().filter(|load| self.load.is_none_or(|only| only == *load))
    }

    pub fn include(&self, workload: &str) -> bool {
        self.only.as_ref().is_none_or(|word| workload.contains(word))
    }
}

/// A figure of one contender, of each of its turns.
///
/// What else happens on a machine only ever slows one down: so the best turns of two that took equally many are compared (the
/// measurement goes on until each best is confirmed by another turn). Beside one that took a single turn, the worst of several
/// counts, so that their number is no advantage.
pub struct Turns(Vec<f64>);

impl Turns {
    /// `member` is that of the figure in each turn; empty where a turn is nothing but the figure.
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

    /// The middle one; of an even number the lower of the two.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
    }

    /// What each turn is of the other's turn beside it.
    pub fn ratios(&self, beside: &Turns) -> Turns {
        Turns(self.0.iter().zip(&beside.0).map(|(own, other)| own / other).collect())
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
    fn the_measurement_gets_what_was_selected() {
        let arguments_of = |rounds: &Rounds| {
            let mut command = Command::new("true");
            rounds.ask(&mut command);
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert!(arguments_of(&Rounds::default()).is_empty());
        let rounds = Rounds { quick: true, turns: Some(7), ..Rounds::some(Some("by host"), Some(Load::Loaded)) };
        assert_eq!(arguments_of(&rounds), ["--quick", "--only=by host", "--load=loaded", "--turns=7"]);
    }

    #[test]
    fn of_several_turns_the_best_and_the_worst_are_known() {
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
