//! Help, errors and exit codes of the command line.

use std::process::{Command, Output};

fn bridger(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bridger")).args(arguments).output().expect("cannot run bridger")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_describes_the_program_and_the_first_command() {
    let output = bridger(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for expected in ["two schedulers", "sandbox", "completions", "bridger demo"] {
        assert!(help.contains(expected), "{expected:?} is missing:\n{help}");
    }
}

#[test]
fn an_unknown_command_exits_with_2_and_lists_the_commands() {
    for (word, suggestion) in [("nonsense", "the commands are"), ("sandbx", "sandbox")] {
        let output = bridger(&[word]);
        assert_eq!(output.status.code(), Some(2), "{word}");
        let message = text(&output.stderr);
        assert!(message.contains(suggestion), "{message}");
    }
}

#[test]
fn an_invalid_value_exits_with_2() {
    for arguments in [
        &["sandbox", "--hosts", "0"][..],
        &["sandbox", "--speed", "fast"],
        &["sandbox", "--hosts", "2", "--clusters", "3"],
        &["sandbox", "--extender", "ftp://somewhere"],
        &["--log-format", "xml", "sandbox"],
    ] {
        let output = bridger(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).starts_with("error: "), "{arguments:?}");
    }
}

#[test]
fn version_prints_the_program_name() {
    let output = bridger(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).starts_with("bridger "), "{}", text(&output.stdout));
}

#[test]
fn the_version_command_names_version_and_commit() {
    let output = bridger(&["version"]);
    assert_eq!(output.status.code(), Some(0));
    let line = text(&output.stdout);
    assert!(line.starts_with(concat!("bridger ", env!("CARGO_PKG_VERSION"), " (commit ")), "{line}");
    let json: serde_json::Value = serde_json::from_slice(&bridger(&["version", "-o", "json"]).stdout).expect("JSON");
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json.as_object().is_some_and(|members| members.contains_key("commit")), "{json}");
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = bridger(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("bridger"), "{shell}");
    }
}

#[test]
fn a_port_in_use_is_reported_with_the_flag_that_changes_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let output = bridger(&["sandbox", "--kubernetes-port", "0", "--vcenter-port", &port]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains(&format!("port {port} is in use")) && message.contains("--vcenter-port"), "{message}");
}

#[test]
fn extender_and_scheduling_of_one_process_must_not_serve_the_same_pods() {
    let parts = ["run", "--kubeconfig", "/nowhere", "--extender-port", "0", "--scheduling", "on"];
    let output = bridger(&[&parts[..], &["--extender-scheduler-name", "bridger"]].concat());
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("schedulerName bridger") && message.contains("--extender-scheduler-name"), "{message}");
}
