//! Runs measurements in separate programs and reads their results.
//!
//! In: an example of the build to measure. Out: the JSON that it printed last. Its progress goes to standard error.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// An example of the build to measure. It uses the `bridger` of the same build.
pub fn example(built: &Path, name: &str) -> Command {
    let mut command = Command::new(built.join("examples").join(name));
    command.env("BRIDGER_BIN", built.join("bridger"));
    command
}

/// Runs it until it exits. Its result is its last line.
pub fn measure(command: &mut Command) -> Result<Value> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("running the measurement")?;
    if !output.status.success() {
        bail!("the measurement failed ({})", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap_or_default()).context("its result")
}

/// The figure at this JSON pointer.
pub fn figure(measured: &Value, path: &str) -> Result<f64> {
    measured.pointer(path).and_then(Value::as_f64).with_context(|| format!("{path} in {measured}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shell(script: &str) -> Result<Value> {
        measure(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn the_last_line_is_the_result() {
        assert_eq!(shell("echo words; echo '{\"a\": 1}'").ok(), Some(json!({ "a": 1 })));
        assert!(shell("echo words").is_err());
        assert!(shell("true").is_err());
        assert!(shell("echo 1; exit 1").is_err());
    }

    #[test]
    fn the_error_names_a_missing_figure() {
        let measured = json!({ "a": { "b": 2.5 }, "c": "text" });
        assert_eq!(figure(&measured, "/a/b").ok(), Some(2.5));
        for path in ["/a", "/c", "/d"] {
            let error = figure(&measured, path).expect_err(path).to_string();
            assert!(error.starts_with(path), "{error}");
        }
    }
}
