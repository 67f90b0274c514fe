//! The inputs and effects of the scheduler.
//!
//! `Scheduler::step` takes an [`Input`] and returns [`Effect`]s. The engine executes them and reports the results as
//! further inputs.

use std::time::Duration;

use model::PodId;

use crate::framework::points::Concession;
use crate::queue::Attempts;

/// A pod, as the API names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    pub id: PodId,
    pub namespace: String,
    pub name: String,
    pub uid: String,
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
    /// An [`Effect::Bind`] or [`Effect::PreBind`] failed. The pod is retried later with its state at that time. A pod
    /// that is gone or bound by another client is dropped when the watch shows that.
    Failed { pod: PodRef, error: String },
    /// An [`Effect::PreBind`] is done.
    PreBound { pod: PodRef, plugin: &'static str },
    /// A Permit plugin allows a pod that waits for it.
    Allowed { pod: PodRef, plugin: &'static str },
    /// A Permit plugin denies a pod that waits for it.
    Denied { pod: PodRef, plugin: &'static str, reason: String },
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Work of a PreBind plugin; answered with [`Input::PreBound`] or [`Input::Failed`].
    PreBind { pod: PodRef, node: String, plugin: &'static str },
    /// Bind the pod; answered with [`Input::Bound`] or [`Input::Failed`].
    Bind { pod: PodRef, node: String, plugin: &'static str },
    /// Set the condition PodScheduled to false.
    SetCondition { pod: PodRef, reason: ConditionReason, message: String },
    /// Write `status.nominatedNodeName`; `None` clears it.
    Nominate { pod: PodRef, node: Option<String> },
    /// Delete these pods to make room for `pod`.
    Preempt { pod: PodRef, node: String, victims: Vec<PodRef> },
    /// Post a Kubernetes event on the pod, in the name of this profile.
    PostEvent { pod: PodRef, profile: String, event: PodEvent },
    /// An attempt ended; for metrics.
    Concluded { profile: String, result: AttemptResult, attempts: Attempts },
    /// Send [`Input::Time`] at this time, or soon after.
    WakeAt(Duration),
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
    /// Warning: a plugin yielded so that the pod could be placed.
    Yielded(Concession),
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
