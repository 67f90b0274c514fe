//! Simulated VM usage: a demand per VM that follows a daily curve, drifts randomly, and has occasional bursts.
//!
//! As with a real vCenter's quickStats, a VM's figures are updated every few minutes, not all at once: each demand step
//! updates a slice of the VMs. Only basic arithmetic is used, so that histories are identical on all machines.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Step;
use crate::clock::SimTime;
use crate::seed::{Seed, Stream};
use crate::vcenter::Vcenter;
use crate::vcenter::inventory::{HostId, PowerState, VmId};

/// The update interval of one VM's figures.
const RENEWAL: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(super) struct Demand {
    random: Stream,
    habits: BTreeMap<VmId, Habit>,
    shifts_so_far: u64,
}

/// The CPU and memory usage pattern of a VM, as fractions of its size.
#[derive(Clone, Debug)]
struct Habit {
    base: f64,
    swing: f64,
    /// The length of one cycle, and the VM's phase at the epoch.
    swing_ms: u64,
    phase_ms: u64,
    walk: f64,
    burst: f64,
    burst_shifts_left: u32,
    memory_base: f64,
}

impl Demand {
    pub fn new(seed: Seed) -> Demand {
        Demand { random: seed.stream("vcenter demand"), habits: BTreeMap::new(), shifts_so_far: 0 }
    }

    pub fn forget(&mut self, vm: VmId) {
        self.habits.remove(&vm);
    }

    /// The VM's next CPU and memory usage, as fractions of its size.
    fn next(&mut self, vm: VmId, now: SimTime) -> (f64, f64) {
        let random = &mut self.random;
        let habit = self.habits.entry(vm).or_insert_with(|| Habit::new(random));
        habit.shift(random);
        habit.shares(now)
    }
}

impl Habit {
    fn new(random: &mut Stream) -> Habit {
        let swing_ms = 3_600_000 * (4 + random.below(20));
        Habit {
            base: 0.10 + 0.45 * random.unit(),
            swing: 0.05 + 0.20 * random.unit(),
            swing_ms,
            phase_ms: random.below(swing_ms),
            walk: 0.0,
            burst: 0.0,
            burst_shifts_left: 0,
            memory_base: 0.30 + 0.30 * random.unit(),
        }
    }

    fn shift(&mut self, random: &mut Stream) {
        self.walk = (self.walk * 0.97 + 0.04 * (random.unit() - 0.5)).clamp(-0.15, 0.15);
        self.burst_shifts_left = self.burst_shifts_left.saturating_sub(1);
        if random.chance(0.01) {
            self.burst = 0.15 + 0.25 * random.unit();
            self.burst_shifts_left = 2 + u32::try_from(random.below(6)).unwrap_or(0);
        }
    }

    fn shares(&self, now: SimTime) -> (f64, f64) {
        let wave = wave((now.unix_ms + self.phase_ms) % self.swing_ms, self.swing_ms);
        let burst = if self.burst_shifts_left > 0 { self.burst } else { 0.0 };
        let cpu = (self.base + self.swing * wave + self.walk + burst).clamp(0.02, 0.95);
        let memory = (self.memory_base + 0.3 * self.swing * wave + 0.3 * self.walk).clamp(0.10, 0.90);
        (cpu, memory)
    }
}

/// Approximates a sine with parabolas: 0, 1, 0, -1, 0 over one length.
#[allow(clippy::cast_precision_loss)]
fn wave(at: u64, length: u64) -> f64 {
    let turn = at as f64 / length.max(1) as f64;
    let half = |x: f64| 4.0 * x * (1.0 - x);
    if turn < 0.5 { half(turn * 2.0) } else { -half(turn * 2.0 - 1.0) }
}

impl Vcenter {
    /// Updates the figures of this step's slice of VMs.
    pub(super) fn shift_demand(&mut self, now: SimTime) {
        let period = self.config.demand_period.max(Duration::from_secs(1));
        let slices = u64::try_from((RENEWAL.as_millis() / period.as_millis()).max(1)).unwrap_or(1);
        let slice = self.physics.demand.shifts_so_far % slices;
        self.physics.demand.shifts_so_far += 1;
        let vms: Vec<VmId> = self
            .inventory
            .vms()
            .filter(|(id, vm)| u64::from(id.0) % slices == slice && vm.power == PowerState::On)
            .map(|(id, _)| id)
            .collect();
        let mut hosts: BTreeSet<HostId> = BTreeSet::new();
        for vm in vms {
            hosts.extend(self.wake_demand(vm, now));
        }
        // A host's quickStats are the sum of its VMs' figures.
        for host in hosts {
            self.inventory.touch(host.into());
        }
        self.schedule_in(now, period, Step::ShiftDemand);
    }

    /// Sets a VM's current figures. Returns its host.
    pub(super) fn wake_demand(&mut self, id: VmId, now: SimTime) -> Option<HostId> {
        let (cpu, memory) = self.physics.demand.next(id, now);
        let host_id = self.inventory.vm(id)?.host;
        let core_mhz = f64::from(self.inventory.host(host_id)?.cpu_mhz);
        let vm = self.inventory.vm_mut(id)?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        {
            vm.cpu_demand_mhz = (cpu * f64::from(vm.cpu_count) * core_mhz) as u32;
            vm.memory_demand_mib = (memory * vm.memory_mib as f64) as u64;
        }
        Some(host_id)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::testing::Bench;
    use super::*;
    use crate::vcenter::Config;
    use crate::vcenter::inventory::MoRef;

    #[test]
    fn every_running_vm_is_updated_within_minutes() {
        let mut bench = Bench::new(&Config { nodes: 40, ..Config::default() }, 1);
        let off = bench.vm("node-7");
        let task = bench.vcenter.power_off_vm(off, &Bench::actor(), bench.now).unwrap();
        bench.await_task(task).unwrap();
        let version = bench.vcenter.version();
        bench.run(20);
        let vms = |bench: &Bench| -> BTreeSet<VmId> {
            let touched = bench.vcenter.inventory().touched_since(version).unwrap();
            touched.into_iter().filter_map(|o| if let MoRef::Vm(id) = o { Some(id) } else { None }).collect()
        };
        assert!(vms(&bench).len() < 20, "one step updates a slice");
        bench.run(320);
        assert_eq!(vms(&bench).len(), 39);
        assert!(!vms(&bench).contains(&off));
        assert_eq!(bench.vcenter.inventory().vm(off).unwrap().cpu_demand_mhz, 0);
    }

    #[test]
    fn demand_stays_within_the_vm_size_and_changes() {
        let mut random = Seed(1).stream("test");
        for _ in 0..50 {
            let mut habit = Habit::new(&mut random);
            let mut seen = (f64::MAX, f64::MIN);
            for hour in 0..48 {
                habit.shift(&mut random);
                let (cpu, memory) = habit.shares(SimTime::VIRTUAL_START.after(Duration::from_secs(hour * 3600)));
                assert!((0.02..=0.95).contains(&cpu) && (0.1..=0.9).contains(&memory));
                seen = (seen.0.min(cpu), seen.1.max(cpu));
            }
            assert!(seen.1 - seen.0 > 0.03, "{habit:?} hardly changes");
        }
    }
}
