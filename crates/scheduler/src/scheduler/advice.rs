//! What the queue asks of the plugins.

use model::{PodId, World};

use crate::framework::change::Change;
use crate::framework::cycle::Cycle;
use crate::framework::points::QueuedPod;
use crate::framework::probe::{ExtensionPoint, Meter, Sampler};
use crate::framework::profile::Profile;
use crate::framework::sort_key::SortKey;
use crate::framework::status::Status;
use crate::queue::{Advice, PluginPosition};

pub(super) struct PluginAdvice<'a> {
    pub(super) profiles: &'a [Profile],
    pub(super) world: &'a World,
    pub(super) sampler: &'a mut Sampler,
}

impl Advice for PluginAdvice<'_> {
    fn gate(&mut self, profile: usize, pod: PodId) -> Option<usize> {
        let cycle = Cycle::of(self.world, pod)?;
        let profile = self.profiles.get(profile)?;
        let probe = self.sampler.sampled();
        let meter = Meter::new(probe.as_deref(), profile.name());
        let began = meter.begin();
        let rejection = profile.points.pre_enqueue.iter().find_map(|&index| {
            let plugin = profile.plugins[index].pre_enqueue.as_ref()?;
            let ask = || plugin.pre_enqueue(&cycle);
            let status = meter.plugin(profile.plugin_name(index), ExtensionPoint::PreEnqueue, ask);
            (status != Status::Success).then_some((index, status))
        });
        let status = rejection.as_ref().map_or(&Status::Success, |(_, status)| status);
        meter.point_ended(ExtensionPoint::PreEnqueue, status.as_str(), began);
        rejection.map(|(index, _)| index)
    }

    fn sort_key(&mut self, profile: usize, pod: PodId, queued: &QueuedPod) -> Option<SortKey> {
        let plugin = self.profiles.get(profile)?.queue_sort()?;
        Some(plugin.key(&Cycle::of(self.world, pod)?, queued))
    }

    fn helps(&mut self, (profile, plugin): PluginPosition, pod: PodId, change: &Change) -> bool {
        if change.pod.as_ref().is_some_and(|changed| changed.id == Some(pod)) {
            // The pod left a node because its binding failed. That does not help the pod itself.
            return false;
        }
        let built = self.profiles.get(profile).and_then(|profile| profile.plugins.get(plugin));
        match (built, Cycle::of(self.world, pod)) {
            (Some(built), Some(cycle)) => built.plugin.helped_by(&cycle, change),
            // An unknown pod is about to be dropped.
            _ => false,
        }
    }
}
