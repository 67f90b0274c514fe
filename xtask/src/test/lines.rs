//! Limits the lines of code of a crate; part of the structure tier.
//!
//! In: the table below and the crates' sources. Out: the first crate that is too large. Invariant: blank lines,
//! comments, and tests at the end of a file do not count.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Lines of code in `crates/NAME/src`. Of drs, 3,300 for planning, 500 for the limits per tenant and 150 for uncertain nodes.
const LINES_MAX: &[(&str, usize)] = &[("drs", 3_950)];

pub fn check() -> Result<()> {
    for (name, lines_max) in LINES_MAX {
        let lines = count_in(&workspace::root().join("crates").join(name).join("src"))?;
        println!("{name}: {lines} lines of code, limit {lines_max}");
        if lines > *lines_max {
            bail!("crates/{name}/src has {lines} lines of code, more than {lines_max}: simplify it");
        }
    }
    Ok(())
}

fn count_in(folder: &Path) -> Result<usize> {
    let mut lines = 0;
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        lines += match path.extension() {
            _ if path.is_dir() => count_in(&path)?,
            Some(extension) if extension == "rs" => count(&std::fs::read_to_string(&path)?),
            _ => 0,
        };
    }
    Ok(lines)
}

fn count(source: &str) -> usize {
    let lines = source.lines().map(str::trim).take_while(|line| *line != "#[cfg(test)]");
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_comments_and_tests_do_not_count() {
        assert_eq!(count("//! A\n\nuse b;\n    // why\nfn c() {}\n/// d\n#[cfg(test)]\nmod tests {\n}\n"), 2);
    }
}
