//! A request's query: decoded once, read by name, with a real server's messages for invalid values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;

use crate::kubernetes::error::{ApiError, FieldError};

/// The first value of each parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// Parameters that cannot be decoded are ignored.
    #[must_use]
    pub fn parse(raw: &str) -> Query {
        let mut values = BTreeMap::new();
        for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decode = |text: &str| percent_decode(&text.replace('+', " "));
            if let (Some(name), Some(value)) = (decode(name), decode(value)) {
                values.entry(name).or_insert(value);
            }
        }
        Query(values)
    }

    /// A parameter that is present and not empty.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.text(name).is_some_and(|value| value != "false" && value != "0")
    }

    pub fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let parse = |value: &str| {
            value
                .parse::<i64>()
                .map_err(|_| ApiError::BadRequest(format!("strconv.ParseInt: parsing {value:?}: invalid syntax")))
        };
        self.text(name).map(parse).transpose()
    }

    pub fn resource_version(&self) -> Result<Option<u64>, ApiError> {
        let parse = |value: &str| {
            value.parse::<u64>().map_err(|_| {
                ApiError::BadRequest(format!(
                    "invalid resource version: resourceVersion: Invalid value: {value:?}: strconv.ParseUint: \
                     parsing {value:?}: invalid syntax"
                ))
            })
        };
        self.text("resourceVersion").map(parse).transpose()
    }

    /// `dryRun=All`; any other value is rejected.
    pub fn dry_run(&self, options: &str) -> Result<bool, ApiError> {
        match self.text("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(ApiError::invalid_options(
                options,
                FieldError::not_supported("dryRun", &serde_json::json!([other]), &["All"]),
            )),
        }
    }
}

/// `None` if an escape is invalid or the bytes are not UTF-8.
#[must_use]
pub fn percent_decode(text: &str) -> Option<String> {
    let is_escape = |after: &str| after.len() >= 2 && after.bytes().take(2).all(|digit| digit.is_ascii_hexdigit());
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        let query = Query::parse("watch=1&limit=x&a=%zz&labelSelector=app%3Dweb%2Ctier+in+(a)&watch=false&empty");
        assert!(query.flag("watch"));
        assert_eq!(query.text("labelSelector"), Some("app=web,tier in (a)"));
        assert_eq!(query.text("a"), None);
        assert_eq!(query.text("empty"), None);
        assert_eq!(query.number("limit").unwrap_err().to_string(), "strconv.ParseInt: parsing \"x\": invalid syntax");
        for (raw, decoded) in
            [("a%2", None), ("%ff", None), ("%E2%82%AC", Some("€")), ("%2+", None), ("%+2", None), ("%%41", None)]
        {
            assert_eq!(percent_decode(raw).as_deref(), decoded, "{raw}");
        }
    }
}
