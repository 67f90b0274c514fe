//! Runs `cargo xtask` as a user does when something is missing or was interrupted.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn xtask(cache: &Path, path: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.env("BRIDGER_PEERS", cache).env("PATH", path).stdin(Stdio::null());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn without_go_a_test_run_fails_and_reports_that_go_is_missing() {
    let cache = tempfile::tempdir().unwrap();
    let nothing = tempfile::tempdir().unwrap();
    for arguments in [&["test"][..], &["test", "--tier", "peers"], &["test", "--tier", "e2e"], &["peers"]] {
        let output = xtask(cache.path(), &nothing.path().display().to_string()).args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        let message = stderr(&output);
        assert!(message.contains("Go is not installed") && message.contains("Install Go 1."), "{message}");
    }
}

#[test]
fn an_old_go_is_reported_with_the_required_version() {
    let cache = tempfile::tempdir().unwrap();
    let programs = tempfile::tempdir().unwrap();
    let go = programs.path().join("go");
    std::fs::write(&go, "#!/bin/sh\necho go version go1.19.8 linux/amd64\n").unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&go, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:/bin:/usr/bin", programs.path().display());
    let output = xtask(cache.path(), &path).arg("peers").output().unwrap();
    assert!(!output.status.success());
    let message = stderr(&output);
    assert!(message.contains("Go 1.19.8 is too old") && message.contains("Install Go 1."), "{message}");
}

#[test]
fn a_killed_build_leaves_no_finished_folder() {
    let cache = tempfile::tempdir().unwrap();
    // A `go` that sleeps simulates a long build.
    let programs = tempfile::tempdir().unwrap();
    let go = programs.path().join("go");
    std::fs::write(
        &go,
        "#!/bin/sh\ncase \"$1\" in version) echo go version go1.99.0 linux/amd64 ;; *) exec sleep 20 ;; esac\n",
    )
    .unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&go, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:/bin:/usr/bin", programs.path().display());
    let mut build = xtask(cache.path(), &path).arg("peers").stdout(Stdio::null()).spawn().unwrap();
    let partials = || {
        std::fs::read_dir(cache.path())
            .map(|entries| {
                entries.flatten().filter(|entry| entry.path().extension().is_some_and(|end| end == "partial")).count()
            })
            .unwrap_or(0)
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while partials() == 0 {
        assert!(Instant::now() < deadline, "the build did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    build.kill().unwrap();
    build.wait().unwrap();
    for recipe in peers::RECIPES {
        assert!(!peers::Cache::at(cache.path().to_owned()).has(recipe).unwrap());
    }
}

#[test]
fn help_describes_every_command() {
    for (arguments, expected) in [
        (&["--help"][..], "peers"),
        (&["test", "--help"], "--full"),
        (&["test", "--help"], "kube-scheduler"),
        (&["peers", "--help"], "--e2e"),
        (&["peers", "--help"], "BRIDGER_PEERS"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(arguments).output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains(expected), "{arguments:?}");
    }
}
