//! A world from a file, for `bridger explain`.
//!
//! In: a Kubernetes `List` (JSON or YAML), as `kubectl get nodes,namespaces,pods -A -o json` prints it, or a file of
//! `bridger snapshot`. Out: the events that build the world. Objects of other kinds are ignored; only facts are kept.

use std::path::Path;

use model::event::Event;
use model::{Parts, sources_for};
use serde_json::Value;

use crate::failure::Failure;
use crate::snapshot::Snapshot;

/// Larger files are rejected.
const FILE_BYTES_MAX: u64 = 4 << 30;
const HINT: &str = "use a file of `kubectl get nodes,namespaces,pods -A -o json` or `bridger snapshot`";

/// Reads the file.
pub fn read(path: &Path) -> Result<Vec<Event>, Failure> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| {
        Failure::configuration(format!("cannot read snapshot {shown}: {error}"), "check --snapshot")
    };
    if std::fs::metadata(path).map_err(unreadable)?.len() > FILE_BYTES_MAX {
        return Err(Failure::configuration(format!("snapshot {shown} is too large"), HINT));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let bad = |why: String| Failure::configuration(format!("cannot parse snapshot {shown}: {why}"), HINT);
    let mut document = parse(&text).map_err(bad)?;
    drop(text);
    match document.get("kind").and_then(Value::as_str) {
        Some("BridgerSnapshot") => {
            drop(document);
            let snapshot = Snapshot::read(path)?;
            if snapshot.pods.iter().any(|pod| pod.scheduling.is_none()) {
                return Err(Failure::configuration(
                    format!("snapshot {shown} lacks the scheduling data of pods"),
                    "take it again with this version of bridger",
                ));
            }
            Ok(snapshot.into_events())
        }
        Some("List") => match document.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => list(&items).map_err(bad),
            _ => Err(bad("the list has no items".to_owned())),
        },
        Some(kind) => Err(bad(format!("it is of kind {kind}"))),
        None => Err(bad("it has no kind".to_owned())),
    }
}

fn parse(text: &str) -> Result<Value, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    // Only the file size limits the input: a cluster has more YAML nodes than any configuration.
    let mut options = serde_saphyr::Options::default();
    options.budget = None;
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })
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
        assert_eq!(events.len(), 16, "{events:?}");
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
