//! The SBOM: every crate that is compiled into the program, as CycloneDX 1.6.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::VERSION;
use crate::workspace;

/// One line of `cargo tree` per crate: name, version, licence.
const FORMAT: &str = "{p}|{l}";

pub fn of_program() -> Result<String> {
    let mut command = workspace::cargo();
    command.args(["tree", "--locked", "--package", "bridger", "--edges", "normal", "--prefix", "none"]);
    let output = command.args(["--format", FORMAT]).output().context("running cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    let bill = bill(&String::from_utf8_lossy(&output.stdout))?;
    Ok(format!("{}\n", serde_json::to_string_pretty(&bill)?))
}

/// No time and no serial number, so that equal programs have equal bills.
fn bill(tree: &str) -> Result<Value> {
    let mut components = Vec::new();
    for line in tree.lines().map(str::trim).collect::<BTreeSet<_>>() {
        if line.is_empty() {
            continue;
        }
        // "serde v1.0.0|MIT OR Apache-2.0", with " (*)", " (proc-macro)" or a path behind the version.
        let (package, licence) = line.split_once('|').with_context(|| format!("cargo tree printed {line:?}"))?;
        let mut words = package.split_whitespace();
        let (Some(name), Some(version)) = (words.next(), words.next()) else { bail!("cargo tree printed {line:?}") };
        let version = version.trim_start_matches('v');
        let own = words.any(|word| word.starts_with("(/"));
        let mut component = json!({ "type": "library", "name": name, "version": version });
        // The project's own crates are in no registry.
        if !own {
            component["purl"] = json!(format!("pkg:cargo/{name}@{version}"));
        }
        let licence = licence.trim_end_matches(" (*)").replace('/', " OR ");
        if !licence.is_empty() {
            component["licenses"] = json!([{ "expression": licence }]);
        }
        if !components.contains(&component) && name != "bridger" {
            components.push(component);
        }
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "bridger", "version": VERSION,
            "licenses": [{ "expression": "Apache-2.0" }] } },
        "components": components,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_listed_once_and_own_crates_without_a_registry() {
        let tree = "bridger v0.1.0 (/w/crates/bridger)|Apache-2.0\nmodel v0.1.0 (/w/crates/model)|Apache-2.0\n\
                    serde v1.0.0|MIT/Apache-2.0\nserde v1.0.0|MIT/Apache-2.0 (*)\nfutures-macro v0.3.0 (proc-macro)|MIT\n";
        let bill = bill(tree).expect("a bill");
        let listed: Vec<(&str, bool)> = bill["components"]
            .as_array()
            .expect("components")
            .iter()
            .map(|component| (component["name"].as_str().expect("a name"), component["purl"].is_string()))
            .collect();
        assert_eq!(listed, [("futures-macro", true), ("model", false), ("serde", true)]);
        assert_eq!(bill["components"][2]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert!(super::bill("nonsense").is_err());
    }
}
