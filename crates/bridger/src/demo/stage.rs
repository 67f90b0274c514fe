//! The environment of the demo: the embedded world, its scheduler, and in the second act Bridger, all in this process.
//!
//! Input: a seed, whether Bridger runs, and scripted events. Output: a running world. Clients and servers use their
//! wire protocols over tower services instead of sockets, so that time can be virtual.

use std::sync::Arc;

use serde_json::{Value, json};
use simulator::kubernetes::defaults;
use simulator::kubernetes::kinds::KindId;
use simulator::kubernetes::placer::{self, ExtenderConfig, PlacerConfig, Transport};
use simulator::kubernetes::sample;
use simulator::seed::Seed;
use simulator::vcenter::HostId;
use simulator::vcenter::inventory::ROLE_KEY;
use simulator::vcenter::physics::{Actor, VmSpec};
use simulator::world::Core;
use simulator::{Clock, SimTime, World, vcenter, world};
use tokio::task::JoinSet;

use super::overview::{Overview, short};
use super::story::{BATCH, HOSTS, NODES_AT_FIRST, SERVICES, ScriptedEvent, Which};
use crate::compose::compose;
use crate::failure::Failure;
use crate::in_process;
use crate::service::outside::Service;

pub struct DemoStage {
    world: Arc<World>,
    /// The host that fails: the one of the first act if given, else chosen at the time of the failure.
    failing_host: Option<String>,
    /// Bridger's HTTP routes, if Bridger runs.
    bridger: Option<axum::Router>,
    // Dropping them stops everything.
    tasks: JoinSet<()>,
    _service: Service,
}

pub fn world_config(seed: Seed) -> world::Config {
    world::Config {
        seed,
        vcenter: vcenter::Config { hosts: HOSTS, nodes: NODES_AT_FIRST, ..vcenter::Config::default() },
        ..world::Config::default()
    }
}

/// What schedules pods in the act with Bridger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DemoScheduler {
    /// A scheduler like kube-scheduler that calls Bridger's extender
    #[default]
    Extender,
    /// Bridger's own scheduler
    Bridger,
}

impl DemoStage {
    /// `bridger`: what schedules pods if Bridger runs; `None`: without Bridger. The runtime's clock must be paused.
    pub async fn set(
        seed: Seed,
        bridger: Option<DemoScheduler>,
        failing_host: Option<String>,
    ) -> Result<DemoStage, Failure> {
        let config = world_config(seed);
        let world = World::new(&config, Clock::virtual_time());
        let mut tasks = JoinSet::new();
        tasks.spawn(world.clone().run());
        let mut placer = PlacerConfig { seed, ..PlacerConfig::default() };
        let mut service = Service::new();
        let parts = match bridger {
            Some(DemoScheduler::Extender) => Some(in_process::parts()),
            Some(DemoScheduler::Bridger) => Some(in_process::parts_with_scheduler()?),
            None => None,
        };
        let router = match parts {
            Some(parts) => {
                let outside = in_process::outside(&world, &config)?;
                let shown = compose(parts, outside, &mut service).shown;
                let extender = server::extender_router(&shown).unwrap_or_default();
                Some(server::router(shown).merge(extender))
            }
            None => None,
        };
        if bridger != Some(DemoScheduler::Bridger) {
            if let Some(router) = &router {
                let mut extender = ExtenderConfig::new("http://bridger", Transport::in_process(router.clone()));
                extender.bind_verb = Some("bind".to_owned());
                placer.extenders.push(extender);
            }
            tasks.spawn(placer::run(world.clone(), placer));
        }
        let bridger = router;
        Ok(DemoStage { world, failing_host, bridger, tasks, _service: service })
    }

    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    pub fn bridger(&self) -> Option<&axum::Router> {
        self.bridger.as_ref()
    }

    /// The task set for servers that end with the stage.
    pub fn tasks(&mut self) -> &mut JoinSet<()> {
        &mut self.tasks
    }

    pub fn failing_host(&self) -> Option<&str> {
        self.failing_host.as_deref()
    }

    pub fn overview(&self) -> Overview {
        self.world.with(|core, _| Overview::of(core))
    }

    /// Executes an event; returns its description.
    pub fn perform(&mut self, event: &ScriptedEvent) -> Result<String, Failure> {
        if *event == ScriptedEvent::FailHost && self.failing_host.is_none() {
            self.failing_host = self.overview().worst_to_lose().map(str::to_owned);
        }
        let failing_host = self.failing_host.clone().unwrap_or_default();
        self.world.with(|core, now| perform(core, event, &failing_host, now))
    }
}

fn perform(core: &mut Core, event: &ScriptedEvent, failing_host: &str, now: SimTime) -> Result<String, Failure> {
    let actor = Actor { user: core.vcenter.config().username.clone() };
    let description = match event {
        ScriptedEvent::StartBatch { pods } => {
            create(core, &batch(*pods), now)?;
            format!("{pods} large batch pods are started, one for each node")
        }
        ScriptedEvent::EnterMaintenance(which) => {
            let (host, name) = choose(core, which, failing_host)?;
            core.vcenter.enter_maintenance(host, 0, &actor, now).map_err(rejected)?;
            format!("{name} enters maintenance mode: DRS moves its VMs away")
        }
        ScriptedEvent::ExitMaintenance(which) => {
            let (host, name) = choose(core, which, failing_host)?;
            core.vcenter.exit_maintenance(host, &actor, now).map_err(rejected)?;
            format!("{name} leaves maintenance mode")
        }
        ScriptedEvent::AddNodes { count, host } => {
            let id = host_named(core, host)?;
            for number in 1..=*count {
                add_node(core, NODES_AT_FIRST + number, id, &actor, now)?;
            }
            format!("{count} small nodes are added on {host}")
        }
        ScriptedEvent::Deploy => {
            for (name, replicas) in SERVICES {
                create(core, &service(name, *replicas), now)?;
            }
            let names: Vec<&str> = SERVICES.iter().map(|(name, _)| *name).collect();
            format!("services {} are deployed: replicas must be on different nodes", names.join(", "))
        }
        ScriptedEvent::FailHost => {
            let host = host_named(core, failing_host)?;
            core.vcenter.fail_host(host, now).map_err(rejected)?;
            format!("host {failing_host} loses power")
        }
        ScriptedEvent::RecoverHost => {
            let host = host_named(core, failing_host)?;
            core.vcenter.recover_host(host, now).map_err(rejected)?;
            format!("host {failing_host} has power again and boots")
        }
        ScriptedEvent::Update => {
            for (name, _) in SERVICES {
                update(core, name)?;
            }
            "rolling update of every service".to_owned()
        }
        ScriptedEvent::End => "end of the scenario".to_owned(),
    };
    Ok(description)
}

fn rejected(fault: impl std::fmt::Display) -> Failure {
    Failure::run(format!("the embedded vCenter rejected a demo step: {fault}"))
}

fn host_named(core: &Core, name: &str) -> Result<HostId, Failure> {
    let host = core.vcenter.inventory().hosts().find(|(_, host)| short(&host.name) == name);
    host.map(|(id, _)| id).ok_or_else(|| Failure::run(format!("there is no host {name:?}")))
}

fn choose(core: &Core, which: &Which, failing_host: &str) -> Result<(HostId, String), Failure> {
    let name = match which {
        Which::Named(name) => (*name).to_owned(),
        Which::Spared(number) => {
            let hosts = core.vcenter.inventory().hosts().map(|(_, host)| short(&host.name));
            let spared: Vec<&str> = hosts.filter(|name| *name != failing_host).collect();
            let index = usize::try_from(*number).unwrap_or(0) % spared.len().max(1);
            spared.get(index).map_or(String::new(), |name| (*name).to_owned())
        }
    };
    Ok((host_named(core, &name)?, name))
}

fn add_node(core: &mut Core, number: u32, host: HostId, actor: &Actor, now: SimTime) -> Result<(), Failure> {
    let inventory = core.vcenter.inventory();
    let like = inventory.vms().next().map(|(_, vm)| (vm.parent, vm.pool, vm.cpu_count, vm.memory_mib));
    let (folder, pool, cpu_count, memory_mib) = like.ok_or_else(|| Failure::run("there is no VM to copy"))?;
    let spec = VmSpec {
        name: format!("node-{number}"),
        folder,
        pool,
        host: Some(host),
        // New nodes are small and idle at first, so that DRS has no reason to move them.
        cpu_count: cpu_count.div_ceil(2),
        memory_mib: memory_mib / 2,
        annotation: String::new(),
        extra_config: [(ROLE_KEY.to_owned(), "node".to_owned())].into_iter().collect(),
        power_on: true,
    };
    core.vcenter.create_vm(spec, actor, now).map(drop).map_err(rejected)
}

fn create(core: &mut Core, deployment: &Value, now: SimTime) -> Result<(), Failure> {
    let mut object = deployment.clone();
    defaults::apply(KindId::DEPLOYMENT, &mut object, core.kubernetes.store());
    let created = core.kubernetes.store_mut().create(KindId::DEPLOYMENT, object, now);
    created.map(drop).map_err(|error| Failure::run(format!("the embedded Kubernetes rejected a demo step: {error}")))
}

fn update(core: &mut Core, name: &str) -> Result<(), Failure> {
    let edited = core.kubernetes.store_mut().edit(KindId::DEPLOYMENT, "default", name, |object| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(format!("{name}:2"));
        let generation = object["metadata"]["generation"].as_u64().unwrap_or(1) + 1;
        object["metadata"]["generation"] = json!(generation);
    });
    edited.map(drop).map_err(|error| Failure::run(format!("cannot update {name}: {error}")))
}

fn batch(pods: u32) -> Value {
    sample::deployment(BATCH, pods, &image(BATCH), &json!({ "cpu": "3", "memory": "8Gi" }))
}

fn service(name: &str, replicas: u32) -> Value {
    sample::apart_by_node(name, replicas, &image(name), &json!({ "cpu": "500m", "memory": "1Gi" }))
}

fn image(name: &str) -> String {
    format!("{name}:1")
}
