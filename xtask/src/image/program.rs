//! The static program of the image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::{self, succeed};

/// What the image is built from.
pub struct Source {
    /// The commit, with `-modified` if the clone differs from it.
    pub revision: String,
    /// The commit's time, in seconds since 1970.
    pub committed_s: u64,
}

impl Source {
    pub fn of_clone() -> Result<Source> {
        let commit = git(&["log", "-1", "--format=%H %ct"])?;
        let (hash, time) = commit.split_once(' ').with_context(|| format!("git log printed {commit:?}"))?;
        let modified = if git(&["status", "--porcelain"])?.is_empty() { "" } else { "-modified" };
        let committed_s = time.parse().with_context(|| format!("the commit's time {time:?}"))?;
        Ok(Source { revision: format!("{hash}{modified}"), committed_s })
    }
}

/// Builds `bridger` with the profile `dist`, linked with the C library, so that it runs in an empty file system.
///
/// glibc and not musl, because C code of dependencies then needs no second C compiler. Names are resolved without
/// files of the system: glibc contains its resolvers for files and DNS since 2.34.
pub fn build(source: &Source, folder: &Path) -> Result<Vec<u8>> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    if !cfg!(target_os = "linux") {
        bail!("the image can be built on Linux only.\nRun this on Linux, or use the Dockerfile");
    }
    // Paths in panic messages must not depend on the machine.
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    let sources = [(Some(workspace::root()), "/bridger"), (home, "/cargo"), (Some(folder.to_owned()), "/target")];
    for (from, to) in sources.iter().filter_map(|(from, to)| from.as_ref().map(|from| (from, to))) {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    }
    let mut command = workspace::cargo();
    command.args(["build", "--locked", "--profile", "dist", "--package", "bridger", "--bin", "bridger"]);
    // With a target, the flags are not used for build scripts and macros, which must not be static.
    command.args(["--target", &triple]).arg("--target-dir").arg(folder);
    command.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    command.env("BRIDGER_REVISION", &source.revision);
    succeed(&mut command)?;
    let file = folder.join(triple).join("dist/bridger");
    fs::read(&file).with_context(|| format!("reading {}", file.display()))
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(workspace::root()).output().context("running git")?;
    if !output.status.success() {
        bail!("git {arguments:?} failed ({})", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
