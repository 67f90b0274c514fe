//! Login, idle timeout, termination of sessions.

use std::time::Duration;

use super::client::{Client, quiet_world};

const MANAGER: (&str, &str) = ("SessionManager", "SessionManager");

#[tokio::test(start_paused = true)]
async fn without_a_session_only_the_service_content_is_available() {
    let world = quiet_world(|_| ());
    let client = Client::new(&world);
    let content = client.call("RetrieveServiceContent", "ServiceInstance", "ServiceInstance", "").await.unwrap();
    let about = content.child("returnval").and_then(|content| content.child("about")).unwrap();
    assert_eq!(about.child_text("apiVersion"), Some("8.0.3.0"));
    assert!(client.property("ServiceInstance", "ServiceInstance", "content.about.apiType").await.unwrap().is_some());
    for (method, type_name, value) in [
        ("CurrentTime", "ServiceInstance", "ServiceInstance"),
        ("Logout", MANAGER.0, MANAGER.1),
        ("CreatePropertyCollector", "PropertyCollector", "propertyCollector"),
        ("WaitForUpdatesEx", "PropertyCollector", "propertyCollector"),
        ("NoSuchMethod", "Folder", "group-1"),
    ] {
        assert_eq!(client.call(method, type_name, value, "").await, Err("NotAuthenticated".to_owned()), "{method}");
    }
    // A real vCenter answers this successfully and reports the fault per property.
    let spec = super::client::object_spec("Folder", "name", "Folder", "group-1");
    let answer = client.call("RetrieveProperties", "PropertyCollector", "propertyCollector", &spec).await.unwrap();
    assert!(answer.child("returnval").is_some_and(|object| object.child("propSet").is_none()));
    assert_eq!(client.property("Folder", "group-1", "name").await, Err("NotAuthenticated".to_owned()));
    assert_eq!(client.property(MANAGER.0, MANAGER.1, "sessionList").await, Err("NotAuthenticated".to_owned()));
    assert_eq!(client.call("LoginByToken", MANAGER.0, MANAGER.1, "").await, Err("NotSupported".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_rejected_and_a_logout_ends_the_session() {
    let world = quiet_world(|_| ());
    let mut client = Client::new(&world);
    assert_eq!(client.login("wrong").await, Err("InvalidLogin".to_owned()));
    let session = client.login("sandbox").await.unwrap();
    let key = session.child("returnval").and_then(|session| session.child_text("key")).unwrap().to_owned();
    assert_eq!(client.text(MANAGER.0, MANAGER.1, "currentSession.key").await, key);
    let arguments = format!("<sessionID>{key}</sessionID><userName>administrator@vsphere.local</userName>");
    let active = client.call("SessionIsActive", MANAGER.0, MANAGER.1, &arguments).await.unwrap();
    assert_eq!(active.child_text("returnval"), Some("true"));
    client.call("Logout", MANAGER.0, MANAGER.1, "").await.unwrap();
    assert_eq!(client.property("Folder", "group-1", "name").await, Err("NotAuthenticated".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_ends_unless_a_wait_is_pending() {
    let world = quiet_world(|config| config.vcenter.session_idle_max = Duration::from_secs(60));
    let idle = Client::logged_in(&world).await;
    let waiting = Client::logged_in(&world).await;
    let collector = waiting.follow("VirtualMachine", &["name"], false).await;
    let first = waiting.wait(&collector, "", "").await.unwrap();
    let version = super::client::read_updates(&first).unwrap().version;
    let answer = waiting.wait(&collector, &version, "<maxWaitSeconds>600</maxWaitSeconds>").await.unwrap();
    assert!(answer.child("returnval").is_none(), "nothing happened");
    assert!(waiting.property("Folder", "group-1", "name").await.is_ok());
    assert_eq!(idle.property("Folder", "group-1", "name").await, Err("NotAuthenticated".to_owned()));
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(waiting.property("Folder", "group-1", "name").await, Err("NotAuthenticated".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_terminated_session_ends_its_pending_wait() {
    let world = quiet_world(|_| ());
    let client = Client::logged_in(&world).await;
    let key = client.text(MANAGER.0, MANAGER.1, "currentSession.key").await;
    let collector = client.follow("VirtualMachine", &["name"], false).await;
    let waiting = {
        let client = client.clone();
        tokio::spawn(async move {
            client.wait(&collector, "", "").await.unwrap();
            client.wait(&collector, "1", "").await
        })
    };
    tokio::time::sleep(Duration::from_secs(5)).await;
    let other = Client::logged_in(&world).await;
    let terminate = format!("<sessionId>{key}</sessionId>");
    assert_eq!(
        client.call("TerminateSession", MANAGER.0, MANAGER.1, &terminate).await,
        Err("InvalidArgument".to_owned())
    );
    other.call("TerminateSession", MANAGER.0, MANAGER.1, &terminate).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Err("NotAuthenticated".to_owned()));
    assert_eq!(other.call("TerminateSession", MANAGER.0, MANAGER.1, &terminate).await, Err("NotFound".to_owned()));
    assert_eq!(world.with(|core, _| core.vcenter.end_all_sessions()), 1);
    assert_eq!(other.property("Folder", "group-1", "name").await, Err("NotAuthenticated".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn one_session_cannot_use_anothers_view() {
    let world = quiet_world(|_| ());
    let (one, other) = (Client::logged_in(&world).await, Client::logged_in(&world).await);
    let view = one.reference("CreateListView", "ViewManager", "ViewManager", "").await;
    assert!(one.property("ListView", &view, "view").await.is_ok());
    assert_eq!(other.property("ListView", &view, "view").await, Err("ManagedObjectNotFound".to_owned()));
    assert_eq!(other.call("DestroyView", "ListView", &view, "").await, Err("ManagedObjectNotFound".to_owned()));
}
