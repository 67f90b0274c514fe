//! Checks that Go is installed and recent enough.

use std::process::Command;

use crate::PeersError;

/// Checks that the `go` on the PATH is at least version `needed` (for example `1.26.0`).
pub fn check_go(needed: &str) -> Result<(), PeersError> {
    let output = Command::new("go").arg("version").env("GOTOOLCHAIN", "local").output().map_err(|error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            PeersError::GoMissing { needed: short(needed) }
        } else {
            PeersError::Io { what: "running `go version`".to_owned(), source: error }
        }
    })?;
    let answer = String::from_utf8_lossy(&output.stdout);
    let found = answer
        .split_whitespace()
        .find_map(|word| word.strip_prefix("go1.").map(|rest| format!("1.{rest}")))
        .ok_or_else(|| PeersError::GoUnknown(answer.trim().to_owned()))?;
    if numbers(&found) < numbers(needed) {
        return Err(PeersError::GoTooOld { found, needed: short(needed) });
    }
    Ok(())
}

fn numbers(version: &str) -> Vec<u32> {
    // `1.26rc1` counts as 1.26: in each part, everything after the digits is ignored.
    version
        .split('.')
        .map(|part| part.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0))
        .collect()
}

fn short(version: &str) -> String {
    version.strip_suffix(".0").unwrap_or(version).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(numbers("1.9.1") < numbers("1.26.0"));
        assert!(numbers("1.26.8") >= numbers("1.26.0"));
        assert!(numbers("1.26rc1") < numbers("1.26.1"));
        assert_eq!(short("1.26.0"), "1.26");
    }
}
