//! Media types: the requested form of the response and the form of the request body.

use http::{HeaderMap, header};

use crate::kubernetes::error::ApiError;

/// The form of objects in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendering {
    Object,
    /// `as=Table`: the form that kubectl prints.
    Table,
    /// `as=PartialObjectMetadata` and `as=PartialObjectMetadataList`.
    Metadata,
}

/// Parses `Accept`: the first form that can be served.
pub fn rendering(headers: &HeaderMap) -> Result<Rendering, ApiError> {
    let Some(accept) = accept(headers) else { return Ok(Rendering::Object) };
    for range in accept.split(',') {
        let (media_type, parameters) = split(range);
        if !matches!(media_type.as_str(), "application/json" | "*/*" | "application/*") {
            continue;
        }
        let parameter = |name: &str| parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        match (parameter("as"), parameter("g"), parameter("v")) {
            (None, _, _) => return Ok(Rendering::Object),
            (Some("Table"), Some("meta.k8s.io"), Some("v1")) => return Ok(Rendering::Table),
            (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1")) => {
                return Ok(Rendering::Metadata);
            }
            _ => (),
        }
    }
    Err(ApiError::NotAcceptable(
        "406: Not Acceptable\n\nAvailable representations: application/json, application/json;stream=watch".to_owned(),
    ))
}

/// Whether the client requests aggregated discovery.
#[must_use]
pub fn wants_aggregated_discovery(headers: &HeaderMap) -> bool {
    accept(headers).is_some_and(|accept| {
        accept.split(',').any(|range| {
            let (_, parameters) = split(range);
            let has = |name: &str, value: &str| parameters.iter().any(|(key, given)| key == name && given == value);
            has("g", "apidiscovery.k8s.io") && has("v", "v2") && has("as", "APIGroupDiscoveryList")
        })
    })
}

/// A body's media type without parameters; JSON by default.
#[must_use]
pub fn content_type(headers: &HeaderMap) -> String {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map(|value| split(value).0)
        .filter(|value| !value.is_empty())
        .unwrap_or_else(|| "application/json".to_owned())
}

fn accept(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).filter(|value| !value.trim().is_empty())
}

fn split(range: &str) -> (String, Vec<(String, String)>) {
    let mut parts = range.split(';');
    let media_type = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    let parameters = parts
        .filter_map(|part| part.split_once('='))
        .map(|(key, value)| (key.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    (media_type, parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_servable_form_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        for (accept, expected) in [
            ("", Some(Rendering::Object)),
            ("application/vnd.kubernetes.protobuf,application/json", Some(Rendering::Object)),
            (table, Some(Rendering::Table)),
            ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Some(Rendering::Object)),
            ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Some(Rendering::Metadata)),
            ("application/vnd.kubernetes.protobuf", None),
            ("foo/bar", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(rendering(&headers).ok(), expected, "{accept}");
        }
    }
}
