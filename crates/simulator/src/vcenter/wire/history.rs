//! History collectors: a client's cursor over the vCenter's events or tasks.
//!
//! A collector has a filter, a page of the newest items (`latestPage`, newest first) and a position between two items.
//! ReadNext moves the position towards newer items, ReadPrevious towards older ones. It starts before the oldest.

use std::collections::BTreeSet;

use super::relations::Relations;
use super::target::Target;
use super::xml::Element;
use crate::clock::SimTime;
use crate::vcenter::inventory::{Event, Inventory, MoRef, Task, TaskId, TaskState};
use crate::vcenter::vim_fault::VimFault;

/// The maximum number of items per call or page.
pub const PAGE_MAX: usize = 1_000;

#[derive(Debug)]
pub struct History {
    pub kind: HistoryKind,
    pub filter: HistoryFilter,
    pub page_size: usize,
    /// The number of the last item before the position.
    position: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryKind {
    Events,
    Tasks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recursion {
    This,
    Children,
    All,
}

#[derive(Debug, Default)]
pub struct HistoryFilter {
    entity: Option<(MoRef, Recursion)>,
    types: BTreeSet<String>,
    states: BTreeSet<String>,
    users: BTreeSet<String>,
    begin: Option<SimTime>,
    end: Option<SimTime>,
    max_count: Option<usize>,
}

impl HistoryFilter {
    /// Parses an EventFilterSpec or a TaskFilterSpec.
    pub fn read(spec: &Element, session_key: &str) -> Result<HistoryFilter, VimFault> {
        let wrong = |property: &str| VimFault::InvalidArgument { property: format!("filter.{property}") };
        let mut filter = HistoryFilter::default();
        if let Some(by) = spec.child("entity") {
            let entity = by.child("entity").ok_or_else(|| wrong("entity"))?;
            let Target::Inventory(object) = Target::read(entity, session_key)? else { return Err(wrong("entity")) };
            let recursion = match by.child_text("recursion") {
                Some("self") | None => Recursion::This,
                Some("children") => Recursion::Children,
                Some("all") => Recursion::All,
                Some(_) => return Err(wrong("entity.recursion")),
            };
            filter.entity = Some((object, recursion));
        }
        if let Some(by) = spec.child("time") {
            let moment = |name: &str| match by.child_text(name) {
                None => Ok(None),
                Some(text) => read_time(text).map(Some).ok_or_else(|| wrong("time")),
            };
            filter.begin = moment("beginTime")?;
            filter.end = moment("endTime")?;
        }
        let texts = |name: &'static str| spec.children_named(name).map(|child| child.text.trim().to_owned());
        filter.types = texts("type")
            .chain(texts("eventTypeId"))
            .map(|name| name.strip_prefix("vim.event.").map_or(name.clone(), str::to_owned))
            .collect();
        filter.states = texts("state").collect();
        if let Some(by) = spec.child("userName") {
            filter.users = by.children_named("userList").map(|child| child.text.trim().to_owned()).collect();
        }
        if let Some(count) = spec.child_text("maxCount").and_then(|text| text.parse::<i32>().ok()) {
            filter.max_count = usize::try_from(count).ok().filter(|count| *count > 0);
        }
        Ok(filter)
    }

    #[must_use]
    pub fn max_count(&self) -> Option<usize> {
        self.max_count
    }

    fn takes_moment(&self, moment: SimTime) -> bool {
        self.begin.is_none_or(|begin| begin <= moment) && self.end.is_none_or(|end| moment <= end)
    }

    fn takes_entity(&self, about: &[MoRef], relations: &Relations) -> bool {
        let Some((entity, recursion)) = self.entity else { return true };
        let this = || about.contains(&entity);
        let below = || about.iter().any(|object| relations.descends(*object, entity));
        match recursion {
            Recursion::This => this(),
            Recursion::Children => below(),
            // Items without an entity belong to the vCenter itself and are visible at the root.
            Recursion::All => this() || below() || (about.is_empty() && relations.owners(entity).is_empty()),
        }
    }

    fn takes_event(&self, event: &Event, relations: &Relations) -> bool {
        let about: Vec<MoRef> = [
            event.vm.map(MoRef::from),
            event.host.map(MoRef::from),
            event.source_host.map(MoRef::from),
            event.cluster.map(MoRef::from),
            event.datacenter.map(MoRef::from),
        ]
        .into_iter()
        .flatten()
        .collect();
        (self.types.is_empty() || self.types.iter().any(|wanted| event_is_a(event.type_name, wanted)))
            && (self.users.is_empty() || self.users.contains(&event.user))
            && self.takes_moment(event.created_at)
            && self.takes_entity(&about, relations)
    }

    fn takes_task(&self, task: &Task, relations: &Relations) -> bool {
        (self.states.is_empty() || self.states.contains(task_state_name(&task.state)))
            && (self.users.is_empty() || self.users.contains(&task.user))
            && self.takes_moment(task.started_at.unwrap_or(task.queued_at))
            && self.takes_entity(&[task.entity], relations)
    }
}

fn event_is_a(type_name: &str, wanted: &str) -> bool {
    type_name == wanted
        || match wanted {
            "Event" => true,
            "VmEvent" => type_name.starts_with("Vm") || type_name.starts_with("DrsVm"),
            "VmMigratedEvent" => type_name == "DrsVmMigratedEvent",
            "VmPoweredOnEvent" => type_name == "DrsVmPoweredOnEvent",
            "HostEvent" => type_name.starts_with("Host") || type_name.contains("MaintenanceMode"),
            "ClusterEvent" => type_name.starts_with("Cluster") || type_name.starts_with("Das"),
            "SessionEvent" => type_name.starts_with("User"),
            _ => false,
        }
}

#[must_use]
pub fn task_state_name(state: &TaskState) -> &'static str {
    match state {
        TaskState::Queued => "queued",
        TaskState::Running => "running",
        TaskState::Success => "success",
        TaskState::Error(_) => "error",
    }
}

fn read_time(text: &str) -> Option<SimTime> {
    let timestamp: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(timestamp.as_millisecond()).ok().map(|unix_ms| SimTime { unix_ms })
}

/// The events that match the filter, oldest first.
pub fn events<'a>(
    filter: &'a HistoryFilter,
    inventory: &'a Inventory,
    relations: &'a Relations,
) -> impl DoubleEndedIterator<Item = &'a Event> {
    inventory.events().iter().filter(move |event| filter.takes_event(event, relations))
}

/// The tasks that match the filter, oldest first.
fn tasks(filter: &HistoryFilter, inventory: &Inventory, relations: &Relations) -> Vec<TaskId> {
    inventory.tasks().filter(|(_, task)| filter.takes_task(task, relations)).map(|(id, _)| id).collect()
}

impl History {
    #[must_use]
    pub fn new(kind: HistoryKind, filter: HistoryFilter) -> History {
        let page_size = filter.max_count.unwrap_or(10).min(PAGE_MAX);
        History { kind, filter, page_size, position: 0 }
    }

    /// The numbers of all items that match the filter, oldest first: event keys, or task ids.
    fn numbers(&self, inventory: &Inventory, relations: &Relations) -> Vec<u64> {
        match self.kind {
            HistoryKind::Events => events(&self.filter, inventory, relations)
                .map(|event| u64::try_from(event.key).unwrap_or_default())
                .collect(),
            HistoryKind::Tasks => {
                tasks(&self.filter, inventory, relations).into_iter().map(|id| u64::from(id.0)).collect()
            }
        }
    }

    /// The newest items, newest first.
    #[must_use]
    pub fn latest_page(&self, inventory: &Inventory, relations: &Relations) -> Vec<u64> {
        match self.kind {
            HistoryKind::Events => events(&self.filter, inventory, relations)
                .rev()
                .take(self.page_size)
                .map(|event| u64::try_from(event.key).unwrap_or_default())
                .collect(),
            HistoryKind::Tasks => self.numbers(inventory, relations).into_iter().rev().take(self.page_size).collect(),
        }
    }

    /// The next newer items, oldest first.
    pub fn read_next(&mut self, count: usize, inventory: &Inventory, relations: &Relations) -> Vec<u64> {
        let numbers = self.numbers(inventory, relations);
        let page: Vec<u64> = numbers.into_iter().filter(|number| *number > self.position).take(count).collect();
        self.position = page.last().copied().unwrap_or(self.position);
        page
    }

    /// The next older items, newest first.
    pub fn read_previous(&mut self, count: usize, inventory: &Inventory, relations: &Relations) -> Vec<u64> {
        let numbers = self.numbers(inventory, relations);
        let page: Vec<u64> = numbers.into_iter().rev().filter(|number| *number <= self.position).take(count).collect();
        self.position = page.last().map_or(self.position, |oldest| oldest - 1);
        page
    }

    /// Moves the position before the oldest item.
    pub fn rewind(&mut self) {
        self.position = 0;
    }

    /// Moves the position just before the latest page.
    pub fn reset(&mut self, inventory: &Inventory, relations: &Relations) {
        self.position = self.latest_page(inventory, relations).last().map_or(0, |oldest| oldest - 1);
    }
}
