//! A snapshot of version 1 with every kind of object and every field: the output of `plan` and `explain` for it.
//!
//! These tests use only the command line. The names of rules and groups have their own golden file, because they exist
//! in vCenters.

#[path = "../../../tests/golden/golden.rs"]
mod golden;

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

fn bridger(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bridger"));
    for name in ["KUBECONFIG", "GOVC_URL", "GOVC_USERNAME", "GOVC_PASSWORD", "GOVC_INSECURE", "GOVC_TLS_CA_CERTS"] {
        command.env_remove(name);
    }
    // Paths in the configuration are relative to its folder.
    command.args(arguments).current_dir(golden::path("configuration")).output().expect("cannot run bridger")
}

const SNAPSHOT: &str = "../snapshot/world.json";

fn on_snapshot(command: &[&str], flags: &[&str], code: i32) -> String {
    let arguments = [command, &["--snapshot", SNAPSHOT], flags].concat();
    let output = bridger(&arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    assert_eq!(message, "", "{arguments:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_plan_is_unchanged() {
    golden::assert_same("snapshot/plan.txt", &on_snapshot(&["plan"], &[], 3));
    golden::assert_same("snapshot/plan.json", &on_snapshot(&["plan", "-o", "json"], &[], 3));
}

#[test]
fn the_plan_with_every_configuration_key_is_unchanged() {
    let flags = ["--config", "bridger.yaml"];
    golden::assert_same("snapshot/plan-configured.txt", &on_snapshot(&["plan"], &flags, 3));
}

/// The rules and groups in a plan, with their actions.
fn names(plan: &Value) -> BTreeSet<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut names = BTreeSet::new();
    for cluster in plan["clusters"].as_array().expect("clusters") {
        for action in cluster["actions"].as_array().expect("actions") {
            let location = format!("{} {}", cluster["cluster"]["vcenter"], text(&cluster["clusterName"]));
            let (kind, rule) = (text(&action["kind"]["action"]), text(&action["rule"]));
            names.insert(format!("{location} {} {kind} {rule}", text(&action["sort"])));
            for group in action["groups"].as_array().expect("groups") {
                let (kind, group) = group.as_object().and_then(|all| all.iter().next()).expect("a group");
                names.insert(format!("{location} group {kind} {}", text(&group["name"])));
            }
        }
    }
    names
}

#[test]
fn names_of_rules_and_groups_are_unchanged() {
    let mut now = String::new();
    for flags in [&[][..], &["--reserve", "0", "--pinning", "must"], &["--lift", "none"]] {
        let plan = serde_json::from_str(&on_snapshot(&["plan", "-o", "json"], flags, 3)).expect("JSON");
        let names: Vec<String> = names(&plan).into_iter().collect();
        assert!(!names.is_empty(), "{flags:?}");
        now.push_str(&format!("plan {}\n  {}\n", flags.join(" "), names.join("\n  ")));
    }
    golden::assert_same("rule-names.txt", &now);
}

/// One field per line, so that a difference is easy to locate.
fn pretty(json: &str) -> String {
    let value: Value = serde_json::from_str(json).expect("JSON");
    format!("{value:#}\n")
}

#[test]
fn explanations_are_unchanged() {
    let explain = |file: &str, pod: &str, flags: &[&str], code: i32| {
        let json = on_snapshot(&["explain", pod, "-o", "json"], flags, code);
        golden::assert_same(&format!("snapshot/explain-{file}.json"), &pretty(&json));
    };
    explain("web-3", "shop/web-3", &[], 0);
    explain("agent-7", "many/agent-7", &[], 3);
    explain("agent-7-relaxed", "many/agent-7", &["--lift-mode", "relaxed"], 0);
    explain("web-0-unbound", "shop/web-0", &["--unbound"], 0);
    explain("gpu-0", "shop/gpu-0", &[], 0);
    explain("gated-0", "shop/gated-0", &[], 3);
    explain("chooser", "probe/chooser", &[], 0);
    explain("set-3", "probe/set-3", &[], 0);
    explain("sts-2", "probe/sts-2", &[], 0);
    // With the profile that the pod names.
    explain("wide-configured", "probe/wide", &["--config", "scheduler.yaml"], 0);
    explain("chooser-configured", "probe/chooser", &["--config", "scheduler.yaml"], 0);
    explain("gpu-0-configured", "shop/gpu-0", &["--config", "scheduler.yaml"], 0);
    let other = ["--config", "scheduler.yaml", "--scheduler-name", "as-upstream"];
    explain("web-3-as-upstream", "shop/web-3", &other, 0);
    let table = on_snapshot(&["explain", "shop/web-3"], &[], 0);
    golden::assert_same("snapshot/explain-web-3.txt", &table);
}
