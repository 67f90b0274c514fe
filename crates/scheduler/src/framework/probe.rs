//! Measures plugins in some of the cycles.
//!
//! In: a clock and a receiver, passed in. Out: the duration of each call and of all calls at a point. Invariant: a cycle
//! that is not measured reads no clock.

use std::time::Duration;

use crate::framework::points::{Normalized, PermitAnswer, PostFilterAnswer};
use crate::framework::status::Status;

/// The points at which calls are measured. The names are those of kube-scheduler's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExtensionPoint {
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    ScoreExtensionNormalize,
    Reserve,
    Unreserve,
    Permit,
    PreBindPreFlight,
    PreBind,
    Bind,
    PostBind,
}

impl ExtensionPoint {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreFilter => "PreFilter",
            Self::Filter => "Filter",
            Self::PostFilter => "PostFilter",
            Self::PreScore => "PreScore",
            Self::Score => "Score",
            Self::ScoreExtensionNormalize => "ScoreExtensionNormalize",
            Self::Reserve => "Reserve",
            Self::Unreserve => "Unreserve",
            Self::Permit => "Permit",
            Self::PreBindPreFlight => "PreBindPreFlight",
            Self::PreBind => "PreBind",
            Self::Bind => "Bind",
            Self::PostBind => "PostBind",
        }
    }
}

/// A clock, and where durations go. Must not block.
pub trait Probe: Send + Sync {
    fn now(&self) -> Duration;

    /// One plugin ran.
    fn plugin_ran(&self, run: &Run<'_>, plugin: &'static str);

    /// All plugins of a point ran.
    fn point_ran(&self, run: &Run<'_>);

    /// A pod has waited for permission. Reported for every pod.
    fn permit_waited(&self, result: &'static str, waited: Duration);
}

#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    pub profile: &'a str,
    pub point: ExtensionPoint,
    pub status: &'static str,
    pub took: Duration,
}

/// Measures the calls of one cycle, or none.
#[derive(Clone, Copy)]
pub(crate) struct Meter<'a> {
    probe: Option<&'a dyn Probe>,
    profile: &'a str,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(probe: Option<&'a dyn Probe>, profile: &'a str) -> Self {
        Self { probe, profile }
    }

    pub(crate) fn off() -> Self {
        Self { probe: None, profile: "" }
    }

    /// Calls one plugin.
    pub(crate) fn plugin<R: Outcome>(self, plugin: &'static str, point: ExtensionPoint, call: impl FnOnce() -> R) -> R {
        let Some(probe) = self.probe else { return call() };
        let began = probe.now();
        let outcome = call();
        probe.plugin_ran(&self.run(point, &outcome, probe.now().saturating_sub(began)), plugin);
        outcome
    }

    /// Calls all plugins of a point.
    pub(crate) fn point<R: Outcome>(self, point: ExtensionPoint, calls: impl FnOnce() -> R) -> R {
        let Some(probe) = self.probe else { return calls() };
        let began = probe.now();
        let outcome = calls();
        probe.point_ran(&self.run(point, &outcome, probe.now().saturating_sub(began)));
        outcome
    }

    fn run<R: Outcome>(self, point: ExtensionPoint, outcome: &R, took: Duration) -> Run<'a> {
        Run { profile: self.profile, point, status: outcome.status(), took }
    }
}

/// The label `status` of a result.
pub(crate) trait Outcome {
    fn status(&self) -> &'static str;
}

impl Outcome for () {
    fn status(&self) -> &'static str {
        Status::Success.as_str()
    }
}

impl Outcome for Status {
    fn status(&self) -> &'static str {
        self.as_str()
    }
}

impl Outcome for PermitAnswer {
    fn status(&self) -> &'static str {
        match self {
            Self::Approve => Status::Success.as_str(),
            Self::Wait(_) => Status::Wait.as_str(),
            Self::Deny(status) => status.as_str(),
        }
    }
}

impl Outcome for PostFilterAnswer {
    fn status(&self) -> &'static str {
        self.status.as_str()
    }
}

impl Outcome for Normalized {
    fn status(&self) -> &'static str {
        Status::Success.as_str()
    }
}

impl<T> Outcome for Result<T, Status> {
    fn status(&self) -> &'static str {
        self.as_ref().err().unwrap_or(&Status::Success).as_str()
    }
}

/// The result of a whole point.
impl Outcome for Result<(), String> {
    fn status(&self) -> &'static str {
        if self.is_ok() { "Success" } else { "Error" }
    }
}

impl Outcome for Result<bool, String> {
    fn status(&self) -> &'static str {
        if self.is_ok() { "Success" } else { "Error" }
    }
}
