use proptest::option::of as maybe;
use proptest::prelude::*;

use super::*;
use crate::property::PropertyChange;
use crate::xml::Element;

const ID: VcenterId = VcenterId(3);

fn update(kind: UpdateKind, object: (&str, &str), changes: &[(&str, Element)]) -> ObjectUpdate {
    ObjectUpdate {
        kind,
        object: ManagedObject::new(object.0, object.1),
        changes: changes
            .iter()
            .map(|(path, value)| PropertyChange { path: (*path).to_owned(), value: Some(value.clone()) })
            .collect(),
        missing: Vec::new(),
    }
}

fn text(text: &str) -> Element {
    Element { name: "val".to_owned(), text: text.to_owned(), ..Element::default() }
}

fn reference(kind: &str, id: &str) -> Element {
    Element { reference_kind: Some(kind.to_owned()), ..text(id) }
}

fn place(kind: &str, id: &str, name: &str, parent: (&str, &str)) -> ObjectUpdate {
    update(UpdateKind::Enter, (kind, id), &[("name", text(name)), ("parent", reference(parent.0, parent.1))])
}

/// Root, folder, datacenter, folder, folder, cluster, host. Parents come last.
fn deep_inventory() -> Vec<ObjectUpdate> {
    vec![
        place(HOST, "host-1", "esx-1", (CLUSTER, "domain-c1")),
        place(HOST, "host-2", "esx-2", (COMPUTE, "domain-s2")),
        place(CLUSTER, "domain-c1", "C1", (FOLDER, "group-h2")),
        place(COMPUTE, "domain-s2", "esx-2", (FOLDER, "group-h1")),
        place(FOLDER, "group-h2", "inner", (FOLDER, "group-h1")),
        place(FOLDER, "group-h1", "host", (DATACENTER, "datacenter-1")),
        place(DATACENTER, "datacenter-1", "Paris", (FOLDER, "group-d5")),
        place(DATACENTER, "datacenter-2", "Oslo", (FOLDER, "group-d5")),
        place(FOLDER, "group-h9", "host", (DATACENTER, "datacenter-2")),
        place(FOLDER, "group-d5", "Europe", (FOLDER, "group-d1")),
    ]
}

fn datacenters(events: &[Event]) -> Vec<(&str, Option<&str>)> {
    events
        .iter()
        .map(|event| match event {
            Event::ClusterApplied { cluster, .. } => (cluster.name.as_str(), cluster.datacenter.as_deref()),
            Event::HostApplied { host, .. } => (host.name.as_str(), host.datacenter.as_deref()),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_datacenter_is_found_through_folders_and_its_changes_reach_all_objects_below() {
    let mut picture = Picture::new(ID);
    deep_inventory().iter().for_each(|update| picture.apply(update));
    let all = [("C1", Some("Paris")), ("esx-1", Some("Paris")), ("esx-2", Some("Paris"))];
    assert_eq!(datacenters(&picture.changes()), all);
    assert_eq!(picture.changes(), []);

    picture.apply(&update(UpdateKind::Modify, (DATACENTER, "datacenter-1"), &[("name", text("Lyon"))]));
    let all = [("C1", Some("Lyon")), ("esx-1", Some("Lyon")), ("esx-2", Some("Lyon"))];
    assert_eq!(datacenters(&picture.changes()), all);

    let to_oslo = ("parent", reference(FOLDER, "group-h9"));
    picture.apply(&update(UpdateKind::Modify, (FOLDER, "group-h2"), &[to_oslo]));
    assert_eq!(datacenters(&picture.changes()), [("C1", Some("Oslo")), ("esx-1", Some("Oslo"))]);

    // Renaming a folder changes no emitted facts.
    picture.apply(&update(UpdateKind::Modify, (FOLDER, "group-h9"), &[("name", text("renamed"))]));
    assert_eq!(picture.changes(), []);
}

#[test]
fn a_cycle_of_parents_has_no_datacenter() {
    let mut picture = Picture::new(ID);
    picture.apply(&place(CLUSTER, "domain-c1", "C1", (FOLDER, "a")));
    picture.apply(&place(FOLDER, "a", "a", (FOLDER, "b")));
    picture.apply(&place(FOLDER, "b", "b", (FOLDER, "a")));
    assert_eq!(datacenters(&picture.changes()), [("C1", None)]);
}

#[test]
fn an_object_is_emitted_once_its_name_is_known_and_removed_only_if_it_was_emitted() {
    let mut picture = Picture::new(ID);
    let vm = (VM, "vm-1");
    let on = |host| update(UpdateKind::Enter, vm, &[("runtime.host", reference(HOST, host))]);
    let gone = update(UpdateKind::Leave, vm, &[]);
    picture.place(&on("host-1"));
    picture.apply(&update(UpdateKind::Modify, vm, &[("runtime.powerState", text("poweredOn"))]));
    assert_eq!(picture.changes(), []);
    picture.apply(&gone);
    picture.apply(&update(UpdateKind::Leave, (VM, "vm-never-seen"), &[]));
    picture.place(&update(UpdateKind::Leave, (VM, "vm-never-seen"), &[]));
    assert_eq!(picture.changes(), []);

    let entered =
        |power: &str| update(UpdateKind::Enter, vm, &[("name", text("web")), ("runtime.powerState", text(power))]);
    picture.apply(&entered("poweredOn"));
    let applied = |host: Option<&str>, powered_on| {
        let (id, name) = ("vm-1".to_owned(), "web".to_owned());
        Event::VmApplied {
            vcenter: ID,
            vm: VmFacts { id, name, host: host.map(str::to_owned), powered_on, ..VmFacts::default() },
        }
    };
    assert_eq!(picture.changes(), [applied(Some("host-1"), true)]);
    // The same update again, and leaving and entering within one page: nothing is new.
    picture.apply(&entered("poweredOn"));
    picture.apply(&gone);
    picture.apply(&entered("poweredOn"));
    picture.place(&gone);
    picture.place(&on("host-1"));
    assert_eq!(picture.changes(), []);
    // An Enter is complete: properties that it omits have no value any more.
    picture.apply(&update(UpdateKind::Enter, vm, &[("name", text("web"))]));
    assert_eq!(picture.changes(), [applied(Some("host-1"), false)]);
    picture.place(&update(UpdateKind::Enter, vm, &[]));
    assert_eq!(picture.changes(), [applied(None, false)]);
    picture.apply(&gone);
    assert_eq!(picture.changes(), [Event::VmRemoved { vcenter: ID, id: "vm-1".to_owned() }]);
    assert_eq!(picture.changes(), []);
}

#[test]
fn a_vm_exists_while_both_watches_show_it() {
    let vm = (VM, "vm-1");
    let facts = update(UpdateKind::Enter, vm, &[("name", text("web"))]);
    let on = |host| update(UpdateKind::Enter, vm, &[("runtime.host", reference(HOST, host))]);
    let gone = update(UpdateKind::Leave, vm, &[]);
    type Take = fn(&mut Picture, &ObjectUpdate);
    for (first, second) in [(Picture::apply as Take, Picture::place as Take), (Picture::place, Picture::apply)] {
        let mut picture = Picture::new(ID);
        picture.apply(&facts);
        assert_eq!(picture.changes(), []);
        picture.place(&on("host-1"));
        assert!(matches!(&picture.changes()[..], [Event::VmApplied { .. }]));
        first(&mut picture, &gone);
        assert_eq!(picture.changes(), [Event::VmRemoved { vcenter: ID, id: "vm-1".to_owned() }]);
        // A late update of the other watch does not bring it back.
        picture.place(&update(UpdateKind::Modify, (VM, "vm-2"), &[("runtime.host", reference(HOST, "host-2"))]));
        assert_eq!(picture.changes(), []);
        second(&mut picture, &gone);
        assert_eq!(picture.changes(), []);
        // A new VM with the same id starts without the old state.
        picture.place(&on("host-3"));
        picture.apply(&facts);
        let events = picture.changes();
        assert!(
            matches!(&events[..], [Event::VmApplied { vm, .. }] if vm.host.as_deref() == Some("host-3")),
            "{events:?}"
        );
    }
}

#[test]
fn values_read_outside_the_watch_apply_only_to_objects_that_the_watch_shows() {
    let mut picture = Picture::new(ID);
    picture.apply(&place(HOST, "host-1", "esx-1", (COMPUTE, "domain-s1")));
    picture.changes();
    let maintenance = |host| update(UpdateKind::Modify, (HOST, host), &[("runtime.inMaintenanceMode", text("true"))]);
    picture.refresh(&maintenance("host-1"));
    picture.refresh(&maintenance("host-2"));
    let events = picture.changes();
    assert!(
        matches!(&events[..], [Event::HostApplied { host, .. }] if host.maintenance && host.id == "host-1"),
        "{events:?}"
    );
    assert_eq!(picture.host_count(), 1);
}

#[test]
fn a_host_is_in_maintenance_from_the_task_that_enters_it() {
    let mut picture = Picture::new(ID);
    let host = (HOST, "host-1");
    picture.apply(&place(HOST, "host-1", "esx-1", (COMPUTE, "domain-s1")));
    picture.changes();
    let tasks = Element { children: vec![reference("Task", "task-1")], ..text("") };
    let maintenance = |picture: &mut Picture| -> Vec<bool> {
        let events = picture.changes();
        events.iter().map(|event| matches!(event, Event::HostApplied { host, .. } if host.maintenance)).collect()
    };
    picture.apply(&update(UpdateKind::Modify, host, &[("recentTask", tasks)]));
    assert_eq!(picture.host_tasks(HostTasks::Unseen).len(), 1);
    picture.set_entering_maintenance("host-1", true);
    assert_eq!(maintenance(&mut picture), [true]);
    assert!(picture.host_tasks(HostTasks::Unseen).is_empty());
    assert_eq!(picture.host_tasks(HostTasks::Entering).len(), 1);
    // The task is cancelled.
    picture.set_entering_maintenance("host-1", false);
    assert_eq!(maintenance(&mut picture), [false]);
    // Entering again, until it is in maintenance mode: the task no longer matters, so that leaving shows at once.
    picture.set_entering_maintenance("host-1", true);
    picture.apply(&update(UpdateKind::Modify, host, &[("runtime.inMaintenanceMode", text("true"))]));
    assert_eq!(maintenance(&mut picture), [true]);
    assert!(picture.host_tasks(HostTasks::Entering).is_empty());
    picture.apply(&update(UpdateKind::Modify, host, &[("runtime.inMaintenanceMode", text("false"))]));
    assert_eq!(maintenance(&mut picture), [false]);
}

/// Applies the events to what a receiver knows, by object.
fn listen(known: &mut BTreeMap<String, Event>, events: Vec<Event>) {
    for event in events {
        match &event {
            Event::VmApplied { vm, .. } => known.insert(vm.id.clone(), event),
            Event::HostApplied { host, .. } => known.insert(host.id.clone(), event),
            Event::ClusterApplied { cluster, .. } => known.insert(cluster.id.clone(), event),
            Event::VmRemoved { id, .. } | Event::HostRemoved { id, .. } | Event::ClusterRemoved { id, .. } => {
                assert!(known.contains_key(id), "{id} was never emitted");
                known.remove(id)
            }
            other => panic!("{other:?}"),
        };
    }
}

/// An update of the watch of placements.
fn any_placement() -> impl Strategy<Value = ObjectUpdate> {
    let kind = prop::sample::select(vec![UpdateKind::Enter, UpdateKind::Modify, UpdateKind::Modify, UpdateKind::Leave]);
    let vm = prop::sample::select(vec![(VM, "vm-1"), (VM, "vm-2")]);
    let host = prop::sample::select(vec!["host-1", "host-2"]);
    (kind, vm, maybe(host)).prop_map(|(kind, vm, host)| {
        let changes: Vec<_> = host.map(|host| ("runtime.host", reference(HOST, host))).into_iter().collect();
        update(kind, vm, &changes)
    })
}

/// An update of the watch of placements, or of the other one.
#[derive(Clone, Debug)]
enum WatchUpdate {
    Placed(ObjectUpdate),
    Other(ObjectUpdate),
}

impl WatchUpdate {
    fn take(&self, picture: &mut Picture) {
        match self {
            WatchUpdate::Placed(update) => picture.place(update),
            WatchUpdate::Other(update) => picture.apply(update),
        }
    }
}

fn any_watch_update() -> impl Strategy<Value = WatchUpdate> {
    prop_oneof![any_placement().prop_map(WatchUpdate::Placed), any_update().prop_map(WatchUpdate::Other)]
}

fn any_update() -> impl Strategy<Value = ObjectUpdate> {
    let object = prop::sample::select(vec![
        (VM, "vm-1"),
        (VM, "vm-2"),
        (HOST, "host-1"),
        (HOST, "host-2"),
        (CLUSTER, "domain-c1"),
        (COMPUTE, "domain-s1"),
        (FOLDER, "group-1"),
        (FOLDER, "group-2"),
        (DATACENTER, "datacenter-1"),
    ]);
    let parent = prop::sample::select(vec![
        (CLUSTER, "domain-c1"),
        (COMPUTE, "domain-s1"),
        (FOLDER, "group-1"),
        (FOLDER, "group-2"),
        (DATACENTER, "datacenter-1"),
    ]);
    let kind = prop::sample::select(vec![UpdateKind::Enter, UpdateKind::Modify, UpdateKind::Modify, UpdateKind::Leave]);
    (kind, object, maybe("[ab]"), maybe(parent), maybe(any::<bool>())).prop_map(|(kind, object, name, parent, flag)| {
        let mut changes = Vec::new();
        changes.extend(name.map(|name| ("name", text(&name))));
        changes.extend(parent.map(|parent| ("parent", reference(parent.0, parent.1))));
        changes.extend(flag.map(|flag| ("runtime.inMaintenanceMode", text(&flag.to_string()))));
        update(kind, object, &changes)
    })
}

proptest! {
    /// No matter how updates are divided into pages, a receiver ends with the same knowledge, never gets the same event
    /// twice, and gets removals only of objects that it knows.
    #[test]
    fn pages_do_not_matter(updates in prop::collection::vec((any_watch_update(), any::<bool>()), 0..80)) {
        let mut one_page = Picture::new(ID);
        let mut paged = Picture::new(ID);
        let mut known = BTreeMap::new();
        for (update, page_ends) in &updates {
            update.take(&mut one_page);
            update.take(&mut paged);
            if *page_ends {
                let events = paged.changes();
                for event in &events {
                    prop_assert!(!known.values().any(|emitted| emitted == event), "{event:?} emitted twice");
                }
                listen(&mut known, events);
            }
        }
        listen(&mut known, paged.changes());
        let mut expected = BTreeMap::new();
        listen(&mut expected, one_page.changes());
        // An object that lost its name keeps the facts emitted before; in one page nothing was emitted.
        let nameless = |id: &String| {
            let unnamed = |name: &Option<String>| name.is_none();
            one_page.vms.objects.get(id).is_some_and(|entry| unnamed(&entry.state.name))
                || one_page.hosts.objects.get(id).is_some_and(|entry| unnamed(&entry.state.name))
                || one_page.clusters.objects.get(id).is_some_and(|entry| unnamed(&entry.state.name))
        };
        known.retain(|id, _| !nameless(id));
        prop_assert_eq!(known, expected);
    }
    /// No matter how the two watches interleave, the final state is the same.
    #[test]
    fn the_order_of_the_two_watches_does_not_matter(
        updates in prop::collection::vec(any_watch_update(), 0..80),
        placed_first in any::<bool>(),
    ) {
        let mut mixed = Picture::new(ID);
        updates.iter().for_each(|update| update.take(&mut mixed));
        let is_placed = |update: &&WatchUpdate| matches!(update, WatchUpdate::Placed(_));
        let (placed, other): (Vec<_>, Vec<_>) = updates.iter().partition(is_placed);
        let mut separate = Picture::new(ID);
        let order = if placed_first { [placed, other] } else { [other, placed] };
        order.into_iter().flatten().for_each(|update| update.take(&mut separate));
        prop_assert_eq!(mixed.changes(), separate.changes());
    }
}

/// A datastore in a folder, with the hosts that mount it and whether the mount is accessible, if that is reported.
fn datastore(id: &str, name: &str, folder: &str, mounts: &[(&str, Option<bool>)]) -> ObjectUpdate {
    let mount = |(host, accessible): &(&str, Option<bool>)| {
        let flag = |accessible: &bool| format!("<accessible>{accessible}</accessible>");
        let flags = accessible.as_ref().map(flag).unwrap_or_default();
        format!(
            "<DatastoreHostMount><key type=\"HostSystem\">{host}</key>\
             <mountInfo><accessMode>readWrite</accessMode>{flags}</mountInfo></DatastoreHostMount>"
        )
    };
    let mounts = Element::parse(&format!("<val>{}</val>", mounts.iter().map(mount).collect::<String>())).unwrap();
    let url = text(&format!("ds:///vmfs/volumes/{id}/"));
    let parent = reference(FOLDER, folder);
    let changes = [("name", text(name)), ("parent", parent), ("summary.url", url), ("host", mounts)];
    update(UpdateKind::Enter, (DATASTORE, id), &changes)
}

/// By host: the names of the datastores that it lacks.
fn lacking(events: &[Event]) -> Vec<(&str, Vec<&str>)> {
    let mut found = Vec::new();
    for event in events {
        if let Event::HostApplied { host, .. } = event {
            let names = host.datastores_missing.iter().map(|datastore| datastore.name.as_str());
            found.push((host.name.as_str(), names.collect()));
        }
    }
    found
}

#[test]
fn a_host_lacks_a_datastore_of_its_datacenter_that_only_others_can_use() {
    let mut picture = Picture::new(ID);
    deep_inventory().iter().for_each(|update| picture.apply(update));
    picture.apply(&place(FOLDER, "group-s1", "datastore", (DATACENTER, "datacenter-1")));
    picture.apply(&place(STORAGE_POD, "group-p1", "pod", (FOLDER, "group-s1")));
    picture.apply(&place(FOLDER, "group-s2", "datastore", (DATACENTER, "datacenter-2")));
    for update in [
        datastore("a", "shared", "group-s1", &[("host-1", Some(true)), ("host-2", None)]),
        datastore("b", "broken", "group-s1", &[("host-1", Some(true)), ("host-2", Some(false))]),
        datastore("c", "local", "group-p1", &[("host-2", Some(true))]),
        // Of another datacenter, of an unknown place, and one that no host mounts.
        datastore("d", "oslo", "group-s2", &[("host-9", Some(true))]),
        datastore("e", "nowhere", "group-unknown", &[("host-2", Some(true))]),
        datastore("f", "unmounted", "group-s1", &[]),
    ] {
        picture.apply(&update);
    }
    assert_eq!(lacking(&picture.changes()), [("esx-1", vec!["local"]), ("esx-2", vec!["broken"])]);
    assert_eq!(picture.changes(), []);
    picture.apply(&datastore("c", "local", "group-p1", &[("host-1", Some(true)), ("host-2", Some(true))]));
    assert_eq!(lacking(&picture.changes()), [("esx-1", vec![])]);
    picture.apply(&update(UpdateKind::Leave, (DATASTORE, "b"), &[]));
    assert_eq!(lacking(&picture.changes()), [("esx-2", vec![])]);
}
