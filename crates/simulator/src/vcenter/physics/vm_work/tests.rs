use super::super::operations::{ClusterChange, Edit};
use super::super::testing::{Bench, quiet};
use super::*;
use crate::vcenter::inventory::{ClusterId, Group, TaskState};
use crate::vcenter::{Config, DrsLevel};

fn spec(bench: &Bench, name: &str) -> VmSpec {
    let cluster: ClusterId = bench.cluster();
    let inventory = bench.vcenter.inventory();
    VmSpec {
        name: name.to_owned(),
        folder: inventory.datacenters().next().unwrap().1.vm_folder,
        pool: inventory.cluster(cluster).unwrap().root_pool,
        host: None,
        cpu_count: 4,
        memory_mib: 8192,
        annotation: String::new(),
        extra_config: std::collections::BTreeMap::new(),
        power_on: true,
    }
}

#[test]
fn power_changes_and_a_repeated_change_is_rejected() {
    let mut bench = quiet(2, 1, DrsLevel::Off);
    let vm = bench.vm("node-1");
    type Operation = fn(&mut Vcenter, VmId, &Actor, SimTime) -> Result<crate::vcenter::inventory::TaskId, VimFault>;
    let steps: [(Operation, bool, PowerState); 9] = [
        (Vcenter::power_on_vm, false, PowerState::On),
        (Vcenter::suspend_vm, true, PowerState::Suspended),
        (Vcenter::suspend_vm, false, PowerState::Suspended),
        (Vcenter::power_on_vm, true, PowerState::On),
        (Vcenter::reset_vm, true, PowerState::On),
        (Vcenter::power_off_vm, true, PowerState::Off),
        (Vcenter::power_off_vm, false, PowerState::Off),
        (Vcenter::reset_vm, false, PowerState::Off),
        (Vcenter::power_on_vm, true, PowerState::On),
    ];
    for (number, (operation, works, after)) in steps.into_iter().enumerate() {
        let task = operation(&mut bench.vcenter, vm, &Bench::actor(), bench.now).unwrap();
        let outcome = bench.await_task(task);
        if works {
            assert_eq!(outcome, Ok(()), "step {number}");
        } else {
            assert!(matches!(outcome, Err(VimFault::InvalidPowerState { .. })), "step {number}: {outcome:?}");
        }
        let vm = bench.vcenter.inventory().vm(vm).unwrap();
        assert_eq!((vm.power, vm.boot_time.is_some()), (after, after == PowerState::On), "step {number}");
    }
}

#[test]
fn a_vm_is_created_started_resized_and_destroyed() {
    let mut bench = quiet(2, 2, DrsLevel::FullyAutomated);
    let new = spec(&bench, "node-9");
    let task = bench.vcenter.create_vm(new.clone(), &Bench::actor(), bench.now).unwrap();
    bench.await_task(task).unwrap();
    let vm = bench.vm("node-9");
    assert_eq!(bench.vcenter.inventory().task(task).unwrap().result, Some(vm.into()));
    bench.run(10);
    assert_eq!(bench.vcenter.inventory().vm(vm).unwrap().power, PowerState::On);
    let again = bench.vcenter.create_vm(new, &Bench::actor(), bench.now).unwrap();
    assert!(matches!(bench.await_task(again), Err(VimFault::DuplicateName { .. })));

    let bigger = VmChange { memory_mib: Some(16384), annotation: Some("big".to_owned()), ..VmChange::default() };
    let change = |bench: &mut Bench, change: VmChange| {
        let task = bench.vcenter.reconfigure_vm(vm, change, &Bench::actor(), bench.now).unwrap();
        bench.await_task(task)
    };
    assert!(matches!(change(&mut bench, bigger.clone()), Err(VimFault::InvalidPowerState { .. })), "no hot plug");
    assert_eq!(bench.vcenter.inventory().vm(vm).unwrap().annotation, "", "a failed change has no effect");
    let destroy = bench.vcenter.destroy_vm(vm, &Bench::actor(), bench.now).unwrap();
    assert!(matches!(bench.await_task(destroy), Err(VimFault::InvalidPowerState { .. })), "it runs");
    let off = bench.vcenter.power_off_vm(vm, &Bench::actor(), bench.now).unwrap();
    bench.await_task(off).unwrap();
    change(&mut bench, bigger).unwrap();
    assert_eq!(bench.vcenter.inventory().vm(vm).unwrap().memory_mib, 16384);
    let rename = VmChange { name: Some("node-1".to_owned()), ..VmChange::default() };
    assert!(matches!(change(&mut bench, rename), Err(VimFault::DuplicateName { .. })));
    let destroy = bench.vcenter.destroy_vm(vm, &Bench::actor(), bench.now).unwrap();
    bench.await_task(destroy).unwrap();
    assert!(bench.vcenter.inventory().vm(vm).is_none());
    assert_eq!(
        bench.vcenter.power_on_vm(vm, &Bench::actor(), bench.now),
        Err(VimFault::ManagedObjectNotFound(vm.into()))
    );
    assert_eq!(bench.happened(|h| matches!(h, Happening::VmDestroyed { name, .. } if name == "node-9")), 1);
}

#[test]
fn invalid_specs_are_faults() {
    let mut bench = quiet(1, 1, DrsLevel::Off);
    let good = spec(&bench, "x");
    let host_folder = bench.vcenter.inventory().datacenters().next().unwrap().1.host_folder;
    let cases = [
        VmSpec { name: String::new(), ..good.clone() },
        VmSpec { name: "x".repeat(81), ..good.clone() },
        VmSpec { cpu_count: 0, ..good.clone() },
        VmSpec { memory_mib: u64::MAX, ..good.clone() },
        VmSpec { folder: host_folder, ..good.clone() },
    ];
    for case in cases {
        let task = bench.vcenter.create_vm(case.clone(), &Bench::actor(), bench.now).unwrap();
        assert!(bench.await_task(task).is_err(), "{case:?}");
    }
    let gone = VmSpec { host: Some(HostId(9999)), ..good };
    assert!(matches!(
        bench.vcenter.create_vm(gone, &Bench::actor(), bench.now),
        Err(VimFault::ManagedObjectNotFound(_))
    ));
    assert_eq!(bench.vcenter.inventory().vms().count(), 1);
}

#[test]
fn a_destroyed_vm_is_removed_from_rules_and_groups() {
    let mut bench = quiet(3, 3, DrsLevel::FullyAutomated);
    let vms = vec![bench.vm("node-1"), bench.vm("node-2")];
    let group = Group { name: "g".to_owned(), members: GroupMembers::Vms(vms.clone()) };
    bench.reconfigure(ClusterChange { groups: vec![Edit::Add(group)], ..ClusterChange::default() }).unwrap();
    bench.add_rule("apart", RuleKind::AntiAffinity { vms: vms.clone() }, false).unwrap();
    bench.run(60);
    for operation in [Vcenter::power_off_vm, Vcenter::destroy_vm] {
        let task = operation(&mut bench.vcenter, vms[0], &Bench::actor(), bench.now).unwrap();
        bench.await_task(task).unwrap();
    }
    let cluster = bench.vcenter.inventory().cluster(bench.cluster()).unwrap();
    assert_eq!(cluster.rules[0].kind, RuleKind::AntiAffinity { vms: vec![vms[1]] });
    assert_eq!(cluster.groups[0].members, GroupMembers::Vms(vec![vms[1]]));
    bench.run(300);
}

#[test]
fn drs_starts_a_vm_on_a_host_without_a_blocking_rule() {
    for (level, moved) in [(DrsLevel::FullyAutomated, true), (DrsLevel::Manual, false)] {
        let mut bench = quiet(2, 2, level);
        bench.place(&[("node-1", "esx-1.lab"), ("node-2", "esx-2.lab")]);
        let vms = vec![bench.vm("node-1"), bench.vm("node-2")];
        let off = bench.vcenter.power_off_vm(vms[0], &Bench::actor(), bench.now).unwrap();
        bench.await_task(off).unwrap();
        bench.place(&[("node-1", "esx-2.lab")]);
        bench.add_rule("apart", RuleKind::AntiAffinity { vms: vms.clone() }, false).unwrap();
        let on = bench.vcenter.power_on_vm(vms[0], &Bench::actor(), bench.now).unwrap();
        bench.await_task(on).unwrap();
        assert_eq!(bench.host_of(vms[0]) != bench.host_of(vms[1]), moved, "{level:?}");
    }
}

#[test]
fn finished_tasks_are_bounded() {
    let mut bench = Bench::new(&Config { nodes: 1, hosts: 1, ..Config::default() }, 1);
    let vm = bench.vm("node-1");
    let first = bench.vcenter.power_on_vm(vm, &Bench::actor(), bench.now).unwrap();
    for _ in 0..crate::vcenter::inventory::TASKS_MAX {
        bench.vcenter.reconfigure_vm(vm, VmChange::default(), &Bench::actor(), bench.now).unwrap();
    }
    bench.run(60);
    assert!(bench.vcenter.inventory().task(first).is_none());
    assert_eq!(bench.vcenter.inventory().tasks().count(), crate::vcenter::inventory::TASKS_MAX);
    assert!(bench.vcenter.inventory().tasks().all(|(_, task)| task.state == TaskState::Success));
}

#[test]
fn renaming_checks_names_and_object_types() {
    let mut bench = quiet(1, 2, DrsLevel::Off);
    let vm = bench.vm("node-1");
    let rename = |bench: &mut Bench, object: MoRef, name: &str| {
        let task = bench.vcenter.rename(object, name, &Bench::actor(), bench.now).unwrap();
        bench.await_task(task)
    };
    assert_eq!(rename(&mut bench, vm.into(), "worker"), Ok(()));
    assert_eq!(bench.vcenter.inventory().vm(vm).unwrap().name, "worker");
    assert!(matches!(rename(&mut bench, vm.into(), "node-2"), Err(VimFault::DuplicateName { .. })));
    assert!(matches!(rename(&mut bench, vm.into(), ""), Err(VimFault::InvalidArgument { .. })));
    let (host, cluster) = (bench.host("esx-1.lab"), bench.cluster());
    assert_eq!(rename(&mut bench, host.into(), "h"), Err(VimFault::NotSupported));
    assert_eq!(rename(&mut bench, cluster.into(), "prod"), Ok(()));
}
