//! Label selectors as objects carry them (`matchLabels`, `matchExpressions`).
//!
//! A missing selector and an empty one differ, and what each means depends on who asks: [`LabelSelector::parse`] gives
//! `None` for the missing one and the caller decides. An unreadable selector matches nothing.

use serde_json::Value;

use super::json::{items, text};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
    readable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    /// Node affinity only.
    Gt,
    /// Node affinity only.
    Lt,
}

impl Requirement {
    /// A `matchExpressions` entry; `None` when its operator is unknown.
    pub(crate) fn parse(expression: &Value) -> Option<Requirement> {
        let operator = match text(&expression["operator"]) {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            _ => return None,
        };
        let values = items(&expression["values"]).iter().map(|value| text(value).to_owned()).collect();
        Some(Requirement { key: text(&expression["key"]).to_owned(), operator, values })
    }

    /// `value` is the label's value, if the label is there.
    pub(crate) fn matches(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|wanted| wanted == value);
        let compared = |greater: bool| {
            let (Some(Ok(value)), Some(Ok(bound))) =
                (value.map(str::parse::<i64>), self.values.first().map(|bound| bound.parse::<i64>()))
            else {
                return false;
            };
            self.values.len() == 1 && if greater { value > bound } else { value < bound }
        };
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => compared(true),
            Operator::Lt => compared(false),
        }
    }
}

impl LabelSelector {
    /// `None` for a missing (null) selector.
    pub(crate) fn parse(selector: &Value) -> Option<LabelSelector> {
        if selector.is_null() {
            return None;
        }
        let mut requirements = Vec::new();
        let mut readable = selector.is_object();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            requirements.push(Requirement {
                key: key.clone(),
                operator: Operator::In,
                values: vec![text(value).to_owned()],
            });
        }
        for expression in items(&selector["matchExpressions"]) {
            match Requirement::parse(expression) {
                Some(requirement) => requirements.push(requirement),
                None => readable = false,
            }
        }
        Some(LabelSelector { requirements, readable })
    }

    pub(crate) fn matches(&self, labels: &Value) -> bool {
        self.readable
            && self.requirements.iter().all(|requirement| {
                requirement.matches(labels.get(&requirement.key).map(|value| value.as_str().unwrap_or_default()))
            })
    }
}

/// Whether the selector is there and matches; a missing one matches nothing.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    LabelSelector::parse(selector).is_some_and(|selector| selector.matches(labels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors() {
        let labels = json!({ "app": "web", "generation": "7" });
        let expression = |key: &str, operator: &str, values: &[&str]| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
        for (selector, expected) in [
            (json!(null), false),
            (json!({}), true),
            (json!("nonsense"), false),
            (json!({ "matchLabels": { "app": "web" } }), true),
            (json!({ "matchLabels": { "app": "db" } }), false),
            (expression("app", "In", &["db", "web"]), true),
            (expression("app", "NotIn", &["db"]), true),
            (expression("tier", "NotIn", &["db"]), true),
            (expression("tier", "Exists", &[]), false),
            (expression("tier", "DoesNotExist", &[]), true),
            (expression("generation", "Gt", &["6"]), true),
            (expression("generation", "Lt", &["7"]), false),
            (expression("app", "Gt", &["6"]), false),
            (expression("app", "Resembles", &["web"]), false),
        ] {
            assert_eq!(selects(&selector, &labels), expected, "{selector}");
        }
    }
}
