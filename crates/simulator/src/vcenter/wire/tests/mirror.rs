//! A client that applies all updates ends with the result of a plain read: checked in a world with many changes.
//!
//! This tests the property collector as a whole, including the derived properties (a host's VMs and usage, a cluster's
//! summary, rule compliance, VMs of an unreachable host) that no single change names.

use std::collections::BTreeMap;
use std::time::Duration;

use super::client::{Client, quiet_world};
use crate::seed::{Seed, Stream};
use crate::vcenter::DrsLevel;
use crate::vcenter::wire::xml::Element;

const FOLLOWED: &[(&str, &[&str])] = &[
    (
        "VirtualMachine",
        &[
            "name",
            "runtime.host",
            "runtime.powerState",
            "runtime.connectionState",
            "guest.ipAddress",
            "guest.net",
            "config.hardware.numCPU",
            "summary.quickStats.overallCpuUsage",
        ],
    ),
    (
        "HostSystem",
        &[
            "vm",
            "runtime.connectionState",
            "runtime.inMaintenanceMode",
            "overallStatus",
            "summary.quickStats.overallCpuUsage",
        ],
    ),
    ("ClusterComputeResource", &["summary", "configurationEx", "recommendation", "host"]),
    ("Folder", &["name", "childEntity"]),
];

/// For each object, its properties by path.
type Picture = BTreeMap<String, BTreeMap<String, Element>>;

#[derive(Default)]
struct Mirror {
    collector: String,
    version: String,
    picture: Picture,
}

impl Mirror {
    /// Applies the answer of one wait; returns false if there were no updates.
    fn apply(&mut self, answer: &Element) -> bool {
        let Some(set) = answer.child("returnval") else { return false };
        self.version = set.child_text("version").expect("a version").to_owned();
        for update in set.children_named("filterSet").flat_map(|filter| filter.children_named("objectSet")) {
            let object = update.child_text("obj").expect("an object").to_owned();
            match update.child_text("kind") {
                Some("leave") => {
                    assert!(self.picture.remove(&object).is_some(), "{object} left without having entered");
                    continue;
                }
                Some("enter") => {
                    let before = self.picture.insert(object.clone(), BTreeMap::new());
                    assert!(before.is_none(), "{object} entered twice");
                }
                _ => assert!(update.child("changeSet").is_some(), "an update without a change"),
            }
            let known = self.picture.get_mut(&object).expect("an object that has entered");
            for change in update.children_named("changeSet") {
                let name = change.child_text("name").expect("a name").to_owned();
                match change.child("val") {
                    Some(value) => known.insert(name, value.clone()),
                    None => known.remove(&name),
                };
            }
        }
        true
    }
}

fn spec(tag: &str, view: &str) -> String {
    let properties = FOLLOWED.iter().map(|(type_name, paths)| {
        let paths: String = paths.iter().map(|path| format!("<pathSet>{path}</pathSet>")).collect();
        format!("<propSet><type>{type_name}</type>{paths}</propSet>")
    });
    format!(
        "<{tag}>{}<objectSet><obj type=\"ContainerView\">{view}</obj><skip>true</skip>\
         <selectSet xsi:type=\"TraversalSpec\"><type>ContainerView</type><path>view</path></selectSet></objectSet></{tag}>",
        properties.collect::<String>()
    )
}

async fn read_all(client: &Client, view: &str) -> Picture {
    let collector = ("PropertyCollector", "propertyCollector");
    let answer = client.call("RetrieveProperties", collector.0, collector.1, &spec("specSet", view)).await.unwrap();
    let objects = answer.children_named("returnval").map(|object| {
        let properties = object.children_named("propSet").map(|property| {
            let name = property.child_text("name").expect("a name").to_owned();
            (name, property.child("val").expect("a value").clone())
        });
        (object.child_text("obj").expect("an object").to_owned(), properties.collect())
    });
    objects.collect()
}

fn pick(random: &mut Stream, from: &[String]) -> String {
    from[usize::try_from(random.below(from.len() as u64)).unwrap_or(0)].clone()
}

/// Performs one random operation. It may be rejected.
async fn disturb(client: &Client, random: &mut Stream, picture: &Picture) {
    let ids = |prefix: &str| -> Vec<String> {
        let matching = picture.keys().filter(|id| id.rsplit_once('-').is_some_and(|(head, _)| head == prefix));
        matching.cloned().collect()
    };
    let (vms, hosts, clusters) = (ids("vm"), ids("host"), ids("domain-c"));
    let (vm, other) = (pick(random, &vms), pick(random, &vms));
    let (host, cluster) = (pick(random, &hosts), pick(random, &clusters));
    let on_vm = "VirtualMachine";
    let number = random.below(1_000);
    let (method, type_name, object, arguments) = match random.below(13) {
        0 | 1 => {
            let spec = format!("<spec><host type=\"HostSystem\">{host}</host></spec>");
            ("RelocateVM_Task", on_vm, vm, spec)
        }
        2 => ("PowerOffVM_Task", on_vm, vm, String::new()),
        3 | 4 => ("PowerOnVM_Task", on_vm, vm, String::new()),
        5 => ("EnterMaintenanceMode_Task", "HostSystem", host, "<timeout>60</timeout>".to_owned()),
        6 => ("ExitMaintenanceMode_Task", "HostSystem", host, String::new()),
        7 => ("DisconnectHost_Task", "HostSystem", host, String::new()),
        8 => ("ReconnectHost_Task", "HostSystem", host, String::new()),
        9 => {
            let spec = format!(
                "<spec><rulesSpec><operation>add</operation><info xsi:type=\"ClusterAntiAffinityRuleSpec\"><enabled>true\
                 </enabled><name>rule-{number}</name><vm type=\"{on_vm}\">{vm}</vm><vm type=\"{on_vm}\">{other}</vm></info>\
                 </rulesSpec></spec><modify>true</modify>"
            );
            ("ReconfigureComputeResource_Task", "ClusterComputeResource", cluster, spec)
        }
        10 => {
            let clone = format!(
                "<folder type=\"Folder\">group-2</folder><name>clone-{number}</name><spec><location/>\
                 <powerOn>true</powerOn></spec>"
            );
            ("CloneVM_Task", on_vm, vm, clone)
        }
        11 => ("Destroy_Task", on_vm, vm, String::new()),
        _ => ("Rename_Task", on_vm, vm, format!("<newName>vm-{number}</newName>")),
    };
    let _refused = client.call(method, type_name, &object, &arguments).await;
    if random.chance(0.1) {
        client.world.with(|core, now| {
            let hosts: Vec<_> = core.vcenter.inventory().hosts().map(|(id, _)| id).collect();
            let host = hosts[usize::try_from(random.below(hosts.len() as u64)).unwrap_or(0)];
            let _refused = if core.vcenter.host_has_failed(host) {
                core.vcenter.recover_host(host, now)
            } else {
                core.vcenter.fail_host(host, now)
            };
        });
    }
}

#[tokio::test(start_paused = true)]
async fn applied_updates_equal_a_plain_read() {
    let world = quiet_world(|config| {
        config.vcenter.hosts = 5;
        config.vcenter.nodes = 15;
        // Violations stay until a client applies the DRS recommendations.
        config.vcenter.drs = DrsLevel::Manual;
        config.vcenter.demand_period = Duration::from_secs(20);
    });
    let client = Client::logged_in(&world).await;
    let container = "<container type=\"Folder\">group-1</container><recursive>true</recursive>";
    let view = client.reference("CreateContainerView", "ViewManager", "ViewManager", container).await;
    let collector = client.reference("CreatePropertyCollector", "PropertyCollector", "propertyCollector", "").await;
    let filter = format!("{}<partialUpdates>false</partialUpdates>", spec("spec", &view));
    client.reference("CreateFilter", "PropertyCollector", &collector, &filter).await;
    let mut mirror = Mirror { collector, ..Mirror::default() };
    let mut random = Seed(11).stream("mirror");
    for round in 0..400 {
        // Catches up in pages of random size, with some answers lost.
        loop {
            let page = 1 + random.below(40);
            let options = format!("<maxWaitSeconds>0</maxWaitSeconds><maxObjectUpdates>{page}</maxObjectUpdates>");
            if random.chance(0.1) && !mirror.version.is_empty() {
                client.wait(&mirror.collector, &mirror.version, &options).await.unwrap();
            }
            let answer = client.wait(&mirror.collector, &mirror.version, &options).await.unwrap();
            if !mirror.apply(&answer) {
                break;
            }
        }
        let read = read_all(&client, &view).await;
        for (object, properties) in &read {
            let mirrored = mirror.picture.get(object).unwrap_or_else(|| panic!("{object} was never reported"));
            for (path, value) in properties {
                assert_eq!(mirrored.get(path), Some(value), "round {round}: {object} {path}");
            }
            assert_eq!(mirrored.len(), properties.len(), "round {round}: {object}");
        }
        assert_eq!(mirror.picture.len(), read.len(), "round {round}");
        for _ in 0..random.below(4) {
            disturb(&client, &mut random, &read).await;
        }
        tokio::time::sleep(Duration::from_millis(random.below(30_000))).await;
    }
    let moves = world.with(|core, _| {
        let entries = core.chronicle.since(0).map(ToString::to_string).collect::<Vec<_>>();
        ["moved", "powered off", "maintenance", "created", "destroyed", "failed"]
            .map(|word| entries.iter().filter(|entry| entry.contains(word)).count())
    });
    assert!(moves.iter().all(|count| *count > 3), "too few moves: {moves:?}");
}
