//! Why a pod goes where it goes: every node's verdict, reason and score.
//!
//! In: the world, a pod and a profile. Out: all nodes by name, in the shape of `bridger explain -o json`. The same plugins, filters
//! and sums as in a scheduling cycle; nothing is changed. A pod that already runs is explained as if it did not.

use std::collections::BTreeMap;

use model::{PodId, View, World};
use serde::Serialize;

use crate::cycle::Cycle;
use crate::evaluate::{Answers, Scratch, names};
use crate::journal::Journal;
use crate::profile::Profile;

/// What every node says to the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// `namespace/name`.
    pub pod: String,
    /// By name.
    pub nodes: Vec<NodeExplanation>,
    /// How many nodes can run it.
    pub feasible: usize,
    /// The nodes with the highest total, by name.
    pub best: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeExplanation {
    pub name: String,
    pub verdict: VerdictKind,
    /// The plugin that refuses the node; several, sorted and joined by commas, where PreFilter left it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The weighted sum of the scores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// By plugin, normalised, before its weight. A plugin that skipped is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<BTreeMap<&'static str, i64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum VerdictKind {
    Feasible,
    /// Taking pods off the node may help.
    Unschedulable,
    UnschedulableAndUnresolvable,
}

/// `Err` for a pod that is not known, or when a plugin fails.
pub fn explain(world: &World, pod: PodId, profile: &Profile) -> Result<Explanation, String> {
    let cycle = Cycle::of(world, pod).ok_or("the pod is not known")?;
    // Where it runs must not speak against the very same place.
    let view = if cycle.pod.placed_on().is_some() { View::default().without(pod) } else { View::default() };
    let cycle = Cycle { view: &view, ..cycle };
    let mut journal = Journal::default();
    journal.everything_changed(world);
    let mut answers = Answers::new(profile);
    answers.refresh(profile, &cycle, &journal, true, &mut Scratch::default())?;

    let mut nodes: Vec<NodeExplanation> = journal
        .all()
        .iter()
        .filter_map(|node| {
            let name = world.node_name(node)?.to_owned();
            Some(match answers.filters.verdict(profile, node) {
                None => NodeExplanation {
                    name,
                    verdict: VerdictKind::Feasible,
                    plugin: None,
                    reason: None,
                    total: Some(answers.scores.total(node)),
                    scores: Some(answers.scores.of(profile, node).into_iter().collect()),
                },
                Some(verdict) => NodeExplanation {
                    name,
                    verdict: if verdict.rejection.resolvable {
                        VerdictKind::Unschedulable
                    } else {
                        VerdictKind::UnschedulableAndUnresolvable
                    },
                    plugin: Some(names(profile, verdict.by).join(",")),
                    reason: Some(verdict.rejection.reasons.message()),
                    total: None,
                    scores: None,
                },
            })
        })
        .collect();
    nodes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let highest = nodes.iter().filter_map(|node| node.total).max();
    let best = nodes.iter().filter(|node| node.total.is_some() && node.total == highest);
    Ok(Explanation {
        pod: format!("{}/{}", world.interner().text(cycle.pod.namespace), cycle.pod.name),
        best: best.map(|node| node.name.clone()).collect(),
        feasible: nodes.iter().filter(|node| node.verdict == VerdictKind::Feasible).count(),
        nodes,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::event::{Event, NodeFacts, SelectorFacts, TermFacts};
    use model::scheduling::NodeSchedulingFacts;
    use serde_json::json;

    use super::*;
    use crate::config::Configuration;
    use crate::plugins;
    use crate::testing::{id, node, pod_with, world};

    fn default_profile() -> Configuration {
        Configuration::with_name("bridger", &plugins::standard()).expect("the default profile works")
    }

    #[test]
    fn every_node_says_what_it_thinks_of_the_pod() {
        let configuration = default_profile();
        let mut world = world(&["n3", "n1"]);
        let cordoned = NodeSchedulingFacts { unschedulable: true, ..NodeSchedulingFacts::default() };
        world.apply(Event::NodeApplied(NodeFacts { scheduling: Some(Arc::new(cordoned)), ..node("n2") }));
        let labels = [("app".to_owned(), "web".to_owned())];
        let term = TermFacts {
            topology_key: "kubernetes.io/hostname".to_owned(),
            selector: Some(SelectorFacts { labels: labels.clone().into(), ..SelectorFacts::default() }),
            ..TermFacts::default()
        };
        let web = |name: &str, on: Option<&str>| {
            let mut facts = pod_with(name, |facts| facts.container_count = 1);
            facts.labels = labels.clone().into();
            facts.anti_affinity = vec![term.clone()];
            facts.node = on.map(str::to_owned);
            Event::PodApplied(facts)
        };
        world.apply(web("web-1", Some("n3")));
        world.apply(web("web-2", None));
        let explained = explain(&world, id(&world, "web-2"), &configuration.profiles()[0]).expect("no plugin fails");
        let value = serde_json::to_value(&explained).expect("it is plain data");
        assert_eq!(value["pod"], "default/web-2");
        assert_eq!((&value["feasible"], &value["best"]), (&json!(1), &json!(["n1"])));
        assert_eq!(value["nodes"][0]["name"], "n1");
        assert_eq!(value["nodes"][0]["verdict"], "Feasible");
        assert_eq!(value["nodes"][0]["scores"]["TaintToleration"], 100);
        assert!(value["nodes"][0].get("plugin").is_none());
        let (n2, n3) = (&value["nodes"][1], &value["nodes"][2]);
        assert_eq!(
            (&n2["verdict"], &n2["plugin"]),
            (&json!("UnschedulableAndUnresolvable"), &json!("NodeUnschedulable"))
        );
        let expected = json!({"name": "n3", "verdict": "Unschedulable", "plugin": "InterPodAffinity",
            "reason": "node(s) didn't match pod anti-affinity rules"});
        assert_eq!(*n3, expected);
        // The total is the weighted sum.
        let profile = &configuration.profiles()[0];
        let scores = explained.nodes[0].scores.as_ref().expect("it is feasible");
        let total: i64 = scores.iter().map(|(name, score)| profile.weight(name).unwrap_or(0) * score).sum();
        assert_eq!(explained.nodes[0].total, Some(total));
    }

    #[test]
    fn a_pod_that_is_not_known_is_an_error() {
        let mut world = world(&["n1"]);
        world.apply(Event::PodApplied(pod_with("web", |_| {})));
        let pod = id(&world, "web");
        world.apply(Event::PodDeleted { namespace: "default".to_owned(), name: "web".to_owned() });
        assert!(explain(&world, pod, &default_profile().profiles()[0]).is_err());
    }
}
