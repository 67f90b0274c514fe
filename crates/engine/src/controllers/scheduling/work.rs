//! Executors of plugins: they do the work that PreBind and Bind plugins decided on.
//!
//! In: an order, with the plugin's own type of work. Out: whether it is done. An order is an action like any other: it
//! passes the runtime's gate, and again before each retry, so that a process without the lease does no work.
//!
//! Invariants: an order ends within its executor's limit; work for a pod that is gone is cancelled, which drops the
//! executor's future at its next await.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use scheduler::{Bind, Plugin, PreBind, Work};
use tokio::sync::Notify;

use crate::binding::{self, BindEnd};
use crate::ports::{Binding, PodLookup, PodName, PortError};
use crate::runtime::Backoff;

/// Between attempts of an order that failed for a passing reason.
pub(super) const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };

/// What is to be done for a pod that has a node.
#[derive(Clone, Debug)]
pub struct WorkOrder {
    pub pod: PodName,
    pub node: String,
    pub work: Work,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkEnd {
    Done,
    /// Only from Bind: the next Bind plugin is asked.
    Declined,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// The same work may succeed a little later. PreBind repeats it, with a back-off, until its limit is over; Bind does
    /// not, because the pod's node may no longer be the right one.
    #[error("{0}")]
    Transient(String),
    /// The pod cannot have what it needs on this node now. It goes back to the queue as unschedulable.
    #[error("{0}")]
    Rejected(String),
    /// Anything else. The pod goes back to the queue with an error.
    #[error("{0}")]
    Failed(String),
}

/// Does the work of one plugin.
pub trait WorkExecutor: Send + Sync {
    /// Must tolerate being repeated, and being dropped at any await: another process may continue where it ended.
    fn execute<'a>(&'a self, order: &'a WorkOrder) -> BoxFuture<'a, Result<WorkEnd, WorkError>>;

    /// The limit for one order, including all attempts. As long as kube-scheduler waits for volumes.
    fn within(&self) -> Duration {
        Duration::from_secs(600)
    }
}

/// An executor that is written for the type of work of its plugin.
pub trait Executes<W>: Send + Sync {
    fn execute<'a>(&'a self, pod: &'a PodName, node: &'a str, work: &'a W)
    -> BoxFuture<'a, Result<WorkEnd, WorkError>>;

    /// See [`WorkExecutor::within`].
    fn within(&self) -> Duration {
        Duration::from_secs(600)
    }
}

/// Recovers the type of the work.
struct Typed<E, W>(E, std::marker::PhantomData<fn(W)>);

impl<W: Send + Sync + 'static, E: Executes<W>> WorkExecutor for Typed<E, W> {
    fn execute<'a>(&'a self, order: &'a WorkOrder) -> BoxFuture<'a, Result<WorkEnd, WorkError>> {
        match order.work.get::<W>() {
            Some(work) => self.0.execute(&order.pod, &order.node, work),
            None => {
                let error = format!("work of an unexpected type: {:?}", order.work);
                Box::pin(async { Err(WorkError::Failed(error)) })
            }
        }
    }

    fn within(&self) -> Duration {
        self.0.within()
    }
}

/// The executors by plugin.
#[derive(Clone, Default)]
pub struct Executors {
    pre_bind: BTreeMap<&'static str, Arc<dyn WorkExecutor>>,
    bind: BTreeMap<&'static str, Arc<dyn WorkExecutor>>,
}

impl Executors {
    /// The executor of a PreBind plugin. It replaces an earlier one.
    #[must_use]
    pub fn pre_bind<P: PreBind>(mut self, executor: impl Executes<P::Work> + 'static) -> Self {
        self.pre_bind.insert(<P as Plugin>::NAME, Arc::new(Typed(executor, std::marker::PhantomData)));
        self
    }

    /// The executor of a Bind plugin.
    #[must_use]
    pub fn bind<P: Bind>(mut self, executor: impl Executes<P::Work> + 'static) -> Self {
        self.bind.insert(<P as Plugin>::NAME, Arc::new(Typed(executor, std::marker::PhantomData)));
        self
    }

    pub(super) fn of(&self, point: WorkPoint, plugin: &str) -> Option<&Arc<dyn WorkExecutor>> {
        match point {
            WorkPoint::PreBind => self.pre_bind.get(plugin),
            WorkPoint::Bind => self.bind.get(plugin),
        }
    }

    /// Whether there is an executor for the plugin at this point.
    #[must_use]
    pub fn has(&self, point: WorkPoint, plugin: &str) -> bool {
        self.of(point, plugin).is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkPoint {
    PreBind,
    Bind,
}

/// Runs one attempt, until it ends or is cancelled, or its time is over.
pub(super) async fn attempt(
    executor: &dyn WorkExecutor,
    order: &WorkOrder,
    left: Duration,
    cancelled: &Notify,
) -> Result<WorkEnd, WorkError> {
    // Not even called if it was cancelled before.
    let execution = async { executor.execute(order).await };
    tokio::select! {
        biased;
        () = cancelled.notified() => Err(WorkError::Failed("the pod is gone".to_owned())),
        ended = tokio::time::timeout(left, execution) => match ended {
            Ok(ended) => ended,
            Err(_) => Err(WorkError::Failed(format!("not done within {} s", executor.within().as_secs()))),
        },
    }
}

/// How the executor of a Bind plugin left the pod.
#[derive(Debug)]
pub enum BindWorkEnd {
    Ended(BindEnd),
    /// The next Bind plugin is asked.
    Declined,
    /// The pod cannot be bound to this node now.
    Rejected {
        reason: String,
    },
}

/// Lets the executor of a Bind plugin bind the pod.
pub(super) async fn bind(
    executor: &dyn WorkExecutor,
    order: &WorkOrder,
    pods: &dyn PodLookup,
    binding: &Binding,
) -> BindWorkEnd {
    match attempt(executor, order, executor.within(), &Notify::new()).await {
        Ok(WorkEnd::Done) => BindWorkEnd::Ended(BindEnd::Bound),
        Ok(WorkEnd::Declined) => BindWorkEnd::Declined,
        Err(WorkError::Rejected(reason)) => BindWorkEnd::Rejected { reason },
        // Whatever it says, a request of it may still take effect.
        Err(WorkError::Transient(error) | WorkError::Failed(error)) => {
            BindWorkEnd::Ended(binding::find_out(pods, binding, PortError::Transient(error)).await)
        }
    }
}
