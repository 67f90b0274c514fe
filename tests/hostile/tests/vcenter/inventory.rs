//! Login and inventory: read once, and watched while VMs move, hosts enter maintenance and names change.

use std::sync::Arc;
use std::time::Duration;

use engine::runtime::Jitter;
use hostile::{Memory, alone};
use model::World;
use model::event::{Source, VcenterId};
use simulator::vcenter::physics::Actor;
use tokio::sync::{mpsc, watch};
use vsphere::config::VcenterConfig;
use vsphere::inventory::{self, Instances};
use vsphere::{VcenterStatus, connect_once};

use crate::conversation::{attack_conversation, config, embedded, in_virtual_time, recording};

const ID: VcenterId = VcenterId(0);
/// How long the watch is recorded.
const WATCHED: Duration = Duration::from_secs(150);

#[test]
fn number_10_no_response_of_a_vcenter_to_login_and_list_is_dangerous() {
    let (alone, runtime) = (alone(), in_virtual_time());
    let answers = runtime.block_on(async {
        let world = embedded();
        let (transport, log) = recording(&world);
        connect_once(&config(transport)).await.expect("the inventory");
        log.lock().expect("a log").clone()
    });
    let memory = Memory { fixed_bytes: 1 << 20, bytes_per_byte: 160 };
    attack_conversation(&alone, runtime, ("inventory", memory), &answers, async |config| {
        connect_once(&config).await.is_ok()
    });
}

#[test]
fn number_10_no_response_of_a_vcenter_to_a_watch_is_dangerous() {
    let (alone, runtime) = (alone(), in_virtual_time());
    let answers = runtime.block_on(async {
        let world = embedded();
        let (transport, log) = recording(&world);
        let (followed, ()) = tokio::join!(follow(config(transport)), change(&world));
        assert!(followed, "the recorded watch is in sync");
        log.lock().expect("a log").clone()
    });
    let updates = answers.iter().filter(|answer| answer.body.windows(6).any(|part| part == b"modify")).count();
    assert!(updates >= 5, "{updates} of {} responses have changes", answers.len());
    let memory = Memory { fixed_bytes: 4 << 20, bytes_per_byte: 160 };
    attack_conversation(&alone, runtime, ("watch", memory), &answers, follow);
}

/// Watches the inventory, and applies every event. Returns whether the world is in sync at the end.
async fn follow(config: VcenterConfig) -> bool {
    let (events, mut received) = mpsc::channel(16);
    let (status, _) = watch::channel(VcenterStatus::default());
    let stop = tokio::time::sleep(WATCHED);
    let watching = inventory::run(config, ID, Instances::default(), events, status, Jitter::from_seed(1), stop);
    let mut world = World::default();
    let applying = async {
        while let Some(event) = received.recv().await {
            world.apply(event);
        }
    };
    tokio::join!(watching, applying);
    world.in_sync(Source::Vcenter(ID))
}

/// Changes of everything that is watched.
async fn change(world: &Arc<simulator::World>) {
    let pause = || tokio::time::sleep(Duration::from_secs(15));
    pause().await;
    world.with(|core, now| {
        let inventory = core.vcenter.inventory();
        let (vm, from) = inventory.vms().map(|(id, vm)| (id, vm.host)).next().expect("a VM");
        let to = inventory.hosts().map(|(id, _)| id).find(|id| *id != from).expect("another host");
        core.vcenter.relocate_vm(vm, to, &Actor::system(), now).expect("it begins");
    });
    pause().await;
    world.with(|core, now| {
        let inventory = core.vcenter.inventory();
        let vm = inventory.vms().map(|(id, _)| id).last().expect("a VM");
        let host = inventory.hosts().map(|(id, _)| id).next().expect("a host");
        core.vcenter.rename(vm.into(), "renamed", &Actor::system(), now).expect("it begins");
        core.vcenter.rename(host.into(), "renamed.lab", &Actor::system(), now).expect("it begins");
        core.vcenter.power_off_vm(vm, &Actor::system(), now).expect("it begins");
    });
    pause().await;
    let host = world.with(|core, now| {
        let host = core.vcenter.inventory().hosts().map(|(id, _)| id).next().expect("a host");
        core.vcenter.enter_maintenance(host, 0, &Actor::system(), now).expect("it begins");
        host
    });
    pause().await;
    pause().await;
    world.with(|core, now| {
        core.vcenter.exit_maintenance(host, &Actor::system(), now).expect("it ends");
        let vm = core.vcenter.inventory().vms().map(|(id, _)| id).last().expect("a VM");
        core.vcenter.destroy_vm(vm, &Actor::system(), now).expect("it begins");
    });
}
