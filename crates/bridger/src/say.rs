//! Output for the user, on standard output.

use std::io::Write;

/// How a command prints its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    Json,
}

/// Prints a line. Errors are ignored: if the pipe is closed, no one reads the output.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
