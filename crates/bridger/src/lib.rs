//! Bridger as a library: the composition of all parts ([`compose`]), and the commands that use it.
//!
//! - [`compose`]: adapters, runtime and routes, wired once for `run`, `scheduler`, the demo and tests.
//!   [`in_process`]: the embedded servers as input for the composition, without sockets.
//! - [`scheduler`]: a scheduler of one's own, with further plugins.
//! - `service`: settings, startup checks, a one-time read of both sides, and the running service.
//!   `command`: one file per subcommand.
//! - `demo`, `embedded`: the demo, and the embedded servers on sockets. `snapshot`, `rbac`, `plan_view`: what commands
//!   read and print. [`files`]: the files that they read. `single_dash`: the old command line.
//!
//! This crate makes no decisions; the pure crates do.

mod command;
pub mod compose;
mod confirm;
mod demo;
mod embedded;
mod failure;
pub mod files;
pub mod in_process;
pub mod install;
mod logging;
mod plan_view;
mod rbac;
mod say;
pub mod scheduler;
pub mod service;
mod signals;
mod single_dash;
mod snapshot;

use std::process::ExitCode;

use clap::Parser;

pub use failure::Failure;

/// The `bridger` command.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match command::Arguments::try_parse_from(single_dash::rewritten(std::env::args_os())) {
        Ok(arguments) => arguments,
        Err(error) => return failure::usage(&error),
    };
    if let Err(failure) = logging::start(&arguments.logging, arguments.command.has_own_output()) {
        return failure.report();
    }
    match arguments.command.run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
