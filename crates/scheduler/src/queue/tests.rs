//! The queue against a simple model that checks every pod every time, and tests of single rules.

use std::collections::{BTreeMap, BTreeSet};

use model::storage::arena::DenseId;
use proptest::prelude::*;

use super::*;

const PODS: u32 = 8;
/// Kinds of change in the tests: the first two wake plugin 0, the second and third wake plugin 1, the last wakes none.
const KINDS: [ChangeKinds; 4] =
    [ChangeKinds::NODE_ADDED, ChangeKinds::POD_LEFT, ChangeKinds::NODE_LABELS, ChangeKinds::NODE_IMAGES];
/// The plugin that gates.
const GATE: usize = 2;

fn woken_by() -> Vec<ChangeKinds> {
    vec![KINDS[0] | KINDS[1] | ChangeKinds::SELF_UPDATED, KINDS[1] | KINDS[2], ChangeKinds::SELF_UPDATED]
}

fn pod_id(index: u32) -> PodId {
    PodId::from_index(index)
}

fn newcomer(pod: u32, uid: u32) -> Newcomer {
    Newcomer { pod: pod_id(pod), uid: Uid::from(format!("uid-{uid}").as_str()), profile: 0 }
}

fn queue() -> Queue {
    Queue::new(PodBackoff::default(), vec![woken_by()])
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Plugins that a change helps for some pods, and a gate for some pods. Pods are ordered as by PrioritySort.
#[derive(Default)]
struct TestAdvice {
    gated: BTreeSet<u32>,
    priorities: BTreeMap<u32, i32>,
    asked: u64,
}

/// Whether the change helps the pod, according to the plugin.
fn says_yes(plugin: usize, pod: u32, change: &Change) -> bool {
    let salt = KINDS.iter().position(|kind| *kind == change.kinds).unwrap_or(0);
    (pod as usize + plugin + salt).is_multiple_of(2)
}

impl Advice for TestAdvice {
    fn gate(&mut self, _: usize, pod: PodId) -> Option<usize> {
        self.gated.contains(&(pod.index() as u32)).then_some(GATE)
    }

    fn sort_key(&mut self, _: usize, pod: PodId, queued: &QueuedPod) -> Option<SortKey> {
        let priority = self.priorities.get(&(pod.index() as u32)).copied().unwrap_or(0);
        Some(SortKey::new((std::cmp::Reverse(priority), queued.queued_at)))
    }

    fn helps(&mut self, (_, plugin): PluginPosition, pod: PodId, change: &Change) -> bool {
        self.asked += 1;
        plugin == GATE || says_yes(plugin, pod.index() as u32, change)
    }
}

fn change(kind: usize) -> Change {
    Change { kinds: KINDS[kind], ..Change::default() }
}

#[derive(Clone, Debug)]
enum Step {
    Apply {
        pod: u32,
        uid: u32,
        priority: i32,
    },
    SetGate {
        pod: u32,
        gated: bool,
    },
    Remove {
        pod: u32,
    },
    /// Pops a pod, which stays in flight.
    Pop,
    /// The result of the pod that is in flight longest: a bit set of rejectors, 0 for an error, 4 for bound.
    Conclude {
        how: u8,
    },
    BindingFails,
    Change {
        kind: usize,
    },
    Everything,
    Pass {
        millis: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..PODS, 0..2u32, 0..3i32).prop_map(|(pod, uid, priority)| Step::Apply { pod, uid, priority }),
        2 => (0..PODS, any::<bool>()).prop_map(|(pod, gated)| Step::SetGate { pod, gated }),
        1 => (0..PODS).prop_map(|pod| Step::Remove { pod }),
        6 => Just(Step::Pop),
        6 => (0..5u8).prop_map(|how| Step::Conclude { how }),
        1 => Just(Step::BindingFails),
        4 => (0..4usize).prop_map(|kind| Step::Change { kind }),
        1 => Just(Step::Everything),
        4 => prop_oneof![Just(100u64), Just(1_000), Just(4_000), Just(300_000)].prop_map(|millis| Step::Pass { millis }),
    ]
}

#[derive(Clone, Debug, PartialEq)]
enum At {
    Active { order: u64 },
    PodBackoff { due: Duration, order: u64 },
    Unschedulable { flush: Duration },
    Gated { flush: Duration },
    InFlight { missed: Vec<Missed> },
    Binding,
}

/// A change as the model stores it: its kind, or an update of the pod itself.
#[derive(Clone, Debug, PartialEq)]
enum Missed {
    Kind(usize),
    Own,
    Everything,
}

#[derive(Clone, Debug)]
struct Modelled {
    uid: u32,
    priority: i32,
    queued_at: Duration,
    rejections: u32,
    errors: u32,
    rejectors: Vec<usize>,
    at: At,
}

/// The simplest queue that follows the rules: every query iterates over all pods.
#[derive(Default)]
struct Model {
    pods: BTreeMap<u32, Modelled>,
    gated: BTreeSet<u32>,
    order: u64,
}

impl Model {
    fn order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    fn activate(&mut self, now: Duration, pod: u32) {
        let order = self.order();
        let is_gated = self.gated.contains(&pod);
        let entry = self.pods.get_mut(&pod).unwrap();
        if is_gated {
            entry.rejectors = vec![GATE];
            entry.at = At::Gated { flush: now + UNSCHEDULABLE_MAX };
        } else {
            entry.at = At::Active { order };
        }
    }

    fn wake(&mut self, now: Duration, pod: u32) {
        let entry = &self.pods[&pod];
        let count = if entry.errors > 0 { entry.errors } else { entry.rejections };
        let pause = if count == 0 { 0 } else { (1u64 << (count - 1).min(20)).min(10) };
        let due = entry.queued_at + seconds(pause);
        if due > now && !matches!(entry.at, At::Gated { .. }) {
            let order = self.order();
            self.pods.get_mut(&pod).unwrap().at = At::PodBackoff { due, order };
        } else {
            self.activate(now, pod);
        }
    }

    fn helps(&self, pod: u32, change: &Missed) -> bool {
        let kinds = match change {
            Missed::Kind(kind) => KINDS[*kind],
            Missed::Own => ChangeKinds::SELF_UPDATED,
            Missed::Everything => return true,
        };
        let change = Change { kinds, ..Change::default() };
        self.pods[&pod]
            .rejectors
            .iter()
            .any(|&plugin| woken_by()[plugin].intersects(kinds) && (plugin == GATE || says_yes(plugin, pod, &change)))
    }

    fn note(&mut self, change: &Missed, only: Option<u32>) {
        for (pod, entry) in &mut self.pods {
            if let At::InFlight { missed } = &mut entry.at
                && only.is_none_or(|only| only == *pod)
            {
                missed.push(change.clone());
            }
        }
    }

    fn waiting(&self) -> Vec<u32> {
        let waits = |entry: &Modelled| matches!(entry.at, At::Unschedulable { .. } | At::Gated { .. });
        self.pods.iter().filter(|(_, entry)| waits(entry)).map(|(pod, _)| *pod).collect()
    }

    fn pending(&self) -> Pending {
        let count = |is: fn(&At) -> bool| self.pods.values().filter(|entry| is(&entry.at)).count();
        Pending {
            active: count(|at| matches!(at, At::Active { .. })),
            backoff: count(|at| matches!(at, At::PodBackoff { .. })),
            unschedulable: count(|at| matches!(at, At::Unschedulable { .. })),
            gated: count(|at| matches!(at, At::Gated { .. })),
        }
    }
}

struct Both {
    queue: Queue,
    advice: TestAdvice,
    model: Model,
    now: Duration,
    /// Pods in flight and pods in binding, oldest first.
    in_flight: Vec<u32>,
    binding: Vec<u32>,
}

impl Both {
    fn leave(&mut self, pod: u32) {
        self.in_flight.retain(|other| *other != pod);
        self.binding.retain(|other| *other != pod);
    }

    fn run(&mut self, step: &Step) {
        let now = self.now;
        match *step {
            Step::Apply { pod, uid, priority } => {
                self.advice.priorities.insert(pod, priority);
                self.queue.apply(now, newcomer(pod, uid), &mut self.advice);
                self.model_apply(pod, uid, priority);
            }
            Step::SetGate { pod, gated } => {
                for set in [&mut self.advice.gated, &mut self.model.gated] {
                    if gated {
                        set.insert(pod)
                    } else {
                        set.remove(&pod)
                    };
                }
            }
            Step::Remove { pod } => {
                self.queue.remove(pod_id(pod));
                self.model.pods.remove(&pod);
                self.leave(pod);
            }
            Step::Pop => self.pop(),
            Step::Conclude { how } => {
                if self.in_flight.is_empty() {
                    return;
                }
                let pod = self.in_flight.remove(0);
                if how == 4 {
                    self.queue.binding(pod_id(pod));
                    self.model.pods.get_mut(&pod).unwrap().at = At::Binding;
                    self.binding.push(pod);
                } else {
                    self.fail(pod, how);
                }
            }
            Step::BindingFails => {
                if !self.binding.is_empty() {
                    let pod = self.binding.remove(0);
                    self.fail(pod, 0);
                }
            }
            Step::Change { kind } => {
                self.queue.changed(now, &change(kind), &mut self.advice);
                self.model.note(&Missed::Kind(kind), None);
                for pod in self.model.waiting() {
                    if self.model.helps(pod, &Missed::Kind(kind)) {
                        self.model.wake(now, pod);
                    }
                }
            }
            Step::Everything => {
                self.queue.everything_changed(now, &mut self.advice);
                self.model.note(&Missed::Everything, None);
                for (_, pod) in self.by_flush() {
                    self.model.wake(now, pod);
                }
            }
            Step::Pass { millis } => {
                self.now += Duration::from_millis(millis);
                self.tick();
            }
        }
    }

    fn by_flush(&self) -> Vec<(Duration, u32)> {
        let mut all: Vec<(Duration, u32)> = Vec::new();
        for (pod, entry) in &self.model.pods {
            if let At::Unschedulable { flush } | At::Gated { flush } = entry.at {
                all.push((flush, *pod));
            }
        }
        all.sort_unstable();
        all
    }

    fn model_apply(&mut self, pod: u32, uid: u32, priority: i32) {
        let now = self.now;
        match self.model.pods.get_mut(&pod) {
            Some(entry) if entry.uid == uid => {
                let reordered = entry.priority != priority;
                entry.priority = priority;
                match entry.at.clone() {
                    At::Active { .. } if reordered => self.model.activate(now, pod),
                    At::Active { .. } | At::PodBackoff { .. } | At::Binding => {}
                    At::InFlight { .. } => self.model.note(&Missed::Own, Some(pod)),
                    At::Gated { .. } => self.model.activate(now, pod),
                    At::Unschedulable { .. } => {
                        if self.model.helps(pod, &Missed::Own) {
                            self.model.wake(now, pod);
                        }
                    }
                }
            }
            _ => {
                self.leave(pod);
                let fresh = Modelled {
                    uid,
                    priority,
                    queued_at: now,
                    rejections: 0,
                    errors: 0,
                    rejectors: Vec::new(),
                    at: At::Binding,
                };
                self.model.pods.insert(pod, fresh);
                self.model.activate(now, pod);
            }
        }
    }

    fn pop(&mut self) {
        let first = self.model.pods.iter().filter_map(|(pod, entry)| match entry.at {
            At::Active { order } => Some(((-entry.priority, entry.queued_at, order), *pod)),
            _ => None,
        });
        let expected = first.min().map(|(_, pod)| pod);
        let popped = self.queue.pop().map(|pod| pod.index() as u32);
        assert_eq!(popped, expected, "the next pod");
        if let Some(pod) = popped {
            self.model.pods.get_mut(&pod).unwrap().at = At::InFlight { missed: Vec::new() };
            self.in_flight.push(pod);
        }
    }

    fn fail(&mut self, pod: u32, how: u8) {
        let now = self.now;
        let rejectors: Vec<usize> = (0..2).filter(|plugin| how & (1 << plugin) != 0).collect();
        self.queue.failed(now, pod_id(pod), rejectors.iter().copied().collect(), &mut self.advice);
        let entry = self.model.pods.get_mut(&pod).unwrap();
        entry.queued_at = now;
        entry.rejectors.clone_from(&rejectors);
        if rejectors.is_empty() {
            entry.errors += 1;
        } else {
            entry.errors = 0;
            entry.rejections += 1;
        }
        let missed = match &entry.at {
            At::InFlight { missed } => missed.clone(),
            _ => Vec::new(),
        };
        if rejectors.is_empty() || missed.iter().any(|change| self.model.helps(pod, change)) {
            self.model.wake(now, pod);
        } else {
            self.model.pods.get_mut(&pod).unwrap().at = At::Unschedulable { flush: now + UNSCHEDULABLE_MAX };
        }
    }

    fn tick(&mut self) {
        self.queue.tick(self.now, &mut self.advice);
        let mut due: Vec<(Duration, u64, u32)> = Vec::new();
        for (pod, entry) in &self.model.pods {
            if let At::PodBackoff { due: at, order } = entry.at
                && at <= self.now
            {
                due.push((at, order, *pod));
            }
        }
        due.sort_unstable();
        for (_, _, pod) in due {
            self.model.activate(self.now, pod);
        }
        for (flush, pod) in self.by_flush() {
            if flush <= self.now {
                self.model.wake(self.now, pod);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::testing::cases(20_000, 600)))]

    #[test]
    fn the_queue_behaves_like_the_simple_model(steps in proptest::collection::vec(step(), 1..120)) {
        let mut both = Both {
            queue: queue(),
            advice: TestAdvice::default(),
            model: Model::default(),
            now: seconds(1),
            in_flight: Vec::new(),
            binding: Vec::new(),
        };
        for step in &steps {
            both.run(step);
            prop_assert_eq!(both.queue.pending(), both.model.pending(), "after {:?}", step);
            let waited_for: Vec<_> = both.queue.rejected().collect();
            prop_assert_eq!(waited_for, recounted(&both.queue), "after {:?}", step);
        }
        // No pod starves: after enough time, every pod that is not gated, in flight or bound becomes active.
        both.now += UNSCHEDULABLE_MAX + seconds(11);
        both.tick();
        both.now += seconds(11);
        both.tick();
        prop_assert_eq!(both.queue.pending(), both.model.pending());
        let left = both.queue.pending();
        prop_assert_eq!((left.backoff, left.unschedulable), (0, 0));
        for _ in 0..left.active {
            both.pop();
        }
        prop_assert_eq!(both.queue.pending().active, 0);
    }
}

/// The number of waiting pods by rejecting plugin, recounted from all entries. A pod counts until it is tried again.
fn recounted(queue: &Queue) -> Vec<(PluginPosition, usize)> {
    let mut counts: BTreeMap<PluginPosition, usize> = BTreeMap::new();
    for entry in queue.entries.values() {
        let is_tried = matches!(entry.state, QueueState::InFlight { .. } | QueueState::Binding);
        let is_new = entry.attempts == 0 && entry.state != QueueState::Gated;
        // A gate that has opened no longer counts; the plugins that rejected the pod before are no longer known.
        let was_let_through = entry.rejectors.iter().any(|plugin| plugin == GATE) && entry.state != QueueState::Gated;
        if !is_tried && !is_new && !was_let_through {
            entry.rejectors.iter().for_each(|plugin| *counts.entry((entry.profile, plugin)).or_default() += 1);
        }
    }
    counts.into_iter().collect()
}

fn rejected(queue: &mut Queue, advice: &mut TestAdvice, now: Duration, plugins: &[usize]) -> PodId {
    let pod = queue.pop().expect("a pod is active");
    queue.failed(now, pod, plugins.iter().copied().collect(), advice);
    pod
}

#[test]
fn a_change_that_cannot_help_neither_calls_a_plugin_nor_wakes_a_pod() {
    let (mut queue, mut advice) = (queue(), TestAdvice::default());
    for pod in 0..100 {
        queue.apply(seconds(0), newcomer(pod, pod), &mut advice);
        rejected(&mut queue, &mut advice, seconds(0), &[0]);
    }
    for kind in [2, 3] {
        queue.changed(seconds(20), &change(kind), &mut advice);
    }
    assert_eq!((advice.asked, queue.counts().woken, queue.pending().unschedulable), (0, 0, 100));
    // A kind that the plugin declared: it is called for each pod, and the pods that it accepts wake.
    queue.changed(seconds(20), &change(0), &mut advice);
    assert_eq!((advice.asked, queue.counts().hints_asked, queue.counts().woken), (100, 100, 50));
    assert_eq!((queue.pending().active, queue.pending().unschedulable), (50, 50));
}

#[test]
fn arrivals_are_counted_by_queue_and_event() {
    let (mut queue, mut advice) = (queue(), TestAdvice { gated: [2].into(), ..TestAdvice::default() });
    for pod in [1, 2] {
        queue.apply(seconds(0), newcomer(pod, pod), &mut advice);
    }
    // Still gated: it is counted once.
    queue.apply(seconds(1), newcomer(2, 2), &mut advice);
    rejected(&mut queue, &mut advice, seconds(1), &[0, 1]);
    assert_eq!(queue.rejected().collect::<Vec<_>>(), [((0, 0), 1), ((0, 1), 1), ((0, GATE), 1)]);
    // According to plugin 0, the change of kind 1 helps pod 1: it backs off, and is counted until it is tried.
    queue.changed(seconds(1), &change(1), &mut advice);
    queue.tick(seconds(2), &mut advice);
    assert_eq!(queue.rejected().count(), 3);
    rejected(&mut queue, &mut advice, seconds(2), &[]);
    queue.tick(seconds(3), &mut advice);
    advice.gated.clear();
    queue.apply(seconds(4), newcomer(2, 2), &mut advice);
    assert_eq!(queue.rejected().count(), 0);
    let counted: BTreeMap<_, _> =
        queue.arrivals().iter().map(|(queue, event, count)| ((queue, event), count)).collect();
    let expected = [
        (("active", "BackoffComplete"), 2),
        (("active", "TargetPodUpdate"), 1),
        (("active", "UnscheduledPodAdd"), 1),
        (("backoff", "AssignedPodDelete"), 1),
        (("backoff", "ScheduleAttemptFailure"), 1),
        (("unschedulable", "ScheduleAttemptFailure"), 1),
        (("unschedulable", "UnscheduledPodAdd"), 1),
    ];
    assert_eq!(counted, expected.into());
}

#[test]
fn backoff_doubles_up_to_its_limit_and_errors_are_counted_separately() {
    let (mut queue, mut advice) = (queue(), TestAdvice::default());
    let mut now = seconds(0);
    queue.apply(now, newcomer(1, 1), &mut advice);
    let mut pauses = Vec::new();
    // According to plugin 0, the change of kind 1 helps pod 1. The backoff of errors starts at one second.
    for plugins in [&[0][..], &[0], &[], &[], &[0], &[0], &[0], &[0]] {
        let pod = rejected(&mut queue, &mut advice, now, plugins);
        queue.changed(now, &change(1), &mut advice);
        assert_eq!(queue.pending().backoff, 1);
        let due = queue.due().expect("it backs off");
        pauses.push((due - now).as_secs());
        queue.tick(due - Duration::from_millis(1), &mut advice);
        assert_eq!(queue.pending().active, 0, "not before its time");
        now = due;
        queue.tick(now, &mut advice);
        assert_eq!((queue.pending().active, pod), (1, pod_id(1)));
    }
    assert_eq!(pauses, [1, 2, 1, 2, 4, 8, 10, 10]);
}

#[test]
fn a_pod_that_left_early_is_skipped_and_the_heap_stays_small() {
    let (mut queue, mut advice) = (queue(), TestAdvice::default());
    for round in 0..1000 {
        queue.apply(seconds(0), newcomer(1, round), &mut advice);
    }
    assert!(queue.active.len() < 130, "{}", queue.active.len());
    advice.priorities = [(1, 7), (2, 5)].into();
    queue.apply(seconds(0), newcomer(2, 2), &mut advice);
    queue.apply(seconds(0), newcomer(1, 999), &mut advice);
    assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(pod_id(1)), Some(pod_id(2)), None));
}

#[test]
fn more_changes_than_can_be_stored_wake_the_pod() {
    let (mut queue, mut advice) = (queue(), TestAdvice::default());
    queue.apply(seconds(0), newcomer(1, 1), &mut advice);
    let pod = queue.pop().expect("it is active");
    for _ in 0..2000 {
        queue.changed(seconds(0), &change(3), &mut advice);
    }
    queue.failed(seconds(0), pod, [0].into_iter().collect(), &mut advice);
    assert_eq!(queue.pending().backoff, 1);
}

#[test]
fn a_forced_pod_is_tried_at_once_wherever_it_waits() {
    let (mut queue, mut advice) = (queue(), TestAdvice { gated: [3].into(), ..TestAdvice::default() });
    for pod in [1, 2, 3, 4] {
        queue.apply(seconds(0), newcomer(pod, pod), &mut advice);
    }
    // One backs off, one is unschedulable, one is gated, one is in flight.
    rejected(&mut queue, &mut advice, seconds(0), &[]);
    rejected(&mut queue, &mut advice, seconds(0), &[0]);
    let in_flight = queue.pop().expect("the last one is active");
    for pod in [1, 2, 3, 4, 5] {
        queue.force(seconds(0), pod_id(pod), &mut advice);
    }
    assert_eq!((queue.pending().active, queue.pending().gated), (2, 1), "PreEnqueue still gates");
    // The attempt fails: the pod backs off instead of waiting for a change.
    queue.failed(seconds(0), in_flight, [0].into_iter().collect(), &mut advice);
    assert_eq!((queue.pending().backoff, queue.pending().unschedulable), (1, 0));
    let arrivals = queue.arrivals();
    let forced = arrivals.iter().filter(|(_, event, _)| *event == "ForceActivate").map(|(.., count)| count);
    assert_eq!(forced.sum::<u64>(), 2);
}
