//! Failure of a physical host, and vSphere HA.
//!
//! A failed host's VMs lose power immediately. The vCenter detects the failure a few seconds later. HA then starts each
//! VM on another host of the cluster that has capacity and no rule against it, and retries every minute otherwise. A
//! host that recovers starts the VMs that are still assigned to it.
//!
//! Invariants: every step of a failure has its number, so that steps of a past failure do nothing. Restarts happen in
//! rounds, so that the loss of many hosts costs one evaluation of the cluster per round and not one per VM.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Step;
use super::drs::layout::{Layout, Obstacle, Policy};
use super::drs::view::ClusterView;
use super::events::About;
use super::operations::Actor;
use super::populate::RESPECT_ANTI_AFFINITY;
use super::tasks::{PowerChange, Work};
use crate::clock::SimTime;
use crate::vcenter::inventory::{Cluster, ClusterId, ConnectionState, HostId, Maintenance, PowerState, TaskId, VmId};
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::{Happening, MoveReason, Vcenter};

/// The delay before HA retries to restart a VM.
const RETRY: Duration = Duration::from_secs(60);
/// The interval between the rounds of a cluster.
const ROUND_MS: u64 = 5_000;

/// The VMs to restart in a round, each with the number of its failure.
pub(super) type Rounds = BTreeMap<(SimTime, ClusterId), Vec<(VmId, u64)>>;

#[derive(Debug)]
pub(super) struct Failure {
    number: u64,
    /// The VMs that lost power with the host and have not started since.
    lost: BTreeSet<VmId>,
    /// The VMs of `lost` whose failed restart has been reported.
    reported: BTreeSet<VmId>,
    booting: bool,
}

impl Vcenter {
    /// Powers off a physical host. No vSphere API does this.
    pub fn fail_host(&mut self, id: HostId, now: SimTime) -> Result<(), VimFault> {
        let host = self.inventory.host(id).ok_or(VimFault::ManagedObjectNotFound(id.into()))?;
        if self.physics.failures.contains_key(&id) {
            return Err(VimFault::InvalidState);
        }
        let (name, cluster) = (host.name.clone(), host.cluster);
        self.physics.failures_so_far += 1;
        let number = self.physics.failures_so_far;
        let running = self.inventory.vms_on(id).filter(|(_, vm)| vm.power == PowerState::On);
        let lost: BTreeSet<VmId> = running.map(|(vm, _)| vm).collect();
        let failure = Failure { number, lost: lost.clone(), reported: BTreeSet::new(), booting: false };
        self.physics.failures.insert(id, failure);
        self.happenings.push(Happening::HostFailed { host: name });
        for task in self.tasks_that_need(id) {
            self.end_task(task, Err(VimFault::HostNotConnected), now);
        }
        let ha = self.inventory.cluster(cluster).is_some_and(|cluster| cluster.ha.enabled);
        for vm in lost {
            self.lose_power(vm);
            if ha {
                let wait = self.physics.draw_seconds(15.0, 55.0);
                self.plan_restart(cluster, vm, number, now.after(wait));
            }
        }
        let wait = self.physics.draw_seconds(3.0, 8.0);
        self.schedule_in(now, wait, Step::HostFallsSilent { host: id, failure: number });
        Ok(())
    }

    /// Powers on a failed host. It is available after its boot.
    pub fn recover_host(&mut self, id: HostId, now: SimTime) -> Result<(), VimFault> {
        if self.inventory.host(id).is_none() {
            return Err(VimFault::ManagedObjectNotFound(id.into()));
        }
        let failure = self.physics.failures.get_mut(&id).filter(|failure| !failure.booting);
        let failure = failure.ok_or(VimFault::InvalidState)?;
        failure.booting = true;
        let number = failure.number;
        let wait = self.physics.draw_seconds(45.0, 90.0);
        self.schedule_in(now, wait, Step::HostBooted { host: id, failure: number });
        Ok(())
    }

    /// Whether the host is without power or still booting after a failure.
    #[must_use]
    pub fn host_has_failed(&self, id: HostId) -> bool {
        self.physics.failures.contains_key(&id)
    }

    /// The tasks that cannot continue without this host.
    fn tasks_that_need(&self, host: HostId) -> Vec<TaskId> {
        let on_host = |vm: VmId| self.inventory.vm(vm).is_some_and(|vm| vm.host == host);
        let needs = |work: &Work| match work {
            Work::Migrate { from, to, .. } => *from == host || *to == host,
            Work::Power { vm, .. } | Work::DestroyVm(vm) | Work::ReconfigureVm { vm, .. } => on_host(*vm),
            Work::CreateVm(spec) => spec.host == Some(host),
            Work::EnterMaintenance { host: other, .. }
            | Work::ExitMaintenance(other)
            | Work::DisconnectHost(other)
            | Work::ReconnectHost(other) => *other == host,
            Work::ReconfigureCluster { .. } | Work::Rename { .. } => false,
        };
        let operations = self.physics.operations.iter();
        operations.filter(|(_, operation)| needs(&operation.work)).map(|(task, _)| *task).collect()
    }

    /// A VM loses power with its host. There is no event, because the host that would send it is down.
    fn lose_power(&mut self, id: VmId) {
        let Some(vm) = self.inventory.vm_mut(id) else { return };
        vm.power = PowerState::Off;
        vm.boot_time = None;
        vm.cpu_demand_mhz = 0;
        vm.memory_demand_mib = 0;
        let (name, host) = (vm.name.clone(), vm.host);
        self.inventory.touch(host.into());
        self.happenings.push(Happening::VmPoweredOff { vm: id, name, host: self.name_of(host.into()) });
    }

    pub(super) fn host_falls_silent(&mut self, id: HostId, number: u64, now: SimTime) {
        let lost = self.physics.failures.get(&id).is_some_and(|failure| failure.number == number);
        if lost && !self.is_disconnected(id) {
            let name = self.set_connection(id, ConnectionState::NotResponding);
            let message = format!("Host {name} is not responding");
            self.post("HostConnectionLostEvent", About::host(id), &Actor::system().user, now, message);
        }
    }

    /// Adds a VM to the first round at or after `earliest`.
    fn plan_restart(&mut self, cluster: ClusterId, vm: VmId, failure: u64, earliest: SimTime) {
        let round = SimTime { unix_ms: earliest.unix_ms.div_ceil(ROUND_MS) * ROUND_MS };
        let vms = self.physics.ha_rounds.entry((round, cluster)).or_default();
        if vms.is_empty() {
            self.physics.timeline.schedule(round, Step::HaRound(cluster));
        }
        vms.push((vm, failure));
    }

    pub(super) fn ha_round(&mut self, cluster_id: ClusterId, now: SimTime) {
        let mut due = self.physics.ha_rounds.remove(&(now, cluster_id)).unwrap_or_default();
        due.retain(|(vm, failure)| self.waits_for_ha(*vm, *failure));
        let Some(cluster) = self.inventory.cluster(cluster_id).filter(|cluster| cluster.ha.enabled) else { return };
        let policy = Policy { anti_affinity: respects_anti_affinity(cluster), soft: false };
        let view = ClusterView::of(self, cluster_id, &due.iter().map(|(vm, _)| *vm).collect());
        let mut layout = Layout::new(&view);
        for (id, failure) in due {
            let Some(vm) = view.vm_index(id) else { continue };
            // As in DRS, preferred rules are kept if possible.
            let target = layout
                .best_target(&[vm], Policy { soft: true, ..policy })
                .or_else(|| layout.best_target(&[vm], policy));
            if let Some(target) = target {
                layout.move_vm(vm, target);
                self.ha_restart(id, view.hosts[target].id, now);
            } else {
                let obstacles = (0..view.hosts.len()).filter_map(|host| layout.obstacle(&[vm], host, policy));
                let reason = why_not(&view, &obstacles.collect::<Vec<_>>());
                self.cannot_restart(id, reason, now);
                self.plan_restart(cluster_id, id, failure, now.after(RETRY));
            }
        }
    }

    /// Whether the VM lost power in this failure and has not started since.
    fn waits_for_ha(&self, id: VmId, number: u64) -> bool {
        let Some(vm) = self.inventory.vm(id).filter(|vm| vm.power == PowerState::Off) else { return false };
        let failure = self.physics.failures.get(&vm.host);
        failure.is_some_and(|failure| failure.number == number && failure.lost.contains(&id))
    }

    fn ha_restart(&mut self, id: VmId, target: HostId, now: SimTime) {
        let Some(home) = self.inventory.vm(id).map(|vm| vm.host) else { return };
        if let Some(failure) = self.physics.failures.get_mut(&home) {
            failure.lost.remove(&id);
        }
        self.inventory.place_vm(id, target);
        let (name, from, to) = (self.name_of(id.into()), self.name_of(home.into()), self.name_of(target.into()));
        let message = format!("vSphere HA restarted {name} on {to} since {from} failed");
        let about = About { source_host: Some(home), ..About::vm(id) };
        self.post("VmRestartedOnAlternateHostEvent", about, &Actor::system().user, now, message);
        self.happenings.push(Happening::VmMoved { vm: id, name, from, to, reason: MoveReason::HaRestart });
        self.set_power(id, PowerState::On, "VmPoweredOnEvent", &Actor::system(), now);
    }

    fn cannot_restart(&mut self, id: VmId, reason: String, now: SimTime) {
        let Some(home) = self.inventory.vm(id).map(|vm| vm.host) else { return };
        let Some(failure) = self.physics.failures.get_mut(&home) else { return };
        if !failure.reported.insert(id) {
            return;
        }
        let name = self.name_of(id.into());
        let message = format!("Not enough resources to restart {name}: {reason}");
        self.post("NotEnoughResourcesToStartVmEvent", About::vm(id), &Actor::system().user, now, message);
        self.happenings.push(Happening::HaCannotRestart { name, reason });
    }

    pub(super) fn host_booted(&mut self, id: HostId, number: u64, now: SimTime) {
        if self.physics.failures.get(&id).is_none_or(|failure| failure.number != number) {
            return;
        }
        let Some(failure) = self.physics.failures.remove(&id) else { return };
        if let Some(host) = self.inventory.host_mut(id) {
            host.boot_time = now;
        }
        let name = self.name_of(id.into());
        if !self.is_disconnected(id) {
            self.set_connection(id, ConnectionState::Connected);
            let message = format!("Connected to {name}");
            self.post("HostConnectedEvent", About::host(id), &Actor::system().user, now, message);
        }
        self.happenings.push(Happening::HostRecovered { host: name });
        for vm in failure.lost {
            let wait = self.physics.draw_seconds(5.0, 20.0);
            self.schedule_in(now, wait, Step::StartAfterBoot { vm, host: id });
        }
    }

    /// Whether a client disconnected the host: then the vCenter neither reports its loss nor reconnects it.
    fn is_disconnected(&self, id: HostId) -> bool {
        self.inventory.host(id).is_some_and(|host| host.connection == ConnectionState::Disconnected)
    }

    /// Starts a VM that is still assigned to its old host and still off. If the host has entered maintenance in the
    /// meantime, DRS must find another host.
    pub(super) fn start_after_boot(&mut self, vm: VmId, host: HostId, now: SimTime) {
        let waits = self.inventory.vm(vm).is_some_and(|vm| vm.host == host && vm.power == PowerState::Off);
        if !waits || self.physics.failures.contains_key(&host) || self.physics.busy_vms.contains_key(&vm) {
            return;
        }
        let out_of_service = self.inventory.host(host).is_some_and(|host| host.maintenance != Maintenance::No);
        if out_of_service {
            self.begin(Work::Power { vm, change: PowerChange::On }, &Actor::system(), now);
        } else {
            self.set_power(vm, PowerState::On, "VmPoweredOnEvent", &Actor::system(), now);
        }
    }
}

/// `das.respectVmVmAntiAffinityRules`: unset means true, as on every version since 6.5.
fn respects_anti_affinity(cluster: &Cluster) -> bool {
    cluster.ha.options.get(RESPECT_ANTI_AFFINITY).is_none_or(|value| !value.eq_ignore_ascii_case("false"))
}

fn why_not(view: &ClusterView, obstacles: &[Obstacle]) -> String {
    match Obstacle::main(obstacles) {
        Obstacle::Rule(rule) => format!("rule {} leaves no host for it", view.rules[rule].name),
        Obstacle::Room => "no host has room for it".to_owned(),
        Obstacle::Busy | Obstacle::Host => "no other host accepts VMs".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, quiet};
    use super::*;
    use crate::vcenter::inventory::RuleKind;
    use crate::vcenter::{Config, DrsLevel};

    #[test]
    fn vms_of_a_failed_host_restart_elsewhere_and_the_host_recovers() {
        let mut bench = quiet(4, 12, DrsLevel::FullyAutomated);
        let host = bench.host("esx-1.lab");
        let lost: Vec<VmId> = bench.vcenter.inventory().vms_on(host).map(|(id, _)| id).collect();
        assert!(!lost.is_empty());
        bench.vcenter.fail_host(host, bench.now).unwrap();
        assert_eq!(bench.vcenter.fail_host(host, bench.now), Err(VimFault::InvalidState));
        for vm in &lost {
            assert_eq!(bench.vcenter.inventory().vm(*vm).unwrap().power, PowerState::Off);
        }
        bench.run(10);
        assert_eq!(bench.vcenter.inventory().host(host).unwrap().connection, ConnectionState::NotResponding);
        bench.run(120);
        for vm in &lost {
            let vm = bench.vcenter.inventory().vm(*vm).unwrap();
            assert!(vm.power == PowerState::On && vm.host != host, "{} restarted", vm.name);
        }
        assert_eq!(
            bench.happened(|h| matches!(h, Happening::VmMoved { reason: MoveReason::HaRestart, .. })),
            lost.len()
        );
        bench.vcenter.recover_host(host, bench.now).unwrap();
        bench.run(100);
        assert!(bench.vcenter.inventory().host(host).unwrap().takes_vms());
        assert_eq!(bench.happened(|h| matches!(h, Happening::HostRecovered { .. })), 1);
    }

    #[test]
    fn anti_affinity_blocks_a_restart_depending_on_the_option() {
        for (option, restarts) in [(None, false), (Some(true), false), (Some(false), true)] {
            let config = Config { hosts: 2, nodes: 2, ha_respects_anti_affinity: option, ..Config::default() };
            let mut bench = Bench::new(&config, 1);
            bench.place(&[("node-1", "esx-1.lab"), ("node-2", "esx-2.lab")]);
            let vms = vec![bench.vm("node-1"), bench.vm("node-2")];
            bench.add_rule("apart", RuleKind::AntiAffinity { vms }, false).unwrap();
            let (host, vm) = (bench.host("esx-1.lab"), bench.vm("node-1"));
            bench.vcenter.fail_host(host, bench.now).unwrap();
            bench.run(600);
            let on = bench.vcenter.inventory().vm(vm).unwrap().power == PowerState::On;
            assert_eq!(on, restarts, "option {option:?}");
            let reports =
                bench.happened(|h| matches!(h, Happening::HaCannotRestart { reason, .. } if reason.contains("apart")));
            assert_eq!(reports, usize::from(!restarts), "reported once");
            if !restarts {
                bench.vcenter.recover_host(host, bench.now).unwrap();
                bench.run(200);
                let vm = bench.vcenter.inventory().vm(vm).unwrap();
                assert!(vm.power == PowerState::On && vm.host == host, "starts again with its host");
            }
        }
    }

    #[test]
    fn vms_without_capacity_stay_off_until_there_is_some() {
        let config = Config { hosts: 3, nodes: 6, host_memory_mib: 40 * 1024, drs: DrsLevel::Off, ..Config::default() };
        let mut bench = Bench::new(&config, 1);
        for n in 1..=6 {
            bench.place(&[(&format!("node-{n}"), if n <= 3 { "esx-1.lab" } else { "esx-2.lab" })]);
        }
        let task = bench.vcenter.disconnect_host(bench.host("esx-3.lab"), &Bench::actor(), bench.now).unwrap();
        bench.await_task(task).unwrap();
        bench.vcenter.fail_host(bench.host("esx-1.lab"), bench.now).unwrap();
        bench.run(300);
        let running = |bench: &Bench| bench.vcenter.inventory().vms().filter(|(_, vm)| vm.boot_time.is_some()).count();
        assert!(running(&bench) < 6);
        assert!(
            bench.happened(|h| matches!(h, Happening::HaCannotRestart { reason, .. } if reason.contains("room"))) > 0
        );
        let task = bench.vcenter.reconnect_host(bench.host("esx-3.lab"), &Bench::actor(), bench.now).unwrap();
        bench.await_task(task).unwrap();
        bench.run(180);
        assert!(running(&bench) > 3, "{:?}", bench.lines());
    }

    #[test]
    fn retries_of_a_past_failure_do_nothing() {
        for seed in 0..30 {
            let mut bench = Bench::new(&Config { hosts: 2, nodes: 1, drs: DrsLevel::Off, ..Config::default() }, seed);
            bench.place(&[("node-1", "esx-1.lab")]);
            let (host, other, vm) = (bench.host("esx-1.lab"), bench.host("esx-2.lab"), bench.vm("node-1"));
            // HA has no host, so it will retry. In the meantime the host recovers and fails again.
            bench.vcenter.inventory.host_mut(other).unwrap().connection = ConnectionState::Disconnected;
            bench.vcenter.fail_host(host, bench.now).unwrap();
            bench.vcenter.recover_host(host, bench.now).unwrap();
            while bench.vcenter.inventory().vm(vm).unwrap().power == PowerState::Off {
                bench.run(1);
            }
            bench.vcenter.inventory.host_mut(other).unwrap().connection = ConnectionState::Connected;
            bench.vcenter.fail_host(host, bench.now).unwrap();
            bench.run(14);
            assert_eq!(bench.host_of(vm), host, "seed {seed}: restarted too early for this failure");
            bench.run(60);
            assert_eq!(bench.host_of(vm), other, "seed {seed}");
        }
    }

    #[test]
    fn a_host_in_maintenance_starts_no_vms_after_a_boot() {
        for (level, elsewhere) in [(DrsLevel::FullyAutomated, true), (DrsLevel::Off, false)] {
            let mut bench = Bench::new(&Config { hosts: 2, nodes: 1, ha: false, drs: level, ..Config::default() }, 1);
            bench.place(&[("node-1", "esx-1.lab")]);
            let (host, vm) = (bench.host("esx-1.lab"), bench.vm("node-1"));
            bench.vcenter.fail_host(host, bench.now).unwrap();
            bench.vcenter.recover_host(host, bench.now).unwrap();
            while bench.vcenter.host_has_failed(host) {
                bench.run(1);
            }
            let enter = bench.vcenter.enter_maintenance(host, 0, &Bench::actor(), bench.now).unwrap();
            bench.await_task(enter).unwrap();
            assert_eq!(bench.vcenter.inventory().vm(vm).unwrap().power, PowerState::Off, "none was running");
            bench.run(60);
            let vm = bench.vcenter.inventory().vm(vm).unwrap();
            assert_eq!((vm.power == PowerState::On, vm.host != host), (elsewhere, elsewhere), "{level:?}");
        }
    }

    #[test]
    fn a_disconnected_host_stays_disconnected_through_a_failure() {
        let mut bench = quiet(2, 2, DrsLevel::Off);
        let host = bench.host("esx-1.lab");
        let task = bench.vcenter.disconnect_host(host, &Bench::actor(), bench.now).unwrap();
        bench.await_task(task).unwrap();
        bench.vcenter.fail_host(host, bench.now).unwrap();
        bench.run(20);
        bench.vcenter.recover_host(host, bench.now).unwrap();
        bench.run(120);
        assert_eq!(bench.vcenter.inventory().host(host).unwrap().connection, ConnectionState::Disconnected);
        let task = bench.vcenter.reconnect_host(host, &Bench::actor(), bench.now).unwrap();
        bench.await_task(task).unwrap();
    }

    #[test]
    fn without_ha_vms_wait_for_their_host() {
        let mut bench = Bench::new(&Config { hosts: 2, nodes: 2, ha: false, ..Config::default() }, 1);
        bench.place(&[("node-1", "esx-1.lab")]);
        let (host, vm) = (bench.host("esx-1.lab"), bench.vm("node-1"));
        bench.vcenter.fail_host(host, bench.now).unwrap();
        bench.run(600);
        assert_eq!(bench.vcenter.inventory().vm(vm).unwrap().power, PowerState::Off);
        let on = bench.vcenter.power_on_vm(vm, &Bench::actor(), bench.now).unwrap();
        assert_eq!(bench.await_task(on), Err(VimFault::HostNotConnected));
        bench.vcenter.recover_host(host, bench.now).unwrap();
        bench.run(120);
        assert_eq!(bench.vcenter.inventory().vm(vm).unwrap().power, PowerState::On);
    }
}
