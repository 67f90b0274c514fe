//! Entries of the vCenter's event history, by the type names of the vSphere API.

use crate::clock::SimTime;
use crate::vcenter::Vcenter;
use crate::vcenter::inventory::{ClusterId, Event, HostId, VmId};

/// The objects that an event is about. Omitted ones are derived from the others if possible.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct About {
    pub cluster: Option<ClusterId>,
    pub host: Option<HostId>,
    /// The previous host of a VM.
    pub source_host: Option<HostId>,
    pub vm: Option<VmId>,
}

impl About {
    pub fn cluster(cluster: ClusterId) -> About {
        About { cluster: Some(cluster), ..About::default() }
    }

    pub fn host(host: HostId) -> About {
        About { host: Some(host), ..About::default() }
    }

    pub fn vm(vm: VmId) -> About {
        About { vm: Some(vm), ..About::default() }
    }
}

impl Vcenter {
    pub(super) fn post(&mut self, type_name: &'static str, about: About, user: &str, now: SimTime, message: String) {
        let host = about.host.or_else(|| Some(self.inventory.vm(about.vm?)?.host));
        let cluster = about.cluster.or_else(|| Some(self.inventory.host(host?)?.cluster));
        let datacenter = self.inventory.datacenters().next().map(|(id, _)| id);
        self.inventory.post_event(Event {
            key: 0,
            type_name,
            created_at: now,
            user: user.to_owned(),
            message,
            datacenter,
            cluster,
            host,
            source_host: about.source_host,
            vm: about.vm,
        });
    }
}
