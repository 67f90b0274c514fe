//! Measures plugins in some of the cycles.
//!
//! In: a clock and a receiver, passed in. Out: the duration of each plugin at a point, and of the whole point. At PreBind
//! and Bind that includes the work of the executors. Invariant: a cycle that is not measured reads no clock.

use std::sync::Arc;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::framework::points::{Normalized, PermitAnswer, PostFilterAnswer};
use crate::framework::status::Status;

/// The points at which calls are measured. The names are those of kube-scheduler's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExtensionPoint {
    PreEnqueue,
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
            Self::PreEnqueue => "PreEnqueue",
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

    /// All plugins of a point ran; there may be none.
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

/// As upstream, because reading the clock around every call costs more than some calls.
const MEASURED_ONE_IN: u32 = 10;

/// Chooses the cycles that are measured: one of [`MEASURED_ONE_IN`], at random.
pub(crate) struct Sampler {
    probe: Option<Arc<dyn Probe>>,
    random: ChaCha8Rng,
}

impl Sampler {
    /// Measures nothing.
    pub(crate) fn off(seed: u64) -> Self {
        Self { probe: None, random: ChaCha8Rng::seed_from_u64(seed) }
    }

    pub(crate) fn report_to(&mut self, probe: Arc<dyn Probe>) {
        self.probe = Some(probe);
    }

    /// The probe, if this cycle is to be measured.
    pub(crate) fn sampled(&mut self) -> Option<Arc<dyn Probe>> {
        let probe = self.probe.as_ref()?;
        (self.random.random_range(0..MEASURED_ONE_IN) == 0).then(|| Arc::clone(probe))
    }

    /// The probe, for what is measured in every cycle without reading a clock.
    pub(crate) fn probe(&self) -> Option<&dyn Probe> {
        self.probe.as_deref()
    }
}

/// When something began that is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began(Duration);

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

    /// `None` if the cycle is not measured.
    pub(crate) fn begin(self) -> Option<Began> {
        self.probe.map(|probe| Began(probe.now()))
    }

    /// Calls one plugin.
    pub(crate) fn plugin<R: Outcome>(self, plugin: &'static str, point: ExtensionPoint, call: impl FnOnce() -> R) -> R {
        let began = self.begin();
        let outcome = call();
        if began.is_some() {
            self.plugin_ended(plugin, point, outcome.status(), began);
        }
        outcome
    }

    /// Calls all plugins of a point.
    pub(crate) fn point<R: Outcome>(self, point: ExtensionPoint, calls: impl FnOnce() -> R) -> R {
        let began = self.begin();
        let outcome = calls();
        if began.is_some() {
            self.point_ended(point, outcome.status(), began);
        }
        outcome
    }

    /// For a plugin that goes on after its call.
    pub(crate) fn plugin_ended(
        self,
        plugin: &'static str,
        point: ExtensionPoint,
        status: &'static str,
        began: Option<Began>,
    ) {
        if let (Some(probe), Some(began)) = (self.probe, began) {
            probe.plugin_ran(&self.run(probe, point, status, began), plugin);
        }
    }

    /// For a point that goes on after the calls of its plugins.
    pub(crate) fn point_ended(self, point: ExtensionPoint, status: &'static str, began: Option<Began>) {
        if let (Some(probe), Some(began)) = (self.probe, began) {
            probe.point_ran(&self.run(probe, point, status, began));
        }
    }

    fn run(self, probe: &dyn Probe, point: ExtensionPoint, status: &'static str, began: Began) -> Run<'a> {
        Run { profile: self.profile, point, status, took: probe.now().saturating_sub(began.0) }
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

/// The result of a whole point: the label, or an error.
impl Outcome for Result<&'static str, String> {
    fn status(&self) -> &'static str {
        self.as_ref().map_or("Error", |status| status)
    }
}

impl Outcome for Result<(), String> {
    fn status(&self) -> &'static str {
        if self.is_ok() { Status::Success.as_str() } else { "Error" }
    }
}
