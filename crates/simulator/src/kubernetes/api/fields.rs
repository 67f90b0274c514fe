//! Field selectors: the selectable fields of each kind and their values.

use serde_json::Value;

use crate::kubernetes::error::ApiError;
use crate::kubernetes::kinds::KindId;

/// Terms that must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: &'static str,
    equal: bool,
    value: String,
}

const EVERY_KIND: &[&str] = &["metadata.name", "metadata.namespace"];

fn fields_of(kind: KindId) -> &'static [&'static str] {
    match kind {
        KindId::POD => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        KindId::EVENT => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        KindId::NODE => &["spec.unschedulable"],
        KindId::NAMESPACE => &["status.phase"],
        KindId::SECRET => &["type"],
        KindId::REPLICA_SET => &["status.replicas"],
        KindId::SERVICE => &["spec.clusterIP", "spec.type"],
        _ => &[],
    }
}

impl FieldSelector {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn parse(kind: KindId, text: &str) -> Result<FieldSelector, ApiError> {
        let mut terms = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (field, equal, value) = part
                .split_once("!=")
                .map(|(field, value)| (field, false, value))
                .or_else(|| part.split_once("==").map(|(field, value)| (field, true, value)))
                .or_else(|| part.split_once('=').map(|(field, value)| (field, true, value)))
                .ok_or_else(|| {
                    ApiError::BadRequest(format!("invalid selector: '{text}'; can't understand '{part}'"))
                })?;
            let known = EVERY_KIND
                .iter()
                .chain(fields_of(kind))
                .find(|known| **known == field)
                .ok_or_else(|| ApiError::BadRequest(format!("field label not supported: {field}")))?;
            terms.push(Term { field: known, equal, value: value.to_owned() });
        }
        Ok(FieldSelector(terms))
    }

    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| (field_value(object, term.field) == term.value) == term.equal)
    }
}

fn field_value(object: &Value, field: &str) -> String {
    if field == "source" {
        let component = object["source"]["component"].as_str().unwrap_or_default();
        let component =
            if component.is_empty() { object["reportingComponent"].as_str().unwrap_or_default() } else { component };
        return component.to_owned();
    }
    let value = field.split('.').fold(object, |value, part| &value[part]);
    match (value, field) {
        (Value::String(text), _) => text.clone(),
        (Value::Null, "spec.unschedulable" | "spec.hostNetwork") => "false".to_owned(),
        (Value::Null, "status.replicas") => "0".to_owned(),
        (Value::Null, _) => String::new(),
        (other, _) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_select() {
        let pod =
            json!({ "metadata": { "name": "a" }, "spec": { "nodeName": "n1" }, "status": { "phase": "Running" } });
        for (text, matches) in [
            ("spec.nodeName=n1", true),
            ("spec.nodeName==n1,status.phase!=Failed", true),
            ("spec.nodeName=", false),
            ("spec.nodeName!=", true),
            ("spec.hostNetwork=false", true),
            ("metadata.name=b", false),
        ] {
            assert_eq!(FieldSelector::parse(KindId::POD, text).unwrap().matches(&pod), matches, "{text}");
        }
        let error = FieldSelector::parse(KindId::NODE, "spec.nodeName=x").unwrap_err();
        assert_eq!(error.to_string(), "field label not supported: spec.nodeName");
        assert!(FieldSelector::parse(KindId::NODE, "x").is_err());
    }
}
