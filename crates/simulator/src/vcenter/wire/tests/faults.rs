//! Injected faults from a client's view.

use std::time::Duration;

use tokio::time::Instant;

use super::client::{Client, object_spec, quiet_world, read_updates};
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
    assert_eq!(now().await, Err("NotAuthenticated".to_owned()), "the session stays ended");
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
async fn a_slow_collector_answers_late_with_the_earlier_state() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let collector = client.follow("VirtualMachine", &["name"], false).await;
    let vm = client.find("dc-1/vm/node-1").await;
    inject(&world, "RetrievePropertiesEx", Fault::SlowCollector { millis: 9_000 });
    let spec = object_spec("VirtualMachine", "runtime.powerState", "VirtualMachine", &vm);
    let retrieve = async || {
        let arguments = format!("{spec}<options/>");
        let answer = client.call("RetrievePropertiesEx", "PropertyCollector", "propertyCollector", &arguments).await;
        let object = answer.unwrap().child("returnval").unwrap().child("objects").unwrap().clone();
        object.child("propSet").unwrap().child_text("val").unwrap().to_owned()
    };
    let power_off = async || client.reference("PowerOffVM_Task", "VirtualMachine", &vm, "").await;
    let (power, _) = tokio::join!(retrieve(), power_off());
    assert_eq!(power, "poweredOn", "it was powered off during the nine seconds");
    assert_eq!(retrieve().await, "poweredOff");

    inject(&world, "WaitForUpdatesEx", Fault::SlowCollector { millis: 9_000 });
    let started = Instant::now();
    let updates = read_updates(&client.wait(&collector, "", "").await.unwrap()).unwrap();
    assert_eq!(updates.objects.len(), 12);
    assert!(started.elapsed() >= Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn updates_arrive_twice_or_in_another_order() {
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

#[tokio::test(start_paused = true)]
async fn latency_delays_only_one_method() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    inject(&world, "CurrentTime", Fault::Latency { millis: 4_000 });
    let started = Instant::now();
    client.find("dc-1/vm/node-1").await;
    assert!(started.elapsed() < Duration::from_secs(1));
    client.call("CurrentTime", "ServiceInstance", "ServiceInstance", "").await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_connection_has_an_effect_and_an_error_status_has_none() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let vm = client.find("dc-1/vm/node-1").await;
    for (fault, power) in [(Fault::HttpStatus { status: 500 }, "poweredOn"), (Fault::DropConnection, "poweredOff")] {
        inject(&world, "PowerOffVM_Task", fault);
        client.call("PowerOffVM_Task", "VirtualMachine", &vm, "").await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(client.text("VirtualMachine", &vm, "runtime.powerState").await, power);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fault_remains_until_a_request_that_it_applies_to() {
    let world = quiet_world(|_| ());
    inject(&world, "*", Fault::SessionExpired);
    let client = Client::logged_in(&world).await;
    let now = async || client.call("CurrentTime", "ServiceInstance", "ServiceInstance", "").await;
    assert_eq!(now().await, Err("NotAuthenticated".to_owned()), "a login has no session to end");

    let client = Client::logged_in(&world).await;
    inject(&world, "*_Task", Fault::TaskFailsHalfway);
    let parent = client.find("dc-1/vm").await;
    let folder = client.reference("CreateFolder", "Folder", &parent, "<name>f</name>").await;
    let destroy = client.reference("Destroy_Task", "Folder", &folder, "").await;
    client.await_task(&destroy).await.expect("it completes immediately and cannot fail halfway");
    let vm = client.find("dc-1/vm/node-1").await;
    let host = client.other_host(&vm).await;
    client.relocate(&vm, &host).await.unwrap_err();
}
