//! What plugins can do through their handles, and what executors can answer.

use std::time::Duration;

use model::event::Event;
use model::{NodeId, PodId, View, World};
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::config::Configuration;
use crate::framework::cycle::Cycle;
use crate::framework::handle::Handle;
use crate::framework::plugin::Plugin;
use crate::framework::points::{Bind, Notified, Permit, PermitAnswer, PreBind, Reserve};
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::Status;
use crate::framework::work::Work;
use crate::plugins;
use crate::scheduler::effect::AttemptResult;
use crate::testing::{apply, everything, id, pod, pod_with, world};

/// Lets pods pass in pairs: the first waits, the second allows it. If one fails later, so does the other.
struct Pairs {
    args: PairsArgs,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct PairsArgs {
    /// Milliseconds to wait.
    wait: u64,
    /// Only this pod is let through, and only if this one would fit beside it.
    beside: Option<[String; 2]>,
}

impl Plugin for Pairs {
    const NAME: &'static str = "Pairs";
    type State = u32;
}

impl Reserve for Pairs {
    fn reserve(&self, cycle: &Cycle<'_>, state: &mut u32, node: NodeId, handle: &mut Handle<'_>) -> Status {
        *state = 7;
        assert_eq!(handle.state::<Pairs>(), None, "its own state is in its hands");
        let Some([first, second]) = &self.args.beside else { return Status::Success };
        if *cycle.pod.name != **first {
            return Status::Success;
        }
        let Some(other) = cycle.world.pod_id("default", second) else { return Status::Success };
        match handle.refusal(other, node, &View::default()) {
            Some(refusal) => Status::unschedulable(format!("{second} would not fit: {}", refusal.plugin)),
            None => Status::Success,
        }
    }

    fn unreserve(&self, _: &mut u32, _: PodId, _: NodeId, handle: &mut Handle<'_>) {
        for waiting in handle.waiting_pods() {
            handle.reject(waiting.pod, "its partner failed");
        }
    }
}

impl Permit for Pairs {
    fn permit(&self, _: &Cycle<'_>, _: &mut u32, _: NodeId, handle: &mut Handle<'_>) -> PermitAnswer {
        let waiting = handle.waiting_pods();
        if waiting.is_empty() {
            return PermitAnswer::Wait(Duration::from_millis(self.args.wait));
        }
        for waiting in waiting {
            assert_eq!(waiting.plugins, ["Pairs"]);
            handle.allow(waiting.pod);
        }
        PermitAnswer::Approve
    }
}

/// What a test says to the plugin.
#[derive(Debug)]
enum Say {
    Activate(PodId),
    Nominate(PodId, Option<NodeId>),
}

impl Notified for Pairs {
    type Message = Say;

    fn notified(&self, _: &World, message: &Say, handle: &mut Handle<'_>) {
        match message {
            Say::Activate(pod) => handle.activate(*pod),
            Say::Nominate(pod, node) => handle.nominate(*pod, *node),
        }
    }
}

impl Register for Pairs {
    type Args = PairsArgs;

    fn build(args: PairsArgs) -> Result<Self, String> {
        Ok(Self { args })
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.reserve().permit().notified()
    }
}

/// Has work before the binding, and takes the pod.
pub(super) struct Worker;

impl Plugin for Worker {
    const NAME: &'static str = "Worker";
    type State = ();
}

impl PreBind for Worker {
    type Work = u8;

    fn pre_bind(&self, _: &Cycle<'_>, (): &(), _: NodeId) -> Result<Option<u8>, Status> {
        Ok(Some(1))
    }
}

impl Bind for Worker {
    type Work = u8;

    fn bind(&self, _: &Cycle<'_>, (): &(), _: NodeId) -> Result<Option<u8>, Status> {
        Ok(Some(2))
    }
}

impl Register for Worker {
    type Args = NoArgs;

    fn build(_: NoArgs) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_bind().bind()
    }
}

struct Stage {
    world: World,
    scheduler: Scheduler,
    now: Duration,
}

impl Stage {
    fn new(enabled: &[&str], args: &Value) -> Self {
        let enabled: Vec<Value> = enabled.iter().map(|name| json!({ "name": name })).collect();
        // Worker's Bind runs before DefaultBinder's.
        let bind = json!([{"name": "Worker"}, {"name": "DefaultBinder"}]);
        let with_worker = enabled.iter().any(|entry| entry["name"] == "Worker");
        let document = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{
                "plugins": {
                    "multiPoint": {"enabled": enabled},
                    "bind": {"enabled": if with_worker { bind } else { json!([]) }},
                },
                "pluginConfig": [{"name": "Pairs", "args": args}],
            }],
        });
        let registry = plugins::standard().with::<Pairs>().with::<Worker>();
        let configuration = Configuration::from_value(&document, &registry).expect("the configuration is valid");
        let world = world(&["n1"]);
        let mut scheduler = Scheduler::new(configuration, 1);
        scheduler.observe(Duration::ZERO, &world, &everything());
        Self { world, scheduler, now: Duration::from_secs(1) }
    }

    fn input(&mut self, input: Input) -> Vec<Effect> {
        self.scheduler.step(self.now, &mut self.world, input)
    }

    /// Applies a pod and tries it.
    fn place(&mut self, facts: model::event::PodFacts) -> Vec<Effect> {
        let changes = apply(&mut self.world, Event::PodApplied(facts));
        self.scheduler.observe(self.now, &self.world, &changes);
        self.input(Input::Schedule { at_most: 100 })
    }

    fn delete(&mut self, name: &str) -> Vec<Effect> {
        let event = Event::PodDeleted { namespace: "default".to_owned(), name: name.to_owned() };
        let changes = apply(&mut self.world, event);
        self.scheduler.observe(self.now, &self.world, &changes)
    }

    fn say(&mut self, message: Say) -> Vec<Effect> {
        self.input(Input::Message { plugin: "Pairs", message: Work::new(message) })
    }

    fn reference(&self, name: &str) -> PodRef {
        Scheduler::pod_ref(&self.world, id(&self.world, name)).expect("the pod is known")
    }

    fn is_assumed(&self, name: &str) -> bool {
        self.world.pod(id(&self.world, name)).is_some_and(model::Pod::is_assumed)
    }
}

fn bound(effects: &[Effect]) -> Vec<&str> {
    let binds = effects.iter().filter_map(|effect| match effect {
        Effect::Bind { pod, .. } => Some(pod.name.as_str()),
        _ => None,
    });
    binds.collect()
}

fn message_about<'a>(effects: &'a [Effect], name: &str) -> Option<&'a str> {
    effects.iter().find_map(|effect| match effect {
        Effect::SetCondition { pod, message, .. } if pod.name == name => Some(message.as_str()),
        _ => None,
    })
}

const MINUTE: u64 = 60_000;

#[test]
fn a_plugin_allows_waiting_pods_from_permit() {
    let mut stage = Stage::new(&["Pairs"], &json!({"wait": MINUTE}));
    assert_eq!(bound(&stage.place(pod("a"))), Vec::<&str>::new());
    assert_eq!(bound(&stage.place(pod("b"))), ["b", "a"]);
}

#[test]
fn a_pod_that_fails_takes_the_waiting_ones_with_it() {
    let mut stage = Stage::new(&["Pairs"], &json!({"wait": MINUTE, "beside": ["b", "huge"]}));
    let huge = pod_with("huge", |facts| {
        facts.requests.asked.cpu_milli = 9000;
        facts.gates = vec!["later".to_owned()];
    });
    stage.place(huge);
    stage.place(pod("a"));
    let effects = stage.place(pod("b"));
    let expected = "0/1 nodes are available: 1 huge would not fit: NodeResourcesFit.";
    assert_eq!(message_about(&effects, "b"), Some(expected));
    assert_eq!(message_about(&effects, "a"), Some("0/1 nodes are available: 1 its partner failed."));
    assert_eq!((stage.is_assumed("a"), stage.is_assumed("b")), (false, false));
    let by: Vec<_> = stage.scheduler.figures().unschedulable.iter().map(|by| (by.plugin, by.pods)).collect();
    assert!(by.contains(&("Pairs", 2)), "{by:?}");
}

#[test]
fn what_unreserve_asks_for_after_a_deletion_is_done_in_the_next_step() {
    let mut stage = Stage::new(&["Pairs"], &json!({"wait": MINUTE}));
    stage.place(pod("a"));
    stage.place(pod("b"));
    stage.place(pod("c"));
    // `b` is being bound, `c` waits. Changes are observed without the right to change the world.
    let effects = stage.delete("b");
    assert!(effects.contains(&Effect::WakeAt(stage.now)), "{effects:?}");
    assert!(stage.is_assumed("c"));
    let effects = stage.input(Input::Time);
    assert_eq!(message_about(&effects, "c"), Some("0/1 nodes are available: 1 its partner failed."));
    assert!(!stage.is_assumed("c"));
}

#[test]
fn a_wait_of_no_time_is_a_rejection() {
    let mut stage = Stage::new(&["Pairs"], &json!({"wait": 0}));
    let effects = stage.place(pod("a"));
    assert!(effects.contains(&Effect::WakeAt(stage.now)), "{effects:?}");
    let effects = stage.input(Input::Time);
    let message = message_about(&effects, "a").expect("it is rejected");
    assert!(message.contains("rejected due to timeout after waiting 0s at plugin Pairs"), "{message}");
}

#[test]
fn a_plugin_activates_and_nominates_pending_pods() {
    let mut stage = Stage::new(&["Pairs"], &json!({"wait": MINUTE}));
    let huge = |name: &str| pod_with(name, |facts| facts.requests.asked.cpu_milli = 9000);
    stage.place(huge("a"));
    let pod = id(&stage.world, "a");
    assert_eq!(stage.scheduler.figures().pending.unschedulable, 1);
    stage.say(Say::Activate(pod));
    assert_eq!(stage.scheduler.figures().pending.active, 1);
    let node = stage.world.node_id("n1");
    let effects = stage.say(Say::Nominate(pod, node));
    assert!(matches!(effects.as_slice(), [Effect::Nominate { node: Some(node), .. }] if node == "n1"), "{effects:?}");
    assert_eq!(stage.scheduler.figures().nominated, 1);
    assert_eq!(stage.say(Say::Nominate(pod, node)).len(), 1, "the watch has not shown it");
    stage.say(Say::Nominate(pod, None));
    assert_eq!(stage.scheduler.figures().nominated, 0);
    // A request about a pod that was replaced meanwhile is dropped.
    stage.scheduler.requests.push(crate::framework::handle::Request {
        pod,
        uid: "another".into(),
        what: crate::framework::handle::Wish::Nominate(node),
    });
    assert_eq!(stage.input(Input::Time), []);
    assert_eq!(stage.scheduler.figures().nominated, 0);
}

#[test]
fn work_is_done_in_order_and_a_bind_plugin_may_decline_later() {
    let mut stage = Stage::new(&["Worker"], &json!({}));
    let effects = stage.place(pod("web"));
    let Some(Effect::PreBind { plugin: "Worker", work, .. }) = effects.last() else { panic!("{effects:?}") };
    assert_eq!(work.get(), Some(&1u8));
    let effects = stage.input(Input::PreBound { pod: stage.reference("web"), plugin: "Worker" });
    assert!(matches!(effects.as_slice(), [Effect::Bind { plugin: "Worker", .. }]), "{effects:?}");
    // An answer in another plugin's name is ignored.
    assert_eq!(stage.input(Input::Declined { pod: stage.reference("web"), plugin: "DefaultBinder" }), []);
    let effects = stage.input(Input::Declined { pod: stage.reference("web"), plugin: "Worker" });
    assert!(matches!(effects.as_slice(), [Effect::Bind { plugin: "DefaultBinder", .. }]), "{effects:?}");
    let effects = stage.input(Input::Declined { pod: stage.reference("web"), plugin: "DefaultBinder" });
    assert_eq!(message_about(&effects, "web"), Some("no Bind plugin takes the pod"));
    assert!(!stage.is_assumed("web"));
}

#[test]
fn a_pod_whose_work_is_rejected_backs_off() {
    let mut stage = Stage::new(&["Worker"], &json!({}));
    stage.place(pod("web"));
    let rejected = Input::Rejected { pod: stage.reference("web"), plugin: "Worker", reason: "no disk".to_owned() };
    let effects = stage.input(rejected);
    assert_eq!(message_about(&effects, "web"), Some("no disk"));
    let concluded =
        effects.iter().any(|effect| matches!(effect, Effect::Concluded { result: AttemptResult::Unschedulable, .. }));
    assert!(concluded, "{effects:?}");
    assert_eq!((stage.scheduler.figures().pending.backoff, stage.is_assumed("web")), (1, false));
}

#[test]
fn work_for_a_deleted_pod_is_cancelled() {
    let mut stage = Stage::new(&["Worker"], &json!({}));
    stage.place(pod("web"));
    let reference = stage.reference("web");
    let effects = stage.delete("web");
    assert!(effects.contains(&Effect::Cancel { pod: reference.clone() }), "{effects:?}");
    assert_eq!(stage.input(Input::PreBound { pod: reference, plugin: "Worker" }), []);
}

#[test]
fn without_the_lease_nothing_waits() {
    let mut stage = Stage::new(&["Pairs"], &json!({"wait": MINUTE}));
    stage.place(pod("waits"));
    assert_eq!(stage.scheduler.figures().binding, 1);
    stage.input(Input::LeaseLost);
    assert_eq!((stage.scheduler.figures().binding, stage.is_assumed("waits")), (0, false));
    // A binding that was sent may still take effect: it is kept.
    let mut stage = Stage::new(&["Worker"], &json!({}));
    stage.place(pod("web"));
    stage.input(Input::PreBound { pod: stage.reference("web"), plugin: "Worker" });
    stage.input(Input::LeaseLost);
    assert_eq!((stage.scheduler.figures().binding, stage.is_assumed("web")), (1, true));
}
