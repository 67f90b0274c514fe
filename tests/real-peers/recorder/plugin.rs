//! First and Second: one implementation, at all points.
//!
//! In: the pod's labels. Out: the scenario's answer, and a line in the file for each call. The file and the counts of
//! calls are what a plugin should not have: its answers depend on more than the world. `reads` says so, so that nothing
//! is cached, except with the argument `shares`.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bridger::scheduler::{
    Bind, ChangeKinds, Cycle, DenseId, Filter, Handle, NODE_SCORE_MAX, NodeId, NodeSet, Normalized, Permit,
    PermitAnswer, Plugin, PodId, Points, PostBind, PostFilter, PostFilterAnswer, PreBind, PreEnqueue, PreFilter,
    PreScore, Reads, Register, RejectedNodes, Rejections, Reserve, Score, Status, World,
};
use serde::Deserialize;

use crate::records::{Record, Records};
use crate::scenarios::{
    self, ALLOWER, Answer, PERMIT_WAITS_FOR_BOTH, PERMIT_WAITS_THEN_ALLOWED, PERMIT_WAITS_THEN_REJECTED, Point,
    REJECTER,
};
use crate::work::{Attachment, Call, Preparation};

pub trait Name: Send + Sync + 'static {
    const NAME: &'static str;
}

pub struct First;
pub struct Second;

impl Name for First {
    const NAME: &'static str = "First";
}

impl Name for Second {
    const NAME: &'static str = "Second";
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Args {
    /// Where the records go.
    file: PathBuf,
    /// PreBind and Bind answer themselves, if they can, instead of their executors.
    answers_at_once: bool,
    /// Says that its answers depend on the node alone, so that equal pods share them.
    shares: bool,
}

pub struct Recorder<N> {
    args: Args,
    records: Records,
    /// Calls so far, by the pod's UID and point.
    calls: Mutex<BTreeMap<(String, Point), u32>>,
    /// The reserved pods and their nodes by name: when Unreserve is called, they may be gone.
    reserved: Mutex<BTreeMap<PodId, [String; 2]>>,
    name: PhantomData<fn() -> N>,
}

fn label(world: &World, pod: PodId, key: &str) -> Option<String> {
    let interner = world.interner();
    let value = world.pod_profile_labels(pod)?.get(interner.get(key)?)?;
    Some(interner.text(value).to_owned())
}

fn scenario(world: &World, pod: PodId) -> Option<String> {
    label(world, pod, "scenario")
}

impl<N: Name> Recorder<N> {
    /// What the plugin answers to a call; recorded.
    fn answer(&self, at: Point, cycle: &Cycle<'_>, node: Option<NodeId>) -> Answer {
        let answer = self.decide(at, cycle);
        self.record(at, cycle, node, answer);
        answer
    }

    /// Called exactly once per call of the plugin, because it counts them.
    fn decide(&self, at: Point, cycle: &Cycle<'_>) -> Answer {
        let Some(scenario) = scenario(cycle.world, cycle.pod_id) else { return Answer::Success };
        let number = self.count(at, cycle);
        let times = label(cycle.world, cycle.pod_id, "times").map(|times| times.parse::<u32>());
        let limit = times.map_or(u32::MAX, |times| times.expect("the label times is a number"));
        if number > limit { Answer::Success } else { scenarios::answer(&scenario, N::NAME, at) }
    }

    /// The number of this call. Filter and Score are called once per node; theirs is that of the attempt, and each
    /// attempt starts with one call of PreFilter.
    fn count(&self, at: Point, cycle: &Cycle<'_>) -> u32 {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = cycle.pod.uid.to_string();
        if matches!(at, Point::Filter | Point::Score) {
            return calls.get(&(uid, Point::PreFilter)).copied().unwrap_or(0);
        }
        let count = calls.entry((uid, at)).or_default();
        *count += 1;
        *count
    }

    fn record(&self, point: Point, cycle: &Cycle<'_>, node: Option<NodeId>, answer: Answer) {
        if scenario(cycle.world, cycle.pod_id).is_some() {
            let node = node.and_then(|node| cycle.world.node_name(node)).unwrap_or_default();
            let status = answer.as_str();
            self.records.write(&Record { point, plugin: N::NAME, pod: &cycle.pod.name, node, status });
        }
    }

    fn status(&self, at: Point, cycle: &Cycle<'_>, node: Option<NodeId>) -> Status {
        self.answer(at, cycle, node).status(N::NAME, at)
    }

    /// A call that an executor answers and records.
    fn call(&self, cycle: &Cycle<'_>, answer: Answer) -> Call {
        let records = scenario(cycle.world, cycle.pod_id).map(|_| self.records.clone());
        Call { plugin: N::NAME, answer, records }
    }
}

impl<N: Name> Plugin for Recorder<N> {
    const NAME: &'static str = N::NAME;
    type State = ();

    fn reads(&self) -> Reads {
        if self.args.shares { Reads::Node } else { Reads::World }
    }

    /// A changed node, and nothing else.
    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NODE.difference(ChangeKinds::NODE_ADDED)
    }
}

impl<N: Name> PreEnqueue for Recorder<N> {
    fn pre_enqueue(&self, cycle: &Cycle<'_>) -> Status {
        self.status(Point::PreEnqueue, cycle, None)
    }
}

impl<N: Name> PreFilter for Recorder<N> {
    fn pre_filter(&self, cycle: &Cycle<'_>, (): &mut ()) -> Result<Option<NodeSet>, Status> {
        match self.status(Point::PreFilter, cycle, None) {
            Status::Success => Ok(None),
            status => Err(status),
        }
    }

    // scheduler-recorder has no PreFilterExtensions.

    fn add_pod(&self, _: &Cycle<'_>, (): &mut (), _: PodId, _: NodeId) -> Status {
        Status::Success
    }

    fn remove_pod(&self, _: &Cycle<'_>, (): &mut (), _: PodId, _: NodeId) -> Status {
        Status::Success
    }
}

impl<N: Name> Filter for Recorder<N> {
    fn filter_all(&self, cycle: &Cycle<'_>, (): &(), nodes: &NodeSet, rejections: &mut Rejections) {
        for node in nodes.iter() {
            match self.status(Point::Filter, cycle, Some(node)) {
                Status::Success => {}
                Status::Error(error) => return rejections.fail(error),
                status => {
                    let id = rejections.id(status.into_rejection().expect("the scenario rejects the node"));
                    rejections.reject(node, id);
                }
            }
        }
    }
}

impl<N: Name> PostFilter for Recorder<N> {
    fn post_filter(
        &self,
        cycle: &Cycle<'_>,
        (): &mut (),
        _: &dyn RejectedNodes,
        _: &mut Handle<'_>,
    ) -> PostFilterAnswer {
        match self.answer(Point::PostFilter, cycle, None) {
            Answer::Nominate => {
                let nodes = cycle.world.node_ids();
                let first = nodes.min_by_key(|node| cycle.world.node_name(*node));
                PostFilterAnswer::nominate(first.expect("without nodes, PostFilter is not called"))
            }
            answer => PostFilterAnswer::nothing(answer.status(N::NAME, Point::PostFilter)),
        }
    }
}

impl<N: Name> PreScore for Recorder<N> {
    fn pre_score(&self, cycle: &Cycle<'_>, (): &mut (), _: &NodeSet) -> Status {
        self.status(Point::PreScore, cycle, None)
    }
}

impl<N: Name> Score for Recorder<N> {
    fn score(&self, cycle: &Cycle<'_>, (): &(), node: NodeId) -> i64 {
        match self.answer(Point::Score, cycle, Some(node)) {
            Answer::Score(score) => score,
            _ => 0,
        }
    }

    /// Gives the alphabetically first node the highest score and the others the lowest. A score out of range stays.
    fn normalize(
        &self,
        cycle: &Cycle<'_>,
        (): &(),
        feasible: &NodeSet,
        scores: &[i64],
        normalized: &mut [i64],
    ) -> Normalized {
        self.answer(Point::NormalizeScore, cycle, None);
        if feasible.iter().any(|node| scores[node.index()] > NODE_SCORE_MAX) {
            return Normalized::AsGiven;
        }
        feasible.iter().for_each(|node| normalized[node.index()] = 0);
        if let Some(best) = feasible.iter().min_by_key(|node| cycle.world.node_name(*node)) {
            normalized[best.index()] = NODE_SCORE_MAX;
        }
        Normalized::Written
    }
}

impl<N: Name> Reserve for Recorder<N> {
    fn reserve(&self, cycle: &Cycle<'_>, (): &mut (), node: NodeId, _: &mut Handle<'_>) -> Status {
        if scenario(cycle.world, cycle.pod_id).is_some() {
            let names = [&*cycle.pod.name, cycle.world.node_name(node).unwrap_or_default()].map(str::to_owned);
            self.reserved.lock().unwrap_or_else(PoisonError::into_inner).insert(cycle.pod_id, names);
        }
        self.status(Point::Reserve, cycle, Some(node))
    }

    fn unreserve(&self, (): &mut (), pod: PodId, _: NodeId, _: &mut Handle<'_>) {
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner).remove(&pod);
        if let Some([pod, node]) = &reserved {
            let (point, status) = (Point::Unreserve, Answer::Success.as_str());
            self.records.write(&Record { point, plugin: N::NAME, pod, node, status });
        }
    }
}

impl<N: Name> Permit for Recorder<N> {
    fn permit(&self, cycle: &Cycle<'_>, (): &mut (), node: NodeId, handle: &mut Handle<'_>) -> PermitAnswer {
        let answer = self.answer(Point::Permit, cycle, Some(node));
        let own = scenario(cycle.world, cycle.pod_id);
        for waiting in handle.waiting_pods() {
            let scenario = scenario(cycle.world, waiting.pod);
            match (own.as_deref(), scenario.as_deref()) {
                // Has no effect on a pod that does not wait for this plugin.
                (Some(ALLOWER), Some(PERMIT_WAITS_THEN_ALLOWED | PERMIT_WAITS_FOR_BOTH)) => handle.allow(waiting.pod),
                (Some(REJECTER), Some(PERMIT_WAITS_THEN_REJECTED)) if N::NAME == First::NAME => {
                    handle.reject(waiting.pod, format!("rejected by pod {}", cycle.pod.name));
                }
                _ => {}
            }
        }
        match answer {
            Answer::Wait(time) => PermitAnswer::Wait(time),
            answer => match answer.status(N::NAME, Point::Permit) {
                Status::Success => PermitAnswer::Approve,
                status => PermitAnswer::Deny(status),
            },
        }
    }
}

impl<N: Name> PreBind for Recorder<N> {
    type Work = Preparation;

    fn pre_bind_pre_flight(&self, cycle: &Cycle<'_>, (): &(), node: NodeId) -> Status {
        self.status(Point::PreBindPreFlight, cycle, Some(node))
    }

    fn pre_bind(&self, cycle: &Cycle<'_>, (): &(), node: NodeId) -> Result<Option<Preparation>, Status> {
        let answer = self.decide(Point::PreBind, cycle);
        if !self.args.answers_at_once {
            return Ok(Some(Preparation(self.call(cycle, answer))));
        }
        self.record(Point::PreBind, cycle, Some(node), answer);
        match answer.status(N::NAME, Point::PreBind) {
            Status::Success => Ok(None),
            status => Err(status),
        }
    }
}

impl<N: Name> Bind for Recorder<N> {
    type Work = Attachment;

    fn bind(&self, cycle: &Cycle<'_>, (): &(), node: NodeId) -> Result<Option<Attachment>, Status> {
        let answer = self.decide(Point::Bind, cycle);
        // A binding is always the executor's work.
        if !self.args.answers_at_once || answer == Answer::Success {
            return Ok(Some(Attachment(self.call(cycle, answer))));
        }
        self.record(Point::Bind, cycle, Some(node), answer);
        match answer.status(N::NAME, Point::Bind) {
            Status::Skip => Ok(None),
            status => Err(status),
        }
    }
}

impl<N: Name> PostBind for Recorder<N> {
    fn post_bind(&self, cycle: &Cycle<'_>, (): &(), node: NodeId, _: &mut Handle<'_>) {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner).remove(&cycle.pod_id);
        self.answer(Point::PostBind, cycle, Some(node));
    }
}

impl<N: Name> Register for Recorder<N> {
    type Args = Args;

    fn build(args: Args) -> Result<Self, String> {
        let records = Records::open(&args.file)?;
        Ok(Self { args, records, calls: Mutex::default(), reserved: Mutex::default(), name: PhantomData })
    }

    /// All but QueueSort, whose keys say nothing about the order of calls.
    fn points(points: Points<Self>) -> Points<Self> {
        points
            .pre_enqueue()
            .pre_filter()
            .filter()
            .post_filter()
            .pre_score()
            .score()
            .reserve()
            .permit()
            .pre_bind()
            .bind()
            .post_bind()
    }
}
