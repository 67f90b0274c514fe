//! Configuration files with every key: they are accepted, and an unknown key is rejected by name.
//!
//! `golden_snapshot.rs` tests the effect of the keys for rules and profiles.

#[path = "../../../tests/golden/golden.rs"]
mod golden;

use std::path::Path;
use std::process::Command;

/// Runs bridger in the folder of the golden configuration; returns the exit code and the error message.
fn bridger(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bridger"));
    for name in ["KUBECONFIG", "GOVC_URL", "GOVC_USERNAME", "GOVC_PASSWORD", "GOVC_INSECURE", "GOVC_TLS_CA_CERTS"] {
        command.env_remove(name);
    }
    let output = command.args(arguments).current_dir(golden::path("configuration")).output().expect("run bridger");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn changed(folder: &Path, file: &str, from: &str, to: &str) -> String {
    let text = golden::read(&format!("configuration/{file}"));
    assert!(text.contains(from), "{from:?} is not in {file}");
    let path = folder.join(file);
    std::fs::write(&path, text.replacen(from, to, 1)).expect("written");
    path.display().to_string()
}

/// The run fails only because there is no such kubeconfig: a vCenter that does not answer does not end it.
#[test]
fn every_key_of_run_is_accepted() {
    let (code, message) = bridger(&["run", "--config", "bridger.yaml"]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("files/kubeconfig") && !message.contains("bridger.yaml"), "{message}");
}

#[test]
fn an_unknown_key_is_rejected_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = "../snapshot/world.json";
    for (file, from, to) in [
        ("bridger.yaml", "port:", "prot:"),
        ("bridger.yaml", "reserve:", "reserved:"),
        ("bridger.yaml", "insecure:", "unsafe:"),
        ("scheduler.yaml", "parallelism:", "parallel:"),
        ("scheduler.yaml", "pluginConfig:", "pluginConfigs:"),
        ("scheduler.yaml", "hardPodAffinityWeight:", "hardWeight:"),
    ] {
        let path = changed(folder.path(), file, from, to);
        let arguments = match file {
            "bridger.yaml" => vec!["run", "--config", &path],
            _ => vec!["explain", "shop/web-3", "--snapshot", world, "--config", &path],
        };
        let (code, message) = bridger(&arguments);
        let key = to.trim_end_matches(':');
        assert!(code == Some(2) && message.contains(file) && message.contains(key), "{key}: {code:?} {message}");
    }
}

/// Every key is read, not ignored: it rejects a value of a wrong type.
#[test]
fn every_key_rejects_a_value_of_a_wrong_type() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = golden::read("configuration/bridger.yaml");
    let entries = text.lines().filter(|line| !line.starts_with('#') && !line.ends_with(':'));
    let mut count = 0;
    for line in entries {
        let (key, _) = line.split_once(": ").expect("a key and a value");
        let path = changed(folder.path(), "bridger.yaml", line, &format!("{key}: {{wrong: 1}}"));
        let (code, message) = bridger(&["run", "--config", &path]);
        assert!(code == Some(2) && message.contains("bridger.yaml"), "{line}: {code:?} {message}");
        count += 1;
    }
    assert!(count > 30, "{count}");
}

/// `on` is a YAML 1.1 boolean, so tools that write YAML write `true`.
#[test]
fn number_6_a_switch_takes_every_spelling_of_a_boolean() {
    let folder = tempfile::tempdir().expect("a folder");
    let with = |from: &str, to: &str| {
        let path = changed(folder.path(), "bridger.yaml", from, to);
        // What the file names is beside the golden one.
        let text = std::fs::read_to_string(&path).expect("readable");
        let files = golden::path("configuration/files").display().to_string();
        std::fs::write(&path, text.replace("files/", &format!("{files}/"))).expect("written");
        bridger(&["run", "--config", &path])
    };
    for value in ["on", "off", "true", "false", "yes", "no", "\"on\"", "'off'", "True", "OFF"] {
        for (key, golden) in [("labels", "\"on\""), ("rules", "\"off\""), ("extender", "\"on\""), ("dryRun", "true")] {
            let (code, message) = with(&format!("{key}: {golden}\n"), &format!("{key}: {value}\n"));
            assert!(code == Some(2) && message.contains("files/kubeconfig"), "{key}: {value}: {message}");
        }
        let (code, message) = with("port: 9443\n", &format!("port: 9443\nscheduling: {value}\n"));
        assert!(code == Some(2) && message.contains("files/kubeconfig"), "scheduling: {value}: {message}");
    }
    for value in ["off", "false", "no"] {
        let (_, message) = with("pinning: must\n", &format!("pinning: {value}\n"));
        assert!(message.contains("files/kubeconfig"), "pinning: {value}: {message}");
    }
    for (from, to) in [("labels: \"on\"", "labels: maybe"), ("pinning: must", "pinning: true")] {
        let (code, message) = with(from, to);
        assert!(code == Some(2) && message.contains("line "), "{to}: {message}");
    }
}

#[test]
fn number_6_label_keys_are_checked_and_named() {
    let folder = tempfile::tempdir().expect("a folder");
    for (from, to, expected) in [
        ("hostLabel: example.org/host", "hostLabel: Example.org/host", "hostLabel in the configuration file"),
        ("clusterLabel: example.org/cluster", "clusterLabel: ''", "clusterLabel in the configuration file"),
        (
            "datacenterLabel: example.org/datacenter",
            "datacenterLabel: a b",
            "datacenterLabel in the configuration file",
        ),
        ("lift: [", "lift: ['', ", "lift in the configuration file"),
        ("lift: [", "lift: [none, ", "lift in the configuration file"),
    ] {
        let path = changed(folder.path(), "bridger.yaml", from, to);
        let (code, message) = bridger(&["run", "--config", &path]);
        assert!(code == Some(2) && message.contains(expected), "{to}: {message}");
    }
    for (flag, value) in [
        ("--lift", ""),
        ("--lift", "two words"),
        ("--host-label", ""),
        ("--cluster-label", "a/b/c"),
        ("--datacenter-label", "/name"),
    ] {
        let (code, message) = bridger(&["run", flag, value]);
        let expected = format!("{flag}: {value:?} is not a label key");
        assert!(code == Some(2) && message.contains(&expected), "{flag} {value:?}: {message}");
    }
    // Of every command that lifts.
    for command in [&["run"][..], &["scheduler"], &["plan"], &["explain", "shop/web-3"]] {
        let (code, message) = bridger(&[command, &["--lift", ""]].concat());
        assert!(code == Some(2) && message.contains("--lift: \"\" is not a label key"), "{command:?}: {message}");
        // It may be a label key: only the nodes show whether one has it.
        let (_, message) = bridger(&[command, &["--lift", "nonsense"]].concat());
        assert!(!message.contains("label key"), "{command:?}: {message}");
    }
    let (code, message) = bridger(&["run", "--lift", "none", "--lift", "a"]);
    assert!(code == Some(2) && message.contains("--lift: none cannot be combined"), "{message}");
}

#[test]
fn number_10_a_configuration_file_that_is_too_large_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bridger.yaml");
    let comment = vec![b'#'; (4 << 20) + 1];
    std::fs::write(&path, comment).expect("written");
    let path = path.display().to_string();
    for command in [&["run"][..], &["scheduler"], &["explain", "shop/web-3"]] {
        let (code, message) = bridger(&[command, &["--config", &path]].concat());
        assert!(code == Some(2) && message.contains("is too large: the limit is"), "{command:?}: {message}");
    }
}
