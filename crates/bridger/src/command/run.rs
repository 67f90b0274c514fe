//! `bridger run`.

use std::process::ExitCode;

use crate::embedded;
use crate::failure::Failure;
use crate::service::settings::{RunArguments, RunSettings};
use crate::service::{running, startup};
use crate::signals;

/// Label every Kubernetes node with its physical host, and follow vMotion
///
/// Connects to one or more vCenters and a Kubernetes cluster, matches nodes to VMs, and keeps the label
/// alpha.cna.vmware.com/host true. A host that is unknown leaves a label as it was; labels that others made are never
/// touched. Credentials come from GOVC_* variables or files, and from KUBECONFIG or the pod's service account.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    run: RunArguments,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let settings = RunSettings::resolve(&arguments.run, |name| std::env::var(name).ok())?;
    embedded::runtime()?.block_on(async {
        let found = startup::check(&settings).await?;
        running::run(settings, found, signals::interrupted()).await?;
        Ok(ExitCode::SUCCESS)
    })
}
