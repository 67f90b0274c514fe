//! Random, malformed and truncated requests: each is answered, none crashes or blocks the server.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use http::{Request, StatusCode, header};
use simulator::seed::{Seed, Stream};
use simulator::vcenter::{DrsLevel, wire};
use simulator::world::{Config, World};
use simulator::{Clock, clock};
use tower::ServiceExt;

const REQUESTS: u32 = 10_000;
/// In virtual time. A mutated `maxWaitSeconds` may validly be much longer, but then its client times out.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The parts of valid requests, and some invalid ones.
const METHODS: &[&str] = &[
    "Login",
    "Logout",
    "CurrentTime",
    "TerminateSession",
    "SessionIsActive",
    "RetrieveServiceContent",
    "RetrieveProperties",
    "RetrievePropertiesEx",
    "ContinueRetrievePropertiesEx",
    "CancelRetrievePropertiesEx",
    "CreateFilter",
    "DestroyPropertyFilter",
    "CreatePropertyCollector",
    "DestroyPropertyCollector",
    "WaitForUpdatesEx",
    "CheckForUpdates",
    "CancelWaitForUpdates",
    "CreateContainerView",
    "CreateListView",
    "ModifyListView",
    "ResetListView",
    "DestroyView",
    "FindByInventoryPath",
    "FindChild",
    "FindByUuid",
    "FindByIp",
    "FindAllByDnsName",
    "QueryEvents",
    "CreateCollectorForEvents",
    "CreateCollectorForTasks",
    "ReadNextEvents",
    "ReadPreviousTasks",
    "SetCollectorPageSize",
    "ResetCollector",
    "DestroyCollector",
    "CancelTask",
    "CreateFolder",
    "Rename_Task",
    "Destroy_Task",
    "ReconfigureComputeResource_Task",
    "CreateVM_Task",
    "ReconfigVM_Task",
    "RelocateVM_Task",
    "MigrateVM_Task",
    "PowerOnVM_Task",
    "PowerOffVM_Task",
    "SuspendVM_Task",
    "ShutdownGuest",
    "PowerOnMultiVM_Task",
    "EnterMaintenanceMode_Task",
    "ExitMaintenanceMode_Task",
    "DisconnectHost_Task",
    "ReconnectHost_Task",
    "QueryOptions",
    "ApplyRecommendation",
    "NoSuchMethod",
];
const OBJECTS: &[(&str, &str)] = &[
    ("ServiceInstance", "ServiceInstance"),
    ("PropertyCollector", "propertyCollector"),
    ("ViewManager", "ViewManager"),
    ("SessionManager", "SessionManager"),
    ("EventManager", "EventManager"),
    ("TaskManager", "TaskManager"),
    ("SearchIndex", "SearchIndex"),
    ("OptionManager", "VpxSettings"),
    ("Folder", "group-1"),
    ("Folder", "group-2"),
    ("Datacenter", "datacenter-6"),
    ("ClusterComputeResource", "domain-c-9"),
    ("ResourcePool", "resgroup-10"),
    ("HostSystem", "host-11"),
    ("HostSystem", "host-12"),
    ("VirtualMachine", "vm-15"),
    ("VirtualMachine", "vm-16"),
    ("VirtualMachine", "vm-99999999999"),
    ("Task", "task-40"),
    ("ContainerView", "session[x]1"),
    ("", ""),
];
const FIELDS: &[&str] = &[
    "spec",
    "specSet",
    "propSet",
    "objectSet",
    "selectSet",
    "obj",
    "type",
    "path",
    "pathSet",
    "all",
    "skip",
    "name",
    "config",
    "pool",
    "host",
    "vm",
    "entity",
    "filter",
    "recursion",
    "time",
    "beginTime",
    "version",
    "options",
    "maxWaitSeconds",
    "maxObjectUpdates",
    "maxObjects",
    "maxCount",
    "token",
    "userName",
    "password",
    "sessionId",
    "rulesSpec",
    "groupSpec",
    "operation",
    "info",
    "removeKey",
    "key",
    "enabled",
    "drsConfig",
    "dasConfig",
    "option",
    "value",
    "extraConfig",
    "numCPUs",
    "memoryMB",
    "newName",
    "uuid",
    "ip",
    "vmSearch",
    "inventoryPath",
    "container",
    "recursive",
    "partialUpdates",
    "timeout",
    "add",
    "remove",
    "ruleUuid",
];
const TEXTS: &[&str] = &[
    "true",
    "false",
    "0",
    "1",
    "-1",
    "2147483648",
    "1e9",
    "",
    "name",
    "runtime.host",
    "config.hardware.device[4000]",
    "a..b",
    "[\"",
    "VirtualMachine",
    "ManagedEntity",
    "ContainerView",
    "view",
    "childEntity",
    "all",
    "self",
    "edit",
    "manual",
    "dc-1/vm/node-1",
    "%2f%",
    "2026-01-01T00:00:00Z",
    "&amp;",
    "&#0;",
    "&x;",
    "<![CDATA[]]>",
    "é\u{1F600}",
];
const TYPES: &[&str] = &[
    "TraversalSpec",
    "SelectionSpec",
    "ClusterAntiAffinityRuleSpec",
    "ClusterVmHostRuleInfo",
    "ClusterVmGroup",
    "ClusterHostGroup",
    "xsd:int",
    "nonsense",
];

/// Requests of real clients: method, object, arguments.
const HONEST: &[(&str, &str, &str)] = &[
    (
        "RetrievePropertiesEx",
        "<_this type=\"PropertyCollector\">propertyCollector</_this>",
        "<specSet><propSet><type>ManagedEntity</type><pathSet>name</pathSet></propSet><objectSet>\
      <obj type=\"Folder\">group-1</obj><skip>false</skip><selectSet xsi:type=\"TraversalSpec\"><name>f</name>\
      <type>Folder</type><path>childEntity</path><selectSet><name>f</name></selectSet><selectSet><name>d</name>\
      </selectSet></selectSet><selectSet xsi:type=\"TraversalSpec\"><name>d</name><type>Datacenter</type>\
      <path>vmFolder</path><selectSet><name>f</name></selectSet></selectSet></objectSet></specSet>\
      <options><maxObjects>5</maxObjects></options>",
    ),
    (
        "RetrieveProperties",
        "<_this type=\"PropertyCollector\">propertyCollector</_this>",
        "<specSet><propSet><type>VirtualMachine</type><all>true</all></propSet><objectSet>\
      <obj type=\"VirtualMachine\">vm-15</obj></objectSet></specSet>",
    ),
    (
        "CreateFilter",
        "<_this type=\"PropertyCollector\">propertyCollector</_this>",
        "<spec><propSet><type>HostSystem</type><pathSet>runtime</pathSet><pathSet>vm</pathSet></propSet><objectSet>\
      <obj type=\"HostSystem\">host-11</obj></objectSet></spec><partialUpdates>true</partialUpdates>",
    ),
    (
        "WaitForUpdatesEx",
        "<_this type=\"PropertyCollector\">propertyCollector</_this>",
        "<version></version><options><maxWaitSeconds>1</maxWaitSeconds><maxObjectUpdates>3</maxObjectUpdates></options>",
    ),
    (
        "CreateContainerView",
        "<_this type=\"ViewManager\">ViewManager</_this>",
        "<container type=\"Folder\">group-1</container><type>VirtualMachine</type><recursive>true</recursive>",
    ),
    (
        "ReconfigureComputeResource_Task",
        "<_this type=\"ClusterComputeResource\">domain-c-9</_this>",
        "<spec xsi:type=\"ClusterConfigSpecEx\"><drsConfig><enabled>true</enabled><defaultVmBehavior>manual\
      </defaultVmBehavior></drsConfig><rulesSpec><operation>add</operation><info \
      xsi:type=\"ClusterAntiAffinityRuleSpec\"><enabled>true</enabled><name>r</name><vm type=\"VirtualMachine\">vm-15\
      </vm><vm type=\"VirtualMachine\">vm-16</vm></info></rulesSpec><groupSpec><operation>add</operation><info \
      xsi:type=\"ClusterHostGroup\"><name>g</name><host type=\"HostSystem\">host-11</host></info></groupSpec></spec>\
      <modify>true</modify>",
    ),
    (
        "CreateVM_Task",
        "<_this type=\"Folder\">group-2</_this>",
        "<config><name>v</name><numCPUs>1</numCPUs><memoryMB>512</memoryMB><extraConfig xsi:type=\"OptionValue\">\
      <key>guestinfo.bridger.role</key><value xsi:type=\"xsd:string\">node</value></extraConfig></config>\
      <pool type=\"ResourcePool\">resgroup-10</pool>",
    ),
    (
        "RelocateVM_Task",
        "<_this type=\"VirtualMachine\">vm-15</_this>",
        "<spec><host type=\"HostSystem\">host-12</host></spec>",
    ),
    ("PowerOffVM_Task", "<_this type=\"VirtualMachine\">vm-16</_this>", ""),
    ("EnterMaintenanceMode_Task", "<_this type=\"HostSystem\">host-12</_this>", "<timeout>1</timeout>"),
    (
        "QueryEvents",
        "<_this type=\"EventManager\">EventManager</_this>",
        "<filter><entity><entity type=\"Folder\">group-1</entity><recursion>all</recursion></entity><time><beginTime>\
      2026-01-01T00:00:00Z</beginTime></time><maxCount>5</maxCount></filter>",
    ),
    ("CreateFolder", "<_this type=\"Folder\">group-2</_this>", "<name>f</name>"),
    (
        "FindByInventoryPath",
        "<_this type=\"SearchIndex\">SearchIndex</_this>",
        "<inventoryPath>dc-1/vm/node-1</inventoryPath>",
    ),
];

/// A valid request with some of its words replaced.
fn spoilt(random: &mut Stream) -> (String, String) {
    let (method, this, arguments) = pick(random, HONEST);
    let mut inside = format!("{this}{arguments}");
    for _ in 0..random.below(3) {
        let words: Vec<String> = inside.split(['<', '>']).map(str::to_owned).filter(|word| !word.is_empty()).collect();
        let from = pick(random, &words).clone();
        let to = match random.below(3) {
            0 => pick(random, &words).clone(),
            1 => (*pick(random, TEXTS)).to_owned(),
            _ => pick(random, OBJECTS).1.to_owned(),
        };
        let times = if random.chance(0.2) { 1 } else { usize::MAX };
        inside = inside.replacen(&from, &to, times);
    }
    ((*method).to_owned(), inside)
}

fn made_up(random: &mut Stream) -> (String, String) {
    let (type_name, value) = pick(random, OBJECTS);
    let mut inside = format!("<_this type=\"{type_name}\">{value}</_this>");
    for _ in 0..random.below(6) {
        element(random, 5, &mut inside);
    }
    // Without a limit a wait would validly last forever.
    inside.push_str("<options><maxWaitSeconds>1</maxWaitSeconds></options>");
    ((*pick(random, METHODS)).to_owned(), inside)
}

fn pick<'a, T>(random: &mut Stream, from: &'a [T]) -> &'a T {
    &from[usize::try_from(random.below(from.len() as u64)).unwrap_or(0)]
}

fn element(random: &mut Stream, depth: u32, out: &mut String) {
    let name = pick(random, FIELDS);
    out.push_str(&format!("<{name}"));
    if random.chance(0.3) {
        out.push_str(&format!(" type=\"{}\"", pick(random, OBJECTS).0));
    }
    if random.chance(0.2) {
        out.push_str(&format!(" xsi:type=\"{}\"", pick(random, TYPES)));
    }
    out.push('>');
    if depth > 0 && random.chance(0.6) {
        for _ in 0..random.below(4) {
            element(random, depth - 1, out);
        }
    } else if random.chance(0.5) {
        out.push_str(pick(random, OBJECTS).1);
    } else {
        out.push_str(pick::<&str>(random, TEXTS));
    }
    out.push_str(&format!("</{name}>"));
}

fn request(random: &mut Stream) -> Vec<u8> {
    let (method, inside) = if random.chance(0.5) { spoilt(random) } else { made_up(random) };
    let text = format!(
        "<s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\">\
         <s:Body><{method} xmlns=\"urn:vim25\">{inside}</{method}></s:Body></s:Envelope>"
    );
    let mut bytes = text.into_bytes();
    match random.below(6) {
        0 => bytes.truncate(usize::try_from(random.below(bytes.len() as u64)).unwrap_or(0)),
        1 => {
            for _ in 0..=random.below(8) {
                let at = usize::try_from(random.below(bytes.len() as u64)).unwrap_or(0);
                bytes[at] = u8::try_from(random.below(256)).unwrap_or(0);
            }
        }
        2 if random.chance(0.1) => bytes = "<a>".repeat(100_000).into_bytes(),
        _ => (),
    }
    bytes
}

async fn send(world: &Arc<World>, cookie: &str, body: Vec<u8>) -> (StatusCode, Option<String>, String) {
    let request = Request::post("/sdk").header(header::COOKIE, format!("vmware_soap_session={cookie}"));
    let request = request.body(Body::from(body)).expect("a request");
    let Ok(response) = wire::router(world.clone()).oneshot(request).await;
    let status = response.status();
    let cookie = response.headers().get(header::SET_COOKIE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let bytes = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
    (status, cookie, String::from_utf8(bytes.to_vec()).expect("UTF-8"))
}

async fn login(world: &Arc<World>) -> String {
    let body = "<s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\"><s:Body><Login xmlns=\"urn:vim25\">\
        <_this type=\"SessionManager\">SessionManager</_this><userName>administrator@vsphere.local</userName>\
        <password>sandbox</password></Login></s:Body></s:Envelope>";
    let (status, cookie, text) = send(world, "", body.as_bytes().to_vec()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let cookie = cookie.expect("a cookie");
    let value = cookie.split(';').next().and_then(|pair| pair.split_once('=')).expect("a value").1;
    value.to_owned()
}

#[tokio::test(start_paused = true)]
async fn every_request_is_answered() {
    let mut config = Config::default();
    config.vcenter.drs = DrsLevel::FullyAutomated;
    let world = World::new(&config, Clock::virtual_time());
    let started: clock::SimTime = world.clock().now();
    tokio::spawn(world.clone().run());
    let mut random = Seed(7).stream("hostile requests");
    let mut cookie = login(&world).await;
    let (mut answered, mut refused) = (0, 0);
    for number in 0..REQUESTS {
        let body = request(&mut random);
        let shown = String::from_utf8_lossy(&body[..body.len().min(2_000)]).into_owned();
        let hangs = tokio::time::timeout(WAIT_MAX, send(&world, &cookie, body)).await;
        let (status, _, text) = hangs.unwrap_or_else(|_| panic!("request {number} hangs: {shown}"));
        match status {
            StatusCode::OK => answered += 1,
            StatusCode::INTERNAL_SERVER_ERROR => {
                assert!(text.contains("<soapenv:Fault>"), "request {number}: {shown}");
                refused += 1;
            }
            other => assert!(other.is_client_error(), "request {number}: {other}: {shown}"),
        }
        // Started operations continue in the meantime.
        if random.chance(0.02) {
            tokio::time::sleep(Duration::from_secs(random.below(40))).await;
        }
        // Some requests log out; continue with a session that can do harm.
        if text.contains("NotAuthenticated") {
            cookie = login(&world).await;
        }
    }
    assert!(answered > 1_000 && refused > 5_000, "{answered} answered, {refused} refused");
    assert!(world.clock().now() > started);
}
