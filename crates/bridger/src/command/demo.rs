//! `bridger demo`: the problem and the solution in one minute, measured.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;

use super::PortArguments;
use crate::demo::{self, DemoScheduler, Display, Options, Speed, Stay};
use crate::failure::Failure;
use crate::say::say;
use crate::service::policy::duration;
use crate::service::settings::PORT_DEFAULT;

/// Show the problem and the solution on this machine in a minute, with measurements
///
/// Runs the same scenario twice on an embedded Kubernetes API and vCenter with a working DRS: first without Bridger,
/// then with it. Three services whose replicas must run on different hosts go through a host failure, a host patch and
/// a rolling update. Then prints for how long replicas shared a physical host and services were down. Needs no
/// Kubernetes and no vSphere. Exits with 0 only if neither happened with Bridger.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Random seed: the same seed gives the same run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Speed as a multiple of real time; max for as fast as possible
    #[arg(long, default_value = "100", value_name = "TIMES|max")]
    speed: Speed,
    /// What schedules pods in the second act
    #[arg(long, value_enum, default_value_t, value_name = "WHO")]
    scheduler: DemoScheduler,
    /// Print lines instead of drawing a screen; the default if the output is not a terminal
    #[arg(long)]
    headless: bool,
    /// Format of the result; with json nothing else is printed
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
    /// Afterwards keep the servers of the second act running in real time, for kubectl and govc
    #[arg(long)]
    stay: bool,
    /// Limit for --stay, for example 90s or 5m
    #[arg(long, value_name = "TIME", requires = "stay", value_parser = duration)]
    r#for: Option<Duration>,
    #[command(flatten)]
    ports: PortArguments,
    /// Loopback port of Bridger itself with --stay; 0 picks a free one
    #[arg(long, default_value_t = PORT_DEFAULT, value_name = "PORT")]
    port: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    #[default]
    Table,
    Json,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.stay && arguments.output == Output::Json {
        return Err(Failure::configuration("--stay cannot be combined with -o json", "omit one of the two"));
    }
    let display = match arguments.output {
        Output::Json => Display::Silent,
        Output::Table if arguments.headless || !std::io::stdout().is_terminal() => Display::Lines,
        Output::Table => Display::Screen,
    };
    let stay =
        arguments.stay.then(|| Stay { ports: arguments.ports.clone(), port: arguments.port, at_most: arguments.r#for });
    let options =
        Options { seed: arguments.seed, speed: arguments.speed, scheduler: arguments.scheduler, display, stay };
    let Some(verdict) = demo::runtime()?.block_on(demo::play(&options))? else {
        say("Interrupted before the end: no result.");
        return Ok(ExitCode::FAILURE);
    };
    match arguments.output {
        Output::Json => say(&verdict.json().map_err(|error| Failure::run(format!("writing JSON: {error}")))?),
        // Already printed, before the servers were kept running.
        Output::Table if arguments.stay && display == Display::Lines => (),
        Output::Table => say(&format!("\n{}\n{}", verdict.table(), verdict.sentence())),
    }
    Ok(if verdict.is_solved() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
