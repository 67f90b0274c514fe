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
use model::scheduling::WorkloadFacts;
use model::{KUBERNETES_SOURCES, World};

use self::format::{FormatError, VERSION};
pub use self::gathered::Gathered;
use crate::failure::Failure;

/// Larger files are rejected: a snapshot of 150,000 pods has a tenth of this.
const FILE_BYTES_MAX: u64 = 2 << 30;

#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    pub taken: Timestamp,
    pub vcenters: Vec<VcenterPart>,
    pub namespaces: Vec<NamespaceFacts>,
    pub nodes: Vec<NodeFacts>,
    pub pods: Vec<PodFacts>,
    /// Services and controllers that select pods.
    pub workloads: Vec<WorkloadFacts>,
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
        let Snapshot { mut namespaces, mut nodes, mut pods, workloads, .. } = self;
        for row in &KUBERNETES_SOURCES {
            let facts: &mut dyn Iterator<Item = Event> = match row.source {
                Source::Nodes => &mut nodes.drain(..).map(Event::NodeApplied),
                Source::Pods => &mut pods.drain(..).map(Event::PodApplied),
                Source::Namespaces => &mut namespaces.drain(..).map(Event::NamespaceApplied),
                Source::Workload(kind) => {
                    let of_kind = workloads.iter().filter(move |facts| facts.kind == kind).cloned();
                    &mut of_kind.map(Event::WorkloadApplied)
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
        let shown = path.display();
        let unreadable = |error: std::io::Error| {
            Failure::configuration(format!("cannot read snapshot {shown}: {error}"), "check --snapshot")
        };
        let size_bytes = std::fs::metadata(path).map_err(unreadable)?.len();
        if size_bytes > FILE_BYTES_MAX {
            return Err(Failure::configuration(
                format!("snapshot {shown} is too large: {size_bytes} bytes, the limit is {FILE_BYTES_MAX}"),
                "check --snapshot",
            ));
        }
        let bytes = std::fs::read(path).map_err(unreadable)?;
        let hint = "use a file written by `bridger snapshot`";
        format::read(&bytes).map_err(|error| match error {
            FormatError::OtherKind => Failure::configuration(format!("{shown} is not a snapshot"), hint),
            FormatError::OtherVersion(version) => Failure::configuration(
                format!("snapshot {shown} has version {version}, this bridger reads version {VERSION}"),
                "use the version of bridger that wrote it, or take the snapshot again",
            ),
            FormatError::Malformed(error) => {
                Failure::configuration(format!("cannot parse snapshot {shown}: {error}"), hint)
            }
        })
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
