//! Asking before something is done that can't be undone by calling again.

use std::io::{BufRead, IsTerminal, Write};

use crate::failure::Failure;

/// Asks on the terminal; without one, `--yes` must have been given.
pub fn confirm(question: &str, yes: bool) -> Result<bool, Failure> {
    if yes {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::configuration(
            "this is not a terminal, so nobody can be asked",
            "look at what is shown above, then call again with --yes",
        ));
    }
    let mut out = std::io::stdout().lock();
    let _ = write!(out, "{question} [y/N] ");
    let _ = out.flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| Failure::run(error.to_string()))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
