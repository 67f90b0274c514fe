//! The property collector: lists objects with selected properties and reports every change.
//!
//! Each [`Watch`] has its own collector, because with a shared one, callers wait for each other. The first responses
//! contain all objects, in pages; [`Updates::complete`] marks the last page. If the session ends, the watch is dropped
//! and a new one is created: its first pages are the resync. [`Watch::read_again`] reads properties of the same objects
//! outside the stream, for servers that do not report every change.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
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
/// How much longer than the wait itself a response may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
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
                let updates = self.next(Duration::ZERO).await?;
                updates.objects.iter().for_each(&mut on_update);
                if updates.complete {
                    return Ok(());
                }
            }
        };
        within_list_limit(&client, pages).await
    }

    /// Waits for changes, at most for `wait`. Without a change, returns no objects and `complete`.
    pub async fn next(&mut self, wait: Duration) -> Result<Updates, Error> {
        let version = self.version.clone();
        let answer = self
            .client
            .call_within(wait + ANSWER_LIMIT, "WaitForUpdatesEx", &self.collector, |body| {
                body.text("version", &version).nest("options", |options| {
                    options.value("maxWaitSeconds", wait.as_secs()).value("maxObjectUpdates", PAGE_OBJECTS);
                });
            })
            .await?;
        let Some(set) = answer.child("returnval") else { return Ok(Updates { objects: Vec::new(), complete: true }) };
        set.text_at("version").unwrap_or_default().clone_into(&mut self.version);
        let truncated = set.value_at("truncated").unwrap_or(false);
        let mut objects = Vec::new();
        for filter in set.all("filterSet") {
            for element in filter.all("objectSet") {
                objects.push(
                    object_update(element)
                        .ok_or_else(|| self.client.protocol("an update without an object".to_owned()))?,
                );
            }
        }
        session_still_there(&objects)?;
        Ok(Updates { objects, complete: !truncated })
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

fn object_update(element: &Element) -> Option<ObjectUpdate> {
    let kind = match element.text_at("kind")? {
        "enter" => UpdateKind::Enter,
        "leave" => UpdateKind::Leave,
        _ => UpdateKind::Modify,
    };
    let changes = element.all("changeSet").filter_map(|change| {
        let path = change.text_at("name")?.to_owned();
        let gone = matches!(change.text_at("op"), Some("remove" | "indirectRemove"));
        Some(PropertyChange { path, value: if gone { None } else { change.child("val").cloned() } })
    });
    Some(ObjectUpdate {
        kind,
        object: element.child("obj")?.reference()?,
        changes: changes.collect(),
        missing: missing(element),
    })
}

fn missing(element: &Element) -> Vec<(String, Fault)> {
    element
        .all("missingSet")
        .filter_map(|entry| Some((entry.text_at("path")?.to_owned(), soap::localized_fault(entry.child("fault")?))))
        .collect()
}

/// The end of a session may appear only here: the call succeeds, but properties are missing for this reason.
fn session_still_there(objects: &[ObjectUpdate]) -> Result<(), Error> {
    let ended = |update: &ObjectUpdate| update.missing.iter().any(|(_, fault)| fault.kind == "NotAuthenticated");
    if objects.iter().any(ended) { Err(VsphereError::NotAuthenticated) } else { Ok(()) }
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
    let mut answer = client
        .call(RETRIEVE, collector, |body| {
            body.nest("specSet", filter).nest("options", |options| {
                options.value("maxObjects", PAGE_OBJECTS);
            });
        })
        .await?;
    let mut objects = Vec::new();
    while let Some(page) = answer.child("returnval") {
        for element in page.all("objects") {
            objects.push(
                object_content(element).ok_or_else(|| client.protocol("properties without an object".to_owned()))?,
            );
        }
        let Some(token) = page.text_at("token").filter(|token| !token.is_empty()) else { break };
        let token = token.to_owned();
        answer = client
            .call("ContinueRetrievePropertiesEx", collector, |body| {
                body.text("token", &token);
            })
            .await?;
    }
    session_still_there(&objects)?;
    Ok(objects)
}

/// A server that never stops sending pages is an error, like one that sends none.
async fn within_list_limit<T>(client: &Client, pages: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let timed_out = || VsphereError::TimedOut { host: client.host().to_owned(), seconds: LIST_LIMIT.as_secs() };
    tokio::time::timeout(LIST_LIMIT, pages).await.map_err(|_| timed_out())?
}

fn object_content(element: &Element) -> Option<ObjectUpdate> {
    let changes = element.all("propSet").filter_map(|property| {
        Some(PropertyChange { path: property.text_at("name")?.to_owned(), value: property.child("val").cloned() })
    });
    Some(ObjectUpdate {
        kind: UpdateKind::Modify,
        object: element.child("obj")?.reference()?,
        changes: changes.collect(),
        missing: missing(element),
    })
}
