//! Random worlds, steps, faults and crashes: the rules always converge, and rules of administrators are never changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::event::{Event, GroupFacts, GroupKind, RuleFacts, RuleKind};

use crate::stage::*;

const CLUSTERS: usize = 2;
const HOSTS: usize = 7;
const NODES: usize = 12;

fn runs() -> u64 {
    let full = std::env::var("BRIDGER_TEST_COUNTS").is_ok_and(|counts| counts == "full");
    if full { 2_000 } else { 60 }
}

/// The rules and groups of administrators, which must be unchanged at the end.
type Foreign = BTreeMap<String, (Vec<RuleFacts>, Vec<GroupFacts>)>;

fn foreign(outside: &Outside) -> Foreign {
    let state = outside.lock();
    let of = state.clusters.iter().map(|(id, facts)| {
        let rules = facts.rules.iter().filter(|rule| !rule.name.starts_with(PREFIX)).cloned().collect();
        (id.clone(), (rules, facts.groups.clone()))
    });
    of.collect()
}

/// Performs one random step.
async fn step(outside: &Arc<Outside>, expected: &mut Foreign, number: usize) {
    let (kind, cluster, node, app, other) = {
        let mut state = outside.lock();
        let (kind, cluster) = (state.draw(100), state.draw(CLUSTERS as u64) as usize);
        (kind, cluster, state.draw(NODES as u64) as usize, state.draw(4), state.draw(NODES as u64) as usize)
    };
    let id = format!("domain-c{cluster}");
    match kind {
        0..55 => {
            // At most one pod of an app on a node, and few enough that rules can be satisfied.
            let app = format!("app-{cluster}-{app}");
            let taken = {
                let state = outside.lock();
                let of: Vec<_> = state.pods.values().filter(|pod| pod.name.starts_with(&app)).collect();
                of.len() >= HOSTS - 1 || of.iter().any(|pod| pod.node == Some(node_name(cluster, node)))
            };
            if !taken {
                outside.add_pod(replica(&app, number, cluster, node)).await;
            }
        }
        55..80 => {
            let name = {
                let mut state = outside.lock();
                let count = state.pods.len() as u64;
                let pick = state.draw(count) as usize;
                state.pods.keys().nth(pick).cloned()
            };
            if let Some(name) = name {
                outside.remove_pod(&name).await;
            }
        }
        80..86 => outside.administer(&id, |facts, key| {
            // The name resembles Bridger's names. The two VMs are not special to any pod.
            let kind = RuleKind::VmAntiAffinity(vec![vm_id(cluster, node), vm_id(cluster, (node + 1) % NODES)]);
            facts.rules.push(rule(key, &format!("bridger-{key}"), kind));
            facts.groups.push(GroupFacts {
                name: format!("bridger-group-{key}"),
                user_created: true,
                kind: GroupKind::Vms(vec![vm_id(cluster, node)]),
            });
        }),
        86..90 => outside.administer(&id, |facts, _| {
            if let Some(index) = facts.rules.iter().position(|rule| !rule.name.starts_with(PREFIX)) {
                facts.rules.remove(index);
            }
        }),
        90..95 => {
            let vm = {
                let mut state = outside.lock();
                let vm = vm_id(cluster, other);
                if !state.invalid_vms.remove(&vm) {
                    state.invalid_vms.insert(vm.clone());
                }
                vm
            };
            outside.lock().history.push(format!("toggle invalid {vm}"));
        }
        _ => {
            // vMotion.
            let moved = {
                let mut state = outside.lock();
                let host = state.draw(HOSTS as u64);
                state.vms.get_mut(&vm_id(cluster, node)).map(|vm| {
                    vm.host = Some(format!("esx-{cluster}-{host}"));
                    vm.clone()
                })
            };
            if let Some(vm) = moved {
                outside.send_event(Event::VmApplied { vcenter: VCENTER, vm }).await;
            }
        }
    }
    if (80..90).contains(&kind) {
        *expected = foreign(outside);
    }
}

/// Whether a rule for this pair is expected. Each group needs anti-affinity, but all groups together may need more
/// hosts than there are; then a pair is left out.
fn can_be_apart(groups: &[BTreeSet<String>], a: &str, b: &str) -> bool {
    let are_apart = |a: &str, b: &str| groups.iter().any(|group| group.contains(a) && group.contains(b));
    let all: BTreeSet<&String> = groups.iter().flatten().collect();
    let around: Vec<&String> =
        all.into_iter().filter(|vm| *vm != a && *vm != b && are_apart(vm, a) && are_apart(vm, b)).collect();
    // The largest set with these two; a rule may have one member less than there are hosts, because the reserve is one
    // host.
    let most = (0..1_u32 << around.len()).filter_map(|chosen| {
        let chosen: Vec<&String> =
            around.iter().enumerate().filter(|(index, _)| chosen & 1 << index != 0).map(|(_, vm)| *vm).collect();
        let mut pairs = chosen.iter().enumerate().flat_map(|(index, a)| chosen[..index].iter().map(move |b| (a, b)));
        pairs.all(|(a, b)| are_apart(a, b)).then_some(chosen.len() + 2)
    });
    most.max().unwrap_or_default() < HOSTS
}

/// Checks what must hold after the cluster is quiet.
fn check(outside: &Outside, expected: &Foreign) -> Result<(), String> {
    if foreign(outside) != *expected {
        return Err("a rule or group of an administrator was changed".to_owned());
    }
    let state = outside.lock();
    for (id, facts) in &state.clusters {
        let own = state.own(id);
        let recorded = state.recorded_uuids(id);
        let existing: BTreeMap<String, Option<String>> =
            own.iter().map(|rule| (rule.name.clone(), rule.uuid.clone())).collect();
        if recorded != existing || existing.len() != own.len() {
            return Err(format!("{id}: recorded {recorded:?}\nexisting {existing:?}"));
        }
        let distinct: BTreeSet<_> = own.iter().map(|rule| members(&rule.kind)).collect();
        if distinct.len() != own.len() {
            return Err(format!("{id}: two rules for the same VMs: {own:?}"));
        }
        let covered = |a: &String, b: &String| {
            facts.rules.iter().filter(|rule| rule.enabled && matches!(rule.kind, RuleKind::VmAntiAffinity(_))).any(
                |rule| {
                    let members = members(&rule.kind);
                    members.contains(a) && members.contains(b)
                },
            )
        };
        let vms_of = |app: &str| -> Vec<String> {
            let of = state.pods.values().filter(|pod| pod.labels["app"] == app);
            let nodes = of.filter_map(|pod| pod.node.clone());
            nodes.map(|node| node.replace("node", "vm")).filter(|vm| state.vms.contains_key(vm)).collect()
        };
        let apps: BTreeSet<&String> = state.pods.values().map(|pod| &pod.labels["app"]).collect();
        let in_cluster = format!("app-{}-", id.trim_start_matches("domain-c"));
        let desired: Vec<Vec<String>> =
            apps.into_iter().filter(|app| app.starts_with(&in_cluster)).map(|app| vms_of(app)).collect();
        let of_others = facts.rules.iter().filter(|rule| !rule.name.starts_with(PREFIX)).map(|rule| &rule.kind);
        let groups: Vec<BTreeSet<String>> =
            desired.iter().map(|vms| vms.iter().cloned().collect()).chain(of_others.map(members)).collect();
        for vms in &desired {
            for (index, a) in vms.iter().enumerate() {
                if let Some(b) = vms[index + 1..].iter().find(|b| !covered(a, b) && can_be_apart(&groups, a, b)) {
                    return Err(format!("{id}: no anti-affinity rule has {a} and {b}: {:?}", facts.rules));
                }
            }
        }
    }
    Ok(())
}

/// One run: faults and crashes for a while, then quiet.
async fn run(seed: u64) -> (Result<(), String>, Vec<String>, usize) {
    let outside = Outside::new(seed, CLUSTERS, HOSTS, NODES);
    let mut expected = foreign(&outside);
    let mut process = Process::start(&outside, seed).await;
    let mut kills = 0;
    outside.lock().faults = Faults { fails: 12, answer_lost: 12 };
    for number in 0..60 {
        step(&outside, &mut expected, number).await;
        let (wait, kill) = {
            let mut state = outside.lock();
            // The watch is fast, or lags far behind.
            let echo = if state.draw(3) == 0 { state.draw(45_000) } else { state.draw(600) };
            state.echo = Duration::from_millis(echo);
            let wait = if state.draw(4) == 0 { state.draw(60_000) } else { state.draw(2_500) };
            (wait, state.draw(5) == 0)
        };
        tokio::time::sleep(Duration::from_millis(wait)).await;
        if kill {
            // Kills the process at any point; all its calls end with it.
            drop(process);
            kills += 1;
            process = Process::start(&outside, seed + number as u64).await;
        }
    }
    {
        let mut state = outside.lock();
        state.faults = Faults::default();
        state.invalid_vms.clear();
        state.echo = Duration::from_millis(300);
    }
    // Longer than all grace periods and backoffs together.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let verdict = check(&outside, &expected);
    let calls = outside.lock().change_calls;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let verdict = verdict.and_then(|()| {
        let later = outside.lock().change_calls - calls;
        if later == 0 { Ok(()) } else { Err(format!("{later} more changes although nothing happened")) }
    });
    drop(process);
    let history = outside.lock().history.clone();
    (verdict, history, kills)
}

#[test]
fn rules_converge_after_random_faults_and_crashes() {
    let (mut kills, mut lines) = (0, 0);
    for seed in 1..=runs() {
        let (verdict, history, killed) = in_virtual_time(run(seed));
        kills += killed;
        lines += history.len();
        if let Err(why) = verdict {
            let last = history.len().saturating_sub(25);
            panic!("seed {seed}: {why}\nthe last calls:\n{}", history[last..].join("\n"));
        }
    }
    assert!(kills as u64 > runs() * 5 && lines as u64 > runs() * 100, "{kills} kills, {lines} calls");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let history = |seed| in_virtual_time(run(seed)).1;
    let first = history(7);
    assert_eq!(first, history(7));
    assert_ne!(first, history(8));
}
