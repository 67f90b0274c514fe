//! The Helm chart in `deploy/chart` is what the program describes. `BRIDGER_GOLDEN=write` writes it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart")
}

#[test]
fn the_chart_is_the_one_that_the_program_describes() {
    let files = bridger::install::chart_files();
    if std::env::var("BRIDGER_GOLDEN").is_ok_and(|value| value == "write") {
        fs::create_dir_all(folder().join("templates")).expect("a folder");
        for (name, text) in &files {
            fs::write(folder().join(name), text).expect(name);
        }
    }
    for (name, text) in &files {
        let found = fs::read_to_string(folder().join(name)).unwrap_or_default();
        assert!(found == *text, "deploy/chart/{name} differs; BRIDGER_GOLDEN=write writes it");
    }
    let templates = fs::read_dir(folder().join("templates")).expect("the templates");
    let found: BTreeSet<String> =
        templates.map(|entry| format!("templates/{}", entry.expect("a file").file_name().to_string_lossy())).collect();
    let described: BTreeSet<String> = files.into_keys().filter(|name| name.starts_with("templates/")).collect();
    assert_eq!(found, described, "files that the program does not describe");
}
