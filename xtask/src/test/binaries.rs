//! The test binaries of the whole workspace, built once for all tiers.
//!
//! Building per tier would select different packages each time, and with them different features of shared
//! dependencies, so dependencies would be compiled several times.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::shown::{SHOW_OUTPUT, Shown};
use super::tier::Settings;
use super::{Tally, count};
use crate::workspace;

/// One test executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestBinary {
    pub package: String,
    pub target: String,
    executable: PathBuf,
    /// The package's folder, in which cargo would run it.
    folder: PathBuf,
}

/// Builds all test binaries, and the binaries that some of them start.
pub fn build() -> Result<Vec<TestBinary>> {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("running cargo test --no-run")?;
    let mut binaries = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let message: Value = serde_json::from_str(&line.context("reading cargo's messages")?)?;
            binaries.extend(test_binary(&message));
        }
    }
    let status = child.wait().context("waiting for cargo")?;
    if !status.success() {
        bail!("the tests do not compile ({status}), see above");
    }
    binaries.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(binaries)
}

fn test_binary(message: &Value) -> Option<TestBinary> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let manifest = PathBuf::from(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?.to_owned();
    Some(TestBinary {
        // In this workspace, a folder has the name of its crate.
        package: folder.file_name()?.to_string_lossy().into_owned(),
        target: message["target"]["name"].as_str()?.to_owned(),
        executable: PathBuf::from(message["executable"].as_str()?),
        folder,
    })
}

impl TestBinary {
    /// Runs it, prints its output as it arrives, including the output of passed tests, and counts the results.
    pub fn run(&self, settings: &Settings, threads: Option<usize>) -> Result<Tally> {
        println!("\n-- {} {}", self.package, self.target);
        let mut command = Command::new(&self.executable);
        command.args(settings.only.as_deref()).arg(SHOW_OUTPUT).current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        command.env("BRIDGER_TEST_COUNTS", if settings.full { "full" } else { "quick" });
        let seed = settings.seed.to_string();
        command.env("BRIDGER_SEED", &seed).env("PROPTEST_RNG_SEED", &seed);
        command.envs(threads.map(|threads| ("RUST_TEST_THREADS", threads.to_string())));
        // If inherited from the user's environment, it would restrict every run to one world.
        command.env_remove("BRIDGER_WORLD").envs(settings.world.map(|world| ("BRIDGER_WORLD", world.to_string())));
        command.envs(settings.e2e.environment());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("running {}", self.executable.display()))?;
        let (mut output, mut shown) = (String::new(), Shown::default());
        if let Some(stdout) = child.stdout.take() {
            for line in BufReader::new(stdout).split(b'\n') {
                // Tests may print anything; invalid UTF-8 is replaced.
                let line = String::from_utf8_lossy(&line.context("reading its output")?).into_owned();
                if shown.takes(&line) {
                    println!("{line}");
                }
                output.push_str(&line);
                output.push('\n');
            }
        }
        let status = child.wait().context("waiting for it")?;
        let mut tally = count::cargo_test(&output);
        if !status.success() && tally.failed == 0 {
            // It crashed without a result line to count.
            println!("{} {} exited with {status}", self.package, self.target);
            tally.failed = 1;
        }
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_test_executables_count() {
        let artifact = |test: bool, executable: Value| {
            json!({ "reason": "compiler-artifact", "profile": { "test": test }, "manifest_path": "/w/crates/model/Cargo.toml",
                "target": { "name": "memory" }, "executable": executable })
        };
        let binary = test_binary(&artifact(true, json!("/w/target/memory-1"))).unwrap();
        assert_eq!((binary.package.as_str(), binary.target.as_str()), ("model", "memory"));
        assert_eq!(test_binary(&artifact(false, json!("/w/target/model"))), None);
        assert_eq!(test_binary(&artifact(true, Value::Null)), None);
        assert_eq!(test_binary(&json!({ "reason": "build-finished" })), None);
    }
}
