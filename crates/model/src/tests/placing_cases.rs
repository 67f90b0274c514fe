//! Example cases of placing a pod, one rule each.

use super::properties::world_after;
use crate::affinity::Refusal;
use crate::event::*;
use crate::testing::{HOSTNAME, labels, selector};
use crate::{Incoming, LiftMode, LiftSettings, NodeId, NodeSet, Reading, ScoreSettings, View, World};

const HOST: &str = "alpha.cna.vmware.com/host";

fn node(name: &str, more: &[(&str, &str)]) -> Event {
    let mut labels = labels(more);
    labels.insert(HOSTNAME.to_owned(), name.to_owned());
    Event::NodeApplied(NodeFacts { name: name.to_owned(), labels, ready: true, ..NodeFacts::default() })
}

/// Two zones of two nodes each, and a node without a zone.
fn nodes() -> Vec<Event> {
    vec![
        node("a1", &[("zone", "a")]),
        node("a2", &[("zone", "a")]),
        node("b1", &[("zone", "b")]),
        node("b2", &[("zone", "b")]),
        node("bare", &[]),
    ]
}

fn app(app: &str) -> Option<SelectorFacts> {
    Some(selector(app))
}

fn term(key: &str, selector: Option<SelectorFacts>) -> TermFacts {
    TermFacts { topology_key: key.to_owned(), selector, ..TermFacts::default() }
}

fn pod(name: &str, of: &str, node: Option<&str>) -> PodFacts {
    PodFacts {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        labels: labels(&[("app", of)]),
        node: node.map(str::to_owned),
        ..PodFacts::default()
    }
}

fn with(pods: Vec<PodFacts>) -> World {
    let events: Vec<Event> = nodes().into_iter().chain(pods.into_iter().map(Event::PodApplied)).collect();
    world_after(&events)
}

fn names(world: &World, set: &NodeSet) -> Vec<String> {
    let mut names: Vec<String> = set.iter().filter_map(|node| world.node_name(node)).map(str::to_owned).collect();
    names.sort();
    names
}

fn feasible(world: &World, pod: &PodFacts) -> Vec<String> {
    let verdicts = Incoming::of(world, pod).verdicts(world, &View::default(), Reading::Lifting, None);
    names(world, &verdicts.feasible)
}

const ALL: [&str; 5] = ["a1", "a2", "b1", "b2", "bare"];

#[test]
fn required_affinity() {
    let near = |terms: Vec<TermFacts>, of: &str| PodFacts { affinity: terms, ..pod("new", of, None) };
    let db = || pod("db", "db", Some("a1"));
    let everything = || Some(SelectorFacts::default());
    let elsewhere = |namespaces: &[&str]| TermFacts {
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        ..term("zone", app("db"))
    };
    // The case, the existing pods, the incoming pod, the feasible nodes.
    type Case = (&'static str, Vec<PodFacts>, PodFacts, &'static [&'static str]);
    let cases: Vec<Case> = vec![
        ("by zone", vec![db()], near(vec![term("zone", app("db"))], "web"), &["a1", "a2"]),
        ("by node", vec![db()], near(vec![term(HOSTNAME, app("db"))], "web"), &["a1"]),
        ("no pod", vec![], near(vec![term("zone", app("db"))], "web"), &[]),
        ("no selector matches no pod", vec![db()], near(vec![term("zone", None)], "web"), &[]),
        ("nor the pod itself", vec![], near(vec![term("zone", None)], "web"), &[]),
        ("an empty selector matches all", vec![db()], near(vec![term("zone", everything())], "web"), &["a1", "a2"]),
        ("the first of its group", vec![], near(vec![term("zone", app("web"))], "web"), &["a1", "a2", "b1", "b2"]),
        ("the second", vec![pod("w", "web", Some("b1"))], near(vec![term("zone", app("web"))], "web"), &["b1", "b2"]),
        (
            "a pod on a node without the key does not count",
            vec![pod("w", "web", Some("bare"))],
            near(vec![term("zone", app("web"))], "web"),
            &["a1", "a2", "b1", "b2"],
        ),
        (
            "one pod must match all terms: two pods that match one each are not enough",
            vec![
                PodFacts { labels: labels(&[("x", "1")]), ..pod("p", "", Some("a1")) },
                PodFacts { labels: labels(&[("y", "1")]), ..pod("q", "", Some("a1")) },
            ],
            near(
                vec![
                    term("zone", Some(SelectorFacts { labels: labels(&[("x", "1")]), ..SelectorFacts::default() })),
                    term("zone", Some(SelectorFacts { labels: labels(&[("y", "1")]), ..SelectorFacts::default() })),
                ],
                "web",
            ),
            &[],
        ),
        (
            "a pod that matches both is enough, under each key",
            vec![PodFacts { labels: labels(&[("x", "1"), ("y", "1")]), ..pod("p", "", Some("a1")) }],
            near(
                vec![
                    term("zone", Some(SelectorFacts { labels: labels(&[("x", "1")]), ..SelectorFacts::default() })),
                    term(HOSTNAME, Some(SelectorFacts { labels: labels(&[("y", "1")]), ..SelectorFacts::default() })),
                ],
                "web",
            ),
            &["a1"],
        ),
        (
            "another namespace does not count",
            vec![PodFacts { namespace: "other".to_owned(), ..db() }],
            near(vec![term("zone", app("db"))], "web"),
            &[],
        ),
        (
            "unless the term names it",
            vec![PodFacts { namespace: "other".to_owned(), ..db() }],
            near(vec![elsewhere(&["other"])], "web"),
            &["a1", "a2"],
        ),
        ("but then the pod's own does not", vec![db()], near(vec![elsewhere(&["other"])], "web"), &[]),
        (
            "all namespaces",
            vec![PodFacts { namespace: "other".to_owned(), ..db() }],
            near(vec![TermFacts { namespace_selector: everything(), ..term("zone", app("db")) }], "web"),
            &["a1", "a2"],
        ),
        (
            "a terminating pod counts",
            vec![PodFacts { terminating: true, ..db() }],
            near(vec![term("zone", app("db"))], "web"),
            &["a1", "a2"],
        ),
        (
            "a finished pod does not",
            vec![PodFacts { finished: true, ..db() }],
            near(vec![term("zone", app("db"))], "web"),
            &[],
        ),
        (
            "nor does a pod on an unknown node",
            vec![pod("db", "db", Some("gone"))],
            near(vec![term("zone", app("db"))], "web"),
            &[],
        ),
    ];
    for (what, pods, incoming, expected) in cases {
        let world = with(pods);
        assert_eq!(feasible(&world, &incoming), expected, "{what}");
        let verdicts = Incoming::of(&world, &incoming).verdicts(&world, &View::default(), Reading::AsWritten, None);
        let refused = world.node_ids().filter_map(|node| verdicts.refusal(node));
        assert!(refused.into_iter().all(|refusal| refusal == Refusal::Affinity && !refusal.is_resolvable()), "{what}");
    }
}

#[test]
fn required_anti_affinity_in_both_directions() {
    let avoiding = |key, from| PodFacts { anti_affinity: vec![term(key, app(from))], ..pod("new", "web", None) };
    let db = || pod("db", "db", Some("a1"));
    let shy = |key| PodFacts { anti_affinity: vec![term(key, app("web"))], ..db() };
    let but = |without: &[&str]| ALL.into_iter().filter(|name| !without.contains(name)).collect::<Vec<_>>();
    let cases = [
        ("by zone", vec![db()], avoiding("zone", "db"), but(&["a1", "a2"]), Some(Refusal::AntiAffinity)),
        ("by node", vec![db()], avoiding(HOSTNAME, "db"), but(&["a1"]), Some(Refusal::AntiAffinity)),
        ("from itself", vec![], avoiding("zone", "web"), but(&[]), None),
        ("a node without the key", vec![pod("db", "db", Some("bare"))], avoiding("zone", "db"), but(&[]), None),
        (
            "existing pod's by zone",
            vec![shy("zone")],
            pod("new", "web", None),
            but(&["a1", "a2"]),
            Some(Refusal::ExistingAntiAffinity),
        ),
        (
            "existing pod's by node",
            vec![shy(HOSTNAME)],
            pod("new", "web", None),
            but(&["a1"]),
            Some(Refusal::ExistingAntiAffinity),
        ),
        ("existing pod's for other pods", vec![shy("zone")], pod("new", "else", None), but(&[]), None),
        (
            "both: the incoming pod's own is reported",
            vec![shy("zone")],
            avoiding("zone", "db"),
            but(&["a1", "a2"]),
            Some(Refusal::AntiAffinity),
        ),
    ];
    for (what, pods, incoming, expected, refusal) in cases {
        let world = with(pods);
        assert_eq!(feasible(&world, &incoming), expected, "{what}");
        let incoming = Incoming::of(&world, &incoming);
        let verdicts = incoming.verdicts(&world, &View::default(), Reading::Lifting, None);
        let a1 = world.node_id("a1").expect("known");
        assert_eq!(verdicts.refusal(a1), refusal, "{what}");
        assert!(refusal.is_none_or(Refusal::is_resolvable));
        let blockers = incoming.blockers(&world, &View::default(), Reading::Lifting, a1, 5);
        assert_eq!(blockers.len(), usize::from(refusal.is_some()), "{what}");
    }
}

fn hosts() -> Vec<Event> {
    // Nodes 1 and 2 share a host, node 3 is alone on its host, the host of node 4 is unknown.
    vec![node("1", &[(HOST, "esx-1")]), node("2", &[(HOST, "esx-1")]), node("3", &[(HOST, "esx-2")]), node("4", &[])]
}

fn lonely(name: &str, node: Option<&str>) -> PodFacts {
    PodFacts { anti_affinity: vec![term(HOSTNAME, app("web"))], ..pod(name, "web", node) }
}

#[test]
fn anti_affinity_between_nodes_applies_between_hosts() {
    let mut world = world_after(&hosts());
    world.apply(Event::PodApplied(lonely("w1", Some("1"))));
    let (lifting, as_written) = (Reading::Lifting, Reading::AsWritten);
    let feasible = |world: &World, pod: &PodFacts, reading| {
        names(world, &Incoming::of(world, pod).verdicts(world, &View::default(), reading, None).feasible)
    };
    let new = lonely("new", None);
    assert_eq!(feasible(&world, &new, as_written), ["2", "3", "4"]);
    assert_eq!(feasible(&world, &new, lifting), ["3", "4"]);
    let two = world.node_id("2").expect("known");
    let incoming = Incoming::of(&world, &new);
    let verdicts = incoming.verdicts(&world, &View::default(), lifting, None);
    assert_eq!(
        verdicts.refusal(two).map(|refusal| (refusal, refusal.plugin())),
        Some((Refusal::HostAntiAffinity, "PhysicalHost"))
    );
    let blockers = incoming.blockers(&world, &View::default(), lifting, two, 5);
    assert!(blockers.len() == 1 && blockers[0].on_host && world.node_name(blockers[0].node) == Some("1"));
    assert_eq!(blockers[0].in_words(&world).as_deref(), Some("pod shop/w1 on 1 (host esx-1), which this pod avoids"));

    // Opting out is per carrier: the incoming pod opts out and the existing one does not, and the other way round.
    let off = PodFacts { lift_off: true, ..new.clone() };
    assert_eq!(feasible(&world, &off, lifting), ["3", "4"]);
    world.apply(Event::PodApplied(PodFacts { lift_off: true, ..lonely("w1", Some("1")) }));
    assert_eq!(feasible(&world, &new, lifting), ["3", "4"]);
    assert_eq!(feasible(&world, &off, lifting), ["2", "3", "4"]);
    world.apply(Event::PodApplied(lonely("w1", Some("1"))));
    let namespace = |lift_off| {
        Event::NamespaceApplied(NamespaceFacts { name: "shop".to_owned(), lift_off, ..NamespaceFacts::default() })
    };
    world.apply(namespace(true));
    assert_eq!(feasible(&world, &new, lifting), ["2", "3", "4"]);
    world.apply(namespace(false));
    assert_eq!(feasible(&world, &new, lifting), ["3", "4"]);

    // Affinity is never lifted.
    let near = PodFacts { affinity: vec![term(HOSTNAME, app("web"))], ..pod("near", "sidecar", None) };
    assert_eq!(feasible(&world, &near, lifting), ["1"]);
}

#[test]
fn relaxed_mode_does_not_lift_terms_if_there_are_too_few_hosts() {
    let mut world = World::with_lifting(LiftSettings { mode: LiftMode::Relaxed, ..LiftSettings::default() });
    hosts().into_iter().for_each(|event| {
        world.apply(event);
    });
    for (name, node) in [("w1", "1"), ("w2", "3")] {
        world.apply(Event::PodApplied(lonely(name, Some(node))));
    }
    let incoming = Incoming::of(&world, &lonely("new", None));
    let verdicts = |candidates: &[&str]| {
        let set: NodeSet = candidates.iter().map(|name| world.node_id(name).expect("known")).collect();
        let verdicts = incoming.verdicts(&world, &View::default(), Reading::Lifting, Some(&set));
        (names(&world, &verdicts.feasible), verdicts.relaxed)
    };
    let text = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(verdicts(&["1", "2", "3", "4"]), (text(&["4"]), false));
    // Another plugin excluded node 4.
    assert_eq!(verdicts(&["1", "2", "3"]), (text(&["2", "4"]), true));
    assert_eq!(verdicts(&["1", "3"]), (text(&["4"]), false));
}

#[test]
fn a_view_moves_pods_without_changing_the_world() {
    let mut world = world_after(&hosts());
    for (name, node) in [("w1", Some("1")), ("w2", None)] {
        world.apply(Event::PodApplied(lonely(name, node)));
    }
    let pod = |name: &str| world.pod_id("shop", name).expect("known");
    let node = |name: &str| world.node_id(name).expect("known");
    let incoming = Incoming::of(&world, &lonely("new", None));
    let feasible = |view: &View| names(&world, &incoming.verdicts(&world, view, Reading::Lifting, None).feasible);
    assert_eq!(feasible(&View::default()), ["3", "4"]);
    assert_eq!(feasible(&View::default().without(pod("w1"))), ["1", "2", "3", "4"]);
    assert_eq!(feasible(&View::default().with(pod("w2"), node("3"))), ["4"]);
    assert_eq!(feasible(&View::default().without(pod("w1")).with(pod("w1"), node("4"))), ["1", "2", "3"]);
    assert_eq!(feasible(&View::default()), ["3", "4"]);
}

#[test]
fn scores_and_their_scales() {
    let preferred = |weight, key, of| WeightedTermFacts { weight, term: term(key, app(of)) };
    let world = with(vec![
        pod("db", "db", Some("a1")),
        pod("noisy", "noisy", Some("b1")),
        PodFacts { affinity: vec![term("zone", app("web"))], ..pod("friend", "friend", Some("b2")) },
        PodFacts { preferred_anti_affinity: vec![preferred(4, HOSTNAME, "web")], ..pod("shy", "shy", Some("a2")) },
    ]);
    let incoming = PodFacts {
        preferred_affinity: vec![preferred(10, "zone", "db")],
        preferred_anti_affinity: vec![preferred(7, HOSTNAME, "noisy")],
        ..pod("new", "web", None)
    };
    let nodes: Vec<NodeId> = ALL.iter().map(|name| world.node_id(name).expect("known")).collect();
    let incoming = Incoming::of(&world, &incoming);
    let settings = ScoreSettings::default();
    let scores = |settings| incoming.scores(&world, &View::default(), Reading::AsWritten, settings, &nodes);
    let found = scores(&settings);
    assert_eq!((found.raw.as_slice(), found.is_silent), (&[10, 6, -6, 1, 0][..], false));
    assert_eq!(found.normalised(), [100, 75, 0, 43, 37]);
    assert_eq!(found.for_extender(), [10, 7, 0, 4, 3]);
    let heavier = ScoreSettings { hard_pod_affinity_weight: 50, ..settings };
    assert_eq!(scores(&heavier).raw, [10, 6, 43, 50, 0]);

    // A pod that only existing pods' terms match, and one that no term matches.
    let ignoring = ScoreSettings { ignore_preferred_terms_of_existing_pods: true, ..settings };
    for (app, settings, silent) in [("web", &settings, false), ("web", &ignoring, true), ("else", &settings, true)] {
        let incoming = Incoming::of(&world, &pod("new", app, None));
        let found = incoming.scores(&world, &View::default(), Reading::AsWritten, settings, &nodes);
        assert_eq!((found.is_silent, found.normalised().len()), (silent, nodes.len()), "{app}");
        assert!(!silent || found.normalised().iter().all(|score| *score == 0));
    }
}

#[test]
fn nodes_on_hosts_that_accept_no_pods() {
    use HostConnection::{Connected, Disconnected, NotResponding};
    let uuid = Some(uuid::Uuid::from_u128(1));
    let node = |ready| {
        let name = "n".to_owned();
        Event::NodeApplied(NodeFacts { name, system_uuid: uuid, ready, ..NodeFacts::default() })
    };
    let host = |connection, maintenance| Event::HostApplied {
        vcenter: VcenterId(0),
        host: HostFacts { id: "h".to_owned(), name: "esx".to_owned(), connection, maintenance, ..HostFacts::default() },
    };
    let vm = VmFacts { id: "vm".to_owned(), host: Some("h".to_owned()), bios_uuid: uuid, ..VmFacts::default() };
    let mut world = world_after(&[node(true), Event::VmApplied { vcenter: VcenterId(0), vm }]);
    for (ready, connection, maintenance, refused) in [
        (true, Connected, false, false),
        (false, Connected, false, false),
        (true, Connected, true, true),
        (true, NotResponding, false, false),
        (false, NotResponding, false, true),
        (true, Disconnected, false, false),
        (false, Disconnected, false, true),
        (true, Disconnected, true, true),
        (true, Connected, false, false),
    ] {
        for event in [host(connection, maintenance), node(ready)] {
            world.apply(event);
        }
        assert_eq!(world.nodes_refused().len(), usize::from(refused), "{ready} {connection:?} {maintenance}");
    }
    world.apply(host(Connected, true));
    world.apply(Event::VmRemoved { vcenter: VcenterId(0), id: "vm".to_owned() });
    assert!(world.nodes_refused().is_empty());
    // Load changes all the time and touches no node.
    world.apply(node(true));
    let load = HostLoadFacts { cpu_used_mhz: 5, cpu_capacity_mhz: 10, ..HostLoadFacts::default() };
    let busy = HostFacts {
        id: "h".to_owned(),
        name: "esx".to_owned(),
        load: Some(load),
        maintenance: true,
        ..HostFacts::default()
    };
    assert!(world.apply(Event::HostApplied { vcenter: VcenterId(0), host: busy }).touched.is_empty());
}
