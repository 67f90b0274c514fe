//! A small SOAP client that calls the router directly.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use http::{Request, StatusCode, header};
use tower::ServiceExt;

use crate::clock::Clock;
use crate::vcenter::DrsLevel;
use crate::vcenter::wire::router;
use crate::vcenter::wire::xml::{self, Element};
use crate::world::{Config, World};

/// A world in which time passes but nothing happens unless a test requests it.
pub fn quiet_world(change: impl FnOnce(&mut Config)) -> Arc<World> {
    let mut config = Config::default();
    config.vcenter.drs = DrsLevel::Off;
    config.vcenter.demand_period = Duration::from_secs(365 * 24 * 3600);
    change(&mut config);
    let world = World::new(&config, Clock::virtual_time());
    tokio::spawn(world.clone().run());
    world
}

#[derive(Clone)]
pub struct Client {
    pub world: Arc<World>,
    pub cookie: Option<String>,
}

/// The method's response element, or the fault's type.
pub type Answer = Result<Element, String>;

impl Client {
    pub fn new(world: &Arc<World>) -> Client {
        Client { world: world.clone(), cookie: None }
    }

    pub async fn logged_in(world: &Arc<World>) -> Client {
        let mut client = Client::new(world);
        client.login("sandbox").await.expect("the configured password");
        client
    }

    pub async fn login(&mut self, password: &str) -> Answer {
        let user = "<userName>administrator@vsphere.local</userName>";
        let arguments = format!("{user}<password>{password}</password>");
        let (answer, cookie) = self.send("Login", "SessionManager", "SessionManager", &arguments).await;
        self.cookie = cookie.or(self.cookie.take());
        answer
    }

    pub async fn call(&self, method: &str, type_name: &str, value: &str, arguments: &str) -> Answer {
        self.send(method, type_name, value, arguments).await.0
    }

    async fn send(&self, method: &str, type_name: &str, value: &str, arguments: &str) -> (Answer, Option<String>) {
        let body = format!(
            "<Envelope xmlns=\"http://schemas.xmlsoap.org/soap/envelope/\" \
             xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\">\
             <Body><{method} xmlns=\"urn:vim25\"><_this type=\"{type_name}\">{value}</_this>{arguments}</{method}>\
             </Body></Envelope>"
        );
        let mut request = Request::post("/sdk").header("SOAPAction", "urn:vim25/8.0.3.0");
        if let Some(cookie) = &self.cookie {
            request = request.header(header::COOKIE, format!("vmware_soap_session=\"{cookie}\""));
        }
        let request = request.body(Body::from(body)).expect("a request");
        let Ok(response) = router(self.world.clone()).oneshot(request).await;
        let status = response.status();
        let cookie = response.headers().get(header::SET_COOKIE).and_then(|value| value.to_str().ok());
        let cookie = cookie.and_then(|value| value.split(';').next()?.split_once('=')).map(|(_, it)| it.to_owned());
        let Ok(bytes) = to_bytes(response.into_body(), usize::MAX).await else {
            return (Err("connection dropped".to_owned()), cookie);
        };
        let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let Ok(mut envelope) = xml::parse(&text) else { return (Err(status.to_string()), cookie) };
        let mut inner = envelope.children.remove(0).children.remove(0);
        if inner.name == "Fault" {
            assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
            let detail = inner.children.remove(2).children.remove(0);
            return (Err(detail.xsi_type.expect("a fault's type")), cookie);
        }
        assert_eq!(status, StatusCode::OK);
        assert_eq!(inner.name, format!("{method}Response"));
        (Ok(inner), cookie)
    }

    /// Calls a method that returns a reference. Returns its value.
    pub async fn reference(&self, method: &str, type_name: &str, value: &str, arguments: &str) -> String {
        let answer = self.call(method, type_name, value, arguments).await.expect(method);
        answer.child_text("returnval").expect("a reference").to_owned()
    }

    /// The element with the value of one property.
    pub async fn property(&self, type_name: &str, value: &str, path: &str) -> Result<Option<Element>, String> {
        let spec = object_spec(type_name, path, type_name, value);
        let answer = self.call("RetrieveProperties", "PropertyCollector", "propertyCollector", &spec).await?;
        let object = answer.child("returnval").expect("the object");
        if let Some(missing) = object.child("missingSet") {
            let fault = missing.child("fault").and_then(|fault| fault.child("fault")).expect("a fault");
            return Err(fault.xsi_type.clone().expect("its type"));
        }
        Ok(object.child("propSet").and_then(|property| property.child("val")).cloned())
    }

    pub async fn text(&self, type_name: &str, value: &str, path: &str) -> String {
        self.property(type_name, value, path).await.expect(path).expect("a value").text
    }

    pub async fn find(&self, path: &str) -> String {
        let arguments = format!("<inventoryPath>{path}</inventoryPath>");
        self.reference("FindByInventoryPath", "SearchIndex", "SearchIndex", &arguments).await
    }

    /// Waits until a task ends. Returns the fault's type if it failed.
    pub async fn await_task(&self, task: &str) -> Result<(), String> {
        loop {
            let info = self.property("Task", task, "info").await?.expect("info");
            match info.child_text("state") {
                Some("success") => return Ok(()),
                Some("error") => {
                    let fault = info.child("error").and_then(|error| error.child("fault")).expect("a fault");
                    return Err(fault.xsi_type.clone().expect("its type"));
                }
                _ => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }

    pub async fn relocate(&self, vm: &str, host: &str) -> Result<(), String> {
        let spec = format!("<spec><host type=\"HostSystem\">{host}</host></spec>");
        let task = self.reference("RelocateVM_Task", "VirtualMachine", vm, &spec).await;
        self.await_task(&task).await
    }

    /// A host of the cluster other than the VM's.
    pub async fn other_host(&self, vm: &str) -> String {
        let current = self.text("VirtualMachine", vm, "runtime.host").await;
        for number in 1..=2 {
            let host = self.find(&format!("dc-1/host/cluster-1/esx-{number}.lab")).await;
            if host != current {
                return host;
            }
        }
        unreachable!("the VM is on one host")
    }

    pub async fn wait(&self, collector: &str, version: &str, options: &str) -> Answer {
        let arguments = format!("<version>{version}</version><options>{options}</options>");
        self.call("WaitForUpdatesEx", "PropertyCollector", collector, &arguments).await
    }

    /// A new collector with one filter over a recursive container view of the root folder.
    pub async fn follow(&self, type_name: &str, paths: &[&str], partial: bool) -> String {
        let container = format!(
            "<container type=\"Folder\">group-1</container><type>{type_name}</type><recursive>true</recursive>"
        );
        let view = self.reference("CreateContainerView", "ViewManager", "ViewManager", &container).await;
        let paths: String = paths.iter().map(|path| format!("<pathSet>{path}</pathSet>")).collect();
        let spec = format!(
            "<spec><propSet><type>{type_name}</type>{paths}</propSet><objectSet><obj type=\"ContainerView\">{view}</obj>\
             <skip>true</skip><selectSet xsi:type=\"TraversalSpec\"><type>ContainerView</type><path>view</path>\
             </selectSet></objectSet></spec><partialUpdates>{partial}</partialUpdates>"
        );
        let collector = self.reference("CreatePropertyCollector", "PropertyCollector", "propertyCollector", "").await;
        self.reference("CreateFilter", "PropertyCollector", &collector, &spec).await;
        collector
    }
}

/// A spec set for one property of one object.
pub fn object_spec(type_name: &str, path: &str, object_type: &str, value: &str) -> String {
    format!(
        "<specSet><propSet><type>{type_name}</type><pathSet>{path}</pathSet></propSet>\
         <objectSet><obj type=\"{object_type}\">{value}</obj></objectSet></specSet>"
    )
}

/// Kind, object, and the changes by name with the text of their value.
pub type ObjectUpdate = (String, String, Vec<(String, String)>);

/// A parsed update set: version, truncated, and per object its kind and changes.
#[derive(Debug, PartialEq, Eq)]
pub struct Updates {
    pub version: String,
    pub truncated: bool,
    pub objects: Vec<ObjectUpdate>,
}

pub fn read_updates(answer: &Element) -> Option<Updates> {
    let set = answer.child("returnval")?;
    let filters = set.children_named("filterSet");
    let objects = filters.flat_map(|filter| filter.children_named("objectSet")).map(|object| {
        let text = |name: &str| object.child_text(name).expect(name).to_owned();
        let change = |change: &Element| {
            let value = change.child("val").map(|value| value.text.clone()).unwrap_or_default();
            (change.child_text("name").expect("a name").to_owned(), value)
        };
        (text("kind"), text("obj"), object.children_named("changeSet").map(change).collect())
    });
    Some(Updates {
        version: set.child_text("version").expect("a version").to_owned(),
        truncated: set.child_text("truncated") == Some("true"),
        objects: objects.collect(),
    })
}
