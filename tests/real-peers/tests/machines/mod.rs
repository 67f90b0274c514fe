//! Nodes that are VMs of vcsim: two on each of three hosts.
//!
//! Shared by the tests of the extender and of the scheduler. The host of a node is always read from vcsim itself; the
//! nodes have no host label.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use testkit::{ControlPlane, Vcsim, VcsimOptions};

pub const HOSTS: u32 = 3;
pub const VMS: u32 = 6;

pub struct Machines {
    pub control_plane: ControlPlane,
    pub vcsim: Vcsim,
}

pub fn node_name(number: u32) -> String {
    format!("dc0-c0-rp0-vm{number}")
}

pub fn node_names() -> Vec<String> {
    (0..VMS).map(node_name).collect()
}

pub fn host_name(number: u32) -> String {
    format!("DC0_C0_H{number}")
}

fn vm_of(node: &str) -> String {
    node.to_uppercase().replace('-', "_")
}

fn host_path(host: &str) -> String {
    format!("/DC0/host/DC0_C0/{host}")
}

impl Machines {
    /// VM number N is on host N modulo the number of hosts. Some hosts are in maintenance from the start, because vcsim
    /// sends no update when a host enters maintenance.
    pub async fn start(in_maintenance: &[u32]) -> Result<Machines> {
        let control_plane = ControlPlane::start().await?;
        let options = VcsimOptions { hosts_per_cluster: HOSTS, vms_per_cluster: VMS, ..VcsimOptions::default() };
        let vcsim = Vcsim::start(&options).await?;
        let machines = Machines { control_plane, vcsim };
        for number in 0..VMS {
            machines.migrate(&node_name(number), &host_name(number % HOSTS)).await?;
            machines.add_node(&node_name(number)).await?;
        }
        for number in in_maintenance {
            machines.vcsim.govc().run(&["host.maintenance.enter", &host_path(&host_name(*number))]).await?;
        }
        Ok(machines)
    }

    async fn add_node(&self, name: &str) -> Result<()> {
        let path = format!("/DC0/vm/{}", vm_of(name));
        let uuid = self.vcsim.govc().run(&["object.collect", "-s", &path, "config.uuid"]).await?;
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
            "status": {
                "capacity": { "cpu": "8", "memory": "16Gi", "pods": "110" },
                "allocatable": { "cpu": "8", "memory": "16Gi", "pods": "110" },
                "conditions": [{ "type": "Ready", "status": "True", "reason": "Test", "message": "",
                    "lastHeartbeatTime": null, "lastTransitionTime": null }],
                "nodeInfo": { "systemUUID": uuid.trim(), "machineID": "", "bootID": "", "kernelVersion": "", "osImage": "",
                    "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "",
                    "architecture": "" },
            },
        }))?;
        let nodes: Api<Node> = Api::all(self.control_plane.client().await?);
        nodes.create(&PostParams::default(), &node).await?;
        self.control_plane.make_schedulable(name).await
    }

    /// The physical host of a node, from vcsim.
    pub async fn host_of(&self, node: &str) -> Result<String> {
        let govc = self.vcsim.govc();
        let path = format!("/DC0/vm/{}", vm_of(node));
        let reference = govc.run(&["object.collect", "-s", &path, "runtime.host"]).await?;
        Ok(govc.run(&["object.collect", "-s", reference.trim(), "name"]).await?.trim().to_owned())
    }

    /// Moves the node's VM, unless it is already on the host.
    pub async fn migrate(&self, node: &str, host: &str) -> Result<()> {
        if self.host_of(node).await? != host {
            self.vcsim.govc().run(&["vm.migrate", "-host", &host_path(host), &vm_of(node)]).await?;
        }
        Ok(())
    }
}

/// The spec of a pod with required anti-affinity by node to pods of its app.
pub fn anti_affine_spec(app: &str, scheduler: &str) -> Value {
    json!({
        "schedulerName": scheduler,
        "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "main", "image": "none", "resources": { "requests": { "cpu": "100m" } } }],
        "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": app } } }] } },
    })
}

/// Why the pod is pending, from its PodScheduled condition.
pub fn unschedulable_message(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
    condition.message.as_deref().filter(|_| condition.status == "False")
}
