//! Two plugins that do what a test's arguments say, and record their calls: failures after a node is chosen, PostFilter,
//! QueueSort, and what plugins see of each other.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use model::event::{Event, PodFacts};
use model::{NodeId, PodId, View, World};
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::config::Configuration;
use crate::framework::cycle::Cycle;
use crate::framework::handle::Handle;
use crate::framework::plugin::Plugin;
use crate::framework::points::{
    Nomination, Permit, PermitAnswer, PostFilter, PostFilterAnswer, PreBind, PreFilter, QueueSort, QueuedPod,
    RejectedNodes, Reserve,
};
use crate::framework::registry::{Points, Register};
use crate::framework::status::Status;
use crate::plugins;
use crate::testing::{apply, everything, id, nomination, pod, pod_with, world};
use model::NodeSet;

const MINUTE: Duration = Duration::from_secs(60);

thread_local! {
    /// The calls of both plugins; each test has a thread of its own.
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// What the plugins do at each point; nothing special by default.
#[derive(Debug, Default, Deserialize)]
struct Script(BTreeMap<String, String>);

/// The first plugin of a profile, or the second.
struct Scripted<const SECOND: bool>(Script);
type First = Scripted<false>;
type Second = Scripted<true>;

/// What PreFilter of a plugin leaves to its later points, and to the other plugin's.
#[derive(Clone, Debug, Default, PartialEq)]
struct Left<const SECOND: bool>(Option<String>);

impl<const SECOND: bool> Scripted<SECOND> {
    fn at(&self, point: &str) -> &str {
        CALLS.with_borrow_mut(|calls| calls.push(format!("{}.{point}", Self::NAME)));
        self.0.0.get(point).map_or("", String::as_str)
    }

    /// Records what the plugin sees of the other one's state.
    fn look(handle: &Handle<'_>) {
        let seen = match SECOND {
            true => handle.state::<First>().map(|state| format!("{state:?}")),
            false => handle.state::<Second>().map(|state| format!("{state:?}")),
        };
        CALLS.with_borrow_mut(|calls| calls.push(format!("{} sees {seen:?}", Self::NAME)));
    }
}

fn calls() -> Vec<String> {
    CALLS.with_borrow_mut(std::mem::take)
}

impl<const SECOND: bool> Plugin for Scripted<SECOND> {
    const NAME: &'static str = if SECOND { "Second" } else { "First" };
    type State = Left<SECOND>;
}

impl<const SECOND: bool> PreFilter for Scripted<SECOND> {
    fn pre_filter(&self, cycle: &Cycle<'_>, state: &mut Left<SECOND>) -> Result<Option<NodeSet>, Status> {
        state.0 = Some(format!("{} of {}", Self::NAME, cycle.pod.name));
        Ok(None)
    }
}

fn status_of(word: &str) -> Status {
    match word {
        "error" => Status::Error("broken".to_owned()),
        "unschedulable" => Status::unschedulable("not now"),
        "unresolvable" => Status::unresolvable("never"),
        "skip" => Status::Skip,
        _ => Status::Success,
    }
}

impl<const SECOND: bool> PostFilter for Scripted<SECOND> {
    fn post_filter(
        &self,
        cycle: &Cycle<'_>,
        state: &mut Left<SECOND>,
        rejected: &dyn RejectedNodes,
        handle: &mut Handle<'_>,
    ) -> PostFilterAnswer {
        let node = cycle.world.node_id("n1").expect("n1");
        let answer = |status| PostFilterAnswer::nothing(status);
        let other = |name: &str| cycle.world.pod_id("default", name).expect(name);
        match self.at("postFilter") {
            "nominate" => PostFilterAnswer::nominate(node),
            "nominate although unschedulable" => {
                PostFilterAnswer { nomination: Nomination::Set(node), ..answer(Status::unschedulable("soon")) }
            }
            "state" => answer(Status::unschedulable(format!("{:?}", state.0))),
            "look" => {
                Self::look(handle);
                answer(Status::unschedulable("looked"))
            }
            "allow waiting" => {
                handle.waiting_pods().iter().for_each(|waiting| handle.allow(waiting.pod));
                answer(Status::unschedulable("allowed"))
            }
            "reject waiting" => {
                handle.waiting_pods().iter().for_each(|waiting| handle.reject(waiting.pod, "it is in the way"));
                answer(Status::Success)
            }
            "nominate other" => {
                handle.nominate(other("other"), Some(node));
                answer(Status::unschedulable("another"))
            }
            "refusal" => {
                let removed = View::default().without(other("runs"));
                let reason = |view: &View| handle.refusal(cycle.pod_id, node, view).map(|refusal| refusal.plugin);
                let fits = rejected.resolvable().contains(node);
                answer(Status::unschedulable(format!(
                    "{fits}: {:?}, without it {:?}",
                    reason(&View::default()),
                    reason(&removed)
                )))
            }
            "nothing" => answer(Status::Success),
            word => answer(match status_of(word) {
                Status::Success => Status::unschedulable("no help"),
                status => status,
            }),
        }
    }
}

impl<const SECOND: bool> QueueSort for Scripted<SECOND> {
    type Key = (String, u32, Duration);

    /// By group, or by the label `rank`; pods that were tried before go first.
    fn key(&self, cycle: &Cycle<'_>, queued: &QueuedPod) -> Self::Key {
        let rank = cycle.group().or_else(|| cycle.label("rank")).unwrap_or("z").to_owned();
        assert!(queued.queued_at >= queued.added_at);
        (rank, u32::MAX - queued.attempts, queued.added_at)
    }
}

impl<const SECOND: bool> Reserve for Scripted<SECOND> {
    fn reserve(&self, _: &Cycle<'_>, _: &mut Left<SECOND>, _: NodeId, handle: &mut Handle<'_>) -> Status {
        let what = self.at("reserve");
        if what == "look" {
            Self::look(handle);
        }
        status_of(what)
    }

    fn unreserve(&self, state: &mut Left<SECOND>, _: PodId, _: NodeId, _: &mut Handle<'_>) {
        assert!(state.0.is_some(), "it has the state of its cycle");
        self.at("unreserve");
    }
}

impl<const SECOND: bool> Permit for Scripted<SECOND> {
    fn permit(&self, cycle: &Cycle<'_>, _: &mut Left<SECOND>, _: NodeId, handle: &mut Handle<'_>) -> PermitAnswer {
        match self.at("permit") {
            "wait an hour" => PermitAnswer::Wait(60 * MINUTE),
            "wait a minute" => PermitAnswer::Wait(MINUTE),
            "wait if first" if &*cycle.pod.name == "waits" => PermitAnswer::Wait(MINUTE),
            "look" => {
                Self::look(handle);
                PermitAnswer::Approve
            }
            _ => PermitAnswer::Approve,
        }
    }
}

impl<const SECOND: bool> PreBind for Scripted<SECOND> {
    type Work = ();

    fn pre_bind_pre_flight(&self, _: &Cycle<'_>, _: &Left<SECOND>, _: NodeId) -> Status {
        status_of(self.at("preBindPreFlight"))
    }

    fn pre_bind(&self, _: &Cycle<'_>, _: &Left<SECOND>, _: NodeId) -> Result<Option<()>, Status> {
        match self.at("preBind") {
            "work" => Ok(Some(())),
            word => match status_of(word) {
                Status::Success => Ok(None),
                status => Err(status),
            },
        }
    }
}

impl<const SECOND: bool> Register for Scripted<SECOND> {
    type Args = Script;

    fn build(args: Script) -> Result<Self, String> {
        Ok(Self(args))
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.queue_sort().pre_filter().post_filter().reserve().permit().pre_bind()
    }
}

struct Stage {
    world: World,
    scheduler: Scheduler,
    now: Duration,
}

impl Stage {
    /// One node for 4 CPUs; both plugins at all their points but QueueSort.
    fn new(first: &Value, second: &Value) -> Self {
        Self::with_points(first, second, json!({ "multiPoint": {"enabled": [{"name": "First"}, {"name": "Second"}]} }))
    }

    fn with_points(first: &Value, second: &Value, mut points: Value) -> Self {
        if points.get("queueSort").is_none() {
            let sort = json!({"enabled": [{"name": "PrioritySort"}], "disabled": [{"name": "*"}]});
            points["queueSort"] = sort;
        }
        // These two are alone at PostFilter.
        points["postFilter"]["disabled"] = json!([{ "name": "DefaultPreemption" }]);
        let document = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{
                "plugins": points,
                "pluginConfig": [{"name": "First", "args": first}, {"name": "Second", "args": second}],
            }],
        });
        let registry = plugins::standard().with::<First>().with::<Second>();
        let configuration = Configuration::from_value(&document, &registry).expect("the configuration is valid");
        let world = world(&["n1"]);
        let mut scheduler = Scheduler::new(configuration, 1);
        scheduler.observe(Duration::ZERO, &world, &everything());
        calls();
        Self { world, scheduler, now: Duration::from_secs(1) }
    }

    fn input(&mut self, input: Input) -> Vec<Effect> {
        self.scheduler.step(self.now, &mut self.world, input)
    }

    fn apply(&mut self, facts: PodFacts) {
        let changes = apply(&mut self.world, Event::PodApplied(facts));
        self.scheduler.observe(self.now, &self.world, &changes);
    }

    /// Applies a pod and tries it.
    fn place(&mut self, facts: PodFacts) -> Vec<Effect> {
        self.apply(facts);
        self.input(Input::Schedule { at_most: 100 })
    }

    fn reference(&self, name: &str) -> PodRef {
        Scheduler::pod_ref(&self.world, id(&self.world, name)).expect("the pod is known")
    }

    fn is_assumed(&self, name: &str) -> bool {
        self.world.pod(id(&self.world, name)).is_some_and(model::Pod::is_assumed)
    }

    /// The pod has no place, and is tried again after its back-off: it is bound then.
    fn is_tried_again(&mut self, name: &str) {
        assert!(!self.is_assumed(name));
        assert_eq!(self.scheduler.figures().pending.backoff, 1);
        self.now += Duration::from_secs(2);
        self.input(Input::Time);
        assert_eq!(self.scheduler.figures().pending.active, 1, "{name} is tried again");
    }
}

fn message(effects: &[Effect]) -> &str {
    let conditions = effects.iter().find_map(|effect| match effect {
        Effect::SetCondition { message, .. } => Some(message.as_str()),
        _ => None,
    });
    conditions.unwrap_or_else(|| panic!("no condition: {effects:?}"))
}

fn bound(effects: &[Effect]) -> Vec<&str> {
    let binds = effects.iter().filter_map(|effect| match effect {
        Effect::Bind { pod, .. } => Some(pod.name.as_str()),
        _ => None,
    });
    binds.collect()
}

fn huge(name: &str) -> PodFacts {
    sized(name, 9000, 0)
}

fn sized(name: &str, cpu_milli: i64, priority: i32) -> PodFacts {
    pod_with(name, |facts| {
        facts.priority = priority;
        facts.requests.asked.cpu_milli = cpu_milli;
        facts.requests.taken.cpu_milli = cpu_milli;
    })
}

const UNDONE: [&str; 2] = ["Second.unreserve", "First.unreserve"];

#[test]
fn a_refusal_of_pre_bind_unreserves_in_reverse_order_and_requeues() {
    for (word, expected) in [("error", "running PreBind plugin \"Second\": broken"), ("unschedulable", "not now")] {
        let mut stage = Stage::new(&json!({}), &json!({ "preBind": word }));
        let effects = stage.place(pod("web"));
        assert_eq!(message(&effects), expected);
        assert!(bound(&effects).is_empty(), "{effects:?}");
        let calls = calls();
        assert_eq!(calls[..2], ["First.reserve", "Second.reserve"]);
        assert_eq!(calls[calls.len() - 4..][..2], ["First.preBind", "Second.preBind"], "{calls:?}");
        assert_eq!(calls[calls.len() - 2..], UNDONE);
        stage.is_tried_again("web");
    }
}

#[test]
fn work_of_pre_bind_that_fails_unreserves_in_reverse_order_and_requeues() {
    let mut stage = Stage::new(&json!({ "preBind": "work" }), &json!({ "preBind": "work" }));
    stage.place(pod("web"));
    assert_eq!(calls().last().expect("calls"), "First.preBind", "one after the other");
    let effects = stage.input(Input::PreBound { pod: stage.reference("web"), plugin: "First" });
    assert!(matches!(effects.as_slice(), [Effect::PreBind { plugin: "Second", .. }]), "{effects:?}");
    assert_eq!(calls(), ["Second.preBind"]);
    let failed = Input::Failed { pod: stage.reference("web"), error: "the disk is gone".to_owned() };
    let effects = stage.input(failed);
    assert_eq!(message(&effects), "the disk is gone");
    assert_eq!(calls(), UNDONE);
    stage.is_tried_again("web");
}

#[test]
fn a_failing_pre_flight_ends_the_attempt_before_any_work() {
    for (word, expected) in [
        ("error", "running PreBindPreFlight \"First\": broken"),
        // Only Success and Skip are known here, as upstream.
        ("unschedulable", "running PreBindPreFlight \"First\": not now"),
    ] {
        let mut stage = Stage::new(&json!({ "preBindPreFlight": word }), &json!({ "preBind": "work" }));
        let effects = stage.place(pod("web"));
        assert_eq!(message(&effects), expected);
        let is_work = |effect: &Effect| matches!(effect, Effect::PreBind { .. } | Effect::Bind { .. });
        assert!(!effects.iter().any(is_work), "{effects:?}");
        let calls = calls();
        assert!(!calls.contains(&"Second.preBindPreFlight".to_owned()), "{calls:?}");
        assert_eq!(calls[calls.len() - 2..], UNDONE);
        stage.is_tried_again("web");
    }
    let mut stage = Stage::new(&json!({ "preBindPreFlight": "skip", "preBind": "work" }), &json!({}));
    assert_eq!(bound(&stage.place(pod("web"))), ["web"], "a plugin that skips is not asked for work");
}

#[test]
fn plugins_see_the_states_of_others() {
    let look = json!({ "reserve": "look", "permit": "look", "postFilter": "look" });
    let mut stage = Stage::new(&look, &look);
    stage.place(pod("web"));
    let (first, second) = (
        "First sees Some(\"Left(Some(\\\"Second of web\\\"))\")",
        "Second sees Some(\"Left(Some(\\\"First of web\\\"))\")",
    );
    let seen: Vec<String> = calls().into_iter().filter(|call| call.contains("sees")).collect();
    assert_eq!(seen, [first, second, first, second], "at Reserve and Permit");
    stage.place(huge("huge"));
    let seen: Vec<String> = calls().into_iter().filter(|call| call.contains("sees")).collect();
    assert_eq!(seen, [first.replace("web", "huge"), second.replace("web", "huge")], "at PostFilter");
}

#[test]
fn a_pod_waits_at_permit_for_15_minutes_at_most() {
    let mut stage = Stage::new(&json!({ "permit": "wait an hour" }), &json!({}));
    let effects = stage.place(pod("web"));
    let until = stage.now + 15 * MINUTE;
    assert!(effects.contains(&Effect::WakeAt(until)), "{effects:?}");
    stage.now = until - Duration::from_millis(1);
    stage.input(Input::Time);
    assert!(stage.is_assumed("web"), "it still waits");
    stage.now = until;
    let effects = stage.input(Input::Time);
    assert!(message(&effects).contains("rejected due to timeout after waiting 15m0s at plugin First"), "{effects:?}");
    assert!(!stage.is_assumed("web"));
}

#[test]
fn each_plugin_has_a_deadline_of_its_own() {
    let mut stage = Stage::new(&json!({ "permit": "wait an hour" }), &json!({ "permit": "wait a minute" }));
    stage.place(pod("web"));
    stage.now += MINUTE;
    let effects = stage.input(Input::Time);
    assert!(message(&effects).contains("after waiting 1m0s at plugin Second"), "{effects:?}");
}

#[test]
fn post_filter_plugins_run_in_order_until_one_succeeds() {
    let both = ["First.postFilter", "Second.postFilter"];
    for (first, second, asked, expected) in [
        ("unschedulable", "unschedulable", 2, " not now, not now"),
        // The last reason stands alone: the pod's own filters say the rest.
        ("unschedulable", "unresolvable", 2, " never"),
        ("nothing", "unschedulable", 1, ""),
        ("unresolvable", "nothing", 1, " never"),
        ("error", "nothing", 1, " broken"),
        ("unschedulable", "error", 2, " broken"),
        ("skip", "nothing", 1, " unexpected status Skip"),
    ] {
        let mut stage = Stage::new(&json!({ "postFilter": first }), &json!({ "postFilter": second }));
        let effects = stage.place(huge("huge"));
        assert_eq!(message(&effects), format!("0/1 nodes are available: 1 Insufficient cpu.{expected}"));
        assert_eq!(calls(), both[..asked], "{first}, {second}");
        assert_eq!(stage.scheduler.figures().pending.unschedulable, 1, "{first}, {second}");
    }
}

#[test]
fn post_filter_nominates_without_victims_and_reads_its_state() {
    let mut stage = Stage::new(&json!({ "postFilter": "state" }), &json!({ "postFilter": "nominate" }));
    let effects = stage.place(huge("huge"));
    let nominated = |effect: &&Effect| nomination(effect) == Some(("huge", Some("n1")));
    assert_eq!(effects.iter().filter(nominated).count(), 1, "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Preempt { .. })), "{effects:?}");
    assert_eq!(stage.scheduler.nominations.node_of(id(&stage.world, "huge")), stage.world.node_id("n1"));
    // The reasons of a plugin that did not succeed are not reported when a later one does.
    assert_eq!(message(&effects), "0/1 nodes are available: 1 Insufficient cpu.");
    // The last plugin that says something about the nomination decides, also if none succeeds.
    let soon = json!({ "postFilter": "nominate although unschedulable" });
    let mut stage = Stage::new(&soon, &json!({ "postFilter": "state" }));
    let effects = stage.place(huge("huge"));
    assert_eq!(stage.scheduler.figures().nominated, 1);
    let state = "Some(\"Second of huge\")";
    assert_eq!(message(&effects), format!("0/1 nodes are available: 1 Insufficient cpu. soon, {state}"));
}

#[test]
fn post_filter_allows_and_rejects_waiting_pods_and_nominates_others() {
    let mut stage = Stage::new(&json!({ "permit": "wait if first", "postFilter": "allow waiting" }), &json!({}));
    assert!(bound(&stage.place(pod("waits"))).is_empty());
    assert_eq!(bound(&stage.place(huge("huge"))), ["waits"]);

    let mut stage = Stage::new(&json!({ "permit": "wait if first", "postFilter": "reject waiting" }), &json!({}));
    stage.place(pod("waits"));
    let effects = stage.place(huge("huge"));
    assert!(!stage.is_assumed("waits"));
    let is_told = |effect: &Effect| {
        matches!(effect, Effect::SetCondition { pod, message, .. }
        if pod.name == "waits" && message == "0/1 nodes are available: 1 it is in the way.")
    };
    assert!(effects.iter().any(is_told), "{effects:?}");

    let mut stage = Stage::new(&json!({ "postFilter": "nominate other" }), &json!({}));
    stage.apply(pod_with("other", |facts| facts.gates = vec!["later".to_owned()]));
    stage.place(huge("huge"));
    assert_eq!(stage.scheduler.nominations.node_of(id(&stage.world, "other")), stage.world.node_id("n1"));
    assert_eq!(stage.scheduler.nominations.node_of(id(&stage.world, "huge")), None);
}

#[test]
fn a_refusal_counts_nominated_pods_of_higher_or_equal_priority() {
    // 4 CPUs: `runs` has 3 of them, `pod` needs 2, so it fits if `runs` is gone, unless room is kept for `nominated`.
    let refusal = |nominated: Option<i32>| {
        let mut stage = Stage::new(&json!({ "postFilter": "refusal" }), &json!({}));
        stage.apply(PodFacts { node: Some("n1".to_owned()), ..sized("runs", 3000, 0) });
        if let Some(priority) = nominated {
            let mut facts = sized("nominated", 3000, priority);
            std::sync::Arc::make_mut(facts.scheduling.as_mut().expect("facts")).gates = vec!["later".to_owned()];
            stage.apply(PodFacts { nominated_node: Some("n1".to_owned()), ..facts });
            assert_eq!(stage.scheduler.figures().nominated, 1);
        }
        let effects = stage.place(sized("pod", 2000, 5));
        message(&effects).to_owned()
    };
    let fit = "Some(\"NodeResourcesFit\")";
    let expected = |without: &str| {
        format!("0/1 nodes are available: 1 Insufficient cpu. true: {fit}, without it {without}, no help")
    };
    assert_eq!(refusal(None), expected("None"));
    assert_eq!(refusal(Some(4)), expected("None"), "room for a pod of lower priority may be taken");
    assert_eq!(refusal(Some(5)), expected(fit));
    assert_eq!(refusal(Some(6)), expected(fit));
}

#[test]
fn a_queue_sort_plugin_orders_pods_by_labels_groups_and_attempts() {
    let points = json!({
        "queueSort": {"enabled": [{"name": "First"}], "disabled": [{"name": "*"}]},
        "postFilter": {"enabled": [{"name": "Second"}]},
    });
    let mut stage = Stage::with_points(&json!({}), &json!({}), points);
    let ranked =
        |name: &str, rank: &str| PodFacts { labels: [("rank".to_owned(), rank.to_owned())].into(), ..pod(name) };
    let tried_before = PodFacts { labels: [("rank".to_owned(), "c".to_owned())].into(), ..huge("tried") };
    stage.place(tried_before.clone());
    // With PrioritySort, the order would be that of the arrivals, and the one with a priority first.
    for facts in [ranked("c", "c"), ranked("b", "b"), ranked("a", "a")] {
        stage.apply(facts);
    }
    stage.apply(pod_with("last", |facts| facts.priority = 1000));
    // It fits now, and is in the active queue again.
    stage.apply(PodFacts { scheduling: pod("tried").scheduling, ..tried_before });
    stage.now += Duration::from_secs(600);
    stage.input(Input::Time);
    let effects = stage.input(Input::Schedule { at_most: 100 });
    assert_eq!(bound(&effects), ["a", "b", "tried", "c", "last"]);
}

#[test]
fn a_queue_sort_plugin_sees_the_group_of_a_pod() {
    let mut world = world(&[]);
    let gang = model::scheduling::UnsupportedFeature::SchedulingGroup("gang".to_owned());
    apply(&mut world, Event::PodApplied(pod_with("member", |facts| facts.unsupported = vec![gang])));
    apply(&mut world, Event::PodApplied(pod("alone")));
    let group = |name: &str| Cycle::of(&world, id(&world, name)).expect("a cycle").group();
    assert_eq!((group("member"), group("alone")), (Some("gang"), None));
}
