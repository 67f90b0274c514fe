//! Pods that are being bound: every order in which that and what the watch tells can come.

use super::properties::world_after;
use crate::World;
use crate::event::*;

fn facts(uid: &str, node: Option<&str>) -> PodFacts {
    let selector =
        Some(SelectorFacts { labels: [("app".to_owned(), "web".to_owned())].into(), ..SelectorFacts::default() });
    PodFacts {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        uid: uid.to_owned(),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        node: node.map(str::to_owned),
        anti_affinity: vec![TermFacts { topology_key: "zone".to_owned(), selector, ..TermFacts::default() }],
        ..PodFacts::default()
    }
}

fn told(uid: &str, node: Option<&str>) -> Event {
    Event::PodApplied(facts(uid, node))
}

fn assumed(uid: &str, node: &str) -> Event {
    Event::PodAssumed { pod: Box::new(facts(uid, None)), node: node.to_owned() }
}

fn forgotten(uid: &str) -> Event {
    Event::PodForgotten { namespace: "shop".to_owned(), name: "web".to_owned(), uid: uid.to_owned() }
}

fn deleted() -> Event {
    Event::PodDeleted { namespace: "shop".to_owned(), name: "web".to_owned() }
}

/// How many pods there are, where the pod is, and whether that is only assumed.
fn state(world: &World) -> (usize, Option<&str>, bool) {
    let pod = world.pod_id("shop", "web").and_then(|id| world.pod(id));
    let on = pod.and_then(|pod| pod.placed_on()).map(|node| world.interner().text(node));
    (world.pod_count(), on, pod.is_some_and(|pod| pod.is_assumed()))
}

#[test]
fn every_order_of_binding_and_telling() {
    let finished = || Event::PodApplied(PodFacts { finished: true, ..facts("u1", None) });
    let relist = |events: Vec<Event>| {
        let marks = [Event::RelistBegan(Source::Pods), Event::RelistEnded(Source::Pods)];
        let [began, ended] = marks;
        std::iter::once(began).chain(events).chain([ended]).collect::<Vec<_>>()
    };
    type Case = (&'static str, Vec<Event>, (usize, Option<&'static str>, bool));
    let cases: Vec<Case> = vec![
        ("assumed", vec![told("u1", None), assumed("u1", "n1")], (1, Some("n1"), true)),
        ("then bound", vec![told("u1", None), assumed("u1", "n1"), told("u1", Some("n1"))], (1, Some("n1"), false)),
        (
            "bound elsewhere",
            vec![told("u1", None), assumed("u1", "n1"), told("u1", Some("n2"))],
            (1, Some("n2"), false),
        ),
        ("another change first", vec![told("u1", None), assumed("u1", "n1"), told("u1", None)], (1, Some("n1"), true)),
        ("recreated", vec![told("u1", None), assumed("u1", "n1"), told("u2", None)], (1, None, false)),
        ("finished", vec![told("u1", None), assumed("u1", "n1"), finished()], (1, None, false)),
        ("deleted", vec![told("u1", None), assumed("u1", "n1"), deleted(), forgotten("u1")], (0, None, false)),
        ("forgotten", vec![told("u1", None), assumed("u1", "n1"), forgotten("u1")], (1, None, false)),
        ("of another one", vec![told("u1", None), assumed("u1", "n1"), forgotten("u2")], (1, Some("n1"), true)),
        ("too late", vec![told("u1", Some("n2")), assumed("u1", "n1")], (1, Some("n2"), false)),
        (
            "forgotten too late",
            vec![assumed("u1", "n1"), told("u1", Some("n1")), forgotten("u1")],
            (1, Some("n1"), false),
        ),
        ("anew", vec![told("u1", None), assumed("u1", "n1"), assumed("u1", "n2")], (1, Some("n2"), true)),
        ("for a predecessor", vec![told("u2", None), assumed("u1", "n1")], (1, None, false)),
        ("of a finished one", vec![finished(), assumed("u1", "n1")], (1, None, false)),
        ("before it is told of", vec![assumed("u1", "n1")], (1, Some("n1"), true)),
        ("and told then", vec![assumed("u1", "n1"), told("u1", None)], (1, Some("n1"), true)),
        ("and told bound", vec![assumed("u1", "n1"), told("u1", Some("n1"))], (1, Some("n1"), false)),
        ("and forgotten", vec![assumed("u1", "n1"), forgotten("u1")], (0, None, false)),
        ("told, then forgotten", vec![assumed("u1", "n1"), told("u1", None), forgotten("u1")], (1, None, false)),
        ("a list older than the pod", [vec![assumed("u1", "n1")], relist(vec![])].concat(), (1, Some("n1"), true)),
        (
            "a list without a pod that was told of",
            [vec![told("u1", None), assumed("u1", "n1")], relist(vec![])].concat(),
            (0, None, false),
        ),
        (
            "a list with it",
            [vec![told("u1", None), assumed("u1", "n1")], relist(vec![told("u1", None)])].concat(),
            (1, Some("n1"), true),
        ),
    ];
    for (what, events, expected) in cases {
        let mut world = world_after(&events);
        assert_eq!(state(&world), expected, "{what}");
        // Wherever it is, it is listed there once, and leaves nothing behind.
        let listed: Vec<usize> = ["n1", "n2"].map(|node| world.pods_bound_to(node).len()).into();
        assert_eq!(listed.iter().sum::<usize>(), usize::from(expected.1.is_some()), "{what}");
        world.apply(deleted());
        assert!(world.interner().is_empty(), "{what}");
    }
}

#[test]
fn a_pod_that_is_being_bound_is_not_bound() {
    let world = world_after(&[told("u1", None), assumed("u1", "n1")]);
    let pod = world.pod(world.pod_id("shop", "web").expect("known")).expect("known");
    assert_eq!((pod.node(), pod.placed_on().map(|node| world.interner().text(node))), (None, Some("n1")));
}
