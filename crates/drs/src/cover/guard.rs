//! How many members a VM-VM anti-affinity rule may have.
//!
//! In: a cluster's hosts and the reserve. Out: the limits for new and for existing rules. A rule with as many members
//! as hosts blocks maintenance and can prevent HA from restarting a VM, so a new rule leaves a reserve. An existing
//! rule is limited only by the hosts able to run VMs, because the reserve is meant for hosts in maintenance. Invariant:
//! a host that only lost its connection still runs its VMs, and counts.

use crate::input::ClusterView;
use crate::settings::DrsSettings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    /// Hosts of the cluster.
    pub(crate) hosts: usize,
    /// Hosts that are not in maintenance or entering it.
    pub(crate) hosts_able: usize,
    pub(crate) reserve: usize,
}

impl Guard {
    pub(crate) fn of(view: &ClusterView, settings: &DrsSettings) -> Self {
        let hosts_able = view.hosts.iter().filter(|host| !host.maintenance).count();
        Self { hosts: view.hosts.len(), hosts_able, reserve: settings.reserve_hosts }
    }

    /// The maximum number of members of a new or growing rule.
    pub(crate) fn members_new_max(&self) -> usize {
        self.hosts.saturating_sub(self.reserve)
    }

    /// An existing rule with more members than this cannot be satisfied.
    pub(crate) fn members_kept_max(&self) -> usize {
        self.hosts_able
    }

    /// No rule is created or grows beyond what the current hosts can satisfy.
    pub(crate) fn members_grown_max(&self) -> usize {
        self.members_new_max().min(self.members_kept_max())
    }
}
