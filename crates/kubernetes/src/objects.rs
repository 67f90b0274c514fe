//! Converts objects from a file instead of a watch.
//!
//! In: one object as `kubectl get -o json` prints it. Out: its event, with all fields that a scheduler needs; `None`
//! for a kind that Bridger does not use. A finished pod becomes a finished pod; watches never show these.

use model::KUBERNETES_SOURCES;
use model::event::Event;
use serde::Deserialize;
use serde_json::Value;

use crate::facts::{Facts, Watched};
use crate::kinds::{self, Detail, Visitor};

/// Reads one object. Fails if the object does not match its kind.
pub fn applied(object: &Value) -> Result<Option<Event>, serde_json::Error> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let row = KUBERNETES_SOURCES.iter().find(|row| row.is_of(api_version, kind));
    row.and_then(|row| kinds::visit(row.source, Detail::Scheduling, Read(object))).transpose()
}

struct Read<'a>(&'a Value);

impl Visitor for Read<'_> {
    type Output = Result<Event, serde_json::Error>;

    fn visit<F: Facts>(self) -> Self::Output {
        Watched::<F>::deserialize(self.0).map(|watched| watched.facts.applied())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_row_of_the_table_can_be_read_and_nothing_else() {
        for row in &KUBERNETES_SOURCES {
            let api_version = if row.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", row.group) };
            let metadata = json!({ "name": "x", "namespace": "ns" });
            let object = json!({ "apiVersion": api_version, "kind": row.kind, "metadata": metadata });
            let event = applied(&object).expect(row.kind).expect(row.kind);
            assert_eq!(source_of(&event), Some(row.source), "{event:?}");
            let malformed = json!({ "apiVersion": api_version, "kind": row.kind, "metadata": 7 });
            assert!(applied(&malformed).is_err(), "{}", row.kind);
        }
        let other = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": 7 });
        assert_eq!(applied(&other).expect("an unused kind"), None);
    }

    fn source_of(event: &Event) -> Option<model::event::Source> {
        use model::event::Source;
        Some(match event {
            Event::NodeApplied(_) => Source::Nodes,
            Event::PodApplied(_) => Source::Pods,
            Event::NamespaceApplied(_) => Source::Namespaces,
            Event::WorkloadApplied(facts) => Source::Workload(facts.kind),
            Event::DisruptionBudgetApplied(_) => Source::DisruptionBudgets,
            Event::VolumeApplied(object) => Source::Volume(object.kind()),
            _ => return None,
        })
    }
}
