//! What is reported of changes: once for each object, with its cause, and also if the process stops.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::changes::{ChangeAction, ChangeLog, ChangeReport, ChangeResult};
use engine::ports::ChangeSink;
use engine::runtime::{Lease, RuntimeSettings};
use model::event::RuleKind;

use crate::stage::*;

const C: &str = "domain-c0";

#[derive(Default)]
struct Audit(Mutex<Vec<ChangeReport>>);

impl ChangeSink for Audit {
    fn put(&self, change: &ChangeReport) {
        self.0.lock().unwrap().push(change.clone());
    }
}

impl Audit {
    fn reports(&self) -> Vec<ChangeReport> {
        self.0.lock().unwrap().clone()
    }

    fn of(audit: &Arc<Audit>, dry_run: bool) -> impl FnOnce(&mut RuntimeSettings) {
        let sink = audit.clone();
        move |settings: &mut RuntimeSettings| {
            settings.dry_run = dry_run;
            settings.changes = ChangeLog::new(Some(sink));
        }
    }
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

#[test]
fn number_7_a_rule_of_one_name_in_two_clusters_is_reported_once_in_each() {
    in_virtual_time(async {
        let outside = Outside::new(1, 2, 6, 6);
        let audit = Arc::<Audit>::default();
        let _process = Process::start_with(&outside, 1, Audit::of(&audit, true)).await;
        // One workload, on nodes of both clusters.
        for number in 0..6 {
            outside.add_pod(replica("web", number, number % 2, number)).await;
        }
        seconds(10).await;
        let names = |reports: &[ChangeReport]| {
            let clusters = reports.iter().map(|report| report.cluster.as_ref().map(|it| it.name.clone()));
            clusters.collect::<Vec<_>>()
        };
        let first = audit.reports();
        assert_eq!(names(&first), [Some("C0".to_owned()), Some("C1".to_owned())], "{first:?}");
        assert_eq!(first[0].name, first[1].name, "otherwise this test shows nothing");
        let line = format!("would create VM-VM anti-affinity rule {} in cluster C0 of vc.example.org: ", first[0].name);
        assert!(first[0].to_string().starts_with(&line), "{}", first[0]);
        // Each of these makes a plan due, with the same changes.
        for _ in 0..3 {
            outside.administer(C, |facts, key| {
                facts.rules.push(rule(key, &format!("admin-{key}"), RuleKind::VmAntiAffinity(vec![vm_id(0, 5)])));
            });
            seconds(10).await;
        }
        assert_eq!(audit.reports(), first);
    });
}

#[test]
fn number_7_a_change_that_completes_while_the_process_stops_is_reported() {
    in_virtual_time(async {
        let outside = Outside::new(2, 1, 6, 6);
        let audit = Arc::<Audit>::default();
        let process = Process::start_with(&outside, 1, Audit::of(&audit, false)).await;
        for number in 0..3 {
            outside.add_pod(replica("web", number, 0, number)).await;
        }
        while outside.calls().0 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(audit.reports().is_empty(), "the change is in flight");
        process.stop().await;
        assert_eq!(outside.calls(), (1, 1), "after the change nothing more is sent");
        let name = outside.lock().own(C)[0].name.clone();
        let reports = audit.reports();
        let seen: Vec<_> = reports.iter().map(|report| (&report.name, report.action, &report.result)).collect();
        assert_eq!(seen, [(&name, ChangeAction::Create, &ChangeResult::Done)]);
        // The next process has nothing to change, and so nothing to report.
        let _next = Process::start_with(&outside, 2, Audit::of(&audit, false)).await;
        seconds(60).await;
        assert_eq!((outside.calls().0, audit.reports().len()), (1, 1));
    });
}

#[test]
fn number_6_a_new_leader_reads_the_record_before_it_plans() {
    in_virtual_time(async {
        let outside = Outside::new(3, 1, 6, 6);
        for number in 0..2 {
            outside.add_pod(replica("web", number, 0, number)).await;
        }
        let leader = Process::start(&outside, 1).await;
        seconds(10).await;
        drop(leader);
        // A standby that loads the record before there is a rule.
        let (rules, stored) = {
            let mut state = outside.lock();
            let rules = std::mem::take(&mut state.clusters.get_mut(C).expect("it exists").rules);
            (rules, std::mem::take(&mut state.stored))
        };
        let lease = Lease::not_held();
        let _standby = Process::start_as(&outside, 2, lease.clone(), |_| ()).await;
        seconds(10).await;
        // The leader created the rule and ended before it recorded the UUID.
        outside.administer(C, |facts, _| facts.rules = rules);
        outside.lock().stored = stored;
        for (text, version) in outside.lock().stored.values_mut() {
            let mut record: serde_json::Value = serde_json::from_str(text).expect("JSON");
            for rule in record["rules"].as_object_mut().expect("rules").values_mut() {
                rule.as_object_mut().expect("a rule").remove("uuid");
            }
            (*text, *version) = (record.to_string(), *version + 100);
        }
        seconds(2).await;
        lease.set_held(true);
        seconds(10).await;
        let state = outside.lock();
        assert_eq!(state.own(C).len(), 1);
        let uuids = state.recorded_uuids(C);
        assert!(uuids.len() == 1 && uuids.values().all(Option::is_some), "{uuids:?}");
    });
}

#[test]
fn number_7_what_a_new_leader_finds_hours_later_was_not_found_by_the_first_plan() {
    in_virtual_time(async {
        let outside = Outside::new(3, 1, 6, 6);
        let audit = Arc::<Audit>::default();
        for number in 0..3 {
            outside.add_pod(replica("web", number, 0, number)).await;
        }
        let leader = Process::start_with(&outside, 1, Audit::of(&audit, false)).await;
        seconds(10).await;
        drop(leader);
        let lease = Lease::not_held();
        let _standby = Process::start_as(&outside, 2, lease.clone(), Audit::of(&audit, false)).await;
        seconds(3 * 3600).await;
        // Another client takes a member out of the rule, which no one observes as a cause.
        outside.administer(C, |facts, _| {
            facts.rules[0].kind = RuleKind::VmAntiAffinity(vec![vm_id(0, 0), vm_id(0, 1)]);
        });
        seconds(10).await;
        lease.set_held(true);
        seconds(10).await;
        assert_eq!(members(&outside.lock().own(C)[0].kind).len(), 3, "restored");
        let reports = audit.reports();
        let causes: Vec<_> = reports.iter().map(|report| (report.action, report.cause.as_deref())).collect();
        let first = Some("the first plan for its cluster after the start found it");
        assert_eq!(causes, [(ChangeAction::Create, first), (ChangeAction::Edit, None)]);
    });
}

#[test]
fn a_follower_with_findings_to_report_waits_until_it_leads() {
    // In a thread of its own: if the loop never waits, virtual time stands still.
    let (ended, has_ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        in_virtual_time(async {
            let outside = Outside::new(4, 1, 6, 6);
            // More than the hosts without the reserve.
            for number in 0..6 {
                outside.add_pod(replica("web", number, 0, number)).await;
            }
            let follower = Process::start_as(&outside, 1, Lease::not_held(), |_| ()).await;
            seconds(3600).await;
            assert!(!follower.counters.rules.findings().is_empty(), "otherwise this test shows nothing");
        });
        let _ = ended.send(());
    });
    has_ended.recv_timeout(Duration::from_secs(60)).expect("an hour of virtual time passes");
}
