//! Hand-written worlds in which the preemption of the judge follows from upstream's code. They test the judge: that it runs
//! the real plugin on every node, and states what the plugin leaves to chance.

use judge::change::remove;
use judge::{Judge, Preemption, World};
use serde_json::{Value, json};

fn node(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" } } })
}

/// A pod on a node, started at this minute; `None`: it has not started.
fn running(name: &str, on: &str, cpu: u32, priority: i32, minute: Option<u32>) -> Value {
    let mut pod = json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "blue", "uid": name, "labels": { "app": name } },
        "spec": { "nodeName": on, "priority": priority, "containers": [
            { "name": "c", "image": "web:1", "resources": { "requests": { "cpu": cpu.to_string() } } }] },
        "status": { "phase": "Running" } });
    if let Some(minute) = minute {
        pod["status"]["startTime"] = format!("2025-03-01T10:{minute:02}:00Z").into();
    }
    pod
}

fn budget(name: &str, selector: &Value, allowed: u32) -> Value {
    json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": name, "namespace": "blue" },
        "spec": { "maxUnavailable": 0, "selector": selector }, "status": { "disruptionsAllowed": allowed } })
}

fn of_app(app: &str) -> Value {
    json!({ "matchLabels": { "app": app } })
}

/// These pods on as many nodes as they name, and a pod of priority 100 that needs this many CPUs of a node's four.
fn world(pods: Vec<Value>, cpu: u32) -> World {
    let mut names: Vec<&str> = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let nodes = names.into_iter().map(node).collect();
    let mut pod = running("incoming", "", cpu, 100, None);
    remove(&mut pod["spec"], "nodeName");
    pod["status"] = json!({ "phase": "Pending" });
    let namespaces = vec![json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "blue" } })];
    World { nodes, namespaces, pods, pod, preemption: true, ..World::default() }
}

fn ask(world: &World) -> Preemption {
    let answer = Judge::start().unwrap().ask_and_validate(world).unwrap();
    assert_eq!(answer.invalid, Vec::<String>::new());
    answer.preemption.unwrap_or_else(|| panic!("preemption is not tried: {:#?}", answer.nodes))
}

/// The victims on the only candidate, without their namespace, and the number of violated budgets.
#[track_caller]
fn victims(world: &World) -> (Vec<String>, i64) {
    let given = ask(world);
    let [candidate] = &given.candidates[..] else { panic!("{given:#?}") };
    let names = candidate.victims.iter().map(|victim| victim.trim_start_matches("blue/").to_owned()).collect();
    (names, candidate.pdb_violations)
}

#[test]
fn the_most_important_pods_are_spared_first() {
    let of_three = |first: Value, second: Value, third: Value| victims(&world(vec![first, second, third], 2)).0;
    let (high, low) = (running("high", "n1", 2, 50, Some(9)), running("low", "n1", 1, 10, Some(1)));
    assert_eq!(of_three(low, running("lower", "n1", 1, 5, Some(1)), high), ["low", "lower"]);
    // Of the same priority, the one that started first.
    let since = |name: &str, minute| running(name, "n1", 1, 10, minute);
    let fixed = running("fixed", "n1", 1, 1000, Some(1));
    let mut pods = vec![since("a", Some(7)), since("b", Some(2)), since("c", None), fixed];
    assert_eq!(victims(&world(pods.clone(), 1)).0, ["c"]);
    assert_eq!(victims(&world(pods.clone(), 2)).0, ["a", "c"]);
    // The same start: the judge decides by name.
    pods[2] = since("c", Some(7));
    assert_eq!(victims(&world(pods, 1)).0, ["c"]);
}

#[test]
fn pods_that_violate_a_budget_are_spared_before_more_important_ones() {
    let pods = || vec![running("high", "n1", 2, 50, Some(1)), running("low", "n1", 2, 10, Some(1))];
    let with = |budgets: Vec<Value>| World { pod_disruption_budgets: budgets, ..world(pods(), 2) };
    let expect = |names: &[&str], violations| (names.iter().map(|&name| name.to_owned()).collect(), violations);
    assert_eq!(victims(&with(vec![])), expect(&["low"], 0));
    assert_eq!(victims(&with(vec![budget("b", &of_app("low"), 0)])), expect(&["high"], 0));
    assert_eq!(victims(&with(vec![budget("b", &of_app("low"), 1)])), expect(&["low"], 0));
    let mut elsewhere = budget("b", &of_app("low"), 0);
    elsewhere["metadata"]["namespace"] = "green".into();
    assert_eq!(victims(&with(vec![elsewhere])), expect(&["low"], 0));
    // Its disruption is counted already.
    let mut disrupted = budget("b", &of_app("low"), 0);
    disrupted["status"]["disruptedPods"] = json!({ "low": "2025-03-01T10:00:00Z" });
    assert_eq!(victims(&with(vec![disrupted])), expect(&["low"], 0));
    // One disruption is left, for the more important one of two.
    let both = json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["high", "low"] }] });
    assert_eq!(victims(&with(vec![budget("b", &both, 1)])), expect(&["high"], 0));
    assert_eq!(victims(&with(vec![budget("b", &both, 0)])), expect(&["low"], 1));
    // Every one of several counts.
    let several = vec![budget("a", &of_app("low"), 3), budget("b", &of_app("low"), 0)];
    assert_eq!(victims(&with(several)), expect(&["high"], 0));
}

#[test]
fn an_empty_selector_protects_nothing_upstream_and_everything_where_it_is_corrected() {
    let mut pods = vec![running("high", "n1", 2, 50, Some(1)), running("low", "n1", 2, 10, Some(1))];
    remove(&mut pods[1]["metadata"], "labels");
    let world = World { pod_disruption_budgets: vec![budget("b", &json!({}), 0)], ..world(pods, 2) };
    assert_eq!(victims(&world), (vec!["low".to_owned()], 0));
    assert_eq!(victims(&world.with_budgets_as_documented()), (vec!["low".to_owned()], 1));
    // A nil selector protects nothing in either.
    let mut none = world;
    remove(&mut none.pod_disruption_budgets[0]["spec"], "selector");
    assert_eq!(victims(&none.with_budgets_as_documented()), (vec!["low".to_owned()], 0));
}

#[test]
fn a_node_is_chosen_by_violations_then_priorities_then_start_times() {
    let of = |pods: Vec<Value>, budgets: Vec<Value>| {
        let given = ask(&World { pod_disruption_budgets: budgets, ..world(pods, 4) });
        assert_eq!(given.candidates.len(), 2, "{given:#?}");
        assert_eq!(given.node.as_ref(), given.best.first());
        given.best
    };
    let pair = |first: (i32, Option<u32>), second: (i32, Option<u32>)| {
        vec![running("a", "n1", 4, first.0, first.1), running("b", "n2", 4, second.0, second.1)]
    };
    assert_eq!(of(pair((10, Some(1)), (20, Some(1))), vec![]), ["n1"]);
    assert_eq!(of(pair((10, Some(1)), (20, Some(1))), vec![budget("b", &of_app("a"), 0)]), ["n2"]);
    assert_eq!(of(pair((10, Some(1)), (10, Some(2))), vec![]), ["n2"]);
    assert_eq!(of(pair((10, Some(1)), (10, None)), vec![]), ["n2"]);
    assert_eq!(of(pair((10, Some(1)), (10, Some(1))), vec![]), ["n1", "n2"]);
    assert_eq!(of(pair((10, None), (10, None)), vec![]), ["n1", "n2"]);
    // The highest priority first, then the sum, which is larger for more pods.
    let two = |high, low| {
        let mut pods = vec![running("a1", "n1", 2, high, Some(1)), running("a2", "n1", 2, low, Some(1))];
        pods.push(running("b", "n2", 4, 10, Some(1)));
        pods
    };
    assert_eq!(of(two(9, -100), vec![]), ["n1"]);
    assert_eq!(of(two(10, -100), vec![]), ["n2"]);
    // Only the highest of a node's victims have a start time that counts.
    let mut pods = two(10, 5);
    pods.push(running("b2", "n2", 0, 5, Some(30)));
    pods[2] = running("b", "n2", 3, 10, Some(2));
    pods[3] = running("b2", "n2", 1, 5, Some(0));
    assert_eq!(of(pods, vec![]), ["n2"]);
}

#[test]
fn who_may_not_preempt() {
    let full = || world(vec![running("low", "n1", 4, 10, Some(1)), running("high", "n2", 4, 1000, Some(1))], 2);
    let mut never = full();
    never.pod["spec"]["preemptionPolicy"] = "Never".into();
    let given = ask(&never);
    assert!(!given.eligible && !given.clears_nomination && given.candidates.is_empty());
    assert_eq!(given.message, "preemption: not eligible due to preemptionPolicy=Never.");

    let terminating = |reason: &str, node: &str| {
        let mut world = full();
        world.pod["status"]["nominatedNodeName"] = node.into();
        world.pods[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        world.pods[0]["metadata"]["deletionGracePeriodSeconds"] = 30.into();
        world.pods[0]["status"]["conditions"] =
            json!([{ "type": "DisruptionTarget", "status": "True", "reason": reason }]);
        ask(&world)
    };
    let given = terminating("PreemptionByScheduler", "n1");
    assert!(!given.eligible && !given.clears_nomination);
    assert_eq!(given.message, "preemption: not eligible due to a terminating pod on the nominated node.");
    // Pods that terminate for other reasons, or elsewhere, do not block; they can be victims.
    for (reason, node) in [("EvictionByEvictionAPI", "n1"), ("PreemptionByScheduler", "n2")] {
        let given = terminating(reason, node);
        assert_eq!((given.eligible, given.node.as_deref()), (true, Some("n1")));
    }
}

#[test]
fn where_preemption_does_not_help() {
    let mut world = world(vec![running("high", "n1", 4, 1000, Some(1)), running("same", "n2", 4, 100, Some(1))], 2);
    let mut cordoned = node("n3");
    cordoned["spec"]["unschedulable"] = true.into();
    world.nodes.push(cordoned);
    let given = ask(&world);
    assert!(given.eligible && given.clears_nomination && given.node.is_none() && given.best.is_empty());
    assert_eq!(
        given.message,
        "preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, \
         2 No preemption victims found for incoming pod."
    );
    assert_eq!(given.rejected.len(), 2);

    // The pod is to be beside the one that it would preempt.
    let mut beside = self::world(vec![running("low", "n1", 4, 10, Some(1))], 2);
    beside.pod["spec"]["affinity"] = json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
        [{ "topologyKey": "kubernetes.io/hostname", "labelSelector": of_app("low") }] } });
    assert_eq!(ask(&beside).rejected[0].reason, "node(s) didn't match pod affinity rules");

    // A nominated pod of the same priority takes the room; one of lower priority does not.
    let mut nominated = self::world(vec![running("low", "n1", 4, 10, Some(1))], 2);
    let mut other = running("other", "", 3, 100, None);
    remove(&mut other["spec"], "nodeName");
    other["status"] = json!({ "phase": "Pending", "nominatedNodeName": "n1" });
    nominated.pods.push(other);
    assert_eq!(ask(&nominated).rejected[0].reason, "Insufficient cpu");
    nominated.pods[1]["spec"]["priority"] = 99.into();
    assert_eq!(victims(&nominated).0, ["low"]);
}

#[test]
fn preemption_is_not_reached_after_a_rejection_by_an_early_prefilter() {
    let mut world = world(vec![running("low", "n1", 4, 10, Some(1))], 2);
    world.pod["spec"]["volumes"] = json!([{ "name": "v", "persistentVolumeClaim": { "claimName": "missing" } }]);
    let given = ask(&world);
    let blocked = given.blocked.unwrap();
    assert_eq!((blocked.plugin.as_str(), &blocked.reasons[..]), ("DynamicResources", &["not found".to_owned()][..]));
    assert!(given.candidates.is_empty());
}

#[test]
fn preemption_is_only_judged_where_it_would_be_tried() {
    let mut judge = Judge::start().unwrap();
    let full = world(vec![running("low", "n1", 4, 10, Some(1))], 2);
    assert!(judge.ask(&full).unwrap().preemption.is_some());
    assert!(judge.ask(&World { preemption: false, ..full.clone() }).unwrap().preemption.is_none());
    assert!(judge.ask(&World { pods: vec![], ..full.clone() }).unwrap().preemption.is_none());
    assert!(judge.ask(&World { nodes: vec![], ..full }).unwrap().preemption.is_none());
}
