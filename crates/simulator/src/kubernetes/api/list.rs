//! Lists: selection, pages, and the past state that a continue token refers to.
//!
//! Invariant: all pages of one list show the state at the time of its first page, as long as the store's window reaches
//! back to it. After that the token has expired.

use std::sync::Arc;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::{DecodeError, Engine};
use serde_json::{Value, json};

use super::fields::FieldSelector;
use super::path::Target;
use super::query::Query;
use super::selector;
use crate::kubernetes::error::{ApiError, FieldError};
use crate::kubernetes::kinds::KindId;
use crate::kubernetes::label_selector::LabelSelector;
use crate::kubernetes::store::{Gone, ObjectKey, Store};

/// The objects of a kind that a list, watch or deletion selects.
#[derive(Clone, Debug)]
pub struct Selection {
    pub kind: KindId,
    pub namespace: Option<String>,
    /// For a watch of a single object.
    pub name: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    pub fn read(target: &Target, query: &Query) -> Result<Selection, ApiError> {
        let labels = selector::parse(query.text("labelSelector").unwrap_or_default())
            .map_err(|error| ApiError::BadRequest(error.to_string()))?;
        let fields = FieldSelector::parse(target.kind, query.text("fieldSelector").unwrap_or_default())?;
        Ok(Selection {
            kind: target.kind,
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            labels,
            fields,
        })
    }

    /// Whether an object of the kind is selected.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        self.namespace.as_ref().is_none_or(|namespace| metadata["namespace"] == **namespace)
            && self.name.as_ref().is_none_or(|name| metadata["name"] == **name)
            && self.labels.matches(&metadata["labels"])
            && self.fields.matches(object)
    }

    fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.name.is_none()
    }
}

/// One page of a list.
#[derive(Clone, Debug)]
pub struct Page {
    pub version: u64,
    pub items: Vec<Arc<Value>>,
    pub continue_token: Option<String>,
    pub remaining: Option<usize>,
}

pub fn page(store: &Store, selection: &Selection, query: &Query) -> Result<Page, ApiError> {
    let wanted_version = query.resource_version()?;
    check_version_match(query, wanted_version)?;
    let token = query.text("continue").map(Token::decode).transpose()?;
    let current = store.version();
    if let Some(wanted) = wanted_version
        && wanted > current
    {
        return Err(ApiError::VersionAhead { wanted, current });
    }
    let exact = (query.text("resourceVersionMatch") == Some("Exact")).then_some(wanted_version).flatten();
    // As in a real server's watch cache, "any version" ignores the limit.
    let ignores_limit = wanted_version == Some(0) && token.is_none();
    let limit = query.number("limit")?.filter(|limit| *limit > 0 && !ignores_limit);
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);

    let version = token.as_ref().map(|token| token.version).or(exact).unwrap_or(current);
    if version > current {
        return Err(ApiError::VersionAhead { wanted: version, current });
    }
    let after = token.map_or_else(|| ObjectKey::new("", ""), |token| token.after);
    let namespace = selection.namespace.as_deref();
    if version == current {
        let objects = store.list_after(selection.kind, namespace, &after);
        return Ok(collect(objects.cloned(), selection, limit, version));
    }
    let expired = |gone: Gone| match exact {
        Some(wanted) => {
            ApiError::Expired(format!("too old resource version: {wanted} ({})", gone.oldest_version.saturating_sub(1)))
        }
        None => ApiError::Expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter."
                .to_owned(),
        ),
    };
    let past = store.snapshot(selection.kind, namespace, version).map_err(expired)?;
    let objects = past.into_iter().filter(|(key, _)| *key > after).map(|(_, object)| object);
    Ok(collect(objects, selection, limit, version))
}

fn collect(mut objects: impl Iterator<Item = Arc<Value>>, selection: &Selection, limit: usize, version: u64) -> Page {
    let mut items = Vec::new();
    while items.len() < limit {
        match objects.next() {
            Some(object) if selection.matches(&object) => items.push(object),
            Some(_) => (),
            None => return Page { version, items, continue_token: None, remaining: None },
        }
    }
    if selection.is_everything() {
        let remaining = objects.count();
        let continue_token = if remaining > 0 { token_after(&items, version) } else { None };
        return Page { version, items, continue_token, remaining: Some(remaining).filter(|count| *count > 0) };
    }
    // With a selector, a real server does not count the remaining objects; it only knows that there are more.
    let continue_token =
        if objects.any(|object| selection.matches(&object)) { token_after(&items, version) } else { None };
    Page { version, items, continue_token, remaining: None }
}

fn token_after(items: &[Arc<Value>], version: u64) -> Option<String> {
    items.last().map(|last| Token { version, after: ObjectKey::of(last) }.encode())
}

struct Token {
    version: u64,
    after: ObjectKey,
}

impl Token {
    fn encode(&self) -> String {
        let start = format!("{}/{}\0", self.after.namespace, self.after.name);
        URL_SAFE_NO_PAD.encode(json!({ "v": "meta.k8s.io/v1", "rv": self.version, "start": start }).to_string())
    }

    fn decode(text: &str) -> Result<Token, ApiError> {
        let invalid =
            |detail: &str| ApiError::BadRequest(format!("invalid continue token: continue key is not valid{detail}"));
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|error| match error {
            DecodeError::InvalidByte(at, _) => invalid(&format!(": illegal base64 data at input byte {at}")),
            _ => invalid(""),
        })?;
        let read = || {
            let token: Value = serde_json::from_slice(&bytes).ok()?;
            let (namespace, name) = token["start"].as_str()?.split_once('/')?;
            let version = token["rv"].as_u64()?;
            Some(Token { version, after: ObjectKey::new(namespace, name.trim_end_matches('\0')) })
        };
        read().ok_or_else(|| invalid(""))
    }
}

fn check_version_match(query: &Query, version: Option<u64>) -> Result<(), ApiError> {
    let Some(given) = query.text("resourceVersionMatch") else { return Ok(()) };
    let forbidden = |detail: &str| {
        Err(ApiError::invalid_options("ListOptions", FieldError::forbidden("resourceVersionMatch", detail)))
    };
    match (given, version) {
        (_, None) => forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"),
        _ if query.text("continue").is_some() => {
            forbidden("resourceVersionMatch is forbidden when continue is provided")
        }
        ("Exact", Some(0)) => forbidden("resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\""),
        ("Exact" | "NotOlderThan", Some(_)) => Ok(()),
        (other, _) => {
            let error =
                FieldError::not_supported("resourceVersionMatch", &json!(other), &["Exact", "NotOlderThan", ""]);
            Err(ApiError::invalid_options("ListOptions", error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SimTime;
    use crate::kubernetes::api::path::{Route, parse};
    use crate::seed::Seed;

    fn read(store: &Store, path: &str, query: &str) -> Result<Page, ApiError> {
        let Route::Resource(target) = parse(path) else { panic!("{path}") };
        let query = Query::parse(query);
        page(store, &Selection::read(&target, &query)?, &query)
    }

    fn names(page: &Page) -> Vec<&str> {
        page.items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
    }

    fn store() -> Store {
        let mut store = Store::new(Seed(1));
        for (namespace, name) in [("a", "1"), ("a", "2"), ("b", "3"), ("b", "4"), ("b", "5")] {
            let object = json!({ "metadata": { "name": name, "namespace": namespace, "labels": { "n": name } } });
            store.create(KindId::CONFIG_MAP, object, SimTime::VIRTUAL_START).unwrap();
        }
        store
    }

    #[test]
    fn pages_show_the_state_of_the_first_page() {
        let mut store = store();
        let first = read(&store, "/api/v1/configmaps", "limit=2").unwrap();
        assert_eq!((names(&first), first.remaining, first.version), (vec!["1", "2"], Some(3), 5));
        store.remove(KindId::CONFIG_MAP, "b", "4").unwrap();
        let query = format!("limit=2&continue={}", first.continue_token.unwrap());
        let second = read(&store, "/api/v1/configmaps", &query).unwrap();
        assert_eq!((names(&second), second.remaining, second.version), (vec!["3", "4"], Some(1), 5));
        let query = format!("limit=2&continue={}", second.continue_token.unwrap());
        let third = read(&store, "/api/v1/configmaps", &query).unwrap();
        assert_eq!((names(&third), third.continue_token.clone()), (vec!["5"], None));
        for name in ["3", "5"] {
            store.remove(KindId::CONFIG_MAP, "b", name).unwrap();
        }
        store.compact(1);
        assert_eq!(read(&store, "/api/v1/configmaps", &query).unwrap_err().code(), 410);
    }

    #[test]
    fn selection_and_versions() {
        let store = store();
        let within = read(&store, "/api/v1/namespaces/b/configmaps", "labelSelector=n%21%3D4&limit=1").unwrap();
        assert_eq!((names(&within), within.remaining, within.continue_token.is_some()), (vec!["3"], None, true));
        let past = read(&store, "/api/v1/configmaps", "resourceVersion=1&resourceVersionMatch=Exact").unwrap();
        assert_eq!(names(&past), ["1"]);
        for (query, code) in [
            ("resourceVersion=99", 504),
            ("resourceVersion=x", 400),
            ("continue=x", 400),
            ("limit=x", 400),
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersion=1&resourceVersionMatch=Nope", 422),
            ("fieldSelector=spec.x%3D1", 400),
            ("labelSelector=%3D", 400),
        ] {
            assert_eq!(read(&store, "/api/v1/configmaps", query).unwrap_err().code(), code, "{query}");
        }
    }
}
