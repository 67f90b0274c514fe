//! Request bodies: bounded in size, nesting and time.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;

use super::protobuf;
use crate::kubernetes::error::ApiError;

/// A real server's limit on the size of a request.
pub const BYTES_MAX: usize = 3 * 1024 * 1024;
const TIME_MAX: Duration = Duration::from_secs(60);

pub async fn read(body: Body) -> Result<Bytes, ApiError> {
    let collected = tokio::time::timeout(TIME_MAX, Limited::new(body, BYTES_MAX).collect()).await;
    match collected {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(ApiError::TooLarge(format!("Request entity too large: limit is {BYTES_MAX}")))
        }
        Ok(Err(error)) => Err(ApiError::BadRequest(format!("the request's body could not be read: {error}"))),
        Err(_) => Err(ApiError::BadRequest("the request's body did not arrive in time".to_owned())),
    }
}

/// Parses JSON, or YAML depending on the content type. (JSON is tried first: it is valid YAML, and faster.)
pub fn decode(bytes: &[u8], content_type: &str, expected: &str) -> Result<Value, ApiError> {
    let unrecognised = |why: String| {
        ApiError::BadRequest(format!(
            "the object provided is unrecognized (must be of type {expected}): couldn't get version/kind; json parse \
             error: {why}"
        ))
    };
    match content_type {
        "application/json" => serde_json::from_slice(bytes).map_err(|error| unrecognised(error.to_string())),
        "application/yaml" | "application/apply-patch+yaml" => serde_json::from_slice(bytes).or_else(|_| {
            let text = std::str::from_utf8(bytes).map_err(|error| unrecognised(error.to_string()))?;
            serde_saphyr::from_str(text).map_err(|error| unrecognised(error.to_string()))
        }),
        protobuf::CONTENT_TYPE => protobuf::decode(bytes).map_err(|error| {
            ApiError::BadRequest(format!("the object provided is unrecognized (must be of type {expected}): {error}"))
        }),
        content_type if content_type.ends_with("patch+json") => serde_json::from_slice(bytes)
            .map_err(|error| ApiError::BadRequest(format!("error decoding patch: {error}"))),
        _ => Err(ApiError::UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf"
                .to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bodies() {
        assert_eq!(decode(b"{\"a\":1}", "application/json", "Pod"), Ok(json!({ "a": 1 })));
        assert_eq!(
            decode(b"a: {b: [1, x]}\n", "application/apply-patch+yaml", "Pod"),
            Ok(json!({ "a": { "b": [1, "x"] } }))
        );
        let deep = "[".repeat(100_000);
        for (bytes, content_type, code) in [
            (b"{".as_slice(), "application/json", 400),
            (deep.as_bytes(), "application/json", 400),
            (deep.as_bytes(), "application/yaml", 400),
            (b"\xff", "application/yaml", 400),
            (b"{}", "foo/bar", 415),
            (b"{", "application/merge-patch+json", 400),
        ] {
            assert_eq!(decode(bytes, content_type, "Pod").unwrap_err().code(), code, "{content_type}");
        }
    }
}
