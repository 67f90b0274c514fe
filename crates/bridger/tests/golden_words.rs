//! Stable names that only a running system shows: event reasons, label keys, metric values. The golden lists are
//! compared with the source text in `crates/`; names of findings with those of the type.

#[path = "../../../tests/golden/golden.rs"]
mod golden;

use std::path::Path;

/// The simulator has its own names and shares none of these.
const NOT_OURS: &[&str] = &["simulator"];

/// The text of all source files, without tests and line comments.
fn sources() -> String {
    let mut text = String::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for entry in std::fs::read_dir(crates).expect("the crates") {
        let folder = entry.expect("a crate").path();
        if !NOT_OURS.iter().any(|name| folder.ends_with(name)) {
            gather(&folder.join("src"), &mut text);
        }
    }
    text
}

fn gather(folder: &Path, text: &mut String) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if name == "tests" || name == "testing" || name.ends_with("_tests") {
            continue;
        }
        if path.is_dir() {
            gather(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = std::fs::read_to_string(&path).expect("a source file");
            // Unit tests are at the end of a file.
            let code = file.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            lines.for_each(|line| text.extend([line, "\n"]));
        }
    }
}

fn assert_written(file: &str, words: impl IntoIterator<Item = String>) {
    let sources = sources();
    let is_written =
        |word: &String| drs::Finding::NAMES.contains(&word.as_str()) || sources.contains(&format!("\"{word}\""));
    let missing: Vec<String> = words.into_iter().filter(|word| !is_written(word)).collect();
    assert!(missing.is_empty(), "{file}: missing in the source, see tests/golden/README.md: {missing:#?}");
}

#[test]
fn reasons_are_kept() {
    let rows = golden::rows("reasons.tsv");
    for row in &rows {
        let [_, severity, about, place] = row.as_slice() else { panic!("{row:?}") };
        let known = match place.as_str() {
            "event" => ["Normal", "Warning"].contains(&severity.as_str()) && ["Node", "Pod"].contains(&about.as_str()),
            "condition" => severity == "-" && about == "Pod",
            "in-the-way" => severity == "-" && about == "cluster",
            _ => false,
        };
        assert!(known, "{row:?}");
    }
    assert_written("reasons.tsv", rows.into_iter().map(|row| row[0].clone()));
}

#[test]
fn keys_are_kept() {
    assert_written("keys.tsv", golden::rows("keys.tsv").into_iter().map(|row| row[0].clone()));
}

#[test]
fn metric_values_are_kept() {
    let rows = golden::rows("metrics/values.tsv");
    assert!(rows.iter().all(|row| row.len() == 3));
    assert_written("metrics/values.tsv", rows.into_iter().flatten());
}
