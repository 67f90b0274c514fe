//! The documentation tier: rustdoc builds without warnings, its examples run, and no page links to a missing file.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::Tally;
use super::tier::tracked_files;
use crate::workspace::{self, succeed};

pub fn run() -> Result<Tally> {
    succeed(
        workspace::cargo()
            .args(["doc", "--workspace", "--no-deps", "--document-private-items"])
            .env("RUSTDOCFLAGS", "--deny warnings --allow rustdoc::private_intra_doc_links"),
    )?;
    // Examples in doc comments are tests, too.
    succeed(workspace::cargo().args(["test", "--workspace", "--doc", "--quiet"]))?;
    let mut links = 0;
    let mut broken = Vec::new();
    for page in tracked_files("*.md")? {
        let text = std::fs::read_to_string(workspace::root().join(&page)).with_context(|| format!("reading {page}"))?;
        for target in relative_links(&text) {
            links += 1;
            let base = Path::new(&page).parent().unwrap_or(Path::new(""));
            if !workspace::root().join(base).join(target).exists() {
                broken.push(format!("{page}: {target}"));
            }
        }
    }
    if !broken.is_empty() {
        bail!("links to missing files:\n{}", broken.join("\n"));
    }
    Ok(Tally { passed: links, unit: "links", ..Tally::default() })
}

/// The number of crates in the workspace.
pub fn workspace_members() -> Result<usize> {
    let output = workspace::cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("running cargo metadata")?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    Ok(metadata["workspace_members"].as_array().map_or(0, Vec::len))
}

/// The targets of `[text](target)` that point into the repository, without their anchors.
fn relative_links(markdown: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut in_code = false;
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for part in line.split("](").skip(1) {
            let target = part.split([')', ' ', '#']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                targets.push(target);
            }
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_into_the_repository_count() {
        let page = "[a](docs/a.md) and [b](https://example.org/b) ![c](c.svg#x)\n```\n[d](d.md)\n```\n[e](#here)";
        assert_eq!(relative_links(page), ["docs/a.md", "c.svg"]);
    }
}
