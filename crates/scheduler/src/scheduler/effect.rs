//! The inputs and effects of the scheduler.
//!
//! `Scheduler::step` takes an [`Input`] and returns [`Effect`]s. The engine executes them and reports the results as
//! further inputs.

use std::time::Duration;

use model::PodId;

use crate::framework::points::{Concession, Doubt};
use crate::framework::work::Work;
use crate::queue::Attempts;

/// A pod, as the API names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    pub id: PodId,
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// A pod that is evicted, and the node that it leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    pub pod: PodRef,
    pub node: String,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Try up to this many pods.
    Schedule { at_most: usize },
    /// A time requested with [`Effect::WakeAt`] has come.
    Time,
    /// An [`Effect::Bind`] succeeded.
    Bound { pod: PodRef },
    /// The executor of an [`Effect::Bind`] declined: the next Bind plugin is asked.
    Declined { pod: PodRef, plugin: &'static str },
    /// An [`Effect::Bind`] or [`Effect::PreBind`] failed. The pod is retried later with its state at that time. A pod
    /// that is gone or bound by another client is dropped when the watch shows that.
    Failed { pod: PodRef, error: String },
    /// The executor of an [`Effect::PreBind`] or [`Effect::Bind`] rejects the pod: it is retried after a backoff.
    Rejected { pod: PodRef, plugin: &'static str, reason: String },
    /// An [`Effect::PreBind`] is done.
    PreBound { pod: PodRef, plugin: &'static str },
    /// An [`Effect::Preempt`] has ended. `victims` are those that were evicted for it; an error says why not all were.
    Evicted { pod: PodRef, node: String, victims: Vec<Victim>, error: Option<String> },
    /// A message for a plugin, in every profile that has it.
    Message { plugin: &'static str, message: Work },
    /// This process no longer leads: pods that wait for permission, or whose work has not bound them yet, are given up.
    LeaseLost,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Work for the executor of a PreBind plugin; answered with [`Input::PreBound`], [`Input::Rejected`] or
    /// [`Input::Failed`].
    PreBind { pod: PodRef, node: String, plugin: &'static str, work: Work },
    /// Work for the executor of a Bind plugin: bind the pod. Answered with [`Input::Bound`], [`Input::Declined`],
    /// [`Input::Rejected`] or [`Input::Failed`].
    Bind { pod: PodRef, node: String, plugin: &'static str, work: Work },
    /// Nobody waits for the pod's [`Effect::PreBind`] any more. An answer that comes nevertheless is ignored.
    Cancel { pod: PodRef },
    /// Set the condition PodScheduled to false, and with it the nominated node if that changes.
    SetCondition { pod: PodRef, reason: ConditionReason, message: String, nomination: NominationWrite },
    /// Write `status.nominatedNodeName`; `None` clears it.
    Nominate { pod: PodRef, node: Option<String> },
    /// Evict these pods to make room for `pod` on this node, in the name of this profile. Answered with
    /// [`Input::Evicted`].
    Preempt { pod: PodRef, node: String, profile: String, victims: Vec<Victim> },
    /// So many pods give up their places for another one; for metrics.
    VictimsChosen { count: usize },
    /// Post a Kubernetes event on the pod, in the name of this profile.
    PostEvent { pod: PodRef, profile: String, event: PodEvent },
    /// An attempt ended; for metrics.
    Concluded { profile: String, result: AttemptResult, attempts: Attempts },
    /// Send [`Input::Time`] at this time, or soon after.
    WakeAt(Duration),
}

/// What is written about the pod's nominated node together with its condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NominationWrite {
    Nothing,
    Clear,
    Set(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionReason {
    /// No node can run the pod now.
    Unschedulable,
    /// An error.
    SchedulerError,
}

impl ConditionReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unschedulable => "Unschedulable",
            Self::SchedulerError => "SchedulerError",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodEvent {
    /// Normal, reason `Scheduled`.
    Scheduled { message: String },
    /// Warning, reason `FailedScheduling`.
    FailedScheduling { message: String },
    /// Normal, reason `Preempted`, on a pod that is evicted.
    Preempted { message: String },
    /// Warning: a plugin yielded so that the pod could be placed.
    Yielded(Concession),
    /// Warning: the pod may not work on the node that it is placed on.
    Doubtful(Doubt),
}

/// The label `result` of kube-scheduler's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptResult {
    Scheduled,
    Unschedulable,
    Error,
}

impl AttemptResult {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}
