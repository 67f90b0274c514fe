//! Reads golden files and compares current output with them. Every crate with golden tests includes this file.
//!
//! In: a path below `tests/golden`. Out: its text, or a failed test. With `BRIDGER_GOLDEN=write`, the current output is
//! written to the file instead of compared.

#![allow(dead_code)] // No crate uses every function.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub fn path(name: &str) -> PathBuf {
    // Every package is two folders deep.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

pub fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("golden file {name}: {error}"))
}

pub fn is_writing() -> bool {
    std::env::var("BRIDGER_GOLDEN").is_ok_and(|value| value == "write")
}

pub fn write(name: &str, text: &str) {
    std::fs::write(path(name), text).unwrap_or_else(|error| panic!("golden file {name}: {error}"));
}

/// Compares byte for byte.
pub fn assert_same(name: &str, now: &str) {
    if is_writing() {
        return write(name, now);
    }
    let golden = read(name);
    let lines = || golden.split_inclusive('\n').zip(now.split_inclusive('\n')).zip(1..);
    if let Some(((was, is), line)) = lines().find(|((was, is), _)| was != is) {
        panic!("{name}, line {line} was {was:?} and is {is:?}; see tests/golden/README.md");
    }
    assert!(golden == now, "{name} had {} bytes and has {}; see tests/golden/README.md", golden.len(), now.len());
}

/// Requires every line of the golden file. Additional lines are allowed and printed.
#[allow(clippy::print_stdout)]
pub fn assert_keeps(name: &str, now: &BTreeSet<String>) {
    if is_writing() {
        return write(name, &now.iter().map(|line| format!("{line}\n")).collect::<String>());
    }
    let golden: BTreeSet<String> = read(name).lines().map(str::to_owned).collect();
    assert!(!golden.is_empty(), "{name} has no entries");
    for new in now.difference(&golden) {
        println!("new, and not in {name}: {new}");
    }
    let missing: Vec<&String> = golden.difference(now).collect();
    assert!(missing.is_empty(), "{name}: no longer there, see tests/golden/README.md: {missing:#?}");
}

/// The rows of a list maintained by hand: one entry per line, columns separated by tabs, `#` starts a comment.
pub fn rows(name: &str) -> Vec<Vec<String>> {
    let text = read(name);
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows: Vec<Vec<String>> = lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect();
    assert!(!rows.is_empty(), "{name} has no entries");
    rows
}
