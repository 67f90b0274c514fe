//! Which pods are evicted, and when none is.

use std::cell::Cell;
use std::sync::Arc;

use model::World;
use model::event::{Event, Labels, PodFacts, SelectorFacts};
use model::scheduling::{DisruptionBudgetFacts, PodSchedulingFacts, ResourceSums};

use super::{Candidate, Search};
use crate::config::Configuration;
use crate::explain::preemption::PreemptionExplanation;
use crate::framework::cycle::Cycle;
use crate::framework::points::RejectedNodes;
use crate::framework::status::Rejection;
use crate::testing::{NAMESPACE, apply, id, pod_with, world};
use crate::{explain, plugins};

thread_local! {
    /// How often a kept result was used.
    static KEPT: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn note_kept(results: usize) {
    KEPT.set(KEPT.get() + results);
}

pub(crate) fn kept_results_used() -> usize {
    KEPT.get()
}

/// Preemption that examines every node gives the same result. Called for every preemption in this crate's tests.
pub(super) fn assert_same_without_kept_results(
    cycle: &Cycle<'_>,
    rejected: &dyn RejectedNodes,
    best: &Result<Candidate, Vec<Rejection>>,
) {
    let search = Search::of(cycle, rejected);
    let expected = match search.best(cycle.world) {
        Some(node) => Ok(search.candidates.into_iter().find(|candidate| candidate.node == node).expect("it is one")),
        None => Err(search.refused),
    };
    assert_eq!(*best, expected);
}

/// A node has 4000.
fn sized(name: &str, cpu_milli: i64, priority: i32) -> PodFacts {
    pod_with(name, |facts| {
        let sums = ResourceSums { cpu_milli, ..ResourceSums::default() };
        facts.priority = priority;
        (facts.requests.asked, facts.requests.taken, facts.requests.scored) = (sums.clone(), sums.clone(), sums);
    })
}

/// On a node, started at this time.
fn runs(world: &mut World, node: &str, started_s: i64, facts: PodFacts) {
    let facts = PodFacts { node: Some(node.to_owned()), started_s: Some(started_s), ..facts };
    apply(world, Event::PodApplied(facts));
}

fn labelled(facts: PodFacts, app: &str) -> PodFacts {
    PodFacts { labels: Labels::from([("app".to_owned(), app.to_owned())]), ..facts }
}

fn budget(world: &mut World, app: Option<&str>, disruptions_allowed: i32) {
    let labels = app.map(|app| ("app".to_owned(), app.to_owned())).into_iter().collect();
    apply(
        world,
        Event::DisruptionBudgetApplied(DisruptionBudgetFacts {
            namespace: NAMESPACE.to_owned(),
            name: app.unwrap_or("all").to_owned(),
            selector: Some(SelectorFacts { labels, ..SelectorFacts::default() }),
            disruptions_allowed,
            ..DisruptionBudgetFacts::default()
        }),
    );
}

fn explained(world: &mut World, facts: PodFacts) -> PreemptionExplanation {
    let name = facts.name.clone();
    apply(world, Event::PodApplied(facts));
    let configuration = Configuration::with_name("bridger", &plugins::standard()).expect("the default profile works");
    let explained = explain(world, id(world, &name), &configuration.profiles()[0]).expect("no plugin fails");
    explained.preemption.expect("no node fits")
}

/// A node, the names of its victims, and how many of them a budget protects.
type Found<'a> = (&'a str, Vec<&'a str>, usize);

/// The candidates, and the chosen node.
fn victims(explained: &PreemptionExplanation) -> (Vec<Found<'_>>, Option<&str>) {
    let candidates = explained.candidates.iter().map(|candidate| {
        let victims = candidate.victims.iter().map(|pod| pod.rsplit('/').next().unwrap_or(pod)).collect();
        (candidate.node.as_str(), victims, candidate.pdb_violations)
    });
    (candidates.collect(), explained.node.as_deref())
}

#[test]
fn pods_stay_as_long_as_there_is_room_the_most_important_first() {
    let mut world = world(&["n1"]);
    // In the order of importance: a (priority), c (runs longest), d, b.
    for (name, cpu, priority, started) in [("a", 1000, 5, 9), ("b", 1000, 1, 8), ("c", 1000, 1, 2), ("d", 500, 1, 4)] {
        runs(&mut world, "n1", started, sized(name, cpu, priority));
    }
    // 500 are free. With a and c back there is no room for d or b.
    let explained_pod = explained(&mut world, sized("big", 2000, 10));
    assert_eq!(victims(&explained_pod), (vec![("n1", vec!["d", "b"], 0)], Some("n1")));
    // d returns although c, which is more important, does not: it is small enough.
    let explained_pod = explained(&mut world, sized("bigger", 2500, 10));
    assert_eq!(victims(&explained_pod), (vec![("n1", vec!["c", "b"], 0)], Some("n1")));
}

#[test]
fn pods_of_equal_or_higher_priority_stay() {
    let mut world = world(&["n1", "n2"]);
    runs(&mut world, "n1", 1, sized("equal", 3000, 5));
    runs(&mut world, "n1", 1, sized("lower", 500, 4));
    runs(&mut world, "n2", 1, sized("higher", 4000, 6));
    let explained = explained(&mut world, sized("pod", 1000, 5));
    assert!(explained.eligible && explained.candidates.len() == 1, "{explained:?}");
    let mut world = crate::testing::world(&["n1", "n2"]);
    runs(&mut world, "n1", 1, sized("equal", 3500, 5));
    runs(&mut world, "n1", 1, sized("lower", 500, 4));
    runs(&mut world, "n2", 1, sized("higher", 4000, 6));
    let explained = self::explained(&mut world, sized("pod", 1000, 5));
    let expected = "0/2 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod.";
    assert_eq!((explained.reason.as_deref(), explained.node.as_deref()), (Some(expected), None));
}

#[test]
fn budgets_decide_which_pods_and_which_node() {
    let mut world = world(&["n1", "n2"]);
    runs(&mut world, "n1", 1, labelled(sized("kept", 2000, 1), "kept"));
    runs(&mut world, "n1", 1, labelled(sized("other", 2000, 2), "other"));
    runs(&mut world, "n2", 1, labelled(sized("all", 4000, 1), "kept"));
    budget(&mut world, Some("kept"), 0);
    // On n1 the more important pod goes, because the other one is protected. n2 needs a violation.
    let explained = explained(&mut world, sized("pod", 2000, 10));
    assert_eq!(victims(&explained), (vec![("n1", vec!["other"], 0), ("n2", vec!["all"], 1)], Some("n1")));
    // A budget that allows one eviction protects the second pod alone.
    budget(&mut world, Some("kept"), 1);
    let explained = self::explained(&mut world, sized("pod", 2000, 10));
    assert_eq!(victims(&explained), (vec![("n1", vec!["kept"], 0), ("n2", vec!["all"], 0)], Some("n1")));
}

#[test]
fn a_budget_with_an_empty_selector_protects_every_pod_of_its_namespace() {
    let mut world = world(&["n1"]);
    runs(&mut world, "n1", 1, sized("plain", 4000, 1));
    budget(&mut world, None, 0);
    // kube-scheduler reports no violation here.
    let explained = explained(&mut world, sized("pod", 2000, 10));
    assert_eq!(victims(&explained), (vec![("n1", vec!["plain"], 1)], Some("n1")));
}

#[test]
fn the_node_with_the_least_harm_is_chosen() {
    // Pods of each node as cpu, priority and start; the chosen node.
    type Runs<'a> = &'a [(i64, i32, i64)];
    let cases: [(&str, Runs<'_>, Runs<'_>, &str); 5] = [
        ("the lowest highest priority", &[(4000, 3, 1)], &[(2000, 2, 1), (2000, 2, 1)], "n2"),
        ("the smallest sum", &[(2000, 2, 1), (2000, 2, 1)], &[(2000, 2, 1), (2000, 1, 1)], "n2"),
        ("fewer victims", &[(2000, 2, 1), (2000, 2, 1)], &[(4000, 2, 1)], "n2"),
        ("the victim that started last", &[(4000, 2, 1)], &[(4000, 2, 7)], "n2"),
        ("the first", &[(4000, 2, 1)], &[(4000, 2, 1)], "n1"),
    ];
    for (case, first, second, expected) in cases {
        let mut world = world(&["n1", "n2"]);
        for (node, pods) in [("n1", first), ("n2", second)] {
            for (number, &(cpu, priority, started)) in pods.iter().enumerate() {
                runs(&mut world, node, started, sized(&format!("{node}-{number}"), cpu, priority));
            }
        }
        let explained = explained(&mut world, sized("pod", 4000, 10));
        assert_eq!(explained.node.as_deref(), Some(expected), "{case}: {explained:?}");
    }
}

#[test]
fn some_pods_may_not_preempt() {
    let full = || {
        let mut world = world(&["n1"]);
        runs(&mut world, "n1", 1, sized("low", 4000, 1));
        world
    };
    let mut never = sized("pod", 2000, 10);
    let change = |facts: &mut PodSchedulingFacts| facts.preemption = model::scheduling::PreemptionPolicy::Never;
    change(Arc::make_mut(never.scheduling.as_mut().expect("facts")));
    let explained = explained(&mut full(), never);
    let expected = "not eligible due to preemptionPolicy=Never.";
    assert_eq!((explained.eligible, explained.reason.as_deref()), (false, Some(expected)));

    let nominated = || PodFacts { nominated_node: Some("n1".to_owned()), ..sized("pod", 2000, 10) };
    for (terminating, preempted, priority, is_eligible) in
        [(false, true, 1, true), (true, false, 1, true), (true, true, 10, true), (true, true, 1, false)]
    {
        let mut world = full();
        let leaving = PodFacts { terminating, preempted, ..sized("leaving", 100, priority) };
        runs(&mut world, "n1", 1, leaving);
        let explained = self::explained(&mut world, nominated());
        let case = format!("{terminating} {preempted} {priority} {explained:?}");
        assert_eq!(explained.eligible, is_eligible, "{case}");
    }
}

#[test]
fn a_pod_makes_room_only_where_it_fits_beside_the_pods_nominated_there() {
    let mut world = world(&["n1", "n2"]);
    runs(&mut world, "n1", 1, sized("low-1", 4000, 1));
    runs(&mut world, "n2", 1, sized("low-2", 4000, 1));
    let waits = PodFacts { nominated_node: Some("n1".to_owned()), ..sized("waits", 3000, 10) };
    apply(&mut world, Event::PodApplied(waits));
    let explained = explained(&mut world, sized("pod", 2000, 10));
    assert_eq!(victims(&explained), (vec![("n2", vec!["low-2"], 0)], Some("n2")));
}
