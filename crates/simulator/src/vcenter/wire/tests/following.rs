//! Filters: a client gets all changes and nothing else.

use std::time::Duration;

use super::client::{Client, Updates, quiet_world, read_updates};

async fn next(client: &Client, collector: &str, version: &str) -> Updates {
    read_updates(&client.wait(collector, version, "").await.unwrap()).expect("updates")
}

/// Whether there are no updates.
async fn silent(client: &Client, collector: &str, version: &str) -> bool {
    read_updates(&client.wait(collector, version, "<maxWaitSeconds>0</maxWaitSeconds>").await.unwrap()).is_none()
}

#[tokio::test(start_paused = true)]
async fn a_vmotion_is_one_change_of_one_object() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let vm = client.find("dc-1/vm/node-1").await;
    let host = client.other_host(&vm).await;
    let collector = client.follow("VirtualMachine", &["name", "runtime.host"], false).await;
    let first = next(&client, &collector, "").await;
    assert_eq!((first.objects.len(), first.truncated), (12, false));
    assert!(first.objects.iter().all(|(kind, _, changes)| kind == "enter" && changes.len() == 2));
    assert!(silent(&client, &collector, &first.version).await);
    let mover = {
        let (client, vm, host) = (client.clone(), vm.clone(), host.clone());
        tokio::spawn(async move { client.relocate(&vm, &host).await })
    };
    let second = next(&client, &collector, &first.version).await;
    let change = ("runtime.host".to_owned(), host.clone());
    assert_eq!(second.objects, [("modify".to_owned(), vm.clone(), vec![change])]);
    mover.await.unwrap().unwrap();
    assert!(silent(&client, &collector, &second.version).await);
}

#[tokio::test(start_paused = true)]
async fn a_filter_on_a_parent_sees_the_child_change() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let vm = client.find("dc-1/vm/node-1").await;
    for (partial, name, value) in [(false, "runtime", ""), (true, "runtime.host", "the host")] {
        let host = client.other_host(&vm).await;
        let value = if value.is_empty() { String::new() } else { host.clone() };
        let collector = client.follow("VirtualMachine", &["runtime"], partial).await;
        let first = next(&client, &collector, "").await;
        client.relocate(&vm, &host).await.unwrap();
        let second = next(&client, &collector, &first.version).await;
        let change = (name.to_owned(), value);
        assert_eq!(second.objects, [("modify".to_owned(), vm.clone(), vec![change])], "partial: {partial}");
    }
}

#[tokio::test(start_paused = true)]
async fn both_hosts_report_a_vmotion() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let vm = client.find("dc-1/vm/node-1").await;
    let from = client.text("VirtualMachine", &vm, "runtime.host").await;
    let to = client.other_host(&vm).await;
    let collector = client.follow("HostSystem", &["vm"], false).await;
    let first = next(&client, &collector, "").await;
    client.relocate(&vm, &to).await.unwrap();
    let second = next(&client, &collector, &first.version).await;
    let mut touched: Vec<&str> = second.objects.iter().map(|(_, object, _)| object.as_str()).collect();
    touched.sort_unstable();
    let mut expected = [from.as_str(), to.as_str()];
    expected.sort_unstable();
    assert_eq!(touched, expected);
}

#[tokio::test(start_paused = true)]
async fn vms_enter_and_leave_a_view() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let collector = client.follow("VirtualMachine", &["name"], false).await;
    let first = next(&client, &collector, "").await;
    let folder = client.find("dc-1/vm").await;
    let pool = client.find("dc-1/host/cluster-1/Resources").await;
    let arguments = format!(
        "<config><name>new &amp; shiny</name><numCPUs>2</numCPUs><memoryMB>2048</memoryMB></config>\
         <pool type=\"ResourcePool\">{pool}</pool>"
    );
    let task = client.reference("CreateVM_Task", "Folder", &folder, &arguments).await;
    client.await_task(&task).await.unwrap();
    let second = next(&client, &collector, &first.version).await;
    let [(kind, vm, changes)] = &second.objects[..] else { panic!("{second:?}") };
    assert_eq!((kind.as_str(), &changes[..]), ("enter", &[("name".to_owned(), "new & shiny".to_owned())][..]));
    let task = client.reference("Destroy_Task", "VirtualMachine", vm, "").await;
    client.await_task(&task).await.unwrap();
    let third = next(&client, &collector, &second.version).await;
    assert_eq!(third.objects, [("leave".to_owned(), vm.clone(), vec![])]);
    assert_eq!(client.property("VirtualMachine", vm, "name").await, Err("ManagedObjectNotFound".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn pages_are_marked_and_lost_answers_are_repeated() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let collector = client.follow("VirtualMachine", &["name"], false).await;
    let options = "<maxWaitSeconds>0</maxWaitSeconds><maxObjectUpdates>4</maxObjectUpdates>";
    let page = async |version: &str| read_updates(&client.wait(&collector, version, options).await.unwrap());
    let first = page("").await.unwrap();
    let second = page(&first.version).await.unwrap();
    let again = page(&first.version).await.unwrap();
    let third = page(&second.version).await.unwrap();
    assert_eq!((first.objects.len(), first.truncated), (4, true));
    assert_eq!(again, second);
    assert_eq!((third.objects.len(), third.truncated), (4, false), "the twelfth of twelve");
    assert_eq!(page(&third.version).await, None);
    let mut all: Vec<_> = [first.objects, second.objects, third.objects].concat();
    all.dedup();
    assert_eq!(all.len(), 12);
    assert_eq!(client.wait(&collector, "77", options).await, Err("InvalidCollectorVersion".to_owned()));
    let restarted = page("").await.unwrap();
    assert!(restarted.objects.iter().all(|(kind, ..)| kind == "enter"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_it_is_cancelled_or_its_collector_is_destroyed() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    for method in ["CancelWaitForUpdates", "DestroyPropertyCollector"] {
        let collector = client.follow("VirtualMachine", &["name"], false).await;
        let first = next(&client, &collector, "").await;
        let waiting = {
            let (client, collector) = (client.clone(), collector.clone());
            tokio::spawn(async move { client.wait(&collector, &first.version, "").await })
        };
        tokio::time::sleep(Duration::from_secs(3)).await;
        client.call(method, "PropertyCollector", &collector, "").await.unwrap();
        assert_eq!(waiting.await.unwrap(), Err("RequestCanceled".to_owned()), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_a_disconnected_client_no_longer_counts() {
    let world = quiet_world(|config| config.vcenter.session_idle_max = Duration::from_secs(60));
    let client = Client::logged_in(&world).await;
    let collector = client.follow("VirtualMachine", &["name"], false).await;
    let first = next(&client, &collector, "").await;
    let left = tokio::time::timeout(Duration::from_secs(600), client.wait(&collector, &first.version, "")).await;
    assert!(left.is_err(), "the client timed out");
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(client.property("Folder", "group-1", "name").await, Err("NotAuthenticated".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_new_filter_wakes_a_wait_and_a_destroyed_one_is_silent() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move { client.wait("propertyCollector", "", "").await })
    };
    tokio::time::sleep(Duration::from_secs(3)).await;
    let spec = "<spec><propSet><type>Folder</type><pathSet>name</pathSet></propSet>\
        <objectSet><obj type=\"Folder\">group-1</obj></objectSet></spec><partialUpdates>false</partialUpdates>";
    let filter = client.reference("CreateFilter", "PropertyCollector", "propertyCollector", spec).await;
    let updates = read_updates(&waiting.await.unwrap().unwrap()).unwrap();
    assert_eq!(updates.objects.len(), 1);
    client.call("DestroyPropertyFilter", "PropertyFilter", &filter, "").await.unwrap();
    assert!(silent(&client, "propertyCollector", "").await);
    let wrong = spec.replace("name</pathSet>", "nonsense</pathSet>");
    assert_eq!(
        client.call("CreateFilter", "PropertyCollector", "propertyCollector", &wrong).await,
        Err("InvalidProperty".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn rules_created_over_the_wire_are_visible_on_the_cluster() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let cluster = client.find("dc-1/host/cluster-1").await;
    let (one, two) = (client.find("dc-1/vm/node-1").await, client.find("dc-1/vm/node-2").await);
    let collector = client.follow("ClusterComputeResource", &["configurationEx"], false).await;
    let first = next(&client, &collector, "").await;
    let rule = |operation: &str, inside: &str| {
        format!("<spec><rulesSpec><operation>{operation}</operation>{inside}</rulesSpec></spec><modify>true</modify>")
    };
    let reconfigure = async |spec: String| {
        let method = "ReconfigureComputeResource_Task";
        let task = client.reference(method, "ClusterComputeResource", &cluster, &spec).await;
        client.await_task(&task).await
    };
    let info = format!(
        "<info xsi:type=\"ClusterAntiAffinityRuleSpec\"><enabled>true</enabled><name>apart</name>\
         <vm type=\"VirtualMachine\">{one}</vm><vm type=\"VirtualMachine\">{two}</vm></info>"
    );
    reconfigure(rule("add", &info)).await.unwrap();
    let second = next(&client, &collector, &first.version).await;
    assert_eq!(second.objects.len(), 1);
    let config = client.property("ClusterComputeResource", &cluster, "configurationEx").await.unwrap().unwrap();
    let shown = config.child("rule").unwrap();
    assert_eq!(shown.xsi_type.as_deref(), Some("ClusterAntiAffinityRuleSpec"));
    assert_eq!(shown.children_named("vm").count(), 2);
    assert_eq!(shown.child_text("enabled"), Some("true"));
    assert!(shown.child_text("ruleUuid").is_some_and(|uuid| uuid.len() == 36));
    assert_eq!(reconfigure(rule("add", &info)).await, Err("DuplicateName".to_owned()));
    let key = shown.child_text("key").unwrap();
    for wrong in ["", "<removeKey xsi:type=\"xsd:string\">apart</removeKey>"] {
        let arguments = rule("remove", wrong);
        let answer =
            client.call("ReconfigureComputeResource_Task", "ClusterComputeResource", &cluster, &arguments).await;
        assert_eq!(answer, Err("InvalidArgument".to_owned()));
    }
    reconfigure(rule("remove", &format!("<removeKey xsi:type=\"xsd:int\">{key}</removeKey>"))).await.unwrap();
    let config = client.property("ClusterComputeResource", &cluster, "configurationEx").await.unwrap().unwrap();
    assert!(config.child("rule").is_none());
}

#[tokio::test(start_paused = true)]
async fn events_are_paged_and_followed() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let vm = client.find("dc-1/vm/node-1").await;
    let filter = format!(
        "<filter><entity><entity type=\"VirtualMachine\">{vm}</entity><recursion>self</recursion></entity>\
         <eventTypeId>vim.event.VmMigratedEvent</eventTypeId></filter>"
    );
    let events = client.reference("CreateCollectorForEvents", "EventManager", "EventManager", &filter).await;
    let read = async |method: &str, count: u32| -> Vec<i32> {
        let arguments = format!("<maxCount>{count}</maxCount>");
        let answer = client.call(method, "EventHistoryCollector", &events, &arguments).await.unwrap();
        let keys = answer.children_named("returnval").map(|event| event.child_text("key").unwrap().parse().unwrap());
        keys.collect()
    };
    assert_eq!(read("ReadNextEvents", 10).await, Vec::<i32>::new());
    for _ in 0..3 {
        let host = client.other_host(&vm).await;
        client.relocate(&vm, &host).await.unwrap();
    }
    let (two, one) = (read("ReadNextEvents", 2).await, read("ReadNextEvents", 2).await);
    assert_eq!((two.len(), one.len()), (2, 1));
    assert!(two.is_sorted() && two[1] < one[0], "from old to new");
    assert_eq!(read("ReadPreviousEvents", 1).await, one, "and back");
    let page = client.property("EventHistoryCollector", &events, "latestPage").await.unwrap().unwrap();
    let newest: Vec<&str> = page.children_named("Event").map(|event| event.child_text("key").unwrap()).collect();
    assert_eq!(newest.first().copied(), Some(one[0].to_string().as_str()), "newest first");
}
