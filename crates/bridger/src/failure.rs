//! What a person sees when something goes wrong: one line of what is wrong, one of what to do.
//!
//! Exit codes: 2 for wrong usage or configuration, 1 for a run that failed.

use std::fmt;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Error};

use crate::command::Arguments;

/// Why a command ended without success.
#[derive(Debug)]
pub struct Failure {
    what: String,
    hint: Option<String>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The user can mend it by calling again with other words.
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

/// Answers a command line that could not be read, or that asked for help.
#[allow(clippy::print_stderr)]
pub fn usage(error: &Error) -> ExitCode {
    // Help and version go to standard output, the rest to standard error; a closed pipe is nobody's fault.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        ErrorKind::InvalidSubcommand => {
            let names: Vec<String> =
                Arguments::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
            eprintln!("hint: the commands are {}; `bridger demo` is a good first one", names.join(", "));
            ExitCode::from(2)
        }
        _ => ExitCode::from(2),
    }
}
