//! One situation per test: order of writes, pace, faults, the record.

use std::time::Duration;

use model::event::{Event, PodFacts, RuleKind, Source};

use crate::stage::*;

const C: &str = "domain-c0";

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

#[test]
fn pods_get_a_rule_that_is_recorded_first_edited_in_place_and_deleted_after_the_grace() {
    in_virtual_time(async {
        let outside = Outside::new(1, 1, 6, 6);
        let process = Process::start(&outside, 1).await;
        for number in 0..3 {
            outside.add_pod(replica("web", number, 0, number)).await;
        }
        seconds(5).await;
        let uuid = {
            let state = outside.lock();
            let own = state.own(C);
            assert_eq!(own.len(), 1);
            assert_eq!(members(&own[0].kind), [0, 1, 2].map(|node| vm_id(0, node)).into());
            assert_eq!(state.recorded_uuids(C)[&own[0].name], own[0].uuid, "read back and recorded");
            assert_eq!(state.change_calls, 1);
            own[0].uuid.clone()
        };
        outside.remove_pod("web-2").await;
        outside.add_pod(replica("web", 3, 0, 4)).await;
        seconds(400).await;
        {
            let state = outside.lock();
            let own = state.own(C);
            assert_eq!((own.len(), &own[0].uuid), (1, &uuid), "the same rule");
            assert_eq!(members(&own[0].kind), [0, 1, 4].map(|node| vm_id(0, node)).into());
        }
        for name in ["web-0", "web-1", "web-3"] {
            outside.remove_pod(name).await;
        }
        seconds(200).await;
        assert_eq!(outside.lock().own(C).len(), 1, "not before the grace");
        seconds(130).await;
        let state = outside.lock();
        assert!(state.own(C).is_empty() && state.recorded_uuids(C).is_empty());
        let counters = &process.counters.rules;
        assert_eq!((counters.created.get(), counters.deleted.get(), counters.owned()), (1, 1, 0));
        assert_eq!((counters.behind_seconds(), counters.problem_text()), (0, None));
    });
}

#[test]
fn a_burst_of_pods_is_one_change() {
    in_virtual_time(async {
        let outside = Outside::new(2, 1, 40, 100);
        let _process = Process::start(&outside, 1).await;
        seconds(5).await;
        for number in 0..100 {
            outside.add_pod(replica(&format!("app-{}", number % 10), number, 0, number)).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        seconds(10).await;
        let state = outside.lock();
        assert_eq!((state.change_calls, state.save_calls), (1, 2));
        assert!(!state.own(C).is_empty());
    });
}

#[test]
fn while_pods_keep_arriving_passes_take_a_tenth_of_the_time() {
    in_virtual_time(async {
        let outside = Outside::new(21, 1, 40, 600);
        let _process = Process::start(&outside, 1).await;
        seconds(5).await;
        let began = tokio::time::Instant::now();
        // Pairs of replicas; each pair gets a separate rule. No namespace has as many as the limit.
        for number in 0..600 {
            let pod = replica(&format!("app-{}", number / 2), number, 0, number);
            outside.add_pod(PodFacts { namespace: format!("tenant-{}", number / 150), ..pod }).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let storm_s = began.elapsed().as_secs() as usize;
        let changes = outside.lock().change_calls;
        // A pass makes five calls of 60 ms, and its echo takes 300 ms: without a rest there would be more than one per
        // second.
        assert!((storm_s / 10..=storm_s / 2).contains(&changes), "{changes} changes in {storm_s} s");
        seconds(15).await;
        assert_eq!(outside.lock().own(C).len(), 300, "the last ones too");
    });
}

/// A pass that only updates the record also takes time. A plan that becomes due during it is made afterwards.
#[test]
fn a_plan_that_falls_due_during_a_pass_is_made() {
    for delay in 0..60 {
        in_virtual_time(async {
            let outside = Outside::new(delay, 1, 6, 6);
            let process = Process::start(&outside, 1).await;
            for number in 0..3 {
                outside.add_pod(replica("web", number, 0, number)).await;
            }
            seconds(20).await;
            let saves = outside.calls().1;
            // Its VM leaves the rule after the grace period: this is recorded now, and no rule is changed.
            outside.remove_pod("web-2").await;
            tokio::time::sleep(Duration::from_millis(500 + 20 * delay)).await;
            outside.add_pod(replica("web", 3, 0, 3)).await;
            seconds(20).await;
            assert!(outside.calls().1 > saves, "something was recorded");
            let state = outside.lock();
            let own = state.own(C);
            assert!(members(&own[0].kind).contains(&vm_id(0, 3)), "{delay}: {:?}", state.history);
            assert_eq!(process.counters.rules.behind_seconds(), 0);
        });
    }
}

#[test]
fn nothing_is_written_while_a_source_is_not_in_sync() {
    for source in [Source::Nodes, Source::Pods, Source::Namespaces, Source::Vcenter(VCENTER)] {
        in_virtual_time(async {
            let outside = Outside::new(3, 1, 6, 6);
            let _process = Process::start(&outside, 1).await;
            seconds(5).await;
            outside.send_event(Event::Lost(source)).await;
            outside.send_event(Event::RelistBegan(source)).await;
            for number in 0..3 {
                outside.add_pod(replica("web", number, 0, number)).await;
            }
            seconds(120).await;
            assert_eq!(outside.calls(), (0, 0), "{source:?} is being relisted");
            // The relist failed, and the known state is stale by now.
            outside.send_event(Event::Lost(source)).await;
            seconds(301).await;
            outside.add_pod(replica("web", 4, 0, 4)).await;
            seconds(60).await;
            let late = outside.lock().own(C).iter().any(|rule| members(&rule.kind).contains(&vm_id(0, 4)));
            assert!(!late, "{source:?} is stale");
        });
    }
}

#[test]
fn one_invalid_vm_does_not_block_the_other_rules() {
    in_virtual_time(async {
        let outside = Outside::new(4, 1, 10, 200);
        for invalid in [7, 120] {
            outside.lock().invalid_vms.insert(vm_id(0, invalid));
        }
        let process = Process::start(&outside, 1).await;
        seconds(5).await;
        // Pairs of replicas; each pair gets a separate rule.
        for number in 0..100 {
            for half in 0..2 {
                let pod = replica(&format!("app-{number:03}"), half, 0, number * 2 + half);
                outside.add_pod(pod).await;
            }
        }
        seconds(20).await;
        let first_calls = {
            let state = outside.lock();
            assert_eq!(state.own(C).len(), 98);
            // Two binary searches, and one retry of each rejected change.
            assert!(state.change_calls <= 1 + 2 * 2 * 7 + 2, "{} calls", state.change_calls);
            state.change_calls
        };
        let problem = process.counters.rules.problem_text().expect("it is reported");
        assert!(problem.contains("RuleRejected") && problem.contains("is not a VM"), "{problem}");
        seconds(3600).await;
        let later = outside.lock().change_calls - first_calls;
        assert!((4..60).contains(&later), "retried, but rarely: {later}");
        outside.lock().invalid_vms.clear();
        seconds(600).await;
        assert_eq!(outside.lock().own(C).len(), 100);
        assert_eq!(process.counters.rules.problem_text(), None);
    });
}

#[test]
fn a_watch_that_lags_is_waited_for_and_reported() {
    in_virtual_time(async {
        let outside = Outside::new(5, 1, 6, 6);
        let process = Process::start(&outside, 1).await;
        seconds(5).await;
        outside.lock().echo = Duration::from_secs(90);
        outside.administer(C, |facts, key| {
            facts.rules.push(rule(key, "admin", RuleKind::VmAntiAffinity(vec![vm_id(0, 5)])));
        });
        for number in 0..2 {
            outside.add_pod(replica("web", number, 0, number)).await;
        }
        seconds(60).await;
        assert_eq!(outside.lock().change_calls, 0);
        let problem = process.counters.rules.problem_text().expect("it is reported");
        assert!(problem.contains("WatchLags"), "{problem}");
        seconds(60).await;
        assert_eq!((outside.calls().0, process.counters.rules.problem_text()), (1, None));
        seconds(600).await;
        assert_eq!(outside.lock().change_calls, 1, "and only once");
    });
}

#[test]
fn a_record_deleted_by_hand_stops_the_writer_until_there_is_one_again() {
    in_virtual_time(async {
        let outside = Outside::new(6, 1, 6, 6);
        let mut process = Process::start(&outside, 1).await;
        for number in 0..3 {
            outside.add_pod(replica("web", number, 0, number)).await;
        }
        seconds(10).await;
        let stored = std::mem::take(&mut outside.lock().stored);
        outside.add_pod(replica("db", 0, 0, 1)).await;
        outside.add_pod(replica("db", 1, 0, 5)).await;
        for restarted in [false, true] {
            if restarted {
                process = Process::start(&outside, 2).await;
            }
            seconds(120).await;
            let state = outside.lock();
            assert_eq!(
                (state.own(C).len(), state.change_calls, state.stored.len()),
                (1, 1, 0),
                "restarted {restarted}"
            );
            let problem = process.counters.rules.problem_text().expect("it is reported");
            assert!(problem.contains("RecordGone") && problem.contains("bridger adopt"), "{problem}");
        }
        // An administrator restores the record, which takes effect within seconds.
        outside.lock().stored = stored;
        seconds(10).await;
        let state = outside.lock();
        assert_eq!(state.recorded_uuids(C).len(), state.own(C).len());
        assert!(state.change_calls >= 2);
        assert_eq!(process.counters.rules.problem_text(), None);
    });
}

#[test]
fn a_rule_is_not_edited_after_its_record_is_deleted() {
    in_virtual_time(async {
        let outside = Outside::new(9, 1, 6, 6);
        let process = Process::start(&outside, 1).await;
        for number in 0..2 {
            outside.add_pod(replica("web", number, 0, number)).await;
        }
        seconds(10).await;
        outside.lock().stored.clear();
        // An edit does not change the record, so only an extra save of the record detects that it is deleted.
        outside.add_pod(replica("web", 2, 0, 2)).await;
        seconds(5).await;
        let state = outside.lock();
        assert_eq!((state.own(C).len(), state.change_calls), (1, 1));
        assert_eq!(members(&state.own(C)[0].kind).len(), 2);
        assert!(process.counters.rules.problem_text().is_some_and(|text| text.contains("RecordGone")));
    });
}

#[test]
fn records_of_other_vcenters_are_left_unchanged_and_unreadable_ones_stop_the_writer() {
    in_virtual_time(async {
        let outside = Outside::new(7, 1, 6, 6);
        let stranger = ("?".to_owned(), 1);
        outside.lock().stored.insert("another/domain-c0".to_owned(), stranger.clone());
        outside.lock().stored.insert(format!("{INSTANCE}/{C}"), ("torn".to_owned(), 2));
        let process = Process::start(&outside, 1).await;
        for number in 0..3 {
            outside.add_pod(replica("web", number, 0, number)).await;
        }
        seconds(60).await;
        assert_eq!(outside.lock().save_calls, 0);
        assert!(process.counters.rules.problem_text().is_some_and(|text| text.contains("RecordUnreadable")));
        outside.lock().stored.remove(&format!("{INSTANCE}/{C}"));
        seconds(10).await;
        assert_eq!(outside.lock().own(C).len(), 1);
        assert_eq!(outside.lock().stored["another/domain-c0"], stranger);
    });
}

#[test]
fn a_dry_run_writes_nothing_anywhere() {
    in_virtual_time(async {
        let outside = Outside::new(8, 1, 6, 6);
        let process = Process::start_with(&outside, 1, |settings| settings.dry_run = true).await;
        for number in 0..3 {
            outside.add_pod(replica("web", number, 0, number)).await;
        }
        outside.add_pod(replica("same", 0, 0, 1)).await;
        outside.add_pod(replica("same", 1, 0, 1)).await;
        seconds(600).await;
        let state = outside.lock();
        assert_eq!((state.change_calls, state.save_calls, state.posted.len()), (0, 0, 0));
        let findings = process.counters.rules.findings();
        assert!(
            findings.iter().any(|(name, count)| name.eq_ignore_ascii_case("SameVm") && *count == 1),
            "{findings:?}"
        );
    });
}

#[test]
fn an_unsatisfiable_policy_is_reported_once_on_its_pods() {
    in_virtual_time(async {
        let outside = Outside::new(9, 1, 4, 6);
        let _process = Process::start(&outside, 1).await;
        for number in 0..6 {
            outside.add_pod(replica("web", number, 0, number)).await;
        }
        seconds(30).await;
        let first = outside.lock().posted.clone();
        assert_eq!(first.len(), 6, "{first:?}");
        assert!(first.iter().all(|event| event.reason == "Unsatisfiable"));
        assert!(
            ["6 replicas", "4 hosts, with a reserve of 1"].iter().all(|part| first[0].message.contains(part)),
            "{first:?}"
        );
        // A change that does not affect the finding.
        outside.add_pod(replica("other", 0, 0, 0)).await;
        seconds(7200).await;
        assert_eq!(outside.lock().posted.len(), 6);
    });
}

#[test]
fn clusters_do_not_wait_for_each_other() {
    in_virtual_time(async {
        let outside = Outside::new(10, 3, 6, 6);
        let _process = Process::start(&outside, 1).await;
        seconds(5).await;
        for cluster in 0..3 {
            for number in 0..3 {
                outside.add_pod(replica(&format!("web-{cluster}"), number, cluster, number)).await;
            }
        }
        // The rules of one cluster cannot be written.
        outside.lock().invalid_vms.insert(vm_id(1, 0));
        seconds(10).await;
        let state = outside.lock();
        let counts = [0, 1, 2].map(|cluster| state.own(&format!("domain-c{cluster}")).len());
        assert_eq!(counts, [1, 0, 1]);
        assert_eq!(state.stored.len(), 3);
    });
}
