//! Server-side tables: the columns and cells that a real server prints for each kind.
//!
//! `kubectl -o wide` adds the columns of priority 1; as in a real server they are always sent.

mod age;
mod pod;
mod storage;
mod workload;

use std::fmt::Write;
use std::sync::Arc;

use serde_json::{Value, json};

use super::query::Query;
use crate::clock::SimTime;
use crate::kubernetes::error::ApiError;
use crate::kubernetes::kinds::KindId;

/// How much of the object each row contains in addition to the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl IncludeObject {
    pub fn read(query: &Query) -> Result<IncludeObject, ApiError> {
        match query.text("includeObject") {
            None | Some("Metadata") => Ok(IncludeObject::Metadata),
            Some("None") => Ok(IncludeObject::None),
            Some("Object") => Ok(IncludeObject::Object),
            Some(other) => Err(ApiError::BadRequest(format!("unrecognized includeObject value: {other:?}"))),
        }
    }
}

struct Column {
    name: &'static str,
    column_type: &'static str,
    priority: u8,
    description: &'static str,
}

const fn text(name: &'static str, description: &'static str) -> Column {
    Column { name, column_type: "string", priority: 0, description }
}

const fn whole(name: &'static str, description: &'static str) -> Column {
    Column { name, column_type: "integer", priority: 0, description }
}

const fn wide(name: &'static str, description: &'static str) -> Column {
    Column { name, column_type: "string", priority: 1, description }
}

const NAME: Column = text("Name", "Name must be unique within a namespace.");
const AGE: Column = text("Age", "How long ago the object was created.");
const CONTAINERS: Column = wide("Containers", "Names of each container in the template.");
const IMAGES: Column = wide("Images", "Images referenced by each container in the template.");
const SELECTOR: Column = wide("Selector", "The label selector for pods.");

fn columns(kind: KindId) -> &'static [Column] {
    match kind {
        KindId::POD => {
            const {
                &[
                    NAME,
                    text("Ready", "The aggregate readiness state of this pod for accepting traffic."),
                    text("Status", "The aggregate status of the containers in this pod."),
                    text("Restarts", "How often the containers in this pod have been restarted, and when last."),
                    AGE,
                    wide("IP", "The pod's address."),
                    wide("Node", "The node that the pod is bound to."),
                    wide("Nominated Node", "The node that the pod is expected to run on after preemption."),
                    wide("Readiness Gates", "How many of the pod's readiness gates are open."),
                ]
            }
        }
        KindId::NODE => {
            const {
                &[
                    NAME,
                    text("Status", "The status of the node"),
                    text("Roles", "The roles of the node"),
                    AGE,
                    text("Version", "The kubelet's version."),
                    wide("Internal-IP", "The node's address inside the cluster."),
                    wide("External-IP", "The node's address outside the cluster."),
                    wide("OS-Image", "The node's operating system."),
                    wide("Kernel-Version", "The node's kernel."),
                    wide("Container-Runtime", "The node's container runtime."),
                ]
            }
        }
        KindId::DEPLOYMENT => {
            const {
                &[
                    NAME,
                    text("Ready", "Number of the pod with ready state"),
                    whole("Up-to-date", "Number of pods that have the desired template."),
                    whole("Available", "Number of pods that have been ready long enough."),
                    AGE,
                    CONTAINERS,
                    IMAGES,
                    SELECTOR,
                ]
            }
        }
        KindId::REPLICA_SET => {
            const {
                &[
                    NAME,
                    whole("Desired", "Number of pods wanted."),
                    whole("Current", "Number of pods there are."),
                    whole("Ready", "Number of pods that are ready."),
                    AGE,
                    CONTAINERS,
                    IMAGES,
                    SELECTOR,
                ]
            }
        }
        KindId::STATEFUL_SET => {
            const { &[NAME, text("Ready", "Number of the pod with ready state"), AGE, CONTAINERS, IMAGES] }
        }
        KindId::SERVICE => {
            const {
                &[
                    NAME,
                    text("Type", "How the Service is exposed."),
                    text("Cluster-IP", "The Service's address inside the cluster."),
                    text("External-IP", "The Service's addresses outside the cluster."),
                    text("Port(s)", "The ports that are exposed."),
                    AGE,
                    SELECTOR,
                ]
            }
        }
        KindId::NAMESPACE => const { &[NAME, text("Status", "The status of the namespace"), AGE] },
        KindId::CONFIG_MAP => const { &[NAME, text("Data", "Number of entries."), AGE] },
        KindId::SECRET => {
            const { &[NAME, text("Type", "The kind of secret."), text("Data", "Number of entries."), AGE] }
        }
        KindId::LEASE => const { &[NAME, text("Holder", "Who holds the lease."), AGE] },
        KindId::POD_DISRUPTION_BUDGET => {
            const {
                &[
                    NAME,
                    text("Min Available", "The minimum number of pods that must be available."),
                    text("Max Unavailable", "The maximum number of pods that may be unavailable."),
                    whole("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."),
                    AGE,
                ]
            }
        }
        KindId::PRIORITY_CLASS => {
            const {
                &[
                    NAME,
                    whole("Value", "The priority that pods of this class get."),
                    Column {
                        name: "Global-Default",
                        column_type: "boolean",
                        priority: 0,
                        description: "Whether it is the default.",
                    },
                    AGE,
                    text("PreemptionPolicy", "Whether pods of this class preempt others."),
                ]
            }
        }
        KindId::EVENT => {
            const {
                &[
                    text("Last Seen", "When it was last seen."),
                    text("Type", "Normal or Warning."),
                    text("Reason", "Why it happened."),
                    text("Object", "The object it is about."),
                    wide("Subobject", "The part of the object it is about."),
                    wide("Source", "Who reported it."),
                    text("Message", "What happened."),
                    wide("First Seen", "When it was first seen."),
                    wide("Count", "How often it was seen."),
                    Column { name: "Name", column_type: "string", priority: 1, description: "The event's name." },
                ]
            }
        }
        _ => storage::columns(kind).unwrap_or(const { &[NAME, AGE] }),
    }
}

fn cells(kind: KindId, object: &Value, now: SimTime) -> Value {
    match kind {
        KindId::POD => pod::pod(object, now),
        KindId::NODE => workload::node(object, now),
        KindId::DEPLOYMENT => workload::deployment(object, now),
        KindId::REPLICA_SET => workload::replica_set(object, now),
        KindId::STATEFUL_SET => workload::stateful_set(object, now),
        KindId::SERVICE => workload::service(object, now),
        KindId::EVENT => workload::event(object, now),
        _ => {
            let name = &object["metadata"]["name"];
            let age = age::since(&object["metadata"]["creationTimestamp"], now);
            let entries = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
            match kind {
                KindId::NAMESPACE => json!([name, or_empty(&object["status"]["phase"]), age]),
                KindId::CONFIG_MAP => json!([name, entries("data") + entries("binaryData"), age]),
                KindId::SECRET => json!([name, or_empty(&object["type"]), entries("data"), age]),
                KindId::LEASE => json!([name, or_empty(&object["spec"]["holderIdentity"]), age]),
                KindId::POD_DISRUPTION_BUDGET => {
                    let bound = |field: &str| plain(&object["spec"][field]).unwrap_or_else(|| "N/A".to_owned());
                    let allowed = object["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
                    json!([name, bound("minAvailable"), bound("maxUnavailable"), allowed, age])
                }
                KindId::PRIORITY_CLASS => {
                    let value = object["value"].as_i64().unwrap_or(0);
                    let default = object["globalDefault"].as_bool().unwrap_or(false);
                    json!([name, value, default, age, or_empty(&object["preemptionPolicy"])])
                }
                _ => storage::cells(kind, object, &age).unwrap_or_else(|| json!([name, age])),
            }
        }
    }
}

/// A string unchanged, a number as text, nothing for any other value.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn or_empty(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A `Table` of the objects.
#[must_use]
pub fn write(
    kind: KindId,
    objects: &[Arc<Value>],
    metadata: &Value,
    with_columns: bool,
    include: IncludeObject,
    now: SimTime,
) -> String {
    let definitions: Value = if with_columns {
        let definition = |column: &Column| {
            let format = if column.name == "Name" { "name" } else { "" };
            json!({ "name": column.name, "type": column.column_type, "format": format,
                "description": column.description, "priority": column.priority })
        };
        columns(kind).iter().map(definition).collect()
    } else {
        Value::Null
    };
    let mut table = format!(
        r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{metadata},"columnDefinitions":{definitions},"rows":["#
    );
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            table.push(',');
        }
        let _ = write!(table, r#"{{"cells":{}"#, cells(kind, object, now));
        if let Some(conditions) = row_conditions(kind, object) {
            let _ = write!(table, r#","conditions":{conditions}"#);
        }
        let _ = match include {
            IncludeObject::None => write!(table, "}}"),
            IncludeObject::Object => write!(table, r#","object":{object}}}"#),
            IncludeObject::Metadata => write!(
                table,
                r#","object":{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{}}}}}"#,
                object["metadata"]
            ),
        };
    }
    table.push_str("]}");
    table
}

/// Marks finished pods, so that a client can omit them.
fn row_conditions(kind: KindId, object: &Value) -> Option<Value> {
    let message = match (kind, object["status"]["phase"].as_str()?) {
        (KindId::POD, "Succeeded") => "The pod has completed successfully.",
        (KindId::POD, "Failed") => "The pod failed.",
        _ => return None,
    };
    let reason = &object["status"]["phase"];
    Some(json!([{ "type": "Completed", "status": "True", "reason": reason, "message": message }]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_as_many_cells_as_columns() {
        for kind in KindId::all() {
            let row = cells(kind, &json!({ "metadata": { "name": "x" } }), SimTime::VIRTUAL_START);
            assert_eq!(row.as_array().unwrap().len(), columns(kind).len(), "{}", kind.kind().kind);
            assert!(row.as_array().unwrap().iter().all(|cell| !cell.is_null()), "{row}");
        }
    }

    #[test]
    fn a_table_is_json() {
        let node = Arc::new(json!({ "metadata": { "name": "n" } }));
        for include in [IncludeObject::None, IncludeObject::Metadata, IncludeObject::Object] {
            let text =
                write(KindId::NODE, &[node.clone(), node.clone()], &json!({}), true, include, SimTime::VIRTUAL_START);
            let table: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(table["rows"].as_array().unwrap().len(), 2);
            assert_eq!(table["rows"][0]["object"].is_null(), include == IncludeObject::None);
        }
    }
}
