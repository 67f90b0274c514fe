//! The state of the two servers at one moment, seen from outside, as plain data.
//!
//! Input: the state of the embedded Kubernetes and vCenter. Output: hosts with their VMs, VMs with their pods, rules,
//! and the desired replicas. The screen, the observer and the script read only this, so what is shown is what is
//! measured, and neither can depend on Bridger's own state.

use std::collections::BTreeMap;

use serde_json::Value;
use simulator::kubernetes::kinds::KindId;
use simulator::vcenter::Inventory;
use simulator::vcenter::inventory::{Host, HostId, Maintenance, PowerState, Rule, RuleKind, Vm, VmId};
use simulator::world::Core;

#[derive(Clone, Debug, Default)]
pub struct Overview {
    pub hosts: Vec<HostOverview>,
    pub rules: Vec<RuleOverview>,
    /// Desired replicas of each service with required anti-affinity.
    pub desired: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostState {
    Up,
    EnteringMaintenance,
    InMaintenance,
    Failed,
}

#[derive(Clone, Debug)]
pub struct HostOverview {
    pub name: String,
    pub state: HostState,
    pub cpu_percent: u64,
    pub vms: Vec<VmOverview>,
}

#[derive(Clone, Debug)]
pub struct VmOverview {
    pub name: String,
    pub has_power: bool,
    pub is_moving: bool,
    pub pods: Vec<PodOverview>,
}

#[derive(Clone, Debug)]
pub struct PodOverview {
    /// The value of its label `app`.
    pub service: String,
    /// It has a required anti-affinity term.
    pub has_anti_affinity: bool,
    pub is_running: bool,
    pub is_ready: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleOverview {
    pub name: String,
    pub vms: Vec<String>,
    /// The services with anti-affinity whose replicas run on these VMs: the reason for the rule.
    pub services: Vec<String>,
}

/// Two or more replicas of one service on one physical host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sharing {
    pub service: String,
    pub host: String,
    pub vms: Vec<String>,
}

impl Overview {
    pub fn of(core: &Core) -> Overview {
        let inventory = core.vcenter.inventory();
        let mut pods = pods_by_node(core);
        let hosts: Vec<HostOverview> = inventory
            .hosts()
            .map(|(id, host)| {
                let vms = inventory.vms_on(id).map(|(_, vm)| vm_overview(vm, &mut pods)).collect();
                HostOverview {
                    name: short(&host.name).to_owned(),
                    state: state_of(core, id, host),
                    cpu_percent: cpu_percent(inventory, id, host),
                    vms,
                }
            })
            .collect();
        let mut overview = Overview { hosts, rules: Vec::new(), desired: desired(core) };
        let rules = inventory.clusters().flat_map(|(_, cluster)| &cluster.rules).filter(|rule| rule.enabled);
        overview.rules = rules.filter_map(|rule| overview.rule(inventory, rule)).collect();
        overview
    }

    fn rule(&self, inventory: &Inventory, rule: &Rule) -> Option<RuleOverview> {
        let (RuleKind::Affinity { vms } | RuleKind::AntiAffinity { vms }) = &rule.kind else { return None };
        let name = |id: &VmId| inventory.vm(*id).map(|vm| vm.name.clone());
        let vms: Vec<String> = vms.iter().filter_map(name).collect();
        let members = self.vms().filter(|vm| vms.contains(&vm.name));
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in members.flat_map(|vm| &vm.pods).filter(|pod| pod.has_anti_affinity) {
            *counts.entry(&pod.service).or_default() += 1;
        }
        // Other services may have a few replicas on the same VMs by chance.
        let most = counts.values().copied().max().unwrap_or(0).max(2);
        let services =
            counts.into_iter().filter(|(_, count)| *count == most).map(|(name, _)| name.to_owned()).collect();
        Some(RuleOverview { name: rule.name.clone(), vms, services })
    }

    pub fn vms(&self) -> impl Iterator<Item = &VmOverview> {
        self.hosts.iter().flat_map(|host| &host.vms)
    }

    /// Where replicas with anti-affinity share a physical host. A VM without power runs nothing.
    pub fn sharings(&self) -> Vec<Sharing> {
        let mut found = Vec::new();
        for host in &self.hosts {
            let mut vms: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for vm in host.vms.iter().filter(|vm| vm.has_power) {
                for pod in vm.pods.iter().filter(|pod| pod.has_anti_affinity && pod.is_running) {
                    vms.entry(&pod.service).or_default().push(vm.name.clone());
                }
            }
            let shared = vms.into_iter().filter(|(_, vms)| vms.len() > 1);
            found.extend(shared.map(|(service, vms)| Sharing {
                service: service.to_owned(),
                host: host.name.clone(),
                vms,
            }));
        }
        found.sort();
        found
    }

    /// Replicas that serve: Ready, on a VM with power. Kubernetes itself detects a power loss much later.
    pub fn serving(&self, service: &str) -> u64 {
        self.serving_without(service, None)
    }

    fn serving_without(&self, service: &str, lost: Option<&str>) -> u64 {
        let hosts = self.hosts.iter().filter(|host| Some(host.name.as_str()) != lost);
        let vms = hosts.flat_map(|host| &host.vms).filter(|vm| vm.has_power);
        let pods = vms.flat_map(|vm| &vm.pods);
        pods.filter(|pod| pod.service == service && pod.is_ready).count() as u64
    }

    /// The host whose failure does most harm: the most services down, then the most replicas of the same service lost
    /// together, then the most replicas lost.
    pub fn worst_to_lose(&self) -> Option<&str> {
        let harm = |host: &HostOverview| {
            let lost = |service: &String| self.serving(service) - self.serving_without(service, Some(&host.name));
            let gone = self
                .desired
                .keys()
                .filter(|&service| self.serving(service) > 0 && self.serving_without(service, Some(&host.name)) == 0);
            let together = self.desired.keys().map(|service| lost(service).saturating_sub(1)).sum::<u64>();
            (gone.count(), together, self.desired.keys().map(lost).sum::<u64>())
        };
        let up = self.hosts.iter().filter(|host| host.state == HostState::Up);
        // The first of equals; without `rev`, max_by_key would return the last.
        let worst = up.rev().max_by_key(|host| harm(host));
        worst.map(|host| host.name.as_str())
    }

    pub fn host_of(&self, vm: &str) -> Option<&str> {
        let host = self.hosts.iter().find(|host| host.vms.iter().any(|other| other.name == vm));
        host.map(|host| host.name.as_str())
    }
}

/// `esx-1` of `esx-1.lab`.
pub fn short(host: &str) -> &str {
    host.split('.').next().unwrap_or(host)
}

fn state_of(core: &Core, id: HostId, host: &Host) -> HostState {
    match host.maintenance {
        _ if core.vcenter.host_has_failed(id) => HostState::Failed,
        Maintenance::No => HostState::Up,
        Maintenance::Entering => HostState::EnteringMaintenance,
        Maintenance::In => HostState::InMaintenance,
    }
}

fn cpu_percent(inventory: &Inventory, id: HostId, host: &Host) -> u64 {
    let demand: u64 = inventory.vms_on(id).map(|(_, vm)| u64::from(vm.cpu_demand_mhz)).sum();
    (demand * 100).checked_div(host.cpu_capacity_mhz()).unwrap_or(0)
}

fn vm_overview(vm: &Vm, pods: &mut BTreeMap<String, Vec<PodOverview>>) -> VmOverview {
    VmOverview {
        name: vm.name.clone(),
        has_power: vm.power == PowerState::On,
        is_moving: vm.moving_to.is_some(),
        pods: pods.remove(&vm.guest_host_name).unwrap_or_default(),
    }
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

const REQUIRED_ANTI_AFFINITY: &str = "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0";

fn has_anti_affinity(object: &Value, spec: &str) -> bool {
    object.pointer(spec).is_some_and(|spec| spec.pointer(REQUIRED_ANTI_AFFINITY).is_some())
}

fn pods_by_node(core: &Core) -> BTreeMap<String, Vec<PodOverview>> {
    let mut pods: BTreeMap<String, Vec<PodOverview>> = BTreeMap::new();
    for pod in core.kubernetes.store().list(KindId::POD, None) {
        let (node, service) = (text(pod, "/spec/nodeName"), text(pod, "/metadata/labels/app"));
        let phase = text(pod, "/status/phase");
        if node.is_empty() || service.is_empty() || phase == "Succeeded" || phase == "Failed" {
            continue;
        }
        let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
        let is_ready =
            conditions.into_iter().flatten().any(|known| known["type"] == "Ready" && known["status"] == "True");
        pods.entry(node.to_owned()).or_default().push(PodOverview {
            service: service.to_owned(),
            has_anti_affinity: has_anti_affinity(pod, "/spec"),
            is_running: phase == "Running",
            is_ready,
        });
    }
    for pods in pods.values_mut() {
        pods.sort_by(|a, b| (!a.has_anti_affinity, &a.service).cmp(&(!b.has_anti_affinity, &b.service)));
    }
    pods
}

fn desired(core: &Core) -> BTreeMap<String, u64> {
    let deployments = core.kubernetes.store().list(KindId::DEPLOYMENT, None);
    let apart = deployments.filter(|object| has_anti_affinity(object, "/spec/template/spec"));
    apart
        .map(|object| {
            let service = text(object, "/spec/template/metadata/labels/app").to_owned();
            (service, object["spec"]["replicas"].as_u64().unwrap_or(1))
        })
        .collect()
}
