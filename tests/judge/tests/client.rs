//! The judge process: an invalid request gets an error and does not end the process; it exits with its client.

use judge::{Answer, Judge, JudgeError, Profile, Verdict, World, shrink};
use serde_json::{Value, json};

#[test]
fn an_invalid_request_gets_an_error_line_and_does_not_end_the_judge() {
    let mut judge = Judge::start().unwrap();
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let cases = [
        ("{", "unexpected end"),
        ("null", "no pod"),
        ("[]", "cannot unmarshal"),
        (r#"{"id":7}"#, "no pod"),
        (&format!(r#"{{"pod":{pod},"nods":[]}}"#), "unknown field"),
        (&format!(r#"{{"pod":{pod},"nodes":[7]}}"#), "nodes[0]"),
        (&format!(r#"{{"pod":{pod},"nodes":[{{"metadata":{{"nme":"n"}}}}]}}"#), "unknown field"),
        (&format!(r#"{{"pod":{pod},"nodes":[{{"status":{{"allocatable":{{"cpu":"much"}}}}}}]}}"#), "quantities"),
        (&format!(r#"{{"pod":{pod},"plugins":["Absent"]}}"#), "Absent"),
        (&format!(r#"{{"pod":{pod},"config":"kind: Nothing"}}"#), "config"),
        (&format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000)), ""),
    ];
    for (line, message) in cases {
        let reply: Value = serde_json::from_str(&judge.ask_line(line).unwrap()).unwrap();
        let error = reply["error"].as_str().unwrap_or_else(|| panic!("{line} was judged: {reply}"));
        assert!(error.contains(message), "{line}: {error}");
    }
    let reply: Value = serde_json::from_str(&judge.ask_line(r#"{"id":"x","pod":3}"#).unwrap()).unwrap();
    assert_eq!(reply["id"], "x");
    // The judge still answers after all these errors.
    assert!(judge.ask(&World::random(1, Profile::All)).is_ok());
    let misspelt = World { pod: json!({ "metadata": { "nme": "p" } }), ..World::default() };
    assert!(matches!(judge.ask(&misspelt), Err(JudgeError::Rejected(_))));
}

#[test]
fn a_world_without_nodes_gets_an_answer() {
    let mut judge = Judge::start().unwrap();
    let world = World { nodes: vec![], ..World::random(3, Profile::All) };
    let answer = judge.ask(&world).unwrap();
    assert_eq!((answer.nodes.len(), answer.feasible, answer.best.len()), (0, 0, 0));
}

#[test]
fn a_missing_program_and_one_that_exits_are_errors() {
    assert!(matches!(Judge::start_program("/nonexistent/judge".as_ref()), Err(JudgeError::Start { .. })));
    let mut exited = Judge::start_program("/bin/true".as_ref()).unwrap();
    assert!(matches!(exited.ask_line("{}"), Err(JudgeError::Exited { .. })));
}

#[test]
fn explained_has_the_format_of_bridger_explain() {
    let mut judge = Judge::start().unwrap();
    let answer = (0..50)
        .map(|seed| judge.ask(&World::random(seed, Profile::All)).unwrap())
        .find(|answer| answer.feasible > 0 && answer.feasible < answer.nodes.len())
        .unwrap();
    let explained = answer.explained();
    let mut read: Answer = serde_json::from_value(explained.clone()).unwrap();
    assert_eq!(answer.differences_from(&read), Vec::<String>::new());
    read.nodes[0].verdict = Verdict::Error;
    assert_eq!(answer.differences_from(&read).len(), 1);
    for node in explained["nodes"].as_array().unwrap() {
        let fields: Vec<&str> = node.as_object().unwrap().keys().map(String::as_str).collect();
        if node["verdict"] == "Feasible" {
            assert_eq!(fields, ["name", "scores", "total", "verdict"]);
        } else {
            assert_eq!(fields, ["name", "plugin", "reason", "verdict"]);
        }
    }
}

#[test]
fn a_list_contains_every_object_with_its_kind() {
    let world = World::random(5, Profile::All);
    let list = world.to_list_json();
    let items = list["items"].as_array().unwrap();
    assert_eq!((list["kind"].as_str(), items.len()), (Some("List"), world.object_count()));
    assert!(items.iter().all(|item| item["apiVersion"].is_string() && item["kind"].is_string()));
    assert_eq!(items.last(), Some(&world.pod));
}

#[test]
fn a_world_survives_a_json_round_trip() {
    for seed in 0..50 {
        let world = World::random(seed, Profile::All);
        let written = serde_json::to_string(&world).unwrap();
        assert_eq!(serde_json::from_str::<World>(&written).unwrap(), world);
    }
}

#[test]
fn removing_a_plugins_scores_leaves_the_rest_unchanged() {
    let mut judge = Judge::start().unwrap();
    let whole = (0..50)
        .map(|seed| judge.ask(&World::random(seed, Profile::All)).unwrap())
        .find(|answer| answer.feasible > 1)
        .unwrap();
    let mut rest = whole.clone();
    rest.forget_scores_of("DynamicResources");
    // DynamicResources never scores without claims, so only its weight is removed.
    assert_eq!((&rest.best, rest.nodes[0].total), (&whole.best, whole.nodes[0].total));
    rest.forget_scores_of("TaintToleration");
    for (with, without) in whole.nodes.iter().zip(&rest.nodes) {
        let lost = with.scores.get("TaintToleration").map_or(0, |score| score * whole.weights["TaintToleration"]);
        assert_eq!(with.total.map(|total| total - lost), without.total);
        assert!(!without.scores.contains_key("TaintToleration"));
    }
}

#[test]
fn a_difference_shrinks_to_its_cause() {
    let mut judge = Judge::start().unwrap();
    // The first world in which an existing pod's anti-affinity rejects a node.
    let rejects = |judge: &mut Judge, world: &World| {
        judge.ask(world).is_ok_and(|answer| {
            let existing = "node(s) didn't satisfy existing pods anti-affinity rules";
            answer.nodes.iter().any(|node| node.verdict == Verdict::Unschedulable && node.reason == existing)
        })
    };
    let world = (0..200)
        .map(|seed| World::random(seed, Profile::InterPodAffinity))
        .find(|world| world.object_count() > 30 && rejects(&mut judge, world))
        .unwrap();
    let small = shrink(&world, |world| rejects(&mut judge, world));
    assert!(rejects(&mut judge, &small));
    // One node, the pod with the term on it, the pod to place, and possibly the namespace that the term selects.
    assert!(small.object_count() <= 4, "{:#}", small.to_list_json());
    assert_eq!((small.nodes.len(), small.pods.len()), (1, 1), "{:#}", small.to_list_json());
}
