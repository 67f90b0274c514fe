//! `bridger demo`: the problem and the cure in one minute, measured.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;

use super::PortArguments;
use crate::demo::{self, Manner, Options, Places, Speed, Stay};
use crate::failure::Failure;
use crate::say::say;
use crate::service::policy::duration;
use crate::service::settings::PORT_DEFAULT;

/// See the problem and the cure on this machine in a minute, measured
///
/// Plays one story twice on an embedded Kubernetes and vCenter with a working DRS: first without Bridger, then with it.
/// Three services whose replicas must be apart, a host that fails, one that is patched, an update. Then tells for how
/// long replicas shared a physical host and services were down. No Kubernetes and no vSphere needed. Exits with 0 only
/// if nothing of that happened with Bridger.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What the world's randomness is drawn from: the same seed gives the same story
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many times as fast as the wall clock the story runs; max for as fast as it goes
    #[arg(long, default_value = "100", value_name = "TIMES|max")]
    speed: Speed,
    /// Who places pods in the second act: a scheduler like kube-scheduler that asks Bridger's extender, or Bridger itself
    #[arg(long, value_enum, default_value_t, value_name = "WHO")]
    scheduler: Places,
    /// Print lines instead of drawing a screen, as when the output is not a terminal
    #[arg(long)]
    headless: bool,
    /// What to print at the end; with json nothing else is printed
    #[arg(long, short, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
    /// Afterwards keep the second act's world running in real time, for kubectl and govc
    #[arg(long)]
    stay: bool,
    /// Stay no longer than this, as in 90s or 5m
    #[arg(long, value_name = "TIME", requires = "stay", value_parser = duration)]
    r#for: Option<Duration>,
    #[command(flatten)]
    ports: PortArguments,
    /// Loopback port of Bridger itself while it stays; 0 picks a free one
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
        return Err(Failure::configuration("--stay has more to say than JSON", "leave out one of --stay and -o json"));
    }
    let manner = match arguments.output {
        Output::Json => Manner::Silent,
        Output::Table if arguments.headless || !std::io::stdout().is_terminal() => Manner::Lines,
        Output::Table => Manner::Screen,
    };
    let stay =
        arguments.stay.then(|| Stay { ports: arguments.ports.clone(), port: arguments.port, at_most: arguments.r#for });
    let options =
        Options { seed: arguments.seed, speed: arguments.speed, scheduler: arguments.scheduler, manner, stay };
    let Some(verdict) = demo::runtime()?.block_on(demo::play(&options))? else {
        say("Left before the end of the story: no verdict.");
        return Ok(ExitCode::FAILURE);
    };
    match arguments.output {
        Output::Json => say(&verdict.json().map_err(|error| Failure::run(format!("writing JSON: {error}")))?),
        // Already said, before staying.
        Output::Table if arguments.stay && manner == Manner::Lines => (),
        Output::Table => say(&format!("\n{}\n{}", verdict.table(), verdict.sentence())),
    }
    Ok(if verdict.is_cured() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
