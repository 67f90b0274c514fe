//! Node selectors and node affinity.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kubernetes::json::{count, items, text};
use crate::kubernetes::label_selector::{Operator, Requirement};

pub(crate) type Labels = BTreeMap<String, String>;

/// One term: all its expressions and fields must match. An empty term matches no node.
#[derive(Clone, Debug)]
struct Term {
    expressions: Vec<Requirement>,
    fields: Vec<Requirement>,
    readable: bool,
}

impl Term {
    fn parse(term: &Value) -> Term {
        let parse = |list: &Value| items(list).iter().map(Requirement::from_expression).collect::<Option<Vec<_>>>();
        let (expressions, fields) = (parse(&term["matchExpressions"]), parse(&term["matchFields"]));
        Term {
            readable: expressions.is_some() && fields.is_some(),
            expressions: expressions.unwrap_or_default(),
            fields: fields.unwrap_or_default(),
        }
    }

    fn matches(&self, node: &str, labels: &Labels) -> bool {
        self.readable
            && !(self.expressions.is_empty() && self.fields.is_empty())
            && self.expressions.iter().all(|wanted| wanted.matches(labels.get(&wanted.key).map(String::as_str)))
            && self.fields.iter().all(|wanted| {
                let known =
                    matches!(wanted.operator, Operator::In(_) | Operator::NotIn(_)) && wanted.key == "metadata.name";
                known && wanted.matches(Some(node))
            })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct NodeAffinity {
    selector: Vec<(String, String)>,
    /// At least one must match; `None` if nothing is required.
    required: Option<Vec<Term>>,
    preferred: Vec<(i64, Term)>,
}

impl NodeAffinity {
    pub(crate) fn of_pod(pod: &Value) -> NodeAffinity {
        let spec = &pod["spec"];
        let affinity = &spec["affinity"]["nodeAffinity"];
        let required = &affinity["requiredDuringSchedulingIgnoredDuringExecution"];
        NodeAffinity {
            selector: spec["nodeSelector"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.clone(), text(value).to_owned()))
                .collect(),
            required: required
                .is_object()
                .then(|| items(&required["nodeSelectorTerms"]).iter().map(Term::parse).collect()),
            preferred: items(&affinity["preferredDuringSchedulingIgnoredDuringExecution"])
                .iter()
                .map(|preferred| (count(&preferred["weight"], 0), Term::parse(&preferred["preference"])))
                .collect(),
        }
    }

    /// The nodes that can use a volume; `None` if all can.
    pub(crate) fn of_volume(volume: &Value) -> Option<NodeAffinity> {
        let required = volume["spec"]["nodeAffinity"]["required"].as_object()?;
        let terms = required.get("nodeSelectorTerms").map_or(&[][..], items);
        Some(NodeAffinity { required: Some(terms.iter().map(Term::parse).collect()), ..NodeAffinity::default() })
    }

    pub(crate) fn allows(&self, node: &str, labels: &Labels) -> bool {
        self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.required.as_ref().is_none_or(|terms| terms.iter().any(|term| term.matches(node, labels)))
    }

    /// The sum of the weights of the matching preferred terms.
    pub(crate) fn score(&self, node: &str, labels: &Labels) -> i64 {
        self.preferred.iter().filter(|(_, term)| term.matches(node, labels)).map(|(weight, _)| weight).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn required_and_preferred_terms() {
        let labels: Labels =
            [("zone", "a"), ("cores", "16")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let required = |terms: Value| {
            json!({ "affinity": { "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } } })
        };
        let expression = |key: &str, operator: &str, values: &[&str]| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
        let field = |operator: &str, value: &str| json!({ "matchFields": [{ "key": "metadata.name", "operator": operator, "values": [value] }] });
        for (spec, allowed) in [
            (json!({}), true),
            (json!({ "nodeSelector": { "zone": "a" } }), true),
            (json!({ "nodeSelector": { "zone": "b" } }), false),
            (required(json!([expression("zone", "In", &["a", "b"])])), true),
            (required(json!([expression("zone", "NotIn", &["a"])])), false),
            (required(json!([expression("zone", "NotIn", &["a"]), expression("zone", "Exists", &[])])), true),
            (required(json!([expression("rack", "DoesNotExist", &[])])), true),
            (required(json!([expression("cores", "Gt", &["8"])])), true),
            (required(json!([expression("cores", "Lt", &["8"])])), false),
            (required(json!([expression("zone", "Gt", &["8"])])), false),
            (required(json!([field("In", "n1")])), true),
            (required(json!([field("NotIn", "n1")])), false),
            (required(json!([])), false),
            (required(json!([{}])), false),
            (required(json!([expression("zone", "Like", &["a"])])), false),
        ] {
            let affinity = NodeAffinity::of_pod(&json!({ "spec": spec }));
            assert_eq!(affinity.allows("n1", &labels), allowed, "{spec}");
        }
    }
}
