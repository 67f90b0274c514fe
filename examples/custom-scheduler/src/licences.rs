//! Licences: pods with the label `example.com/licences` take floating licences from a pool while they run.
//!
//! The plugin extends every point, so that it shows them all; a real one would extend half of them. The label's value
//! is the number of licences. A pod has its licences as long as it has a node, also while it is being bound: what is in
//! use is counted in the world, so a restart loses nothing.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bridger::scheduler::{
    Bind, ChangeKinds, Cycle, Filter, Handle, NodeId, NodeSet, Nomination, Notified, Permit, PermitAnswer, Plugin,
    PodId, Points, PostBind, PostFilter, PostFilterAnswer, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort,
    QueuedPod, Reads, Reasons, Register, RejectedNodes, Rejection, Reserve, Score, Status, World,
};
use serde::Deserialize;

use crate::checkout::{BindHere, Checkout};

/// How many licences the pod needs.
pub const LABEL: &str = "example.com/licences";
/// Nodes that do not reach the licence server have this label.
pub const OFFLINE: &str = "example.com/offline";

pub struct Licences {
    args: Args,
    /// Licences of pods that are being bound, for messages.
    being_bound: AtomicU32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Args {
    /// The size of the pool.
    licences: u32,
    /// Waits so long for the licence server to agree, in milliseconds; 0: it need not be asked.
    approval_within_ms: u64,
    /// How long it takes to check out licences, in milliseconds.
    checkout_takes_ms: u64,
}

/// What one cycle knows: written by PreFilter, read by the later points.
#[derive(Clone, Debug, Default)]
pub struct State {
    needed: u32,
    is_reserved: bool,
    /// The number of licensed pods on the fullest node; from PreScore.
    most: i64,
}

/// The licence server's answer, sent by the task that asks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    pub namespace: String,
    pub pod: String,
    pub granted: bool,
}

/// The number in the pod's label: `None` without the label, `Err` if it is no number.
fn needed(world: &World, pod: PodId) -> Option<Result<u32, String>> {
    let interner = world.interner();
    let value = world.pod_profile_labels(pod)?.get(interner.get(LABEL)?)?;
    let text = interner.text(value);
    Some(text.parse().map_err(|_| format!("label {LABEL} is {text:?}, not a number")))
}

impl Licences {
    /// Licences of pods that have a node, and of pods that are being bound.
    fn in_use(&self, world: &World) -> u32 {
        let placed = world.pods().filter(|(_, pod)| pod.placed_on().is_some() && !pod.finished);
        placed.filter_map(|(id, _)| needed(world, id)?.ok()).sum()
    }

    /// The number of licensed pods on a node.
    fn licensed_on(cycle: &Cycle<'_>, node: NodeId) -> i64 {
        let pods = cycle.world.pods_on(node).iter();
        i64::try_from(pods.filter(|pod| needed(cycle.world, **pod).is_some()).count()).unwrap_or(i64::MAX)
    }
}

impl Plugin for Licences {
    const NAME: &'static str = "Licences";
    type State = State;

    /// The pool is shared by all nodes: any pod may change the verdict.
    fn reads(&self) -> Reads {
        Reads::World
    }

    fn woken_by(&self) -> ChangeKinds {
        ChangeKinds::NODE_ADDED | ChangeKinds::NODE_LABELS | ChangeKinds::POD_LEFT | ChangeKinds::SELF_UPDATED
    }
}

/// Among pods of equal priority, those that need licences go first: they may have to wait.
impl QueueSort for Licences {
    type Key = (Reverse<i32>, Reverse<bool>, Duration);

    fn key(&self, cycle: &Cycle<'_>, queued: &QueuedPod) -> Self::Key {
        let is_licensed = needed(cycle.world, cycle.pod_id).is_some();
        (Reverse(cycle.facts().priority), Reverse(is_licensed), queued.queued_at)
    }
}

impl PreEnqueue for Licences {
    fn pre_enqueue(&self, cycle: &Cycle<'_>) -> Status {
        match needed(cycle.world, cycle.pod_id) {
            Some(Err(problem)) => Status::unresolvable(problem),
            _ => Status::Success,
        }
    }
}

impl PreFilter for Licences {
    fn pre_filter(&self, cycle: &Cycle<'_>, state: &mut State) -> Result<Option<NodeSet>, Status> {
        let Some(Ok(count)) = needed(cycle.world, cycle.pod_id) else { return Err(Status::Skip) };
        state.needed = count;
        let free = self.args.licences.saturating_sub(self.in_use(cycle.world));
        if count > free {
            return Err(Status::unschedulable(format!("{count} licences are needed, {free} are free")));
        }
        Ok(None)
    }
}

impl Filter for Licences {
    fn filter(&self, cycle: &Cycle<'_>, _: &State, node: NodeId) -> Result<(), Rejection> {
        match cycle.world.label_of(node, OFFLINE) {
            None => Ok(()),
            // Removing pods from the node would not help.
            Some(_) => {
                Err(Rejection { resolvable: false, reasons: Reasons::one("node(s) don't reach the licence server") })
            }
        }
    }
}

impl PostFilter for Licences {
    fn post_filter(
        &self,
        _: &Cycle<'_>,
        state: &mut State,
        _: &dyn RejectedNodes,
        handle: &mut Handle<'_>,
    ) -> PostFilterAnswer {
        // Nothing can be done about it, but it can be explained. No room is to be kept either: a process that was killed
        // may have left a nomination.
        let (held, waiting) = (self.being_bound.load(Ordering::Relaxed), handle.waiting_pods().len());
        let reason = format!(
            "licences: {} needed, {held} held by pods that are being bound, of which {waiting} wait for approval",
            state.needed
        );
        let answer = PostFilterAnswer::nothing(Status::unschedulable(reason));
        PostFilterAnswer { nomination: Nomination::Clear, ..answer }
    }
}

impl PreScore for Licences {
    fn pre_score(&self, cycle: &Cycle<'_>, state: &mut State, nodes: &NodeSet) -> Status {
        if state.needed == 0 {
            return Status::Skip;
        }
        state.most = nodes.iter().map(|node| Self::licensed_on(cycle, node)).max().unwrap_or(0);
        Status::Success
    }
}

/// Licensed pods together, so that few nodes must reach the licence server.
impl Score for Licences {
    fn score(&self, cycle: &Cycle<'_>, state: &State, node: NodeId) -> i64 {
        if state.most == 0 { 0 } else { 100 * Self::licensed_on(cycle, node) / state.most }
    }
}

impl Reserve for Licences {
    fn reserve(&self, _: &Cycle<'_>, state: &mut State, _: NodeId, _: &mut Handle<'_>) -> Status {
        state.is_reserved = true;
        self.being_bound.fetch_add(state.needed, Ordering::Relaxed);
        Status::Success
    }

    /// Also called if `reserve` was not.
    fn unreserve(&self, state: &mut State, _: PodId, _: NodeId, _: &mut Handle<'_>) {
        if std::mem::take(&mut state.is_reserved) {
            self.being_bound.fetch_sub(state.needed, Ordering::Relaxed);
        }
    }
}

impl Permit for Licences {
    fn permit(&self, _: &Cycle<'_>, state: &mut State, _: NodeId, _: &mut Handle<'_>) -> PermitAnswer {
        match self.args.approval_within_ms {
            wait if wait > 0 && state.needed > 0 => PermitAnswer::Wait(Duration::from_millis(wait)),
            _ => PermitAnswer::Approve,
        }
    }
}

/// The answer of the licence server. It repeats its answers; one about a pod that does not wait changes nothing.
impl Notified for Licences {
    type Message = Approval;

    fn notified(&self, world: &World, approval: &Approval, handle: &mut Handle<'_>) {
        match world.pod_id(&approval.namespace, &approval.pod) {
            Some(pod) if approval.granted => handle.allow(pod),
            Some(pod) => handle.reject(pod, "the licence server refuses"),
            None => {}
        }
    }
}

impl PreBind for Licences {
    type Work = Checkout;

    fn pre_bind_pre_flight(&self, _: &Cycle<'_>, state: &State, _: NodeId) -> Status {
        if state.needed > 0 { Status::Success } else { Status::Skip }
    }

    fn pre_bind(&self, _: &Cycle<'_>, state: &State, _: NodeId) -> Result<Option<Checkout>, Status> {
        let takes = Duration::from_millis(self.args.checkout_takes_ms);
        Ok(Some(Checkout { licences: state.needed, takes }))
    }
}

impl Bind for Licences {
    type Work = BindHere;

    /// Other pods are left to DefaultBinder.
    fn bind(&self, _: &Cycle<'_>, state: &State, _: NodeId) -> Result<Option<BindHere>, Status> {
        Ok((state.needed > 0).then_some(BindHere))
    }
}

impl PostBind for Licences {
    fn post_bind(&self, _: &Cycle<'_>, state: &State, _: NodeId, _: &mut Handle<'_>) {
        self.being_bound.fetch_sub(state.needed, Ordering::Relaxed);
    }
}

impl Register for Licences {
    type Args = Args;

    fn build(args: Args) -> Result<Self, String> {
        if args.licences == 0 {
            return Err("licences must be at least 1".to_owned());
        }
        Ok(Self { args, being_bound: AtomicU32::new(0) })
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points
            .queue_sort()
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
            .notified()
    }
}
