//! Reading properties once.

use super::client::{Client, object_spec, quiet_world};
use crate::vcenter::wire::methods;
use crate::vcenter::wire::properties::root_folder;
use crate::vcenter::wire::schema;
use crate::vcenter::wire::target::{Singleton, Target};
use crate::vcenter::wire::value::Value;

const COLLECTOR: (&str, &str) = ("PropertyCollector", "propertyCollector");

#[tokio::test(start_paused = true)]
async fn properties_by_path() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let vm = client.find("dc-1/vm/node-1").await;
    let host = client.find("dc-1/host/cluster-1/esx-1.lab").await;
    let cluster = client.find("dc-1/host/cluster-1").await;
    for (type_name, value, path, expected) in [
        ("VirtualMachine", &vm, "name", "node-1"),
        ("VirtualMachine", &vm, "config.hardware.numCPU", "8"),
        ("VirtualMachine", &vm, "summary.config.memorySizeMB", "32768"),
        ("VirtualMachine", &vm, "runtime.powerState", "poweredOn"),
        ("HostSystem", &host, "summary.hardware.numCpuCores", "32"),
        ("HostSystem", &host, "runtime.inMaintenanceMode", "false"),
        ("ClusterComputeResource", &cluster, "summary.numHosts", "4"),
        ("ClusterComputeResource", &cluster, "configurationEx.drsConfig.enabled", "false"),
    ] {
        assert_eq!(client.text(type_name, value, path).await, expected, "{path}");
    }
    // A base type in the property spec also matches derived types.
    let spec = object_spec("ManagedEntity", "name", "ClusterComputeResource", &cluster);
    let answer = client.call("RetrieveProperties", COLLECTOR.0, COLLECTOR.1, &spec).await.unwrap();
    assert!(answer.child("returnval").is_some());
    // A known property without a value: the object is returned without the property.
    assert_eq!(client.property("VirtualMachine", &vm, "config.managedBy.type").await, Ok(None));
    assert_eq!(client.property("VirtualMachine", &vm, "snapshot").await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn unreadable_properties_give_the_faults_of_a_vcenter() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let vm = client.find("dc-1/vm/node-1").await;
    for (spec, fault) in [
        (object_spec("VirtualMachine", "nonsense", "VirtualMachine", &vm), "InvalidProperty"),
        (object_spec("VirtualMachine", "runtime.nonsense", "VirtualMachine", &vm), "InvalidProperty"),
        (object_spec("ManagedEntity", "runtime", "VirtualMachine", &vm), "InvalidProperty"),
        (object_spec("VirtualMachine", "a..b", "VirtualMachine", &vm), "InvalidProperty"),
        (object_spec("VirtualMachine", "name", "VirtualMachine", "vm-99999"), "ManagedObjectNotFound"),
        (object_spec("VirtualMachine", "name", "Nonsense", "x"), "ManagedObjectNotFound"),
        ("<specSet/>".to_owned(), "InvalidArgument"),
        (String::new(), "InvalidArgument"),
        (
            format!(
                "<specSet><propSet><type>VirtualMachine</type></propSet><objectSet>\
                 <obj type=\"VirtualMachine\">{vm}</obj><selectSet><name>none</name></selectSet></objectSet></specSet>"
            ),
            "InvalidArgument",
        ),
    ] {
        let answer = client.call("RetrieveProperties", COLLECTOR.0, COLLECTOR.1, &spec).await;
        assert_eq!(answer, Err(fault.to_owned()), "{spec}");
    }
    for (method, type_name, value, arguments, fault) in [
        ("NoSuchMethod", "Folder", "group-1", "", "MethodNotFound"),
        ("PowerOnVM_Task", "Folder", "group-1", "", "MethodNotFound"),
        ("PowerOnVM_Task", "VirtualMachine", "vm-99999", "", "ManagedObjectNotFound"),
        ("RelocateVM_Task", "VirtualMachine", &vm, "<spec/>", "InvalidArgument"),
        ("CreateFolder", "Folder", "group-1", "<name></name>", "InvalidName"),
        ("ContinueRetrievePropertiesEx", COLLECTOR.0, COLLECTOR.1, "<token>7</token>", "InvalidArgument"),
        ("FindByUuid", "SearchIndex", "SearchIndex", "<uuid>x</uuid>", "InvalidArgument"),
    ] {
        assert_eq!(client.call(method, type_name, value, arguments).await, Err(fault.to_owned()), "{method}");
    }
}

/// Named selections that refer to each other, which clients have used for twenty years.
#[tokio::test(start_paused = true)]
async fn a_recursive_traversal_finds_everything_once_and_in_pages() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let traversal = |name: &str, type_name: &str, path: &str, next: &[&str]| {
        let next: String = next.iter().map(|name| format!("<selectSet><name>{name}</name></selectSet>")).collect();
        format!(
            "<selectSet xsi:type=\"TraversalSpec\"><name>{name}</name><type>{type_name}</type><path>{path}</path>\
             <skip>false</skip>{next}</selectSet>"
        )
    };
    let selections = [
        traversal("folder", "Folder", "childEntity", &["folder", "vms", "hosts", "members"]),
        traversal("vms", "Datacenter", "vmFolder", &["folder"]),
        traversal("hosts", "Datacenter", "hostFolder", &["folder"]),
        traversal("members", "ComputeResource", "host", &["guests"]),
        traversal("guests", "HostSystem", "vm", &[]),
    ]
    .concat();
    let spec = format!(
        "<specSet><propSet><type>VirtualMachine</type><pathSet>name</pathSet></propSet>\
         <propSet><type>HostSystem</type><pathSet>name</pathSet></propSet>\
         <objectSet><obj type=\"Folder\">group-1</obj><skip>false</skip>{selections}</objectSet></specSet>"
    );
    let page = "<options><maxObjects>10</maxObjects></options>";
    let mut answer =
        client.call("RetrievePropertiesEx", COLLECTOR.0, COLLECTOR.1, &format!("{spec}{page}")).await.unwrap();
    let mut found = std::collections::BTreeSet::new();
    let mut pages = 0;
    loop {
        pages += 1;
        let result = answer.child("returnval").unwrap();
        for object in result.children_named("objects") {
            assert!(found.insert(object.child_text("obj").unwrap().to_owned()), "reported twice");
        }
        let Some(token) = result.child_text("token") else { break };
        let token = format!("<token>{token}</token>");
        answer = client.call("ContinueRetrievePropertiesEx", COLLECTOR.0, COLLECTOR.1, &token).await.unwrap();
    }
    assert_eq!((found.len(), pages), (12 + 4, 2));
}

#[tokio::test(start_paused = true)]
async fn objects_are_found_by_uuid_name_and_address() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let vm = client.find("dc-1/vm/node-3").await;
    for (method, path, argument) in [
        ("FindByUuid", "config.uuid", "uuid"),
        ("FindByDnsName", "guest.hostName", "dnsName"),
        ("FindByIp", "guest.ipAddress", "ip"),
    ] {
        let value = client.text("VirtualMachine", &vm, path).await;
        let arguments = format!("<{argument}>{value}</{argument}><vmSearch>true</vmSearch>");
        assert_eq!(client.reference(method, "SearchIndex", "SearchIndex", &arguments).await, vm);
        let all = method.replace("FindBy", "FindAllBy");
        assert_eq!(client.reference(&all, "SearchIndex", "SearchIndex", &arguments).await, vm);
        let arguments = arguments.replace("true", "false");
        let answer = client.call(method, "SearchIndex", "SearchIndex", &arguments).await.unwrap();
        assert!(answer.child("returnval").is_none(), "{method} found a host");
    }
}

/// Clients rely on the order of elements; a field that is not in the schema would be a typo.
#[tokio::test(start_paused = true)]
async fn all_values_follow_the_schema_and_its_order() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let vm = client.find("dc-1/vm/node-1").await;
    let host = client.other_host(&vm).await;
    client.relocate(&vm, &host).await.unwrap();
    world.with(|core, now| {
        let vcenter = &mut core.vcenter;
        methods::bring_up_to_date(vcenter, client.cookie.as_deref().unwrap(), now);
        let scope = methods::scope(vcenter, client.cookie.as_deref(), now);
        let root = root_folder(scope.inventory).unwrap();
        let mut objects: Vec<Target> = scope.relations.descendants(root.into()).into_iter().map(Target::from).collect();
        objects.extend(scope.inventory.tasks().map(|(id, _)| Target::Inventory(id.into())));
        objects.extend(Singleton::ALL.iter().copied().map(Target::Singleton));
        let mut values = 0;
        for object in objects {
            for property in schema::properties(object.type_name()) {
                values += check(&scope.property(object, property));
            }
        }
        assert!(values > 1000, "only {values} values were checked");
    });
}

fn check(value: &Value) -> usize {
    match value {
        Value::Object(object) => {
            // Event types share the fields of their base type; network cards are not in the table.
            if let Some(known) = schema::fields(object.type_name) {
                let positions: Vec<usize> = object
                    .fields
                    .iter()
                    .map(|(name, _)| {
                        known
                            .iter()
                            .position(|field| field == name)
                            .unwrap_or_else(|| panic!("{}.{name}", object.type_name))
                    })
                    .collect();
                assert!(positions.is_sorted(), "{} is out of order", object.type_name);
            } else {
                let elsewhere = ["Virtual", "Event", "InvalidState"];
                let type_name = object.type_name;
                assert!(elsewhere.iter().any(|part| type_name.contains(part)), "{type_name} is not in the schema");
            }
            1 + object.fields.iter().map(|(_, value)| check(value)).sum::<usize>()
        }
        Value::List { items, .. } => 1 + items.iter().map(check).sum::<usize>(),
        _ => 1,
    }
}
