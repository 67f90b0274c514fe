//! Confirmation before an action that running the command again cannot undo.

use std::io::{BufRead, IsTerminal, Write};

use crate::failure::Failure;

/// Asks on the terminal. Without a terminal, `--yes` is required.
pub fn confirm(question: &str, yes: bool) -> Result<bool, Failure> {
    if yes {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::configuration(
            "cannot ask for confirmation: standard input is not a terminal",
            "check the output above, then run the command again with --yes",
        ));
    }
    let mut out = std::io::stdout().lock();
    let _ = write!(out, "{question} [y/N] ");
    let _ = out.flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| Failure::run(error.to_string()))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
