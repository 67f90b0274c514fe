//! Faults on demand, as a client meets them.

use std::time::Duration;

use tokio::time::Instant;

use super::client::{Client, quiet_world, read_updates};
use crate::fault::{Fault, FaultRule, Frequency, Side};
use crate::world::World;

fn inject(world: &World, methods: &str, fault: Fault) {
    let rule = FaultRule::new(Side::Vcenter, methods, fault, Frequency::Times(1));
    world.with(|core, _| core.faults.add(rule)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_expired_session_and_an_error_status() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    inject(&world, "CurrentTime", Fault::HttpStatus { status: 503 });
    let now = async || client.call("CurrentTime", "ServiceInstance", "ServiceInstance", "").await;
    assert_eq!(now().await, Err("503 Service Unavailable".to_owned()));
    assert!(now().await.is_ok());
    inject(&world, "CurrentTime", Fault::DropConnection);
    assert_eq!(now().await, Err("connection dropped".to_owned()));
    inject(&world, "CurrentTime", Fault::SessionExpired);
    assert_eq!(now().await, Err("NotAuthenticated".to_owned()));
    assert_eq!(now().await, Err("NotAuthenticated".to_owned()), "it stays ended");
}

#[tokio::test(start_paused = true)]
async fn a_task_fails_halfway_without_effect() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let vm = client.find("dc-1/vm/node-1").await;
    let before = client.text("VirtualMachine", &vm, "runtime.host").await;
    let host = client.other_host(&vm).await;
    inject(&world, "*_Task", Fault::TaskFailsHalfway);
    assert!(client.relocate(&vm, &host).await.is_err());
    assert_eq!(client.text("VirtualMachine", &vm, "runtime.host").await, before);
    client.relocate(&vm, &host).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_slow_collector_answers_late_with_what_was_true_before() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let collector = client.follow("VirtualMachine", &["name"], false).await;
    inject(&world, "WaitForUpdatesEx", Fault::SlowCollector { millis: 9_000 });
    let started = Instant::now();
    let updates = read_updates(&client.wait(&collector, "", "").await.unwrap()).unwrap();
    assert_eq!(updates.objects.len(), 12);
    assert!(started.elapsed() >= Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn updates_come_twice_or_in_another_order() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let collector = client.follow("VirtualMachine", &["name"], false).await;
    let wait = async || read_updates(&client.wait(&collector, "", "").await.unwrap()).unwrap().objects;
    let plain = wait().await;
    inject(&world, "WaitForUpdatesEx", Fault::DuplicateEvents);
    let twice = wait().await;
    assert_eq!(twice.len(), 24);
    assert!(twice.chunks(2).zip(&plain).all(|(pair, one)| pair[0] == *one && pair[1] == *one));
    inject(&world, "WaitForUpdatesEx", Fault::ReorderedEvents);
    let mut shuffled = wait().await;
    assert_ne!(shuffled, plain);
    shuffled.sort();
    let mut sorted = plain;
    sorted.sort();
    assert_eq!(shuffled, sorted);
}
