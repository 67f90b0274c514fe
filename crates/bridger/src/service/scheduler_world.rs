//! A world from a file, for `bridger explain`.
//!
//! In: a Kubernetes `List` (JSON or YAML), as `kubectl get nodes,namespaces,pods -A -o json` prints it, or a file of
//! `bridger snapshot`. Out: the events that build the world. Objects of other kinds are ignored; only facts are kept.

use std::path::Path;

use model::event::Event;
use model::{Parts, sources_for};
use serde_json::Value;

use crate::failure::Failure;
use crate::files;
use crate::snapshot::Snapshot;

/// Two files of a large cluster.
const OBJECTS: files::Kind = files::Kind { bytes_max: 4 << 30, ..files::SNAPSHOT };
const HINT: &str = "use a file of `kubectl get nodes,namespaces,pods -A -o json` or `bridger snapshot`";

/// Reads the file.
pub fn read(path: &Path) -> Result<Vec<Event>, Failure> {
    let text = files::read_text(path, OBJECTS)?;
    let unusable = |why: String| Failure::configuration(format!("cannot use snapshot {}: {why}", path.display()), HINT);
    parse(&text).map_err(unusable)
}

/// Reads the content of a file.
pub fn parse(text: &str) -> Result<Vec<Event>, String> {
    let mut document = value(text)?;
    match document.get("kind").and_then(Value::as_str) {
        Some("BridgerSnapshot") => {
            drop(document);
            let snapshot = Snapshot::parse(text.as_bytes())?;
            if snapshot.pods.iter().any(|pod| pod.scheduling.is_none()) {
                return Err(
                    "it lacks the scheduling data of pods; take it again with this version of bridger".to_owned()
                );
            }
            Ok(snapshot.into_events())
        }
        Some("List") => match document.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => list(&items),
            _ => Err("the list has no items".to_owned()),
        },
        Some(kind) => Err(format!("it is of kind {kind}")),
        None => Err("it has no kind".to_owned()),
    }
}

fn value(text: &str) -> Result<Value, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| format!("cannot parse it: {error}"));
    }
    // Only the file size limits how much there is: a cluster has more YAML nodes than any configuration. Depth
    // and aliases stay limited.
    let mut options = serde_saphyr::Options::default();
    options.budget = serde_saphyr::budget! {
        max_events: usize::MAX,
        max_nodes: usize::MAX,
        max_total_scalar_bytes: usize::MAX,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| files::cannot_parse(&error))
}

/// The events of a list, as if it came from a server.
fn list(items: &[Value]) -> Result<Vec<Event>, String> {
    let sources = || sources_for(Parts::SCHEDULING).map(|row| row.source);
    let mut events: Vec<Event> = sources().map(Event::RelistBegan).collect();
    for (index, item) in items.iter().enumerate() {
        let event = kubernetes::objects::applied(item).map_err(|error| {
            let name = item.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("without a name");
            format!("item {index}, {name}: {error}")
        })?;
        events.extend(event);
    }
    events.extend(sources().map(Event::RelistEnded));
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Event>, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("world");
        std::fs::write(&path, text).expect("it is written");
        read(&path).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_list_is_read_as_json_and_as_yaml() {
        let json = r#"{"apiVersion":"v1","kind":"List","items":[
            {"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"spec":{},"status":{}},
            {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"ignored"}},
            {"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"a","uid":"u"},
             "spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}]}"#;
        let yaml = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {}, \
            status: {}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: ignored}}\n- apiVersion: v1\n  kind: Pod\n  \
            metadata: {name: p, namespace: a, uid: u}\n  spec:\n    containers:\n    - {name: c, resources: {requests: \
            {cpu: \"1\"}}}\n";
        let events = read_text(json).expect("a list");
        assert_eq!(events.len(), 2 * model::KUBERNETES_SOURCES.len() + 2, "{events:?}");
        assert_eq!(events, read_text(yaml).expect("the same list"));
    }

    #[test]
    fn a_file_that_is_not_a_snapshot_is_rejected_with_the_reason() {
        for (text, expected) in [
            ("{", "cannot parse"),
            ("{}", "no kind"),
            (r#"{"kind":"Pod"}"#, "of kind Pod"),
            (r#"{"kind":"List"}"#, "no items"),
            (r#"{"kind":"List","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":7}}]}"#, "item 0"),
            (r#"{"kind":"BridgerSnapshot","version":99}"#, "version 99"),
            (": : :", "cannot parse"),
        ] {
            let message = read_text(text).expect_err(expected);
            assert!(message.contains(expected), "{message}");
        }
    }
}
