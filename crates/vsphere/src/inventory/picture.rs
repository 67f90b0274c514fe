//! The inventory state: everything known about one vCenter, and what has been emitted of it.
//!
//! Input: object updates of two watches, one for the hosts of VMs and one for everything else. Output:
//! [`Picture::changes`], the events that bring a receiver up to date.
//!
//! Invariants: facts are emitted only if they differ from those emitted last; an object is emitted once its name is
//! known, because facts are always complete; an object that leaves is emitted as removed only if it was emitted before.
//! A VM exists while both watches show it. If a parent moves or is renamed, the facts of all objects below it change.
//! The same updates give the same state, no matter how they are divided into pages and how the two watches interleave.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use model::event::{ClusterFacts, Event, HostFacts, VcenterId, VmFacts};

use super::datastores::Datastores;
use super::properties::{
    CLUSTER, COMPUTE, DATACENTER, DATASTORE, DatastoreState, FOLDER, HOST, HostState, PlaceState, RESOURCE_POOL,
    STORAGE_POD, State, VAPP, VM, VmPlacement, VmState,
};
use super::scope::VmScope;
use crate::ManagedObject;
use crate::property::{ObjectUpdate, UpdateKind};

/// Folders are never nested deeper in practice. The limit also stops at a cycle in a server's data.
const ANCESTORS_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Picture {
    vcenter: VcenterId,
    vms: Tracked<VmState, VmFacts>,
    /// By VM: the VMs that the watch of placements shows.
    placements: BTreeMap<String, VmPlacement>,
    hosts: Tracked<HostState, HostFacts>,
    clusters: Tracked<PlaceState, ClusterFacts>,
    /// Folders, datacenters, the compute resources of standalone hosts, and resource pools if they are watched.
    places: BTreeMap<String, PlaceState>,
    /// None if they are not watched.
    datastores: BTreeMap<String, DatastoreState>,
    scope: VmScope,
    /// The VMs with a tag of the scope.
    tagged: BTreeSet<String>,
}

impl Picture {
    pub(crate) fn new(vcenter: VcenterId) -> Picture {
        Picture {
            vcenter,
            vms: Tracked::default(),
            placements: BTreeMap::new(),
            hosts: Tracked::default(),
            clusters: Tracked::default(),
            places: BTreeMap::new(),
            datastores: BTreeMap::new(),
            scope: VmScope::default(),
            tagged: BTreeSet::new(),
        }
    }

    /// Only the VMs of this scope exist.
    pub(crate) fn with_scope(self, scope: VmScope) -> Picture {
        Picture { scope, ..self }
    }

    /// Replaces the VMs with a tag of the scope.
    pub(crate) fn set_tagged(&mut self, tagged: BTreeSet<String>) {
        let changed = self.tagged.symmetric_difference(&tagged).cloned();
        self.vms.dirty.extend(changed);
        self.tagged = tagged;
    }

    /// Applies an update of the watch of placements.
    pub(crate) fn place(&mut self, update: &ObjectUpdate) {
        if update.object.kind == VM {
            apply_to(&mut self.placements, update);
            self.vms.dirty.insert(update.object.id.clone());
        }
    }

    /// Applies an update of the watch of everything else.
    pub(crate) fn apply(&mut self, update: &ObjectUpdate) {
        match update.object.kind.as_str() {
            VM => self.vms.apply(update),
            HOST => self.hosts.apply(update),
            CLUSTER => {
                self.clusters.apply(update);
                self.hosts.mark_all();
            }
            DATASTORE => {
                apply_to(&mut self.datastores, update);
                self.hosts.mark_all();
            }
            COMPUTE | DATACENTER | FOLDER | STORAGE_POD | RESOURCE_POOL | VAPP => {
                apply_to(&mut self.places, update);
                if !self.scope.is_everything() {
                    self.vms.mark_all();
                }
                self.hosts.mark_all();
                self.clusters.mark_all();
            }
            _ => (),
        }
    }

    /// Applies values that were read outside the watch, but only to objects that the watch currently shows.
    pub(crate) fn refresh(&mut self, update: &ObjectUpdate) {
        let known = match update.object.kind.as_str() {
            HOST => self.hosts.objects.contains_key(&update.object.id),
            CLUSTER => self.clusters.objects.contains_key(&update.object.id),
            _ => false,
        };
        if known {
            self.apply(update);
        }
    }

    /// By host: the recent tasks that show whether it is entering maintenance mode.
    pub(crate) fn host_tasks(&self, whose: HostTasks) -> BTreeMap<String, Vec<ManagedObject>> {
        let hosts = self.hosts.objects.iter().filter(|(_, entry)| match whose {
            HostTasks::Unseen => entry.state.tasks_unseen,
            HostTasks::Entering => entry.state.entering_maintenance,
        });
        hosts.map(|(id, entry)| (id.clone(), entry.state.recent_tasks.clone())).collect()
    }

    /// The clusters whose settings may have changed without a report. Each is returned once.
    pub(crate) fn take_clusters_in_doubt(&mut self) -> Vec<ManagedObject> {
        let clusters = self.clusters.objects.iter_mut();
        let in_doubt = clusters.filter_map(|(id, entry)| {
            std::mem::take(&mut entry.state.settings_in_doubt).then(|| ManagedObject::new(CLUSTER, id))
        });
        in_doubt.collect()
    }

    /// Records, after a query of a host's tasks, whether one of them is entering maintenance mode.
    pub(crate) fn set_entering_maintenance(&mut self, host: &str, entering: bool) {
        if let Some(entry) = self.hosts.objects.get_mut(host) {
            entry.state.tasks_unseen = false;
            entry.state.entering_maintenance = entering && !entry.state.in_maintenance;
            self.hosts.dirty.insert(host.to_owned());
        }
    }

    /// Clusters, hosts and VMs that cannot be emitted, because not even their names can be read.
    pub(crate) fn not_emitted_count(&self) -> usize {
        self.clusters.not_emitted_count() + self.hosts.not_emitted_count() + self.vms.not_emitted_count()
    }

    pub(crate) fn vm_count(&self) -> usize {
        self.vms.objects.len()
    }

    pub(crate) fn host_count(&self) -> usize {
        self.hosts.objects.len()
    }

    /// The events to emit now: parents before children; removals in the opposite order.
    pub(crate) fn changes(&mut self) -> Vec<Event> {
        let vcenter = self.vcenter;
        let (clusters, clusters_gone) = {
            let places = &self.places;
            self.clusters.drain(|id, cluster| Reading::from_facts(cluster_facts(id, cluster, places)))
        };
        let (hosts, hosts_gone) = {
            let (places, clusters) = (&self.places, &self.clusters);
            // Built only if a host is read.
            let datastores = OnceCell::new();
            let of_datacenters = || Datastores::of(self.datastores.values(), places);
            self.hosts.drain(|id, host| {
                let datastores = datastores.get_or_init(of_datacenters);
                Reading::from_facts(host_facts(id, host, places, clusters, datastores))
            })
        };
        let (vms, vms_gone) = {
            let (placements, places, scope, tagged) = (&self.placements, &self.places, &self.scope, &self.tagged);
            let counts = |id: &str, vm: &VmState| {
                let above = |container: &Option<ManagedObject>| names_above(places, container.as_ref());
                scope.is_everything()
                    || scope.admits(&above(&vm.folder), &above(&vm.resource_pool), tagged.contains(id))
            };
            self.vms.drain(|id, vm| match placements.get(id) {
                Some(placement) if counts(id, vm) => Reading::from_facts(vm_facts(id, vm, placement)),
                _ => Reading::Absent,
            })
        };
        let mut events = Vec::new();
        events.extend(clusters.into_iter().map(|cluster| Event::ClusterApplied { vcenter, cluster }));
        events.extend(hosts.into_iter().map(|host| Event::HostApplied { vcenter, host }));
        events.extend(vms.into_iter().map(|vm| Event::VmApplied { vcenter, vm }));
        events.extend(vms_gone.into_iter().map(|id| Event::VmRemoved { vcenter, id }));
        events.extend(hosts_gone.into_iter().map(|id| Event::HostRemoved { vcenter, id }));
        events.extend(clusters_gone.into_iter().map(|id| Event::ClusterRemoved { vcenter, id }));
        events
    }
}

/// Which tasks to query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostTasks {
    /// Tasks that are new since the last query.
    Unseen,
    /// Tasks of hosts that were entering at the last query: a cancelled task changes nothing on its host.
    Entering,
}

fn cluster_facts(id: &str, cluster: &PlaceState, places: &BTreeMap<String, PlaceState>) -> Option<ClusterFacts> {
    Some(ClusterFacts {
        id: id.to_owned(),
        name: cluster.name.clone()?,
        datacenter: datacenter(places, cluster.parent.as_ref()),
        drs_enabled: cluster.settings.drs_enabled,
        drs_behavior: cluster.settings.drs_behavior,
        ha: cluster.settings.ha,
        rules: cluster.settings.rules.clone(),
        groups: cluster.settings.groups.clone(),
    })
}

fn vm_facts(id: &str, vm: &VmState, placement: &VmPlacement) -> Option<VmFacts> {
    let mut ip_addresses = vm.adapter_ips.clone();
    ip_addresses.extend(vm.primary_ip);
    ip_addresses.sort_unstable();
    ip_addresses.dedup();
    Some(VmFacts {
        id: id.to_owned(),
        name: vm.name.clone()?,
        host: placement.host.clone(),
        bios_uuid: vm.bios_uuid.or(vm.summary_uuid),
        ip_addresses,
        dns_name: vm.dns_name.clone(),
        template: vm.template,
        powered_on: vm.powered_on,
    })
}

fn host_facts(
    id: &str,
    host: &HostState,
    places: &BTreeMap<String, PlaceState>,
    clusters: &Tracked<PlaceState, ClusterFacts>,
    datastores: &Datastores<'_>,
) -> Option<HostFacts> {
    let cluster = host.parent.as_ref().filter(|parent| parent.kind == CLUSTER);
    let above = match cluster {
        Some(cluster) => clusters.objects.get(&cluster.id).and_then(|entry| entry.state.parent.as_ref()),
        None => host.parent.as_ref(),
    };
    Some(HostFacts {
        id: id.to_owned(),
        name: host.name.clone()?,
        cluster: cluster.map(|cluster| cluster.id.clone()),
        datacenter: datacenter(places, above),
        connection: host.connection,
        maintenance: host.in_maintenance || host.entering_maintenance,
        load: host.load(),
        datastores_missing: datastores.missing(id, datacenter_id(places, above)),
    })
}

/// The name of the datacenter that is or contains `above`.
fn datacenter(places: &BTreeMap<String, PlaceState>, above: Option<&ManagedObject>) -> Option<String> {
    places.get(datacenter_id(places, above)?)?.name.clone()
}

/// The datacenter that is or contains `above`, through any depth of folders.
pub(super) fn datacenter_id<'a>(
    places: &'a BTreeMap<String, PlaceState>,
    above: Option<&'a ManagedObject>,
) -> Option<&'a str> {
    let mut above = above;
    for _ in 0..ANCESTORS_MAX {
        let object = above?;
        let place = places.get(&object.id)?;
        if object.kind == DATACENTER {
            return Some(&object.id);
        }
        above = place.parent.as_ref();
    }
    None
}

/// The names of these containers and of all above them, the outermost first.
fn names_above(places: &BTreeMap<String, PlaceState>, above: Option<&ManagedObject>) -> Vec<String> {
    let mut names = Vec::new();
    let mut above = above;
    for _ in 0..ANCESTORS_MAX {
        let Some(place) = above.and_then(|object| places.get(&object.id)) else { break };
        names.extend(place.name.clone());
        above = place.parent.as_ref();
    }
    names.reverse();
    names
}

fn apply_to<S: State>(objects: &mut BTreeMap<String, S>, update: &ObjectUpdate) {
    match update.kind {
        UpdateKind::Leave => {
            objects.remove(&update.object.id);
        }
        UpdateKind::Enter => {
            let mut state = S::default();
            state.take_all(&update.changes);
            objects.insert(update.object.id.clone(), state);
        }
        UpdateKind::Modify => objects.entry(update.object.id.clone()).or_default().take_all(&update.changes),
    }
}

/// All objects of one kind: their state, what was emitted of each, and which must be checked.
#[derive(Debug)]
struct Tracked<S, F> {
    objects: BTreeMap<String, Entry<S, F>>,
    /// Objects that left but whose removal is not emitted yet, with the facts emitted last.
    gone: BTreeMap<String, F>,
    dirty: BTreeSet<String>,
    all_dirty: bool,
}

#[derive(Debug)]
struct Entry<S, F> {
    state: S,
    emitted: Option<F>,
}

/// The result of reading one object's facts.
enum Reading<F> {
    Facts(F),
    /// The facts are incomplete: those emitted before remain valid.
    Incomplete,
    /// The object does not exist, or not yet.
    Absent,
}

impl<F> Reading<F> {
    fn from_facts(facts: Option<F>) -> Reading<F> {
        facts.map_or(Reading::Incomplete, Reading::Facts)
    }
}

impl<S, F> Default for Tracked<S, F> {
    fn default() -> Self {
        Tracked { objects: BTreeMap::new(), gone: BTreeMap::new(), dirty: BTreeSet::new(), all_dirty: false }
    }
}

impl<S: State, F: PartialEq + Clone> Tracked<S, F> {
    fn apply(&mut self, update: &ObjectUpdate) {
        let id = &update.object.id;
        if update.kind == UpdateKind::Leave {
            self.dirty.remove(id);
            if let Some(emitted) = self.objects.remove(id).and_then(|entry| entry.emitted) {
                self.gone.insert(id.clone(), emitted);
            }
            return;
        }
        let gone = &mut self.gone;
        let entry =
            self.objects.entry(id.clone()).or_insert_with(|| Entry { state: S::default(), emitted: gone.remove(id) });
        if update.kind == UpdateKind::Enter {
            // An Enter is complete: properties that it does not contain have no value.
            entry.state = S::default();
        }
        entry.state.take_all(&update.changes);
        self.dirty.insert(id.clone());
    }

    fn not_emitted_count(&self) -> usize {
        self.objects.values().filter(|entry| entry.emitted.is_none()).count()
    }

    fn mark_all(&mut self) {
        self.all_dirty = true;
    }

    /// The new facts, and the ids of the removed objects.
    fn drain(&mut self, read: impl Fn(&str, &S) -> Reading<F>) -> (Vec<F>, Vec<String>) {
        let dirty = std::mem::take(&mut self.dirty);
        let all = std::mem::take(&mut self.all_dirty);
        let mut applied = Vec::new();
        let mut gone = std::mem::take(&mut self.gone);
        let mut drain_one = |id: &String, entry: &mut Entry<S, F>| match read(id, &entry.state) {
            Reading::Facts(now) => {
                if entry.emitted.as_ref() != Some(&now) {
                    entry.emitted = Some(now.clone());
                    applied.push(now);
                }
            }
            Reading::Incomplete => (),
            Reading::Absent => gone.extend(entry.emitted.take().map(|emitted| (id.clone(), emitted))),
        };
        if all {
            self.objects.iter_mut().for_each(|(id, entry)| drain_one(id, entry));
        } else {
            for id in &dirty {
                if let Some(entry) = self.objects.get_mut(id) {
                    drain_one(id, entry);
                }
            }
        }
        (applied, gone.into_keys().collect())
    }
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
