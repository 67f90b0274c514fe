//! The tiers, from the quickest to the one that needs the most around it.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use super::{Tally, count};
use crate::workspace::{self, succeed};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Tier {
    /// rustfmt finds nothing to change.
    Format,
    /// Clippy finds nothing, warnings denied, tests included.
    Clippy,
    /// Unit and property tests of every crate but the simulator.
    Unit,
    /// The simulator's own tests, and the engine in simulated worlds.
    Simulated,
    /// etcd, kube-apiserver, kube-scheduler, kubectl, vcsim and govc.
    Peers,
    /// rustdoc without a warning, and every relative link in the Markdown pages.
    Docs,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::Format => "format",
            Tier::Clippy => "clippy",
            Tier::Unit => "unit",
            Tier::Simulated => "simulated",
            Tier::Peers => "peers",
            Tier::Docs => "docs",
        })
    }
}

pub struct Settings {
    pub full: bool,
    pub only: Option<String>,
}

/// Packages whose tests run in simulated worlds, and those that need the real peers; all others are the unit tier.
const SIMULATED: &[&str] = &["simulator"];
const PEERS: &[&str] = &["real-peers"];

impl Tier {
    pub fn run(self, settings: &Settings) -> Result<Tally> {
        match self {
            Tier::Format => format(),
            Tier::Clippy => clippy(),
            Tier::Unit => {
                let mut arguments = vec!["--workspace"];
                arguments.extend(SIMULATED.iter().chain(PEERS).flat_map(|package| ["--exclude", package]));
                cargo_test(&arguments, settings)
            }
            Tier::Simulated => cargo_test(&packages(SIMULATED), settings),
            Tier::Peers => {
                clear_peer_logs()?;
                // Some of these tests start the very binary that a person runs.
                succeed(workspace::cargo().args(["build", "--package", "bridger"]))?;
                cargo_test(&packages(PEERS), settings)
            }
            Tier::Docs => super::docs::run(),
        }
    }
}

fn packages(names: &'static [&'static str]) -> Vec<&'static str> {
    names.iter().flat_map(|name| ["--package", name]).collect()
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

/// Runs `cargo test`, shows its output as it comes, and counts it.
fn cargo_test(arguments: &[&str], settings: &Settings) -> Result<Tally> {
    let mut command = workspace::cargo();
    command.args(["test", "--no-fail-fast"]).args(arguments);
    if let Some(only) = &settings.only {
        command.args(["--", only]);
    }
    command.env("BRIDGER_TEST_COUNTS", if settings.full { "full" } else { "quick" });
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("running cargo test")?;
    let mut output = String::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.context("reading what cargo test prints")?;
            println!("{line}");
            output.push_str(&line);
            output.push('\n');
        }
    }
    let status = child.wait().context("waiting for cargo test")?;
    let tally = count::cargo_test(&output);
    // A binary that could not be built or that died has no line of its own to count.
    if !status.success() && tally.failed == 0 {
        bail!("cargo test failed ({status}) without a failed test: a build error or a crash, see above");
    }
    Ok(tally)
}

/// The logs that real peers leave when a test fails are those of this run only.
fn clear_peer_logs() -> Result<()> {
    let folder = workspace::target().join("peer-logs");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    Ok(())
}

/// The files of the clone that match a pattern, as git lists them.
pub fn tracked_files(pattern: &str) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", pattern])
        .current_dir(workspace::root())
        .output()
        .context("running git ls-files")?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}
