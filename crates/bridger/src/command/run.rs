//! `bridger run`.

use std::process::ExitCode;

use crate::failure::Failure;
use crate::scheduler::PluginRegistry;
use crate::service::settings::{RunArguments, RunSettings, environment};
use crate::service::{running, startup};

/// Label nodes with their physical host, maintain DRS rules for pods, and serve kube-scheduler as an extender
///
/// Connects to one or more vCenters and a Kubernetes cluster and matches nodes to VMs. Labels each node with its
/// physical host (alpha.cna.vmware.com/host) and follows vMotion. Turns required pod affinity and anti-affinity into
/// DRS rules; `bridger plan` shows them first. Answers the extender calls of kube-scheduler with physical hosts in
/// view. With --scheduling on, it also schedules pods itself. Each part can be turned off. Never changes labels and
/// rules of others. Credentials come from GOVC_* variables or files, and from KUBECONFIG or the pod's service account.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    run: RunArguments,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let settings = RunSettings::resolve(&arguments.run, environment)?;
    running::until_interrupted(&settings, startup::Purpose::Run, &PluginRegistry::standard())
}
