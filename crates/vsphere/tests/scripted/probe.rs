//! The check of a vCenter at the start: the counts, and the error for each problem.

use crate::vcenter::{Outcome, Vcenter, at, object, page, reference, text};
use vsphere::connect_once;

fn inventory() -> Vec<String> {
    let cluster = |id: &str, name: &str| {
        object("enter", "ClusterComputeResource", id, &[("name", &text(name)), ("parent", &reference("Folder", "f"))])
    };
    vec![
        cluster("domain-c2", "west"),
        cluster("domain-c1", "east"),
        cluster("domain-c3", "east"),
        object("enter", "HostSystem", "host-1", &[("name", &text("esx-1"))]),
        object("enter", "VirtualMachine", "vm-1", &[("name", &text("web"))]),
        object("enter", "VirtualMachine", "vm-2", &[("name", &text("db"))]),
    ]
}

fn refused(of: &str, id: &str) -> String {
    format!(
        "<objectSet><kind>enter</kind><obj type=\"{of}\">{id}</obj><missingSet><path>name</path><fault>\
         <fault xsi:type=\"NoPermission\"><object type=\"{of}\">{id}</object><privilegeId>System.Read</privilegeId>\
         </fault><localizedMessage>no</localizedMessage></fault></missingSet></objectSet>"
    )
}

#[tokio::test(start_paused = true)]
async fn the_inventory_is_counted_and_the_session_logged_out() {
    let mut objects = inventory();
    objects.push(refused("VirtualMachine", "vm-3"));
    let vcenter = Vcenter::new([at(0, page(&objects))]);
    let (about, counts) = connect_once(&vcenter.config()).await.unwrap();
    assert_eq!(about.instance_uuid, "i-1");
    assert_eq!((counts.clusters.len(), counts.hosts, counts.vms, counts.unreadable), (3, 1, 2, 1));
    assert_eq!(counts.cluster_names(), ["east", "west"]);
    assert_eq!(vcenter.calls("Logout").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_problem_has_its_own_message() {
    let nothing_readable = vec![refused("HostSystem", "host-1"), refused("VirtualMachine", "vm-1")];
    let scripts: [(Vcenter, &str); 5] = [
        (Vcenter::new([at(0, page(&nothing_readable))]), "lacks the privilege System.Read on HostSystem:host-1"),
        (Vcenter::new([at(0, Outcome::Fault("NoPermission"))]), "lacks the privilege System.Read on Folder:group-d1"),
        (Vcenter::new([at(0, Outcome::Dropped)]), "cannot reach vc.example.org"),
        (Vcenter::new([at(0, Outcome::Hangs)]), "no answer from vc.example.org within 60 s"),
        (Vcenter::new([at(0, Outcome::Fault("NeverHeardOf"))]), "NeverHeardOf"),
    ];
    for (vcenter, expected) in scripts {
        let error = connect_once(&vcenter.config()).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(vcenter.calls("Logout").len(), 1, "{expected}");
    }

    let esx = Vcenter::new([]);
    esx.script.lock().unwrap().api_type = Some("HostAgent");
    let error = connect_once(&esx.config()).await.unwrap_err().to_string();
    assert!(error.contains("is not a vCenter"), "{error}");

    let wrong = Vcenter::new([]);
    wrong.script.lock().unwrap().logins.push_back(Outcome::Fault("InvalidLogin"));
    let error = connect_once(&wrong.config()).await.unwrap_err().to_string();
    assert!(error.contains("user name or the password"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_user_who_sees_nothing_and_cannot_read_the_root_lacks_a_privilege() {
    let vcenter = Vcenter::new([at(0, page(&[]))]);
    vcenter.script.lock().unwrap().read_again = refused("Folder", "group-d1").replace("objectSet>", "objects>");
    let error = connect_once(&vcenter.config()).await.unwrap_err().to_string();
    assert!(error.contains("lacks the privilege System.Read on Folder:group-d1"), "{error}");

    let empty = Vcenter::new([at(0, page(&[]))]);
    let (_, counts) = connect_once(&empty.config()).await.unwrap();
    assert_eq!((counts.hosts, counts.vms), (0, 0));
}
