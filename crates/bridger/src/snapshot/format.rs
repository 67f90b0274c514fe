//! The file format of snapshots, version 1.
//!
//! In: a [`Snapshot`], or the bytes of a file. Out: bytes, or a snapshot or an error. The layouts here and in the
//! submodules define how each kind of facts is serialized; the model knows nothing of files.
//!
//! Invariants: every file of a version stays readable, so a field may be added with a default but is never renamed or
//! removed within a version. A field of the model that has no layout here is a compile error.

mod kubernetes;
mod layout;
mod scheduling;
mod vcenter;
mod volumes;

use std::collections::BTreeMap;

use jiff::Timestamp;
use model::event::{NamespaceFacts, NodeFacts, PodFacts};
use model::scheduling::{DisruptionBudgetFacts, WorkloadFacts};
use model::volumes::VolumeObject;
use serde::{Deserialize, Serialize};

use self::kubernetes::{Namespace, Node, Pod};
use self::layout::List;
use self::scheduling::{Budget, Workload};
use self::vcenter::Vcenter;
use self::volumes::Object;
use super::{Snapshot, VcenterPart};

const KIND: &str = "BridgerSnapshot";
const VERSION: u32 = 1;

#[derive(Debug, thiserror::Error)]
pub(super) enum FormatError {
    #[error("it is not a snapshot")]
    OtherKind,
    #[error("it has version {0}, this bridger reads version {VERSION}")]
    OtherVersion(u32),
    #[error("cannot parse it: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Read first, so that a file of another kind or version gets the right error.
#[derive(Deserialize)]
struct Head {
    kind: Option<String>,
    version: Option<u32>,
}

/// The whole file.
#[derive(Serialize)]
struct File<'a> {
    kind: &'static str,
    version: u32,
    #[serde(flatten, serialize_with = "Body::serialize")]
    body: &'a Snapshot,
}

/// The fields after kind and version.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Snapshot", rename_all = "camelCase")]
struct Body {
    taken: Timestamp,
    #[serde(with = "List::<Vcenter>")]
    vcenters: Vec<VcenterPart>,
    #[serde(with = "List::<Namespace>")]
    namespaces: Vec<NamespaceFacts>,
    #[serde(with = "List::<Node>")]
    nodes: Vec<NodeFacts>,
    #[serde(with = "List::<Pod>")]
    pods: Vec<PodFacts>,
    #[serde(default, rename = "selecting", with = "List::<Workload>")]
    workloads: Vec<WorkloadFacts>,
    #[serde(default, rename = "podDisruptionBudgets", with = "List::<Budget>")]
    budgets: Vec<DisruptionBudgetFacts>,
    #[serde(default, with = "List::<Object>")]
    volumes: Vec<VolumeObject>,
    record: BTreeMap<String, String>,
}

pub(super) fn read(bytes: &[u8]) -> Result<Snapshot, FormatError> {
    let head: Head = serde_json::from_slice(bytes)?;
    match (head.kind.as_deref(), head.version) {
        (Some(KIND), Some(VERSION)) => {
            let mut deserializer = serde_json::Deserializer::from_slice(bytes);
            let snapshot = Body::deserialize(&mut deserializer)?;
            deserializer.end()?;
            Ok(snapshot)
        }
        (Some(KIND), version) => Err(FormatError::OtherVersion(version.unwrap_or(0))),
        _ => Err(FormatError::OtherKind),
    }
}

pub(super) fn write(snapshot: &Snapshot) -> Result<Vec<u8>, FormatError> {
    Ok(serde_json::to_vec(&File { kind: KIND, version: VERSION, body: snapshot })?)
}
