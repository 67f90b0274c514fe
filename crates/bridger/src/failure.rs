//! Error messages of commands: one line says what is wrong, one says what to do.
//!
//! Exit codes: 2 for wrong usage or configuration, 1 for a failed run.

use std::fmt;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Error};

use crate::command::Arguments;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    what: String,
    hint: Option<String>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Wrong usage or configuration: the user can fix it with other arguments.
    Configuration,
    Run,
}

impl Failure {
    pub fn configuration(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { what: what.into(), hint: Some(hint.into()), kind: Kind::Configuration }
    }

    pub fn run(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), hint: None, kind: Kind::Run }
    }

    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Failure {
        Failure { hint: Some(hint.into()), ..self }
    }

    #[allow(clippy::print_stderr)]
    pub fn report(&self) -> ExitCode {
        eprintln!("{self}");
        ExitCode::from(match self.kind {
            Kind::Configuration => 2,
            Kind::Run => 1,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::run(format!("{error:#}"))
    }
}

/// Prints help or version, or reports a command line that cannot be parsed.
#[allow(clippy::print_stderr)]
pub fn usage(error: &Error) -> ExitCode {
    // Help and version go to standard output, errors to standard error. A closed pipe is not an error.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        ErrorKind::InvalidSubcommand => {
            let names: Vec<String> =
                Arguments::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
            eprintln!("hint: the commands are {}; start with `bridger demo`", names.join(", "));
            ExitCode::from(2)
        }
        _ => ExitCode::from(2),
    }
}
