//! `bridger demo`: the embedded world with services on it, and an eye on which replicas share a physical host.
//!
//! It shows the problem, with the part of the cure that exists: Bridger itself, labelling the nodes. The rest joins as it
//! is built.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use simulator::SimTime;
use simulator::kubernetes::kinds::KindId;
use simulator::kubernetes::{Kubernetes, defaults};

use super::sandbox::{Drs, PortArguments, WorldArguments};
use crate::embedded::{self, Embedded};
use crate::failure::Failure;
use crate::observer::Observer;
use crate::service::{running, startup};

/// See the problem on this machine: replicas that must be apart, on one physical host
///
/// Starts an embedded Kubernetes API and a vCenter with a working DRS, runs three services whose replicas must not share
/// a host, and tells each time two of them do, which Kubernetes alone cannot see. Bridger labels each node with its host
/// meanwhile. No Kubernetes and no vSphere needed.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What the world's randomness is drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many times as fast as the wall clock the simulated world runs
    #[arg(long, default_value_t = 30.0, value_parser = super::sandbox::speed)]
    speed: f64,
    /// Stop by itself after this many seconds of wall-clock time, instead of at Ctrl-C
    #[arg(long, value_name = "SECONDS")]
    r#for: Option<u64>,
    #[command(flatten)]
    ports: PortArguments,
}

const SERVICES: &[(&str, u32)] = &[("shop", 4), ("search", 3), ("queue", 3)];

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let world = WorldArguments {
        hosts: 5,
        nodes: 15,
        clusters: 1,
        seed: arguments.seed,
        drs: Drs::Full,
        speed: arguments.speed,
    };
    let config = world.config()?;
    embedded::runtime()?.block_on(async {
        let placer = Some(embedded::placer(config.seed, None)?);
        let embedded = Embedded::start(&config, arguments.speed, &arguments.ports, placer).await?;
        say("Five hosts, fifteen nodes, three services whose replicas must be on different hosts.");
        say("Kubernetes keeps them on different nodes. Watch what that is worth:\n");
        say(&embedded.exports());
        say("\nBridger labels each node with its physical host; in another terminal, with the lines above:");
        say("    kubectl get nodes -L alpha.cna.vmware.com/host\n");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let settings = embedded.run_settings()?;
        let found = startup::check(&settings, startup::Purpose::Run).await?;
        let bridger = tokio::spawn(running::run(settings, found, async {
            let _ = stopped.await;
        }));
        embedded.world().with(|core, now| {
            SERVICES.iter().try_for_each(|(name, replicas)| create(&mut core.kubernetes, name, *replicas, now))
        })?;
        let mut observer = Observer::default();
        let watching = embedded.narrate(|entry| {
            say(&entry.to_string());
            let news = embedded.world().with(|core, now| observer.look(core, now));
            news.iter().for_each(|line| say(&format!("    ! {line}")));
        });
        match arguments.r#for {
            None => watching.await,
            Some(seconds) => {
                let _ = tokio::time::timeout(Duration::from_secs(seconds), watching).await;
            }
        }
        let summary = embedded.world().with(|core, now| {
            observer.look(core, now);
            observer.summary(now)
        });
        say(&format!("\n{summary}"));
        let _ = stop.send(());
        bridger.await.map_err(|error| Failure::run(format!("Bridger ended: {error}")))??;
        Ok(ExitCode::SUCCESS)
    })
}

fn create(kubernetes: &mut Kubernetes, name: &str, replicas: u32, now: SimTime) -> Result<(), Failure> {
    let mut object = deployment(name, replicas);
    defaults::apply(KindId::DEPLOYMENT, &mut object, kubernetes.store());
    let created = kubernetes.store_mut().create(KindId::DEPLOYMENT, object, now);
    created.map(drop).map_err(|error| Failure::run(format!("cannot create the service {name}: {error}")))
}

fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": {
                    "containers": [{ "name": "main", "image": name,
                        "resources": { "requests": { "cpu": "500m", "memory": "1Gi" } } }],
                    "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
                        "labelSelector": { "matchLabels": { "app": name } },
                        "topologyKey": "kubernetes.io/hostname",
                    }] } },
                },
            },
        },
    })
}

fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
