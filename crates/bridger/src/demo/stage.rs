//! Where the story is played: the embedded world, its placer, and in the second act Bridger, all in this process.
//!
//! Input: a seed and whether Bridger takes part; events of the story. Output: a running world. Clients and servers speak
//! their wire protocols over tower services instead of sockets, so that time may be virtual.

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

pub struct Stage {
    world: Arc<World>,
    /// The host that fails: chosen when it does, unless it is known from the first act.
    casualty: Option<String>,
    /// Bridger's own routes, where it takes part.
    bridger: Option<axum::Router>,
    // Dropping them ends everything.
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

/// Who places pods where Bridger takes part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Places {
    /// One like kube-scheduler, which asks Bridger's extender.
    #[default]
    Extender,
    /// Bridger's own scheduler.
    Bridger,
}

impl Stage {
    /// `bridger`: who places pods while Bridger takes part, if it does. The clock of the runtime must be paused.
    pub async fn set(seed: Seed, bridger: Option<Places>, casualty: Option<String>) -> Result<Stage, Failure> {
        let config = world_config(seed);
        let world = World::new(&config, Clock::virtual_time());
        let mut tasks = JoinSet::new();
        tasks.spawn(world.clone().run());
        let mut placer = PlacerConfig { seed, ..PlacerConfig::default() };
        let mut service = Service::new();
        let parts = match bridger {
            Some(Places::Extender) => Some(in_process::parts()),
            Some(Places::Bridger) => Some(in_process::parts_with_scheduler()?),
            None => None,
        };
        let router = match parts {
            Some(parts) => {
                let outside = in_process::outside(&world, &config).await?;
                Some(server::router(compose(parts, outside, &mut service).shown))
            }
            None => None,
        };
        if bridger != Some(Places::Bridger) {
            if let Some(router) = &router {
                let mut extender = ExtenderConfig::new("http://bridger", Transport::in_process(router.clone()));
                extender.bind_verb = Some("bind".to_owned());
                placer.extenders.push(extender);
            }
            tasks.spawn(placer::run(world.clone(), placer));
        }
        let bridger = router;
        Ok(Stage { world, casualty, bridger, tasks, _service: service })
    }

    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    pub fn bridger(&self) -> Option<&axum::Router> {
        self.bridger.as_ref()
    }

    /// For what serves the stage to the outside, and ends with it.
    pub fn tasks(&mut self) -> &mut JoinSet<()> {
        &mut self.tasks
    }

    pub fn casualty(&self) -> Option<&str> {
        self.casualty.as_deref()
    }

    pub fn overview(&self) -> Overview {
        self.world.with(|core, _| Overview::of(core))
    }

    /// Carries out a event; answers what to tell of it.
    pub fn perform(&mut self, event: &ScriptedEvent) -> Result<String, Failure> {
        if *event == ScriptedEvent::FailHost && self.casualty.is_none() {
            self.casualty = self.overview().worst_to_lose().map(str::to_owned);
        }
        let casualty = self.casualty.clone().unwrap_or_default();
        self.world.with(|core, now| perform(core, event, &casualty, now))
    }
}

fn perform(core: &mut Core, event: &ScriptedEvent, casualty: &str, now: SimTime) -> Result<String, Failure> {
    let actor = Actor { user: core.vcenter.config().username.clone() };
    let told = match event {
        ScriptedEvent::StartBatch { pods } => {
            create(core, &batch(*pods), now)?;
            format!("{pods} large batch pods are started, one for each node")
        }
        ScriptedEvent::EnterMaintenance(which) => {
            let (host, name) = choose(core, which, casualty)?;
            core.vcenter.enter_maintenance(host, 0, &actor, now).map_err(refused)?;
            format!("{name} goes into maintenance: DRS moves its VMs away")
        }
        ScriptedEvent::ExitMaintenance(which) => {
            let (host, name) = choose(core, which, casualty)?;
            core.vcenter.exit_maintenance(host, &actor, now).map_err(refused)?;
            format!("{name} leaves maintenance")
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
            let host = host_named(core, casualty)?;
            core.vcenter.fail_host(host, now).map_err(refused)?;
            format!("host {casualty} loses power")
        }
        ScriptedEvent::RecoverHost => {
            let host = host_named(core, casualty)?;
            core.vcenter.recover_host(host, now).map_err(refused)?;
            format!("host {casualty} has power again and boots")
        }
        ScriptedEvent::Update => {
            for (name, _) in SERVICES {
                update(core, name)?;
            }
            "every service is updated: rolling, replica by replica".to_owned()
        }
        ScriptedEvent::End => "the story ends".to_owned(),
    };
    Ok(told)
}

fn refused(fault: impl std::fmt::Display) -> Failure {
    Failure::run(format!("the embedded vCenter refuses the story: {fault}"))
}

fn host_named(core: &Core, name: &str) -> Result<HostId, Failure> {
    let host = core.vcenter.inventory().hosts().find(|(_, host)| short(&host.name) == name);
    host.map(|(id, _)| id).ok_or_else(|| Failure::run(format!("there is no host {name:?}")))
}

fn choose(core: &Core, which: &Which, casualty: &str) -> Result<(HostId, String), Failure> {
    let name = match which {
        Which::Named(name) => (*name).to_owned(),
        Which::Spared(number) => {
            let hosts = core.vcenter.inventory().hosts().map(|(_, host)| short(&host.name));
            let spared: Vec<&str> = hosts.filter(|name| *name != casualty).collect();
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
        // New nodes are small, and idle at first: DRS has no reason to take them elsewhere.
        cpu_count: cpu_count.div_ceil(2),
        memory_mib: memory_mib / 2,
        annotation: String::new(),
        extra_config: [(ROLE_KEY.to_owned(), "node".to_owned())].into_iter().collect(),
        power_on: true,
    };
    core.vcenter.create_vm(spec, actor, now).map(drop).map_err(refused)
}

fn create(core: &mut Core, deployment: &Value, now: SimTime) -> Result<(), Failure> {
    let mut object = deployment.clone();
    defaults::apply(KindId::DEPLOYMENT, &mut object, core.kubernetes.store());
    let created = core.kubernetes.store_mut().create(KindId::DEPLOYMENT, object, now);
    created.map(drop).map_err(|error| Failure::run(format!("the embedded Kubernetes refuses the story: {error}")))
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
