//! Complete histories: repeatable by seed, without rule violations for a day, and fast enough at full size.

use std::time::Instant;

use super::testing::Bench;
use crate::vcenter::inventory::{PowerState, RuleKind};
use crate::vcenter::{Config, Happening, MoveReason};

const DAY_S: u64 = 24 * 3600;

/// A day with rules, maintenance and a host failure.
fn eventful_day(seed: u64) -> Bench {
    let mut bench = Bench::new(&Config::default(), seed);
    let vms = (1..=3).map(|n| bench.vm(&format!("node-{n}"))).collect();
    bench.add_rule("apart", RuleKind::AntiAffinity { vms }, false).unwrap();
    bench.run(DAY_S / 3);
    let host = bench.host("esx-2.lab");
    bench.vcenter.enter_maintenance(host, 0, &Bench::actor(), bench.now).unwrap();
    bench.run(3600);
    bench.vcenter.exit_maintenance(host, &Bench::actor(), bench.now).unwrap();
    bench.run(DAY_S / 3);
    let host = bench.host("esx-3.lab");
    bench.vcenter.fail_host(host, bench.now).unwrap();
    bench.run(3600);
    bench.vcenter.recover_host(host, bench.now).unwrap();
    bench.run(DAY_S / 3);
    bench
}

#[test]
fn the_same_seed_repeats_a_day_and_another_seed_differs() {
    let (one, same, other) = (eventful_day(7).lines(), eventful_day(7).lines(), eventful_day(8).lines());
    assert_eq!(one, same);
    assert_ne!(one, other);
}

#[test]
fn in_a_day_drs_balances_and_never_violates_the_rule() {
    let mut bench = eventful_day(11);
    let balanced = bench.happened(|h| matches!(h, Happening::VmMoved { reason: MoveReason::DrsBalance, .. }));
    assert!((3..500).contains(&balanced), "{balanced} balancing moves in a day");
    assert_eq!(bench.happened(|h| matches!(h, Happening::HostEnteredMaintenance { .. })), 1, "{:?}", bench.lines());
    assert!(bench.vcenter.inventory().vms().all(|(_, vm)| vm.power == PowerState::On));
    // From here on, check the hosts of the three VMs at every step.
    let vms: Vec<_> = (1..=3).map(|n| bench.vm(&format!("node-{n}"))).collect();
    for _ in 0..2_000 {
        bench.run(10);
        let mut hosts: Vec<_> = vms.iter().map(|vm| bench.host_of(*vm)).collect();
        hosts.sort_unstable();
        hosts.dedup();
        assert_eq!(hosts.len(), 3);
    }
}

#[test]
fn five_thousand_vms_are_created_quickly_and_run_for_an_hour() {
    let began = Instant::now();
    let config = Config { hosts: 500, nodes: 5_000, ..Config::default() };
    let mut bench = Bench::new(&config, 1);
    let built = began.elapsed();
    bench.run(3600);
    let lived = began.elapsed() - built;
    // Generous, for a busy machine without optimisation; a plan that checked all pairs would take minutes.
    assert!(built.as_secs() < 5 && lived.as_secs() < 60, "built in {built:?}, an hour in {lived:?}");
    let moves = bench.happened(|h| matches!(h, Happening::VmMoved { .. }));
    assert!(moves > 100, "{moves} moves");
}
