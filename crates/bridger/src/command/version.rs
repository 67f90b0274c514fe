//! `bridger version`.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::say::{Format, say};

/// Print the version, and the commit that it was built from
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Set by `cargo xtask image`; other builds do not ask git, because each commit would then rebuild the program.
const REVISION: Option<&str> = option_env!("BRIDGER_REVISION");

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    say(&match arguments.output {
        Format::Table => format!("bridger {VERSION} (commit {})", REVISION.unwrap_or("unknown")),
        Format::Json => serde_json::json!({ "version": VERSION, "commit": REVISION }).to_string(),
    });
    Ok(ExitCode::SUCCESS)
}
