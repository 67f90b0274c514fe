use proptest::prelude::*;

use super::super::operations::{ClusterChange, Edit};
use super::super::testing::{Bench, quiet};
use super::plan::{Plan, plan};
use super::view::{Constraint, HostView, Load, RuleView, VmView};
use super::*;
use crate::vcenter::inventory::Group;
use crate::vcenter::{Config, DrsLevel, Happening};

fn violates(at: &[usize], constraint: &Constraint) -> bool {
    match constraint {
        Constraint::Affinity { vms } => vms.windows(2).any(|pair| at[pair[0]] != at[pair[1]]),
        Constraint::AntiAffinity { vms } => {
            vms.iter().enumerate().any(|(i, &a)| vms[..i].iter().any(|&b| at[a] == at[b]))
        }
        Constraint::OnHosts { vms, allowed, .. } => vms.iter().any(|&vm| !allowed[at[vm]]),
    }
}

/// Any cluster: full and empty hosts, some that accept no VMs, migrating VMs, all rule types, with or without
/// conflicts.
fn any_view() -> impl Strategy<Value = ClusterView> {
    (1usize..6, 0usize..14).prop_flat_map(|(hosts, vms)| {
        let host = (0u8..8, 1u64..40).prop_map(move |(state, gib)| HostView {
            id: HostId(0),
            takes_vms: state > 1,
            evacuating: state == 1,
            capacity: Load { cpu_mhz: 20_000, memory_mib: gib * 1024 },
        });
        let vm = (0..hosts, proptest::option::weighted(0.1, 0..hosts), 0u64..8_000, 0u64..8_192, any::<bool>())
            .prop_map(|(host, leaving, cpu_mhz, memory_mib, movable)| VmView {
                id: VmId(0),
                host,
                leaving,
                load: Load { cpu_mhz, memory_mib },
                movable: movable && leaving.is_none(),
            });
        let members = proptest::collection::btree_set(0..vms.max(1), 0..=vms.min(5))
            .prop_map(|set| set.into_iter().collect::<Vec<_>>());
        let rule = (members, 0u8..5, proptest::collection::vec(any::<bool>(), hosts), any::<bool>()).prop_map(
            |(vms, kind, allowed, mandatory)| RuleView {
                name: "rule".to_owned(),
                constraint: match kind {
                    0 | 1 => Constraint::AntiAffinity { vms },
                    2 => Constraint::Affinity { vms },
                    _ => Constraint::OnHosts { vms, allowed, mandatory },
                },
            },
        );
        let rules = if vms == 0 { 0..1 } else { 0..6 };
        (
            proptest::collection::vec(host, hosts),
            proptest::collection::vec(vm, vms),
            proptest::collection::vec(rule, rules),
        )
            .prop_map(|(hosts, vms, rules)| ClusterView { hosts, vms, rules })
    })
}

/// The positions of the VMs after all moves.
fn outcome(view: &ClusterView, plan: &Plan) -> Vec<usize> {
    let mut at: Vec<usize> = view.vms.iter().map(|vm| vm.host).collect();
    for step in &plan.moves {
        at[step.vm] = step.to;
    }
    at
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_plan_creates_no_violation(view in any_view()) {
        let plan = plan(&view);
        prop_assert_eq!(&plan, &super::plan::plan(&view), "the same view gives the same plan");
        let mut moved = std::collections::BTreeSet::new();
        for step in &plan.moves {
            prop_assert!(moved.insert(step.vm), "a VM moves once");
            prop_assert!(view.vms[step.vm].movable && view.hosts[step.to].takes_vms);
            prop_assert!(step.from == view.vms[step.vm].host && step.from != step.to);
        }
        let before: Vec<usize> = view.vms.iter().map(|vm| vm.host).collect();
        let after = outcome(&view, &plan);
        // There is enough memory even while all VMs migrate.
        for target in plan.moves.iter().map(|step| step.to) {
            let there = (0..view.vms.len()).filter(|&vm| {
                [Some(before[vm]), Some(after[vm]), view.vms[vm].leaving].contains(&Some(target))
            });
            let memory_mib: u64 = there.map(|vm| view.vms[vm].load.memory_mib).sum();
            prop_assert!(memory_mib <= view.hosts[target].capacity.memory_mib, "{:?} overfills {target}", plan.moves);
        }
        for rule in &view.rules {
            match &rule.constraint {
                Constraint::Affinity { .. } => prop_assert!(
                    !violates(&after, &rule.constraint) || violates(&before, &rule.constraint),
                    "{:?} is violated by {:?}", rule, plan.moves
                ),
                // Regardless of the order in which the migrations end, no VM arrives where another member still is.
                Constraint::AntiAffinity { vms } => for step in plan.moves.iter().filter(|it| vms.contains(&it.vm)) {
                    for &other in vms.iter().filter(|&&other| other != step.vm) {
                        let also = [Some(before[other]), Some(after[other]), view.vms[other].leaving];
                        prop_assert!(!also.contains(&Some(step.to)), "{:?} breaks {:?}", step, rule);
                    }
                },
                Constraint::OnHosts { vms, allowed, mandatory } => {
                    for step in plan.moves.iter().filter(|step| vms.contains(&step.vm)) {
                        let binds = *mandatory || step.reason == MoveReason::DrsBalance;
                        prop_assert!(!binds || allowed[step.to], "{:?} breaks {:?}", step, rule);
                    }
                }
            }
        }
    }

    #[test]
    fn repeated_plans_converge(view in any_view()) {
        let mut view = view;
        for vm in &mut view.vms {
            vm.leaving = None;
        }
        for pass in 0.. {
            let plan = plan(&view);
            if plan.moves.is_empty() {
                break;
            }
            prop_assert!(pass < 100, "still moving: {:?}", plan.moves);
            let after = outcome(&view, &plan);
            for (vm, host) in view.vms.iter_mut().zip(after) {
                vm.host = host;
            }
        }
    }
}

/// A cluster of equal hosts (`t` accepts VMs, `e` is evacuating) and equal VMs; a host has capacity for four.
fn small(hosts: &str, vms: &[usize], rules: Vec<Constraint>) -> ClusterView {
    let host = |state: char| HostView {
        id: HostId(0),
        takes_vms: state == 't',
        evacuating: state == 'e',
        capacity: Load { cpu_mhz: 4_000, memory_mib: 4_000 },
    };
    let vm = |host: &usize| VmView {
        id: VmId(0),
        host: *host,
        leaving: None,
        load: Load { cpu_mhz: 1_000, memory_mib: 1_000 },
        movable: true,
    };
    let rule = |constraint| RuleView { name: "rule".to_owned(), constraint };
    ClusterView {
        hosts: hosts.chars().map(host).collect(),
        vms: vms.iter().map(vm).collect(),
        rules: rules.into_iter().map(rule).collect(),
    }
}

fn anti(vms: &[usize]) -> Constraint {
    Constraint::AntiAffinity { vms: vms.to_vec() }
}

fn on_hosts(vm: usize, allowed: &[bool], mandatory: bool) -> Constraint {
    Constraint::OnHosts { vms: vec![vm], allowed: allowed.to_vec(), mandatory }
}

/// Basic cases: the moves, as (VM, target), and the obstacles of stalled evacuations.
#[test]
fn basic_cases() {
    use Obstacle::{Host, Room, Rule};
    let affine = |vms: &[usize]| Constraint::Affinity { vms: vms.to_vec() };
    type Case = (&'static str, ClusterView, Vec<(usize, usize)>, Vec<Obstacle>);
    let cases: Vec<Case> = vec![
        ("nothing to do", small("tt", &[0, 1], vec![anti(&[0, 1])]), vec![], vec![]),
        ("VM-VM anti-affinity", small("tt", &[0, 0], vec![anti(&[0, 1])]), vec![(0, 1)], vec![]),
        ("VM-VM affinity, to the majority", small("tt", &[0, 1, 1], vec![affine(&[0, 1, 2])]), vec![(0, 1)], vec![]),
        ("anti-affinity without a target", small("te", &[0, 0], vec![anti(&[0, 1])]), vec![], vec![]),
        ("evacuated", small("et", &[0, 0], vec![]), vec![(0, 1), (1, 1)], vec![]),
        ("evacuated together", small("ett", &[0, 0, 1], vec![affine(&[0, 1])]), vec![(0, 2), (1, 2)], vec![]),
        ("no capacity", small("et", &[0, 1, 1, 1, 1], vec![]), vec![], vec![Room]),
        ("a blocking rule", small("et", &[0, 1], vec![anti(&[0, 1])]), vec![], vec![Rule(0)]),
        ("no other host", small("ee", &[0], vec![]), vec![], vec![Host]),
        ("mandatory VM-Host rule", small("et", &[0], vec![on_hosts(0, &[true, false], true)]), vec![], vec![Rule(0)]),
        ("preferred VM-Host rule", small("et", &[0], vec![on_hosts(0, &[true, false], false)]), vec![(0, 1)], vec![]),
        ("preferred target", small("tt", &[0], vec![on_hosts(0, &[false, true], false)]), vec![(0, 1)], vec![]),
        // VM 0 may only go to host 1, where VM 1 blocks it and can go to host 2.
        (
            "a blocking VM is moved",
            small("ett", &[0, 1], vec![anti(&[0, 1]), on_hosts(0, &[true, true, false], true)]),
            vec![(1, 2)],
            vec![],
        ),
        ("balance", small("tt", &[0, 0, 0, 0], vec![]), vec![(0, 1), (1, 1)], vec![]),
        ("balance within rules", small("tt", &[0, 0, 0, 1], vec![anti(&[0, 3]), affine(&[1, 2])]), vec![], vec![]),
    ];
    for (what, view, moves, stalls) in cases {
        let plan = plan(&view);
        assert_eq!(plan.moves.iter().map(|step| (step.vm, step.to)).collect::<Vec<_>>(), moves, "{what}");
        assert_eq!(plan.stalls.iter().map(|stall| stall.obstacle).collect::<Vec<_>>(), stalls, "{what}");
    }
}

#[test]
fn rule_violations_are_fixed_within_a_period() {
    let mut bench = quiet(4, 6, DrsLevel::FullyAutomated);
    let crowd: Vec<(String, &str)> = (1..=6).map(|n| (format!("node-{n}"), "esx-1.lab")).collect();
    bench.place(&crowd.iter().map(|(vm, host)| (vm.as_str(), *host)).collect::<Vec<_>>());
    let vm = |bench: &Bench, n: u32| bench.vm(&format!("node-{n}"));
    let (apart, together): (Vec<VmId>, Vec<VmId>) =
        ((1..=3).map(|n| vm(&bench, n)).collect(), (3..=4).map(|n| vm(&bench, n)).collect());
    bench.add_rule("together", RuleKind::Affinity { vms: together.clone() }, false).unwrap();
    bench.add_rule("apart", RuleKind::AntiAffinity { vms: apart.clone() }, false).unwrap();
    let groups = vec![
        Edit::Add(Group { name: "vms".to_owned(), members: GroupMembers::Vms(vec![vm(&bench, 5)]) }),
        Edit::Add(Group { name: "hosts".to_owned(), members: GroupMembers::Hosts(vec![bench.host("esx-4.lab")]) }),
    ];
    bench.reconfigure(ClusterChange { groups, ..ClusterChange::default() }).unwrap();
    let kind = RuleKind::VmHost {
        vm_group: "vms".to_owned(),
        affine_host_group: Some("hosts".to_owned()),
        anti_affine_host_group: None,
    };
    bench.add_rule("pinned", kind, true).unwrap();
    bench.run(60);
    let hosts: Vec<HostId> = apart.iter().map(|vm| bench.host_of(*vm)).collect();
    assert!(hosts[0] != hosts[1] && hosts[0] != hosts[2] && hosts[1] != hosts[2], "{:?}", bench.lines());
    assert_eq!(bench.host_of(together[0]), bench.host_of(together[1]));
    assert_eq!(bench.host_of(vm(&bench, 5)), bench.host("esx-4.lab"));
    assert!(bench.happened(|h| matches!(h, Happening::VmMoved { reason: MoveReason::DrsMend, .. })) >= 3);
    // A user moves one VM into a violation; DRS reverts it.
    let task = bench.vcenter.relocate_vm(apart[0], hosts[1], &Bench::actor(), bench.now).unwrap();
    bench.await_task(task).unwrap();
    assert_eq!(bench.host_of(apart[0]), bench.host_of(apart[1]));
    bench.run(120);
    assert_ne!(bench.host_of(apart[0]), bench.host_of(apart[1]));
    // No one can move a VM against a mandatory VM-Host rule.
    let elsewhere = bench.host("esx-1.lab");
    let task = bench.vcenter.relocate_vm(vm(&bench, 5), elsewhere, &Bench::actor(), bench.now).unwrap();
    assert_eq!(bench.await_task(task).map_err(|fault| fault.type_name()), Err("VmHostAffinityRuleViolation"));
}

#[test]
fn manual_and_partially_automated_only_recommend() {
    for level in [DrsLevel::Manual, DrsLevel::PartiallyAutomated] {
        let mut bench = quiet(2, 2, level);
        bench.place(&[("node-1", "esx-1.lab"), ("node-2", "esx-1.lab")]);
        let vms = vec![bench.vm("node-1"), bench.vm("node-2")];
        bench.add_rule("apart", RuleKind::AntiAffinity { vms: vms.clone() }, false).unwrap();
        bench.run(600);
        assert_eq!(bench.host_of(vms[0]), bench.host_of(vms[1]));
        let recommended = bench.vcenter.inventory().cluster(bench.cluster()).unwrap().recommendations.clone();
        assert_eq!(recommended.len(), 1, "{level:?}");
        assert_eq!(recommended[0].reason, MoveReason::DrsMend);
        let (vm, to) = (recommended[0].vm, recommended[0].to);
        let task = bench.vcenter.relocate_vm(vm, to, &Bench::actor(), bench.now).unwrap();
        bench.await_task(task).unwrap();
        bench.run(60);
        assert!(bench.vcenter.inventory().cluster(bench.cluster()).unwrap().recommendations.is_empty());
    }
}

#[test]
fn a_full_host_is_balanced_once() {
    let mut bench = quiet(3, 9, DrsLevel::FullyAutomated);
    for n in 1..=9 {
        bench.place(&[(&format!("node-{n}"), "esx-1.lab")]);
    }
    bench.run(1200);
    let moves = bench.happened(|h| matches!(h, Happening::VmMoved { reason: MoveReason::DrsBalance, .. }));
    assert!((2..=9).contains(&moves), "{:?}", bench.lines());
    bench.run(3600);
    let later = bench.happened(|h| matches!(h, Happening::VmMoved { .. }));
    assert_eq!(later, moves, "without a change of demand there is nothing left to do");
}

#[test]
fn a_rule_added_during_a_drs_migration_stops_it() {
    let mut bench = Bench::new(&Config { hosts: 2, nodes: 2, drs: DrsLevel::FullyAutomated, ..Config::default() }, 1);
    bench.place(&[("node-1", "esx-1.lab"), ("node-2", "esx-2.lab")]);
    let (a, b, to) = (bench.vm("node-1"), bench.vm("node-2"), bench.host("esx-2.lab"));
    let work = Work::Migrate { vm: a, from: bench.host("esx-1.lab"), to, reason: MoveReason::DrsBalance };
    let task = bench.vcenter.begin(work, &Actor::system(), bench.now);
    bench.run(1);
    bench.add_rule("apart", RuleKind::AntiAffinity { vms: vec![a, b] }, false).unwrap();
    assert!(bench.await_task(task).is_err());
    assert_ne!(bench.host_of(a), bench.host_of(b));
}
