//! The order of calls within an attempt, and a Filter that fails. `tests/real-peers/tests/recorder.rs` compares all calls
//! with kube-scheduler's.

use std::cell::RefCell;

use model::NodeSet;
use model::event::Event;
use serde_json::json;

use super::*;
use crate::config::Configuration;
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{Filter, Normalized, PreScore, Score};
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::{Rejections, Status};
use crate::plugins;
use crate::scheduler::effect::ConditionReason;
use crate::testing::{apply, everything, pod, world};

thread_local! {
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// The Filter of Early fails.
    static IS_BROKEN: RefCell<bool> = const { RefCell::new(false) };
}

struct Noting<const N: usize>;

fn note<const N: usize>(call: &str) {
    CALLS.with_borrow_mut(|calls| calls.push(format!("{} {call}", NAMES[N])));
}

const NAMES: [&str; 2] = ["Early", "Late"];

impl<const N: usize> Plugin for Noting<N> {
    const NAME: &'static str = NAMES[N];
    type State = ();

    fn reads(&self) -> Reads {
        Reads::Node
    }
}

impl<const N: usize> Filter for Noting<N> {
    fn filter_all(&self, _: &Cycle<'_>, (): &(), _: &NodeSet, rejections: &mut Rejections) {
        note::<N>("filter");
        if N == 0 && IS_BROKEN.with_borrow(|is_broken| *is_broken) {
            rejections.fail("no answer");
            rejections.fail("a second error");
        }
    }
}

impl<const N: usize> PreScore for Noting<N> {
    fn pre_score(&self, _: &Cycle<'_>, (): &mut (), _: &NodeSet) -> Status {
        note::<N>("pre-score");
        Status::Success
    }
}

impl<const N: usize> Score for Noting<N> {
    fn score_all(&self, _: &Cycle<'_>, (): &(), _: &NodeSet, _: &mut [i64]) {
        note::<N>("score");
    }

    fn normalize(&self, _: &Cycle<'_>, (): &(), _: &NodeSet, _: &[i64], _: &mut [i64]) -> Normalized {
        note::<N>("normalize");
        Normalized::Written
    }
}

impl<const N: usize> Register for Noting<N> {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.filter().pre_score().score()
    }
}

/// Places a pod. Returns the effects and the calls of the plugins.
fn place(scheduler: &mut Scheduler, world: &mut World, name: &str, now: Duration) -> (Vec<Effect>, Vec<String>) {
    let changes = apply(world, Event::PodApplied(pod(name)));
    scheduler.observe(now, world, &changes);
    let effects = scheduler.step(now, world, Input::Schedule { at_most: 1 });
    (effects, CALLS.with_borrow_mut(std::mem::take))
}

fn scheduler() -> Scheduler {
    let plugins = json!({ "multiPoint": { "enabled": [{ "name": "Early" }, { "name": "Late" }], "disabled": [{ "name": "*" }] },
        "queueSort": { "enabled": [{ "name": "PrioritySort" }] }, "bind": { "enabled": [{ "name": "DefaultBinder" }] } });
    let document = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{ "schedulerName": crate::DEFAULT_SCHEDULER_NAME, "plugins": plugins }],
    });
    let registry = plugins::standard().with::<Noting<0>>().with::<Noting<1>>();
    Scheduler::new(Configuration::from_value(&document, &registry).expect("the configuration is valid"), 1)
}

#[test]
fn all_plugins_prepare_then_score_then_normalise_and_an_equal_pod_shares_that() {
    let (mut scheduler, mut world) = (scheduler(), world(&["n1", "n2"]));
    scheduler.observe(Duration::ZERO, &world, &everything());
    let (_, calls) = place(&mut scheduler, &mut world, "a", Duration::ZERO);
    let points = ["filter", "pre-score", "score", "normalize"];
    let expected: Vec<String> = points.iter().flat_map(|point| NAMES.map(|name| format!("{name} {point}"))).collect();
    assert_eq!(calls, expected);
    let (_, calls) = place(&mut scheduler, &mut world, "b", Duration::ZERO);
    assert_eq!(calls, Vec::<String>::new());
}

#[test]
fn a_filter_that_fails_ends_the_attempt_and_nothing_of_it_is_kept() {
    let (mut scheduler, mut world) = (scheduler(), world(&["n1", "n2"]));
    scheduler.observe(Duration::ZERO, &world, &everything());
    IS_BROKEN.set(true);
    let (effects, calls) = place(&mut scheduler, &mut world, "a", Duration::ZERO);
    assert_eq!(calls, ["Early filter"]);
    let condition = effects.iter().find_map(|effect| match effect {
        Effect::SetCondition { reason, message, .. } => Some((*reason, message.as_str())),
        _ => None,
    });
    assert_eq!(condition, Some((ConditionReason::SchedulerError, "running \"Early\" filter plugin: no answer")));
    assert_eq!(scheduler.figures().pending.backoff, 1);
    IS_BROKEN.set(false);
    // An equal pod is judged from the start.
    let (effects, calls) = place(&mut scheduler, &mut world, "b", Duration::ZERO);
    assert_eq!(calls.len(), 8, "{calls:?}");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Bind { .. })), "{effects:?}");
}
