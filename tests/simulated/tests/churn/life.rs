//! What users and administrators do all day, drawn from a seed: rollouts, scaling, jobs of several priorities, failures of hosts and
//! nodes, maintenance, migrations, cordons and taints.
//!
//! In: the world and a stream of random numbers. Out: changes of the two servers. The cluster is kept so full that important pods need
//! preemption.

use std::time::Duration;

use serde_json::{Value, json};
use simulator::SimTime;
use simulator::kubernetes::defaults;
use simulator::kubernetes::deletion::{self, DeleteOptions};
use simulator::kubernetes::kinds::KindId;
use simulator::seed::{Seed, Stream};
use simulator::vcenter::inventory::{ConnectionState, Maintenance, PowerState};
use simulator::vcenter::physics::Actor;
use simulator::vcenter::{HostId, VmId};
use simulator::world::Core;

const NAMESPACE: &str = "default";
pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const ZONES: usize = 3;
const POOL: &str = "pool";
/// Pods with this annotation finish after so many seconds.
const RUN_SECONDS: &str = "sandbox.bridger.dev/run-seconds";
/// Volumes are created when a pod has a node.
const DYNAMIC: &str = "dynamic";
/// Volumes exist, each in one zone.
pub const STATIC: &str = "static";
const DEPLOYMENTS_MAX: usize = 12;
const SETS_MAX: usize = 4;
const JOBS_MAX: usize = 25;
const DISKS_MAX: usize = 12;
/// How long something stays broken.
const OUTAGE_S: (u64, u64) = (30, 1500);
const CLASSES: [(&str, i64, &str); 4] = [
    ("low", 10, "PreemptLowerPriority"),
    ("middle", 100, "PreemptLowerPriority"),
    ("high", 1000, "PreemptLowerPriority"),
    ("patient", 900, "Never"),
];

pub struct Life {
    random: Stream,
    made: usize,
    /// What is repaired, and when.
    repairs: Vec<(SimTime, Repair)>,
}

#[derive(Clone, Debug)]
enum Repair {
    Host(HostId),
    Maintenance(HostId),
    Vm(VmId),
    Cordon(String),
    Taint(String),
}

impl Life {
    pub fn new(seed: Seed) -> Life {
        Life { random: seed.stream("life"), made: 0, repairs: Vec::new() }
    }

    fn number(&mut self, low: u64, high: u64) -> u64 {
        low + self.random.below(high - low + 1)
    }

    fn one_of<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        let bound = u64::try_from(of.len()).unwrap_or(0);
        (bound > 0).then(|| of[usize::try_from(self.random.below(bound)).unwrap_or(0)].clone())
    }

    /// Until the next action.
    pub fn pause(&mut self) -> Duration {
        Duration::from_millis(self.number(2_000, 40_000))
    }

    /// Priority and storage classes, zones and pools of the nodes.
    pub fn begin(&mut self, core: &mut Core, now: SimTime) {
        for (name, value, policy) in CLASSES {
            let class = json!({ "metadata": { "name": name }, "value": value, "preemptionPolicy": policy });
            create(core, KindId::PRIORITY_CLASS, class, now);
        }
        for (name, provisioner) in [(DYNAMIC, "csi.vsphere.vmware.com"), (STATIC, "kubernetes.io/no-provisioner")] {
            let class = json!({ "metadata": { "name": name }, "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete" });
            create(core, KindId::STORAGE_CLASS, class, now);
        }
        for (number, node) in names(core, KindId::NODE).into_iter().enumerate() {
            let _ = core.kubernetes.store_mut().edit(KindId::NODE, "", &node, |node| {
                node["metadata"]["labels"][ZONE] = json!(format!("zone-{}", number % ZONES));
                node["metadata"]["labels"][POOL] = json!(["fast", "slow"][number / ZONES % 2]);
            });
        }
    }

    /// One action, and the repairs that are due.
    pub fn act(&mut self, core: &mut Core, now: SimTime) {
        let (due, later) = self.repairs.drain(..).partition(|(at, _)| *at <= now);
        self.repairs = later;
        due.into_iter().for_each(|(_, repair)| self.repair(core, &repair, now));
        clean_up(core, now);
        let deployments = names(core, KindId::DEPLOYMENT);
        let sets = names(core, KindId::STATEFUL_SET);
        match self.random.below(100) {
            0..22 if deployments.len() < DEPLOYMENTS_MAX => self.deploy(core, now),
            0..32 => self.roll_out(core, &deployments),
            32..42 => self.scale(core, &deployments),
            42..47 => self.delete(core, KindId::DEPLOYMENT, &deployments, now),
            47..55 if sets.len() < SETS_MAX => self.create_set(core, now),
            47..58 => self.delete(core, KindId::STATEFUL_SET, &sets, now),
            58..80 => self.create_jobs(core, now),
            80..84 => self.create_volume(core, now),
            84..90 => self.migrate(core, now),
            90..92 => self.fail_host(core, now),
            92..94 => self.maintain_host(core, now),
            94..96 => self.power_off(core, now),
            96..98 => self.cordon(core, now),
            _ => self.taint(core, now),
        }
    }

    fn name(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{}", self.made)
    }

    fn requests(&mut self) -> Value {
        let cpu = self.number(4, 24) * 125;
        json!({ "cpu": format!("{cpu}m"), "memory": format!("{}Mi", self.number(2, 24) * 128) })
    }

    fn priority_class(&mut self) -> &'static str {
        self.one_of(&["low", "low", "low", "middle", "middle", "high", "patient"]).unwrap_or("low")
    }

    fn pod(&mut self, app: &str) -> Value {
        let mut spec = json!({
            "priorityClassName": self.priority_class(),
            "containers": [{ "name": "main", "image": format!("{app}:1"), "resources": { "requests": self.requests() } }],
        });
        let near = |key: &str, app: &str| {
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": [
                { "topologyKey": key, "labelSelector": { "matchLabels": { "app": app } } }] })
        };
        match self.random.below(12) {
            0..4 => spec["affinity"] = json!({ "podAntiAffinity": near("kubernetes.io/hostname", app) }),
            4 => spec["affinity"] = json!({ "podAntiAffinity": near(ZONE, app) }),
            5 => spec["affinity"] = json!({ "podAffinity": near(ZONE, app) }),
            6 => spec["nodeSelector"] = json!({ POOL: "fast" }),
            7 => {
                spec["affinity"] = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{ "matchExpressions": [
                        { "key": ZONE, "operator": "In", "values": ["zone-0", "zone-1"] }] }] } } });
            }
            8 => spec["tolerations"] = json!([{ "key": "dedicated", "operator": "Exists" }]),
            _ => (),
        }
        json!({ "metadata": { "labels": { "app": app } }, "spec": spec })
    }

    fn deploy(&mut self, core: &mut Core, now: SimTime) {
        let name = self.name("web");
        let (template, replicas) = (self.pod(&name), self.number(2, 4));
        let object = json!({ "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": name } }, "template": template } });
        create(core, KindId::DEPLOYMENT, object, now);
        if self.random.chance(0.5) {
            let budget = json!({ "metadata": { "name": name, "namespace": NAMESPACE },
                "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": name } } } });
            create(core, KindId::POD_DISRUPTION_BUDGET, budget, now);
        }
    }

    fn create_set(&mut self, core: &mut Core, now: SimTime) {
        let name = self.name("db");
        let mut template = self.pod(&name);
        template["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
        let class = self.one_of(&[DYNAMIC, DYNAMIC, STATIC]).unwrap_or(DYNAMIC);
        let policy = self.one_of(&["OrderedReady", "Parallel"]).unwrap_or("Parallel");
        let object = json!({ "metadata": { "name": name, "namespace": NAMESPACE }, "spec": {
            "replicas": self.number(1, 3), "serviceName": name, "podManagementPolicy": policy,
            "selector": { "matchLabels": { "app": name } }, "template": template,
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "storageClassName": class,
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }] } });
        create(core, KindId::STATEFUL_SET, object, now);
    }

    /// A volume by hand, in a zone.
    fn create_volume(&mut self, core: &mut Core, now: SimTime) {
        if names(core, KindId::PERSISTENT_VOLUME).iter().filter(|name| name.starts_with("disk-")).count() >= DISKS_MAX {
            return;
        }
        let name = self.name("disk");
        let zone = format!("zone-{}", self.random.below(ZONES as u64));
        let volume = json!({ "metadata": { "name": name }, "spec": { "storageClassName": STATIC,
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
            "nfs": { "server": "filer", "path": "/" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [zone] }] }] } } } });
        create(core, KindId::PERSISTENT_VOLUME, volume, now);
    }

    /// Pods that end by themselves.
    fn create_jobs(&mut self, core: &mut Core, now: SimTime) {
        let there = names(core, KindId::POD).iter().filter(|name| name.starts_with("job-")).count();
        for _ in there..JOBS_MAX.min(there + 1 + usize::try_from(self.random.below(5)).unwrap_or(0)) {
            let name = self.name("job");
            let mut pod = self.pod("job");
            // Jobs would repel each other.
            pod["spec"]["affinity"] = json!({});
            pod["spec"]["restartPolicy"] = json!("Never");
            pod["metadata"]["name"] = json!(name);
            pod["metadata"]["namespace"] = json!(NAMESPACE);
            pod["metadata"]["annotations"] = json!({ RUN_SECONDS: self.number(20, 1200).to_string() });
            create(core, KindId::POD, pod, now);
        }
    }

    fn roll_out(&mut self, core: &mut Core, deployments: &[String]) {
        let Some(name) = self.one_of(deployments) else { return };
        let (image, requests) = (self.name("image"), self.requests());
        let _ = core.kubernetes.store_mut().edit(KindId::DEPLOYMENT, NAMESPACE, &name, |object| {
            let container = &mut object["spec"]["template"]["spec"]["containers"][0];
            container["image"] = json!(image);
            container["resources"]["requests"] = requests;
        });
    }

    fn scale(&mut self, core: &mut Core, deployments: &[String]) {
        let Some(name) = self.one_of(deployments) else { return };
        let replicas = self.number(0, 6);
        let _ = core.kubernetes.store_mut().edit(KindId::DEPLOYMENT, NAMESPACE, &name, |object| {
            object["spec"]["replicas"] = json!(replicas);
        });
    }

    fn delete(&mut self, core: &mut Core, kind: KindId, names: &[String], now: SimTime) {
        let Some(name) = self.one_of(names) else { return };
        delete(core, kind, &name, now);
        if kind == KindId::DEPLOYMENT {
            delete(core, KindId::POD_DISRUPTION_BUDGET, &name, now);
        }
    }

    fn repair_later(&mut self, repair: Repair, now: SimTime) {
        let seconds = self.number(OUTAGE_S.0, OUTAGE_S.1);
        self.repairs.push((now.after(Duration::from_secs(seconds)), repair));
    }

    /// At most one host is away at a time: else what HA restarts has no room.
    fn spare_host(&mut self, core: &Core) -> Option<HostId> {
        let inventory = core.vcenter.inventory();
        let is_well =
            |connection, maintenance| connection == ConnectionState::Connected && maintenance == Maintenance::No;
        let all_well = inventory.hosts().all(|(_, host)| is_well(host.connection, host.maintenance));
        let hosts: Vec<HostId> = inventory.hosts().map(|(id, _)| id).collect();
        self.one_of(&hosts).filter(|_| all_well)
    }

    fn fail_host(&mut self, core: &mut Core, now: SimTime) {
        let Some(host) = self.spare_host(core) else { return };
        if core.vcenter.fail_host(host, now).is_ok() {
            self.repair_later(Repair::Host(host), now);
        }
    }

    fn maintain_host(&mut self, core: &mut Core, now: SimTime) {
        let Some(host) = self.spare_host(core) else { return };
        if core.vcenter.enter_maintenance(host, 600, &Actor::system(), now).is_ok() {
            self.repair_later(Repair::Maintenance(host), now);
        }
    }

    fn vm(&mut self, core: &Core) -> Option<VmId> {
        let on = core.vcenter.inventory().vms().filter(|(_, vm)| vm.power == PowerState::On);
        let vms: Vec<VmId> = on.map(|(id, _)| id).collect();
        self.one_of(&vms)
    }

    fn migrate(&mut self, core: &mut Core, now: SimTime) {
        let Some(vm) = self.vm(core) else { return };
        let hosts: Vec<HostId> = core.vcenter.inventory().hosts().map(|(id, _)| id).collect();
        if let Some(host) = self.one_of(&hosts) {
            let _ = core.vcenter.relocate_vm(vm, host, &Actor::system(), now);
        }
    }

    fn power_off(&mut self, core: &mut Core, now: SimTime) {
        let Some(vm) = self.vm(core) else { return };
        if core.vcenter.power_off_vm(vm, &Actor::system(), now).is_ok() {
            self.repair_later(Repair::Vm(vm), now);
        }
    }

    fn cordon(&mut self, core: &mut Core, now: SimTime) {
        let Some(node) = self.one_of(&names(core, KindId::NODE)) else { return };
        let _ = core
            .kubernetes
            .store_mut()
            .edit(KindId::NODE, "", &node, |node| node["spec"]["unschedulable"] = json!(true));
        self.repair_later(Repair::Cordon(node), now);
    }

    fn taint(&mut self, core: &mut Core, now: SimTime) {
        let Some(node) = self.one_of(&names(core, KindId::NODE)) else { return };
        let effect = self.one_of(&["NoSchedule", "NoSchedule", "NoExecute"]);
        change_taints(core, &node, |taints| {
            taints.push(json!({ "key": "dedicated", "value": "yes", "effect": effect }));
        });
        self.repair_later(Repair::Taint(node), now);
    }

    fn repair(&mut self, core: &mut Core, repair: &Repair, now: SimTime) {
        let actor = Actor::system();
        match repair {
            Repair::Host(host) => drop(core.vcenter.recover_host(*host, now)),
            Repair::Maintenance(host) => drop(core.vcenter.exit_maintenance(*host, &actor, now)),
            Repair::Vm(vm) => drop(core.vcenter.power_on_vm(*vm, &actor, now)),
            Repair::Cordon(node) => {
                let _ = core.kubernetes.store_mut().edit(KindId::NODE, "", node, |node| {
                    node["spec"]["unschedulable"] = json!(false);
                });
            }
            Repair::Taint(node) => change_taints(core, node, |_| ()),
        }
    }
}

/// Takes these tests' taint away, and those of the machine's state stay.
fn change_taints(core: &mut Core, node: &str, change: impl FnOnce(&mut Vec<Value>)) {
    let _ = core.kubernetes.store_mut().edit(KindId::NODE, "", node, |node| {
        let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.retain(|taint| taint["key"] != "dedicated");
        change(&mut taints);
        node["spec"]["taints"] = json!(taints);
    });
}

fn create(core: &mut Core, kind: KindId, mut object: Value, now: SimTime) {
    defaults::apply(kind, &mut object, core.kubernetes.store());
    core.kubernetes.store_mut().create(kind, object, now).expect("an object");
}

fn delete(core: &mut Core, kind: KindId, name: &str, now: SimTime) {
    let namespace = if kind.kind().namespaced { NAMESPACE } else { "" };
    let _ = deletion::delete(core.kubernetes.store_mut(), kind, namespace, name, &DeleteOptions::default(), now);
}

fn names(core: &Core, kind: KindId) -> Vec<String> {
    let objects = core.kubernetes.store().list(kind, None);
    let there = objects.filter(|object| object["metadata"]["deletionTimestamp"].is_null());
    there.map(|object| name_of(object)).collect()
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Deletes what nobody needs any more: finished pods, and the claims of sets that are gone.
fn clean_up(core: &mut Core, now: SimTime) {
    let sets = names(core, KindId::STATEFUL_SET);
    let is_left = |claim: &String| !sets.iter().any(|set| claim.starts_with(&format!("data-{set}-")));
    let claims: Vec<String> = names(core, KindId::PERSISTENT_VOLUME_CLAIM).into_iter().filter(is_left).collect();
    let volumes = core.kubernetes.store().list(KindId::PERSISTENT_VOLUME, None);
    let released = volumes
        .filter(|volume| volume["spec"]["storageClassName"] == STATIC && volume["status"]["phase"] == "Released");
    let released: Vec<String> = released.map(|volume| name_of(volume)).collect();
    let pods = core.kubernetes.store().list(KindId::POD, None);
    let finished = pods.filter(|pod| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")));
    let finished: Vec<String> = finished.map(|pod| name_of(pod)).collect();
    released.iter().for_each(|name| delete(core, KindId::PERSISTENT_VOLUME, name, now));
    finished.iter().for_each(|name| delete(core, KindId::POD, name, now));
    claims.iter().for_each(|name| delete(core, KindId::PERSISTENT_VOLUME_CLAIM, name, now));
}
