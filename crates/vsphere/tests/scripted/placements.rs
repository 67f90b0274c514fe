//! The two watches of the inventory, each with its own script: the events while they temporarily disagree.

use crate::inventory::{ID, SOURCE, follow, identified, listed, one_vm, one_vm_listed, session_ends, three_pages, vm};
use crate::vcenter::{Outcome, Step, Vcenter, at, object, page, reference, text};
use model::event::{Event, VmFacts};

/// A vCenter whose two watches have separate scripts.
fn with_placements(waits: Vec<Step>, placements: Vec<Step>) -> Vcenter {
    let vcenter = Vcenter::new(waits);
    vcenter.script.lock().unwrap().placements = Some(placements.into());
    vcenter
}

fn placed(kind: &str, id: &str, host: &str) -> String {
    object(kind, "VirtualMachine", id, &[("runtime.host", &reference("HostSystem", host))])
}

fn gone(id: &str) -> String {
    object("leave", "VirtualMachine", id, &[])
}

fn removed(id: &str) -> Event {
    Event::VmRemoved { vcenter: ID, id: id.to_owned() }
}

#[tokio::test(start_paused = true)]
async fn changes_between_the_two_lists_are_emitted_with_their_final_state() {
    // Between the lists vm-1 moved, vm-2 was created and vm-3 was deleted. The host of vm-4 is unknown.
    let named = |kind: &str, id: &str| object(kind, "VirtualMachine", id, &[("name", &text(&format!("name-of-{id}")))]);
    let waits = vec![
        at(0, page(&[named("enter", "vm-1"), named("enter", "vm-3"), named("enter", "vm-4")])),
        at(5, page(&[gone("vm-3"), named("enter", "vm-2")])),
    ];
    let placements = vec![
        at(0, page(&[placed("enter", "vm-1", "host-2"), placed("enter", "vm-2", "host-1")])),
        at(1, page(&[object("enter", "VirtualMachine", "vm-4", &[]), placed("modify", "vm-1", "host-3")])),
    ];
    let vcenter = with_placements(waits, placements);
    let mut following = follow(vcenter.config(), 64);
    let nowhere = VmFacts { id: "vm-4".to_owned(), name: "name-of-vm-4".to_owned(), ..VmFacts::default() };
    let expected = [
        identified(),
        Event::RelistBegan(SOURCE),
        vm("vm-1", "host-2"),
        Event::RelistEnded(SOURCE),
        vm("vm-1", "host-3"),
        Event::VmApplied { vcenter: ID, vm: nowhere },
        vm("vm-2", "host-1"),
    ];
    assert_eq!(following.events_for(600).await, expected);
    assert_eq!(vcenter.waits_dropped(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_leaves_one_watch_after_the_other_is_removed_once() {
    for (waits_first, seconds) in [(true, [1, 2]), (false, [2, 1])] {
        let mut waits = one_vm();
        waits.push(at(seconds[0], page(&[gone("vm-1")])));
        let placements = vec![at(0, page(&[placed("enter", "vm-1", "host-1")])), at(seconds[1], page(&[gone("vm-1")]))];
        let mut following = follow(with_placements(waits, placements).config(), 64);
        let mut expected = one_vm_listed();
        expected.push(removed("vm-1"));
        assert_eq!(following.events_for(600).await, expected, "inventory first: {waits_first}");
    }
}

#[tokio::test(start_paused = true)]
async fn if_either_watch_fails_lost_is_emitted_once() {
    let mut failures = vec![Outcome::Dropped, Outcome::Hangs, Outcome::Fault("NeverHeardOf")];
    failures.extend(session_ends());
    for failure in failures {
        for in_placements in [true, false] {
            let list = || at(0, page(&[placed("enter", "vm-1", "host-1")]));
            let (mut waits, mut placements) = (one_vm(), vec![list()]);
            if in_placements { &mut placements } else { &mut waits }.push(at(5, failure.clone()));
            waits.extend(one_vm());
            placements.push(list());
            // The other watch has no updates: its second list waits for the new session.
            let other = if in_placements { &mut waits } else { &mut placements };
            other.insert(1, at(0, Outcome::Hangs));
            let vcenter = with_placements(waits, placements);
            let mut following = follow(vcenter.config(), 64);
            let mut expected = one_vm_listed();
            expected.push(Event::Lost(SOURCE));
            expected.extend(one_vm_listed());
            assert_eq!(following.events_for(200).await, expected, "{failure:?}, placements: {in_placements}");
            assert_eq!(vcenter.calls("Login").len(), 2);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_vmotion_is_emitted_while_queries_are_pending() {
    let tasks = "<val><ManagedObjectReference type=\"Task\">task-1</ManagedObjectReference></val>";
    let mut waits = three_pages();
    waits.push(at(5, page(&[object("modify", "HostSystem", "host-1", &[("recentTask", tasks)])])));
    let placements = vec![
        at(0, page(&[placed("enter", "vm-1", "host-1")])),
        at(10, page(&[placed("modify", "vm-1", "host-2")])),
        at(10, page(&[placed("modify", "vm-1", "host-3")])),
    ];
    let vcenter = with_placements(waits, placements);
    let mut following = follow(vcenter.config(), 64);
    assert_eq!(following.events_for(1).await, listed());
    // The query of the host's task takes up to a minute; meanwhile the VM moves.
    vcenter.script.lock().unwrap().answers.insert("RetrievePropertiesEx", [Outcome::Hangs].into());
    assert_eq!(following.events_for(10).await, [vm("vm-1", "host-2")]);
    assert_eq!(following.events_for(10).await, [vm("vm-1", "host-3")]);
    // The query has a time limit.
    assert_eq!(following.events_for(45).await.first(), Some(&Event::Lost(SOURCE)));
}
