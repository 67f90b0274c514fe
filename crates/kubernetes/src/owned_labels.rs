//! Finds and removes the node labels that Bridger wrote, for its removal from a cluster.
//!
//! In: label keys. Out: the labels of nodes with such a key, and whether Bridger alone wrote them, as the API server's
//! managed fields say; and the removal of a label.
//!
//! Invariants: a label that another client wrote or changed is not Bridger's, whatever its value is; nor is one that
//! another client applied with the same value, because then the API server lists both as its owners. A label is removed
//! only while it has the value that was found. Pages, size and time of every call are bounded.

use std::collections::BTreeMap;

use engine::ports::PortError;
use http::Request;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::COMPONENT;
use crate::bounded::BoundedClient;
use crate::failure::port_error;
use crate::labels::{WRITE_LIMIT, is_object_name, label_path, within};

const PAGE: u32 = 500;
const PAGES_MAX: usize = 100;

/// A label of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLabel {
    pub node: String,
    pub key: String,
    pub value: String,
    /// Bridger wrote it, and no other client did.
    pub is_own: bool,
}

/// All labels with these keys, by node.
pub async fn find_labels(client: &BoundedClient, keys: &[String]) -> Result<Vec<FoundLabel>, PortError> {
    let object = "nodes";
    let mut found = Vec::new();
    let mut more = String::new();
    for _ in 0..PAGES_MAX {
        let address = format!("/api/v1/nodes?limit={PAGE}&continue={}", percent(&more));
        // Metadata alone: a node's status is much larger.
        let request = Request::get(address)
            .header("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
            .body(Vec::new())
            .map_err(|error| PortError::Permanent(format!("{object}: {error}")))?;
        let text = timeout(WRITE_LIMIT, client.client().request_text(request)).await;
        let text = text.map_err(|_| PortError::Transient(format!("{object}: no answer in time")))?;
        let text = text.map_err(|error| port_error(object, &error))?;
        let page: Page = serde_json::from_str(&text)
            .map_err(|error| PortError::Transient(format!("{object}: the answer can't be read: {error}")))?;
        found.extend(page.items.iter().flat_map(|item| of_node(&item.metadata, keys)));
        more = page.metadata.more.unwrap_or_default();
        if more.is_empty() {
            return Ok(found);
        }
    }
    Err(PortError::Permanent(format!("more than {} nodes", PAGES_MAX * PAGE as usize)))
}

fn of_node<'a>(node: &'a NodeMeta, keys: &'a [String]) -> impl Iterator<Item = FoundLabel> + 'a {
    let is_own = |key: &String| {
        let field = format!("f:{key}");
        let has_it = |entry: &&ManagedFields| entry.fields_v1["f:metadata"]["f:labels"].get(&field).is_some();
        let mut owners = node.managed_fields.iter().filter(has_it).map(|entry| entry.manager == COMPONENT).peekable();
        owners.peek().is_some() && owners.all(|is_bridger| is_bridger)
    };
    keys.iter().filter_map(move |key| {
        let value = node.labels.get(key)?.clone();
        Some(FoundLabel { node: node.name.clone(), key: key.clone(), value, is_own: is_own(key) })
    })
}

/// Removes a label if it still has the value; otherwise it is an error, and nothing changes.
pub async fn remove_label(client: &BoundedClient, label: &FoundLabel) -> Result<(), PortError> {
    let FoundLabel { node, key, value, .. } = label;
    let object = format!("node {node}");
    if !is_object_name(node) {
        return Err(PortError::Permanent(format!("{object:?}: not a valid node name")));
    }
    let path = label_path(key);
    let patch = json!([
        { "op": "test", "path": path, "value": value },
        { "op": "remove", "path": path },
    ]);
    let request = Request::patch(format!("/api/v1/nodes/{node}?fieldManager={COMPONENT}"))
        .header("content-type", "application/json-patch+json")
        .header("accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
        .body(patch.to_string().into_bytes())
        .map_err(|error| PortError::Permanent(format!("{object}: {error}")))?;
    within(WRITE_LIMIT, &object, client.client().request_text(request)).await
}

/// A continue token in a query.
fn percent(token: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    token
        .bytes()
        .map(|byte| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    more: Option<String>,
}

#[derive(Deserialize)]
struct Item {
    metadata: NodeMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeMeta {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    managed_fields: Vec<ManagedFields>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFields {
    #[serde(default)]
    manager: String,
    #[serde(default)]
    fields_v1: Value,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{ScriptedAnswer, scripted};

    const HOST: &str = "alpha.cna.vmware.com/host";

    /// A node whose label was written by these clients.
    fn node(name: &str, managers: &[&str]) -> Value {
        let owner = |manager: &str, key: &str| {
            let field = format!("f:{key}");
            json!({ "manager": manager, "fieldsV1": { "f:metadata": { "f:labels": { field: {} } } } })
        };
        let owners = managers.iter().map(|manager| owner(manager, HOST));
        let entries: Vec<Value> = [owner("kubelet", "other")].into_iter().chain(owners).collect();
        json!({ "metadata": {
            "name": name, "labels": { HOST: "esx-1", "other": "x" }, "managedFields": entries,
        } })
    }

    #[tokio::test(start_paused = true)]
    async fn number_9_labels_are_bridgers_only_if_it_alone_wrote_them() {
        let page = |more: &str, items: Value| json!({ "metadata": { "continue": more }, "items": items });
        let bare = json!({ "metadata": { "name": "bare" } });
        let items = [
            page("a/b=", json!([node("n1", &["bridger"]), node("n2", &["kubectl-label"]), bare])),
            page("", json!([node("n3", &["bridger", "bridger"]), node("n4", &["bridger", "argocd"])])),
        ];
        let (client, log) = scripted(items.map(|page| ("/api/v1/nodes", ScriptedAnswer::Json(200, page))));
        let keys = [HOST.to_owned(), "other".to_owned(), "missing".to_owned()];
        let found = find_labels(&client.into(), &keys).await.expect("two pages");
        let own = found.iter().filter(|label| label.is_own).map(|label| (label.node.as_str(), label.key.as_str()));
        assert_eq!(own.collect::<Vec<_>>(), [("n1", HOST), ("n3", HOST)]);
        assert_eq!(found.len(), 8, "{found:?}");
        assert!(log.requests()[1].path_and_query.ends_with("continue=a%2Fb%3D"));
    }

    #[tokio::test(start_paused = true)]
    async fn number_9_a_label_is_removed_only_while_it_has_the_value() {
        let script = [
            ("/api/v1/nodes/n1", ScriptedAnswer::Json(200, json!({ "kind": "PartialObjectMetadata" }))),
            ("/api/v1/nodes/n1", ScriptedAnswer::Status(422, "the test failed")),
        ];
        let (client, log) = scripted(script);
        let client = client.into();
        let (node, key, value) = ("n1".to_owned(), HOST.to_owned(), "esx-1".to_owned());
        let label = FoundLabel { node, key, value, is_own: true };
        assert_eq!(remove_label(&client, &label).await, Ok(()));
        assert!(remove_label(&client, &label).await.is_err());
        let path = "/metadata/labels/alpha.cna.vmware.com~1host";
        let sent: Value = serde_json::from_str(&log.requests()[0].body).expect("JSON");
        assert_eq!(sent, json!([{ "op": "test", "path": path, "value": "esx-1" }, { "op": "remove", "path": path }]));
        assert_eq!(log.requests()[0].content_type.as_deref(), Some("application/json-patch+json"));
        let strange = FoundLabel { node: "n1/status".to_owned(), ..label };
        assert!(matches!(remove_label(&client, &strange).await, Err(PortError::Permanent(_))));
        assert_eq!(log.requests().len(), 2);
    }
}
