//! Label selectors in a query: `app=web,tier in (a,b),!old`.

use crate::kubernetes::label_selector::{LabelSelector, Operator, Requirement};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

/// Parses a query's `labelSelector`.
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
        requirements.push(parse_requirement(part.trim())?);
        rest = match tail {
            Some("") => return Err(SelectorError("found '', expected: identifier after ','".to_owned())),
            Some(tail) => tail,
            None => "",
        };
    }
    Ok(LabelSelector::new(requirements))
}

fn parse_requirement(text: &str) -> Result<Requirement, SelectorError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
            let selector = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(selector.matches(&labels), matches, "{text}");
        }
        assert!(!parse("app").unwrap().matches(&Value::Null));
    }

    #[test]
    fn malformed_selectors_are_rejected() {
        for text in ["a===b", ",", "a,", "=b", "a in b", "a in (b", "a(b)", "!", "a b", "é=b", "a=b c", "a>x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
