//! The commands. Each file contains the arguments and the implementation of one command.

mod adopt;
mod cleanup;
mod completions;
mod demo;
mod explain;
mod manifests;
mod plan;
mod run;
mod sandbox;
pub(crate) mod scheduler;
mod snapshot;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;
use crate::logging;

pub use sandbox::PortArguments;

/// Make two schedulers agree: Kubernetes places pods on nodes, vSphere DRS moves those nodes between physical hosts
///
/// Bridger labels every Kubernetes node with its physical host and turns pod affinity and anti-affinity into DRS rules.
/// Replicas that must not share a host stay on different physical hosts, also after vMotion, maintenance and host
/// failures.
#[derive(Debug, Parser)]
#[command(name = "bridger", version, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = "New here? `bridger demo` shows it on this machine, without Kubernetes or vSphere.")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub logging: logging::LogArguments,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(demo::Arguments),
    Sandbox(sandbox::Arguments),
    Run(Box<run::Arguments>),
    Plan(Box<plan::Arguments>),
    Snapshot(Box<snapshot::Arguments>),
    Scheduler(Box<scheduler::Arguments>),
    Explain(Box<explain::Arguments>),
    Adopt(Box<adopt::Arguments>),
    Cleanup(Box<cleanup::Arguments>),
    Completions(completions::Arguments),
    Manifests(manifests::Arguments),
    Version(version::Arguments),
}

impl Command {
    /// The command prints its own output, which log lines would disturb.
    pub fn has_own_output(&self) -> bool {
        matches!(self, Command::Demo(_))
    }

    pub fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Command::Demo(arguments) => demo::run(&arguments),
            Command::Sandbox(arguments) => sandbox::run(&arguments),
            Command::Run(arguments) => run::run(&arguments),
            Command::Plan(arguments) => plan::run(&arguments),
            Command::Snapshot(arguments) => snapshot::run(&arguments),
            Command::Scheduler(arguments) => scheduler::run(&arguments),
            Command::Explain(arguments) => explain::run(&arguments),
            Command::Adopt(arguments) => adopt::run(&arguments),
            Command::Cleanup(arguments) => cleanup::run(&arguments),
            Command::Completions(arguments) => completions::run(&arguments),
            Command::Manifests(arguments) => manifests::run(&arguments),
            Command::Version(arguments) => version::run(&arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_definition_is_valid() {
        Arguments::command().debug_assert();
    }
}
