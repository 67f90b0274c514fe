//! Compares preemption with kube-scheduler's own DefaultPreemption: eligibility, candidates, victims, violated budgets, and
//! that the chosen node is one of those that upstream may choose.
//!
//! Upstream is asked about the corrected world ([`World::with_budgets_as_documented`]), so that a scheduler that reads
//! budgets as the API documents them agrees.

mod bridger;
mod harness;
mod misread;

use judge::change::remove;
use judge::{Judge, Preemption, Profile, Statistics, World};
use misread::{Misreading, detect};
use serde_json::{Value, json};
use testkit::{Worlds, count};

/// A scheduler's preemption in a world in which no node is feasible, as `bridger explain -o json` has it.
type Contestant<'a> = dyn FnMut(&World) -> Result<Preemption, String> + 'a;

/// The differences between upstream and another scheduler, one line each. None in a world in which preemption is not
/// tried.
fn differences(judge: &mut Judge, world: &World, contestant: &mut Contestant<'_>) -> Result<Vec<String>, String> {
    if !bridger::is_comparable(world) {
        return Ok(Vec::new());
    }
    let answer = judge.ask(&world.with_budgets_as_documented()).map_err(|error| format!("the judge: {error}"))?;
    let Some(theirs) = answer.preemption else { return Ok(Vec::new()) };
    Ok(theirs.differences_of(&contestant(world)?))
}

fn compare(profile: Profile, worlds: &Worlds, contestant: &mut Contestant<'_>) {
    harness::compare(profile, worlds, &mut |judge, world| differences(judge, world, contestant));
}

/// Upstream's code as a contestant that reads budgets as documented, and prefers the last of several equal nodes.
fn upstream(judge: &mut Judge, world: &World) -> Result<Preemption, String> {
    let answer = judge.ask(&world.with_budgets_as_documented()).map_err(|error| error.to_string())?;
    let mut given = answer.preemption.ok_or("preemption is not tried")?;
    given.node = given.best.last().cloned();
    Ok(given)
}

#[test]
fn a_scheduler_that_decides_as_upstream_agrees() {
    for profile in [Profile::Preemption, Profile::Volumes] {
        let mut contestant = Judge::start().unwrap();
        compare(profile, &Worlds::drawn_or_replayed(count(300, 3000)), &mut |world| upstream(&mut contestant, world));
    }
}

fn of_bridger(world: &World) -> Result<Preemption, String> {
    let explained = bridger::decide(world)?.preemption.ok_or("preemption is not tried")?;
    let as_printed = serde_json::to_value(&explained).map_err(|error| error.to_string())?;
    serde_json::from_value(as_printed).map_err(|error| error.to_string())
}

#[test]
fn bridger_preempts_as_kube_scheduler() {
    for profile in [Profile::Preemption, Profile::Volumes] {
        compare(profile, &Worlds::drawn_or_replayed(count(2000, 5000)), &mut of_bridger);
    }
}

#[test]
fn most_worlds_can_be_compared() {
    for profile in [Profile::Preemption, Profile::Volumes] {
        let worlds = Worlds::drawn(count(2000, 5000));
        let numbers = || worlds.numbers().map(|number| World::random(number, profile));
        let (comparable, all) = (numbers().filter(bridger::is_comparable).count(), numbers().count());
        assert!(comparable * 10 > all * 8, "{profile:?}: {comparable} of {all}");
    }
}

const MISREADINGS: &[Misreading] = &[
    ("budgets are ignored", |world| world.pod_disruption_budgets.clear()),
    ("an empty selector of a budget selects nothing", |world| {
        // The other way round: a scheduler that reads it so answers the changed world as upstream the original one.
        *world = world.with_budgets_as_documented();
    }),
    ("a nil selector of a budget selects every pod", |world| {
        budgets(world, |budget| {
            if budget["spec"].get("selector").is_none() {
                budget["spec"]["selector"] =
                    json!({ "matchExpressions": [{ "key": "none", "operator": "DoesNotExist" }] });
            }
        });
    }),
    ("a budget counts in every namespace", |world| {
        let mut doubles = Vec::new();
        for budget in &world.pod_disruption_budgets {
            for namespace in ["blue", "green", "red"] {
                if budget["metadata"]["namespace"] != namespace {
                    let mut double = budget.clone();
                    double["metadata"]["name"] = format!("double-{}", doubles.len()).into();
                    double["metadata"]["namespace"] = namespace.into();
                    doubles.push(double);
                }
            }
        }
        world.pod_disruption_budgets.append(&mut doubles);
    }),
    ("every disruption violates a budget", |world| {
        budgets(world, |budget| budget["status"]["disruptionsAllowed"] = 0.into());
    }),
    ("disrupted pods count against their budget", |world| {
        budgets(world, |budget| remove(&mut budget["status"], "disruptedPods"));
    }),
    ("start times are ignored", |world| existing(world, |pod| remove(&mut pod["status"], "startTime"))),
    ("a pod without a start time started first", |world| {
        existing(world, |pod| {
            if pod["status"].get("startTime").is_none() {
                pod["status"]["startTime"] = "2020-01-01T00:00:00Z".into();
            }
        });
    }),
    ("a missing priority is the lowest", |world| {
        existing(world, |pod| {
            if pod["spec"].get("priority").is_none() {
                pod["spec"]["priority"] = (-100).into();
            }
        });
    }),
    ("a pod of the same priority can be preempted", |world| {
        let own = world.pod["spec"]["priority"].as_i64().unwrap_or(0);
        existing(world, |pod| {
            if pod["spec"]["priority"].as_i64().unwrap_or(0) == own && pod["spec"].get("nodeName").is_some() {
                pod["spec"]["priority"] = (own - 1).into();
            }
        });
    }),
    ("a terminating pod is not preempted", |world| {
        existing(world, |pod| {
            if pod["metadata"].get("deletionTimestamp").is_some() {
                pod["spec"]["priority"] = 2_000_000_000.into();
            }
        });
    }),
    ("nominated pods do not count", |world| existing(world, |pod| remove(&mut pod["status"], "nominatedNodeName"))),
    ("nominated pods of lower priority count", |world| {
        existing(world, |pod| {
            if pod["status"].get("nominatedNodeName").is_some() {
                pod["spec"]["priority"] = 2_000_000_000.into();
            }
        });
    }),
    ("preemptionPolicy is ignored", |world| remove(&mut world.pod["spec"], "preemptionPolicy")),
    ("no terminating pod blocks preemption", |world| existing(world, |pod| remove(&mut pod["status"], "conditions"))),
    ("every terminating pod blocks preemption", |world| {
        existing(world, |pod| {
            pod["status"]["conditions"] =
                json!([{ "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler" }]);
        });
    }),
    ("the pod's nominated node is ignored", |world| remove(&mut world.pod["status"], "nominatedNodeName")),
];

fn budgets(world: &mut World, change: impl FnMut(&mut Value)) {
    world.pod_disruption_budgets.iter_mut().for_each(change);
}

fn existing(world: &mut World, change: impl FnMut(&mut Value)) {
    world.pods.iter_mut().for_each(change);
}

#[test]
fn every_misreading_is_detected() {
    detect(Profile::Preemption, MISREADINGS, |right, wrong| match (&right.preemption, &wrong.preemption) {
        (Some(right), Some(wrong)) => !right.differences_of(wrong).is_empty(),
        (right, wrong) => right.is_some() != wrong.is_some(),
    });
}

/// Each count is at least this share of the worlds, in thousandths. The true shares are at least twice as large.
#[test]
#[allow(clippy::print_stdout)]
fn preemption_decides_in_enough_worlds() {
    let mut judge = Judge::start().unwrap();
    let mut statistics = Statistics::default();
    let worlds = Worlds::drawn(count(2000, 5000));
    let started = std::time::Instant::now();
    for number in worlds.numbers() {
        let answer = judge.ask(&World::random(number, Profile::Preemption));
        statistics.note(&answer.unwrap_or_else(|error| panic!("{number}: {error}")));
    }
    println!("{worlds}, in {:.1} s\n{statistics}", started.elapsed().as_secs_f64());
    let counts = statistics.preemption;
    for (what, number, thousandths) in [
        ("tried", counts.tried, 600),
        ("never", counts.never, 15),
        ("terminating", counts.terminating, 12),
        ("candidates", counts.candidates, 300),
        ("choice", counts.choice, 200),
        ("ties", counts.ties, 12),
        ("violations", counts.violations, 90),
        ("violating choice", counts.violating_choice, 20),
        ("several victims", counts.several, 250),
        ("reprieves", counts.reprieves, 250),
        ("helpless", counts.helpless, 250),
        ("blocked", counts.blocked, 8),
    ] {
        assert!(number * 1000 >= thousandths * statistics.worlds, "{what}: {number} worlds\n{statistics}");
    }
}
