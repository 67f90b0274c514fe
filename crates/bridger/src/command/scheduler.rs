//! `bridger scheduler`.

use std::net::IpAddr;
use std::process::ExitCode;

use crate::failure::Failure;
use crate::service::scheduler::ProfileArguments;
use crate::service::settings::{ReachArguments, environment};
use crate::service::{running, startup};

/// Schedule pods, with kube-scheduler's verdicts and with physical hosts in view
///
/// A complete scheduler for the pods that name it (spec.schedulerName, by default `bridger`), beside kube-scheduler or in its place.
/// Takes a KubeSchedulerConfiguration. No vCenter is needed: physical hosts come from the node label, or live from vSphere with
/// --url. `bridger explain` shows for a pod what it would decide, and why.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    profiles: ProfileArguments,
    #[command(flatten)]
    reach: ReachArguments,
    /// Port for health and metrics [default: 12347]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Address to listen on; 0.0.0.0 in a pod, so that the kubelet can ask [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<IpAddr>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { profiles, reach, port, listen } = arguments;
    let settings = profiles.settings(reach, *listen, *port, environment)?;
    running::until_interrupted(&settings, startup::Purpose::Schedule)
}
