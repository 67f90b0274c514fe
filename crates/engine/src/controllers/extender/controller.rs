//! Binds pods for kube-scheduler. Binding through the extender is what makes the extender safe.
//!
//! kube-scheduler does not expose which pods it has placed but not bound yet, so two replicas created together may be
//! sent to one host. The controller therefore checks each pod again, against everything that is bound or being bound,
//! and assumes it on its node in the same step of the loop. Only then it calls the API server. A conflict is an error,
//! and kube-scheduler retries the pod.
//!
//! In: requests, from other threads. Out: bindings, and a response to each request. Invariant: a binding that has
//! started is completed even if the client disconnects, because the pod may be bound.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::event::{Event, PodFacts};
use model::storage::uid::Uid;
use model::{World, WorldChange};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::assumed::{Assumption, Assumptions, Busy, Ending, PodKey};
use super::judge::{Choice, Judge};
use super::recent::Asked;
use super::{ExtenderCounts, NodeVerdict, NotInSync, Reason, in_sync};
use crate::ports::{Binding, PortError};
use crate::runtime::{Action, Closed, Context, Controller, LaneId, LaneSettings, Mailbox};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    #[error(transparent)]
    NotInSync(#[from] NotInSync),
    #[error("pod {0} is not known to Bridger")]
    PodUnknown(String),
    #[error("pod {0} was replaced by another pod of the same name")]
    PodReplaced(String),
    #[error("pod {pod} is already bound to {node}")]
    Bound { pod: String, node: String },
    #[error("pod {0} is already being bound")]
    UnderWay(String),
    #[error("a binding of pod {pod} to {node} got no response and may still take effect")]
    Unclear { pod: String, node: String },
    /// Another pod was placed first.
    #[error("{node}: {text}", text = .reason.text())]
    Conflict { node: String, reason: Reason },
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
    /// The pod as sent in kube-scheduler's last filter request.
    pub(super) asked: Option<Asked>,
    pub(super) reply: oneshot::Sender<Result<(), BindError>>,
}

/// A binding in flight; the pod is assumed.
pub struct BindAction {
    pub(super) binding: Binding,
    reply: oneshot::Sender<Result<(), BindError>>,
}

impl Action for BindAction {
    fn is_write(&self) -> bool {
        true
    }
}

pub struct BindOutcome {
    pub(super) action: BindAction,
    /// `None`: no response in time.
    pub(super) answer: Option<Result<(), PortError>>,
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
/// All assumptions are checked at most this often.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

pub struct ExtenderController {
    requests: Arc<Mailbox<BindRequest>>,
    /// Taken from the mailbox, and not processed yet for lack of time.
    waiting: VecDeque<BindRequest>,
    /// The time of its last turn.
    turn_at: Option<Instant>,
    assumed: Assumptions,
    counts: Arc<ExtenderCounts>,
    /// When the next assumption may expire. An assumed pod takes room from others, so it expires on time even without
    /// requests.
    sweep_at: Option<Instant>,
}

impl ExtenderController {
    pub(super) fn new(requests: Arc<Mailbox<BindRequest>>, counts: Arc<ExtenderCounts>) -> ExtenderController {
        ExtenderController {
            requests,
            waiting: VecDeque::new(),
            turn_at: None,
            assumed: Assumptions::default(),
            counts,
            sweep_at: None,
        }
    }

    fn bind(&mut self, request: BindRequest, context: &mut BindContext<'_>) {
        let BindRequest { binding, asked, reply } = request;
        if reply.is_closed() {
            // The client has given up and may try another node; nothing has started yet.
            return;
        }
        let outcome = self.assume(&binding, asked, context);
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
                if let BindError::Conflict { .. } = error {
                    self.counts.conflicts.add(1);
                }
                drop(reply.send(Err(error)));
            }
        }
    }

    /// The check and the assumption use the same state: the world does not change in between.
    fn assume(
        &mut self,
        binding: &Binding,
        asked: Option<Asked>,
        context: &mut BindContext<'_>,
    ) -> Result<Next, BindError> {
        let now = context.now;
        let key: PodKey = (binding.namespace.clone(), binding.pod.clone());
        let shown = format!("{}/{}", binding.namespace, binding.pod);
        let world = context.world.write();
        in_sync(world)?;
        let over = self.assumed.sweep(now, |key, one| is_obsolete(world, key, one));
        forget(over, world);
        let asked = match pod_to_bind(world, binding, asked, &shown) {
            Err(BindError::Bound { node, .. }) if node == binding.node => return Ok(Next::Nothing),
            asked => asked?,
        };
        match self.assumed.may_begin(&key, &binding.uid, &binding.node, now) {
            Ok(()) => (),
            Err(Busy::UnderWay) => return Err(BindError::UnderWay(shown)),
            Err(Busy::Unclear { node }) => return Err(BindError::Unclear { pod: shown, node }),
            Err(Busy::Bound { node }) if node == binding.node => return Ok(Next::Nothing),
            Err(Busy::Bound { node }) => return Err(BindError::Bound { pod: shown, node }),
        }
        let alone = [binding.node.as_str()];
        // Lifted terms are relaxed here only if they were relaxed when kube-scheduler filtered many nodes.
        let choice = if asked.relaxed { Choice::Among(&alone) } else { Choice::All };
        match Judge::of(world, &asked.pod).verdicts(choice).of(&binding.node) {
            NodeVerdict::Fits => (),
            NodeVerdict::Fails(reason) => return Err(BindError::Conflict { node: binding.node.clone(), reason }),
        }
        self.assumed.begin(key, binding.uid.clone(), binding.node.clone());
        let pod = Box::new(PodFacts::clone(&asked.pod));
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

    /// Nothing to note: decisions read the world itself.
    fn observe(&mut self, _: &WorldChange, _: &World, _: Instant) {}

    fn advance(&mut self, context: &mut BindContext<'_>) {
        self.sweep_all(context);
        self.turn_at = Some(context.now);
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

    fn completed(&mut self, outcome: BindOutcome, context: &mut BindContext<'_>) {
        let (ending, result) = match outcome.answer {
            Some(Ok(())) => (Ending::Bound, Ok(())),
            // It is unknown whether the binding took effect.
            Some(Err(error @ PortError::Transient(_))) => (Ending::Unclear, Err(error.into())),
            Some(Err(error)) => (Ending::Failed, Err(error.into())),
            None => (Ending::Unclear, Err(BindError::TimedOut)),
        };
        match ending {
            Ending::Bound => self.counts.bound.add(1),
            Ending::Unclear => self.counts.unclear.add(1),
            Ending::Failed => self.counts.failed.add(1),
        }
        self.end(outcome.action, ending, result, context);
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
        if self.waiting.is_empty() && self.requests.is_empty() { self.sweep_at } else { self.turn_at }
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

/// The pod from kube-scheduler's last filter request, checked against the world. Without such a request, the world's
/// pod is enough.
fn pod_to_bind(world: &World, binding: &Binding, asked: Option<Asked>, shown: &str) -> Result<Asked, BindError> {
    let is_meant = |asked: &Asked| (&asked.pod.namespace, &asked.pod.name) == (&binding.namespace, &binding.pod);
    let asked = asked.filter(is_meant);
    let known = world.pod_id(&binding.namespace, &binding.pod).and_then(|id| world.pod(id));
    match known {
        Some(known) if known.uid != Uid::from(binding.uid.as_str()) => {
            return Err(BindError::PodReplaced(shown.to_owned()));
        }
        Some(known) => {
            if let Some(node) = known.node() {
                let node = world.interner().text(node).to_owned();
                return Err(BindError::Bound { pod: shown.to_owned(), node });
            }
        }
        None if asked.is_none() => return Err(BindError::PodUnknown(shown.to_owned())),
        None => (),
    }
    Ok(asked.unwrap_or_else(|| Asked {
        pod: Arc::new(PodFacts {
            namespace: binding.namespace.clone(),
            name: binding.pod.clone(),
            uid: binding.uid.clone(),
            ..PodFacts::default()
        }),
        relaxed: false,
    }))
}
