//! `custom-scheduler`: see docs/write-a-plugin.md.

use std::process::ExitCode;

fn main() -> ExitCode {
    bridger::scheduler::main(custom_scheduler::registry())
}
