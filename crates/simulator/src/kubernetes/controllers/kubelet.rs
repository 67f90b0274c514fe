//! The simulated kubelet, one for all nodes: starts bound pods and stops deleted ones.
//!
//! In: changes of pods, and whether each node's machine is up. Out: pod status, removed pods, Events.
//!
//! - A bound pod is accepted immediately (ContainerCreating) and runs after a start time drawn from the seed, but not
//!   before its volumes are attached.
//! - With `restartPolicy` Never or OnFailure and the annotation `sandbox.bridger.dev/run-seconds`, it then finishes as
//!   Succeeded after that time. All other pods run until they are deleted.
//! - A deleted pod is removed after its containers' stop time, or its grace period if that is shorter.
//! - On a machine that is down nothing happens: its pods neither start nor stop. When the machine is up again, all
//!   containers of its pods are restarted and the terminating pods are removed ([`Kubelet::node_is_up`]).
//!
//! Nodes that were created manually, without a machine, have no kubelet.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::Value;

use super::machines::Machines;
use super::{Step, Tools, pod_status, storage};
use crate::clock::SimTime;
use crate::kubernetes::Config;
use crate::kubernetes::deletion::{self, DeleteOptions};
use crate::kubernetes::json::{items, text};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::store::{Change, ChangeType, ObjectKey, Store};
use crate::seed::{Seed, Stream};
use crate::timeline::Timeline;

/// Pods with this annotation finish after this many seconds.
pub const RUN_SECONDS_ANNOTATION: &str = "sandbox.bridger.dev/run-seconds";
const COMPONENT: &str = "kubelet";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodStep {
    Accept,
    Start,
    Finish,
    /// The containers get the signal to stop.
    Kill,
    /// The containers have stopped.
    Stopped,
}

#[derive(Debug)]
pub(crate) struct Kubelet {
    random: Stream,
    start_ms: RangeInclusive<u64>,
    stop_ms: RangeInclusive<u64>,
    /// uids of starting pods.
    starting: BTreeSet<String>,
    /// uids of those that only wait for their volumes.
    waiting: BTreeSet<String>,
    /// uids of stopping pods, with the time of their removal.
    stopping: BTreeMap<String, SimTime>,
    next_pod_address: u32,
}

/// Uniform in the range, both ends included.
pub(super) fn draw_ms(random: &mut Stream, range: &RangeInclusive<u64>) -> Duration {
    let width = range.end().saturating_sub(*range.start());
    Duration::from_millis(range.start() + random.below(width.saturating_add(1).max(1)))
}

impl Kubelet {
    pub(crate) fn new(config: &Config, seed: Seed) -> Kubelet {
        Kubelet {
            random: seed.stream("kubernetes kubelet"),
            start_ms: config.pod_start_ms.clone(),
            stop_ms: config.pod_stop_ms.clone(),
            starting: BTreeSet::new(),
            waiting: BTreeSet::new(),
            stopping: BTreeMap::new(),
            next_pod_address: 0,
        }
    }

    pub(crate) fn observe(
        &mut self,
        change: &Change,
        machines: &Machines,
        timeline: &mut Timeline<Step>,
        now: SimTime,
    ) {
        let object = &change.object;
        if change.change_type == ChangeType::Deleted {
            self.starting.remove(pod::uid(object));
            self.waiting.remove(pod::uid(object));
            self.stopping.remove(pod::uid(object));
        } else if machines.kubelet_is_up(pod::node_name(object)) {
            if pod::is_terminating(object) {
                self.stop(object, timeline, now);
            } else if !pod::is_finished(object) && !pod::is_running(object) {
                self.start(object, timeline, now);
            }
        }
    }

    /// The volumes of these pods may be attached now.
    pub(crate) fn volumes_changed<'a>(
        &mut self,
        pods: impl Iterator<Item = &'a ObjectKey>,
        store: &Store,
        timeline: &mut Timeline<Step>,
        now: SimTime,
    ) {
        for key in pods {
            let Some(object) = store.get(KindId::POD, &key.namespace, &key.name) else { continue };
            let uid = pod::uid(object).to_owned();
            if self.waiting.contains(&uid) && storage::are_ready(store, object) {
                self.waiting.remove(&uid);
                timeline.schedule(now, Step::Pod { step: PodStep::Start, key: key.clone(), uid });
            }
        }
    }

    fn start(&mut self, object: &Value, timeline: &mut Timeline<Step>, now: SimTime) {
        let uid = pod::uid(object).to_owned();
        if self.starting.insert(uid.clone()) {
            let key = ObjectKey::of(object);
            let wait = draw_ms(&mut self.random, &self.start_ms);
            timeline.schedule(now, Step::Pod { step: PodStep::Accept, key: key.clone(), uid: uid.clone() });
            timeline.schedule(now.after(wait), Step::Pod { step: PodStep::Start, key, uid });
        }
    }

    fn stop(&mut self, object: &Value, timeline: &mut Timeline<Step>, now: SimTime) {
        let uid = pod::uid(object).to_owned();
        let grace = Duration::from_secs(object["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0));
        let known = self.stopping.get(&uid).copied();
        let wait = if known.is_some() { grace } else { draw_ms(&mut self.random, &self.stop_ms).min(grace) };
        let due = now.after(wait);
        if known.is_some_and(|known| known <= due) {
            return;
        }
        self.stopping.insert(uid.clone(), due);
        let key = ObjectKey::of(object);
        if known.is_none() {
            timeline.schedule(now, Step::Pod { step: PodStep::Kill, key: key.clone(), uid: uid.clone() });
        }
        timeline.schedule(due, Step::Pod { step: PodStep::Stopped, key, uid });
    }

    /// A node's kubelet has started, for the first time or again. It restarts the node's pods.
    pub(crate) fn node_is_up(&mut self, tools: &mut Tools<'_>, node: &str) {
        let keys: Vec<ObjectKey> = tools.index.pods_on(node).cloned().collect();
        for key in keys {
            let Some(object) = tools.store.get(KindId::POD, &key.namespace, &key.name).cloned() else { continue };
            // Starts and stops that the outage interrupted begin again.
            self.starting.remove(pod::uid(&object));
            self.waiting.remove(pod::uid(&object));
            self.stopping.remove(pod::uid(&object));
            if pod::is_terminating(&object) {
                self.stop(&object, tools.timeline, tools.now);
            } else if !pod::is_finished(&object) {
                if pod::is_running(&object) {
                    let now = tools.now;
                    let _ = tools.store.edit(KindId::POD, &key.namespace, &key.name, |object| {
                        pod_status::not_ready(object, "ContainersNotReady", now);
                    });
                }
                self.start(&object, tools.timeline, tools.now);
            }
        }
    }

    pub(crate) fn execute(
        &mut self,
        tools: &mut Tools<'_>,
        machines: &Machines,
        step: PodStep,
        key: &ObjectKey,
        uid: &str,
    ) {
        let Some(object) = tools.store.get(KindId::POD, &key.namespace, &key.name).cloned() else { return };
        if pod::uid(&object) != uid {
            return;
        }
        let Some(machine) = machines.running(pod::node_name(&object)) else {
            // The machine went down in the meantime. When it is up again, its pods restart.
            self.starting.remove(uid);
            self.waiting.remove(uid);
            self.stopping.remove(uid);
            return;
        };
        let now = tools.now;
        match step {
            PodStep::Accept | PodStep::Start if pod::is_terminating(&object) || pod::is_finished(&object) => {
                self.starting.remove(uid);
                self.waiting.remove(uid);
            }
            PodStep::Accept => {
                let address = machine.ip_address.clone();
                if !pod::is_running(&object) {
                    let _ = tools.store.edit(KindId::POD, &key.namespace, &key.name, |object| {
                        pod_status::creating(object, &address, now);
                    });
                }
            }
            PodStep::Start => {
                if !self.starting.contains(uid) {
                    return;
                }
                if !storage::are_ready(tools.store, &object) {
                    self.waiting.insert(uid.to_owned());
                    return;
                }
                self.starting.remove(uid);
                let host_address = machine.ip_address.clone();
                let address =
                    if object["spec"]["hostNetwork"] == true { host_address.clone() } else { self.pod_address() };
                let containers = &mut self.random;
                let started = tools.store.edit(KindId::POD, &key.namespace, &key.name, |object| {
                    pod_status::running(object, &host_address, &address, containers, now);
                });
                if let Ok(object) = started {
                    started_events(tools, &object);
                    schedule_finish(tools, &object, key, uid);
                }
            }
            PodStep::Finish => {
                if pod::is_running(&object) && !pod::is_terminating(&object) {
                    let _ = tools.store.edit(KindId::POD, &key.namespace, &key.name, |object| {
                        pod_status::succeeded(object, now);
                    });
                }
            }
            PodStep::Kill => {
                if pod::is_running(&object) {
                    for container in items(&object["spec"]["containers"]) {
                        let message = format!("Stopping container {}", text(&container["name"]));
                        tools.event(&object, COMPONENT, "Killing", &message);
                    }
                }
            }
            PodStep::Stopped => {
                if self.stopping.get(uid).is_some_and(|due| *due <= now) {
                    self.stopping.remove(uid);
                    let options = DeleteOptions::at_once();
                    let _ = deletion::delete(tools.store, KindId::POD, &key.namespace, &key.name, &options, now);
                }
            }
        }
    }

    /// Pod addresses increase through 10.128.0.0/9.
    fn pod_address(&mut self) -> String {
        self.next_pod_address = (self.next_pod_address + 1) % (1 << 23);
        let [_, b, c, d] = self.next_pod_address.to_be_bytes();
        format!("10.{}.{c}.{d}", 128 + b)
    }
}

fn started_events(tools: &mut Tools<'_>, object: &Value) {
    for container in items(&object["spec"]["containers"]) {
        let (name, image) = (text(&container["name"]), text(&container["image"]));
        for (reason, message) in [
            ("Pulled", format!("Successfully pulled image \"{image}\"")),
            ("Created", format!("Container created: {name}")),
            ("Started", format!("Container started: {name}")),
        ] {
            tools.event(object, COMPONENT, reason, &message);
        }
    }
}

fn schedule_finish(tools: &mut Tools<'_>, object: &Value, key: &ObjectKey, uid: &str) {
    if !matches!(text(&object["spec"]["restartPolicy"]), "Never" | "OnFailure") {
        return;
    }
    if let Ok(seconds) = text(&object["metadata"]["annotations"][RUN_SECONDS_ANNOTATION]).parse::<u32>() {
        let due = tools.now.after(Duration::from_secs(seconds.into()));
        tools.timeline.schedule(due, Step::Pod { step: PodStep::Finish, key: key.clone(), uid: uid.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_runs_finishes_and_is_removed() {
        let mut bench = Bench::with_nodes(1);
        bench.create_pod(
            "job",
            &json!({ "metadata": { "annotations": { RUN_SECONDS_ANNOTATION: "60" } },
            "spec": { "restartPolicy": "Never" } }),
        );
        bench.create_pod("web", &json!({ "metadata": { "annotations": { RUN_SECONDS_ANNOTATION: "60" } } }));
        bench.run_for_seconds(0);
        let creating = bench.get(KindId::POD, "web").unwrap();
        assert_eq!(creating["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
        bench.run_for_seconds(4);
        let web = bench.get(KindId::POD, "web").unwrap();
        assert!(pod::is_running(&web) && pod::is_ready(&web));
        assert_eq!(web["status"]["hostIP"], "192.0.2.1");
        bench.run_for_seconds(62);
        assert_eq!(bench.get(KindId::POD, "job").unwrap()["status"]["phase"], "Succeeded");
        assert!(pod::is_running(&bench.get(KindId::POD, "web").unwrap()), "restartPolicy is Always");
        bench.delete(KindId::POD, "web");
        bench.run_for_seconds(0);
        assert!(pod::is_terminating(&bench.get(KindId::POD, "web").unwrap()));
        bench.run_for_seconds(3);
        assert!(bench.get(KindId::POD, "web").is_none());
        let reasons: Vec<_> = bench.list(KindId::EVENT).iter().map(|event| event["reason"].clone()).collect();
        for reason in ["Pulled", "Created", "Started", "Killing"] {
            assert!(reasons.contains(&json!(reason)), "{reason} in {reasons:?}");
        }
    }

    #[test]
    fn a_shorter_grace_period_takes_effect() {
        let mut config = Config { pod_stop_ms: 20_000..=20_000, ..Config::default() };
        config.pod_start_ms = 1_000..=1_000;
        let mut bench = Bench::with(1, &config);
        bench.create_pod("p", &json!({}));
        bench.run_for_seconds(5);
        bench.delete(KindId::POD, "p");
        bench.run_for_seconds(5);
        assert!(bench.get(KindId::POD, "p").is_some());
        bench.delete_with(KindId::POD, "p", &DeleteOptions { grace_seconds: Some(2), ..DeleteOptions::default() });
        bench.run_for_seconds(3);
        assert!(bench.get(KindId::POD, "p").is_none());
    }
}
