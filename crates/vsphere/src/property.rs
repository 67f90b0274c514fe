//! The property collector: lists objects with selected properties and reports every change.
//!
//! Each [`Watch`] has its own collector, because with a shared one, callers wait for each other. The first responses
//! contain all objects, in pages; [`Updates::complete`] marks the last page. If the session ends, the watch is dropped
//! and a new one is created: its first pages are the resync. [`Watch::read_again`] reads properties of the same objects
//! outside the stream, for servers that do not report every change.

use std::sync::Arc;
use std::time::Duration;

use crate::client::{Client, Parts};
use crate::error::{Fault, VsphereError};
use crate::soap;
use crate::xml::{Element, Writer};
use crate::{ManagedObject, VsphereError as Error};

const RETRIEVE: &str = "RetrievePropertiesEx";

/// Selected properties of one type.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    pub kind: &'a str,
    pub paths: &'a [&'a str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateKind {
    /// The object exists: it is new, or part of the first list.
    Enter,
    Modify,
    Leave,
}

#[derive(Clone, Debug)]
pub struct ObjectUpdate {
    pub kind: UpdateKind,
    pub object: ManagedObject,
    pub changes: Vec<PropertyChange>,
    /// Properties that exist but cannot be read now, for example for lack of permission.
    pub missing: Vec<(String, Fault)>,
}

/// The new value of a property. `None` if it no longer has a value.
#[derive(Clone, Debug)]
pub struct PropertyChange {
    pub path: String,
    pub value: Option<Element>,
}

#[derive(Clone, Debug, Default)]
pub struct Updates {
    pub objects: Vec<ObjectUpdate>,
    /// No further page follows: the inventory is complete.
    pub complete: bool,
}

/// The number of objects in one page.
const PAGE_OBJECTS: u32 = 500;
/// The time limit for all pages of one list.
const LIST_LIMIT: Duration = Duration::from_secs(600);

/// A watch of the inventory below one folder.
#[derive(Debug)]
pub struct Watch {
    client: Arc<Client>,
    collector: ManagedObject,
    view: ManagedObject,
    version: String,
}

impl Watch {
    /// Watches every object of the selected types below `root`.
    pub async fn start(
        client: Arc<Client>,
        root: &ManagedObject,
        selections: &[Selection<'_>],
    ) -> Result<Watch, Error> {
        let content = client.content().clone();
        let view = client
            .call_for_object("CreateContainerView", &content.view_manager, |body| {
                body.reference("container", root);
                for selection in selections {
                    body.text("type", selection.kind);
                }
                body.value("recursive", true);
            })
            .await?;
        let collector = client.call_for_object("CreatePropertyCollector", &content.property_collector, |_| ()).await?;
        client
            .call_for_object("CreateFilter", &collector, |body| {
                body.nest("spec", |spec| view_filter(spec, &view, selections)).value("partialUpdates", false);
            })
            .await?;
        Ok(Watch { client, collector, view, version: String::new() })
    }

    /// Lists all objects, page by page. Called once, before [`Watch::next`].
    pub async fn list(&mut self, mut on_update: impl FnMut(&ObjectUpdate)) -> Result<(), Error> {
        let client = self.client.clone();
        let pages = async {
            loop {
                // Do not wait: the inventory may be empty.
                if self.page(Duration::ZERO, |update| on_update(&update)).await? {
                    return Ok(());
                }
            }
        };
        within_list_limit(&client, pages).await
    }

    /// Waits for changes, at most for `wait`. Without a change, returns no objects and `complete`.
    pub async fn next(&mut self, wait: Duration) -> Result<Updates, Error> {
        let mut objects = Vec::new();
        let complete = self.page(wait, |update| objects.push(update)).await?;
        Ok(Updates { objects, complete })
    }

    /// Passes on the objects of one page. Returns whether no further page follows. After an error, some of them may have
    /// been passed on.
    async fn page(&mut self, wait: Duration, on_update: impl FnMut(ObjectUpdate)) -> Result<bool, Error> {
        let version = self.version.clone();
        let mut reading = Reading { on_update, read: object_update, is_malformed: false, has_ended: false };
        let parameters = |body: &mut Writer| {
            body.text("version", &version).nest("options", |options| {
                options.value("maxWaitSeconds", wait.as_secs()).value("maxObjectUpdates", PAGE_OBJECTS);
            });
        };
        let parts = Parts { name: Some("objectSet"), take: |element| reading.take(element) };
        let answer = self.client.call_in_parts(wait, "WaitForUpdatesEx", &self.collector, parameters, parts).await?;
        reading.finish(&self.client)?;
        let Some(set) = answer.child("returnval") else { return Ok(true) };
        set.text_at("version").unwrap_or_default().clone_into(&mut self.version);
        Ok(!set.value_at("truncated").unwrap_or(false))
    }

    /// Reads the current properties of every object of the selected types that the watch covers.
    pub async fn read_again(&self, selections: &[Selection<'_>]) -> Result<Vec<ObjectUpdate>, Error> {
        retrieve(&self.client, &self.collector, |spec| view_filter(spec, &self.view, selections)).await
    }

    /// Deletes what the server keeps for this watch.
    pub async fn stop(self) -> Result<(), Error> {
        self.client.call("DestroyPropertyCollector", &self.collector, |_| ()).await?;
        self.client.call("DestroyView", &self.view, |_| ()).await?;
        Ok(())
    }
}

fn view_filter(spec: &mut Writer, view: &ManagedObject, selections: &[Selection<'_>]) {
    for selection in selections {
        property_set(spec, selection);
    }
    spec.nest("objectSet", |object| {
        object.reference("obj", view).value("skip", true).nest_typed("selectSet", "TraversalSpec", |traversal| {
            traversal.text("name", "view").text("type", "ContainerView").text("path", "view").value("skip", false);
        });
    });
}

fn property_set(spec: &mut Writer, selection: &Selection<'_>) {
    spec.nest("propSet", |set| {
        set.text("type", selection.kind).value("all", false);
        for path in selection.paths {
            set.text("pathSet", path);
        }
    });
}

/// Reads the objects of a response one by one.
struct Reading<F> {
    on_update: F,
    read: fn(Element) -> Option<ObjectUpdate>,
    /// There was an element without an object.
    is_malformed: bool,
    /// The end of a session may appear only here: the call succeeds, but properties are missing for this reason.
    has_ended: bool,
}

impl<F: FnMut(ObjectUpdate)> Reading<F> {
    fn take(&mut self, element: Element) {
        match (self.read)(element) {
            Some(update) => {
                self.has_ended |= update.missing.iter().any(|(_, fault)| fault.kind == "NotAuthenticated");
                (self.on_update)(update);
            }
            None => self.is_malformed = true,
        }
    }

    fn finish(self, client: &Client) -> Result<(), Error> {
        match self {
            Reading { is_malformed: true, .. } => Err(client.protocol("properties without an object".to_owned())),
            Reading { has_ended: true, .. } => Err(VsphereError::NotAuthenticated),
            _ => Ok(()),
        }
    }
}

fn object_update(mut element: Element) -> Option<ObjectUpdate> {
    let kind = match element.text_at("kind")? {
        "enter" => UpdateKind::Enter,
        "leave" => UpdateKind::Leave,
        _ => UpdateKind::Modify,
    };
    let object = element.child("obj")?.reference()?;
    let missing = missing(&element);
    let changes = element.children.iter_mut().filter(|child| child.name == "changeSet").filter_map(|change| {
        let path = change.text_at("name")?.to_owned();
        let gone = matches!(change.text_at("op"), Some("remove" | "indirectRemove"));
        Some(PropertyChange { path, value: if gone { None } else { change.take_child("val") } })
    });
    Some(ObjectUpdate { kind, object, changes: changes.collect(), missing })
}

fn missing(element: &Element) -> Vec<(String, Fault)> {
    element
        .all("missingSet")
        .filter_map(|entry| Some((entry.text_at("path")?.to_owned(), soap::localized_fault(entry.child("fault")?))))
        .collect()
}

/// Reads some properties of one object, once. A property that cannot be read is an error.
pub async fn read(client: &Client, object: &ManagedObject, paths: &[&str]) -> Result<Vec<PropertyChange>, Error> {
    let Some(found) = read_each(client, std::slice::from_ref(object), paths).await?.into_iter().next() else {
        return Ok(Vec::new());
    };
    match found.missing.into_iter().next() {
        Some((_, fault)) => Err(VsphereError::from_fault(RETRIEVE, fault)),
        None => Ok(found.changes),
    }
}

/// Reads some properties of several objects of the same type, once.
pub async fn read_each(client: &Client, objects: &[ManagedObject], paths: &[&str]) -> Result<Vec<ObjectUpdate>, Error> {
    let Some(first) = objects.first() else { return Ok(Vec::new()) };
    retrieve(client, &client.content().property_collector, |spec| {
        property_set(spec, &Selection { kind: &first.kind, paths });
        for object in objects {
            spec.nest("objectSet", |set| {
                set.reference("obj", object).value("skip", false);
            });
        }
    })
    .await
}

/// Reads the objects and properties of a filter, page by page.
async fn retrieve(
    client: &Client,
    collector: &ManagedObject,
    filter: impl FnOnce(&mut Writer),
) -> Result<Vec<ObjectUpdate>, Error> {
    within_list_limit(client, retrieve_pages(client, collector, filter)).await
}

async fn retrieve_pages(
    client: &Client,
    collector: &ManagedObject,
    filter: impl FnOnce(&mut Writer),
) -> Result<Vec<ObjectUpdate>, Error> {
    let mut objects = Vec::new();
    let on_update = |update| objects.push(update);
    let mut reading = Reading { on_update, read: object_content, is_malformed: false, has_ended: false };
    let first = |body: &mut Writer| {
        body.nest("specSet", filter).nest("options", |options| {
            options.value("maxObjects", PAGE_OBJECTS);
        });
    };
    let mut take = |element| reading.take(element);
    let parts = Parts { name: Some("objects"), take: &mut take };
    let mut answer = client.call_in_parts(Duration::ZERO, RETRIEVE, collector, first, parts).await?;
    while let Some(token) = answer.text_at("returnval.token").filter(|token| !token.is_empty()) {
        let token = token.to_owned();
        let next = |body: &mut Writer| {
            body.text("token", &token);
        };
        let parts = Parts { name: Some("objects"), take: &mut take };
        answer = client.call_in_parts(Duration::ZERO, "ContinueRetrievePropertiesEx", collector, next, parts).await?;
    }
    reading.finish(client)?;
    Ok(objects)
}

/// A server that never stops sending pages is an error, like one that sends none.
async fn within_list_limit<T>(client: &Client, pages: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let timed_out = || VsphereError::TimedOut { host: client.host().to_owned(), seconds: LIST_LIMIT.as_secs() };
    tokio::time::timeout(LIST_LIMIT, pages).await.map_err(|_| timed_out())?
}

fn object_content(mut element: Element) -> Option<ObjectUpdate> {
    let object = element.child("obj")?.reference()?;
    let missing = missing(&element);
    let changes = element.children.iter_mut().filter(|child| child.name == "propSet").filter_map(|property| {
        Some(PropertyChange { path: property.text_at("name")?.to_owned(), value: property.take_child("val") })
    });
    Some(ObjectUpdate { kind: UpdateKind::Modify, object, changes: changes.collect(), missing })
}
