//! The table of watched Kubernetes resources, and the parts of Bridger that need each of them.
//!
//! In: the enabled parts. Out: the rows they need. Watches, readiness, preflight, RBAC, snapshots and all in-sync
//! checks use this table.
//!
//! Invariants: every Kubernetes [`Source`] has exactly one row. A row's position never changes, because the jitter of
//! its watch depends on it: a new row goes to the end. vCenters have no row: they need no Kubernetes verbs, and no
//! answer waits for them.

use crate::event::Source;
use crate::scheduling::WorkloadKind;
use crate::volumes::VolumeKind;
use crate::world::World;

/// A part of Bridger that can be enabled or disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    NodeLabels,
    DrsRules,
    Extender,
    Scheduling,
}

impl Part {
    pub const ALL: [Self; 4] = [Self::NodeLabels, Self::DrsRules, Self::Extender, Self::Scheduling];
}

/// A set of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts(u8);

impl Parts {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self::of(&Part::ALL);
    /// The parts of `bridger run`.
    pub const RUN: Self = Self::of(&[Part::NodeLabels, Part::DrsRules, Part::Extender]);
    pub const SCHEDULING: Self = Self::of(&[Part::Scheduling]);

    pub const fn of(mut parts: &[Part]) -> Self {
        let mut bits = 0;
        while let [first, rest @ ..] = parts {
            bits |= 1 << *first as u8;
            parts = rest;
        }
        Self(bits)
    }

    /// Adds the part if `is_on`.
    #[must_use]
    pub const fn with(self, part: Part, is_on: bool) -> Self {
        if is_on { Self(self.0 | 1 << part as u8) } else { self }
    }

    pub const fn contains(self, part: Part) -> bool {
        self.0 & 1 << part as u8 != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Part> {
        Part::ALL.into_iter().filter(move |part| self.contains(*part))
    }

    const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl From<Part> for Parts {
    fn from(part: Part) -> Self {
        Self::of(&[part])
    }
}

/// A watched Kubernetes resource. All are of version `v1` and need the verbs `list` and `watch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRow {
    pub source: Source,
    /// As in an object's `kind`.
    pub kind: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The plural name: `nodes`.
    pub resource: &'static str,
    pub needed_by: Parts,
}

const STORAGE: &str = "storage.k8s.io";

pub static KUBERNETES_SOURCES: [SourceRow; 15] = [
    row(Source::Nodes, "Node", "", "nodes", Parts::ALL),
    row(Source::Pods, "Pod", "", "pods", Parts::ALL),
    row(Source::Namespaces, "Namespace", "", "namespaces", Parts::ALL),
    row(Source::Workload(WorkloadKind::Service), "Service", "", "services", Parts::SCHEDULING),
    row(
        Source::Workload(WorkloadKind::ReplicationController),
        "ReplicationController",
        "",
        "replicationcontrollers",
        Parts::SCHEDULING,
    ),
    row(Source::Workload(WorkloadKind::ReplicaSet), "ReplicaSet", "apps", "replicasets", Parts::SCHEDULING),
    row(Source::Workload(WorkloadKind::StatefulSet), "StatefulSet", "apps", "statefulsets", Parts::SCHEDULING),
    row(Source::DisruptionBudgets, "PodDisruptionBudget", "policy", "poddisruptionbudgets", Parts::SCHEDULING),
    row(Source::Volume(VolumeKind::Claim), "PersistentVolumeClaim", "", "persistentvolumeclaims", Parts::SCHEDULING),
    row(Source::Volume(VolumeKind::Volume), "PersistentVolume", "", "persistentvolumes", Parts::SCHEDULING),
    row(Source::Volume(VolumeKind::StorageClass), "StorageClass", STORAGE, "storageclasses", Parts::SCHEDULING),
    row(Source::Volume(VolumeKind::CsiNode), "CSINode", STORAGE, "csinodes", Parts::SCHEDULING),
    row(Source::Volume(VolumeKind::CsiDriver), "CSIDriver", STORAGE, "csidrivers", Parts::SCHEDULING),
    row(
        Source::Volume(VolumeKind::StorageCapacity),
        "CSIStorageCapacity",
        STORAGE,
        "csistoragecapacities",
        Parts::SCHEDULING,
    ),
    row(Source::Volume(VolumeKind::Attachment), "VolumeAttachment", STORAGE, "volumeattachments", Parts::SCHEDULING),
];

const fn row(
    source: Source,
    kind: &'static str,
    group: &'static str,
    resource: &'static str,
    needed_by: Parts,
) -> SourceRow {
    SourceRow { source, kind, group, resource, needed_by }
}

impl SourceRow {
    /// Whether an object with this `apiVersion` and `kind` belongs to this row.
    pub fn is_of(&self, api_version: &str, kind: &str) -> bool {
        let same_version = match self.group {
            "" => api_version == "v1",
            group => api_version.strip_suffix("/v1") == Some(group),
        };
        same_version && self.kind == kind
    }

    /// A resource that every part needs is watched even if no part is enabled, because metrics show it.
    pub fn is_needed_by(&self, parts: Parts) -> bool {
        self.needed_by == Parts::ALL || self.needed_by.intersects(parts)
    }
}

/// The rows that these parts need, in the order of the table.
pub fn sources_for(parts: Parts) -> impl Iterator<Item = &'static SourceRow> {
    KUBERNETES_SOURCES.iter().filter(move |row| row.is_needed_by(parts))
}

impl Source {
    /// `None` for a vCenter.
    pub fn row(self) -> Option<&'static SourceRow> {
        KUBERNETES_SOURCES.iter().find(|row| row.source == self)
    }

    /// The name shown to users: `nodes`.
    pub fn name(self) -> &'static str {
        self.row().map_or("vCenter", |row| row.resource)
    }
}

impl World {
    /// The Kubernetes sources that these parts need and of which no list was ever complete, in the order of the table.
    /// Of the others at least the last known state can be used: it stays until a new list is complete.
    pub fn missing(&self, parts: Parts) -> impl Iterator<Item = &'static SourceRow> {
        sources_for(parts).filter(|row| !self.source(row.source).was_ever_synced())
    }

    /// Whether all Kubernetes sources that these parts need were listed once; vCenters do not matter.
    pub fn has_all_for(&self, parts: Parts) -> bool {
        self.missing(parts).next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::event::{Event, VcenterId};

    /// The source after this one; a new variant does not compile until it is added here.
    fn next(source: Source) -> Option<Source> {
        Some(match source {
            Source::Nodes => Source::Pods,
            Source::Pods => Source::Namespaces,
            Source::Namespaces => Source::Workload(WorkloadKind::Service),
            Source::Workload(WorkloadKind::Service) => Source::Workload(WorkloadKind::ReplicationController),
            Source::Workload(WorkloadKind::ReplicationController) => Source::Workload(WorkloadKind::ReplicaSet),
            Source::Workload(WorkloadKind::ReplicaSet) => Source::Workload(WorkloadKind::StatefulSet),
            Source::Workload(WorkloadKind::StatefulSet) => Source::DisruptionBudgets,
            Source::DisruptionBudgets => Source::Volume(VolumeKind::Claim),
            Source::Volume(VolumeKind::Claim) => Source::Volume(VolumeKind::Volume),
            Source::Volume(VolumeKind::Volume) => Source::Volume(VolumeKind::StorageClass),
            Source::Volume(VolumeKind::StorageClass) => Source::Volume(VolumeKind::CsiNode),
            Source::Volume(VolumeKind::CsiNode) => Source::Volume(VolumeKind::CsiDriver),
            Source::Volume(VolumeKind::CsiDriver) => Source::Volume(VolumeKind::StorageCapacity),
            Source::Volume(VolumeKind::StorageCapacity) => Source::Volume(VolumeKind::Attachment),
            Source::Volume(VolumeKind::Attachment) => Source::Vcenter(VcenterId(0)),
            Source::Vcenter(_) => return None,
        })
    }

    #[test]
    fn every_kubernetes_source_has_one_row_at_its_position() {
        let all: Vec<Source> = std::iter::successors(Some(Source::Nodes), |source| next(*source)).collect();
        let (vcenter, of_kubernetes) = all.split_last().expect("sources");
        let rows: Vec<Source> = KUBERNETES_SOURCES.iter().map(|row| row.source).collect();
        assert_eq!(rows, of_kubernetes);
        assert_eq!(vcenter.row(), None);
        let names: BTreeSet<&str> = all.iter().map(|source| source.name()).collect();
        assert_eq!(names.len(), all.len(), "{names:?}");
        for row in &KUBERNETES_SOURCES {
            assert_eq!(row.resource, plural(&row.kind.to_lowercase()));
            assert_eq!(row.source.row(), Some(row));
        }
    }

    fn plural(kind: &str) -> String {
        match kind.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None if kind.ends_with('s') => format!("{kind}es"),
            None => format!("{kind}s"),
        }
    }

    const FOR_SCHEDULING: [&str; 12] = [
        "services",
        "replicationcontrollers",
        "replicasets",
        "statefulsets",
        "poddisruptionbudgets",
        "persistentvolumeclaims",
        "persistentvolumes",
        "storageclasses",
        "csinodes",
        "csidrivers",
        "csistoragecapacities",
        "volumeattachments",
    ];

    #[test]
    fn each_part_needs_its_sources() {
        let core = ["nodes", "pods", "namespaces"];
        let all = [&core[..], &FOR_SCHEDULING].concat();
        let cases: [(Parts, &[&str]); 7] = [
            (Parts::NONE, &core),
            (Part::NodeLabels.into(), &core),
            (Part::DrsRules.into(), &core),
            (Part::Extender.into(), &core),
            (Parts::RUN, &core),
            (Part::Scheduling.into(), &all),
            (Parts::ALL, &all),
        ];
        for (parts, expected) in cases {
            let needed: Vec<&str> = sources_for(parts).map(|row| row.resource).collect();
            assert_eq!(needed, expected, "{parts:?}");
        }
    }

    #[test]
    fn a_set_contains_the_parts_added_to_it() {
        let parts = Parts::NONE.with(Part::DrsRules, true).with(Part::Extender, false);
        assert_eq!(Part::ALL.map(|part| parts.contains(part)), [false, true, false, false]);
        assert_eq!(parts, Part::DrsRules.into());
        assert_eq!(parts.iter().collect::<Vec<_>>(), [Part::DrsRules]);
        assert_eq!(Part::ALL.into_iter().fold(Parts::NONE, |parts, part| parts.with(part, true)), Parts::ALL);
    }

    #[test]
    fn rows_are_found_by_version_and_kind() {
        let kind_of = |api_version: &str, kind: &str| {
            KUBERNETES_SOURCES.iter().find(|row| row.is_of(api_version, kind)).map(|row| row.resource)
        };
        for (api_version, kind, expected) in [
            ("v1", "Pod", Some("pods")),
            ("apps/v1", "ReplicaSet", Some("replicasets")),
            ("v1", "ReplicaSet", None),
            ("/v1", "Pod", None),
            ("apps/v1beta1", "ReplicaSet", None),
            ("v2", "Pod", None),
            ("v1", "Secret", None),
            ("", "", None),
        ] {
            assert_eq!(kind_of(api_version, kind), expected, "{api_version} {kind}");
        }
    }

    #[test]
    fn number_3_sources_are_missing_until_their_first_list_is_complete() {
        let mut world = World::default();
        let missing = |world: &World, parts: Parts| world.missing(parts).map(|row| row.resource).collect::<Vec<_>>();
        assert_eq!(missing(&world, Parts::RUN), ["nodes", "pods", "namespaces"]);
        for row in sources_for(Parts::RUN) {
            world.apply(Event::RelistBegan(row.source));
            world.apply(Event::RelistEnded(row.source));
        }
        assert!(world.has_all_for(Parts::RUN) && !world.has_all_for(Parts::ALL));
        assert_eq!(missing(&world, Parts::SCHEDULING), FOR_SCHEDULING);
        for event in [Event::Lost(Source::Pods), Event::RelistBegan(Source::Pods)] {
            world.apply(event);
            assert!(world.has_all_for(Parts::RUN), "the last known state is still there");
        }
        let mut interrupted = World::default();
        for event in [Event::RelistBegan(Source::Pods), Event::Lost(Source::Pods)] {
            interrupted.apply(event);
            assert!(missing(&interrupted, Parts::RUN).contains(&"pods"));
        }
    }
}
