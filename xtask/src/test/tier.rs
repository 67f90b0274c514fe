//! The tiers, in the order in which they run.

use std::cell::OnceCell;
use std::fmt;
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;
use peers::Scope;

use super::Tally;
use super::binaries::{self, TestBinary};
use super::e2e;
use crate::workspace::{self, succeed};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tier {
    /// rustfmt finds nothing to change.
    Format,
    /// Dependencies point from adapters and the binary to the pure crates, never back.
    Structure,
    /// Clippy finds nothing, warnings denied, tests included.
    Clippy,
    /// Unit and property tests of every crate except the simulator.
    Unit,
    /// The simulator's own tests, and the engine in simulated worlds.
    Simulated,
    /// etcd, kube-apiserver, kube-scheduler, its plugins as a judge, kubectl, vcsim and govc.
    Peers,
    /// rustdoc without warnings, and every relative link in the Markdown pages.
    Docs,
    /// Kubernetes' own e2e suite, with Bridger as the only scheduler. Only on request.
    E2e,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::Format => "format",
            Tier::Structure => "structure",
            Tier::Clippy => "clippy",
            Tier::Unit => "unit",
            Tier::Simulated => "simulated",
            Tier::Peers => "peers",
            Tier::Docs => "docs",
            Tier::E2e => "e2e",
        })
    }
}

#[derive(Default)]
pub struct Settings {
    pub full: bool,
    /// The seed of all random input.
    pub seed: u64,
    /// The only world that tests of random worlds run on.
    pub world: Option<u64>,
    pub only: Option<String>,
    pub e2e: e2e::Options,
    pub(super) binaries: OnceCell<Vec<TestBinary>>,
}

impl Settings {
    /// The test binaries, built when the first tier needs them.
    fn binaries(&self) -> Result<&[TestBinary]> {
        if self.binaries.get().is_none() {
            let built = binaries::build()?;
            let _ = self.binaries.set(built);
        }
        Ok(self.binaries.get().map_or(&[], Vec::as_slice))
    }
}

/// Packages whose tests run in simulated worlds, and packages that need real programs. All others are the unit tier.
const SIMULATED: &[&str] = &["simulator", "simulated"];
const PEERS: &[&str] = &["real-peers", "judge", "custom-scheduler"];
/// The test binary of the e2e tier.
const E2E: (&str, &str) = ("e2e", "suite");

impl Tier {
    /// The tier that runs a test binary.
    fn of(binary: &TestBinary) -> Tier {
        match (binary.package.as_str(), binary.target.as_str()) {
            E2E => Tier::E2e,
            (package, _) if SIMULATED.contains(&package) => Tier::Simulated,
            (package, _) if PEERS.contains(&package) => Tier::Peers,
            _ => Tier::Unit,
        }
    }

    /// Whether it runs only when it is named.
    pub fn on_request(self) -> bool {
        self == Tier::E2e
    }

    /// The real programs that it needs.
    pub fn programs(self) -> Option<Scope> {
        match self {
            Tier::Peers => Some(Scope::Default),
            Tier::E2e => Some(Scope::E2e),
            _ => None,
        }
    }

    pub fn run(self, settings: &Settings) -> Result<Tally> {
        match self {
            Tier::Format => format(),
            Tier::Structure => super::structure::run(),
            Tier::Clippy => clippy(),
            Tier::Unit => run_tests(settings, None, |binary| Tier::of(binary) == Tier::Unit),
            Tier::Simulated => run_tests(settings, None, |binary| Tier::of(binary) == Tier::Simulated),
            // Most of the time these tests wait: for leases, graces, and programs that start.
            Tier::Peers => {
                clear_peer_logs()?;
                run_tests(settings, Some(2 * cores()), |binary| Tier::of(binary) == Tier::Peers)
            }
            Tier::Docs => super::docs::run(),
            Tier::E2e => {
                clear_peer_logs()?;
                run_tests(settings, None, |binary| Tier::of(binary) == Tier::E2e)
            }
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Runs the test binaries of a tier. `threads`: of each binary; with `None`, one per core.
fn run_tests(settings: &Settings, threads: Option<usize>, belongs: impl Fn(&TestBinary) -> bool) -> Result<Tally> {
    let mut tally = Tally { unit: "tests", ..Tally::default() };
    for binary in settings.binaries()?.iter().filter(|binary| belongs(binary)) {
        let ran = binary.run(settings, threads)?;
        tally.passed += ran.passed;
        tally.failed += ran.failed;
        tally.skipped += ran.skipped;
    }
    Ok(tally)
}

fn format() -> Result<Tally> {
    succeed(workspace::cargo().args(["fmt", "--all", "--", "--check"]))?;
    Ok(Tally { passed: tracked_files("*.rs")?.len(), unit: "files", ..Tally::default() })
}

fn clippy() -> Result<Tally> {
    succeed(workspace::cargo().args(["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    let members = super::docs::workspace_members()?;
    Ok(Tally { passed: members, unit: "crates", ..Tally::default() })
}

/// Removes peer logs of earlier runs, so that the remaining ones belong to failures of this run.
fn clear_peer_logs() -> Result<()> {
    let folder = workspace::target().join("peer-logs");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    Ok(())
}

/// The files of the clone that match a pattern, from `git ls-files`.
pub fn tracked_files(pattern: &str) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", pattern])
        .current_dir(workspace::root())
        .output()
        .context("running git ls-files")?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}
