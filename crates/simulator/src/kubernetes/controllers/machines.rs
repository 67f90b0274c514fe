//! Machines and their nodes: registration, readiness, heartbeats, outages.
//!
//! In: machines started, stopped and destroyed, reported by [`crate::link`]. Out: Node objects and their status.
//!
//! - A new machine's node registers as not ready halfway through its boot and is Ready at the end. At the start of the
//!   world, nodes register Ready immediately.
//! - A stopped machine stops reporting. After the monitor's grace period its node's conditions are Unknown and its pods
//!   are not ready. Taints and evictions follow from that ([`node_taints`](super::node_taints),
//!   [`evictions`](super::evictions)).
//! - Heartbeats are rare, to support 5000 nodes: the status is updated every five simulated minutes, and the Lease that
//!   a node gets when it comes up is renewed only if configured
//!   ([`Config::lease_renew_period`](crate::kubernetes::Config::lease_renew_period)). Outages are therefore not
//!   inferred from missing heartbeats: the simulator knows which machines are down.
//!
//! Invariants: a step belongs to one start of its machine and is void after the next start or stop. Only the silent
//! period continues through a start: if the machine is up again but its kubelet does not start in time, the node is
//! lost anyway. If two machines have the same host name, the one that started last is the node; the fate of the other
//! does not affect it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::kubelet::{Kubelet, draw_ms};
use super::{Step, Tools, node_object, pod_status};
use crate::clock::SimTime;
use crate::kubernetes::NodeMachine;
use crate::kubernetes::condition::{self, State};
use crate::kubernetes::deletion::{self, DeleteOptions};
use crate::kubernetes::json::put;
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::store::ObjectKey;
use crate::seed::{Seed, Stream};

const CONTROLLER: &str = "node-controller";
const LEASES: &str = "kube-node-lease";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeStep {
    Register,
    Ready,
    /// The monitor's grace period is over.
    Lost,
    Heartbeat,
    RenewLease,
}

#[derive(Debug)]
struct Machine {
    machine: NodeMachine,
    powered: bool,
    kubelet_up: bool,
    /// The number of the machine's latest start or stop.
    boot: u64,
    boot_id: String,
    machine_id: String,
    /// Since when the kubelet has not reported. Only its kubelet ends this period, not a restart of the machine.
    silent_since: Option<SimTime>,
}

#[derive(Debug)]
pub(crate) struct Machines {
    by_node: BTreeMap<String, Machine>,
    /// The number of starts and stops of all machines: a machine that takes over a name shares no number with its
    /// predecessor.
    boots: u64,
    begin: SimTime,
    random: Stream,
}

impl Machines {
    pub(crate) fn new(seed: Seed, begin: SimTime) -> Machines {
        Machines { by_node: BTreeMap::new(), boots: 0, begin, random: seed.stream("kubernetes machines") }
    }

    pub(crate) fn kubelet_is_up(&self, node: &str) -> bool {
        self.running(node).is_some()
    }

    /// The node's machine, if its kubelet is up.
    pub(crate) fn running(&self, node: &str) -> Option<&NodeMachine> {
        self.by_node.get(node).filter(|known| known.kubelet_up).map(|known| &known.machine)
    }

    pub(crate) fn started(&mut self, machine: &NodeMachine, tools: &mut Tools<'_>) {
        let boot_id = self.random.uuid().to_string();
        let random = &mut self.random;
        let known = self.by_node.entry(machine.name.clone()).or_insert_with(|| Machine {
            machine: machine.clone(),
            powered: false,
            kubelet_up: false,
            boot: 0,
            boot_id: String::new(),
            machine_id: random.uuid().simple().to_string(),
            silent_since: None,
        });
        known.machine = machine.clone();
        known.powered = true;
        known.kubelet_up = false;
        self.boots += 1;
        known.boot = self.boots;
        known.boot_id = boot_id;
        let (node, boot) = (machine.name.clone(), known.boot);
        if tools.now == self.begin {
            known.kubelet_up = true;
            let mut object = node_object::new(&known.machine);
            known.report(&mut object, tools, true);
            if tools.store.create(KindId::NODE, object, tools.now).is_ok() {
                renew_lease(tools, &node);
                publish_driver(tools, &known.machine);
            }
            self.keep_reporting(tools, &node, boot);
            return;
        }
        let wait = draw_ms(&mut self.random, &tools.config.boot_ms);
        let now = tools.now;
        tools.timeline.schedule(now.after(wait / 2), Step::Node { step: NodeStep::Register, node: node.clone(), boot });
        tools.timeline.schedule(now.after(wait), Step::Node { step: NodeStep::Ready, node, boot });
    }

    /// `bios_uuid` identifies the machine: another machine may have taken over the node's name.
    pub(crate) fn stopped(&mut self, node: &str, bios_uuid: Uuid, tools: &mut Tools<'_>) {
        let is_this_machine = |known: &&mut Machine| known.powered && known.machine.bios_uuid == bios_uuid;
        let Some(known) = self.by_node.get_mut(node).filter(is_this_machine) else { return };
        known.powered = false;
        known.kubelet_up = false;
        self.boots += 1;
        known.boot = self.boots;
        if known.silent_since.is_none() {
            known.silent_since = Some(tools.now);
        }
        let due = tools.now.after(tools.config.node_monitor_grace);
        let step = Step::Node { step: NodeStep::Lost, node: node.to_owned(), boot: known.boot };
        tools.timeline.schedule(due, step);
    }

    pub(crate) fn destroyed(&mut self, node: &str, bios_uuid: Uuid, tools: &mut Tools<'_>) {
        if self.by_node.get(node).is_none_or(|known| known.machine.bios_uuid != bios_uuid) {
            return;
        }
        self.by_node.remove(node);
        if let Some(object) = tools.store.get(KindId::NODE, "", node).cloned() {
            let message = format!("Deleting node {node} because it does not exist in the cloud provider");
            tools.event(&object, "cloud-node-lifecycle-controller", "DeletingNode", &message);
            let _ = deletion::delete(tools.store, KindId::NODE, "", node, &DeleteOptions::default(), tools.now);
        }
    }

    pub(crate) fn execute(
        &mut self,
        tools: &mut Tools<'_>,
        kubelet: &mut Kubelet,
        step: NodeStep,
        node: &str,
        boot: u64,
    ) {
        let Some(known) = self.by_node.get_mut(node) else { return };
        if known.boot != boot && step != NodeStep::Lost {
            return;
        }
        match step {
            NodeStep::Register => {
                if tools.store.get(KindId::NODE, "", node).is_none() {
                    let mut object = node_object::new(&known.machine);
                    known.report(&mut object, tools, false);
                    if let Ok(object) = tools.store.create(KindId::NODE, object, tools.now) {
                        let message = format!("Node {node} event: Registered Node {node} in Controller");
                        tools.event(&object, CONTROLLER, "RegisteredNode", &message);
                    }
                }
            }
            NodeStep::Ready => {
                known.kubelet_up = true;
                known.silent_since = None;
                if tools.store.get(KindId::NODE, "", node).is_none() {
                    // The node was deleted while the machine was booting.
                    let object = node_object::new(&known.machine);
                    let _ = tools.store.create(KindId::NODE, object, tools.now);
                }
                if let Some(mut object) = tools.store.get(KindId::NODE, "", node).map(|object| Value::clone(object)) {
                    node_object::identify(&mut object, &known.machine);
                    known.report(&mut object, tools, true);
                    if let Ok(object) = tools.store.update(KindId::NODE, object) {
                        let message = format!("Node {node} status is now: NodeReady");
                        tools.event(&object, "kubelet", "NodeReady", &message);
                    }
                }
                publish_driver(tools, &known.machine);
                renew_lease(tools, node);
                kubelet.node_is_up(tools, node);
                self.keep_reporting(tools, node, boot);
            }
            NodeStep::Lost => {
                if known.silent_since.is_some_and(|since| since.after(tools.config.node_monitor_grace) <= tools.now) {
                    lose(tools, node);
                }
            }
            NodeStep::Heartbeat => {
                let moment = tools.now.rfc3339_seconds();
                let stamped = tools.store.edit(KindId::NODE, "", node, |object| {
                    for condition_type in node_object::CONDITIONS {
                        condition::stamp(object, condition_type, "lastHeartbeatTime", &moment);
                    }
                });
                // The Node object has been deleted; a kubelet registers it again only on a restart.
                if let (Ok(_), Some(period)) = (stamped, tools.config.node_status_period) {
                    schedule(tools, period, NodeStep::Heartbeat, node, boot);
                }
            }
            NodeStep::RenewLease => {
                renew_lease(tools, node);
                if let Some(period) = tools.config.lease_renew_period {
                    schedule(tools, period, NodeStep::RenewLease, node, boot);
                }
            }
        }
    }

    /// Heartbeats start at a random time within their period, which spreads those of many nodes.
    fn keep_reporting(&mut self, tools: &mut Tools<'_>, node: &str, boot: u64) {
        for (period, step) in [
            (tools.config.node_status_period, NodeStep::Heartbeat),
            (tools.config.lease_renew_period, NodeStep::RenewLease),
        ] {
            if let Some(period) = period.filter(|period| !period.is_zero()) {
                let period_ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
                let wait = draw_ms(&mut self.random, &(1..=period_ms));
                schedule(tools, wait, step, node, boot);
            }
        }
    }
}

impl Machine {
    /// Writes the status that the kubelet of this boot reports.
    fn report(&self, node: &mut Value, tools: &Tools<'_>, ready: bool) {
        let identity = node_object::Identity { boot_id: &self.boot_id, machine_id: &self.machine_id };
        node_object::report(node, &self.machine, &identity, tools.config, ready, tools.now);
    }
}

fn schedule(tools: &mut Tools<'_>, wait: Duration, step: NodeStep, node: &str, boot: u64) {
    let due = tools.now.after(wait);
    tools.timeline.schedule(due, Step::Node { step, node: node.to_owned(), boot });
}

/// The node has not reported for too long.
fn lose(tools: &mut Tools<'_>, node: &str) {
    let now = tools.now;
    let lost = tools.store.edit(KindId::NODE, "", node, |object| {
        for condition_type in node_object::CONDITIONS {
            let state = State::new("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.");
            condition::set(object, condition_type, state, now);
        }
    });
    let Ok(object) = lost else { return };
    tools.event(&object, CONTROLLER, "NodeNotReady", &format!("Node {node} status is now: NodeNotReady"));
    let keys: Vec<ObjectKey> = tools.index.pods_on(node).cloned().collect();
    for key in keys {
        let edited = tools.store.edit(KindId::POD, &key.namespace, &key.name, |object| {
            if pod::is_ready(object) {
                pod_status::not_ready(object, "NodeNotReady", now);
            }
        });
        if let Ok(object) = edited {
            tools.event(&object, CONTROLLER, "NodeNotReady", "Node is not ready");
        }
    }
}

/// Publishes the storage driver of a node, once.
fn publish_driver(tools: &mut Tools<'_>, machine: &NodeMachine) {
    if tools.store.get(KindId::CSI_NODE, "", &machine.name).is_none()
        && let Some(node) = tools.store.get(KindId::NODE, "", &machine.name)
    {
        let object = node_object::csi_node(node, machine, tools.config);
        let _ = tools.store.create(KindId::CSI_NODE, object, tools.now);
    }
}

fn renew_lease(tools: &mut Tools<'_>, node: &str) {
    let Some(owner) = tools.store.get(KindId::NODE, "", node) else { return };
    let moment = tools.now.rfc3339_micros();
    if tools.store.get(KindId::LEASE, LEASES, node).is_none() {
        let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": node, "uid": pod::uid(owner) });
        let lease = json!({ "metadata": { "name": node, "namespace": LEASES, "ownerReferences": [owner] },
            "spec": { "holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": moment } });
        let _ = tools.store.create(KindId::LEASE, lease, tools.now);
    } else {
        let _ =
            tools.store.edit(KindId::LEASE, LEASES, node, |lease| put(lease, &["spec", "renewTime"], json!(moment)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use crate::kubernetes::Config;

    fn machine(name: &str, number: u8) -> NodeMachine {
        NodeMachine {
            name: name.to_owned(),
            bios_uuid: Uuid::from_bytes([number; 16]),
            ip_address: format!("192.0.2.{number}"),
            cpu_count: 4,
            memory_mib: 8 * 1024,
        }
    }

    fn ready(bench: &Bench) -> String {
        bench.get(KindId::NODE, "twin").map_or_else(String::new, |node| condition::status(&node, "Ready").to_owned())
    }

    fn system_uuid(bench: &Bench) -> String {
        bench.get(KindId::NODE, "twin").unwrap()["status"]["nodeInfo"]["systemUUID"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_machine_that_takes_over_a_name_inherits_no_step_of_its_predecessor() {
        let config = Config { boot_ms: 10_000..=10_000, ..Config::default() };
        let mut bench = Bench::with(0, &config);
        bench.run_for_seconds(1);
        let (old, new) = (machine("twin", 1), machine("twin", 2));
        bench.kubernetes.machine_started(&old, bench.now);
        bench.run_for_seconds(2);
        bench.kubernetes.machine_stopped("twin", old.bios_uuid, bench.now);
        bench.kubernetes.machine_destroyed("twin", old.bios_uuid, bench.now);
        bench.run_for_seconds(4);
        bench.kubernetes.machine_started(&new, bench.now);
        bench.run_for_seconds(9);
        assert_eq!(ready(&bench), "False", "registered but not up: its own boot takes ten seconds");
        bench.run_for_seconds(2);
        assert_eq!(ready(&bench), "True");
    }

    #[test]
    fn the_machine_that_started_last_owns_a_shared_host_name() {
        let mut bench = Bench::with_nodes(0);
        bench.run_for_seconds(1);
        let (old, new) = (machine("twin", 1), machine("twin", 2));
        for machine in [&old, &new] {
            bench.kubernetes.machine_started(machine, bench.now);
            bench.run_for_seconds(20);
            assert_eq!(ready(&bench), "True");
        }
        assert_eq!(system_uuid(&bench), new.bios_uuid.to_string());
        bench.kubernetes.machine_stopped("twin", old.bios_uuid, bench.now);
        bench.kubernetes.machine_destroyed("twin", old.bios_uuid, bench.now);
        bench.run_for_seconds(120);
        assert_eq!(ready(&bench), "True", "the other machine does not affect it");
        bench.kubernetes.machine_stopped("twin", new.bios_uuid, bench.now);
        bench.run_for_seconds(60);
        assert_eq!(ready(&bench), "Unknown");
    }
}
