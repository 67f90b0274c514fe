//! Stores the rule record, which lists what Bridger owns, in ConfigMaps: the engine's `RecordStore`.
//!
//! In: records by name. Out: one ConfigMap for each record, in a given namespace, found by its label. A record's name
//! may contain any characters, so the object's name is a digest of it, and the ConfigMap also stores the name itself. A
//! ConfigMap is written only if it still has the resourceVersion that was read, or if there is none.
//!
//! Invariants: an object without the label, or without the two keys, does not count as a record. Every call is bounded
//! in time, number of pages and size.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::ports::{PortError, RecordStore, RecordVersion, StoredRecord};
use futures::future::BoxFuture;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::core::Request;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use crate::COMPONENT;
use crate::bounded::BoundedClient;
use crate::failure::port_error;
use crate::labels::{is_object_name, within};

/// The time limit of one call.
pub const CALL_LIMIT: Duration = Duration::from_secs(15);
/// The maximum size of a ConfigMap, minus room for its metadata and keys.
pub const TEXT_BYTES_MAX: usize = (1 << 20) - (16 << 10);
const PAGE: u32 = 50;
const PAGES_MAX: usize = 100;
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Distinguishes records from other ConfigMaps that are managed by Bridger.
const KIND_LABEL: &str = "bridger.dev/kind";
const KIND: &str = "rules";
const NAME_KEY: &str = "name";
const TEXT_KEY: &str = "record";

/// Stores records in ConfigMaps.
#[derive(Clone)]
pub struct ConfigMapRecordStore {
    client: BoundedClient,
    namespace: String,
}

impl ConfigMapRecordStore {
    #[must_use]
    pub fn new(client: impl Into<BoundedClient>, namespace: String) -> ConfigMapRecordStore {
        ConfigMapRecordStore { client: client.into(), namespace }
    }

    /// The records in another namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> ConfigMapRecordStore {
        ConfigMapRecordStore { client: self.client.clone(), namespace: namespace.to_owned() }
    }

    fn address(&self) -> Result<String, PortError> {
        if !is_object_name(&self.namespace) {
            return Err(PortError::Permanent(format!("{:?} is not a valid namespace name", self.namespace)));
        }
        Ok(format!("/api/v1/namespaces/{}/configmaps", self.namespace))
    }

    async fn list(&self) -> Result<BTreeMap<String, StoredRecord>, PortError> {
        let object = format!("config maps in {}", self.namespace);
        let request = Request::new(self.address()?);
        let mut stored = BTreeMap::new();
        let mut parameters =
            ListParams::default().labels(&format!("{MANAGED_BY}={COMPONENT},{KIND_LABEL}={KIND}")).limit(PAGE);
        for _ in 0..PAGES_MAX {
            let request = request.list(&parameters).map_err(|error| unsendable(&object, &error))?;
            let page: Page = read(&object, self.client.client().request_text(request)).await?;
            for item in page.items {
                let (Some(name), Some(text)) = (item.data.get(NAME_KEY), item.data.get(TEXT_KEY)) else { continue };
                if item.metadata.name != object_name(name) {
                    // A copy under another object name would be a second record with the same name.
                    continue;
                }
                let version = RecordVersion(item.metadata.resource_version);
                stored.insert(name.clone(), StoredRecord { text: text.clone(), version });
            }
            match page.metadata.more.filter(|more| !more.is_empty()) {
                Some(more) => parameters = parameters.continue_token(&more),
                None => return Ok(stored),
            }
        }
        Err(PortError::Permanent(format!("{object}: more than {} records", PAGES_MAX * PAGE as usize)))
    }

    async fn write(
        &self,
        name: &str,
        text: &str,
        expected: Option<&RecordVersion>,
    ) -> Result<RecordVersion, PortError> {
        let object_name = object_name(name);
        let object = format!("config map {}/{object_name}", self.namespace);
        if name.len() + text.len() > TEXT_BYTES_MAX {
            return Err(PortError::Permanent(format!(
                "{object}: the record has {} bytes, a config map holds {TEXT_BYTES_MAX}",
                text.len()
            )));
        }
        let mut metadata = json!({
            "name": object_name,
            "namespace": self.namespace,
            "labels": { MANAGED_BY: COMPONENT, KIND_LABEL: KIND },
        });
        if let Some(RecordVersion(version)) = expected {
            metadata["resourceVersion"] = json!(version);
        }
        let data = json!({ NAME_KEY: name, TEXT_KEY: text });
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data });
        let body = map.to_string().into_bytes();
        let parameters = PostParams { field_manager: Some(COMPONENT.to_owned()), ..PostParams::default() };
        let request = Request::new(self.address()?);
        let request = match expected {
            Some(_) => request.replace(&object_name, &parameters, body),
            None => request.create(&parameters, body),
        };
        let request = request.map_err(|error| unsendable(&object, &error))?;
        let written: ConfigMap = match (read(&object, self.client.client().request_text(request)).await, expected) {
            // The namespace does not exist, and an administrator must create it.
            (Err(PortError::NotFound(_)), None) => {
                return Err(PortError::Permanent(format!("{object}: the namespace does not exist")));
            }
            (answer, _) => answer?,
        };
        Ok(RecordVersion(written.metadata.resource_version))
    }
}

impl ConfigMapRecordStore {
    /// Deletes a record if it still has this version. Only for Bridger's removal: a running Bridger empties records, and
    /// must not be able to delete one.
    pub async fn delete(&self, name: &str, expected: &RecordVersion) -> Result<(), PortError> {
        let object_name = object_name(name);
        let object = format!("config map {}/{object_name}", self.namespace);
        let preconditions = Preconditions { resource_version: Some(expected.0.clone()), uid: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = Request::new(self.address()?).delete(&object_name, &parameters);
        let request = request.map_err(|error| unsendable(&object, &error))?;
        within(CALL_LIMIT, &object, self.client.client().request_text(request)).await
    }
}

impl RecordStore for ConfigMapRecordStore {
    fn load(&self) -> BoxFuture<'_, Result<BTreeMap<String, StoredRecord>, PortError>> {
        Box::pin(self.list())
    }

    fn save<'a>(
        &'a self,
        name: &'a str,
        text: &'a str,
        expected: Option<&'a RecordVersion>,
    ) -> BoxFuture<'a, Result<RecordVersion, PortError>> {
        Box::pin(self.write(name, text, expected))
    }
}

/// The name of the ConfigMap with this record: `bridger-rules-` and a digest of the record's name.
#[must_use]
pub fn object_name(record_name: &str) -> String {
    let digest = Sha256::digest(record_name.as_bytes());
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("bridger-rules-{hex}")
}

fn unsendable(object: &str, error: &kube::core::request::Error) -> PortError {
    PortError::Permanent(format!("{object}: {error}"))
}

async fn read<T: for<'de> Deserialize<'de>>(
    object: &str,
    request: impl Future<Output = kube::Result<String>>,
) -> Result<T, PortError> {
    let transient = |why: String| PortError::Transient(format!("{object}: {why}"));
    let text = timeout(CALL_LIMIT, request)
        .await
        .map_err(|_| transient(format!("no answer within {} s", CALL_LIMIT.as_secs())))?
        .map_err(|error| port_error(object, &error))?;
    // The error's own message may quote the record.
    serde_json::from_str(&text).map_err(|error| {
        transient(format!("the answer can't be read (line {}, column {})", error.line(), error.column()))
    })
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    #[serde(default)]
    items: Vec<ConfigMap>,
}

#[derive(Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    more: Option<String>,
}

#[derive(Deserialize)]
struct ConfigMap {
    metadata: ObjectMeta,
    #[serde(default)]
    data: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta {
    name: String,
    resource_version: String,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::scripted::{Log, ScriptedAnswer, scripted};

    const MAPS: &str = "/api/v1/namespaces/bridger/configmaps";
    const NAME: &str = "564d0d6e-aaaa/domain-c8";

    fn record_store(script: Vec<(&str, ScriptedAnswer)>) -> (ConfigMapRecordStore, Log) {
        let (client, log) = scripted(script);
        (ConfigMapRecordStore::new(client, "bridger".to_owned()), log)
    }

    fn map(name: &str, text: &str, version: &str) -> Value {
        json!({
            "metadata": { "name": object_name(name), "resourceVersion": version },
            "data": { NAME_KEY: name, TEXT_KEY: text },
        })
    }

    fn address() -> String {
        format!("{MAPS}/{}", object_name(NAME))
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_record_is_created_and_an_existing_one_is_replaced_at_its_version() {
        let address = address();
        let (record_store, log) = record_store(vec![
            (MAPS, ScriptedAnswer::Json(201, map(NAME, "a", "7"))),
            (&address, ScriptedAnswer::Json(200, map(NAME, "b", "8"))),
        ]);
        let version = record_store.save(NAME, "a", None).await.expect("created");
        assert_eq!(version, RecordVersion("7".to_owned()));
        assert_eq!(record_store.save(NAME, "b", Some(&version)).await, Ok(RecordVersion("8".to_owned())));
        let requests = log.requests();
        let sent: Vec<Value> = requests.iter().map(|it| serde_json::from_str(&it.body).expect("JSON")).collect();
        assert_eq!((requests[0].method.as_str(), requests[1].method.as_str()), ("POST", "PUT"));
        assert_eq!(sent[0]["metadata"]["resourceVersion"], Value::Null);
        assert_eq!(sent[1]["metadata"]["resourceVersion"], "7");
        for (map, text) in sent.iter().zip(["a", "b"]) {
            assert_eq!(map["data"], json!({ "name": NAME, "record": text }));
            assert_eq!(map["metadata"]["labels"][MANAGED_BY], "bridger");
            assert!(is_object_name(map["metadata"]["name"].as_str().expect("a name")));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn number_9_a_record_is_deleted_only_at_the_version_that_was_read() {
        let address = address();
        let (record_store, log) = record_store(vec![
            (&address, ScriptedAnswer::Json(200, json!({ "kind": "Status" }))),
            (&address, ScriptedAnswer::Status(409, "changed")),
        ]);
        let version = RecordVersion("7".to_owned());
        assert_eq!(record_store.delete(NAME, &version).await, Ok(()));
        assert!(matches!(record_store.delete(NAME, &version).await, Err(PortError::Transient(_))));
        let request = &log.requests()[0];
        let body: Value = serde_json::from_str(&request.body).expect("JSON");
        assert_eq!((request.method.as_str(), &body["preconditions"]), ("DELETE", &json!({ "resourceVersion": "7" })));
    }

    #[tokio::test(start_paused = true)]
    async fn all_pages_are_read_and_other_objects_are_ignored() {
        let stranger =
            json!({ "metadata": { "name": "bridger-rules-x", "resourceVersion": "1" }, "data": { "a": "b" } });
        let mut copy = map(NAME, "old", "2");
        copy["metadata"]["name"] = json!("a-copy");
        let (record_store, log) = record_store(vec![
            (
                MAPS,
                ScriptedAnswer::Json(
                    200,
                    json!({ "metadata": { "continue": "more" }, "items": [map(NAME, "a", "3")] }),
                ),
            ),
            (
                MAPS,
                ScriptedAnswer::Json(
                    200,
                    json!({ "metadata": {}, "items": [stranger, copy, map("other/c", "b", "4")] }),
                ),
            ),
        ]);
        let stored = record_store.load().await.expect("two pages");
        let record = |text: &str, version: &str| StoredRecord {
            text: text.to_owned(),
            version: RecordVersion(version.to_owned()),
        };
        assert_eq!(
            stored,
            BTreeMap::from([(NAME.to_owned(), record("a", "3")), ("other/c".to_owned(), record("b", "4"))])
        );
        let requests = log.requests();
        assert!(requests[0].path_and_query.contains("labelSelector=app.kubernetes.io%2Fmanaged-by%3Dbridger"));
        assert!(requests[1].path_and_query.contains("continue=more"), "{}", requests[1].path_and_query);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_distinguished() {
        let known = RecordVersion("7".to_owned());
        let cases = [
            (Some(&known), ScriptedAnswer::Status(409, "changed"), "Transient"),
            (Some(&known), ScriptedAnswer::Status(404, "no such map"), "NotFound"),
            (None, ScriptedAnswer::Status(409, "exists"), "Transient"),
            (None, ScriptedAnswer::Status(404, "no such namespace"), "Permanent"),
            (None, ScriptedAnswer::Status(403, "no"), "Permanent"),
            (Some(&known), ScriptedAnswer::Status(500, "etcd"), "Transient"),
            (Some(&known), ScriptedAnswer::Silence, "Transient"),
            (Some(&known), ScriptedAnswer::Json(200, json!("hello")), "Transient"),
        ];
        for (expected, answer, variant) in cases {
            let address = address();
            let path = if expected.is_some() { address.as_str() } else { MAPS };
            let (record_store, _) = record_store(vec![(path, answer.clone())]);
            let outcome = format!("{:?}", record_store.save(NAME, "text", expected).await.expect_err("a failure"));
            assert!(outcome.starts_with(variant), "{answer:?}: {outcome}");
        }
        let (record_store, _) =
            record_store(vec![(MAPS, ScriptedAnswer::Status(403, "no")), (MAPS, ScriptedAnswer::Silence)]);
        assert!(matches!(record_store.load().await, Err(PortError::Permanent(_))));
        assert!(matches!(record_store.load().await, Err(PortError::Transient(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_is_too_large_for_a_config_map_is_rejected_before_it_is_sent() {
        let (record_store, log) = record_store(vec![]);
        let outcome = record_store.save(NAME, &"x".repeat(1 << 20), None).await;
        assert!(matches!(&outcome, Err(PortError::Permanent(text)) if text.contains("1048576 bytes")), "{outcome:?}");
        let (client, _) = scripted([]);
        let elsewhere = ConfigMapRecordStore::new(client, "../kube-system".to_owned());
        assert!(matches!(elsewhere.load().await, Err(PortError::Permanent(_))));
        assert!(log.requests().is_empty());
    }

    #[test]
    fn object_names_are_valid_and_differ_for_different_record_names() {
        let names = ["a/b", "a/c", "ab", "", "Ä/ü", &"x".repeat(500)].map(object_name);
        let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert!(names.iter().all(|name| is_object_name(name) && name.starts_with("bridger-rules-")));
    }
}
