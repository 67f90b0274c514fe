//! Builds the initial inventory from the configuration and the seed.
//!
//! One datacenter, its folders, clusters with hosts assigned round-robin, and node VMs distributed over them slightly
//! unevenly, so that DRS has something to balance. Every node VM is powered on.

use std::time::Duration;

use super::Step;
use super::operations::{Actor, VmSpec};
use crate::clock::SimTime;
use crate::vcenter::inventory::{
    Cluster, ClusterId, ConnectionState, Datacenter, Datastore, DrsBehavior, DrsSettings, Folder, FolderId, FolderKind,
    HaSettings, Host, HostId, Maintenance, MoRef, Network, Pool, PoolId, PowerState, ROLE_KEY,
};
use crate::vcenter::{DrsLevel, Vcenter};

/// The HA option that makes restarts respect VM-VM anti-affinity rules.
pub(super) const RESPECT_ANTI_AFFINITY: &str = "das.respectVmVmAntiAffinityRules";

/// The fraction of nodes that are placed randomly in their cluster instead of round-robin.
const STRAY_SHARE: f64 = 0.35;

impl Vcenter {
    pub(in crate::vcenter) fn populate(&mut self, now: SimTime) {
        let root = self.folder("Datacenters", FolderKind::Root, None);
        let datacenter = self.datacenter(root);
        let clusters: Vec<ClusterId> = (1..=self.config.clusters).map(|n| self.cluster(n, datacenter)).collect();
        let mut hosts: Vec<(ClusterId, PoolId, Vec<HostId>)> = clusters
            .into_iter()
            .filter_map(|id| Some((id, self.inventory.cluster(id)?.root_pool, Vec::new())))
            .collect();
        if hosts.is_empty() {
            return;
        }
        for n in 0..self.config.hosts {
            let cluster = n as usize % hosts.len();
            let host = self.host(n + 1, hosts[cluster].0, now);
            hosts[cluster].2.push(host);
            self.local_datastore(n + 1, host);
        }
        hosts.retain(|(_, _, hosts)| !hosts.is_empty());
        let vm_folder = self.inventory.datacenters().next().map(|(_, datacenter)| datacenter.vm_folder);
        if let Some(folder) = vm_folder
            && !hosts.is_empty()
        {
            self.nodes(folder, &hosts, now);
        }
        let period = self.config.drs_period.max(Duration::from_secs(1));
        for (cluster, _, _) in hosts {
            let offset = self.physics.draw(Duration::from_secs(1), period);
            self.schedule_in(now, offset, Step::DrsPeriod(cluster));
        }
        self.schedule_in(now, self.config.demand_period.max(Duration::from_secs(1)), Step::ShiftDemand);
    }

    fn folder(&mut self, name: &str, kind: FolderKind, parent: Option<MoRef>) -> FolderId {
        self.inventory.add_folder(Folder { name: name.to_owned(), kind, parent })
    }

    /// Returns the host folder, which contains the clusters.
    fn datacenter(&mut self, root: FolderId) -> FolderId {
        let vm_folder = self.folder("vm", FolderKind::Vm, None);
        let host_folder = self.folder("host", FolderKind::Host, None);
        let datastore_folder = self.folder("datastore", FolderKind::Datastore, None);
        let network_folder = self.folder("network", FolderKind::Network, None);
        let datacenter = self.inventory.add_datacenter(Datacenter {
            name: "dc-1".to_owned(),
            parent: root,
            vm_folder,
            host_folder,
            datastore_folder,
            network_folder,
        });
        for folder in [vm_folder, host_folder, datastore_folder, network_folder] {
            if let Some(folder) = self.inventory.folder_mut(folder) {
                folder.parent = Some(datacenter.into());
            }
        }
        let shared = Datastore { name: "datastore-1".to_owned(), parent: datastore_folder, local_to: None };
        self.inventory.add_datastore(shared);
        self.inventory.add_network(Network { name: "VM Network".to_owned(), parent: network_folder });
        host_folder
    }

    fn cluster(&mut self, number: u32, parent: FolderId) -> ClusterId {
        let behavior = match self.config.drs {
            DrsLevel::Manual => DrsBehavior::Manual,
            DrsLevel::PartiallyAutomated => DrsBehavior::PartiallyAutomated,
            DrsLevel::FullyAutomated | DrsLevel::Off => DrsBehavior::FullyAutomated,
        };
        let respects = self.config.ha_respects_anti_affinity;
        let options = respects.map(|value| (RESPECT_ANTI_AFFINITY.to_owned(), value.to_string())).into_iter().collect();
        let cluster = self.inventory.add_cluster(Cluster {
            name: format!("cluster-{number}"),
            parent,
            // Set below, when the pool can refer to its cluster.
            root_pool: PoolId(0),
            drs: DrsSettings { enabled: self.config.drs != DrsLevel::Off, behavior },
            ha: HaSettings { enabled: self.config.ha, options },
            rules: Vec::new(),
            groups: Vec::new(),
            next_rule_key: 0,
            recommendations: Vec::new(),
        });
        let pool = self.inventory.add_pool(Pool { name: "Resources".to_owned(), parent: cluster.into(), cluster });
        if let Some(cluster) = self.inventory.cluster_mut(cluster) {
            cluster.root_pool = pool;
        }
        cluster
    }

    fn host(&mut self, number: u32, cluster: ClusterId, now: SimTime) -> HostId {
        self.inventory.add_host(Host {
            name: format!("esx-{number}.lab"),
            cluster,
            uuid: self.physics.uuids.uuid(),
            connection: ConnectionState::Connected,
            maintenance: Maintenance::No,
            cpu_count: self.config.host_cpu_count,
            cpu_mhz: self.config.host_cpu_mhz,
            memory_mib: self.config.host_memory_mib,
            boot_time: now,
        })
    }

    /// With a name that shows its host, as ESXi names it.
    fn local_datastore(&mut self, number: u32, host: HostId) {
        let folder = self.inventory.datacenters().next().map(|(_, datacenter)| datacenter.datastore_folder);
        if let Some(parent) = folder.filter(|_| self.config.local_datastores) {
            let name = format!("local-{number}");
            self.inventory.add_datastore(Datastore { name, parent, local_to: Some(host) });
        }
    }

    fn nodes(&mut self, folder: FolderId, clusters: &[(ClusterId, PoolId, Vec<HostId>)], now: SimTime) {
        let actor = Actor { user: self.config.username.clone() };
        for n in 0..self.config.nodes as usize {
            let (_, pool, hosts) = &clusters[n % clusters.len()];
            let round_robin = (n / clusters.len()) % hosts.len();
            let stray = self.physics.placement.chance(STRAY_SHARE);
            let anywhere = usize::try_from(self.physics.placement.below(hosts.len() as u64)).unwrap_or(0);
            let host = hosts[if stray { anywhere } else { round_robin }];
            let spec = VmSpec {
                name: format!("node-{}", n + 1),
                folder,
                pool: *pool,
                host: Some(host),
                cpu_count: self.config.node_cpu_count,
                memory_mib: self.config.node_memory_mib,
                annotation: String::new(),
                extra_config: [(ROLE_KEY.to_owned(), "node".to_owned())].into_iter().collect(),
                power_on: true,
            };
            let vm = self.add_vm(spec, host, &actor, now);
            self.set_power(vm, PowerState::On, "VmPoweredOnEvent", &actor, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::testing::Bench;
    use super::*;
    use crate::vcenter::{Config, Happening};

    #[test]
    fn the_inventory_matches_the_configuration() {
        let config = Config { clusters: 2, hosts: 7, nodes: 30, ..Config::default() };
        let bench = Bench::new(&config, 3);
        let inventory = bench.vcenter.inventory();
        assert_eq!(inventory.clusters().map(|(_, c)| c.name.as_str()).collect::<Vec<_>>(), ["cluster-1", "cluster-2"]);
        assert_eq!((inventory.hosts().count(), inventory.vms().count()), (7, 30));
        assert_eq!(inventory.folders().next().map(|(id, f)| (id.0, f.name.as_str())), Some((1, "Datacenters")));
        for (id, vm) in inventory.vms() {
            assert_eq!(inventory.pool(vm.pool).unwrap().cluster, inventory.cluster_of(id).unwrap(), "{}", vm.name);
            assert_eq!((vm.power, &vm.guest_host_name), (PowerState::On, &vm.name));
            assert!(vm.cpu_demand_mhz > 0 && vm.memory_demand_mib > 0);
        }
        let distinct = |f: fn(&crate::vcenter::inventory::Vm) -> String| {
            inventory.vms().map(|(_, vm)| f(vm)).collect::<BTreeSet<_>>().len()
        };
        assert_eq!(distinct(|vm| vm.ip_address.clone()), 30);
        assert_eq!(distinct(|vm| vm.bios_uuid.to_string()), 30);
        assert_eq!(bench.happened(|h| matches!(h, Happening::VmPoweredOn { .. })), 30);
    }

    #[test]
    fn unusual_sizes_work() {
        for (clusters, hosts, nodes) in [(0, 3, 3), (3, 0, 5), (3, 1, 5), (1, 1, 0)] {
            let mut bench = Bench::new(&Config { clusters, hosts, nodes, ..Config::default() }, 1);
            bench.run(300);
        }
    }
}
