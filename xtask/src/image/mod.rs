//! `cargo xtask image`: the container image, without a container engine.
//!
//! In: this clone. Out, in `target/image/`: `bridger-VERSION-ARCHITECTURE.tar`, an OCI image layout in one file that
//! `docker load`, `podman load`, `ctr image import`, `skopeo` and `crane` read, and `bridger-VERSION.cdx.json`, its SBOM.
//!
//! Invariants:
//! - The program is static: the file system of the image contains it and nothing else, and its user is not root.
//! - The same clone gives the same digest: no time but that of the commit, no path of the machine, files in a fixed
//!   order.

mod archive;
mod layout;
mod program;
mod sbom;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::workspace;

/// Builds the static program and writes the container image as an OCI archive, with its SBOM beside it.
///
/// Needs no container engine. The same clone gives the same digest.
#[derive(clap::Args)]
pub struct Arguments {
    /// The folder that the files are written to [default: target/image]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// The image's name and tag in the archive [default: bridger:VERSION]
    #[arg(long, value_name = "NAME:TAG")]
    reference: Option<String>,
    /// Where the program is compiled; another folder proves that the digest does not depend on it
    #[arg(long, value_name = "FOLDER")]
    build_folder: Option<PathBuf>,
}

/// The version of the workspace, which is that of the image.
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub fn run(arguments: &Arguments) -> Result<()> {
    let output = arguments.output.clone().unwrap_or_else(|| workspace::target().join("image"));
    fs::create_dir_all(&output).with_context(|| format!("creating {}", output.display()))?;
    let source = program::Source::of_clone()?;
    let build_folder = arguments.build_folder.clone().unwrap_or_else(|| workspace::target().join("static"));
    let program = program::build(&source, &build_folder)?;
    let reference = arguments.reference.clone().unwrap_or_else(|| format!("bridger:{VERSION}"));
    let image = layout::Image::of(&program, &source, &reference)?;
    let file = output.join(format!("bridger-{VERSION}-{}.tar", layout::architecture()));
    fs::write(&file, image.archive()?).with_context(|| format!("writing {}", file.display()))?;
    let bill = output.join(format!("bridger-{VERSION}.cdx.json"));
    fs::write(&bill, sbom::of_program()?).with_context(|| format!("writing {}", bill.display()))?;
    println!("image:  {}", file.display());
    println!("name:   {reference}");
    println!("digest: {}", image.digest());
    println!("sbom:   {}", bill.display());
    Ok(())
}
