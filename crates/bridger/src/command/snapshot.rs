//! `bridger snapshot`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::embedded;
use crate::failure::Failure;
use crate::service::read_once::read_state;
use crate::service::settings::ConnectionArguments;
use crate::service::startup::Purpose;

/// Write everything that Bridger reads from Kubernetes and vSphere to one file
///
/// `bridger plan --snapshot FILE` and `bridger explain --snapshot FILE` read it, to compute a plan or explain a
/// placement on another machine, later, or with other settings. The file contains names, labels, affinity terms,
/// resource requests and inventory, but no annotations, secrets or credentials.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// File to write
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    connection: ConnectionArguments,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let settings = arguments.connection.settings()?;
    embedded::runtime()?.block_on(async {
        let snapshot = read_state(&settings, Purpose::Snapshot).await?.snapshot;
        let size_bytes = snapshot.write(&arguments.file)?;
        let _ = writeln!(
            std::io::stdout().lock(),
            "{}: {} nodes, {} pods, {} vCenters, {} KiB",
            arguments.file.display(),
            snapshot.nodes.len(),
            snapshot.pods.len(),
            snapshot.vcenters.len(),
            size_bytes.div_ceil(1024),
        );
        Ok(ExitCode::SUCCESS)
    })
}
