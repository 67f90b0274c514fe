//! Renders objects in the requested form: complete, metadata only, or as a table.
//!
//! The text is assembled from already serialised values, so that a list of thousands of objects is written in one pass.

use std::fmt::Write;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::list::Page;
use super::media::Rendering;
use super::new_event;
use super::path::Target;
use super::query::Query;
use super::table::{self, IncludeObject};
use crate::clock::SimTime;
use crate::kubernetes::error::ApiError;

/// Writes the answers to one request.
#[derive(Clone, Debug)]
pub struct Writer {
    target: Target,
    rendering: Rendering,
    include: IncludeObject,
}

impl Writer {
    pub fn new(target: &Target, rendering: Rendering, query: &Query) -> Result<Writer, ApiError> {
        Ok(Writer { target: target.clone(), rendering, include: IncludeObject::read(query)? })
    }

    fn api_version(&self) -> String {
        if self.target.as_new_event { new_event::API_VERSION.to_owned() } else { self.target.kind.kind().api_version() }
    }

    /// A single object.
    #[must_use]
    pub fn object(&self, object: &Arc<Value>, now: SimTime) -> String {
        match self.rendering {
            Rendering::Object if self.target.as_new_event => new_event::from_core(object).to_string(),
            Rendering::Object => object.to_string(),
            Rendering::Metadata => metadata_only(object),
            Rendering::Table => {
                let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                self.table(std::slice::from_ref(object), &json!({ "resourceVersion": version }), true, now)
            }
        }
    }

    /// An object inside a watch event.
    #[must_use]
    pub fn event_object(&self, object: &Arc<Value>, with_columns: bool, now: SimTime) -> String {
        match self.rendering {
            Rendering::Table => self.table(std::slice::from_ref(object), &json!({}), with_columns, now),
            _ => self.object(object, now),
        }
    }

    /// The object of a bookmark: only a version and annotations.
    #[must_use]
    pub fn bookmark(&self, version: u64, initial_events_end: bool) -> String {
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if initial_events_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let kind = self.target.kind.kind().kind;
        match self.rendering {
            Rendering::Object => json!({ "kind": kind, "apiVersion": self.api_version(), "metadata": metadata }),
            Rendering::Metadata => {
                json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
            }
            Rendering::Table => {
                let object =
                    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata });
                json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1",
                    "metadata": { "resourceVersion": version.to_string() },
                    "columnDefinitions": null, "rows": [{ "cells": null, "object": object }] })
            }
        }
        .to_string()
    }

    #[must_use]
    pub fn list(&self, page: &Page, now: SimTime) -> String {
        let mut metadata = json!({ "resourceVersion": page.version.to_string() });
        if let Some(token) = &page.continue_token {
            metadata["continue"] = json!(token);
        }
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        let (kind, api_version) = match self.rendering {
            Rendering::Table => return self.table(&page.items, &metadata, true, now),
            Rendering::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
            Rendering::Object => (format!("{}List", self.target.kind.kind().kind), self.api_version()),
        };
        let mut text = String::with_capacity(page.items.len().saturating_mul(2048).min(64 << 20));
        let _ = write!(text, r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata},"items":["#);
        for (index, item) in page.items.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            match self.rendering {
                Rendering::Metadata => text.push_str(&metadata_only(item)),
                _ if self.target.as_new_event => write_without_type(&mut text, &new_event::from_core(item)),
                _ => write_without_type(&mut text, item),
            }
        }
        text.push_str("]}");
        text
    }

    fn table(&self, objects: &[Arc<Value>], metadata: &Value, with_columns: bool, now: SimTime) -> String {
        table::write(self.target.kind, objects, metadata, with_columns, self.include, now)
    }
}

fn metadata_only(object: &Value) -> String {
    format!(r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{}}}"#, object["metadata"])
}

/// Items of a list have no type fields: the list has them.
fn write_without_type(text: &mut String, object: &Value) {
    text.push('{');
    let mut first = true;
    for (key, value) in object.as_object().into_iter().flatten() {
        if key == "kind" || key == "apiVersion" {
            continue;
        }
        if !first {
            text.push(',');
        }
        first = false;
        // Writing to a String cannot fail.
        let _ = write!(text, "{}:{value}", Value::String(key.clone()));
    }
    text.push('}');
}

#[must_use]
pub fn json_response(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

#[must_use]
pub fn error_response(error: &ApiError) -> Response {
    let status = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(status, error.status().to_string());
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// The `Status` of a successful request that returns no object.
#[must_use]
pub fn success(code: Option<u16>, details: Option<Value>) -> Value {
    let mut status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" });
    if let Some(code) = code {
        status["code"] = json!(code);
    }
    if let Some(details) = details {
        status["details"] = details;
    }
    status
}
