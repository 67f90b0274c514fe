//! Kubernetes Events on pods whose policy cannot be met.
//!
//! In: the findings of each plan. Out: an Event for each pod and finding, with the numbers, when it is new or has
//! changed. The event recorder decides when the same finding may be reported again.
//!
//! Invariants: one finding is reported on at most [`PODS_REPORTED_MAX`] pods, and at most [`ENTRIES_MAX`] entries are
//! kept.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drs::{Finding, RulePod, TooFewHosts};
use model::labels::{RULES_KEY, RULES_OF_CLUSTER};
use tokio::time::Instant;

use super::controller::NAME;
use crate::ports::{Occurrence, Regarding, Severity};
use crate::runtime::{EventRecorder, Recorded, Repeat, Stopwatch};

pub const PODS_REPORTED_MAX: usize = 50;
pub const AGAIN_AFTER: Duration = Duration::from_secs(3600);
pub const ENTRIES_MAX: usize = 10_000;
const REPEAT: Repeat = Repeat { same_after: Some(AGAIN_AFTER), changed_after: AGAIN_AFTER };

/// The reason of the Event on a pod; `None` for findings that are not reported on pods.
fn reason(finding: &Finding) -> Option<&'static str> {
    Some(match finding {
        Finding::Unsatisfiable(_) => "Unsatisfiable",
        Finding::JointlyUnsatisfiable(_) => "JointlyUnsatisfiable",
        Finding::PinnedNowhere { .. } => "PinnedNowhere",
        Finding::PinnedTooTight { .. } => "PinnedTooTight",
        Finding::Conflict { .. } => "RuleConflict",
        Finding::SameVm { .. } => "SameVm",
        Finding::AffinityUnmet { .. } => "AffinityUnmet",
        Finding::RuleLimit { .. } => "RuleLimit",
        Finding::NamespaceRuleLimit { .. } => "NamespaceRuleLimit",
        Finding::TermLimit { .. } => "TermLimit",
        Finding::ConfinedToNamespace { .. } => "ConfinedToNamespace",
        _ => return None,
    })
}

/// Replicas that fit on the usable hosts are not in trouble, even if the reserve keeps some of them out of the rules.
fn severity(finding: &Finding) -> Severity {
    match finding {
        Finding::Unsatisfiable(TooFewHosts { vms: Some(vms), hosts_able, .. }) if vms <= hosts_able => Severity::Normal,
        _ => Severity::Warning,
    }
}

/// The message of the Event on one of the finding's pods, with the numbers. It names no pod of another namespace, whose
/// users may not see its name.
fn message(finding: &Finding, pod: &RulePod) -> Option<String> {
    Some(match finding {
        Finding::Unsatisfiable(few @ TooFewHosts { hosts_able, reserve, pairs_required, pairs_left, .. }) => {
            let vms = few.vms.unwrap_or_default();
            let fit = if vms <= *hosts_able { "fit" } else { "do not fit" };
            format!(
                "{vms} replicas must run on different hosts and {fit} on the {}, with a reserve of {reserve}: \
                 DRS rules keep {} of {pairs_required} pairs apart, {pairs_left} are not protected",
                few.hosts_text(),
                pairs_required.saturating_sub(*pairs_left)
            )
        }
        Finding::JointlyUnsatisfiable(few @ TooFewHosts { reserve, pairs_left, .. }) => format!(
            "{pairs_left} pairs of replicas cannot be kept on different hosts with the rules of other workloads: \
             {}, reserve {reserve}",
            few.hosts_text()
        ),
        Finding::PinnedNowhere { vm, hosts, pods, .. } => {
            format!("the {} pods on VM {vm} accept no host in common: {hosts} hosts in the cluster", pods.len())
        }
        Finding::PinnedTooTight { vms, hosts, .. } => {
            format!("{vms} VMs may run only on {hosts} hosts, but rules of others keep more of them than that apart")
        }
        Finding::Conflict { vms: (a, b), rival, .. } => {
            format!("wants VMs {a} and {b} on different hosts, but the DRS rule {rival:?} keeps them together")
        }
        Finding::SameVm { node, pods: (a, b), .. } if a.namespace != b.namespace => {
            format!(
                "{pod} and a pod of another namespace want different hosts but both run on node {node}: \
                 no DRS rule can separate them"
            )
        }
        Finding::SameVm { node, pods: (a, b), .. } => {
            format!("{a} and {b} want different hosts but both run on node {node}: no DRS rule can separate them")
        }
        Finding::AffinityUnmet { vm, .. } => {
            format!("wants other pods on its host that anti-affinity or a DRS rule keeps away from VM {vm}")
        }
        // How many rules are left out changes often, and an event with another number would be another event.
        Finding::RuleLimit { limit, .. } => {
            format!("not every DRS rule that it requires is made: at most {limit} in one vSphere cluster")
        }
        Finding::NamespaceRuleLimit { namespace, limit, .. } => format!(
            "not every DRS rule that it requires is made: at most {limit} for the namespace {namespace} in one vSphere cluster"
        ),
        Finding::TermLimit { limit, .. } => {
            format!("only {limit} of its required terms between hosts become DRS rules")
        }
        Finding::ConfinedToNamespace { .. } => format!(
            "its cross-namespace affinity terms become DRS rules only within its own namespace, which has no label \
             {RULES_KEY}: {RULES_OF_CLUSTER}"
        ),
        _ => return None,
    })
}

type Key = (RulePod, &'static str);

#[derive(Debug, Default)]
pub struct PodReports {
    /// The findings of the last plan.
    found: BTreeMap<Key, (Severity, String)>,
    /// New or changed findings that are not recorded yet.
    pending: BTreeSet<Key>,
    /// Changed findings that are too soon after the last record, and when they may be recorded.
    later: BTreeMap<Key, Instant>,
}

impl PodReports {
    /// Takes over all findings of a plan.
    pub fn observe(&mut self, findings: &[Finding]) {
        let before = std::mem::take(&mut self.found);
        for finding in findings {
            let Some(reason) = reason(finding) else { continue };
            for pod in finding.pods().into_iter().take(PODS_REPORTED_MAX) {
                if self.found.len() >= ENTRIES_MAX {
                    break;
                }
                // Of several findings with the same reason only the first is reported on the pod.
                if let Entry::Vacant(vacant) = self.found.entry((pod.clone(), reason))
                    && let Some(message) = message(finding, pod)
                {
                    vacant.insert((severity(finding), message));
                }
            }
        }
        let found = &self.found;
        // A finding that no longer exists is not reported.
        self.pending.retain(|key| found.contains_key(key));
        self.later.retain(|key, _| found.contains_key(key));
        let changed = found.iter().filter(|(key, report)| before.get(*key) != Some(*report));
        self.pending.extend(changed.map(|(key, _)| key.clone()));
    }

    /// When the next finding may be recorded; `now` if some are pending.
    #[must_use]
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        let more = (!self.pending.is_empty()).then_some(now);
        more.or_else(|| self.later.values().min().copied())
    }

    /// Records the pending findings, within the limits of the recorder and of the time budget.
    pub fn record(&mut self, events: &EventRecorder, now: Instant, stopwatch: Stopwatch) {
        let due = self.later.extract_if(.., |_, due| *due <= now);
        self.pending.extend(due.map(|(key, _)| key));
        while let Some(key) = self.pending.pop_first() {
            let Some((severity, message)) = self.found.get(&key).cloned() else { continue };
            let (pod, reason) = &key;
            let (namespace, name) = (pod.namespace.to_string(), pod.name.to_string());
            let regarding = Regarding::Pod { namespace, name, uid: pod.uid.to_string() };
            let occurrence = Occurrence { regarding, severity, reason, message, reporter: None };
            if let Recorded::TooSoon { until } = events.record(NAME, occurrence, REPEAT, now) {
                self.later.insert(key, until);
            }
            if stopwatch.is_spent() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::event::VcenterId;

    fn pod(number: usize) -> RulePod {
        RulePod {
            namespace: "shop".into(),
            name: format!("web-{number}").into(),
            uid: format!("u{number}").as_str().into(),
        }
    }

    /// On so many hosts, usable and in total, with so many pairs, required and left.
    fn too_few(vms: usize, hosts: (usize, usize), pairs: (usize, usize), pods: Vec<RulePod>) -> Finding {
        Finding::Unsatisfiable(TooFewHosts {
            cluster: drs::ClusterKey::new(VcenterId(0), "domain-c8"),
            vms: Some(vms),
            hosts: hosts.1,
            hosts_able: hosts.0,
            reserve: 1,
            pairs_required: pairs.0,
            pairs_left: pairs.1,
            pairs: [].into(),
            pods,
        })
    }

    fn unsatisfiable(vms: usize, pods: usize) -> Finding {
        too_few(vms, (5, 5), (15, 3), (0..pods).map(pod).collect())
    }

    struct Stage {
        reports: PodReports,
        events: EventRecorder,
        start: Instant,
    }

    impl Stage {
        fn new() -> Stage {
            Stage { reports: PodReports::default(), events: EventRecorder::default(), start: Instant::now() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        /// The events recorded at this time.
        fn recorded(&mut self, seconds: u64) -> Vec<Occurrence> {
            self.reports.record(&self.events, self.at(seconds), Stopwatch::start());
            self.events.take(usize::MAX).into_iter().map(|(_, record)| record.occurrence).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_finding_is_reported_once_per_pod_and_again_when_it_changed_but_not_within_the_hour() {
        let mut stage = Stage::new();
        stage.reports.observe(&[unsatisfiable(6, 80)]);
        let first = stage.recorded(0);
        assert_eq!(first.len(), PODS_REPORTED_MAX);
        assert_eq!(first[0].reason, "Unsatisfiable");
        assert!(first[0].message.starts_with("6 replicas"), "{}", first[0].message);
        for seconds in [1, 5000] {
            stage.reports.observe(&[unsatisfiable(6, 80)]);
            assert_eq!((stage.recorded(seconds).len(), stage.reports.next_due(stage.at(0))), (0, None));
        }
        // It disappears and comes back changed: reported, because the hour is over.
        stage.reports.observe(&[]);
        stage.reports.observe(&[unsatisfiable(7, 2)]);
        assert_eq!(stage.recorded(5002).len(), 2);
        stage.reports.observe(&[unsatisfiable(8, 2)]);
        assert!(stage.recorded(5100).is_empty());
        assert_eq!(stage.reports.next_due(stage.at(0)), Some(stage.at(5002 + 3600)));
        assert_eq!(stage.recorded(5003 + 3600).len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn number_5_replicas_that_fit_on_the_hosts_get_a_normal_event_that_names_what_is_protected() {
        let mut stage = Stage::new();
        stage.reports.observe(&[
            too_few(4, (4, 4), (6, 3), vec![pod(0)]),
            too_few(6, (5, 5), (15, 8), vec![pod(1)]),
            // Two hosts are in maintenance.
            too_few(4, (2, 4), (6, 4), vec![pod(2)]),
            // More VMs are affected than must all be apart from each other.
            too_few(4, (4, 4), (9, 6), vec![pod(3)]),
        ]);
        let events: Vec<_> = stage.recorded(0).into_iter().map(|it| (it.severity, it.message)).collect();
        let expected = [
            (
                Severity::Normal,
                "4 replicas must run on different hosts and fit on the 4 hosts, with a reserve of 1: \
                 DRS rules keep 3 of 6 pairs apart, 3 are not protected",
            ),
            (
                Severity::Warning,
                "6 replicas must run on different hosts and do not fit on the 5 hosts, with a reserve of 1: \
                 DRS rules keep 7 of 15 pairs apart, 8 are not protected",
            ),
            (
                Severity::Warning,
                "4 replicas must run on different hosts and do not fit on the 2 usable of 4 hosts, with a reserve of 1: \
                 DRS rules keep 2 of 6 pairs apart, 4 are not protected",
            ),
            (
                Severity::Normal,
                "4 replicas must run on different hosts and fit on the 4 hosts, with a reserve of 1: \
                 DRS rules keep 3 of 9 pairs apart, 6 are not protected",
            ),
        ];
        assert_eq!(events, expected.map(|(severity, message)| (severity, message.to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn number_4_a_pod_of_another_namespace_is_not_named() {
        let other = RulePod { namespace: "secret".into(), ..pod(1) };
        for (second, expected) in [
            (pod(1), "shop/web-0 and shop/web-1 want different hosts"),
            (other, "shop/web-0 and a pod of another namespace want different hosts"),
        ] {
            let mut stage = Stage::new();
            let (vm, node) = ("vm-1".to_owned(), "n1".to_owned());
            stage.reports.observe(&[Finding::SameVm { vm, node, pods: (pod(0), second) }]);
            let events = stage.recorded(0);
            assert_eq!(events.len(), 2);
            let of_first = events.iter().find(|it| it.regarding.namespace() == Some("shop")).expect("an event");
            assert!(of_first.message.starts_with(expected), "{events:?}");
            for event in events {
                let Regarding::Pod { namespace, .. } = &event.regarding else { panic!("{event:?}") };
                assert_eq!(event.message.contains("secret/"), namespace == "secret", "{event:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn number_9_pods_whose_rules_are_left_out_get_an_event() {
        let cluster = drs::ClusterKey::new(VcenterId(0), "domain-c8");
        let (pods, pairs) = (|number| vec![pod(number)], [].into());
        let by_namespace = |left_out| Finding::NamespaceRuleLimit {
            cluster: cluster.clone(),
            namespace: "shop".into(),
            left_out,
            limit: 100,
            pairs: [].into(),
            pods: pods(1),
        };
        let mut stage = Stage::new();
        stage.reports.observe(&[
            Finding::RuleLimit { cluster: cluster.clone(), left_out: 3, limit: 1000, pairs, pods: pods(0) },
            by_namespace(5),
            Finding::TermLimit { cluster: cluster.clone(), terms: 8, limit: 32, pods: pods(2) },
            Finding::ConfinedToNamespace { cluster: cluster.clone(), terms: 1, pods: pods(3) },
        ]);
        let reasons: BTreeSet<&str> = stage.recorded(0).iter().map(|event| event.reason).collect();
        assert_eq!(reasons, BTreeSet::from(["RuleLimit", "NamespaceRuleLimit", "TermLimit", "ConfinedToNamespace"]));
        // Another number of rules is not another event.
        stage.reports.observe(&[by_namespace(6)]);
        assert!(stage.recorded(5000).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_finding_that_disappears_and_comes_back_unchanged_is_not_reported_again() {
        let mut stage = Stage::new();
        stage.reports.observe(&[unsatisfiable(6, 1)]);
        assert_eq!(stage.recorded(0).len(), 1);
        stage.reports.observe(&[]);
        stage.reports.observe(&[unsatisfiable(6, 1)]);
        assert_eq!((stage.recorded(60).len(), stage.reports.next_due(stage.at(0))), (0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_finding_that_disappears_before_it_may_be_reported_is_not_reported() {
        let mut stage = Stage::new();
        stage.reports.observe(&[unsatisfiable(6, 1)]);
        assert_eq!(stage.recorded(0).len(), 1);
        stage.reports.observe(&[unsatisfiable(7, 1)]);
        assert!(stage.recorded(60).is_empty());
        stage.reports.observe(&[]);
        assert!(stage.recorded(7200).is_empty());
        assert_eq!(stage.reports.next_due(stage.at(0)), None);
    }
}
