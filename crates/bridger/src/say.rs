//! Lines for people, on standard output.

use std::io::Write;

/// Prints a line. When nobody reads any more there is nothing left to say.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
