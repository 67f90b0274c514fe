//! `bridger sandbox`: the embedded Kubernetes API and vCenter without Bridger, for kubectl and govc.

use std::process::ExitCode;

use clap::ValueEnum;
use simulator::seed::Seed;
use simulator::vcenter::DrsLevel;
use simulator::{kubernetes, vcenter, world};

use crate::embedded::{self, Embedded};
use crate::failure::Failure;
use crate::say::say;

/// Start an embedded Kubernetes API and vCenter with a working DRS, for kubectl and govc
///
/// Prints the environment variables for kubectl and govc, then one line for each event, until interrupted. Every
/// Kubernetes node is a VM of the vCenter: DRS moves it, HA restarts it, and powering it off takes the node down.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub world: WorldArguments,
    #[command(flatten)]
    pub ports: PortArguments,
    /// Leave pods pending, to test a scheduler
    #[arg(long)]
    no_placer: bool,
    /// An HTTP extender that the embedded scheduler calls, for example http://127.0.0.1:12346
    #[arg(long, value_name = "URL", conflicts_with = "no_placer")]
    extender: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
pub struct WorldArguments {
    /// Physical hosts in all clusters together
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=2000))]
    pub hosts: u32,
    /// Kubernetes nodes, each a VM
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(0..=20_000))]
    pub nodes: u32,
    /// vSphere clusters
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub clusters: u32,
    /// Random seed: the same seed gives the same initial state
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Automation level of DRS
    #[arg(long, value_enum, default_value_t)]
    pub drs: Drs,
    /// Speed as a multiple of real time
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    pub speed: f64,
}

#[derive(Clone, Debug, clap::Args)]
pub struct PortArguments {
    /// Loopback port of the Kubernetes API; 0 picks a free one
    #[arg(long, default_value_t = 16_443, value_name = "PORT")]
    pub kubernetes_port: u16,
    /// Loopback port of the vCenter, HTTPS and HTTP; 0 picks a free one
    #[arg(long, default_value_t = 18_989, value_name = "PORT")]
    pub vcenter_port: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Drs {
    /// Migrates VMs automatically
    #[default]
    Full,
    /// Only recommends migrations
    Manual,
    Off,
}

pub fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.01..=10_000.0).contains(&value) => Ok(value),
        _ => Err("the speed must be a number from 0.01 to 10000".to_owned()),
    }
}

impl WorldArguments {
    pub fn config(&self) -> Result<world::Config, Failure> {
        if self.clusters > self.hosts {
            return Err(Failure::configuration(
                format!("{} clusters need at least as many hosts, but --hosts is {}", self.clusters, self.hosts),
                "raise --hosts or lower --clusters",
            ));
        }
        Ok(world::Config {
            seed: Seed(self.seed),
            kubernetes: kubernetes::Config::default(),
            vcenter: vcenter::Config {
                clusters: self.clusters,
                hosts: self.hosts,
                nodes: self.nodes,
                drs: match self.drs {
                    Drs::Full => DrsLevel::FullyAutomated,
                    Drs::Manual => DrsLevel::Manual,
                    Drs::Off => DrsLevel::Off,
                },
                ..vcenter::Config::default()
            },
            ..world::Config::default()
        })
    }
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let config = arguments.world.config()?;
    embedded::runtime()?.block_on(async {
        let placer = if arguments.no_placer {
            None
        } else {
            Some(embedded::placer(config.seed, arguments.extender.as_deref())?)
        };
        let embedded = Embedded::start(&config, arguments.world.speed, &arguments.ports, placer).await?;
        say(&embedded.exports());
        say(&what_to_try(arguments));
        embedded.follow_events(|entry| say(&entry.to_string())).await;
        Ok(ExitCode::SUCCESS)
    })
}

fn what_to_try(arguments: &Arguments) -> String {
    let WorldArguments { hosts, nodes, clusters, .. } = arguments.world;
    format!(
        "\n# {nodes} nodes on {hosts} hosts in {clusters} cluster{}. In another terminal, paste the lines above, then try:\n\
         #   kubectl get nodes\n\
         #   kubectl create deployment web --image=nginx --replicas=3 && kubectl get pods -o wide\n\
         #   govc ls vm && govc vm.info node-1\n\
         #   govc cluster.rule.create -cluster cluster-1 -name apart -enable -anti-affinity node-1 node-2\n\
         #   govc host.maintenance.enter esx-1.lab\n\
         # Press Ctrl-C to stop.\n",
        if clusters == 1 { "" } else { "s" },
    )
}
