//! Output for the user, on standard output.

use std::io::Write;

/// Prints a line. Errors are ignored: if the pipe is closed, no one reads the output.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
