//! Each check of the observer fails on a history that violates it, and only that one.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use simulator::SimTime;

use super::cluster::{HOSTNAME, Host};
use super::observer::{Invariant, Kind, Observer, WAIT_MAX};

const STATIC: &str = "static";

/// Two nodes of 4 CPUs on hosts of their own.
struct History {
    observer: Observer,
    now: SimTime,
}

fn node(name: &str) -> Value {
    let size = json!({ "cpu": "4", "memory": "8Gi", "pods": "3" });
    json!({ "metadata": { "name": name, "labels": { HOSTNAME: name } }, "status": { "allocatable": size } })
}

fn on(hosts: &[(&str, &str)]) -> BTreeMap<String, Host> {
    let host = |name: &str| Host { name: name.to_owned(), refuses: false, may_refuse: false, is_off: false };
    hosts.iter().map(|(node, name)| ((*node).to_owned(), host(name))).collect()
}

/// A pending pod.
fn pod(name: &str, cpu: &str) -> Value {
    json!({ "metadata": { "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "labels": { "app": name } },
        "spec": { "priority": 0, "containers": [{ "resources": { "requests": { "cpu": cpu } } }] },
        "status": { "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "why" }] } })
}

fn changed(object: &Value, change: impl FnOnce(&mut Value)) -> Value {
    let mut object = object.clone();
    change(&mut object);
    object
}

fn bound(pod: &Value, node: &str) -> Value {
    changed(pod, |pod| pod["spec"]["nodeName"] = json!(node))
}

fn preempted(pod: &Value) -> Value {
    changed(pod, |pod| {
        pod["status"]["conditions"] = json!([{ "type": "DisruptionTarget", "reason": "PreemptionByScheduler" }]);
    })
}

fn important(pod: &Value) -> Value {
    changed(pod, |pod| pod["spec"]["priority"] = json!(10))
}

/// The Event of a victim.
fn went_for(victim: &str, preemptor: &str, node: &str) -> Value {
    json!({ "reason": "Preempted", "involvedObject": { "uid": format!("uid-{victim}") },
        "message": format!("Preempted by pod uid-{preemptor} on node {node}") })
}

fn apart(pod: &Value, app: &str) -> Value {
    changed(pod, |pod| {
        pod["metadata"]["labels"]["app"] = json!(app);
        let term = json!({ "topologyKey": HOSTNAME, "labelSelector": { "matchLabels": { "app": app } } });
        pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term]);
    })
}

impl History {
    fn begin() -> History {
        let mut history = History { observer: Observer::of_static_classes(&[STATIC]), now: SimTime::VIRTUAL_START };
        for name in ["n1", "n2"] {
            history.shows(Kind::Node, &node(name));
        }
        history.observer.hosts(history.now, on(&[("n1", "h1"), ("n2", "h2")]));
        history.passes(100);
        history
    }

    fn shows(&mut self, kind: Kind, object: &Value) {
        self.observer.object(self.now, kind, object, false);
    }

    fn pods(&mut self, pods: &[&Value]) {
        pods.iter().for_each(|pod| self.shows(Kind::Pod, pod));
    }

    fn deletes(&mut self, kind: Kind, object: &Value) {
        self.observer.object(self.now, kind, object, true);
    }

    fn passes(&mut self, seconds: u64) {
        for _ in 0..seconds.div_ceil(5) {
            self.now = self.now.after(Duration::from_secs(5));
            self.observer.look(self.now);
        }
    }

    fn violated(&self) -> Vec<Invariant> {
        let mut found: Vec<Invariant> = self.observer.violations.iter().map(|violation| violation.of).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    #[track_caller]
    fn violates(&self, expected: &[Invariant]) {
        assert_eq!(self.violated(), expected, "{:?}", self.observer.violations);
    }
}

#[test]
fn requests_and_pod_counts_beyond_the_node_are_detected() {
    for (pods, cpu, expected) in [
        (2, "2", &[][..]),
        (2, "2500m", &[Invariant::NoOvercommit]),
        (3, "1", &[]),
        (4, "1", &[Invariant::NoOvercommit]),
    ] {
        let mut history = History::begin();
        for number in 0..pods {
            let pod = pod(&format!("p{number}"), cpu);
            history.pods(&[&pod, &bound(&pod, "n1")]);
        }
        history.violates(expected);
    }
    // A pod that terminates takes room until it is gone, a finished one does not.
    let (old, new) = (pod("old", "4"), pod("new", "4"));
    let leaving =
        changed(&bound(&old, "n1"), |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    let finished = changed(&bound(&old, "n1"), |pod| pod["status"]["phase"] = json!("Succeeded"));
    for (state, expected) in [(leaving, &[Invariant::NoOvercommit][..]), (finished, &[])] {
        let mut history = History::begin();
        history.pods(&[&old, &bound(&old, "n1"), &state, &new, &bound(&new, "n1")]);
        history.violates(expected);
    }
}

#[test]
fn violated_terms_are_detected_unless_they_have_just_changed() {
    type Change = fn(&mut Value);
    let selector: Change = |pod| pod["spec"]["nodeSelector"] = json!({ "disk": "fast" });
    let affinity: Change = |pod| {
        let terms = json!([{ "matchExpressions": [{ "key": HOSTNAME, "operator": "In", "values": ["n2"] }] }]);
        pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({ "nodeSelectorTerms": terms });
    };
    let near: Change = |pod| {
        let term = json!({ "topologyKey": HOSTNAME, "labelSelector": { "matchLabels": { "app": "other" } } });
        pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([term]);
    };
    let missing: Change = |pod| {
        pod["spec"]["volumes"] = json!([{ "persistentVolumeClaim": { "claimName": "missing" } }]);
    };
    for change in [selector, affinity, near, missing] {
        let mut history = History::begin();
        let pod = changed(&pod("p", "1"), change);
        history.pods(&[&pod]);
        history.passes(20);
        history.pods(&[&bound(&pod, "n1")]);
        history.violates(&[Invariant::RequiredTermsHold]);
    }
    let cordoned = changed(&node("n1"), |node| node["spec"]["unschedulable"] = json!(true));
    for (age_s, expected) in [(10, &[Invariant::RequiredTermsHold][..]), (0, &[])] {
        let mut history = History::begin();
        history.shows(Kind::Node, &cordoned);
        history.passes(age_s);
        history.pods(&[&pod("p", "1"), &bound(&pod("p", "1"), "n1")]);
        history.violates(expected);
        assert_eq!(history.observer.counts.excused, usize::from(expected.is_empty()));
    }
}

#[test]
fn replicas_on_one_node_or_host_are_detected() {
    let (a, b) = (apart(&pod("a", "1"), "web"), apart(&pod("b", "1"), "web"));
    for (hosts, nodes, expected) in [
        (["h1", "h2"], ["n1", "n2"], &[][..]),
        (["h1", "h2"], ["n1", "n1"], &[Invariant::RequiredTermsHold]),
        (["h1", "h1"], ["n1", "n2"], &[Invariant::RequiredTermsHold]),
    ] {
        let mut history = History::begin();
        history.observer.hosts(history.now, on(&[("n1", hosts[0]), ("n2", hosts[1])]));
        history.passes(20);
        history.pods(&[&a, &b, &bound(&a, nodes[0]), &bound(&b, nodes[1])]);
        history.violates(expected);
    }
    // A VM that has just moved is no violation of the binding, also if the other pod was bound meanwhile.
    let mut history = History::begin();
    history.pods(&[&a, &b, &bound(&a, "n1")]);
    history.observer.hosts(history.now, on(&[("n1", "h1"), ("n2", "h1")]));
    history.pods(&[&bound(&b, "n2")]);
    history.violates(&[]);
    // The other one does not know a term, and keeps it nevertheless.
    let mut history = History::begin();
    let plain = changed(&pod("b", "1"), |pod| pod["metadata"]["labels"]["app"] = json!("web"));
    history.pods(&[&a, &plain, &bound(&a, "n1"), &bound(&plain, "n1")]);
    history.violates(&[Invariant::RequiredTermsHold]);
}

#[test]
fn a_pod_that_is_bound_twice_is_detected() {
    for second in [bound(&pod("p", "1"), "n2"), pod("p", "1")] {
        let mut history = History::begin();
        history.pods(&[&pod("p", "1"), &bound(&pod("p", "1"), "n1"), &second]);
        history.violates(&[Invariant::BoundOnce]);
    }
}

#[test]
fn a_pod_without_a_reason_and_one_that_vanishes_are_detected() {
    let silent = changed(&pod("p", "9"), |pod| pod["status"]["conditions"] = json!([]));
    for (pod, expected) in [(silent, &[Invariant::NothingLost][..]), (pod("p", "9"), &[])] {
        let mut history = History::begin();
        history.pods(&[&pod]);
        history.passes(100);
        history.violates(expected);
    }
    // Another pod has its name, and it was never deleted.
    let double = changed(&pod("p", "9"), |pod| pod["metadata"]["uid"] = json!("another"));
    for (is_deleted, expected) in [(true, &[][..]), (false, &[Invariant::NothingLost])] {
        let mut history = History::begin();
        history.pods(&[&pod("p", "9")]);
        if is_deleted {
            history.deletes(Kind::Pod, &pod("p", "9"));
        }
        history.pods(&[&double]);
        history.observer.look_at_the_end(history.now);
        history.violates(expected);
    }
}

#[test]
fn a_pod_that_waits_although_it_fits_is_detected() {
    let wait_s = WAIT_MAX.as_secs();
    for (cpu, seconds, expected) in
        [("1", wait_s + 20, &[Invariant::NoneWaitsInVain][..]), ("1", wait_s - 10, &[]), ("5", wait_s + 20, &[])]
    {
        let mut history = History::begin();
        history.pods(&[&pod("p", cpu)]);
        history.passes(seconds);
        history.violates(expected);
    }
    // What is kept free for another pod is not free.
    let mut history = History::begin();
    for (number, node) in ["n1", "n2"].into_iter().enumerate() {
        let nominee =
            changed(&pod(&format!("large-{number}"), "4"), |pod| pod["status"]["nominatedNodeName"] = json!(node));
        history.pods(&[
            &pod(&format!("there-{number}"), "1"),
            &bound(&pod(&format!("there-{number}"), "1"), node),
            &nominee,
        ]);
    }
    history.pods(&[&pod("p", "1")]);
    history.passes(wait_s + 20);
    history.violates(&[]);
}

#[test]
fn claims_and_volumes_that_are_bound_twice_are_detected() {
    let claim = |volume: &str| json!({ "metadata": { "name": "c", "namespace": "ns", "uid": "uid-c" }, "spec": { "volumeName": volume } });
    let volume =
        |name: &str, claim: &str| json!({ "metadata": { "name": name }, "spec": { "claimRef": { "uid": claim } } });
    let expected = [Invariant::ClaimsBoundOnce];
    for (kind, first, second, expected) in [
        (Kind::Claim, claim("v"), claim("v"), &[][..]),
        (Kind::Claim, claim("v"), claim("w"), &expected),
        (Kind::Claim, claim("v"), claim(""), &expected),
        (Kind::Volume, volume("v", "uid-c"), volume("v", "uid-c"), &[]),
        (Kind::Volume, volume("v", "uid-c"), volume("v", "uid-d"), &expected),
        (Kind::Volume, volume("v", "uid-c"), volume("w", "uid-c"), &expected),
        (Kind::Volume, volume("v", "uid-c"), volume("w", "uid-d"), &[]),
    ] {
        let mut history = History::begin();
        history.shows(kind, &first);
        history.shows(kind, &second);
        history.violates(expected);
    }
}

/// A pod that is preempted for another one on a full cluster, with these pods on the nodes.
fn preemption(there: &[(&Value, &str)], victims: &[&Value], preemptor: &Value) -> History {
    let mut history = History::begin();
    for (pod, node) in there {
        history.pods(&[pod, &bound(pod, node)]);
    }
    history.pods(&[preemptor]);
    history.passes(10);
    for victim in victims {
        let gone = preempted(&bound(victim, "n1"));
        history.pods(&[&gone]);
        let name = victim["metadata"]["name"].as_str().expect("a name");
        let name_of_preemptor = preemptor["metadata"]["name"].as_str().expect("a name");
        history.shows(Kind::Event, &went_for(name, name_of_preemptor, "n1"));
    }
    for victim in victims {
        history.deletes(Kind::Pod, &preempted(&bound(victim, "n1")));
    }
    history.pods(&[&bound(preemptor, "n1")]);
    history.passes(100);
    assert_eq!(history.observer.counts.explained, victims.len());
    history
}

#[test]
fn victims_that_are_as_important_or_not_needed_are_detected() {
    let (low, other, high) = (pod("low", "3"), pod("other", "1"), important(&pod("high", "3")));
    let far = pod("far", "4");
    preemption(&[(&low, "n1"), (&other, "n1"), (&far, "n2")], &[&low], &high).violates(&[]);
    let equal = important(&low);
    preemption(&[(&equal, "n1"), (&other, "n1"), (&far, "n2")], &[&equal], &high)
        .violates(&[Invariant::VictimsAreLessImportant]);
    // One of the two would have been enough.
    preemption(&[(&low, "n1"), (&other, "n1"), (&far, "n2")], &[&low, &other], &high)
        .violates(&[Invariant::PreemptionIsNeeded]);
    // Both are needed.
    let whole = important(&pod("high", "4"));
    preemption(&[(&low, "n1"), (&other, "n1"), (&far, "n2")], &[&low, &other], &whole).violates(&[]);
    // The other node has room.
    preemption(&[(&low, "n1"), (&other, "n1")], &[&low], &high).violates(&[Invariant::PreemptionIsNeeded]);
}
