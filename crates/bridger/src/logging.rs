//! Logs on standard error, as text or JSON.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Debug, clap::Args)]
pub struct LogArguments {
    /// Log more: -v for debug messages, -vv for all messages. RUST_LOG overrides this if it is set
    #[arg(short, long, action = clap::ArgAction::Count, global = true, help_heading = "Logging")]
    verbose: u8,
    /// Format of log lines
    #[arg(long, value_enum, default_value_t, global = true, value_name = "FORMAT", help_heading = "Logging")]
    log_format: LogFormat,
}

const OURS: &[&str] = &["bridger", "engine", "kubernetes", "server", "simulator", "vsphere"];
/// kube logs the whole body of a list that it cannot decode. Bridger gets the error anyway.
const QUIET: &str = "kube_client=error";

fn ours(level: &str) -> String {
    OURS.iter().map(|name| format!("{name}={level}")).collect::<Vec<_>>().join(",")
}

/// `is_quiet`: without `-v` only errors are logged, because the command prints its own output.
pub fn start(arguments: &LogArguments, is_quiet: bool) -> Result<(), Failure> {
    let level = match arguments.verbose {
        0 if is_quiet => "error".to_owned(),
        0 => format!("warn,{},{QUIET}", ours("info")),
        1 => format!("info,{},{QUIET}", ours("debug")),
        // Without kube's own warnings even here: they may contain whole responses.
        _ => format!("trace,{QUIET}"),
    };
    let filter = match std::env::var("RUST_LOG") {
        Ok(value) if !value.is_empty() => EnvFilter::try_new(&value).map_err(|error| {
            Failure::configuration(
                format!("RUST_LOG={value:?} is not a valid log filter: {error}"),
                "use for example RUST_LOG=info or RUST_LOG=bridger=debug",
            )
        })?,
        _ => EnvFilter::new(level),
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    match arguments.log_format {
        LogFormat::Text => {
            let colour = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            lines.with_ansi(colour).with_target(false).init();
        }
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
    Ok(())
}
