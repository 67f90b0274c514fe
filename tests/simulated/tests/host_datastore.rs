//! Volumes on datastores that only one physical host mounts: the whole service on the embedded servers, in virtual time.
//!
//! Every host has a datastore of its own, and each claim is bound to a volume on one of them.

use std::sync::Arc;
use std::time::Duration;

use bridger::compose::{PartSettings, compose};
use bridger::in_process;
use bridger::service::outside::Service;
use scheduler::{Configuration, plugins};
use serde_json::{Value, json};
use simulated::in_virtual_time;
use simulator::kubernetes::defaults;
use simulator::kubernetes::kinds::KindId;
use simulator::seed::Seed;
use simulator::vcenter::DrsLevel;
use simulator::{Clock, World, world};

const HOSTS: u32 = 2;
const NODES: u32 = 8;

struct Run {
    world: Arc<World>,
    // Dropping it stops Bridger.
    _service: Service,
}

impl Run {
    async fn start(unmounted: &str) -> Run {
        let vcenter = simulator::vcenter::Config {
            hosts: HOSTS,
            nodes: NODES,
            drs: DrsLevel::Off,
            local_datastores: true,
            ..simulator::vcenter::Config::default()
        };
        let config = world::Config { seed: Seed(7), vcenter, ..world::Config::default() };
        let world = World::new(&config, Clock::virtual_time());
        tokio::spawn(world.clone().run());
        let outside = in_process::outside(&world, &config).expect("the embedded servers");
        let file = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "profiles": [{ "schedulerName": "default-scheduler",
                "pluginConfig": [{ "name": "HostDatastore", "args": { "unmounted": unmounted } }] }],
        });
        let configuration = Configuration::from_value(&file, &plugins::standard()).expect("a valid configuration");
        let parts =
            PartSettings { scheduling: Some(configuration), rules: None, extender: None, ..in_process::parts() };
        let mut service = Service::new();
        compose(parts, outside, &mut service);
        let run = Run { world, _service: service };
        for number in 1..=HOSTS {
            run.create_volume(number);
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        run
    }

    fn create(&self, kind: KindId, mut object: Value) {
        self.world.with(|core, now| {
            defaults::apply(kind, &mut object, core.kubernetes.store());
            core.kubernetes.store_mut().create(kind, object, now).expect("a new object");
        });
    }

    /// A claim that is bound to a volume on the datastore of this host.
    fn create_volume(&self, number: u32) {
        let (volume, claim) = (format!("pv-{number}"), format!("data-{number}"));
        self.create(
            KindId::PERSISTENT_VOLUME,
            json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": volume },
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "storageClassName": "",
                    "persistentVolumeReclaimPolicy": "Retain",
                    "vsphereVolume": { "volumePath": format!("[local-{number}] kubevols/{volume}.vmdk") },
                },
            }),
        );
        self.create(KindId::PERSISTENT_VOLUME_CLAIM, json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": claim, "namespace": "default" },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
                "storageClassName": "", "volumeName": volume,
            },
        }));
    }

    /// A pod with the claim of this number; on this node, if one is given.
    fn create_pod(&self, name: &str, number: u32, node: Option<&str>) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
            "spec": {
                "containers": [{ "name": "main", "image": "none" }],
                "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": format!("data-{number}") } }],
            },
        });
        if let Some(node) = node {
            pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
        }
        self.create(KindId::POD, pod);
    }

    fn pod(&self, name: &str) -> Value {
        self.world.with(|core, _| {
            let mut pods = core.kubernetes.store().list(KindId::POD, None);
            let found = pods.find(|pod| pod["metadata"]["name"] == name).expect("the pod");
            (**found).clone()
        })
    }

    fn notes_of(&self, pod: &str, reason: &str) -> Vec<String> {
        self.world.with(|core, _| {
            let events = core.kubernetes.store().list(KindId::EVENT, None);
            let of_pod = events.filter(|event| {
                let regarding = [&event["regarding"]["name"], &event["involvedObject"]["name"]];
                regarding.iter().any(|name| **name == pod) && event["reason"] == reason
            });
            let note = |event: &Value| {
                let note = if event["note"].is_null() { &event["message"] } else { &event["note"] };
                note.as_str().unwrap_or_default().to_owned()
            };
            of_pod.map(|event| note(event)).collect()
        })
    }

    fn host_of(&self, node: &str) -> String {
        self.world.with(|core, _| {
            let inventory = core.vcenter.inventory();
            let vm = inventory.vms().find(|(_, vm)| vm.guest_host_name == node).expect("the VM of the node").1;
            inventory.host(vm.host).expect("its host").name.clone()
        })
    }

    fn node_on(&self, host: &str) -> String {
        let nodes = (1..=NODES).map(|number| format!("node-{number}"));
        nodes.into_iter().find(|node| self.host_of(node) == host).expect("a node on the host")
    }
}

#[test]
fn pods_run_where_their_volume_can_be_reached_and_stay_pending_elsewhere() {
    in_virtual_time(async {
        let run = Run::start("Reject").await;
        let elsewhere = run.node_on("esx-2.lab");
        for number in 1..=HOSTS {
            for replica in 0..3 {
                run.create_pod(&format!("pod-{number}-{replica}"), number, None);
            }
        }
        run.create_pod("stuck", 1, Some(&elsewhere));
        tokio::time::sleep(Duration::from_secs(60)).await;
        for number in 1..=HOSTS {
            for replica in 0..3 {
                let pod = run.pod(&format!("pod-{number}-{replica}"));
                let node = pod["spec"]["nodeName"].as_str().unwrap_or_else(|| panic!("{pod}"));
                assert_eq!(run.host_of(node), format!("esx-{number}.lab"), "{pod}");
            }
        }
        let stuck = run.pod("stuck");
        assert!(stuck["spec"]["nodeName"].is_null(), "{stuck}");
        let message = stuck["status"]["conditions"][0]["message"].as_str().expect("a reason");
        let expected = "node(s) run on a physical host that does not mount the datastore of a volume";
        assert!(message.contains(expected), "{message}");
    });
}

#[test]
fn by_default_the_pod_is_placed_and_an_event_says_what_its_host_lacks() {
    in_virtual_time(async {
        let run = Run::start("Report").await;
        let (near, elsewhere) = (run.node_on("esx-1.lab"), run.node_on("esx-2.lab"));
        run.create_pod("far", 1, Some(&elsewhere));
        run.create_pod("near", 1, Some(&near));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(run.pod("far")["spec"]["nodeName"], elsewhere);
        assert_eq!(run.pod("near")["spec"]["nodeName"], near);
        let expected = format!("host esx-2.lab of node {elsewhere} does not mount datastore local-1 of volume pv-1");
        assert_eq!(run.notes_of("far", "DatastoreNotMounted"), [expected]);
        assert!(run.notes_of("near", "DatastoreNotMounted").is_empty());
    });
}
