//! The world in one file: what both sides hold, and the record of what Bridger owns.
//!
//! In: the events of one look at all sources ([`Gathered`]), or a file. Out: a file, or the events that build the same
//! world again. A snapshot holds names, labels, terms and inventory; no annotation, no environment of a container, no
//! secret, no credential is ever part of the facts it is made of.
//!
//! Invariant: the world made of a snapshot answers as the one it was taken of.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use model::event::{ClusterFacts, Event, HostFacts, NamespaceFacts, NodeFacts, PodFacts, Source, VcenterId, VmFacts};
use model::scheduling::{SelectingFacts, SelectingKind};
use model::{KUBERNETES_SOURCES, World};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

const KIND: &str = "BridgerSnapshot";
const VERSION: u32 = 1;
/// Larger files are not read: a snapshot of 150,000 pods has a tenth of this.
const FILE_BYTES_MAX: u64 = 2 << 30;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    kind: String,
    version: u32,
    pub taken: Timestamp,
    pub vcenters: Vec<VcenterPart>,
    pub namespaces: Vec<NamespaceFacts>,
    pub nodes: Vec<NodeFacts>,
    pub pods: Vec<PodFacts>,
    /// Services and controllers, as far as they select pods.
    #[serde(default)]
    pub selecting: Vec<SelectingFacts>,
    /// The record's texts by name.
    pub record: BTreeMap<String, String>,
}

/// What one vCenter holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VcenterPart {
    pub instance_uuid: String,
    pub clusters: Vec<ClusterFacts>,
    pub hosts: Vec<HostFacts>,
    pub vms: Vec<VmFacts>,
}

/// Which facts a version of the format needs first: told before the rest is read, so that the message is the right one.
#[derive(Deserialize)]
struct Head {
    kind: Option<String>,
    version: Option<u32>,
}

/// Collects the latest facts of every object, in the order of their names.
#[derive(Debug, Default)]
pub struct Gathered {
    namespaces: BTreeMap<String, NamespaceFacts>,
    nodes: BTreeMap<String, NodeFacts>,
    pods: BTreeMap<(String, String), PodFacts>,
    selecting: BTreeMap<(SelectingKind, String, String), SelectingFacts>,
    vms: BTreeMap<(VcenterId, String), VmFacts>,
    hosts: BTreeMap<(VcenterId, String), HostFacts>,
    clusters: BTreeMap<(VcenterId, String), ClusterFacts>,
    whole: std::collections::BTreeSet<Source>,
}

impl Gathered {
    pub fn apply(&mut self, event: Event) {
        match event {
            // A second list begins after a break: what the first brought may be gone.
            Event::RelistBegan(source) => self.forget(source),
            Event::RelistEnded(source) => {
                self.whole.insert(source);
            }
            Event::NodeApplied(node) => {
                self.nodes.insert(node.name.clone(), node);
            }
            Event::NodeDeleted { name } => {
                self.nodes.remove(&name);
            }
            Event::PodApplied(pod) => {
                self.pods.insert((pod.namespace.clone(), pod.name.clone()), pod);
            }
            Event::PodDeleted { namespace, name } => {
                self.pods.remove(&(namespace, name));
            }
            Event::NamespaceApplied(namespace) => {
                self.namespaces.insert(namespace.name.clone(), namespace);
            }
            Event::NamespaceDeleted { name } => {
                self.namespaces.remove(&name);
            }
            Event::SelectingApplied(facts) => {
                self.selecting.insert((facts.kind, facts.namespace.clone(), facts.name.clone()), facts);
            }
            Event::SelectingDeleted { kind, namespace, name } => {
                self.selecting.remove(&(kind, namespace, name));
            }
            Event::VmApplied { vcenter, vm } => {
                self.vms.insert((vcenter, vm.id.clone()), vm);
            }
            Event::VmRemoved { vcenter, id } => {
                self.vms.remove(&(vcenter, id));
            }
            Event::HostApplied { vcenter, host } => {
                self.hosts.insert((vcenter, host.id.clone()), host);
            }
            Event::HostRemoved { vcenter, id } => {
                self.hosts.remove(&(vcenter, id));
            }
            Event::ClusterApplied { vcenter, cluster } => {
                self.clusters.insert((vcenter, cluster.id.clone()), cluster);
            }
            Event::ClusterRemoved { vcenter, id } => {
                self.clusters.remove(&(vcenter, id));
            }
            // What is known stays until the next list; what this process assumes is not of the world.
            Event::Lost(_) | Event::PodAssumed { .. } | Event::PodForgotten { .. } => (),
        }
    }

    fn forget(&mut self, source: Source) {
        self.whole.remove(&source);
        match source {
            Source::Nodes => self.nodes.clear(),
            Source::Pods => self.pods.clear(),
            Source::Namespaces => self.namespaces.clear(),
            Source::Selecting(gone) => self.selecting.retain(|(kind, ..), _| *kind != gone),
            Source::Vcenter(gone) => {
                self.vms.retain(|(vcenter, _), _| *vcenter != gone);
                self.hosts.retain(|(vcenter, _), _| *vcenter != gone);
                self.clusters.retain(|(vcenter, _), _| *vcenter != gone);
            }
        }
    }

    /// Which of these sources have been seen whole.
    pub fn is_whole(&self, source: Source) -> bool {
        self.whole.contains(&source)
    }

    /// `instance_uuids` are those of the vCenters, in the order of their ids.
    pub fn into_snapshot(
        self,
        taken: Timestamp,
        instance_uuids: &[String],
        record: BTreeMap<String, String>,
    ) -> Snapshot {
        let mut vcenters: Vec<VcenterPart> = instance_uuids
            .iter()
            .map(|uuid| VcenterPart { instance_uuid: uuid.clone(), ..VcenterPart::default() })
            .collect();
        for ((vcenter, _), vm) in self.vms {
            if let Some(part) = vcenters.get_mut(usize::from(vcenter.0)) {
                part.vms.push(vm);
            }
        }
        for ((vcenter, _), host) in self.hosts {
            if let Some(part) = vcenters.get_mut(usize::from(vcenter.0)) {
                part.hosts.push(host);
            }
        }
        for ((vcenter, _), cluster) in self.clusters {
            if let Some(part) = vcenters.get_mut(usize::from(vcenter.0)) {
                part.clusters.push(cluster);
            }
        }
        Snapshot {
            kind: KIND.to_owned(),
            version: VERSION,
            taken,
            vcenters,
            namespaces: self.namespaces.into_values().collect(),
            nodes: self.nodes.into_values().collect(),
            pods: self.pods.into_values().collect(),
            selecting: self.selecting.into_values().collect(),
            record,
        }
    }
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
        let Snapshot { mut namespaces, mut nodes, mut pods, selecting, .. } = self;
        for row in &KUBERNETES_SOURCES {
            let facts: &mut dyn Iterator<Item = Event> = match row.source {
                Source::Nodes => &mut nodes.drain(..).map(Event::NodeApplied),
                Source::Pods => &mut pods.drain(..).map(Event::PodApplied),
                Source::Namespaces => &mut namespaces.drain(..).map(Event::NamespaceApplied),
                Source::Selecting(kind) => {
                    let of_kind = selecting.iter().filter(move |facts| facts.kind == kind).cloned();
                    &mut of_kind.map(Event::SelectingApplied)
                }
                Source::Vcenter(_) => continue,
            };
            source(row.source, facts);
        }
        for (number, part) in (0u16..).zip(self.vcenters) {
            let vcenter = VcenterId(number);
            let clusters = part.clusters.into_iter().map(|cluster| Event::ClusterApplied { vcenter, cluster });
            let hosts = part.hosts.into_iter().map(|host| Event::HostApplied { vcenter, host });
            let vms = part.vms.into_iter().map(|vm| Event::VmApplied { vcenter, vm });
            source(Source::Vcenter(vcenter), &mut clusters.chain(hosts).chain(vms));
        }
        events
    }

    /// Fills a world that holds nothing yet.
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
            Failure::configuration(format!("snapshot {shown} can't be read: {error}"), "check --snapshot")
        };
        let size_bytes = std::fs::metadata(path).map_err(unreadable)?.len();
        if size_bytes > FILE_BYTES_MAX {
            return Err(Failure::configuration(
                format!("snapshot {shown} has {size_bytes} bytes, more than a snapshot can have"),
                "check --snapshot",
            ));
        }
        let bytes = std::fs::read(path).map_err(unreadable)?;
        let hint = "a snapshot is a file that `bridger snapshot` wrote";
        let bad = |error: serde_json::Error| {
            Failure::configuration(format!("snapshot {shown} is not understood: {error}"), hint)
        };
        let head: Head = serde_json::from_slice(&bytes).map_err(bad)?;
        match (head.kind.as_deref(), head.version) {
            (Some(KIND), Some(VERSION)) => serde_json::from_slice(&bytes).map_err(bad),
            (Some(KIND), version) => Err(Failure::configuration(
                format!("snapshot {shown} has version {}, this program reads {VERSION}", version.unwrap_or(0)),
                "use the bridger that wrote it, or take it again",
            )),
            _ => Err(Failure::configuration(format!("{shown} is not a snapshot"), hint)),
        }
    }

    /// Written whole or not at all: beside the file first, then in its place.
    pub fn write(&self, path: &Path) -> Result<u64, Failure> {
        let failed = |error: std::io::Error| Failure::run(format!("cannot write {}: {error}", path.display()));
        let bytes = serde_json::to_vec(self).map_err(|error| Failure::run(error.to_string()))?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".part");
        std::fs::write(&beside, &bytes).map_err(failed)?;
        std::fs::rename(&beside, path).map_err(failed)?;
        Ok(bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::event::{OwnerFacts, RequirementFacts, RuleFacts, RuleKind, SelectorFacts, TermFacts};

    fn sample() -> Snapshot {
        let vcenter = VcenterId(0);
        let mut gathered = Gathered::default();
        let term = TermFacts {
            topology_key: "kubernetes.io/hostname".to_owned(),
            // Empty and missing mean opposite things, and must stay what they are.
            selector: Some(SelectorFacts::default()),
            namespace_selector: None,
            ..TermFacts::default()
        };
        let exists =
            RequirementFacts { key: "app".to_owned(), operator: model::event::Operator::Exists, values: Vec::new() };
        let other = TermFacts {
            selector: Some(SelectorFacts { expressions: vec![exists], ..SelectorFacts::default() }),
            ..term.clone()
        };
        let none = TermFacts { selector: None, ..term.clone() };
        let rule = RuleFacts {
            key: 1,
            uuid: None,
            name: "r".to_owned(),
            enabled: true,
            mandatory: false,
            user_created: true,
            kind: RuleKind::VmsApart(vec!["vm-1".to_owned()]),
        };
        for event in [
            Event::RelistBegan(Source::Nodes),
            Event::NodeApplied(NodeFacts { name: "gone".to_owned(), ..NodeFacts::default() }),
            Event::RelistBegan(Source::Nodes),
            Event::NodeApplied(NodeFacts { name: "n1".to_owned(), ready: true, ..NodeFacts::default() }),
            Event::RelistEnded(Source::Nodes),
            Event::NamespaceApplied(NamespaceFacts { name: "kube-system".to_owned(), ..NamespaceFacts::default() }),
            Event::PodApplied(PodFacts {
                namespace: "a".to_owned(),
                name: "p".to_owned(),
                owner: Some(OwnerFacts::default()),
                affinity: vec![term],
                anti_affinity: vec![other, none],
                ..PodFacts::default()
            }),
            Event::ClusterApplied {
                vcenter,
                cluster: ClusterFacts { id: "c".to_owned(), rules: vec![rule], ..ClusterFacts::default() },
            },
            Event::HostApplied { vcenter, host: HostFacts { id: "h".to_owned(), ..HostFacts::default() } },
            Event::VmApplied { vcenter, vm: VmFacts { id: "vm-1".to_owned(), ..VmFacts::default() } },
        ] {
            gathered.apply(event);
        }
        assert!(gathered.is_whole(Source::Nodes) && !gathered.is_whole(Source::Pods));
        let record = BTreeMap::from([("uuid/c".to_owned(), "{}".to_owned())]);
        gathered.into_snapshot(Timestamp::UNIX_EPOCH, &["uuid".to_owned()], record)
    }

    #[test]
    fn a_file_gives_back_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("world.json");
        let snapshot = sample();
        assert_eq!(snapshot.nodes.len(), 1, "what a broken list brought is gone");
        snapshot.write(&path).unwrap();
        assert_eq!(Snapshot::read(&path).unwrap(), snapshot);
        let events = snapshot.into_events();
        assert_eq!(events.iter().filter(|event| matches!(event, Event::RelistEnded(_))).count(), 8);
    }

    #[test]
    fn what_is_no_snapshot_is_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut newer = serde_json::to_value(sample()).unwrap();
        newer["version"] = 2.into();
        for (name, text, expected) in [
            ("list", r#"{"kind":"List","items":[]}"#.to_owned(), "is not a snapshot"),
            ("newer", newer.to_string(), "version 2"),
            ("torn", "{\"kind\":".to_owned(), "is not understood"),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            let message = Snapshot::read(&path).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        assert!(Snapshot::read(&folder.path().join("missing")).unwrap_err().to_string().contains("can't be read"));
    }
}
