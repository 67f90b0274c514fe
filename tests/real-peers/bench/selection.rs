//! Selects rounds and contenders: `--quick`, `--only=WORD`, `--load=empty|loaded`, `--before=PROGRAM`,
//! `--turns=NUMBER`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::turns::Turns;
use super::workload::Workload;

/// Whether pods already run in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    Empty,
    Loaded,
}

impl Load {
    pub const ALL: [Load; 2] = [Load::Empty, Load::Loaded];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Load::Empty => "empty",
            Load::Loaded => "loaded",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// A small cluster.
    pub quick: bool,
    /// Only workloads whose name contains this.
    only: Option<String>,
    load: Option<Load>,
    before: Option<PathBuf>,
    turns: Option<usize>,
    /// Turns in pairs, and how many unless the command line says.
    pairs: Option<usize>,
}

impl Selection {
    /// An unknown argument is an error, so that a run of an hour does not measure the wrong rounds.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Selection> {
        let mut selection = Selection::default();
        for argument in arguments {
            match argument.split_once('=') {
                None if argument == "--quick" => selection.quick = true,
                Some(("--only", word)) => selection.only = Some(word.to_owned()),
                Some(("--load", name)) => match Load::ALL.into_iter().find(|load| load.name() == name) {
                    Some(load) => selection.load = Some(load),
                    None => bail!("--load must be empty or loaded, not {name:?}"),
                },
                Some(("--before", program)) => selection.before = Some(PathBuf::from(program)),
                Some(("--turns", number)) => {
                    let turns = number.parse().ok().filter(|turns| *turns > 0);
                    let turns: usize = turns.with_context(|| format!("--turns must be positive, not {number:?}"))?;
                    selection.turns = Some(turns);
                }
                _ => bail!(
                    "{argument:?} is not --quick, --only=WORD, --load=empty|loaded, --before=PROGRAM or --turns=NUMBER"
                ),
            }
        }
        Ok(selection)
    }

    /// Whether all rounds are selected.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.only.is_none() && self.load.is_none()
    }

    /// Another build of Bridger. If set, it and this build are the only contenders.
    #[must_use]
    pub fn before(&self) -> Option<&Path> {
        self.before.as_deref()
    }

    /// Measures two contenders in pairs of turns, this many unless another number was selected.
    #[must_use]
    pub fn in_pairs(self, pairs: usize) -> Selection {
        Selection { pairs: Some(pairs), ..self }
    }

    /// Measures only the cluster with running pods.
    #[must_use]
    pub fn only_loaded(self) -> Selection {
        Selection { load: Some(Load::Loaded), ..self }
    }

    #[must_use]
    pub fn turns(&self) -> Turns {
        match (self.pairs, self.turns) {
            (Some(pairs), turns) => Turns::exactly(turns.unwrap_or(pairs)),
            (None, Some(turns)) => Turns::at_least(turns),
            (None, None) => Turns::default(),
        }
    }

    pub fn loads(&self) -> impl Iterator<Item = Load> {
        Load::ALL.into_iter().filter(|load| self.load.is_none_or(|only| only == *load))
    }

    /// The selected workloads. It is an error if there is none.
    pub fn of(&self, mut workloads: Vec<Workload>) -> Result<Vec<Workload>> {
        if let Some(word) = &self.only {
            let names: Vec<&str> = workloads.iter().map(|workload| workload.name).collect();
            ensure!(names.iter().any(|name| name.contains(word)), "no workload's name contains {word:?}: {names:?}");
            workloads.retain(|workload| workload.name.contains(word));
        }
        Ok(workloads)
    }
}
