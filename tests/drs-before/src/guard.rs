//! How many members an anti-affinity rule may have.
//!
//! In: a cluster's hosts and the reserve. Out: the limits for new and for existing rules. A rule as wide as the cluster
//! stalls maintenance and can keep HA from restarting a VM, so a new rule leaves a reserve. An existing one is held to the
//! hosts able to run VMs only, because a host in maintenance is what the reserve is for. Invariant: a host that merely lost
//! its connection still runs its VMs, and counts.

use model::{ClusterId, World};

use crate::settings::DrsSettings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Hosts of the cluster.
    pub hosts: usize,
    /// Those not in maintenance, nor on their way into it.
    pub hosts_able: usize,
    pub reserve: usize,
}

impl Guard {
    pub fn of(world: &World, cluster: ClusterId, settings: &DrsSettings) -> Self {
        let hosts: Vec<_> = world.hosts_in(cluster).filter_map(|host| world.host(host)).collect();
        let hosts_able = hosts.iter().filter(|host| !host.maintenance()).count();
        Self { hosts: hosts.len(), hosts_able, reserve: settings.reserve_hosts }
    }

    /// The most members a new rule, or a rule that grows, may have.
    pub(crate) fn members_new_max(&self) -> usize {
        self.hosts.saturating_sub(self.reserve)
    }

    /// An existing rule with more members than this can not be satisfied.
    pub(crate) fn members_kept_max(&self) -> usize {
        self.hosts_able
    }

    /// No rule is made or grows beyond what the hosts there are now could satisfy.
    pub(crate) fn members_grown_max(&self) -> usize {
        self.members_new_max().min(self.members_kept_max())
    }
}
