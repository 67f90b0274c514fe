//! Where things are.

use std::env;
use std::path::{Path, PathBuf};

/// The root of the clone.
pub fn root() -> PathBuf {
    // xtask lies directly below it.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_owned)
}

/// Cargo's target folder.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The cargo that runs us, so that its toolchain stays the same.
pub fn cargo() -> std::process::Command {
    let mut command = std::process::Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}
