//! The stable command line: commands, flags, their values and defaults, and the generated manifests.

#[path = "../../../tests/golden/golden.rs"]
mod golden;

use std::collections::BTreeSet;
use std::process::Command;

fn bridger(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_bridger")).args(arguments).output().expect("cannot run bridger");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Every text between `begin` and `end`.
fn between<'a>(text: &'a str, begin: &'a str, end: char) -> impl Iterator<Item = &'a str> {
    text.split(begin).skip(1).filter_map(move |rest| rest.split(end).next())
}

/// One line for each command, argument, flag, default and possible value in the help texts of a command and its
/// subcommands.
fn facts(command: &[&str], facts: &mut BTreeSet<String>) {
    let help = bridger(&[command, &["--help"]].concat());
    let name = ["bridger"].iter().chain(command).copied().collect::<Vec<_>>().join(" ");
    let mut section = "";
    // The current entry, as `name --flag <VALUE>`, and its description.
    let mut entry = String::new();
    let mut about = String::new();
    for line in help.lines().chain(["End:"]) {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let begins = match section {
            "Commands:" => indent == 2 && !text.is_empty(),
            "Arguments:" => indent == 2 && text.starts_with(['<', '[']),
            _ => (2..=6).contains(&indent) && text.starts_with('-') && !text.starts_with("- "),
        };
        if indent == 0 && line.ends_with(':') || begins {
            close(&entry, &about, facts);
            entry.clear();
            about.clear();
        }
        if indent == 0 && line.ends_with(':') {
            section = line;
        } else if begins && section == "Commands:" {
            let below = text.split_whitespace().next().unwrap_or_default();
            facts.insert(format!("{name} {below}"));
            self::facts(&[command, &[below]].concat(), facts);
        } else if begins {
            let (what, rest) = text.split_once("  ").unwrap_or((text, ""));
            entry = format!("{name} {what}");
            about.push_str(rest);
        } else if !entry.is_empty() {
            about.extend([" ", text]);
        }
    }
}

fn close(entry: &str, about: &str, facts: &mut BTreeSet<String>) {
    if entry.is_empty() {
        return;
    }
    facts.insert(entry.to_owned());
    facts.extend(between(about, "[default: ", ']').map(|value| format!("{entry} default {value}")));
    let values = between(about, "[possible values: ", ']').flat_map(|values| values.split(", "));
    facts.extend(values.map(|value| format!("{entry} value {value}")));
    // Values with descriptions are printed as a list.
    if let Some((_, list)) = about.split_once("Possible values:") {
        let values = list.split(" - ").skip(1).filter_map(|item| item.split([':', ' ']).next());
        facts.extend(values.map(|value| format!("{entry} value {value}")));
    }
}

#[test]
fn commands_and_flags_are_kept() {
    let mut now = BTreeSet::new();
    facts(&[], &mut now);
    golden::assert_keeps("flags.txt", &now);
}

#[test]
fn manifests_are_unchanged() {
    let all = "--url https://bridger.example/v1 --kubeconfig /k --scheduler-name by-bridger --ignorable --ca-file /ca.pem \
               --client-cert-file /c.pem --client-key-file /k.pem";
    for (file, arguments) in [
        ("rbac-run", "rbac --for run"),
        ("rbac-scheduler", "rbac --for scheduler"),
        ("rbac-explain", "rbac --for explain"),
        ("rbac-cleanup", "rbac --for cleanup"),
        ("rbac-elsewhere", "rbac --for run --name b --namespace one --record-namespace two"),
        ("scheduler-config", "scheduler-config"),
        ("scheduler-config-https", &format!("scheduler-config {all}")),
    ] {
        let arguments: Vec<&str> = ["manifests"].into_iter().chain(arguments.split_whitespace()).collect();
        golden::assert_same(&format!("manifests/{file}.yaml"), &bridger(&arguments));
    }
}
