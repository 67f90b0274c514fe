//! `plan`, `snapshot`, `adopt` and `cleanup` on the command line: output without a server, and exit codes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn bridger(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bridger"));
    for name in ["KUBECONFIG", "GOVC_URL", "GOVC_USERNAME", "GOVC_PASSWORD", "GOVC_INSECURE"] {
        command.env_remove(name);
    }
    command.args(arguments).output().expect("cannot run bridger")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Pods `web-0`, `web-1` and so on with required anti-affinity, each on its own node, in a cluster of three hosts.
fn world(pods: usize, own_rules: &[&str]) -> Value {
    let uuid = |number: usize| format!("10000000-0000-0000-0000-{number:012}");
    let term = json!({ "topologyKey": "kubernetes.io/hostname", "selector": { "labels": { "app": "web" } } });
    let pod = |number: usize| {
        json!({
            "namespace": "shop", "name": format!("web-{number}"), "uid": uuid(100 + number), "labels": { "app": "web" },
            "node": format!("node-{number}"), "antiAffinity": [term],
        })
    };
    let node = |number: usize| json!({ "name": format!("node-{number}"), "systemUuid": uuid(number), "ready": true });
    let vm = |number: usize| {
        json!({
            "id": format!("vm-{number}"), "name": format!("machine-{number}"), "host": format!("host-{}", number % 3),
            "biosUuid": uuid(number), "poweredOn": true,
        })
    };
    let host = |number: usize| json!({ "id": format!("host-{number}"), "name": format!("esx-{number}"), "cluster": "domain-c8" });
    let rule = |(number, name): (usize, &&str)| {
        json!({
            "key": number, "uuid": uuid(200 + number), "name": name, "enabled": true, "mandatory": false,
            "userCreated": true, "kind": { "vmsApart": ["vm-0", "vm-1"] },
        })
    };
    let rules: Vec<Value> = own_rules.iter().enumerate().map(rule).collect();
    json!({
        "kind": "BridgerSnapshot", "version": 1, "taken": "2026-01-01T00:00:00Z",
        "vcenters": [{
            "instanceUuid": "vc", "clusters": [{ "id": "domain-c8", "name": "prod", "drsEnabled": true, "rules": rules }],
            "hosts": (0..3).map(host).collect::<Vec<_>>(), "vms": (0..pods).map(vm).collect::<Vec<_>>(),
        }],
        "namespaces": [{ "name": "kube-system", "uid": "the-uid" }, { "name": "shop", "uid": "shop" }],
        "nodes": (0..pods).map(node).collect::<Vec<_>>(), "pods": (0..pods).map(pod).collect::<Vec<_>>(), "record": {},
    })
}

fn write(folder: &Path, name: &str, content: &str) -> PathBuf {
    let file = folder.join(name);
    std::fs::write(&file, content).expect("written");
    file
}

fn plan(world: &Value, flags: &[&str]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "world.json", &world.to_string()).display().to_string();
    bridger(&[&["plan", "--snapshot", &file], flags].concat())
}

#[test]
fn a_plan_from_a_file_shows_the_changes_and_sets_the_exit_code() {
    for (pods, code, last) in [(2, 3, "1 to create, 0 to edit, 0 to delete.\n"), (1, 0, "Nothing to do.\n")] {
        let output = plan(&world(pods, &[]), &[]);
        let shown = text(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{shown}{}", text(&output.stderr));
        assert!(shown.ends_with(last), "{shown}");
    }
    let output = plan(&world(2, &[]), &["-o", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!((&document["version"], &document["create"], &document["inTheWay"]), (&json!(1), &json!(1), &json!([])));
    let action = &document["clusters"][0]["actions"][0];
    assert!(action["rule"].as_str().is_some_and(|name| name.starts_with("bridger-the-uid-")), "{action:#}");
    assert_eq!(action["pods"][1]["name"], "web-1");
}

#[test]
fn a_plan_follows_the_policy_flags_and_shows_the_figures() {
    // Three replicas on three hosts: with the default reserve of one host, a rule can have only two members.
    let output = plan(&world(3, &[]), &[]);
    let shown = text(&output.stdout);
    assert!(shown.contains("unsatisfiable: 3 VMs want to be apart, 3 hosts, reserve 1"), "{shown}");
    let shown = text(&plan(&world(3, &[]), &["--reserve", "0"]).stdout);
    assert!(shown.contains("machine-0, machine-1, machine-2") && !shown.contains("unsatisfiable"), "{shown}");
    let output = plan(&world(3, &[]), &["--lift", "none"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
}

#[test]
fn number_13_rules_without_a_record_are_reported_block_writing_and_are_no_success() {
    let output = plan(&world(2, &["bridger-the-uid-0123456789abcdef"]), &[]);
    assert_eq!(output.status.code(), Some(2));
    let shown = text(&output.stdout);
    assert!(shown.starts_with("Nothing is written in prod: the record of its 1 rules and groups is gone"), "{shown}");
    assert!(shown.contains("notRecorded: bridger-the-uid-0123456789abcdef"), "{shown}");
    // A rule of another Kubernetes cluster has a similar name and is ignored.
    let output = plan(&world(2, &["bridger-another-uid-0123456789abcdef"]), &[]);
    assert!(!text(&output.stdout).contains("is gone"), "{}", text(&output.stdout));
}

#[test]
fn a_file_that_is_not_a_snapshot_is_reported_with_exit_code_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("missing.json").display().to_string();
    let mut newer = world(1, &[]);
    newer["version"] = json!(99);
    let file = |name: &str, content: &str| write(folder.path(), name, content).display().to_string();
    for (path, expected) in [
        (missing, "cannot read"),
        (file("text", "not JSON at all"), "cannot parse"),
        (file("pod", "{\"kind\": \"Pod\"}"), "is not a snapshot"),
        (file("later", &newer.to_string()), "has version 99, this bridger reads version 1"),
    ] {
        let output = bridger(&["plan", "--snapshot", &path]);
        assert_eq!(output.status.code(), Some(2), "{expected}");
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}

#[test]
fn invalid_values_and_missing_credentials_exit_with_2_and_a_hint() {
    for (arguments, expected) in [
        (&["plan", "--removal-grace", "soon"][..], "like 90s or 5m"),
        (&["plan", "--reserve", "few"], "--reserve"),
        (&["plan", "--pinning", "always"], "should"),
        (&["plan", "-o", "xml"], "table"),
        (&["cleanup", "--yes", "--dry-run"], "--dry-run"),
        (&["snapshot"], "FILE"),
        (&["plan", "--kubeconfig", "/nonexistent/kubeconfig"], "/nonexistent/kubeconfig"),
        (&["adopt", "--url", "https://u:hunter2@vc"], "GOVC_PASSWORD"),
    ] {
        let output = bridger(arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected) && !message.contains("hunter2"), "{arguments:?}: {message}");
    }
}
