//! Verdicts on nodes and the pods that block them, and that the scheduler decides in the same way.

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
fn every_node_has_a_verdict_with_reason_or_score() {
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
    assert!(value.get("gated").is_none() && value["nodes"][1].get("blocker").is_none());
    let (n2, n3) = (&value["nodes"][1], &value["nodes"][2]);
    assert_eq!((&n2["verdict"], &n2["plugin"]), (&json!("UnschedulableAndUnresolvable"), &json!("NodeUnschedulable")));
    let expected = json!({"name": "n3", "verdict": "Unschedulable", "plugin": "InterPodAffinity",
        "reason": "node(s) didn't match pod anti-affinity rules",
        "blocker": "pod default/web-1 on n3, which this pod avoids"});
    assert_eq!(*n3, expected);
    // The total is the weighted sum.
    let profile = &configuration.profiles()[0];
    let scores = explained.nodes[0].scores.as_ref().expect("it is feasible");
    let total: i64 = scores.iter().map(|(name, score)| profile.weight(name).unwrap_or(0) * score).sum();
    assert_eq!(explained.nodes[0].total, Some(total));
}

/// A pod that requests this many cpus and has this scheduler and priority.
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
fn a_pod_must_fit_a_node_with_and_without_the_nominated_pods() {
    const OWN: &str = "bridger";
    type Change = fn(&mut PodFacts);
    // Nodes have 4 cpus; the pod requests 2 and has priority 5. The other pod nominated to n1; whether the pod fits n1.
    let cases: [(&str, PodFacts, Change, bool); 9] = [
        ("it has the same priority", asking("other", 3, OWN, 5), |_| {}, false),
        ("it has a higher priority", asking("other", 3, OWN, 6), |_| {}, false),
        ("it has a lower priority", asking("other", 3, OWN, 4), |_| {}, true),
        ("both fit", asking("other", 2, OWN, 6), |_| {}, true),
        ("its node does not exist", asking("other", 3, OWN, 6), |pod| pod.nominated_node = Some("n9".into()), true),
        ("it has another scheduler", asking("other", 3, "elsewhere", 6), |_| {}, true),
        ("it is finished", asking("other", 3, OWN, 6), |pod| pod.finished = true, true),
        ("it is being deleted", asking("other", 3, OWN, 6), |pod| pod.terminating = true, false),
        ("it runs on another node", asking("other", 3, OWN, 6), |pod| pod.node = Some("n2".into()), true),
    ];
    for (case, mut other, change, fits) in cases {
        let configuration = default_profile();
        let mut world = world(&["n1", "n2"]);
        other.nominated_node = Some("n1".to_owned());
        change(&mut other);
        world.apply(Event::PodApplied(other));
        // The pod's own nomination does not count against it.
        let own = PodFacts { nominated_node: Some("n1".to_owned()), ..asking("web", 2, OWN, 5) };
        world.apply(Event::PodApplied(own.clone()));
        let explained = explain(&world, id(&world, "web"), &configuration.profiles()[0]).expect("no plugin fails");
        let first = &explained.nodes[0];
        assert_eq!(first.verdict == VerdictKind::Feasible, fits, "{case}: {first:?}");
        if !fits {
            let expected = (VerdictKind::Unschedulable, Some("NodeResourcesFit"), Some("Insufficient cpu"));
            assert_eq!((first.verdict, first.plugin.as_deref(), first.reason.as_deref()), expected, "{case}");
            assert_eq!((explained.feasible, explained.best.as_slice()), (1, ["n2".to_owned()].as_slice()), "{case}");
            // The scheduler decides in the same way. Only the other pod is nominated; it is tried first and fits.
            world.apply(Event::PodApplied(PodFacts { nominated_node: None, ..own }));
            let changes = Changes::all();
            let mut scheduler = Scheduler::new(configuration, 1);
            scheduler.observe(Duration::ZERO, &world, &changes);
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
fn required_affinity_is_not_met_by_a_nominated_pod() {
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
fn an_unknown_pod_is_an_error() {
    let mut world = world(&["n1"]);
    world.apply(Event::PodApplied(pod_with("web", |_| {})));
    let pod = id(&world, "web");
    world.apply(Event::PodDeleted { namespace: "default".to_owned(), name: "web".to_owned() });
    assert!(explain(&world, pod, &default_profile().profiles()[0]).is_err());
}

const HOSTNAME: &str = "kubernetes.io/hostname";

/// A pod of an app, optionally with anti-affinity against an app.
fn of_app(name: &str, app: &str, avoids: Option<&str>, on: Option<&str>) -> PodFacts {
    let labels = |app: &str| [("app".to_owned(), app.to_owned())].into();
    let term = |app: &str| TermFacts {
        topology_key: HOSTNAME.to_owned(),
        selector: Some(SelectorFacts { labels: labels(app), ..SelectorFacts::default() }),
        ..TermFacts::default()
    };
    PodFacts {
        labels: labels(app),
        anti_affinity: avoids.map(term).into_iter().collect(),
        node: on.map(str::to_owned),
        ..asking(name, 0, "bridger", 0)
    }
}

/// For each node: the plugin that rejects it, and the blocker.
fn in_the_way(world: &World, pod: &str) -> Vec<(String, Option<String>)> {
    let configuration = default_profile();
    let explained = explain(world, id(world, pod), &configuration.profiles()[0]).expect("no plugin fails");
    explained.nodes.into_iter().map(|node| (node.plugin.unwrap_or_default(), node.blocker)).collect()
}

#[test]
fn the_blocking_pod_is_named_with_its_host() {
    let mut world = world(&[]);
    for (name, host) in [("n1", Some("esx-1")), ("n2", Some("esx-1")), ("n3", Some("esx-2")), ("n4", None)] {
        let mut facts = node(name);
        facts.labels.extend(host.map(|host| ("alpha.cna.vmware.com/host".to_owned(), host.to_owned())));
        world.apply(Event::NodeApplied(facts));
    }
    let by = |plugin: &str, blocker: Option<&str>| (plugin.to_owned(), blocker.map(str::to_owned));
    world.apply(Event::PodApplied(of_app("web-2", "web", Some("web"), Some("n1"))));
    world.apply(Event::PodApplied(of_app("shy", "shy", Some("db"), Some("n3"))));
    world.apply(Event::PodApplied(of_app("web", "web", Some("web"), None)));
    world.apply(Event::PodApplied(of_app("db", "db", None, None)));
    let avoided = "pod default/web-2 on n1 (host esx-1), which this pod avoids";
    let expected =
        [by("InterPodAffinity", Some(avoided)), by("PhysicalHost", Some(avoided)), by("", None), by("", None)];
    assert_eq!(in_the_way(&world, "web"), expected);
    let avoiding = "pod default/shy on n3 (host esx-2) avoids this pod";
    let expected = [by("", None), by("", None), by("InterPodAffinity", Some(avoiding)), by("", None)];
    assert_eq!(in_the_way(&world, "db"), expected);

    // Of several blockers the first by name is shown, regardless of creation order. Without a known host none is shown.
    world.apply(Event::PodApplied(of_app("web-1", "web", None, Some("n2"))));
    world.apply(Event::PodApplied(of_app("web-3", "web", None, Some("n4"))));
    let first = "pod default/web-1 on n2 (host esx-1), which this pod avoids";
    let without_host = "pod default/web-3 on n4, which this pod avoids";
    let expected = [
        by("InterPodAffinity", Some(avoided)),
        by("InterPodAffinity", Some(first)),
        by("", None),
        by("InterPodAffinity", Some(without_host)),
    ];
    assert_eq!(in_the_way(&world, "web"), expected);
    world.apply(Event::PodApplied(of_app("sole", "web", Some("none"), None)));
    assert_eq!(
        in_the_way(&world, "sole")[0],
        by("InterPodAffinity", Some("pod default/web-2 on n1 (host esx-1) avoids this pod"))
    );

    // A nominated pod of the same priority.
    let ahead = PodFacts { nominated_node: Some("n3".to_owned()), ..of_app("ahead", "web", None, None) };
    world.apply(Event::PodApplied(ahead));
    let nominated = "pod default/ahead nominated for n3 (host esx-2), which this pod avoids";
    assert_eq!(in_the_way(&world, "web")[2], by("InterPodAffinity", Some(nominated)));

    // If required affinity matches no pod, no pod blocks it.
    let mut near = of_app("near", "near", None, None);
    near.affinity = of_app("", "", Some("absent"), None).anti_affinity;
    world.apply(Event::PodApplied(near));
    assert_eq!(in_the_way(&world, "near"), vec![by("InterPodAffinity", None); 4]);
}

#[test]
fn gates_are_shown_if_the_profile_has_the_gates_plugin() {
    let mut world = world(&["n1"]);
    world.apply(Event::PodApplied(pod_with("web", |facts| facts.gates = vec!["quota".to_owned(), "size".to_owned()])));
    let off = json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"preEnqueue": {"disabled": [{"name": "SchedulingGates"}]}}}]});
    let off = Configuration::from_value(&off, &plugins::standard()).expect("the configuration is valid");
    for (configuration, gated) in [(default_profile(), json!(["quota", "size"])), (off, json!(null))] {
        let explained = explain(&world, id(&world, "web"), &configuration.profiles()[0]).expect("no plugin fails");
        let value = serde_json::to_value(&explained).expect("it is plain data");
        assert_eq!((&value["gated"], &value["feasible"]), (&gated, &json!(1)));
    }
}
