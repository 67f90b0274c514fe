//! Configuration files with every key that there is: they are taken, and what is in no golden file is refused by name.
//!
//! What the keys of rules and profiles do shows in `golden_snapshot.rs`.

#[path = "../../../tests/golden/golden.rs"]
mod golden;

use std::path::Path;
use std::process::Command;

/// The exit code and what it says, with the golden files around it.
fn bridger(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bridger"));
    for name in ["KUBECONFIG", "GOVC_URL", "GOVC_USERNAME", "GOVC_PASSWORD", "GOVC_INSECURE", "GOVC_TLS_CA_CERTS"] {
        command.env_remove(name);
    }
    let output = command.args(arguments).current_dir(golden::path("configuration")).output().expect("bridger runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn changed(folder: &Path, file: &str, from: &str, to: &str) -> String {
    let text = golden::read(&format!("configuration/{file}"));
    assert!(text.contains(from), "{from:?} is not in {file}");
    let path = folder.join(file);
    std::fs::write(&path, text.replacen(from, to, 1)).expect("written");
    path.display().to_string()
}

/// Nobody listens at its addresses: that, and nothing else, is wrong.
#[test]
fn every_key_of_run_is_taken() {
    let (code, message) = bridger(&["run", "--config", "bridger.yaml"]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("127.0.0.1") && !message.contains("bridger.yaml"), "{message}");
}

#[test]
fn an_unknown_key_is_refused_by_name() {
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

/// Keys are read, not passed over: none takes a value of another kind.
#[test]
fn no_key_takes_anything() {
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
