//! Why a pod goes where it goes: every node's verdict, reason and score.
//!
//! In: the world, a pod and a profile. Out: all nodes by name, in the shape of `bridger explain -o json`. The same plugins, filters
//! and sums as in a scheduling cycle; nothing is changed. A pod that already runs is explained as if it did not. Where room is
//! being made on a node for pods that matter as much or more, the node must do with them and without them, as in a cycle.

use std::collections::BTreeMap;

use model::{NodeId, PodId, View, World};
use serde::Serialize;

use crate::cycle::Cycle;
use crate::evaluate::{Answers, Scratch, Trial, kept_free, names};
use crate::journal::Journal;
use crate::profile::Profile;
use crate::queue::Nominations;

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
    let nominations = nominations(&cycle, profile);
    // A node is looked at with the nominated pods first, so theirs is the reason that is told.
    let kept_free = |trial: &Trial<'_>| kept_free(&nominations, trial, |node| trial.answers.filters.is_filtered(node));
    let kept_free = answers.refresh(profile, &cycle, &journal, &mut Scratch::default(), kept_free)?;
    let refusal = |node: NodeId| {
        let place = kept_free.binary_search_by_key(&node, |(node, _)| *node).ok();
        let with_nominated = place.map(|place| &kept_free[place].1);
        match with_nominated {
            Some(refused) => Some((profile.plugin_name(refused.by).to_owned(), &refused.rejection)),
            None => {
                let verdict = answers.filters.verdict(profile, node)?;
                Some((names(profile, verdict.by).join(","), verdict.rejection))
            }
        }
    };

    let mut nodes: Vec<NodeExplanation> = journal
        .all()
        .iter()
        .filter_map(|node| {
            let name = world.node_name(node)?.to_owned();
            Some(match refusal(node) {
                None => NodeExplanation {
                    name,
                    verdict: VerdictKind::Feasible,
                    plugin: None,
                    reason: None,
                    total: Some(answers.scores.total(node)),
                    scores: Some(answers.scores.of(profile, node).into_iter().collect()),
                },
                Some((plugin, rejection)) => NodeExplanation {
                    name,
                    verdict: if rejection.resolvable {
                        VerdictKind::Unschedulable
                    } else {
                        VerdictKind::UnschedulableAndUnresolvable
                    },
                    plugin: Some(plugin),
                    reason: Some(rejection.reasons.message()),
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

/// The pods for which room is being made, as the scheduler of this pod knows them: it knows the pods that wait for it alone.
fn nominations(cycle: &Cycle<'_>, profile: &Profile) -> Nominations {
    let (world, own_scheduler) = (cycle.world, cycle.facts().scheduler_name.as_str());
    let mut nominations = Nominations::default();
    for (id, pod) in world.pods() {
        let Some(node) = world.nominated_node(id).and_then(|name| world.node_id(name)) else { continue };
        let scheduler = pod.scheduling.as_ref().map_or("", |facts| facts.scheduler_name.as_str());
        let is_ours = scheduler == own_scheduler || scheduler == profile.name();
        if is_ours && pod.placed_on().is_none() && !pod.finished && !pod.terminating {
            nominations.set(id, Some(node));
        }
    }
    nominations
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use model::event::{Event, NodeFacts, PodFacts, SelectorFacts, TermFacts};
    use model::scheduling::{NodeSchedulingFacts, ResourceSums};
    use serde_json::json;

    use super::*;
    use crate::config::Configuration;
    use crate::plugins;
    use crate::testing::{id, node, pod_with, world};
    use crate::{Changes, Effect, Input, Scheduler};

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

    /// A pod that asks for so many cpus, waits for this scheduler, and has this priority.
    fn asking(name: &str, cpus: i64, scheduler: &str, priority: i32) -> PodFacts {
        pod_with(name, |facts| {
            let sums = ResourceSums { cpu_milli: cpus * 1000, ..ResourceSums::default() };
            let requests = &mut facts.requests;
            (requests.asked, requests.taken, requests.scored) = (sums.clone(), sums.clone(), sums);
            facts.priority = priority;
            facts.scheduler_name = scheduler.to_owned();
        })
    }

    #[test]
    fn nodes_where_room_is_made_for_others_must_do_with_them_and_without_them() {
        const OWN: &str = "bridger";
        type Change = fn(&mut PodFacts);
        // Nodes have 4 cpus, the pod asks for 2 and has priority 5; who else waits for n1, and whether it can have that.
        let cases: [(&str, PodFacts, Change, bool); 9] = [
            ("it is as important", asking("other", 3, OWN, 5), |_| {}, false),
            ("it is more important", asking("other", 3, OWN, 6), |_| {}, false),
            ("it is less important", asking("other", 3, OWN, 4), |_| {}, true),
            ("both have room", asking("other", 2, OWN, 6), |_| {}, true),
            ("no node is there for it", asking("other", 3, OWN, 6), |pod| pod.nominated_node = Some("n9".into()), true),
            ("it is another scheduler's", asking("other", 3, "elsewhere", 6), |_| {}, true),
            ("it is finished", asking("other", 3, OWN, 6), |pod| pod.finished = true, true),
            ("it is being deleted", asking("other", 3, OWN, 6), |pod| pod.terminating = true, true),
            ("it runs elsewhere by now", asking("other", 3, OWN, 6), |pod| pod.node = Some("n2".into()), true),
        ];
        for (case, mut other, change, fits) in cases {
            let configuration = default_profile();
            let mut world = world(&["n1", "n2"]);
            other.nominated_node = Some("n1".to_owned());
            change(&mut other);
            world.apply(Event::PodApplied(other));
            // Its own nomination does not count against it.
            let own = PodFacts { nominated_node: Some("n1".to_owned()), ..asking("web", 2, OWN, 5) };
            world.apply(Event::PodApplied(own.clone()));
            let explained = explain(&world, id(&world, "web"), &configuration.profiles()[0]).expect("no plugin fails");
            let first = &explained.nodes[0];
            assert_eq!(first.verdict == VerdictKind::Feasible, fits, "{case}: {first:?}");
            if !fits {
                let expected = (VerdictKind::Unschedulable, Some("NodeResourcesFit"), Some("Insufficient cpu"));
                assert_eq!((first.verdict, first.plugin.as_deref(), first.reason.as_deref()), expected, "{case}");
                assert_eq!(
                    (explained.feasible, explained.best.as_slice()),
                    (1, ["n2".to_owned()].as_slice()),
                    "{case}"
                );
                // The scheduler goes by the same. Room is made for the other one alone, which is tried first and has it.
                world.apply(Event::PodApplied(PodFacts { nominated_node: None, ..own }));
                let changes = Changes { everything: true, ..Changes::default() };
                let mut scheduler = Scheduler::new(configuration, 1);
                scheduler.step(Duration::ZERO, &mut world, Input::Changed(changes));
                let effects = scheduler.step(Duration::ZERO, &mut world, Input::Schedule { at_most: 2 });
                let bound = effects.iter().find_map(|effect| match effect {
                    Effect::Bind { pod, node, .. } if pod.name == "web" => Some(node.as_str()),
                    _ => None,
                });
                assert_eq!(bound, Some("n2"), "{case}");
            }
        }
    }

    #[test]
    fn a_pod_that_would_be_near_a_nominated_one_is_near_nobody_yet() {
        let configuration = default_profile();
        let mut world = world(&["n1"]);
        let labels = [("app".to_owned(), "db".to_owned())];
        let db = PodFacts { labels: labels.clone().into(), ..asking("db", 1, "bridger", 9) };
        world.apply(Event::PodApplied(PodFacts { nominated_node: Some("n1".to_owned()), ..db.clone() }));
        let mut web = asking("web", 1, "bridger", 0);
        web.affinity = vec![TermFacts {
            topology_key: "kubernetes.io/hostname".to_owned(),
            selector: Some(SelectorFacts { labels: labels.into(), ..SelectorFacts::default() }),
            ..TermFacts::default()
        }];
        world.apply(Event::PodApplied(web));
        let ask = |world: &World| {
            let explained = explain(world, id(world, "web"), &configuration.profiles()[0]).expect("no plugin fails");
            explained.nodes[0].plugin.clone()
        };
        assert_eq!(ask(&world).as_deref(), Some("InterPodAffinity"));
        world.apply(Event::PodApplied(PodFacts { node: Some("n1".to_owned()), ..db }));
        assert_eq!(ask(&world), None);
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
