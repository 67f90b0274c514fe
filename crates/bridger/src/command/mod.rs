//! The commands. Each file has the arguments of one command and what it does with them.

mod adopt;
mod cleanup;
mod completions;
mod demo;
mod explain;
mod manifests;
mod plan;
mod run;
mod sandbox;
mod scheduler;
mod snapshot;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;
use crate::logging;

pub use sandbox::PortArguments;

/// Makes two schedulers agree: Kubernetes places pods on nodes, vSphere DRS moves those nodes between physical hosts.
///
/// Bridger tells Kubernetes where its nodes really run, tells DRS what the pods forbid, and so keeps replicas that must
/// be apart on different physical hosts: after vMotion, maintenance and host failure too.
#[derive(Debug, Parser)]
#[command(name = "bridger", version, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = "New here? `bridger demo` shows it all on this machine; no Kubernetes and no vSphere needed.")]
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
}

impl Command {
    /// What happens is shown by the command itself, and log lines would only disturb.
    pub fn tells_by_itself(&self) -> bool {
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
