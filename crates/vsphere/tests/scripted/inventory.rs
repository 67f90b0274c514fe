//! The inventory watch on a scripted vCenter and a paused clock: the exact events and their times.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::vcenter::{Outcome, PASSWORD, Step, Vcenter, at, content, cookie, object, page, reference, text};
use bytes::Bytes;
use engine::ports::RuleStore as _;
use http::{Request, Response};
use http_body_util::Full;
use model::event::{ClusterFacts, Event, HostConnection, HostFacts, HostLoadFacts, Source, VcenterId, VmFacts};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use vsphere::transport::Transport;
use vsphere::{VcenterConfig, VcenterStatus, inventory};

pub const ID: VcenterId = VcenterId(7);
pub const SOURCE: Source = Source::Vcenter(ID);

/// A run, and the other ends of its channels.
pub struct Following {
    events: mpsc::Receiver<Event>,
    status: watch::Receiver<VcenterStatus>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

pub fn follow(config: VcenterConfig, capacity: usize) -> Following {
    let (sender, events) = mpsc::channel(capacity);
    let (status_sender, status) = watch::channel(VcenterStatus::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async {
        let _ = stopped.await;
    };
    let jitter = engine::runtime::Jitter::from_seed(1);
    let task = tokio::spawn(inventory::run(
        config,
        ID,
        inventory::Instances::default(),
        sender,
        status_sender,
        jitter,
        stopped,
    ));
    Following { events, status, stop: Some(stop), task }
}

impl Following {
    /// All events within the next seconds.
    pub async fn events_for(&mut self, seconds: u64) -> Vec<Event> {
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut events = Vec::new();
        while let Ok(Some(event)) = tokio::time::timeout_at(end, self.events.recv()).await {
            events.push(event);
        }
        events
    }

    /// Stops the run. Returns how long that takes.
    async fn stop(mut self) -> Duration {
        let began = Instant::now();
        self.stop.take().unwrap().send(()).unwrap();
        self.task.await.unwrap();
        began.elapsed()
    }
}

fn vm_object(kind: &str, id: &str, host: &str) -> String {
    let name = text(&format!("name-of-{id}"));
    object(kind, "VirtualMachine", id, &[("name", &name), ("runtime.host", &reference("HostSystem", host))])
}

pub fn vm(id: &str, host: &str) -> Event {
    let vm =
        VmFacts { id: id.to_owned(), name: format!("name-of-{id}"), host: Some(host.to_owned()), ..VmFacts::default() };
    Event::VmApplied { vcenter: ID, vm }
}

fn entity(kind: &str, of: &str, id: &str, name: &str, parent: (&str, &str)) -> String {
    object(kind, of, id, &[("name", &text(name)), ("parent", &reference(parent.0, parent.1))])
}

fn host(maintenance: bool, datacenter: &str) -> Event {
    let host = HostFacts {
        id: "host-1".to_owned(),
        name: "esx-1".to_owned(),
        cluster: Some("domain-c1".to_owned()),
        datacenter: Some(datacenter.to_owned()),
        connection: HostConnection::Connected,
        maintenance,
        load: None,
        datastores_missing: Vec::new(),
    };
    Event::HostApplied { vcenter: ID, host }
}

fn cluster(datacenter: &str, drs_enabled: bool) -> Event {
    let cluster = ClusterFacts {
        id: "domain-c1".to_owned(),
        name: "C1".to_owned(),
        datacenter: Some(datacenter.to_owned()),
        drs_enabled,
        ..ClusterFacts::default()
    };
    Event::ClusterApplied { vcenter: ID, cluster }
}

/// A datacenter with one cluster, one host and one VM. Parents are in the last page.
pub fn three_pages() -> Vec<Step> {
    let more = |objects: String| at(0, Outcome::Page { objects, truncated: true });
    vec![
        more(vm_object("enter", "vm-1", "host-1")),
        more(
            entity("enter", "HostSystem", "host-1", "esx-1", ("ClusterComputeResource", "domain-c1"))
                + &entity("enter", "ClusterComputeResource", "domain-c1", "C1", ("Folder", "group-h1")),
        ),
        at(
            0,
            page(&[
                entity("enter", "Folder", "group-h1", "host", ("Datacenter", "datacenter-1")),
                entity("enter", "Datacenter", "datacenter-1", "Paris", ("Folder", "group-d1")),
            ]),
        ),
    ]
}

pub fn identified() -> Event {
    Event::VcenterIdentified { vcenter: ID, instance_uuid: "i-1".into() }
}

pub fn listed() -> Vec<Event> {
    vec![
        identified(),
        Event::RelistBegan(SOURCE),
        cluster("Paris", false),
        host(false, "Paris"),
        vm("vm-1", "host-1"),
        Event::RelistEnded(SOURCE),
    ]
}

pub fn one_vm() -> Vec<Step> {
    vec![at(0, page(&[vm_object("enter", "vm-1", "host-1")]))]
}

pub fn one_vm_listed() -> Vec<Event> {
    vec![identified(), Event::RelistBegan(SOURCE), vm("vm-1", "host-1"), Event::RelistEnded(SOURCE)]
}

#[tokio::test(start_paused = true)]
async fn everything_is_emitted_once_after_the_last_page_and_then_each_change() {
    let mut waits = three_pages();
    waits.extend([
        at(5, page(&[vm_object("modify", "vm-1", "host-2")])),
        // The same update twice, an update of an unknown object, and the removal of an unknown object.
        at(1, page(&[vm_object("modify", "vm-1", "host-2"), vm_object("modify", "vm-1", "host-2")])),
        at(1, page(&[vm_object("modify", "vm-2", "host-1"), object("leave", "VirtualMachine", "vm-9", &[])])),
        at(1, page(&[vm_object("enter", "vm-2", "host-1"), object("leave", "VirtualMachine", "vm-1", &[])])),
        at(1, page(&[object("modify", "Datacenter", "datacenter-1", &[("name", &text("Lyon"))])])),
        at(1, page(&[object("modify", "HostSystem", "host-1", &[("name", &text("renamed"))])])),
        at(1, page(&[object("leave", "HostSystem", "host-1", &[])])),
        at(1, page(&[object("leave", "ClusterComputeResource", "domain-c1", &[])])),
    ]);
    let vcenter = Vcenter::new(waits);
    let mut following = follow(vcenter.config(), 64);
    let mut expected = listed();
    let mut renamed = host(false, "Lyon");
    if let Event::HostApplied { host, .. } = &mut renamed {
        host.name = "renamed".to_owned();
    }
    expected.extend([
        vm("vm-1", "host-2"),
        vm("vm-2", "host-1"),
        Event::VmRemoved { vcenter: ID, id: "vm-1".to_owned() },
        cluster("Lyon", false),
        host(false, "Lyon"),
        renamed,
        Event::HostRemoved { vcenter: ID, id: "host-1".to_owned() },
        Event::ClusterRemoved { vcenter: ID, id: "domain-c1".to_owned() },
    ]);
    assert_eq!(following.events_for(600).await, expected);
    let status = following.status.borrow().clone();
    assert!(matches!(&status, VcenterStatus::InSync { about } if about.full_name == "Scripted vCenter"), "{status:?}");
    assert_eq!(vcenter.waits_dropped(), 0, "dropping a pending wait may lose updates");
    assert!(following.stop().await < Duration::from_secs(1));
    let mut released = vcenter.methods().split_off(vcenter.methods().len() - 5);
    assert_eq!(released.pop().as_deref(), Some("Logout"));
    released.sort_unstable();
    assert_eq!(
        released,
        ["DestroyPropertyCollector", "DestroyPropertyCollector", "DestroyView", "DestroyView"],
        "both watches"
    );
    assert_eq!(vcenter.calls("Login").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_ends_in_lost_and_a_complete_new_list() {
    let mut waits = three_pages();
    waits[1] = at(0, Outcome::Dropped);
    waits.truncate(2);
    waits.extend(three_pages());
    let vcenter = Vcenter::new(waits);
    let mut following = follow(vcenter.config(), 64);
    let mut expected = vec![identified(), Event::RelistBegan(SOURCE), Event::Lost(SOURCE)];
    expected.extend(listed());
    assert_eq!(following.events_for(60).await, expected);
}

#[tokio::test(start_paused = true)]
async fn endless_pages_are_an_error() {
    let more = Outcome::Page { objects: vm_object("enter", "vm-1", "host-1"), truncated: true };
    let vcenter = Vcenter::new(vec![at(10, more); 61]);
    // A list does not wait, so without `slow` the script would never take its steps. The test is about a slow server.
    vcenter.script.lock().unwrap().slow = true;
    let mut following = follow(vcenter.config(), 64);
    assert_eq!(following.events_for(599).await, [identified(), Event::RelistBegan(SOURCE)]);
    assert_eq!(following.events_for(2).await, [Event::Lost(SOURCE)]);
}

/// The end of a session during a wait: as a fault, and as the reason of missing properties.
pub fn session_ends() -> [Outcome; 2] {
    let missing = "<objectSet><kind>modify</kind><obj type=\"VirtualMachine\">vm-1</obj><missingSet>\
                   <path>runtime.host</path><fault><fault xsi:type=\"NotAuthenticated\"/>\
                   <localizedMessage>gone</localizedMessage></fault></missingSet></objectSet>";
    [Outcome::Fault("NotAuthenticated"), page(&[missing.to_owned()])]
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_is_replaced_at_once_but_only_once_without_backoff() {
    for end in session_ends() {
        let mut waits = one_vm();
        waits.push(at(5, end.clone()));
        waits.extend(one_vm());
        waits.push(at(5, end));
        waits.extend(one_vm());
        let vcenter = Vcenter::new(waits);
        let mut following = follow(vcenter.config(), 64);
        let mut expected = one_vm_listed();
        for _ in 0..2 {
            expected.push(Event::Lost(SOURCE));
            expected.extend(one_vm_listed());
        }
        assert_eq!(following.events_for(120).await, expected);
        let logins = vcenter.calls("Login");
        assert_eq!(logins[1], Duration::from_secs(5), "at once");
        let pause = logins[2] - Duration::from_secs(10);
        assert!(pause >= Duration::from_secs(1) && pause <= Duration::from_secs(2), "{logins:?}");
        following.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_during_the_periodic_read_is_replaced_too() {
    let vcenter = Vcenter::new(one_vm());
    vcenter.script.lock().unwrap().session_ends_at_reading = true;
    let mut following = follow(vcenter.config(), 64);
    assert_eq!(following.events_for(59).await, one_vm_listed());
    // The pending wait ends normally, then the periodic read fails, then the next list starts.
    vcenter.script.lock().unwrap().waits.extend(one_vm());
    let mut expected = vec![Event::Lost(SOURCE)];
    expected.extend(one_vm_listed());
    assert_eq!(following.events_for(5).await, expected);
    assert_eq!(vcenter.calls("Login")[1], Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn lost_is_emitted_once_no_matter_how_many_attempts_fail() {
    let mut waits = one_vm();
    // The other watch is in the middle of a wait.
    waits.push(at(85, Outcome::Dropped));
    let vcenter = Vcenter::new(waits);
    let mut following = follow(vcenter.config(), 64);
    assert_eq!(following.events_for(84).await, one_vm_listed());
    vcenter.script.lock().unwrap().unreachable = true;
    assert_eq!(following.events_for(600).await, [Event::Lost(SOURCE)]);
    let status = following.status.borrow().clone();
    let VcenterStatus::Lost { error, attempts } = &status else { panic!("{status:?}") };
    assert!(error.contains("vc.example.org") && error.contains("connection reset"), "{error}");
    assert!(*attempts > 8, "{attempts}");
    let attempts = vcenter.calls("RetrieveServiceContent");
    let pauses: Vec<Duration> = attempts.windows(2).skip(1).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses[0] <= Duration::from_secs(4), "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause >= Duration::from_secs(1) && *pause <= Duration::from_secs(60)));
    assert!(pauses.last().is_some_and(|pause| *pause >= Duration::from_secs(30)), "{pauses:?}");

    vcenter.script.lock().unwrap().unreachable = false;
    vcenter.script.lock().unwrap().waits.extend(one_vm());
    assert_eq!(following.events_for(61).await, one_vm_listed());
    assert!(matches!(*following.status.borrow(), VcenterStatus::InSync { .. }));

    // After a stable session, the next failure starts with short waits again.
    following.events_for(90).await;
    vcenter.script.lock().unwrap().waits.push_back(at(0, Outcome::Dropped));
    vcenter.script.lock().unwrap().waits.extend(one_vm());
    let mut expected = vec![Event::Lost(SOURCE)];
    expected.extend(one_vm_listed());
    assert_eq!(following.events_for(30 + 2).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_a_response_is_an_error_after_its_limit() {
    let mut waits = one_vm();
    waits.push(at(0, Outcome::Hangs));
    waits.extend(one_vm());
    let vcenter = Vcenter::new(waits);
    let mut following = follow(vcenter.config(), 64);
    assert_eq!(following.events_for(80).await, one_vm_listed());
    let mut expected = vec![Event::Lost(SOURCE)];
    expected.extend(one_vm_listed());
    assert_eq!(following.events_for(30).await, expected);
    // The session may still exist on the server, so it is logged out.
    assert_eq!(vcenter.calls("Logout").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn changes_that_the_server_does_not_report_are_read_periodically_and_emitted() {
    let vcenter = Vcenter::new(three_pages());
    let mut following = follow(vcenter.config(), 64);
    assert_eq!(following.events_for(130).await, listed());
    vcenter.script.lock().unwrap().read_again =
        content("HostSystem", "host-1", &[("runtime.inMaintenanceMode", &text("true"))])
            + &content(
                "ClusterComputeResource",
                "domain-c1",
                &[("configurationEx", "<val><drsConfig><enabled>true</enabled></drsConfig></val>")],
            )
            + &content("HostSystem", "host-never-seen", &[("runtime.inMaintenanceMode", &text("true"))]);
    assert_eq!(following.events_for(600).await, [cluster("Paris", true), host(true, "Paris")]);
}

#[tokio::test(start_paused = true)]
async fn the_load_of_hosts_is_in_the_list_and_read_periodically_but_not_watched() {
    let used = |mhz: &str| {
        let figures = [
            ("summary.quickStats.overallCpuUsage", mhz),
            ("summary.quickStats.overallMemoryUsage", "4096"),
            ("summary.hardware.cpuMhz", "2400"),
            ("summary.hardware.numCpuCores", "16"),
            ("summary.hardware.memorySize", "137438953472"),
        ];
        let values = figures.map(|(path, value)| (path, text(value)));
        let values: Vec<(&str, &str)> = values.iter().map(|(path, value)| (*path, value.as_str())).collect();
        content("HostSystem", "host-1", &values)
    };
    let loaded = |cpu_used_mhz| {
        let load = HostLoadFacts {
            cpu_used_mhz,
            cpu_capacity_mhz: 38_400,
            memory_used_mib: 4096,
            memory_capacity_mib: 131_072,
        };
        let Event::HostApplied { vcenter, host } = host(false, "Paris") else { unreachable!() };
        Event::HostApplied { vcenter, host: HostFacts { load: Some(load), ..host } }
    };
    let vcenter = Vcenter::new(three_pages());
    {
        let mut script = vcenter.script.lock().unwrap();
        (script.loads, script.read_again) = (used("1000"), used("1000"));
    }
    let mut following = follow(vcenter.config(), 64);
    let mut expected = listed();
    expected[3] = loaded(1000);
    // The periodic read runs twice with the same values.
    assert_eq!(following.events_for(130).await, expected);
    vcenter.script.lock().unwrap().read_again = used("9000");
    assert_eq!(following.events_for(600).await, [loaded(9000)]);
    let watched = vcenter.bodies("CreateFilter");
    assert!(watched.len() == 2 && watched.iter().all(|body| !body.contains("quickStats")), "{watched:#?}");
    // The last values of a host that is not responding are out of date.
    vcenter.script.lock().unwrap().read_again =
        content("HostSystem", "host-1", &[("runtime.connectionState", &text("notResponding"))]);
    let mut lost = host(false, "Paris");
    if let Event::HostApplied { host, .. } = &mut lost {
        host.connection = HostConnection::NotResponding;
    }
    assert_eq!(following.events_for(600).await, [lost]);
}

#[tokio::test(start_paused = true)]
async fn a_host_is_in_maintenance_while_a_task_enters_it() {
    let task = |state: &str| {
        let description = text("HostSystem.enterMaintenanceMode");
        content("Task", "task-1", &[("info.descriptionId", &description), ("info.state", &text(state))])
    };
    let tasks = "<val><ManagedObjectReference type=\"Task\">task-1</ManagedObjectReference></val>";
    let mut waits = three_pages();
    waits.push(at(5, page(&[object("modify", "HostSystem", "host-1", &[("recentTask", tasks)])])));
    let vcenter = Vcenter::new(waits);
    vcenter.script.lock().unwrap().tasks = task("running");
    let mut following = follow(vcenter.config(), 64);
    let mut expected = listed();
    expected.push(host(true, "Paris"));
    assert_eq!(following.events_for(130).await, expected);
    // The task is cancelled. Nothing changes on the host, so only another query of the task shows it.
    vcenter.script.lock().unwrap().tasks = task("error");
    assert_eq!(following.events_for(61).await, [host(false, "Paris")]);
}

#[tokio::test(start_paused = true)]
async fn a_task_on_a_cluster_triggers_a_read_of_its_settings() {
    let tasks = "<val><ManagedObjectReference type=\"Task\">task-1</ManagedObjectReference></val>";
    let settings = "<val><drsConfig><enabled>true</enabled></drsConfig></val>";
    let cluster_object =
        |properties: &[(&str, &str)]| page(&[object("modify", "ClusterComputeResource", "domain-c1", properties)]);
    let mut waits = three_pages();
    waits.push(at(5, cluster_object(&[("recentTask", tasks)])));
    waits.push(at(5, cluster_object(&[("recentTask", tasks), ("configurationEx", settings)])));
    let vcenter = Vcenter::new(waits);
    vcenter.script.lock().unwrap().read_again =
        content("ClusterComputeResource", "domain-c1", &[("configurationEx", settings)]);
    let mut following = follow(vcenter.config(), 64);
    let mut expected = listed();
    expected.push(cluster("Paris", true));
    assert_eq!(following.events_for(50).await, expected);
    // One read after that of the host loads: for the second task the server itself reported the change.
    assert_eq!(vcenter.calls("RetrievePropertiesEx"), [Duration::ZERO, Duration::from_secs(5)]);
}

#[tokio::test(start_paused = true)]
async fn number_2_a_wrong_password_is_sent_rarely_and_the_status_does_not_show_it() {
    let vcenter = Vcenter::new(one_vm());
    vcenter.script.lock().unwrap().logins = vec![Outcome::Fault("InvalidLogin"); 2].into();
    let config = vcenter.config();
    let rules = vsphere::Rules::new([(ID, config.clone())]);
    let mut following = follow(config, 64);
    assert_eq!(following.events_for(110).await, [Event::Lost(SOURCE)]);
    let status = following.status.borrow().clone();
    assert!(matches!(&status, VcenterStatus::Lost { error, attempts: 2.. } if error.contains("paused")), "{status:?}");
    assert!(!format!("{status:?}").contains(PASSWORD));
    // The writer of rules shares the wait.
    rules.read(ID, "domain-c1").await.unwrap_err();
    assert_eq!(vcenter.calls("Login"), [Duration::ZERO]);
    assert_eq!(following.events_for(500).await, one_vm_listed());
    let sent = vcenter.calls("Login");
    let waits: Vec<u64> = sent.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    // The attempt after the wait follows within the longest back-off.
    assert!(matches!(waits[..], [120..=180, 240..=300]), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn stopping_takes_seconds_even_if_the_server_or_the_receiver_hangs() {
    // In the middle of a wait, with a server that no longer responds.
    let vcenter = Vcenter::new(one_vm());
    let mut following = follow(vcenter.config(), 64);
    following.events_for(3).await;
    vcenter.script.lock().unwrap().hangs = true;
    assert!(following.stop().await <= Duration::from_secs(5));

    // With a receiver that takes no events.
    let vcenter = Vcenter::new(one_vm());
    let following = follow(vcenter.config(), 1);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(following.stop().await <= Duration::from_secs(1));
    assert_eq!(vcenter.calls("Logout").len(), 1);

    // Between two attempts.
    let vcenter = Vcenter::new([]);
    vcenter.script.lock().unwrap().unreachable = true;
    let mut following = follow(vcenter.config(), 64);
    following.events_for(300).await;
    assert!(following.stop().await <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_closed_receiver_ends_the_run() {
    let mut waits = one_vm();
    waits.push(at(5, page(&[vm_object("modify", "vm-1", "host-2")])));
    let vcenter = Vcenter::new(waits);
    let Following { events, task, stop, .. } = follow(vcenter.config(), 64);
    drop(events);
    timeout(Duration::from_secs(60), task).await.expect("it ends by itself").unwrap();
    assert_eq!(vcenter.calls("Logout").len(), 1);
    drop(stop);
}

#[tokio::test(start_paused = true)]
async fn one_vcenter_being_down_does_not_stop_another() {
    let down = Vcenter::new([]);
    down.script.lock().unwrap().hangs = true;
    let up = Vcenter::new(one_vm());
    let mut lost = follow(down.config(), 64);
    let mut fine = follow(up.config(), 64);
    assert_eq!(fine.events_for(5).await, one_vm_listed());
    assert_eq!(lost.events_for(300).await, [Event::Lost(SOURCE)]);
}

#[tokio::test(start_paused = true)]
async fn an_axum_router_can_serve_as_a_vcenter() {
    let vcenter = Vcenter::new(one_vm());
    let answering = vcenter.clone();
    let router = axum::Router::new().fallback(move |request: axum::extract::Request| {
        let vcenter = answering.clone();
        async move {
            let session = cookie(&request);
            let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
            vcenter.answer(&String::from_utf8_lossy(&body), session.as_deref()).await.unwrap()
        }
    });
    let mut config = vcenter.config();
    config.transport = Some(vsphere::transport::Transport::service(router));
    let mut following = follow(config, 64);
    assert_eq!(following.events_for(86_400).await, one_vm_listed());
    following.stop().await;
}

/// A run works on any runtime, because it is `Send`.
#[test]
fn a_run_may_move_between_threads() {
    fn movable<F: Future + Send + 'static>(_: F) {}
    let vcenter = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let config = vcenter.block_on(async { Vcenter::new([]).config() });
    let (events, _) = mpsc::channel(1);
    let (status, _) = watch::channel(VcenterStatus::default());
    movable(inventory::run(
        config,
        ID,
        inventory::Instances::default(),
        events,
        status,
        engine::runtime::Jitter::from_seed(1),
        std::future::pending(),
    ));
}

/// A vCenter with one tag, which `vm-1` has, and many others. Its tagging API takes this long for each response.
fn with_tags(vcenter: &Vcenter, takes: &Arc<Mutex<Duration>>) -> VcenterConfig {
    let (soap, takes) = (vcenter.transport(), takes.clone());
    let mut config = vcenter.config();
    config.scope.tags = vec!["node".to_owned()];
    config.transport = Some(Transport::service(tower::service_fn(move |request: Request<Full<Bytes>>| {
        let (soap, takes) = (soap.clone(), *takes.lock().unwrap());
        async move {
            let Some(path) = request.uri().path().strip_prefix("/rest/com/vmware/cis").map(str::to_owned) else {
                return Ok::<_, Box<dyn std::error::Error + Send + Sync>>(soap.exchange(request).await?.map(Full::new));
            };
            tokio::time::sleep(takes).await;
            let value = match path.as_str() {
                "/session" => serde_json::json!("a session"),
                "/tagging/category" => serde_json::json!([]),
                "/tagging/tag" => (0..160).map(|number| format!("t{number}")).collect(),
                "/tagging/tag/id:t0" => serde_json::json!({ "name": "node", "category_id": "c" }),
                path if path.starts_with("/tagging/tag/") => serde_json::json!({ "name": "other", "category_id": "c" }),
                _ => serde_json::json!([{ "id": "vm-1", "type": "VirtualMachine" }]),
            };
            let body = serde_json::json!({ "value": value }).to_string();
            Ok(Response::new(Full::new(Bytes::from(body))))
        }
    })));
    config
}

#[tokio::test(start_paused = true)]
async fn slow_tags_delay_the_first_list_but_are_no_part_of_it_and_later_lists_do_not_wait_for_them() {
    let mut waits = one_vm();
    waits.push(at(300, Outcome::Dropped));
    waits.extend(one_vm());
    let vcenter = Vcenter::new(waits);
    let takes = Arc::new(Mutex::new(Duration::from_secs(2)));
    let mut following = follow(with_tags(&vcenter, &takes), 64);
    // 160 names, four at a time, take longer than a read may take. The next attempt continues.
    assert_eq!(following.events_for(59).await, [identified()]);
    let error = |following: &Following| match &*following.status.borrow() {
        VcenterStatus::Lost { error, .. } => error.clone(),
        status => format!("{status:?}"),
    };
    assert_eq!(following.events_for(2).await, [Event::Lost(SOURCE)]);
    assert!(error(&following).contains("tags of vc.example.org"), "{}", error(&following));
    assert_eq!(following.events_for(120).await, one_vm_listed());

    // From now on the tagging API does not respond. The list after a lost connection uses what is known.
    *takes.lock().unwrap() = Duration::from_secs(3600);
    let mut expected = vec![Event::Lost(SOURCE)];
    expected.extend(one_vm_listed());
    assert_eq!(following.events_for(600).await, expected);
    assert!(matches!(*following.status.borrow(), VcenterStatus::InSync { .. }));
}
