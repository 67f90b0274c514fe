//! Part of the structure tier: a public type has a name that no public type of another crate has.
//!
//! In: the sources under crates/. Out: how many public types were compared, or each name that two crates use.
//! Invariants: types declared inside modules or functions of tests do not count; the simulator does not either, which
//! models the same world independently of the crates that it is a counterpart of.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace;

const INDEPENDENT: &[&str] = &["simulator"];

/// The crates that declare each public type, by its name.
#[derive(Debug, Default)]
struct Declared(BTreeMap<String, BTreeSet<String>>);

impl Declared {
    fn read(&mut self, crate_name: &str, source: &str) {
        for line in source.lines() {
            // Unindented: what a module of tests declares is indented.
            let Some(declared) = line.strip_prefix("pub ") else { continue };
            let mut words = declared.split(|it: char| !it.is_alphanumeric() && it != '_').filter(|it| !it.is_empty());
            if words.next().is_some_and(|kind| matches!(kind, "struct" | "enum" | "trait" | "type"))
                && let Some(name) = words.next()
            {
                self.0.entry(name.to_owned()).or_default().insert(crate_name.to_owned());
            }
        }
    }

    fn read_folder(&mut self, crate_name: &str, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            let stem = path.file_stem().and_then(|it| it.to_str()).unwrap_or_default();
            if stem == "tests" {
                continue;
            }
            if path.is_dir() {
                self.read_folder(crate_name, &path)?;
            } else if path.extension().is_some_and(|it| it == "rs") {
                self.read(crate_name, &fs::read_to_string(&path)?);
            }
        }
        Ok(())
    }

    fn shared(&self) -> impl Iterator<Item = String> {
        let shared = self.0.iter().filter(|(_, crates)| crates.len() > 1);
        shared.map(|(name, crates)| format!("{name} is a public type of {}", Vec::from_iter(crates.clone()).join(", ")))
    }
}

pub fn check() -> Result<()> {
    let mut declared = Declared::default();
    for entry in fs::read_dir(workspace::root().join("crates"))? {
        let folder = entry?.path();
        let name = folder.file_name().and_then(|it| it.to_str()).unwrap_or_default().to_owned();
        if !INDEPENDENT.contains(&name.as_str()) {
            declared.read_folder(&name, &folder.join("src"))?;
        }
    }
    let shared: Vec<String> = declared.shared().collect();
    if !shared.is_empty() {
        bail!("{}\nGive each type a name of its own.", shared.join("\n"));
    }
    println!("{} public types have names of their own", declared.0.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_two_crates_declare_is_found() {
        let mut declared = Declared::default();
        declared.read(
            "a",
            "pub struct Host {\n}\npub enum Own<T> {}\npub(crate) struct Hidden;\n    pub struct InTests;\n",
        );
        declared.read("a", "pub type Host = u8;\n");
        assert_eq!(declared.shared().count(), 0, "one crate may use a name in two modules");
        declared.read("b", "pub trait Host: Send {}\npub struct Hidden;\npub struct InTests;\n");
        assert_eq!(declared.shared().collect::<Vec<_>>(), ["Host is a public type of a, b"]);
    }
}
