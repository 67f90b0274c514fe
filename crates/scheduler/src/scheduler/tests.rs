//! What plugins can rely on, and what happens to pods that are being placed and bound.

use std::cell::RefCell;
use std::sync::Arc;

use model::event::{Event, Source};
use model::{NodeId, NodeSet};
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::config::Configuration;
use crate::framework::cycle::Cycle;
use crate::framework::handle::Handle;
use crate::framework::plugin::Plugin;
use crate::framework::points::{Filter, Notified, Permit, PermitAnswer, PostBind, PreBind, PreFilter, Reserve, Score};
use crate::framework::registry::{Points, Register, Registry};
use crate::framework::status::Status;
use crate::framework::work::Work;
use crate::plugins;
use crate::scheduler::effect::{AttemptResult, ConditionReason, PodEvent};
use crate::testing::{NAMESPACE, apply, everything, id, node, of_filters, pod, pod_with, world};

thread_local! {
    /// The calls of the plugins, in order.
    static LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn log(line: impl Into<String>) {
    LOG.with_borrow_mut(|lines| lines.push(line.into()));
}

fn logged() -> Vec<String> {
    LOG.with_borrow_mut(std::mem::take)
}

/// A plugin that extends many points. Its arguments determine what it does at each point.
struct Actor<const N: usize> {
    args: ActorArgs,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ActorArgs {
    reserve_fails: bool,
    permit: String,
    pre_bind: bool,
    skip: bool,
    narrow_to: Option<Vec<String>>,
    reject: Option<String>,
    score: i64,
}

const NAMES: [&str; 2] = ["First", "Second"];

impl<const N: usize> Plugin for Actor<N> {
    const NAME: &'static str = NAMES[N];
    type State = u32;
}

impl<const N: usize> PreFilter for Actor<N> {
    fn pre_filter(&self, cycle: &Cycle<'_>, state: &mut u32) -> Result<Option<NodeSet>, Status> {
        *state += 1;
        if self.args.skip {
            return Err(Status::Skip);
        }
        match self.args.reject.as_deref() {
            Some("now") => return Err(Status::unschedulable(format!("{} refuses", NAMES[N]))),
            Some("ever") => return Err(Status::unresolvable(format!("{} never accepts", NAMES[N]))),
            Some("error") => return Err(Status::Error("out of order".to_owned())),
            _ => {}
        }
        let names = self.args.narrow_to.as_ref();
        Ok(names.map(|names| names.iter().filter_map(|name| cycle.world.node_id(name)).collect()))
    }
}

impl<const N: usize> Filter for Actor<N> {
    fn filter(&self, _: &Cycle<'_>, state: &u32, _: NodeId) -> Result<(), crate::framework::status::Rejection> {
        assert_eq!(*state, 1, "PreFilter wrote the state, once");
        assert!(!self.args.skip, "the Filter of a skipped plugin does not run");
        Ok(())
    }
}

impl<const N: usize> Score for Actor<N> {
    fn score(&self, cycle: &Cycle<'_>, _: &u32, node: NodeId) -> i64 {
        let name = cycle.world.node_name(node).unwrap_or_default();
        if name.ends_with('2') { self.args.score } else { 0 }
    }
}

impl<const N: usize> Reserve for Actor<N> {
    fn reserve(&self, _: &Cycle<'_>, state: &mut u32, _: NodeId, _: &mut Handle<'_>) -> Status {
        *state += 10;
        log(format!("reserve {}", NAMES[N]));
        if self.args.reserve_fails { Status::unschedulable("nothing left") } else { Status::Success }
    }

    fn unreserve(&self, state: &mut u32, _: PodId, _: NodeId, _: &mut Handle<'_>) {
        log(format!("unreserve {} {state}", NAMES[N]));
    }
}

impl<const N: usize> Permit for Actor<N> {
    fn permit(&self, _: &Cycle<'_>, _: &mut u32, _: NodeId, _: &mut Handle<'_>) -> PermitAnswer {
        match self.args.permit.as_str() {
            "deny" => PermitAnswer::Deny(Status::unschedulable("not welcome")),
            "wait" => PermitAnswer::Wait(Duration::from_secs(10)),
            "long" => PermitAnswer::Wait(Duration::from_secs(20)),
            _ => PermitAnswer::Approve,
        }
    }
}

impl<const N: usize> PreBind for Actor<N> {
    type Work = &'static str;

    fn pre_bind_pre_flight(&self, _: &Cycle<'_>, _: &u32, _: NodeId) -> Status {
        if self.args.pre_bind { Status::Success } else { Status::Skip }
    }

    fn pre_bind(&self, _: &Cycle<'_>, _: &u32, _: NodeId) -> Result<Option<&'static str>, Status> {
        assert!(self.args.pre_bind, "a plugin without work is not asked for it");
        Ok(Some("attach"))
    }
}

/// What a test says to an actor.
#[derive(Debug)]
enum Say {
    Allow(PodId),
    Reject(PodId, &'static str),
}

impl<const N: usize> Notified for Actor<N> {
    type Message = Say;

    fn notified(&self, _: &World, message: &Say, handle: &mut Handle<'_>) {
        match message {
            Say::Allow(pod) => handle.allow(*pod),
            Say::Reject(pod, reason) => handle.reject(*pod, *reason),
        }
    }
}

impl<const N: usize> PostBind for Actor<N> {
    fn post_bind(&self, _: &Cycle<'_>, _: &u32, _: NodeId, _: &mut Handle<'_>) {
        log(format!("post-bind {}", NAMES[N]));
    }
}

impl<const N: usize> Register for Actor<N> {
    type Args = ActorArgs;

    fn build(args: ActorArgs) -> Result<Self, String> {
        Ok(Self { args })
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.pre_filter().filter().score().reserve().permit().pre_bind().post_bind().notified()
    }
}

fn registry() -> Registry {
    plugins::standard().with::<Actor<0>>().with::<Actor<1>>()
}

/// A scheduler with the default plugins and the two actors.
fn scheduler(first: &Value, second: &Value) -> Scheduler {
    let document = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{
            "plugins": {"multiPoint": {"enabled": [{"name": "First"}, {"name": "Second"}]}},
            "pluginConfig": [{"name": "First", "args": first}, {"name": "Second", "args": second}],
        }],
    });
    Scheduler::new(Configuration::from_value(&document, &registry()).expect("the configuration is valid"), 1)
}

fn without_wakes(effects: Vec<Effect>) -> Vec<Effect> {
    effects.into_iter().filter(|effect| !matches!(effect, Effect::WakeAt(_))).collect()
}

struct Stage {
    world: World,
    scheduler: Scheduler,
    now: Duration,
}

impl Stage {
    fn new(nodes: &[&str], first: &Value, second: &Value) -> Self {
        logged();
        let world = world(nodes);
        let mut scheduler = scheduler(first, second);
        let effects = scheduler.observe(Duration::ZERO, &world, &everything());
        assert!(effects.is_empty());
        Self { world, scheduler, now: Duration::from_secs(1) }
    }

    fn plain(nodes: &[&str]) -> Self {
        Self::new(nodes, &json!({}), &json!({}))
    }

    fn event(&mut self, event: Event) -> Vec<Effect> {
        let changes = apply(&mut self.world, event);
        self.observe(&changes)
    }

    fn observe(&mut self, changes: &Changes) -> Vec<Effect> {
        without_wakes(self.scheduler.observe(self.now, &self.world, changes))
    }

    fn input(&mut self, input: Input) -> Vec<Effect> {
        without_wakes(self.scheduler.step(self.now, &mut self.world, input))
    }

    fn schedule(&mut self) -> Vec<Effect> {
        self.input(Input::Schedule { at_most: 100 })
    }

    /// Applies a pod and tries it.
    fn place(&mut self, facts: model::event::PodFacts) -> Vec<Effect> {
        let effects = self.event(Event::PodApplied(facts));
        assert_eq!(effects, []);
        self.schedule()
    }

    /// Sends a message to an actor.
    fn say(&mut self, plugin: &'static str, what: impl FnOnce(PodId) -> Say, pod: &str) -> Vec<Effect> {
        let message = Work::new(what(id(&self.world, pod)));
        self.input(Input::Message { plugin, message })
    }

    fn reference(&self, name: &str) -> PodRef {
        Scheduler::pod_ref(&self.world, id(&self.world, name)).expect("the pod is known")
    }

    fn assumed_on(&self, name: &str) -> Option<&str> {
        let pod = self.world.pod(id(&self.world, name))?;
        pod.placed_on().map(|node| self.world.interner().text(node))
    }
}

fn bind_to(effects: &[Effect]) -> Option<&str> {
    effects.iter().find_map(|effect| match effect {
        Effect::Bind { node, .. } => Some(node.as_str()),
        _ => None,
    })
}

fn condition(effects: &[Effect]) -> Option<(ConditionReason, &str)> {
    effects.iter().find_map(|effect| match effect {
        Effect::SetCondition { reason, message, .. } => Some((*reason, of_filters(message))),
        _ => None,
    })
}

#[test]
fn a_pod_is_assumed_and_bound_and_an_event_is_posted() {
    let mut stage = Stage::plain(&["n1", "n2"]);
    let effects = stage.place(pod("web"));
    let node = bind_to(&effects).expect("it is bound").to_owned();
    assert_eq!(stage.assumed_on("web"), Some(node.as_str()));
    assert_eq!(stage.scheduler.figures().binding, 1);
    let effects = stage.input(Input::Bound { pod: stage.reference("web") });
    let message = format!("Successfully assigned default/web to {node}");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::PostEvent { event: PodEvent::Scheduled { message: text }, .. } if *text == message)));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Concluded { result: AttemptResult::Scheduled, attempts, .. } if attempts.count == 1)));
    assert_eq!(logged(), ["reserve First", "reserve Second", "post-bind First", "post-bind Second"]);
    assert_eq!(stage.scheduler.figures().binding, 0);
    // The pod changes before the watch shows its node: it is not placed again.
    stage.event(Event::PodApplied(pod_with("web", |facts| facts.priority = 3)));
    assert_eq!((stage.scheduler.has_work(), stage.assumed_on("web")), (false, Some(node.as_str())));
    // The watch shows the binding, then the deletion.
    let bound = model::event::PodFacts { node: Some(node), ..pod("web") };
    assert_eq!(stage.event(Event::PodApplied(bound)), []);
    assert_eq!(stage.event(Event::PodDeleted { namespace: NAMESPACE.to_owned(), name: "web".to_owned() }), []);
    assert_eq!(stage.scheduler.figures().pending, Pending::default());
}

#[test]
fn reservations_are_undone_in_reverse_order() {
    // The second plugin fails to reserve: both undo, and each has its own state.
    let mut stage = Stage::new(&["n1"], &json!({}), &json!({"reserveFails": true}));
    let effects = stage.place(pod("web"));
    assert_eq!(logged(), ["reserve First", "reserve Second", "unreserve Second 11", "unreserve First 11"]);
    let expected = "0/1 nodes are available: 1 nothing left.";
    assert_eq!(condition(&effects), Some((ConditionReason::Unschedulable, expected)));
    assert_eq!((stage.assumed_on("web"), stage.scheduler.figures().pending.unschedulable), (None, 1));

    // The binding fails: the same, and the pod is retried after a back-off.
    let mut stage = Stage::plain(&["n1"]);
    stage.place(pod("web"));
    logged();
    let effects = stage.input(Input::Failed { pod: stage.reference("web"), error: "conflict".to_owned() });
    assert_eq!(logged(), ["unreserve Second 11", "unreserve First 11"]);
    assert_eq!(condition(&effects), Some((ConditionReason::SchedulerError, "conflict")));
    assert_eq!((stage.assumed_on("web"), stage.scheduler.figures().pending.backoff), (None, 1));
    stage.now += Duration::from_secs(1);
    stage.input(Input::Time);
    assert!(bind_to(&stage.schedule()).is_some(), "it is tried again");
}

#[test]
fn permit_allows_denies_and_waits() {
    let mut stage = Stage::new(&["n1"], &json!({"permit": "deny"}), &json!({}));
    let effects = stage.place(pod("web"));
    assert_eq!(condition(&effects).map(|(_, message)| message), Some("0/1 nodes are available: 1 not welcome."));
    assert_eq!(logged(), ["reserve First", "reserve Second", "unreserve Second 11", "unreserve First 11"]);

    // Both plugins must allow the pod.
    let waiting = || Stage::new(&["n1"], &json!({"permit": "wait"}), &json!({"permit": "long"}));
    let mut stage = waiting();
    let nominated = |stage: &Stage, node: Option<&str>| Effect::Nominate {
        pod: stage.reference("web"),
        node: node.map(str::to_owned),
    };
    assert_eq!(stage.place(pod("web")), [nominated(&stage, Some("n1"))]);
    assert_eq!(stage.assumed_on("web"), Some("n1"), "it stays assumed while it waits");
    assert_eq!(stage.say("First", Say::Allow, "web"), []);
    assert_eq!(stage.say("First", Say::Allow, "web"), []);
    let effects = stage.say("Second", Say::Allow, "web");
    assert_eq!(bind_to(&effects), Some("n1"));

    // One plugin denies the pod.
    let mut stage = waiting();
    stage.place(pod("web"));
    let effects = stage.say("Second", |pod| Say::Reject(pod, "no"), "web");
    assert!(effects.contains(&nominated(&stage, None)), "the nomination ends with the wait");
    assert_eq!(condition(&effects).map(|(_, message)| message), Some("0/1 nodes are available: 1 no."));
    assert_eq!(stage.assumed_on("web"), None);

    // No plugin decides: the shorter timeout counts.
    let mut stage = waiting();
    stage.place(pod("web"));
    stage.now += Duration::from_millis(9_999);
    assert_eq!(stage.input(Input::Time), []);
    stage.now += Duration::from_millis(1);
    let effects = stage.input(Input::Time);
    let (_, message) = condition(&effects).expect("it is rejected");
    assert!(message.contains("timeout") && message.contains("First"), "{message}");
    assert_eq!((stage.scheduler.figures().binding, stage.assumed_on("web")), (0, None));
}

#[test]
fn pre_bind_plugins_work_one_after_the_other_before_the_binding() {
    let mut stage = Stage::new(&["n1"], &json!({"preBind": true}), &json!({"preBind": true}));
    let effects = stage.place(pod("web"));
    let [Effect::Nominate { node: Some(_), .. }, Effect::PreBind { plugin: "First", work, .. }] = effects.as_slice()
    else {
        panic!("{effects:?}")
    };
    assert_eq!(work.get(), Some(&"attach"));
    // A result of another plugin is ignored.
    assert_eq!(stage.input(Input::PreBound { pod: stage.reference("web"), plugin: "Second" }), []);
    let effects = stage.input(Input::PreBound { pod: stage.reference("web"), plugin: "First" });
    assert!(matches!(effects.as_slice(), [Effect::PreBind { plugin: "Second", .. }]), "{effects:?}");
    let effects = stage.input(Input::PreBound { pod: stage.reference("web"), plugin: "Second" });
    assert_eq!(bind_to(&effects), Some("n1"));
}

#[test]
fn pre_filter_results_are_combined_as_upstream() {
    let narrow = |names: &[&str]| json!({"narrowTo": names});
    // Arguments of the first and the second plugin; the message.
    let cases = [
        (
            narrow(&["n1"]),
            narrow(&["n2"]),
            "0/3 nodes are available: node(s) didn't satisfy plugin(s) [First Second] simultaneously.",
        ),
        (narrow(&[]), json!({}), "0/3 nodes are available: node(s) didn't satisfy plugin First."),
        (json!({"reject": "now"}), json!({"reject": "now"}), "0/3 nodes are available: Second refuses."),
        (json!({"reject": "now"}), json!({"reject": "ever"}), "0/3 nodes are available: Second never accepts."),
        (json!({"reject": "ever"}), json!({"reject": "now"}), "0/3 nodes are available: First never accepts."),
        (json!({"reject": "now"}), narrow(&["n2"]), "0/3 nodes are available: First refuses."),
    ];
    for (first, second, expected) in cases {
        let mut stage = Stage::new(&["n1", "n2", "n3"], &first, &second);
        let effects = stage.place(pod("web"));
        assert_eq!(condition(&effects), Some((ConditionReason::Unschedulable, expected)), "{first} {second}");
    }
    let mut stage = Stage::new(&["n1", "n2", "n3"], &narrow(&["n1", "n3"]), &narrow(&["n2", "n3"]));
    assert_eq!(bind_to(&stage.place(pod("web"))), Some("n3"));
    let mut stage = Stage::new(&["n1"], &json!({"reject": "error"}), &json!({}));
    let effects = stage.place(pod("web"));
    let (reason, message) = condition(&effects).expect("it failed");
    assert_eq!(
        (reason, message),
        (ConditionReason::SchedulerError, "running PreFilter plugin \"First\": out of order")
    );
}

#[test]
fn a_node_excluded_by_pre_filter_names_the_plugins() {
    let mut stage = Stage::new(&["n1", "n2"], &json!({"narrowTo": ["n1"]}), &json!({"narrowTo": ["n1"]}));
    let cordoned = model::scheduling::NodeSchedulingFacts { unschedulable: true, ..Default::default() };
    stage.event(Event::NodeApplied(model::event::NodeFacts { scheduling: Some(Arc::new(cordoned)), ..node("n1") }));
    let effects = stage.place(pod("web"));
    let expected =
        "0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [First Second], 1 node(s) were unschedulable.";
    assert_eq!(condition(&effects).map(|(_, message)| message), Some(expected));
    let explained = crate::explain(&stage.world, id(&stage.world, "web"), &stage.scheduler.profiles()[0]).unwrap();
    let by: Vec<_> = explained.nodes.iter().map(|node| node.plugin.as_deref()).collect();
    assert_eq!(by, [Some("NodeUnschedulable"), Some("First,Second")]);
}

#[test]
fn a_plugin_that_skips_does_not_filter_and_scores_decide() {
    let mut stage = Stage::new(&["n1", "n2", "n3"], &json!({"skip": true, "score": 100}), &json!({}));
    assert_eq!(bind_to(&stage.place(pod("web"))), Some("n2"));
    let mut stage = Stage::new(&["n2"], &json!({"score": 101}), &json!({}));
    let effects = stage.place(pod("web"));
    let (reason, message) = condition(&effects).expect("it failed");
    assert_eq!(reason, ConditionReason::SchedulerError);
    assert!(message.contains("plugin \"First\" returns an invalid score 101"), "{message}");
}

#[test]
fn a_pod_bound_by_another_client_is_accepted_and_a_deleted_pod_is_dropped() {
    let mut stage = Stage::plain(&["n1", "n2"]);
    // Bound by another client while it waits.
    stage.event(Event::PodApplied(pod("web")));
    stage.event(Event::PodApplied(model::event::PodFacts { node: Some("n2".to_owned()), ..pod("web") }));
    assert_eq!((stage.schedule(), stage.scheduler.figures().pending), (vec![], Pending::default()));

    // Bound to another node by another client while it is being bound: our binding fails, and nothing else happens.
    let effects = stage.place(pod("db"));
    let ours = bind_to(&effects).expect("it is bound").to_owned();
    let theirs = if ours == "n1" { "n2" } else { "n1" };
    stage.event(Event::PodApplied(model::event::PodFacts { node: Some(theirs.to_owned()), ..pod("db") }));
    let effects = stage.input(Input::Failed { pod: stage.reference("db"), error: "conflict".to_owned() });
    assert_eq!((effects, stage.assumed_on("db")), (vec![], Some(theirs)));
    assert_eq!((stage.scheduler.figures().pending, stage.scheduler.figures().binding), (Pending::default(), 0));

    // Deleted while it is being bound: reservations are undone, and a late result is ignored.
    stage.place(pod("job"));
    logged();
    let reference = stage.reference("job");
    stage.event(Event::PodDeleted { namespace: NAMESPACE.to_owned(), name: "job".to_owned() });
    assert_eq!(logged(), ["unreserve Second 11", "unreserve First 11"]);
    assert_eq!(stage.input(Input::Bound { pod: reference.clone() }), []);
    assert_eq!(stage.input(Input::Failed { pod: reference, error: "gone".to_owned() }), []);
    assert_eq!(stage.scheduler.figures().binding, 0);
}

#[test]
fn an_update_during_binding_is_not_lost_and_a_pod_with_the_same_name_is_a_new_pod() {
    let mut stage = Stage::new(&["n1"], &json!({"permit": "wait"}), &json!({}));
    stage.place(pod("web"));
    // It changes while it waits for permission and is then denied: the change may help, so it backs off.
    stage.event(Event::PodApplied(pod_with("web", |facts| facts.priority = 3)));
    stage.say("First", |pod| Say::Reject(pod, "no"), "web");
    assert_eq!(stage.scheduler.figures().pending.backoff, 1);

    // Another pod with the same name replaces it while it is being bound.
    let mut stage = Stage::plain(&["n1"]);
    stage.place(pod("web"));
    let old = stage.reference("web");
    let other = model::event::PodFacts { uid: "another".to_owned(), ..pod("web") };
    stage.event(Event::PodApplied(other));
    assert_eq!(stage.scheduler.figures().pending.active, 1);
    assert_eq!(stage.input(Input::Bound { pod: old }), [], "the result is about the old pod");
    assert_eq!(bind_to(&stage.schedule()), Some("n1"));
}

#[test]
fn gates_and_unsupported_requirements_keep_a_pod_waiting() {
    let mut stage = Stage::plain(&["n1"]);
    assert_eq!(stage.place(pod_with("web", |facts| facts.gates = vec!["quota".to_owned()])), []);
    assert_eq!(stage.scheduler.figures().pending.gated, 1);
    stage.event(Event::PodApplied(pod("web")));
    assert_eq!(bind_to(&stage.schedule()), Some("n1"));

    let needs = model::scheduling::UnsupportedFeature::ResourceClaim("gpu".to_owned());
    let effects = stage.place(pod_with("db", |facts| facts.unsupported = vec![needs]));
    let (_, message) = condition(&effects).expect("it is rejected");
    assert!(message.contains("resource claim \"gpu\""), "{message}");
    // A new node does not help it.
    stage.event(Event::NodeApplied(node("n2")));
    stage.now += Duration::from_secs(60);
    stage.input(Input::Time);
    assert_eq!((stage.schedule(), stage.scheduler.figures().pending.unschedulable), (vec![], 1));
}

#[test]
fn a_change_wakes_only_the_pods_that_it_can_help() {
    let mut stage = Stage::plain(&["n1"]);
    let cordoned = |name: &str, unschedulable| {
        let mut facts = node(name);
        let scheduling = facts.scheduling.as_deref().cloned().unwrap_or_default();
        facts.scheduling = Some(Arc::new(model::scheduling::NodeSchedulingFacts { unschedulable, ..scheduling }));
        Event::NodeApplied(facts)
    };
    stage.event(cordoned("n1", true));
    stage.place(pod("web"));
    assert_eq!(stage.scheduler.figures().pending.unschedulable, 1);
    stage.now += Duration::from_secs(60);
    let woken = |stage: &Stage| stage.scheduler.figures().queue.woken;
    // A heartbeat, the pod's own condition, a cordoned node and a deleted pod do not wake it.
    stage.event(cordoned("n1", true));
    stage.event(Event::PodApplied(pod("web")));
    stage.event(cordoned("n2", true));
    stage.event(Event::PodApplied(model::event::PodFacts { node: Some("n1".to_owned()), ..pod("other") }));
    stage.event(Event::PodDeleted { namespace: NAMESPACE.to_owned(), name: "other".to_owned() });
    assert_eq!((woken(&stage), stage.scheduler.has_work()), (0, false));
    stage.event(cordoned("n2", false));
    assert_eq!((woken(&stage), bind_to(&stage.schedule())), (1, Some("n2")));
}

#[test]
fn a_relist_finds_the_pods_to_place() {
    let mut stage = Stage::plain(&["n1"]);
    stage.world.apply(Event::PodApplied(pod("web")));
    stage.world.apply(Event::PodApplied(pod("old")));
    stage.observe(&everything());
    assert_eq!(stage.scheduler.figures().pending.active, 2);
    // A relist that contains only one of them: the other is gone.
    stage.event(Event::RelistBegan(Source::Pods));
    stage.event(Event::PodApplied(pod("web")));
    stage.event(Event::RelistEnded(Source::Pods));
    assert_eq!(stage.scheduler.figures().pending.active, 1);
    assert_eq!(bind_to(&stage.schedule()), Some("n1"));
}

#[test]
fn the_seed_decides_between_equally_good_nodes() {
    let run = |seed: u64| -> Vec<String> {
        let mut stage = Stage::plain(&["n1", "n2", "n3", "n4"]);
        stage.scheduler.random = ChaCha8Rng::seed_from_u64(seed);
        let pods = (0..12).map(|number| format!("pod-{number}"));
        pods.filter_map(|name| bind_to(&stage.place(pod(&name))).map(str::to_owned)).collect()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    assert_eq!(run(7).iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "every node gets pods");
}
