//! `cargo xtask bench`: one file per benchmark. Each compares with a peer and with limits, in one run.

mod compare;
mod decisions;
mod extender;
mod label;
mod latency;
mod measurement;
mod plan;
mod report;
mod rounds;
mod sandbox;
mod scheduler;

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;

use crate::workspace::{self, succeed};

/// Runs benchmarks on this machine and compares them with peers and limits.
///
/// Prints a table, ratios first, and writes it as JSON to target/bench/NAME.json. Fails if a limit is not met.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    Sandbox(sandbox::Arguments),
    Label(label::Arguments),
    Plan(plan::Arguments),
    Extender(extender::Arguments),
    Scheduler(scheduler::Arguments),
    Latency(latency::Arguments),
    Decisions(decisions::Arguments),
    Compare(compare::Arguments),
}

/// The profile of release builds: benchmarks measure what is shipped.
const PROFILE: &str = "dist";

/// Builds everything that benchmarks run with one command: one package selection means one feature set, compiled once.
fn build() -> Result<PathBuf> {
    println!("bench: building with the profile {PROFILE}");
    let examples = ["day", "label", "plan", "extender", "scheduler"];
    let mut command = workspace::cargo();
    command.args(["build", "--profile", PROFILE, "--workspace", "--bin", "bridger"]);
    for example in examples {
        command.args(["--example", example]);
    }
    succeed(&mut command)?;
    Ok(workspace::target().join(PROFILE))
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let report = match &arguments.bench {
        Bench::Sandbox(arguments) => sandbox::run(arguments)?,
        Bench::Label(arguments) => label::run(arguments)?,
        Bench::Plan(arguments) => plan::run(arguments)?,
        Bench::Extender(arguments) => extender::run(arguments)?,
        Bench::Scheduler(arguments) => scheduler::run(arguments)?,
        Bench::Latency(arguments) => latency::run(arguments)?,
        Bench::Decisions(arguments) => decisions::run(arguments)?,
        Bench::Compare(arguments) => compare::run(arguments)?,
    };
    report.publish()
}
