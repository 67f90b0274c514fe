//! The structure tier: dependencies point from adapters and the binary to the pure crates, never back; and crates stay
//! small (`lines`).
//!
//! In: `cargo metadata` and the tables below. Out: how many dependencies of the workspace's crates were checked, or
//! every one that the tables do not allow. Invariants: a crate without a row fails; indirect dependencies of a pure
//! crate count, too; a crate's tests may use the crates that its row names for them, which do not affect its users.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Tally;
use crate::workspace;

/// The crates of the workspace that a crate may use.
struct Row {
    name: &'static str,
    /// No I/O, directly or indirectly.
    is_pure: bool,
    uses: &'static [&'static str],
    /// Additionally, in its tests, examples and benchmarks.
    tests_use: &'static [&'static str],
}

const fn pure(name: &'static str, uses: &'static [&'static str]) -> Row {
    Row { name, is_pure: true, uses, tests_use: &[] }
}

const fn row(name: &'static str, uses: &'static [&'static str], tests_use: &'static [&'static str]) -> Row {
    Row { name, is_pure: false, uses, tests_use }
}

/// The code map of ARCHITECTURE.md. `room` and `cloud` do not exist yet.
const ROWS: &[Row] = &[
    pure("model", &[]),
    pure("drs", &["model"]),
    pure("scheduler", &["model"]),
    pure("room", &["model"]),
    pure("cloud", &["model"]),
    row("engine", &["model", "drs", "scheduler", "room", "cloud"], &[]),
    row("kubernetes", &["model", "engine"], &[]),
    row("vsphere", &["model", "engine"], &[]),
    row("server", &["model", "engine"], &[]),
    // Shares no code with the adapters that it is a counterpart of, not even in tests.
    row("simulator", &[], &[]),
    row(
        "bridger",
        &["model", "drs", "scheduler", "room", "cloud", "engine", "kubernetes", "vsphere", "server", "simulator"],
        &[],
    ),
    row("custom-scheduler", &["bridger"], &["testkit"]),
    row("peers", &[], &[]),
    row("testkit", &["peers"], &[]),
    row("judge", &["peers"], &["model", "scheduler", "kubernetes", "testkit"]),
    row(
        "simulated",
        &[],
        &[
            "model",
            "bridger",
            "drs",
            "scheduler",
            "room",
            "cloud",
            "engine",
            "kubernetes",
            "vsphere",
            "server",
            "simulator",
            "testkit",
        ],
    ),
    row(
        "hostile",
        &["testkit"],
        &["model", "drs", "engine", "kubernetes", "vsphere", "server", "simulator", "bridger", "judge", "scheduler"],
    ),
    // Contains a scheduler of its own.
    row(
        "real-peers",
        &["testkit", "bridger"],
        &["model", "engine", "kubernetes", "vsphere", "server", "judge", "peers"],
    ),
    row("e2e", &["testkit", "peers"], &[]),
    row("xtask", &["peers"], &[]),
];

/// A library that only some crates may depend on.
struct Kept {
    library: &'static str,
    by: &'static [&'static str],
    /// Additionally, in their tests, examples and benchmarks.
    by_tests_of: &'static [&'static str],
}

const fn kept(library: &'static str, by: &'static [&'static str], by_tests_of: &'static [&'static str]) -> Kept {
    Kept { library, by, by_tests_of }
}

/// Each wire protocol has one client, apart from the simulator's. `testkit` and `real-peers` are entirely test code.
const KEPT: &[Kept] = &[
    kept("kube", &["kubernetes", "testkit", "real-peers"], &["simulator"]),
    kept("k8s-openapi", &["kubernetes", "testkit", "real-peers"], &["simulator"]),
    kept("quick-xml", &["vsphere", "simulator"], &[]),
    kept("hyper", &["vsphere", "server", "simulator"], &[]),
    kept("hyper-util", &["vsphere", "server", "simulator"], &[]),
    kept("hyper-rustls", &["vsphere"], &[]),
    kept("axum", &["server", "simulator", "bridger", "testkit"], &["vsphere", "real-peers", "hostile"]),
    kept("clap", &["bridger", "xtask"], &[]),
    kept("ratatui", &["bridger"], &[]),
    kept("crossterm", &["bridger"], &[]),
    // Libraries use error enums.
    kept("anyhow", &["bridger", "testkit", "real-peers", "e2e", "xtask"], &["custom-scheduler"]),
];

/// Libraries that read, write, wait or log. Pure crates must not use them.
const IO: &[&str] = &[
    "async-std",
    "axum",
    "clap",
    "crossterm",
    "futures",
    "futures-util",
    "h2",
    "hyper",
    "hyper-util",
    "k8s-openapi",
    "kube",
    "log",
    "mio",
    "quick-xml",
    "reqwest",
    "rustls",
    "smol",
    "socket2",
    "tempfile",
    "tokio",
    "tower",
    "tracing",
    "ureq",
];

/// How a crate uses another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Normal,
    Build,
    Dev,
}

/// The dependency graph, by crate name.
#[derive(Debug, Default)]
struct Graph {
    members: BTreeSet<String>,
    edges: BTreeMap<String, BTreeSet<(String, Kind)>>,
}

pub fn run() -> Result<Tally> {
    let graph = Graph::of_workspace()?;
    let wrong = violations(&graph);
    if !wrong.is_empty() {
        bail!(
            "{}\nChange the dependency; or, if the design changes, the tables in xtask/src/test/structure.rs and the \
             code map in ARCHITECTURE.md.",
            wrong.join("\n")
        );
    }
    let checked = graph.of_members().count();
    println!("{checked} dependencies of {} crates are allowed", graph.members.len());
    super::lines::check()?;
    super::names::check()?;
    Ok(Tally { passed: checked, unit: "edges", ..Tally::default() })
}

impl Graph {
    fn of_workspace() -> Result<Graph> {
        // Only for this platform: other dependencies might have to be downloaded first.
        let rustc = std::process::Command::new("rustc").arg("-vV").current_dir(workspace::root()).output();
        let version = rustc.context("running rustc")?.stdout;
        let version = String::from_utf8_lossy(&version);
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
        let mut command = workspace::cargo();
        command.args(["metadata", "--format-version", "1", "--filter-platform", host]);
        let output = command.output().context("running cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        let metadata = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
        Graph::read(&metadata).context("cargo metadata has an unexpected format")
    }

    fn read(metadata: &Value) -> Option<Graph> {
        let mut names = BTreeMap::new();
        for package in metadata["packages"].as_array()? {
            names.insert(package["id"].as_str()?, package["name"].as_str()?.to_owned());
        }
        let mut graph = Graph::default();
        for member in metadata["workspace_members"].as_array()? {
            graph.members.insert(names.get(member.as_str()?)?.clone());
        }
        for node in metadata["resolve"]["nodes"].as_array()? {
            // Two versions of a library are merged: the dependencies of both count.
            let edges = graph.edges.entry(names.get(node["id"].as_str()?)?.clone()).or_default();
            for used in node["deps"].as_array()? {
                let name = names.get(used["pkg"].as_str()?)?;
                for kind in used["dep_kinds"].as_array()? {
                    let kind = match kind["kind"].as_str() {
                        None => Kind::Normal,
                        Some("build") => Kind::Build,
                        Some(_) => Kind::Dev,
                    };
                    edges.insert((name.clone(), kind));
                }
            }
        }
        Some(graph)
    }

    /// The dependencies of the workspace's crates, with their kind.
    fn of_members(&self) -> impl Iterator<Item = (&str, &str, Kind)> {
        let of = |name| self.edges.get(name).into_iter().flatten();
        self.members.iter().flat_map(move |from| of(from).map(|(to, kind)| (from.as_str(), to.as_str(), *kind)))
    }

    /// One path to each of the targets that the crate reaches, without dev-dependencies.
    fn paths_to(&self, crate_name: &str, targets: &[&str]) -> Vec<String> {
        let mut paths = BTreeMap::from([(crate_name.to_owned(), crate_name.to_owned())]);
        let mut pending = vec![crate_name.to_owned()];
        while let Some(from) = pending.pop() {
            let path = paths[&from].clone();
            for (to, _) in self.edges.get(&from).into_iter().flatten().filter(|(_, kind)| *kind != Kind::Dev) {
                if !paths.contains_key(to) {
                    paths.insert(to.clone(), format!("{path} -> {to}"));
                    pending.push(to.clone());
                }
            }
        }
        targets.iter().filter(|it| **it != crate_name).filter_map(|it| paths.get(*it).cloned()).collect()
    }
}

fn violations(graph: &Graph) -> Vec<String> {
    let mut wrong = Vec::new();
    let rows: BTreeMap<&str, &Row> = ROWS.iter().map(|row| (row.name, row)).collect();
    for member in graph.members.iter().filter(|member| !rows.contains_key(member.as_str())) {
        wrong.push(format!("{member} has no row: add one to the table"));
    }
    for (from, to, kind) in graph.of_members() {
        let is_for_tests = kind == Kind::Dev;
        if let Some(row) = rows.get(from).filter(|_| graph.members.contains(to)) {
            let is_allowed = row.uses.contains(&to) || is_for_tests && row.tests_use.contains(&to);
            if !is_allowed {
                let tests = if is_for_tests { "the tests of " } else { "" };
                wrong.push(format!("{tests}{from} may not use {to}"));
            }
        }
        if let Some(kept) = KEPT.iter().find(|kept| kept.library == to) {
            let is_allowed = kept.by.contains(&from) || is_for_tests && kept.by_tests_of.contains(&from);
            if !is_allowed {
                let (tests, only) = if is_for_tests { ("the tests of ", kept.by_tests_of) } else { ("", kept.by) };
                wrong.push(format!("{tests}{from} may not use {to}, which is limited to {only:?}"));
            }
        }
    }
    for row in ROWS.iter().filter(|row| row.is_pure && graph.members.contains(row.name)) {
        let paths = graph.paths_to(row.name, IO);
        wrong.extend(paths.into_iter().map(|path| format!("{} is pure but reaches I/O: {path}", row.name)));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A small workspace without violations, with additional dependencies.
    fn graph(more: &[(&str, &str, Kind)]) -> Graph {
        let members = ["model", "drs", "engine", "kubernetes", "vsphere", "server", "simulator", "bridger", "judge"];
        let fine = [
            ("drs", "model", Kind::Normal),
            ("engine", "drs", Kind::Normal),
            ("engine", "tokio", Kind::Normal),
            ("kubernetes", "engine", Kind::Normal),
            ("kubernetes", "kube", Kind::Normal),
            ("simulator", "kube", Kind::Dev),
            ("bridger", "kubernetes", Kind::Normal),
            ("model", "serde", Kind::Normal),
            ("model", "proptest", Kind::Dev),
            ("proptest", "tempfile", Kind::Normal),
            ("judge", "model", Kind::Dev),
        ];
        let mut graph = Graph { members: members.map(str::to_owned).into(), edges: BTreeMap::new() };
        for (from, to, kind) in fine.iter().chain(more) {
            graph.edges.entry((*from).to_owned()).or_default().insert(((*to).to_owned(), *kind));
        }
        graph
    }

    #[test]
    fn allowed_dependencies_pass_and_are_counted() {
        let graph = graph(&[]);
        assert_eq!(violations(&graph), Vec::<String>::new());
        assert_eq!(graph.of_members().count(), 10);
    }

    #[test]
    fn every_violation_is_detected() {
        use Kind::{Build, Dev, Normal};
        let cases: &[(&str, &str, Kind, &[&str])] = &[
            ("model", "drs", Normal, &["model may not use drs"]),
            ("engine", "kubernetes", Normal, &["engine may not use kubernetes"]),
            ("engine", "vsphere", Dev, &["the tests of engine may not use vsphere"]),
            ("kubernetes", "vsphere", Normal, &["kubernetes may not use vsphere"]),
            ("server", "drs", Normal, &["server may not use drs"]),
            ("simulator", "model", Dev, &["the tests of simulator may not use model"]),
            ("judge", "model", Normal, &["judge may not use model"]),
            (
                "bridger",
                "kube",
                Normal,
                &[r#"bridger may not use kube, which is limited to ["kubernetes", "testkit", "real-peers"]"#],
            ),
            (
                "simulator",
                "kube",
                Normal,
                &[r#"simulator may not use kube, which is limited to ["kubernetes", "testkit", "real-peers"]"#],
            ),
            (
                "vsphere",
                "k8s-openapi",
                Dev,
                &[r#"the tests of vsphere may not use k8s-openapi, which is limited to ["simulator"]"#],
            ),
            (
                "kubernetes",
                "quick-xml",
                Normal,
                &[r#"kubernetes may not use quick-xml, which is limited to ["vsphere", "simulator"]"#],
            ),
            ("drs", "tokio", Normal, &["drs is pure but reaches I/O: drs -> tokio"]),
            ("drs", "tokio", Build, &["drs is pure but reaches I/O: drs -> tokio"]),
            ("drs", "tokio", Dev, &[]),
            (
                "serde",
                "mio",
                Normal,
                &[
                    "drs is pure but reaches I/O: drs -> model -> serde -> mio",
                    "model is pure but reaches I/O: model -> serde -> mio",
                ],
            ),
        ];
        for (from, to, kind, expected) in cases {
            let mut found = violations(&graph(&[(from, to, *kind)]));
            found.sort();
            assert_eq!(found, *expected, "{from} {kind:?} {to}");
        }
    }

    #[test]
    fn a_crate_without_a_row_fails() {
        let mut graph = graph(&[]);
        graph.members.insert("newcomer".to_owned());
        assert_eq!(violations(&graph), ["newcomer has no row: add one to the table"]);
    }

    #[test]
    fn rows_refer_to_rows_and_pure_crates_only_to_pure_crates() {
        let of = |name: &str| ROWS.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row {name}"));
        for row in ROWS {
            let used = row.uses.iter().chain(row.tests_use).map(|name| of(name)).collect::<Vec<_>>();
            assert!(!row.is_pure || used.iter().all(|used| used.is_pure), "{}", row.name);
        }
        for name in KEPT.iter().flat_map(|kept| kept.by.iter().chain(kept.by_tests_of)) {
            of(name);
        }
    }

    #[test]
    fn metadata_is_read_by_kind_of_dependency() {
        let metadata = json!({
            "packages": [{ "id": "a#1", "name": "a" }, { "id": "b#1", "name": "b" }],
            "workspace_members": ["a#1"],
            "resolve": { "nodes": [{ "id": "a#1", "deps": [{ "pkg": "b#1", "dep_kinds":
                [{ "kind": null }, { "kind": "dev" }, { "kind": "build" }] }] }, { "id": "b#1", "deps": [] }] },
        });
        let graph = Graph::read(&metadata).unwrap();
        let edges: Vec<_> = graph.of_members().collect();
        assert_eq!(edges, [("a", "b", Kind::Normal), ("a", "b", Kind::Build), ("a", "b", Kind::Dev)]);
        assert!(Graph::read(&json!({})).is_none());
    }
}
