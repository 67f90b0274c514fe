//! The `bridger` command: one file per subcommand in [`command`]; it wires things together and decides nothing.

mod command;
mod confirm;
mod demo;
mod embedded;
mod failure;
mod logging;
mod plan_view;
mod rbac;
mod say;
mod service;
mod signals;
mod snapshot;

use std::process::ExitCode;

use clap::Parser;

// The extender's and the scheduler's work is many small, short-lived allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match command::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::usage(&error),
    };
    if let Err(failure) = logging::start(&arguments.logging, arguments.command.tells_by_itself()) {
        return failure.report();
    }
    match arguments.command.run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
