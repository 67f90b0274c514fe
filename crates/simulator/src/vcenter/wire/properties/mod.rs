//! The properties of managed objects, as values.
//!
//! In: a [`Scope`] (the inventory and the calling session at one time), an object and the name of one of its
//! properties. Out: a [`Value`], or [`Value::Unset`] for a property without one. The schema checks before whether the
//! name exists.

mod cluster;
mod containers;
mod event;
mod host;
mod service;
mod task;
mod vm;

use std::collections::BTreeMap;

use uuid::Uuid;

pub(crate) use event::event_value;
pub(crate) use service::{option_value, options, service_content, user_session};
pub(crate) use task::task_info;

use super::relations::{Relations, datacenter_of};
use super::session::Session;
use super::target::{ClientObject, Target};
use super::value::{Path, Reference, Value};
use super::view::View;
use crate::clock::SimTime;
use crate::vcenter::Config;
use crate::vcenter::inventory::{Folder, FolderId, FolderKind, Inventory, MoRef, TaskId, TaskState};

/// How long a finished task counts as recent.
const RECENT_TASK_MS: u64 = 10 * 60 * 1000;

/// The state that properties are read from.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub inventory: &'a Inventory,
    pub relations: &'a Relations,
    pub config: &'a Config,
    pub instance_uuid: Uuid,
    pub sessions: &'a BTreeMap<String, Session>,
    /// The calling session; `None` before the login.
    pub session: Option<&'a Session>,
    pub now: SimTime,
}

/// The result of reading one path of one object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Value(Value),
    Unset,
    Unknown,
}

impl Scope<'_> {
    pub fn session_key(&self) -> &str {
        self.session.map_or("", |session| &session.key)
    }

    pub fn exists(&self, target: Target) -> bool {
        let session = self.session;
        match target {
            Target::Inventory(object) => self.inventory.exists(object),
            Target::Singleton(_) => true,
            Target::Client(kind, number) => session.is_some_and(|session| match kind {
                ClientObject::PropertyCollector => session.collectors.contains_key(&number),
                ClientObject::PropertyFilter => {
                    session.collectors.values().any(|collector| collector.filters.contains_key(&number))
                }
                ClientObject::ContainerView => matches!(session.views.get(&number), Some(View::Container(_))),
                ClientObject::ListView => matches!(session.views.get(&number), Some(View::List { .. })),
                ClientObject::EventHistoryCollector | ClientObject::TaskHistoryCollector => {
                    session.histories.contains_key(&number)
                }
            }),
        }
    }

    /// A property of an existing object.
    pub fn property(&self, target: Target, property: &str) -> Value {
        match target {
            Target::Inventory(object) => match object {
                MoRef::Vm(id) => self.inventory.vm(id).map(|vm| self.vm_property(id, vm, property)),
                MoRef::Host(id) => self.inventory.host(id).map(|host| self.host_property(id, host, property)),
                MoRef::Cluster(id) => {
                    self.inventory.cluster(id).map(|cluster| self.cluster_property(id, cluster, property))
                }
                MoRef::Task(id) => self.inventory.task(id).map(|task| match property {
                    "info" => task_info(id, task),
                    _ => extensible(property),
                }),
                _ => Some(self.container_property(object, property)),
            }
            .unwrap_or(Value::Unset),
            Target::Singleton(service) => self.service_property(service, property),
            Target::Client(kind, number) => self.client_property(kind, number, property),
        }
    }

    /// One path of an existing object.
    pub fn read(&self, target: Target, path: &Path) -> Read {
        use super::value::At;
        let value = self.property(target, &path.property);
        if path.rest.is_empty() {
            return if value == Value::Unset { Read::Unset } else { Read::Value(value) };
        }
        match value.at(&path.rest) {
            At::Found(found) => Read::Value(found.clone()),
            At::Unset => Read::Unset,
            At::Unknown => Read::Unknown,
        }
    }

    /// The objects that a property references.
    pub fn follow(&self, target: Target, path: &Path) -> Vec<Target> {
        match self.read(target, path) {
            Read::Value(value) => value
                .references()
                .filter_map(|reference| Target::parse(reference.type_name, &reference.value, self.session_key()))
                .collect(),
            _ => Vec::new(),
        }
    }

    pub fn reference(&self, target: Target) -> Reference {
        target.reference(self.session_key())
    }

    /// The properties that every entity of the inventory has.
    fn entity_property(&self, object: MoRef, name: &str, status: &'static str, property: &str) -> Value {
        match property {
            "name" => Value::string(name),
            "parent" => self.parent(object).map_or(Value::Unset, |parent| Value::Ref(parent.into())),
            "overallStatus" | "configStatus" => Value::of("ManagedEntityStatus", status),
            "configIssue" => Value::list("Event", Vec::new()),
            "effectiveRole" => Value::list("int", vec![Value::int(-1)]),
            "permission" => Value::list("Permission", Vec::new()),
            "customValue" => Value::list("CustomFieldValue", Vec::new()),
            "disabledMethod" => Value::strings::<String>([]),
            "recentTask" => Value::refs(self.relations.members(object).filter(|member| match member {
                MoRef::Task(id) => self.is_recent(*id),
                _ => false,
            })),
            "declaredAlarmState" | "triggeredAlarmState" => Value::list("AlarmState", Vec::new()),
            "alarmActionsEnabled" => Value::bool(true),
            "tag" => Value::list("Tag", Vec::new()),
            _ => extensible(property),
        }
    }

    fn parent(&self, object: MoRef) -> Option<MoRef> {
        self.relations.owners(object).first().copied()
    }

    fn is_recent(&self, task: TaskId) -> bool {
        self.inventory.task(task).is_some_and(|task| match task.state {
            TaskState::Queued | TaskState::Running => true,
            TaskState::Success | TaskState::Error(_) => {
                task.completed_at.is_some_and(|done| self.now.unix_ms.saturating_sub(done.unix_ms) <= RECENT_TASK_MS)
            }
        })
    }

    /// Unfinished tasks and recently finished ones, oldest first.
    pub fn recent_tasks(&self) -> Vec<TaskId> {
        self.inventory.tasks().map(|(id, _)| id).filter(|id| self.is_recent(*id)).collect()
    }

    /// The shared datastores of the object's datacenter. VMs and clusters use no others; a host also has its own.
    fn datastores_near(&self, object: MoRef) -> Vec<MoRef> {
        let mut all = self.folder_near(object, |datacenter| datacenter.datastore_folder);
        all.retain(|member| match member {
            MoRef::Datastore(id) => self.inventory.datastore(*id).is_some_and(|datastore| match datastore.local_to {
                Some(host) => MoRef::from(host) == object || matches!(object, MoRef::Datacenter(_)),
                None => true,
            }),
            _ => true,
        });
        all
    }

    fn networks_near(&self, object: MoRef) -> Vec<MoRef> {
        self.folder_near(object, |datacenter| datacenter.network_folder)
    }

    fn folder_near(
        &self,
        object: MoRef,
        folder: impl Fn(&crate::vcenter::inventory::Datacenter) -> FolderId,
    ) -> Vec<MoRef> {
        let Some(MoRef::Datacenter(id)) = datacenter_of(self.relations, object) else { return Vec::new() };
        let Some(datacenter) = self.inventory.datacenter(id) else { return Vec::new() };
        self.relations
            .descendants(folder(datacenter).into())
            .into_iter()
            .filter(|member| matches!(member, MoRef::Datastore(_) | MoRef::Network(_)))
            .collect()
    }

    /// The first datastore's name, for paths like `[datastore-1] node-1/node-1.vmx`.
    fn datastore_name_near(&self, object: MoRef) -> &str {
        self.datastores_near(object)
            .into_iter()
            .find_map(|member| match member {
                MoRef::Datastore(id) => self.inventory.datastore(id),
                _ => None,
            })
            .map_or("datastore", |datastore| &datastore.name)
    }
}

/// The root folder.
pub(crate) fn root_folder(inventory: &Inventory) -> Option<FolderId> {
    inventory
        .folders()
        .find(|(_, folder): &(FolderId, &Folder)| folder.kind == FolderKind::Root && folder.parent.is_none())
        .map(|(id, _)| id)
}

fn extensible(property: &str) -> Value {
    match property {
        "value" => Value::list("CustomFieldValue", Vec::new()),
        "availableField" => Value::list("CustomFieldDef", Vec::new()),
        _ => Value::Unset,
    }
}

fn allocation(shares: u64) -> Value {
    Value::object(
        "ResourceAllocationInfo",
        vec![
            ("reservation", Value::long(0)),
            ("expandableReservation", Value::bool(false)),
            ("limit", Value::long(-1)),
            (
                "shares",
                Value::object(
                    "SharesInfo",
                    vec![("shares", Value::int(shares)), ("level", Value::of("SharesLevel", "normal"))],
                ),
            ),
        ],
    )
}
