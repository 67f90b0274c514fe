//! `bridger completions`.

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::failure::Failure;

/// Print a completion script for your shell
///
/// For bash: bridger completions bash > ~/.local/share/bash-completion/completions/bridger
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Shell to print the script for
    shell: Shell,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::Arguments::command(), "bridger", &mut script);
    // A closed pipe (`| head`) is not an error.
    let _ = std::io::stdout().write_all(&script);
    Ok(ExitCode::SUCCESS)
}
