//! Label selectors: parsing, matching against labels, and formatting as text.
//!
//! A selector comes from an object (`matchLabels`, `matchExpressions`: [`LabelSelector::from_object`]) or from a query
//! (`app=web,tier in (a,b)`: [`selector`](super::api)). Node affinity uses single requirements directly.
//!
//! A missing selector and an empty selector differ: the empty one selects everything, and the caller decides what a
//! missing one means. A selector that cannot be parsed counts as missing.

use std::fmt;

use serde_json::Value;

/// Requirements that must all hold. An empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requirement {
    pub key: String,
    pub operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

impl LabelSelector {
    pub(crate) fn new(requirements: Vec<Requirement>) -> LabelSelector {
        LabelSelector(requirements)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses a `LabelSelector` object; `None` if it is absent or invalid.
    #[must_use]
    pub fn from_object(selector: &Value) -> Option<LabelSelector> {
        let selector = selector.as_object()?;
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let values = vec![value.as_str()?.to_owned()];
            requirements.push(Requirement { key: key.clone(), operator: Operator::In(values) });
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let requirement = Requirement::from_expression(expression)?;
            // Only node affinity supports numeric comparison.
            if matches!(requirement.operator, Operator::GreaterThan(_) | Operator::LessThan(_)) {
                return None;
            }
            requirements.push(requirement);
        }
        Some(LabelSelector(requirements))
    }

    /// `labels` is an object's `metadata.labels`, which may be absent.
    #[must_use]
    pub fn matches(&self, labels: &Value) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels[&requirement.key].as_str()))
    }
}

/// Whether the selector exists and matches. A missing selector matches nothing.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    LabelSelector::from_object(selector).is_some_and(|selector| selector.matches(labels))
}

impl Requirement {
    /// Parses one of `matchExpressions`; `None` if it is invalid.
    pub(crate) fn from_expression(expression: &Value) -> Option<Requirement> {
        let key = expression["key"].as_str()?.to_owned();
        let values = || -> Option<Vec<String>> {
            let values = expression["values"].as_array().filter(|values| !values.is_empty())?;
            values.iter().map(|value| value.as_str().map(str::to_owned)).collect()
        };
        let bound = || match values()?.as_slice() {
            [bound] => bound.parse::<i64>().ok(),
            _ => None,
        };
        let operator = match expression["operator"].as_str()? {
            "In" => Operator::In(values()?),
            "NotIn" => Operator::NotIn(values()?),
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::GreaterThan(bound()?),
            "Lt" => Operator::LessThan(bound()?),
            _ => return None,
        };
        Some(Requirement { key, operator })
    }

    /// `value` is the label's value, or `None` if the label is absent.
    pub(crate) fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Operator::NotIn(values) => value.is_none_or(|value| values.iter().all(|unwanted| unwanted != value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Operator::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// In query syntax, ordered by key.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut requirements: Vec<&Requirement> = self.0.iter().collect();
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        for (index, Requirement { key, operator }) in requirements.into_iter().enumerate() {
            if index > 0 {
                write!(f, ",")?;
            }
            match operator {
                Operator::In(values) if values.len() == 1 => write!(f, "{key}={}", values[0])?,
                Operator::In(values) => write!(f, "{key} in ({})", sorted(values))?,
                Operator::NotIn(values) => write!(f, "{key} notin ({})", sorted(values))?,
                Operator::Exists => write!(f, "{key}")?,
                Operator::DoesNotExist => write!(f, "!{key}")?,
                Operator::GreaterThan(bound) => write!(f, "{key}>{bound}")?,
                Operator::LessThan(bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

fn sorted(values: &[String]) -> String {
    let mut values = values.to_vec();
    values.sort();
    values.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_of_objects() {
        let labels = json!({ "app": "web", "generation": "7" });
        let expression = |key: &str, operator: &str, values: &[&str]| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
        for (selector, expected) in [
            (json!(null), false),
            (json!({}), true),
            (json!("nonsense"), false),
            (json!({ "matchLabels": { "app": "web" } }), true),
            (json!({ "matchLabels": { "app": "db" } }), false),
            (json!({ "matchLabels": { "app": 7 } }), false),
            (expression("app", "In", &["db", "web"]), true),
            (expression("app", "In", &[]), false),
            (expression("app", "NotIn", &["db"]), true),
            (expression("tier", "NotIn", &["db"]), true),
            (expression("tier", "Exists", &[]), false),
            (expression("tier", "DoesNotExist", &[]), true),
            (expression("generation", "Gt", &["6"]), false),
            (expression("app", "Resembles", &["web"]), false),
        ] {
            assert_eq!(selects(&selector, &labels), expected, "{selector}");
        }
        assert!(!selects(&json!({ "matchLabels": { "app": "web" } }), &Value::Null), "no labels at all");
    }

    #[test]
    fn node_requirements_compare_numbers_too() {
        let matches = |operator: &str, values: &[&str], label: Option<&str>| {
            let expression = json!({ "key": "cores", "operator": operator, "values": values });
            Requirement::from_expression(&expression).is_some_and(|requirement| requirement.matches(label))
        };
        assert!(matches("Gt", &["6"], Some("7")) && !matches("Gt", &["7"], Some("7")));
        assert!(matches("Lt", &["8"], Some("7")) && !matches("Lt", &["8"], None));
        for (values, label) in [(&["6", "6"][..], "7"), (&[], "7"), (&["six"], "7"), (&["6"], "seven")] {
            assert!(!matches("Gt", values, Some(label)), "{values:?} {label}");
        }
    }

    #[test]
    fn a_selector_object_is_formatted_as_a_query() {
        let object = json!({ "matchLabels": { "b": "1" }, "matchExpressions": [
            { "key": "a", "operator": "In", "values": ["y", "x"] }, { "key": "c", "operator": "DoesNotExist" }] });
        assert_eq!(LabelSelector::from_object(&object).unwrap().to_string(), "a in (x,y),b=1,!c");
        assert_eq!(LabelSelector::from_object(&json!({})), Some(LabelSelector::default()));
    }
}
