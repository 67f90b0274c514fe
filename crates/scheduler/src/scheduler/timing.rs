//! Measures binding cycles: their points begin in one step and end in another, because executors work in between.
//!
//! In: the beginnings that a binding remembers, and how things end. Out: durations for the probe. As upstream, a point is
//! measured even if it has no plugin, and PreBind and Bind last as long as their work.

use std::time::Duration;

use super::Scheduler;
use super::binding::{InBinding, Stage};
use crate::framework::probe::{Began, ExtensionPoint, Meter};
use crate::framework::profile::Profile;

impl InBinding {
    /// Measures if the pod's cycle is measured.
    pub(super) fn meter<'a>(&'a self, profile: &'a Profile) -> Meter<'a> {
        Meter::new(self.probe.as_deref(), profile.name())
    }
}

impl Scheduler {
    pub(super) fn begin_point(&self, binding: &InBinding) -> Option<Began> {
        binding.meter(&self.profiles[binding.placed.profile]).begin()
    }

    pub(super) fn end_point(
        &self,
        binding: &InBinding,
        point: ExtensionPoint,
        status: &'static str,
        began: Option<Began>,
    ) {
        binding.meter(&self.profiles[binding.placed.profile]).point_ended(point, status, began);
    }

    /// The executor of a plugin is done. Unless the next plugin of the point is asked, the point is done as well.
    pub(super) fn work_ended(&self, binding: &InBinding, status: &'static str, ends_point: bool) {
        let profile = &self.profiles[binding.placed.profile];
        let (point, nth) = match binding.stage {
            Stage::PreBinding(position) => (ExtensionPoint::PreBind, profile.points.pre_bind[position]),
            Stage::Binding(position) => (ExtensionPoint::Bind, profile.points.bind[position]),
            Stage::Beginning | Stage::WaitingForPermit { .. } => return,
        };
        let meter = binding.meter(profile);
        meter.plugin_ended(profile.plugin_name(nth), point, status, binding.work_began);
        if ends_point {
            meter.point_ended(point, status, binding.point_began);
        }
    }

    /// Observed for every pod that waited, because that reads no clock.
    pub(super) fn wait_ended(&self, binding: &InBinding, status: &'static str, now: Duration) {
        if let (Stage::WaitingForPermit { since, .. }, Some(probe)) = (&binding.stage, self.sampler.probe()) {
            probe.permit_waited(status, now.saturating_sub(*since));
        }
    }
}
