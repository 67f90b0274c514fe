//! `bridger run`.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::service::settings::{RunArguments, RunSettings, environment};
use crate::service::{running, startup};

/// Label nodes with their physical host, keep DRS rules for pods, and answer kube-scheduler
///
/// Connects to one or more vCenters and a Kubernetes cluster and matches nodes to VMs. Keeps the label
/// alpha.cna.vmware.com/host true, through vMotion too. Turns required pod affinity and anti-affinity into DRS rules:
/// `bridger plan` shows them first. Answers kube-scheduler as an extender that knows physical hosts. With --scheduling on it
/// places pods itself, too. Each part can be turned off. Labels and rules that others made are never touched. Credentials come from GOVC_* variables or files, and
/// from KUBECONFIG or the pod's service account.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    run: RunArguments,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let settings = RunSettings::resolve(&arguments.run, environment)?;
    running::until_interrupted(&settings, startup::Purpose::Run)
}
