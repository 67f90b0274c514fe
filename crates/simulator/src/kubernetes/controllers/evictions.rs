//! Taint-based eviction: pods leave a node with NoExecute taints when their tolerations expire.
//!
//! In: nodes with such taints and their pods. Out: deleted pods, each with its grace period. On a machine that is down
//! they stay Terminating, as on a real cluster.

use std::collections::{BTreeMap, BTreeSet};

use super::{Step, Tools};
use crate::clock::SimTime;
use crate::kubernetes::condition::{self, State};
use crate::kubernetes::deletion::{self, DeleteOptions};
use crate::kubernetes::happening::{Happening, full_name};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::pod;
use crate::kubernetes::store::ObjectKey;
use crate::kubernetes::taints::{Stay, Taint, Toleration, stay};

const COMPONENT: &str = "taint-eviction-controller";

#[derive(Debug, Default)]
pub(crate) struct Evictions {
    /// Nodes with NoExecute taints.
    nodes: BTreeSet<String>,
    /// When each pod must leave, by uid.
    due: BTreeMap<String, SimTime>,
}

impl Evictions {
    pub(crate) fn concern(&self, node: &str) -> bool {
        self.nodes.contains(node)
    }

    /// Records whether the node has NoExecute taints. Returns whether its pods must be checked.
    pub(crate) fn note_node(&mut self, node: &str, no_execute: bool) -> bool {
        if no_execute {
            self.nodes.insert(node.to_owned());
            true
        } else {
            self.nodes.remove(node)
        }
    }

    pub(crate) fn forget(&mut self, pod_uid: &str) {
        self.due.remove(pod_uid);
    }

    pub(crate) fn reconcile(&mut self, tools: &mut Tools<'_>, node: &str) {
        let taints = tools.store.get(KindId::NODE, "", node).map(|node| Taint::of_node(node)).unwrap_or_default();
        for key in tools.index.pods_on(node) {
            let Some(object) = tools.store.get(KindId::POD, &key.namespace, &key.name) else { continue };
            let uid = pod::uid(object);
            if !pod::is_active(object) {
                continue;
            }
            match stay(&taints, &Toleration::of_pod(object)) {
                Stay::Forever => {
                    self.due.remove(uid);
                }
                Stay::For(time) => {
                    let due = tools.now.after(time);
                    // The time counts from when the taint was added, not from the latest check.
                    if self.due.get(uid).is_none_or(|known| due < *known) {
                        self.due.insert(uid.to_owned(), due);
                        let step = Step::Evict { key: key.clone(), uid: uid.to_owned(), due };
                        tools.timeline.schedule(due, step);
                    }
                }
            }
        }
    }

    pub(crate) fn evict(&mut self, tools: &mut Tools<'_>, key: &ObjectKey, uid: &str, due: SimTime) {
        if self.due.get(uid) != Some(&due) {
            return;
        }
        self.due.remove(uid);
        let Some(object) = tools.store.get(KindId::POD, &key.namespace, &key.name).cloned() else { return };
        if pod::uid(&object) != uid || !pod::is_active(&object) {
            return;
        }
        let message = format!("Marking for deletion Pod {}", full_name(&object));
        tools.event(&object, COMPONENT, "TaintManagerEviction", &message);
        let now = tools.now;
        let _ = tools.store.edit(KindId::POD, &key.namespace, &key.name, |object| {
            let message = "Taint manager: deleting due to NoExecute taint";
            condition::set(object, "DisruptionTarget", State::new("True", "DeletionByTaintManager", message), now);
        });
        let options = DeleteOptions::default();
        if deletion::delete(tools.store, KindId::POD, &key.namespace, &key.name, &options, now).is_ok() {
            tools.happenings.push(Happening::PodEvicted {
                pod: full_name(&object),
                node: pod::node_name(&object).to_owned(),
                why: "the node's taints are not tolerated".to_owned(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Bench;
    use super::*;
    use crate::kubernetes::json::items;
    use serde_json::json;

    fn ready(bench: &Bench, node: &str) -> String {
        condition::status(&bench.get(KindId::NODE, node).unwrap(), "Ready").to_owned()
    }

    #[test]
    fn a_node_that_goes_down_loses_its_pods_and_recovers() {
        let mut bench = Bench::with_nodes(1);
        bench.create_pod(
            "usual",
            &json!({ "spec": { "tolerations": [
            { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
              "tolerationSeconds": 300 }] } }),
        );
        bench.create_pod("patient", &json!({ "spec": { "tolerations": [{ "operator": "Exists" }] } }));
        bench.run_for_seconds(10);
        bench.stop_machine("node-1");
        bench.run_for_seconds(39);
        assert_eq!(ready(&bench, "node-1"), "True");
        bench.run_for_seconds(2);
        assert_eq!(ready(&bench, "node-1"), "Unknown");
        let node = bench.get(KindId::NODE, "node-1").unwrap();
        assert_eq!(items(&node["spec"]["taints"]).len(), 2, "{}", node["spec"]);
        for name in ["usual", "patient"] {
            assert!(!pod::is_ready(&bench.get(KindId::POD, name).unwrap()), "{name}");
        }
        bench.run_for_seconds(295);
        assert!(!pod::is_terminating(&bench.get(KindId::POD, "usual").unwrap()));
        bench.run_for_seconds(10);
        assert!(pod::is_terminating(&bench.get(KindId::POD, "usual").unwrap()));
        bench.run_for_seconds(600);
        assert!(bench.get(KindId::POD, "usual").is_some(), "no kubelet confirms that it stopped");
        assert!(!pod::is_terminating(&bench.get(KindId::POD, "patient").unwrap()));

        bench.start_machine(1);
        bench.run_for_seconds(20);
        assert_eq!(ready(&bench, "node-1"), "True");
        assert!(bench.get(KindId::NODE, "node-1").unwrap()["spec"]["taints"].is_null());
        assert!(bench.get(KindId::POD, "usual").is_none());
        let patient = bench.get(KindId::POD, "patient").unwrap();
        assert!(pod::is_ready(&patient));
        assert_eq!(patient["status"]["containerStatuses"][0]["restartCount"], 1);
    }

    #[test]
    fn a_node_that_boots_too_late_is_unknown_until_its_kubelet_is_up() {
        let mut bench = Bench::with_nodes(1);
        bench.run_for_seconds(1);
        bench.stop_machine("node-1");
        bench.run_for_seconds(38);
        bench.start_machine(1);
        bench.run_for_seconds(3);
        assert_eq!(ready(&bench, "node-1"), "Unknown");
        bench.run_for_seconds(15);
        assert_eq!(ready(&bench, "node-1"), "True");
        assert!(bench.get(KindId::NODE, "node-1").unwrap()["spec"]["taints"].is_null());
    }

    #[test]
    fn a_short_outage_restarts_pods_and_a_destroyed_machine_removes_them() {
        let mut bench = Bench::with_nodes(2);
        bench.create_pod("p", &json!({}));
        bench.run_for_seconds(10);
        let node = pod::node_name(&bench.get(KindId::POD, "p").unwrap()).to_owned();
        let number: u8 = node.strip_prefix("node-").unwrap().parse().unwrap();
        bench.stop_machine(&node);
        bench.run_for_seconds(5);
        bench.start_machine(number);
        bench.run_for_seconds(60);
        assert_eq!(ready(&bench, &node), "True");
        assert_eq!(bench.get(KindId::POD, "p").unwrap()["status"]["containerStatuses"][0]["restartCount"], 1);
        bench.destroy_machine(&node);
        bench.run_for_seconds(1);
        assert!(bench.get(KindId::NODE, &node).is_none());
        assert!(bench.get(KindId::POD, "p").is_some());
        bench.run_for_seconds(60);
        assert!(bench.get(KindId::POD, "p").is_none());
    }

    #[test]
    fn a_manual_taint_evicts_immediately_and_removing_it_in_time_prevents_eviction() {
        let mut bench = Bench::with_nodes(1);
        bench.create_pod("brief", &json!({}));
        bench.create_pod(
            "tolerant",
            &json!({ "spec": { "tolerations": [
            { "key": "k", "operator": "Exists", "tolerationSeconds": 60 }] } }),
        );
        bench.run_for_seconds(10);
        let taint = |bench: &mut Bench, taints: serde_json::Value| {
            bench.edit(KindId::NODE, "node-1", |node| node["spec"]["taints"] = taints);
        };
        taint(&mut bench, json!([{ "key": "k", "effect": "NoExecute" }]));
        bench.run_for_seconds(5);
        assert!(bench.get(KindId::POD, "brief").is_none());
        taint(&mut bench, json!([]));
        bench.run_for_seconds(120);
        assert!(!pod::is_terminating(&bench.get(KindId::POD, "tolerant").unwrap()));
    }
}
