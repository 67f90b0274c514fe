//! Binds pods for kube-scheduler. Binding through the extender is what makes the extender safe.
//!
//! kube-scheduler does not expose which pods it has placed but not bound yet, so two replicas created together may be
//! sent to one host. The controller therefore checks each pod again, against everything that is bound or being bound,
//! and assumes it on its node in the same step of the loop. Only then it calls the API server. A conflict is an error,
//! and kube-scheduler retries the pod.
//!
//! Everything is checked on the pod that the watch shows, never on what a request says about it. The watch may be
//! behind kube-scheduler's: a request for a pod that is not known yet waits for it for a moment.
//!
//! In: requests, from other threads. Out: bindings, and a response to each request. Invariants: a binding that has
//! started is completed even if the client disconnects, because the pod may be bound. A pod keeps its place until it is
//! known whether it was bound, however long after the response that is.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::event::{Event, PodFacts, Source};
use model::storage::uid::Uid;
use model::{Pod, PodId, Subject, World, WorldChange};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::admission::Admission;
use super::assumed::{Assumption, Assumptions, Busy, Ending, PodKey};
use super::freshness::Freshness;
use super::judge::{Choice, Judge};
use super::reports::Reports;
use super::{Extender, ExtenderCounts, NodeVerdict, NotInSync, Reason};
use crate::binding::{BindEnd, is_known};
use crate::ports::{Binding, PortError};
use crate::runtime::{Action, Closed, Context, Controller, LaneId, LaneSettings, Mailbox};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    #[error(transparent)]
    NotInSync(#[from] NotInSync),
    #[error("a name in the request is longer than that of any object")]
    NameTooLong,
    #[error("pod {0} is not known to Bridger")]
    PodUnknown(String),
    #[error("pod {0} was replaced by another pod of the same name")]
    PodReplaced(String),
    #[error("pod {pod} is already bound to {node}")]
    Bound { pod: String, node: String },
    /// By this extender or by the scheduler of the same process; also while it is not known how a binding ended.
    #[error("pod {0} is already being bound")]
    UnderWay(String),
    /// Another pod was placed first.
    #[error("{node}: {text}", text = .reason.text())]
    Conflict { node: String, reason: Reason },
    /// Taints, cordon, labels, host ports or capacity.
    #[error("{node}: {reason} ({plugin})")]
    Misfit { node: String, plugin: &'static str, reason: String },
    #[error(
        "pod {pod} has schedulerName {scheduler:?}, which this extender does not serve; see --extender-scheduler-name"
    )]
    OtherScheduler { pod: String, scheduler: String },
    #[error("pod {pod} has the scheduling gate {gate:?}")]
    Gated { pod: String, gate: String },
    #[error("pod {0} is being deleted or has finished")]
    Ending(String),
    #[error("the scheduling fields of pod {0} are not read")]
    Unread(String),
    #[error("dry run: nothing is bound")]
    DryRun,
    #[error("another instance is the leader and binds pods")]
    NoLease,
    #[error("too many bindings are waiting")]
    Overloaded,
    #[error("the API server did not respond in time")]
    TimedOut,
    #[error("{0}")]
    Port(#[from] PortError),
}

/// A requested binding.
pub struct BindRequest {
    pub(super) binding: Binding,
    /// Lifted terms were relaxed to nodes in the response to kube-scheduler's last filter request.
    pub(super) relaxed: bool,
    /// Until when the request waits for the watch to show its pod.
    pub(super) wait_until: Instant,
    pub(super) reply: oneshot::Sender<Result<(), BindError>>,
}

/// A binding in flight; the pod is assumed.
pub struct BindAction {
    pub(super) binding: Binding,
    reply: oneshot::Sender<Result<(), BindError>>,
}

impl BindAction {
    /// The client no longer waits for the response.
    pub(super) fn is_given_up(&self) -> bool {
        self.reply.is_closed()
    }
}

impl Action for BindAction {
    fn is_write(&self) -> bool {
        true
    }
}

pub struct BindOutcome {
    pub(super) action: BindAction,
    /// `None`: nothing was sent.
    pub(super) end: Option<BindEnd>,
}

/// What remains to be done for a request.
enum Next {
    Bind,
    /// The pod is already bound to this node: the request is a repetition.
    Nothing,
}

type BindContext<'a> = Context<'a, BindAction, BindOutcome>;

const LANE: LaneId = LaneId(0);
/// More than kube-scheduler has in flight.
const IN_FLIGHT_MAX: usize = 512;
const WAITING_MAX: usize = 4096;
/// Requests that wait for the watch to show their pods.
const EARLY_MAX: usize = 1024;
/// All assumptions are checked at most this often.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

pub struct ExtenderController {
    requests: Arc<Mailbox<BindRequest>>,
    /// Taken from the mailbox, and not processed yet for lack of time.
    waiting: VecDeque<BindRequest>,
    /// Their pods are not shown by the watch yet.
    early: VecDeque<BindRequest>,
    /// The time of its last turn.
    turn_at: Option<Instant>,
    admission: Admission,
    assumed: Assumptions,
    freshness: Arc<Freshness>,
    reports: Arc<Reports>,
    counts: Arc<ExtenderCounts>,
    /// When the next assumption may expire. An assumed pod takes room from others, so it expires on time even without
    /// requests.
    sweep_at: Option<Instant>,
}

impl ExtenderController {
    pub(super) fn new(extender: &Extender, admission: Admission) -> ExtenderController {
        ExtenderController {
            requests: extender.requests.clone(),
            reports: extender.reports.clone(),
            waiting: VecDeque::new(),
            early: VecDeque::new(),
            turn_at: None,
            admission,
            assumed: Assumptions::default(),
            freshness: extender.freshness.clone(),
            counts: extender.counts.clone(),
            sweep_at: None,
        }
    }

    fn bind(&mut self, request: BindRequest, context: &mut BindContext<'_>) {
        if request.reply.is_closed() {
            // The client has given up and may try another node; nothing has started yet.
            return;
        }
        if self.early.len() < EARLY_MAX
            && context.now < request.wait_until
            && is_early(context.world.read(), &request.binding)
        {
            self.early.push_back(request);
            return;
        }
        let BindRequest { binding, relaxed, reply, .. } = request;
        let outcome = self.assume(&binding, relaxed, context);
        self.count_assumed();
        // The client may have disconnected; then the reply is dropped.
        match outcome {
            Ok(Next::Bind) => {
                if let Err(action) = context.actions.send(LANE, BindAction { binding, reply }) {
                    self.end(action, Ending::Failed, Err(BindError::Overloaded), context);
                }
            }
            Ok(Next::Nothing) => drop(reply.send(Ok(()))),
            Err(error) => {
                match error {
                    BindError::Conflict { .. } => self.counts.conflicts.add(1),
                    BindError::Misfit { .. }
                    | BindError::OtherScheduler { .. }
                    | BindError::Gated { .. }
                    | BindError::Ending(_)
                    | BindError::Unread(_) => self.counts.rejected.add(1),
                    _ => (),
                }
                drop(reply.send(Err(error)));
            }
        }
    }

    /// The check and the assumption use the same state: the world does not change in between.
    fn assume(&mut self, binding: &Binding, relaxed: bool, context: &mut BindContext<'_>) -> Result<Next, BindError> {
        let now = context.now;
        let key: PodKey = (binding.namespace.clone(), binding.pod.clone());
        let shown = format!("{}/{}", binding.namespace, binding.pod);
        let world = context.world.write();
        self.freshness.check(world, now)?;
        let over = self.assumed.sweep(now, |key, one| is_obsolete(world, key, one));
        forget(over, world);
        let pod = match pod_to_bind(world, binding, &shown) {
            Err(BindError::Bound { node, .. }) if node == binding.node => return Ok(Next::Nothing),
            pod => pod?,
        };
        self.admission.of_pod(world, pod, &shown)?;
        match self.assumed.may_begin(&key, &binding.uid, now) {
            Ok(()) => (),
            Err(Busy::UnderWay) => return Err(BindError::UnderWay(shown)),
            Err(Busy::Bound { node }) if node == binding.node => return Ok(Next::Nothing),
            Err(Busy::Bound { node }) => return Err(BindError::Bound { pod: shown, node }),
        }
        // Another controller binds it, for example the scheduler of this process.
        if world.pod(pod).is_some_and(Pod::is_assumed) && !self.assumed.has(&key, &binding.uid) {
            return Err(BindError::UnderWay(shown));
        }
        let alone = [binding.node.as_str()];
        // Lifted terms are relaxed here only if they were relaxed when kube-scheduler filtered many nodes.
        let choice = if relaxed { Choice::Among(&alone) } else { Choice::All };
        let facts = PodFacts {
            namespace: binding.namespace.clone(),
            name: binding.pod.clone(),
            uid: binding.uid.clone(),
            ..PodFacts::default()
        };
        match Judge::of(world, &facts).verdicts(choice).of(&binding.node) {
            NodeVerdict::Fits => (),
            NodeVerdict::Fails(reason) => return Err(BindError::Conflict { node: binding.node.clone(), reason }),
        }
        if let Some(node) = world.node_id(&binding.node) {
            self.admission.of_node(world, pod, node)?;
        }
        self.assumed.begin(key, binding.uid.clone(), binding.node.clone());
        // The world knows the pod, so its key is enough.
        let pod = Box::new(facts);
        world.apply(Event::PodAssumed { pod, node: binding.node.clone() });
        Ok(Next::Bind)
    }

    fn end(
        &mut self,
        action: BindAction,
        ending: Ending,
        result: Result<(), BindError>,
        context: &mut BindContext<'_>,
    ) {
        let BindAction { binding: Binding { namespace, pod: name, uid, .. }, reply } = action;
        let key = (namespace, name);
        if self.assumed.end(&key, &uid, ending, context.now) {
            context.world.write().apply(Event::PodForgotten { namespace: key.0, name: key.1, uid });
        } else {
            // The next sweep finds out when it expires.
            let soon = context.now + SWEEP_EVERY;
            self.sweep_at = Some(self.sweep_at.map_or(soon, |at| at.min(soon)));
        }
        self.count_assumed();
        drop(reply.send(result));
    }

    fn sweep_all(&mut self, context: &mut BindContext<'_>) {
        if self.sweep_at.is_none_or(|at| at > context.now) {
            return;
        }
        let world = context.world.read();
        let over = self.assumed.sweep_all(context.now, |key, one| is_obsolete(world, key, one));
        if !over.is_empty() {
            forget(over, context.world.write());
        }
        self.sweep_at = self.assumed.next_over().map(|at| at.max(context.now + SWEEP_EVERY));
        self.count_assumed();
    }

    fn count_assumed(&self) {
        self.counts.assumed.store(self.assumed.len(), Ordering::Relaxed);
    }
}

impl Controller for ExtenderController {
    type Action = BindAction;
    type Outcome = BindOutcome;

    fn name(&self) -> &'static str {
        super::NAME
    }

    fn lanes(&self) -> Vec<LaneSettings> {
        vec![LaneSettings::with_queue(IN_FLIGHT_MAX, WAITING_MAX)]
    }

    /// Decisions read the world itself; only whether it is current is noted.
    fn observe(&mut self, change: &WorldChange, _: &World, now: Instant) {
        self.freshness.observe(change, now);
        match &change.subject {
            Subject::Lost(Source::Pods) | Subject::RelistBegan(Source::Pods) => self.assumed.suspend(),
            Subject::RelistEnded { source: Source::Pods, .. } => {
                let expire_from = self.assumed.resume(now);
                self.sweep_at = (!self.assumed.is_empty()).then_some(expire_from);
            }
            _ => (),
        }
    }

    fn advance(&mut self, context: &mut BindContext<'_>) {
        self.sweep_all(context);
        if self.reports.has_waiting() {
            self.reports.shown(context.world.read(), context.now);
        }
        self.turn_at = Some(context.now);
        for request in std::mem::take(&mut self.early) {
            self.bind(request, context);
        }
        // Only if none are waiting, so that the mailbox's limit bounds both queues.
        if self.waiting.is_empty() {
            self.waiting = self.requests.take();
        }
        while let Some(request) = self.waiting.pop_front() {
            self.bind(request, context);
            if context.stopwatch.is_spent() {
                break;
            }
        }
    }

    fn completed(&mut self, BindOutcome { action, end }: BindOutcome, context: &mut BindContext<'_>) {
        let Binding { namespace, pod: name, uid, .. } = &action.binding;
        let (error, read) = match end {
            None => return self.end(action, Ending::Failed, Err(BindError::TimedOut), context),
            Some(BindEnd::Bound) => {
                self.counts.bound.add(1);
                return self.end(action, Ending::Bound, Ok(()), context);
            }
            Some(BindEnd::Failed { error }) => (error, None),
            Some(BindEnd::Changed { error, pod }) => (error, Some(Event::PodApplied(*pod))),
            Some(BindEnd::NotFound { error }) => {
                (error, Some(Event::PodDeleted { namespace: namespace.clone(), name: name.clone() }))
            }
        };
        match error {
            PortError::Transient(_) => self.counts.unclear.add(1),
            _ => self.counts.failed.add(1),
        }
        if let Some(event) = read
            && is_known(context.world.read(), namespace, name, uid)
        {
            // The read pod is newer than the watched state. If it is not, the watch corrects it.
            context.world.write().apply(event);
        }
        self.end(action, Ending::Failed, Err(error.into()), context);
    }

    fn refused(&mut self, action: BindAction, closed: Closed, context: &mut BindContext<'_>) {
        let error = match closed {
            Closed::DryRun => BindError::DryRun,
            Closed::NoLease => BindError::NoLease,
            Closed::NeverInSync(source) | Closed::Relisting(source) | Closed::Stale { source, .. } => {
                NotInSync(source).into()
            }
        };
        self.end(action, Ending::Failed, Err(error), context);
    }

    /// A request wakes the loop only once: requests still in the mailbox must not wait for the next one.
    fn next_wake(&self) -> Option<Instant> {
        if !self.waiting.is_empty() || !self.requests.is_empty() {
            return self.turn_at;
        }
        // A change of the world gives early requests a turn sooner.
        let early = self.early.iter().map(|request| request.wait_until).min();
        self.sweep_at.into_iter().chain(early).min()
    }
}

/// Whether the watch has made the assumption obsolete: the pod is bound, deleted or replaced.
fn is_obsolete(world: &World, (namespace, name): &PodKey, one: &Assumption) -> bool {
    let pod = world.pod_id(namespace, name).and_then(|id| world.pod(id));
    pod.is_none_or(|pod| pod.uid != Uid::from(one.uid.as_str()) || pod.node().is_some())
}

fn forget(over: Vec<(PodKey, Assumption)>, world: &mut World) {
    for ((namespace, name), one) in over {
        tracing::warn!(namespace, name, node = one.node, "the watch has not shown an assumed pod; forgetting it");
        world.apply(Event::PodForgotten { namespace, name, uid: one.uid });
    }
}

/// Whether the watch may be behind the request: it does not show the pod, or it shows one of the same name that was
/// there before.
fn is_early(world: &World, binding: &Binding) -> bool {
    !is_known(world, &binding.namespace, &binding.pod, &binding.uid)
}

/// The world's pod, if it is the one that the request names and it is not bound.
fn pod_to_bind(world: &World, binding: &Binding, shown: &str) -> Result<PodId, BindError> {
    let known = world.pod_id(&binding.namespace, &binding.pod);
    let Some((id, pod)) = known.and_then(|id| Some((id, world.pod(id)?))) else {
        return Err(BindError::PodUnknown(shown.to_owned()));
    };
    if pod.uid != Uid::from(binding.uid.as_str()) {
        return Err(BindError::PodReplaced(shown.to_owned()));
    }
    match pod.node() {
        Some(node) => {
            let node = world.interner().text(node).to_owned();
            Err(BindError::Bound { pod: shown.to_owned(), node })
        }
        None => Ok(id),
    }
}
