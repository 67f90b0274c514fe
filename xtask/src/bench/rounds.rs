//! Which rounds of scheduling are measured: the flags that the benchmarks of schedulers share.

use std::process::Command;

use clap::ValueEnum;

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

#[cfg(test)]
impl Rounds {
    pub fn some(only: Option<&str>, load: Option<Load>) -> Rounds {
        Rounds { quick: false, only: only.map(str::to_owned), load }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measurement_is_told_what_was_selected() {
        let told = |rounds: &Rounds| {
            let mut command = Command::new("true");
            rounds.ask(&mut command);
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert!(told(&Rounds::default()).is_empty());
        let rounds = Rounds { quick: true, ..Rounds::some(Some("by host"), Some(Load::Loaded)) };
        assert_eq!(told(&rounds), ["--quick", "--only=by host", "--load=loaded"]);
    }
}
