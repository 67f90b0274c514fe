//! `bridger scheduler`.

use std::net::IpAddr;
use std::process::ExitCode;

use crate::failure::Failure;
use crate::scheduler::PluginRegistry;
use crate::service::leading::ElectionArguments;
use crate::service::scheduler::ProfileArguments;
use crate::service::settings::{ReachArguments, environment};
use crate::service::{running, startup};

/// Schedule pods with the verdicts of kube-scheduler's plugins and with physical hosts in view
///
/// Schedules the pods that name it (spec.schedulerName, default `bridger`), beside kube-scheduler or instead of it.
/// Takes a KubeSchedulerConfiguration. Needs no vCenter: physical hosts come from the node label, or live from vSphere
/// with --url. `bridger explain` shows what it would decide for a pod, and why.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: ProfileArguments,
    #[command(flatten)]
    reach: ReachArguments,
    #[command(flatten)]
    election: ElectionArguments,
    /// Port for health and metrics [default: 12347]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Address to listen on; use 0.0.0.0 in a pod, for the kubelet's probes [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<IpAddr>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    run_with(arguments, &PluginRegistry::standard())
}

/// With the plugins of this registry.
pub fn run_with(arguments: &Arguments, registry: &PluginRegistry) -> Result<ExitCode, Failure> {
    let Arguments { profiles, reach, election, port, listen } = arguments;
    let settings = profiles.settings(reach, election, *listen, *port, environment)?;
    running::until_interrupted(&settings, startup::Purpose::Schedule, registry)
}
