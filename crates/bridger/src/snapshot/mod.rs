//! A snapshot: the state of both sides and the rule record in one file.
//!
//! In: the events of a one-time read of all sources ([`Gathered`]), or a file. Out: a file, or the events that build
//! the same world again. A snapshot contains names, labels, terms and inventory. It contains no annotations, no
//! container environment variables, no secrets and no credentials, because the facts never include them. Only `format`
//! knows the file format.
//!
//! Invariant: the world built from a snapshot answers every query like the world it was taken from.

mod format;
mod gathered;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use model::event::{ClusterFacts, Event, HostFacts, NamespaceFacts, NodeFacts, PodFacts, Source, VcenterId, VmFacts};
use model::scheduling::{DisruptionBudgetFacts, WorkloadFacts};
use model::volumes::VolumeObject;
use model::{KUBERNETES_SOURCES, World};

pub use self::gathered::Gathered;
use crate::failure::Failure;
use crate::files;

#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    pub taken: Timestamp,
    pub vcenters: Vec<VcenterPart>,
    pub namespaces: Vec<NamespaceFacts>,
    pub nodes: Vec<NodeFacts>,
    pub pods: Vec<PodFacts>,
    /// Services and controllers that select pods.
    pub workloads: Vec<WorkloadFacts>,
    pub budgets: Vec<DisruptionBudgetFacts>,
    /// Claims, persistent volumes and what belongs to them.
    pub volumes: Vec<VolumeObject>,
    /// The stored rule records by name.
    pub record: BTreeMap<String, String>,
}

/// The inventory of one vCenter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VcenterPart {
    pub instance_uuid: String,
    pub clusters: Vec<ClusterFacts>,
    pub hosts: Vec<HostFacts>,
    pub vms: Vec<VmFacts>,
}

impl Snapshot {
    /// The events that build this world.
    pub fn into_events(self) -> Vec<Event> {
        let mut events = Vec::new();
        let mut source = |source: Source, facts: &mut dyn Iterator<Item = Event>| {
            events.push(Event::RelistBegan(source));
            events.extend(facts);
            events.push(Event::RelistEnded(source));
        };
        let Snapshot { mut namespaces, mut nodes, mut pods, workloads, mut budgets, volumes, .. } = self;
        for row in &KUBERNETES_SOURCES {
            let facts: &mut dyn Iterator<Item = Event> = match row.source {
                Source::Nodes => &mut nodes.drain(..).map(Event::NodeApplied),
                Source::Pods => &mut pods.drain(..).map(Event::PodApplied),
                Source::Namespaces => &mut namespaces.drain(..).map(Event::NamespaceApplied),
                Source::Workload(kind) => {
                    let of_kind = workloads.iter().filter(move |facts| facts.kind == kind).cloned();
                    &mut of_kind.map(Event::WorkloadApplied)
                }
                Source::DisruptionBudgets => &mut budgets.drain(..).map(Event::DisruptionBudgetApplied),
                Source::Volume(kind) => {
                    let of_kind = volumes.iter().filter(move |object| object.kind() == kind).cloned();
                    &mut of_kind.map(Event::VolumeApplied)
                }
                Source::Vcenter(_) => continue,
            };
            source(row.source, facts);
        }
        for (number, part) in (0u16..).zip(self.vcenters) {
            let vcenter = VcenterId(number);
            let uuid = Some(part.instance_uuid).filter(|uuid| !uuid.is_empty());
            let identified = uuid.map(|uuid| Event::VcenterIdentified { vcenter, instance_uuid: uuid.into() });
            let clusters = part.clusters.into_iter().map(|cluster| Event::ClusterApplied { vcenter, cluster });
            let hosts = part.hosts.into_iter().map(|host| Event::HostApplied { vcenter, host });
            let vms = part.vms.into_iter().map(|vm| Event::VmApplied { vcenter, vm });
            source(Source::Vcenter(vcenter), &mut identified.into_iter().chain(clusters).chain(hosts).chain(vms));
        }
        events
    }

    /// Fills an empty world.
    pub fn fill(self, world: &mut World) {
        for event in self.into_events() {
            world.apply(event);
        }
    }

    pub fn instance_uuids(&self) -> Vec<String> {
        self.vcenters.iter().map(|part| part.instance_uuid.clone()).collect()
    }

    pub fn read(path: &Path) -> Result<Snapshot, Failure> {
        let bytes = files::read(path, files::SNAPSHOT)?;
        Snapshot::parse(&bytes).map_err(|why| {
            let what = format!("cannot use snapshot {}: {why}", path.display());
            Failure::configuration(what, "use a file written by this version of `bridger snapshot`")
        })
    }

    /// Reads the content of a file.
    pub fn parse(bytes: &[u8]) -> Result<Snapshot, String> {
        format::read(bytes).map_err(|error| error.to_string())
    }

    /// Writes the file atomically: a temporary file beside it is renamed.
    pub fn write(&self, path: &Path) -> Result<u64, Failure> {
        let failed = |error: std::io::Error| Failure::run(format!("cannot write {}: {error}", path.display()));
        let bytes = format::write(self).map_err(|error| Failure::run(error.to_string()))?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".part");
        std::fs::write(&beside, &bytes).map_err(failed)?;
        std::fs::rename(&beside, path).map_err(failed)?;
        Ok(bytes.len() as u64)
    }
}
