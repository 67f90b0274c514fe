//! Pods that are being bound: every order of binding and watch events.

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

fn applied(uid: &str, node: Option<&str>) -> Event {
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

/// The number of pods, the node of the pod, and whether the pod is only assumed there.
fn state(world: &World) -> (usize, Option<&str>, bool) {
    let pod = world.pod_id("shop", "web").and_then(|id| world.pod(id));
    let on = pod.and_then(|pod| pod.placed_on()).map(|node| world.interner().text(node));
    (world.pod_count(), on, pod.is_some_and(|pod| pod.is_assumed()))
}

#[test]
fn every_order_of_binding_and_watch_events() {
    let finished = || Event::PodApplied(PodFacts { finished: true, ..facts("u1", None) });
    let relist = |events: Vec<Event>| {
        let marks = [Event::RelistBegan(Source::Pods), Event::RelistEnded(Source::Pods)];
        let [began, ended] = marks;
        std::iter::once(began).chain(events).chain([ended]).collect::<Vec<_>>()
    };
    type Case = (&'static str, Vec<Event>, (usize, Option<&'static str>, bool));
    let cases: Vec<Case> = vec![
        ("assumed", vec![applied("u1", None), assumed("u1", "n1")], (1, Some("n1"), true)),
        (
            "then bound",
            vec![applied("u1", None), assumed("u1", "n1"), applied("u1", Some("n1"))],
            (1, Some("n1"), false),
        ),
        (
            "bound elsewhere",
            vec![applied("u1", None), assumed("u1", "n1"), applied("u1", Some("n2"))],
            (1, Some("n2"), false),
        ),
        (
            "another change first",
            vec![applied("u1", None), assumed("u1", "n1"), applied("u1", None)],
            (1, Some("n1"), true),
        ),
        ("recreated", vec![applied("u1", None), assumed("u1", "n1"), applied("u2", None)], (1, None, false)),
        ("finished", vec![applied("u1", None), assumed("u1", "n1"), finished()], (1, None, false)),
        ("deleted", vec![applied("u1", None), assumed("u1", "n1"), deleted(), forgotten("u1")], (0, None, false)),
        ("forgotten", vec![applied("u1", None), assumed("u1", "n1"), forgotten("u1")], (1, None, false)),
        (
            "another pod forgotten",
            vec![applied("u1", None), assumed("u1", "n1"), forgotten("u2")],
            (1, Some("n1"), true),
        ),
        ("too late", vec![applied("u1", Some("n2")), assumed("u1", "n1")], (1, Some("n2"), false)),
        (
            "forgotten too late",
            vec![assumed("u1", "n1"), applied("u1", Some("n1")), forgotten("u1")],
            (1, Some("n1"), false),
        ),
        ("assumed again", vec![applied("u1", None), assumed("u1", "n1"), assumed("u1", "n2")], (1, Some("n2"), true)),
        ("predecessor assumed", vec![applied("u2", None), assumed("u1", "n1")], (1, None, false)),
        ("finished pod assumed", vec![finished(), assumed("u1", "n1")], (1, None, false)),
        ("assumed before applied", vec![assumed("u1", "n1")], (1, Some("n1"), true)),
        ("then applied", vec![assumed("u1", "n1"), applied("u1", None)], (1, Some("n1"), true)),
        ("then applied as bound", vec![assumed("u1", "n1"), applied("u1", Some("n1"))], (1, Some("n1"), false)),
        ("then forgotten", vec![assumed("u1", "n1"), forgotten("u1")], (0, None, false)),
        ("applied, then forgotten", vec![assumed("u1", "n1"), applied("u1", None), forgotten("u1")], (1, None, false)),
        ("a list older than the pod", [vec![assumed("u1", "n1")], relist(vec![])].concat(), (1, Some("n1"), true)),
        (
            "a list without an applied pod",
            [vec![applied("u1", None), assumed("u1", "n1")], relist(vec![])].concat(),
            (0, None, false),
        ),
        (
            "a list with it",
            [vec![applied("u1", None), assumed("u1", "n1")], relist(vec![applied("u1", None)])].concat(),
            (1, Some("n1"), true),
        ),
    ];
    for (what, events, expected) in cases {
        let mut world = world_after(&events);
        assert_eq!(state(&world), expected, "{what}");
        // It is listed once, under its node, and deleting it leaves nothing behind.
        let listed: Vec<usize> = ["n1", "n2"].map(|node| world.pods_bound_to(node).len()).into();
        assert_eq!(listed.iter().sum::<usize>(), usize::from(expected.1.is_some()), "{what}");
        world.apply(deleted());
        assert!(world.interner().is_empty(), "{what}");
    }
}

#[test]
fn a_pod_that_is_being_bound_is_not_bound() {
    let world = world_after(&[applied("u1", None), assumed("u1", "n1")]);
    let pod = world.pod(world.pod_id("shop", "web").expect("known")).expect("known");
    assert_eq!((pod.node(), pod.placed_on().map(|node| world.interner().text(node))), (None, Some("n1")));
}
