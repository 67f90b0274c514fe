//! The engine's rule store on a scripted vCenter: the format of requests, and the error kind of each failure.

use std::time::Duration;

use crate::vcenter::{Outcome, PASSWORD, Vcenter, at, content, object, page, text};
use engine::ports::{
    ChangeKind, ClusterRules, GroupChange, PortError, RecordedGroups, RuleChange, RuleStore, RuleType, VmRef,
};
use model::event::{Event, GroupFacts, GroupKind, RuleFacts, RuleKind, VcenterId};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use vsphere::{Rules, VcenterStatus, inventory};

const ID: VcenterId = VcenterId(3);
const CLUSTER: &str = "domain-c1";
const RECONFIGURE: &str = "ReconfigureComputeResource_Task";

fn rules(vcenter: &Vcenter) -> Rules {
    Rules::new([(ID, vcenter.config())])
}

fn change(name: &str, rule_type: RuleType, kind: ChangeKind, vms: &[&str]) -> RuleChange {
    let vms = vms.iter().map(|id| VmRef { id: (*id).to_owned(), name: (*id).to_owned() }).collect();
    RuleChange::new(name.to_owned(), rule_type, kind, vms)
}

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|&id| id.to_owned()).collect()
}

fn one_change() -> Vec<RuleChange> {
    vec![change("r", RuleType::VmAntiAffinity, ChangeKind::Create, &["vm-1", "vm-2"])]
}

/// The `objects` element of a read of a task.
fn task(state: &str, error: &str) -> String {
    content("Task", "task-1", &[("info", &format!("<val><key>task-1</key>{error}<state>{state}</state></val>"))])
}

fn task_fault(kind: &str, detail: &str) -> String {
    let fault =
        format!("<fault xsi:type=\"{kind}\">{detail}</fault><localizedMessage>what happened</localizedMessage>");
    task("error", &format!("<error>{fault}</error>"))
}

fn vcenter_with_task(task: String) -> Vcenter {
    let vcenter = Vcenter::new([]);
    vcenter.script.lock().unwrap().tasks = task;
    vcenter
}

fn vcenter_with_answers(method: &'static str, outcomes: impl IntoIterator<Item = Outcome>) -> Vcenter {
    let vcenter = vcenter_with_task(task("success", ""));
    vcenter.script.lock().unwrap().answers.insert(method, outcomes.into_iter().collect());
    vcenter
}

/// The name of the variant, and the message.
fn kind_and_text(error: &PortError) -> (&'static str, String) {
    let variant = match error {
        PortError::Transient(_) => "transient",
        PortError::NotFound(_) => "not found",
        PortError::Permanent(_) => "permanent",
        PortError::Invalid(_) => "invalid",
    };
    (variant, error.to_string())
}

#[tokio::test(start_paused = true)]
async fn changes_are_one_reconfiguration_in_the_order_of_the_schema() {
    let vcenter = vcenter_with_task(task("success", ""));
    let group = |name: &str, kind| GroupFacts { name: name.to_owned(), user_created: true, kind };
    let names = RecordedGroups { vms: "vms".to_owned(), hosts: "hosts".to_owned() };
    let edit = |key| ChangeKind::Edit { key, uuid: Some("u-7".to_owned()), added: vec![], removed: vec![] };
    let changes = [
        change("apart & <b>", RuleType::VmAntiAffinity, ChangeKind::Create, &["vm-1", "vm-2"]),
        RuleChange {
            mandatory: true,
            group_names: Some(names),
            groups: vec![
                GroupChange::Add(group("vms", GroupKind::Vms(ids(&["vm-1"])))),
                GroupChange::Edit(group("hosts", GroupKind::Hosts(ids(&["host-1", "host-2"])))),
            ],
            ..change("pin", RuleType::VmHost, ChangeKind::Create, &["vm-1"])
        },
        change("together", RuleType::VmAffinity, edit(7), &["vm-3"]),
        RuleChange {
            groups: vec![GroupChange::Remove { name: "old".to_owned() }],
            ..change("deleted", RuleType::VmHost, ChangeKind::DeleteGroups, &[])
        },
        change("old", RuleType::VmAffinity, ChangeKind::Delete { key: 4, uuid: None }, &[]),
    ];
    rules(&vcenter).change(ID, CLUSTER, &changes).await.unwrap();
    let expected = "<_this type=\"ClusterComputeResource\">domain-c1</_this><spec xsi:type=\"ClusterConfigSpecEx\">\
        <rulesSpec><operation>remove</operation><removeKey xsi:type=\"xsd:int\">4</removeKey></rulesSpec>\
        <rulesSpec><operation>edit</operation><info xsi:type=\"ClusterAffinityRuleSpec\"><key>7</key>\
        <enabled>true</enabled><name>together</name><mandatory>false</mandatory><userCreated>true</userCreated>\
        <ruleUuid>u-7</ruleUuid><vm type=\"VirtualMachine\">vm-3</vm></info></rulesSpec>\
        <rulesSpec><operation>add</operation><info xsi:type=\"ClusterAntiAffinityRuleSpec\"><enabled>true</enabled>\
        <name>apart &amp; &lt;b&gt;</name><mandatory>false</mandatory><userCreated>true</userCreated>\
        <vm type=\"VirtualMachine\">vm-1</vm><vm type=\"VirtualMachine\">vm-2</vm></info></rulesSpec>\
        <rulesSpec><operation>add</operation><info xsi:type=\"ClusterVmHostRuleInfo\"><enabled>true</enabled>\
        <name>pin</name><mandatory>true</mandatory><userCreated>true</userCreated><vmGroupName>vms</vmGroupName>\
        <affineHostGroupName>hosts</affineHostGroupName></info></rulesSpec>\
        <groupSpec><operation>remove</operation><removeKey xsi:type=\"xsd:string\">old</removeKey></groupSpec>\
        <groupSpec><operation>edit</operation><info xsi:type=\"ClusterHostGroup\"><name>hosts</name>\
        <userCreated>true</userCreated><host type=\"HostSystem\">host-1</host><host type=\"HostSystem\">host-2</host>\
        </info></groupSpec>\
        <groupSpec><operation>add</operation><info xsi:type=\"ClusterVmGroup\"><name>vms</name>\
        <userCreated>true</userCreated><vm type=\"VirtualMachine\">vm-1</vm></info></groupSpec>\
        </spec><modify>true</modify>";
    let [body] = &vcenter.bodies(RECONFIGURE)[..] else { panic!("one reconfiguration") };
    assert!(body.contains(expected), "{body}");
}

#[tokio::test(start_paused = true)]
async fn a_read_returns_the_same_rules_as_the_inventory() {
    let config = "<val xsi:type=\"ClusterConfigInfoEx\"><drsConfig><enabled>true</enabled></drsConfig>\
        <rule xsi:type=\"ClusterAntiAffinityRuleSpec\"><key>9</key><enabled>true</enabled><name>a%2fb </name>\
        <userCreated>true</userCreated><ruleUuid>u-9</ruleUuid><vm type=\"VirtualMachine\">vm-2</vm>\
        <vm type=\"VirtualMachine\">vm-1</vm></rule>\
        <rule xsi:type=\"ClusterDependencyRuleInfo\"><key>2</key><name>order</name><vmGroup>a</vmGroup>\
        <dependsOnVmGroup>b</dependsOnVmGroup></rule>\
        <group xsi:type=\"ClusterVmGroup\"><name>z</name><vm type=\"VirtualMachine\">vm-1</vm></group>\
        <group xsi:type=\"ClusterHostGroup\"><name>a</name></group></val>";
    let vcenter = Vcenter::new([at(
        0,
        page(&[object(
            "enter",
            "ClusterComputeResource",
            CLUSTER,
            &[("name", &text("C")), ("configurationEx", config)],
        )]),
    )]);
    vcenter.script.lock().unwrap().read_again =
        content("ClusterComputeResource", CLUSTER, &[("configurationEx", config)]);
    let read = rules(&vcenter).read(ID, CLUSTER).await.unwrap();
    let expected_rule = |key, uuid: Option<&str>, name: &str, on, kind| RuleFacts {
        key,
        uuid: uuid.map(str::to_owned),
        name: name.to_owned(),
        enabled: on,
        mandatory: false,
        user_created: on,
        kind,
    };
    let expected = ClusterRules {
        rules: vec![
            expected_rule(
                2,
                None,
                "order",
                false,
                RuleKind::Dependency { vm_group: "a".to_owned(), depends_on: "b".to_owned() },
            ),
            expected_rule(9, Some("u-9"), "a%2fb ", true, RuleKind::VmAntiAffinity(ids(&["vm-2", "vm-1"]))),
        ],
        groups: vec![
            GroupFacts { name: "a".to_owned(), user_created: false, kind: GroupKind::Hosts(Vec::new()) },
            GroupFacts { name: "z".to_owned(), user_created: false, kind: GroupKind::Vms(ids(&["vm-1"])) },
        ],
    };
    assert_eq!(read, expected);

    let (events, mut receiver) = mpsc::channel(16);
    let (status, _) = watch::channel(VcenterStatus::default());
    let jitter = engine::runtime::Jitter::from_seed(1);
    let task = tokio::spawn(inventory::run(
        vcenter.config(),
        ID,
        inventory::Instances::default(),
        events,
        status,
        jitter,
        std::future::pending(),
    ));
    let emitted = loop {
        if let Event::ClusterApplied { cluster, .. } = receiver.recv().await.unwrap() {
            break ClusterRules { rules: cluster.rules, groups: cluster.groups };
        }
    };
    task.abort();
    assert_eq!(read, emitted);
}

#[tokio::test(start_paused = true)]
async fn rules_that_cannot_be_read_are_an_error() {
    let vcenter = Vcenter::new([]);
    for objects in [String::new(), content("ClusterComputeResource", CLUSTER, &[])] {
        vcenter.script.lock().unwrap().read_again = objects;
        let error = rules(&vcenter).read(ID, CLUSTER).await.unwrap_err();
        assert_eq!(kind_and_text(&error).0, "transient", "{error}");
    }
    vcenter.script.lock().unwrap().read_again = format!(
        "<objects><obj type=\"ClusterComputeResource\">{CLUSTER}</obj><missingSet><path>configurationEx</path><fault>\
         <fault xsi:type=\"NoPermission\"><object type=\"ClusterComputeResource\">{CLUSTER}</object>\
         <privilegeId>System.Read</privilegeId></fault><localizedMessage>no</localizedMessage></fault></missingSet></objects>"
    );
    let error = rules(&vcenter).read(ID, CLUSTER).await.unwrap_err();
    assert!(matches!(&error, PortError::Permanent(text) if text.contains("System.Read")), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_fault_of_a_task_determines_the_error_kind() {
    for (kind, detail, variant, says) in [
        ("InvalidArgument", "<invalidProperty>spec.rulesSpec.info.vm</invalidProperty>", "invalid", "info.vm"),
        ("DuplicateName", "<name>r</name><object type=\"Folder\">f</object>", "invalid", "DuplicateName r"),
        ("NotFound", "", "invalid", "NotFound"),
        ("InvalidVmConfig", "<property>x</property>", "invalid", "InvalidVmConfig"),
        ("NeverHeardOf", "", "invalid", "NeverHeardOf"),
        ("ManagedObjectNotFound", "<obj type=\"VirtualMachine\">vm-1</obj>", "invalid", "VirtualMachine:vm-1"),
        ("ManagedObjectNotFound", "", "invalid", "ManagedObjectNotFound"),
        (
            "ManagedObjectNotFound",
            "<obj type=\"ClusterComputeResource\">domain-c1</obj>",
            "not found",
            "domain-c1 not found",
        ),
        (
            "NoPermission",
            "<object type=\"ClusterComputeResource\">domain-c1</object><privilegeId>Host.Inventory.EditCluster</privilegeId>",
            "permanent",
            "Host.Inventory.EditCluster on ClusterComputeResource:domain-c1",
        ),
        ("NotSupported", "", "permanent", "NotSupported"),
        ("ConcurrentAccess", "", "transient", "ConcurrentAccess"),
        ("TaskInProgress", "<task type=\"Task\">t</task>", "transient", "TaskInProgress"),
        ("RequestCanceled", "", "transient", "RequestCanceled"),
        ("Timedout", "", "transient", "Timedout"),
        ("SystemError", "<reason>vpxd</reason>", "transient", "SystemError"),
    ] {
        let vcenter = vcenter_with_task(task_fault(kind, detail));
        let error = rules(&vcenter).change(ID, CLUSTER, &one_change()).await.unwrap_err();
        let (found, text) = kind_and_text(&error);
        assert_eq!(found, variant, "{kind}: {text}");
        assert!(text.contains(says), "{kind}: {text}");
        assert_eq!(vcenter.calls(RECONFIGURE).len(), 1, "{kind}");
    }
    // An error without details.
    let vcenter = vcenter_with_task(task("error", ""));
    let error = rules(&vcenter).change(ID, CLUSTER, &one_change()).await.unwrap_err();
    assert_eq!(kind_and_text(&error).0, "invalid");
}

#[tokio::test(start_paused = true)]
async fn the_failure_of_a_call_determines_the_error_kind_and_is_not_retried() {
    for (outcome, variant, says) in [
        (Outcome::Fault("ManagedObjectNotFound"), "not found", "ClusterComputeResource:domain-c1 not found"),
        (Outcome::Fault("NoPermission"), "permanent", "System.Read"),
        (Outcome::Fault("InvalidArgument"), "invalid", "InvalidArgument"),
        (Outcome::Fault("ConcurrentAccess"), "transient", "ConcurrentAccess"),
        (Outcome::Dropped, "transient", "cannot reach"),
        (Outcome::Hangs, "transient", "no answer"),
        (Outcome::Reply(String::new()), "transient", "returned no object"),
    ] {
        let shown = format!("{outcome:?}");
        let vcenter = vcenter_with_answers(RECONFIGURE, [outcome]);
        let error = rules(&vcenter).change(ID, CLUSTER, &one_change()).await.unwrap_err();
        let (found, text) = kind_and_text(&error);
        assert_eq!(found, variant, "{shown}: {text}");
        assert!(text.contains(says) && !text.contains(PASSWORD), "{shown}: {text}");
        assert_eq!(vcenter.calls(RECONFIGURE).len(), 1, "{shown}");
    }
    for (outcome, variant) in [
        (Outcome::Fault("ManagedObjectNotFound"), "not found"),
        (Outcome::Fault("NoPermission"), "permanent"),
        (Outcome::Dropped, "transient"),
        (Outcome::Hangs, "transient"),
    ] {
        let vcenter = vcenter_with_answers("RetrievePropertiesEx", [outcome]);
        let error = rules(&vcenter).read(ID, CLUSTER).await.unwrap_err();
        assert_eq!(kind_and_text(&error).0, variant, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_has_ended_is_replaced_once() {
    let ended = || Outcome::Fault("NotAuthenticated");
    let vcenter = vcenter_with_answers(RECONFIGURE, [ended()]);
    let store = rules(&vcenter);
    store.change(ID, CLUSTER, &one_change()).await.unwrap();
    assert_eq!((vcenter.calls("Login").len(), vcenter.calls(RECONFIGURE).len()), (2, 2));
    store.close().await;
    assert_eq!(vcenter.calls("Logout").len(), 1);

    let vcenter = vcenter_with_answers(RECONFIGURE, [ended(), ended()]);
    let error = rules(&vcenter).change(ID, CLUSTER, &one_change()).await.unwrap_err();
    assert_eq!(kind_and_text(&error).0, "transient", "{error}");
    assert_eq!((vcenter.calls("Login").len(), vcenter.calls(RECONFIGURE).len()), (2, 2));

    // The session ends after the task was started: the change is not sent again, only the task is read again.
    let vcenter = vcenter_with_answers("RetrievePropertiesEx", [ended()]);
    rules(&vcenter).change(ID, CLUSTER, &one_change()).await.unwrap();
    assert_eq!((vcenter.calls("Login").len(), vcenter.calls(RECONFIGURE).len()), (2, 1));

    let vcenter = vcenter_with_answers("RetrievePropertiesEx", [ended()]);
    vcenter.script.lock().unwrap().read_again =
        content("ClusterComputeResource", CLUSTER, &[("configurationEx", "<val></val>")]);
    assert_eq!(rules(&vcenter).read(ID, CLUSTER).await, Ok(ClusterRules::default()));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_end_times_out_and_is_not_polled_too_often() {
    let vcenter = vcenter_with_task(task("running", ""));
    let began = Instant::now();
    let error = rules(&vcenter).change(ID, CLUSTER, &one_change()).await.unwrap_err();
    assert!(matches!(&error, PortError::Transient(text) if text.contains("180 s")), "{error}");
    assert_eq!(began.elapsed(), Duration::from_secs(180));
    let asked = vcenter.calls("RetrievePropertiesEx").len();
    assert!(asked < 200, "{asked}");

    // A slow task is waited for.
    let vcenter = vcenter_with_task(task("running", ""));
    let store = rules(&vcenter);
    let changes = one_change();
    let mut change = store.change(ID, CLUSTER, &changes);
    assert!(tokio::time::timeout(Duration::from_secs(30), &mut change).await.is_err());
    vcenter.script.lock().unwrap().tasks = task("success", "");
    let began = Instant::now();
    change.await.unwrap();
    assert!(began.elapsed() <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_session_is_started_on_first_use_shared_and_logged_out() {
    let vcenter = vcenter_with_task(task("success", ""));
    let store = rules(&vcenter);
    store.change(ID, CLUSTER, &[]).await.unwrap();
    store.close().await;
    assert_eq!(vcenter.methods(), Vec::<String>::new(), "without changes no session is needed");

    let changes = one_change();
    let all = (0..5).map(|_| store.change(ID, CLUSTER, &changes));
    assert!(futures::future::join_all(all).await.iter().all(Result::is_ok));
    assert_eq!((vcenter.calls("Login").len(), vcenter.calls(RECONFIGURE).len()), (1, 5));
    store.close().await;
    assert_eq!(vcenter.calls("Logout").len(), 1);

    vcenter.script.lock().unwrap().hangs = true;
    let mut hanging = store.change(ID, CLUSTER, &changes);
    assert!(tokio::time::timeout(Duration::from_secs(5), &mut hanging).await.is_err());
    let began = Instant::now();
    store.close().await;
    assert!(began.elapsed() <= Duration::from_secs(3), "closing does not wait for pending calls");
}

#[tokio::test(start_paused = true)]
async fn connection_and_login_errors_have_the_right_kind() {
    let vcenter = Vcenter::new([]);
    let error = rules(&vcenter).read(VcenterId(9), CLUSTER).await.unwrap_err();
    assert_eq!(kind_and_text(&error).0, "permanent");
    assert_eq!(vcenter.methods(), Vec::<String>::new());

    vcenter.script.lock().unwrap().logins.push_back(Outcome::Fault("InvalidLogin"));
    let error = rules(&vcenter).read(ID, CLUSTER).await.unwrap_err();
    assert_eq!(kind_and_text(&error).0, "permanent", "{error}");
    vcenter.script.lock().unwrap().unreachable = true;
    let error = rules(&vcenter).change(ID, CLUSTER, &one_change()).await.unwrap_err();
    assert_eq!(kind_and_text(&error).0, "transient", "{error}");
    let shown = format!("{:?}", rules(&vcenter));
    assert!(!shown.contains(PASSWORD), "{shown}");
}
