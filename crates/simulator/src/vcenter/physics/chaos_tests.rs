//! Random operations, rule changes, cancellations and host failures at the same time. DRS and HA never violate a rule
//! that applies to them, and at the end nothing is left unfinished.

use std::collections::BTreeMap;
use std::time::Duration;

use super::operations::{ClusterChange, Edit, RuleSpec, VmChange, VmSpec};
use super::tasks::Work;
use super::testing::Bench;
use crate::seed::{Seed, Stream};
use crate::vcenter::inventory::{
    ClusterId, DrsBehavior, Group, GroupMembers, HostId, Maintenance, PowerState, RuleKind, TaskId, VmId,
};
use crate::vcenter::{Config, Happening, MoveReason, Vcenter};

struct Chaos {
    bench: Bench,
    random: Stream,
    made: u32,
}

impl Chaos {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.random.below(from.len() as u64)).unwrap()]
    }

    fn vm(&mut self) -> VmId {
        let vms: Vec<VmId> = self.bench.vcenter.inventory.vms().map(|(id, _)| id).collect();
        self.pick(&vms)
    }

    /// A number of VMs, mostly from one cluster.
    fn vms(&mut self, count: u64) -> Vec<VmId> {
        let cluster = self.cluster();
        let vms: Vec<VmId> = (0..2 * count).map(|_| self.vm()).collect();
        let stray = self.random.chance(0.1);
        let inventory = &self.bench.vcenter.inventory;
        vms.into_iter().filter(|vm| stray || inventory.cluster_of(*vm) == Some(cluster)).collect()
    }

    fn host(&mut self) -> HostId {
        let hosts: Vec<HostId> = self.bench.vcenter.inventory.hosts().map(|(id, _)| id).collect();
        self.pick(&hosts)
    }

    fn cluster(&mut self) -> ClusterId {
        let clusters: Vec<ClusterId> = self.bench.vcenter.inventory.clusters().map(|(id, _)| id).collect();
        self.pick(&clusters)
    }

    fn rule(&mut self) -> RuleSpec {
        let kind = match self.random.below(4) {
            0 => RuleKind::Affinity { vms: self.vms(3) },
            1 | 2 => RuleKind::AntiAffinity { vms: self.vms(5) },
            _ => RuleKind::VmHost {
                vm_group: "vms".to_owned(),
                affine_host_group: self.random.chance(0.7).then(|| "hosts".to_owned()),
                anti_affine_host_group: self.random.chance(0.2).then(|| "hosts".to_owned()),
            },
        };
        RuleSpec {
            key: self.random.chance(0.5).then(|| i32::try_from(self.random.below(8)).unwrap()),
            name: Some(format!("rule-{}", self.random.below(8))),
            enabled: Some(self.random.chance(0.9)),
            mandatory: Some(self.random.chance(0.5)),
            kind: Some(kind),
            ..RuleSpec::default()
        }
    }

    fn cluster_change(&mut self) -> ClusterChange {
        let mut change = ClusterChange::default();
        match self.random.below(8) {
            0 => change.groups = vec![Edit::Remove("vms".to_owned())],
            1 => {
                let vms = Group { name: "vms".to_owned(), members: GroupMembers::Vms(self.vms(4)) };
                let hosts = vec![self.host(), self.host()];
                let hosts = Group { name: "hosts".to_owned(), members: GroupMembers::Hosts(hosts) };
                change.groups = vec![Edit::Add(vms), Edit::Add(hosts)];
            }
            2 => change.rules = vec![Edit::Remove(i32::try_from(self.random.below(8)).unwrap())],
            3 => change.rules = vec![Edit::Change(self.rule())],
            4 => {
                let behaviors = [DrsBehavior::Manual, DrsBehavior::PartiallyAutomated, DrsBehavior::FullyAutomated];
                change.drs_behavior = Some(self.pick(&behaviors));
            }
            _ => change.rules = vec![Edit::Add(self.rule())],
        }
        change
    }

    fn new_vm(&mut self) -> VmSpec {
        self.made += 1;
        let inventory = &self.bench.vcenter.inventory;
        let folder = inventory.datacenters().next().unwrap().1.vm_folder;
        let cluster = self.cluster();
        VmSpec {
            name: format!("extra-{}", self.made),
            folder,
            pool: self.bench.vcenter.inventory.cluster(cluster).unwrap().root_pool,
            host: self.random.chance(0.5).then(|| self.host()),
            cpu_count: 2,
            memory_mib: 4096,
            annotation: String::new(),
            extra_config: BTreeMap::new(),
            power_on: self.random.chance(0.7),
        }
    }

    fn act(&mut self) {
        let (vm, host, now, actor) = (self.vm(), self.host(), self.bench.now, Bench::actor());
        let choice = self.random.below(26);
        let (spec, change, cluster) = (self.new_vm(), self.cluster_change(), self.cluster());
        let timeout_s = i32::try_from(self.random.below(600)).unwrap() - 200;
        let tasks: Vec<TaskId> = self.bench.vcenter.inventory.tasks().map(|(id, _)| id).rev_take(8);
        let vcenter: &mut Vcenter = &mut self.bench.vcenter;
        let begun = match choice {
            0..=3 => vcenter.relocate_vm(vm, host, &actor, now),
            4 => vcenter.power_off_vm(vm, &actor, now),
            5 | 6 => vcenter.power_on_vm(vm, &actor, now),
            7 => vcenter.reset_vm(vm, &actor, now),
            8 => vcenter.suspend_vm(vm, &actor, now),
            9 => vcenter.create_vm(spec, &actor, now),
            10 => vcenter.destroy_vm(vm, &actor, now),
            11 => vcenter.reconfigure_vm(vm, VmChange::default(), &actor, now),
            12 => vcenter.enter_maintenance(host, timeout_s, &actor, now),
            13 => vcenter.exit_maintenance(host, &actor, now),
            14 => vcenter.disconnect_host(host, &actor, now),
            15 => vcenter.reconnect_host(host, &actor, now),
            16 => {
                let _ = vcenter.fail_host(host, now);
                return;
            }
            17 => {
                let _ = vcenter.recover_host(host, now);
                return;
            }
            18 => {
                if let Some(task) = tasks.first() {
                    let _ = vcenter.cancel_task(*task, now);
                }
                return;
            }
            _ => vcenter.reconfigure_cluster(cluster, change, &actor, now),
        };
        let task = begun.expect("the objects exist");
        if self.random.chance(0.1) {
            self.bench.vcenter.fail_task_halfway(task);
        }
    }

    /// Lets time pass, and checks the invariants after each step.
    fn watch(&mut self, wait: Duration) {
        let end = self.bench.now.after(wait);
        self.bench.run(0);
        while let Some(due) = self.bench.vcenter.next_due().filter(|due| *due <= end) {
            self.bench.now = due;
            self.bench.vcenter.step(due);
            for happening in self.bench.vcenter.take_happenings() {
                if let Happening::VmMoved { vm, reason, .. } = &happening
                    && *reason != MoveReason::Requested
                {
                    let host = self.bench.host_of(*vm);
                    let broken = self.bench.vcenter.rule_against(*vm, host, true);
                    assert_eq!(broken, None, "{happening}");
                    assert!(!self.bench.vcenter.host_has_failed(host), "{happening}");
                }
                self.bench.log.push((due, happening));
            }
        }
        self.bench.now = end;
    }
}

/// The last `count` items of an iterator.
trait RevTake<T> {
    fn rev_take(self, count: usize) -> Vec<T>;
}

impl<T, I: Iterator<Item = T>> RevTake<T> for I {
    fn rev_take(self, count: usize) -> Vec<T> {
        let all: Vec<T> = self.collect();
        all.into_iter().rev().take(count).collect()
    }
}

#[test]
fn random_operations_violate_no_rule_and_leave_nothing_unfinished() {
    let mut seen = BTreeMap::new();
    for seed in 0..60 {
        let config = Config { clusters: 2, hosts: 7, nodes: 16, ..Config::default() };
        let bench = Bench::new(&config, seed);
        let mut chaos = Chaos { bench, random: Seed(seed).stream("chaos"), made: 0 };
        for _ in 0..150 {
            chaos.act();
            let wait = Duration::from_millis(chaos.random.below(20_000));
            chaos.watch(wait);
        }
        // Afterwards every host recovers, and no client requests anything.
        for id in chaos.bench.vcenter.inventory.hosts().map(|(id, _)| id).collect::<Vec<_>>() {
            let now = chaos.bench.now;
            let _ = chaos.bench.vcenter.recover_host(id, now);
        }
        chaos.watch(Duration::from_secs(7200));
        assert_calm(&chaos.bench, seed);
        for (_, happening) in &chaos.bench.log {
            let line = happening.to_string();
            let reason = line.rsplit('(').next().filter(|_| line.contains(" moved ")).unwrap_or_default();
            *seen.entry(reason.to_owned()).or_insert(0) += 1;
        }
    }
    for reason in ["requested)", "DRS fixes a rule violation)", "DRS balances load)", "maintenance)", "HA restart)"] {
        assert!(seen.get(reason).is_some_and(|count| *count > 20), "{reason}: {seen:?}");
    }
}

fn assert_calm(bench: &Bench, seed: u64) {
    let physics = &bench.vcenter.physics;
    let inventory = bench.vcenter.inventory();
    for (task, operation) in &physics.operations {
        let age = bench.now.since(inventory.task(*task).unwrap().queued_at);
        let may_last = matches!(operation.work, Work::EnterMaintenance { .. }) || age < Duration::from_secs(60);
        assert!(may_last, "seed {seed}: {operation:?} never ended");
    }
    for (id, vm) in inventory.vms() {
        let busy = physics.busy_vms.contains_key(&id);
        assert!(vm.moving_to.is_none() || busy, "seed {seed}: {} is stuck", vm.name);
        assert!(inventory.vms_on(vm.host).any(|(other, _)| other == id), "seed {seed}: {} is not indexed", vm.name);
        assert!(vm.power == PowerState::On || vm.cpu_demand_mhz == 0);
    }
    let indexed: usize = inventory.hosts().map(|(id, _)| inventory.vms_on(id).count()).sum();
    assert_eq!(indexed, inventory.vms().count(), "seed {seed}");
    for (id, host) in inventory.hosts() {
        let entering = physics.operations.values().any(
            |operation| matches!(operation.work, Work::EnterMaintenance { host, .. } if host == id && operation.running),
        );
        assert_eq!(host.maintenance == Maintenance::Entering, entering, "seed {seed}: {}", host.name);
        if host.maintenance == Maintenance::In {
            assert!(inventory.vms_on(id).all(|(_, vm)| vm.power != PowerState::On), "seed {seed}: {}", host.name);
        }
    }
    assert!(physics.failures.is_empty(), "seed {seed}");
    physics.migrations.assert_matches(&physics.operations);
}
