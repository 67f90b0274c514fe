//! Each node is a VM in every situation: checked from both sides, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use simulator::kubernetes::kinds::KindId;
use simulator::vcenter::inventory::{PowerState, ROLE_KEY, TaskState};
use simulator::vcenter::physics::{Actor, VmChange, VmSpec};
use simulator::vcenter::vim_fault::VimFault;
use simulator::vcenter::{DrsLevel, Vcenter, VmId};
use simulator::{Clock, SimTime, World, vcenter, world};

type Start = Box<dyn FnOnce(&mut Vcenter, SimTime) -> Result<simulator::vcenter::inventory::TaskId, VimFault>>;

struct Bench(Arc<World>);

impl Bench {
    fn new(hosts: u32, nodes: u32) -> Bench {
        let vcenter = vcenter::Config { hosts, nodes, drs: DrsLevel::Off, ..vcenter::Config::default() };
        let world = World::new(&world::Config { vcenter, ..world::Config::default() }, Clock::virtual_time());
        tokio::spawn(world.clone().run());
        Bench(world)
    }

    fn vm(&self, name: &str) -> VmId {
        self.0.with(|core, _| core.vcenter.inventory().vms().find(|(_, vm)| vm.name == name).expect(name).0)
    }

    fn bios_uuid(&self, vm: VmId) -> String {
        self.0.with(|core, _| core.vcenter.inventory().vm(vm).expect("the VM").bios_uuid.to_string())
    }

    fn node(&self, name: &str) -> Option<Arc<Value>> {
        self.0.with(|core, _| core.kubernetes.store().get(KindId::NODE, "", name).cloned())
    }

    /// `True`, `False`, `Unknown`; empty if there is no node.
    fn ready(&self, name: &str) -> String {
        let node = self.node(name).unwrap_or_default();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
        ready.and_then(|condition| condition["status"].as_str()).unwrap_or_default().to_owned()
    }

    fn system_uuid(&self, name: &str) -> Value {
        self.node(name).expect(name)["status"]["nodeInfo"]["systemUUID"].clone()
    }

    /// Starts a task, waits for its success, and then for this many seconds.
    async fn execute(&self, seconds: u64, start: Start) {
        let task = self.0.with(|core, now| start(&mut core.vcenter, now)).expect("a task");
        let state = || self.0.with(|core, _| core.vcenter.inventory().task(task).expect("it is kept").state.clone());
        while !state().is_final() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(state(), TaskState::Success);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    async fn power(&self, vm: VmId, on: bool, seconds: u64) {
        let act = if on { Vcenter::power_on_vm } else { Vcenter::power_off_vm };
        self.execute(seconds, Box::new(move |vcenter, now| act(vcenter, vm, &actor(), now))).await;
    }

    async fn destroy(&self, vm: VmId) {
        self.execute(1, Box::new(move |vcenter, now| vcenter.destroy_vm(vm, &actor(), now))).await;
    }

    async fn rename(&self, vm: VmId, name: &'static str) {
        self.execute(1, Box::new(move |vcenter, now| vcenter.rename(vm.into(), name, &actor(), now))).await;
    }

    /// A VM with the node role, running.
    async fn create(&self, name: &str, seconds: u64) -> VmId {
        let spec = self.0.with(|core, _| {
            let inventory = core.vcenter.inventory();
            VmSpec {
                name: name.to_owned(),
                folder: inventory.datacenters().next().expect("a datacenter").1.vm_folder,
                pool: inventory.pools().next().expect("a pool").0,
                host: None,
                cpu_count: 4,
                memory_mib: 8 * 1024,
                annotation: String::new(),
                extra_config: [(ROLE_KEY.to_owned(), "node".to_owned())].into(),
                power_on: true,
            }
        });
        self.execute(seconds, Box::new(|vcenter, now| vcenter.create_vm(spec, &actor(), now))).await;
        self.vm(name)
    }
}

fn actor() -> Actor {
    Actor { user: "tester".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_vm_recreated_under_an_old_name_is_another_node() {
    let bench = Bench::new(2, 1);
    let old = bench.vm("node-1");
    let uid = bench.node("node-1").expect("registered")["metadata"]["uid"].clone();
    assert_eq!(bench.system_uuid("node-1"), bench.bios_uuid(old));
    bench.power(old, false, 0).await;
    bench.destroy(old).await;
    assert!(bench.node("node-1").is_none());
    let new = bench.create("node-1", 30).await;
    assert_eq!(bench.ready("node-1"), "True");
    assert_eq!(bench.system_uuid("node-1"), bench.bios_uuid(new));
    assert_ne!(bench.node("node-1").expect("registered")["metadata"]["uid"], uid);
}

#[tokio::test(start_paused = true)]
async fn a_renamed_vm_keeps_its_node_until_another_vm_takes_the_name() {
    let bench = Bench::new(2, 1);
    let old = bench.vm("node-1");
    bench.rename(old, "worker").await;
    bench.power(old, false, 60).await;
    assert_eq!(bench.ready("node-1"), "Unknown", "the guest's host name is unchanged");
    bench.power(old, true, 30).await;
    assert_eq!((bench.ready("node-1").as_str(), bench.node("worker")), ("True", None));

    let new = bench.create("node-1", 30).await;
    assert_eq!(bench.system_uuid("node-1"), bench.bios_uuid(new));
    bench.power(old, false, 60).await;
    bench.destroy(old).await;
    assert_eq!(bench.ready("node-1"), "True", "the node belongs to the new VM");
    bench.power(new, false, 60).await;
    assert_eq!(bench.ready("node-1"), "Unknown");
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_lost_its_role_still_takes_its_node_down() {
    let bench = Bench::new(2, 1);
    let vm = bench.vm("node-1");
    let change = VmChange { extra_config: [(ROLE_KEY.to_owned(), None)].into(), ..VmChange::default() };
    bench.execute(1, Box::new(move |vcenter, now| vcenter.reconfigure_vm(vm, change, &actor(), now))).await;
    assert_eq!(bench.ready("node-1"), "True", "its kubelet keeps running");
    bench.power(vm, false, 60).await;
    assert_eq!(bench.ready("node-1"), "Unknown");
    bench.destroy(vm).await;
    assert!(bench.node("node-1").is_none());
}

#[tokio::test(start_paused = true)]
async fn nodes_of_a_failed_host_restart_elsewhere() {
    let bench = Bench::new(3, 6);
    let (host, lost) = bench.0.with(|core, now| {
        let inventory = core.vcenter.inventory();
        let host = inventory.hosts().map(|(id, _)| id).find(|id| inventory.vms_on(*id).count() > 0).expect("a host");
        let lost: Vec<(VmId, String)> = inventory.vms_on(host).map(|(id, vm)| (id, vm.name.clone())).collect();
        core.vcenter.fail_host(host, now).expect("it ran");
        (host, lost)
    });
    tokio::time::sleep(Duration::from_secs(120)).await;
    for (vm, name) in &lost {
        assert_eq!(bench.ready(name), "True");
        let node = bench.node(name).expect(name);
        assert!(node["spec"]["taints"].is_null(), "{}", node["spec"]);
        bench.0.with(|core, _| {
            let vm = core.vcenter.inventory().vm(*vm).expect("the VM");
            assert!(vm.power == PowerState::On && vm.host != host, "{name}");
        });
    }
}
