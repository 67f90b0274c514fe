//! Label selectors: in a query (`app=web,tier in (a,b)`) and in an object (`matchLabels`, `matchExpressions`).

use std::fmt;

use serde_json::Value;

/// Requirements that must all hold. An empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

impl LabelSelector {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads a query's `labelSelector`.
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        let mut requirements = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            // A comma inside parentheses separates values, not requirements.
            let mut depth = 0_usize;
            let end = rest
                .char_indices()
                .find(|(_, c)| {
                    match c {
                        '(' => depth += 1,
                        ')' => depth = depth.saturating_sub(1),
                        _ => (),
                    }
                    *c == ',' && depth == 0
                })
                .map(|(at, _)| at);
            let (part, tail) = end.map_or((rest, None), |at| (&rest[..at], Some(rest[at + 1..].trim())));
            requirements.push(Requirement::parse(part.trim())?);
            rest = match tail {
                Some("") => return Err(SelectorError("found '', expected: identifier after ','".to_owned())),
                Some(tail) => tail,
                None => "",
            };
        }
        Ok(LabelSelector(requirements))
    }

    /// Reads a `LabelSelector` object; `None` (selects nothing) when it is absent or not one.
    #[must_use]
    pub fn from_object(selector: &Value) -> Option<LabelSelector> {
        let selector = selector.as_object()?;
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let values = vec![value.as_str()?.to_owned()];
            requirements.push(Requirement { key: key.clone(), operator: Operator::In(values) });
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let key = expression["key"].as_str()?.to_owned();
            let values = || -> Option<Vec<String>> {
                let values = expression["values"].as_array().filter(|values| !values.is_empty())?;
                values.iter().map(|value| value.as_str().map(str::to_owned)).collect()
            };
            let operator = match expression["operator"].as_str()? {
                "In" => Operator::In(values()?),
                "NotIn" => Operator::NotIn(values()?),
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                _ => return None,
            };
            requirements.push(Requirement { key, operator });
        }
        Some(LabelSelector(requirements))
    }

    /// `labels` is an object's `metadata.labels`, possibly absent.
    #[must_use]
    pub fn matches(&self, labels: &Value) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels[&requirement.key].as_str()))
    }
}

impl Requirement {
    fn parse(text: &str) -> Result<Requirement, SelectorError> {
        let unexpected = |found: &str, expected: &str| requirement(&format!("found '{found}', expected: {expected}"));
        if let Some(key) = text.strip_prefix('!') {
            return Ok(Requirement { key: valid_key(key.trim())?, operator: Operator::DoesNotExist });
        }
        let key_end = text.find(|c: char| c.is_whitespace() || "=!<>()".contains(c)).unwrap_or(text.len());
        let key = valid_key(&text[..key_end])?;
        let rest = text[key_end..].trim();
        let one = |value: &str| valid_value(value.trim());
        let operator = if rest.is_empty() {
            Operator::Exists
        } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
            Operator::In(vec![one(value)?])
        } else if let Some(value) = rest.strip_prefix("!=") {
            Operator::NotIn(vec![one(value)?])
        } else if let Some(value) = rest.strip_prefix('>') {
            Operator::GreaterThan(number(value)?)
        } else if let Some(value) = rest.strip_prefix('<') {
            Operator::LessThan(number(value)?)
        } else if let Some(values) = rest.strip_prefix("notin") {
            Operator::NotIn(value_list(values)?)
        } else if let Some(values) = rest.strip_prefix("in") {
            Operator::In(value_list(values)?)
        } else {
            return Err(unexpected(rest, "in, notin, =, ==, !=, gt, lt"));
        };
        Ok(Requirement { key, operator })
    }

    fn matches(&self, value: Option<&str>) -> bool {
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

fn requirement(why: &str) -> SelectorError {
    SelectorError(format!("unable to parse requirement: {why}"))
}

fn valid_key(key: &str) -> Result<String, SelectorError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if key.is_empty() || !key.chars().all(plain) {
        return Err(requirement(&format!("found '{key}', expected: identifier")));
    }
    Ok(key.to_owned())
}

fn valid_value(value: &str) -> Result<String, SelectorError> {
    if !value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) || value.len() > 63 {
        let found: String = value.chars().take(1).collect();
        return Err(requirement(&format!("found '{found}', expected: identifier")));
    }
    Ok(value.to_owned())
}

fn number(value: &str) -> Result<i64, SelectorError> {
    value.trim().parse().map_err(|_| {
        requirement(&format!(
            "values[0]: Invalid value: {:?}: for 'Gt', 'Lt' operators, the value must be an integer",
            value.trim()
        ))
    })
}

fn value_list(text: &str) -> Result<Vec<String>, SelectorError> {
    let inner = text
        .trim()
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'))
        .ok_or_else(|| requirement(&format!("found '{}' expected: '('", text.trim())))?;
    inner.split(',').map(|value| valid_value(value.trim())).collect()
}

/// As a query would write it, requirements in order of their keys.
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
    fn selectors_match_as_in_a_real_server() {
        let labels = json!({ "app": "web", "tier": "a", "size": "3", "example.com/x": "" });
        for (text, matches) in [
            ("", true),
            ("app=web", true),
            ("app==web", true),
            ("app = web , tier!=b", true),
            ("app!=web", false),
            ("missing!=web", true),
            ("tier in (a, b)", true),
            ("tier in (b)", false),
            ("tier notin (b),app", true),
            ("missing notin (b)", true),
            ("example.com/x", true),
            ("example.com/x=", true),
            ("!missing", true),
            ("!app", false),
            ("size>2", true),
            ("size<2", false),
            ("app>2", false),
        ] {
            let selector = LabelSelector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(selector.matches(&labels), matches, "{text}");
        }
        assert!(!LabelSelector::parse("app").unwrap().matches(&Value::Null));
    }

    #[test]
    fn malformed_selectors_are_refused() {
        for text in ["a===b", ",", "a,", "=b", "a in b", "a in (b", "a(b)", "!", "a b", "é=b", "a=b c", "a>x"] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_selector_object_reads_back_as_text() {
        let object = json!({ "matchLabels": { "b": "1" }, "matchExpressions": [
            { "key": "a", "operator": "In", "values": ["y", "x"] }, { "key": "c", "operator": "DoesNotExist" }] });
        assert_eq!(LabelSelector::from_object(&object).unwrap().to_string(), "a in (x,y),b=1,!c");
        assert_eq!(LabelSelector::from_object(&Value::Null), None);
        assert_eq!(LabelSelector::from_object(&json!({})), Some(LabelSelector::default()));
        let wrong = json!({ "matchExpressions": [{ "key": "a", "operator": "In" }] });
        assert_eq!(LabelSelector::from_object(&wrong), None);
    }
}
