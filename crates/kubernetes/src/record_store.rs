//! Stores the rule record, which lists what Bridger owns, in ConfigMaps: the engine's `RecordStore`.
//!
//! In: records by name. Out: one ConfigMap for each record, in a given namespace, found by its label; it also stores the
//! record's name. The names of the ConfigMaps are fixed ([`slot_names`]), so that a role can list them before any record is
//! known. A new record takes the first that is free. Earlier versions used a digest of the record's name: such a record keeps
//! its ConfigMap. A ConfigMap is written only if it still has the resourceVersion that was read, or if there is none.
//!
//! Invariants: an object without the label, without the two keys or with any other name does not count as a record; of two
//! with the same record none counts. As long as no record is deleted, a late creation of a record that exists fails: the slot
//! that was free for it is the one that the record or another one has taken. Every call is bounded in time, number of pages
//! and size.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
/// The number of records: one for each vSphere cluster.
pub const SLOTS: usize = 32;

/// The names of the ConfigMaps of new records.
pub fn slot_names() -> impl Iterator<Item = String> {
    (0..SLOTS).map(|number| format!("bridger-rules-{number}"))
}

/// Stores records in ConfigMaps.
#[derive(Clone)]
pub struct ConfigMapRecordStore {
    client: BoundedClient,
    namespace: String,
    /// The ConfigMaps of the records that were read or written last.
    taken: Arc<Mutex<BTreeSet<String>>>,
}

impl ConfigMapRecordStore {
    #[must_use]
    pub fn new(client: impl Into<BoundedClient>, namespace: String) -> ConfigMapRecordStore {
        ConfigMapRecordStore { client: client.into(), namespace, taken: Arc::default() }
    }

    /// The records in another namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> ConfigMapRecordStore {
        ConfigMapRecordStore::new(self.client.clone(), namespace.to_owned())
    }

    fn taken(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (mut stored, mut taken) = (BTreeMap::new(), BTreeSet::new());
        let mut parameters =
            ListParams::default().labels(&format!("{MANAGED_BY}={COMPONENT},{KIND_LABEL}={KIND}")).limit(PAGE);
        for _ in 0..PAGES_MAX {
            let request = request.list(&parameters).map_err(|error| unsendable(&object, &error))?;
            let page: Page = read(&object, self.client.client().request_text(request)).await?;
            for item in page.items {
                let (Some(name), Some(text)) = (item.data.get(NAME_KEY), item.data.get(TEXT_KEY)) else { continue };
                let is_slot = slot_names().any(|slot| slot == item.metadata.name);
                if !is_slot && item.metadata.name != former_object_name(name) {
                    // A copy, for example a backup.
                    continue;
                }
                let (text, version) = (text.clone(), version(&item.metadata));
                if let Some(other) = stored.insert(name.clone(), StoredRecord { text, version }) {
                    let (one, other) = (item.metadata.name, object_of(&other.version));
                    return Err(PortError::Permanent(format!(
                        "{object}: {one} and {other} have the same record; delete the one that is not current"
                    )));
                }
                taken.insert(item.metadata.name);
            }
            match page.metadata.more.filter(|more| !more.is_empty()) {
                Some(more) => parameters = parameters.continue_token(&more),
                None => {
                    *self.taken() = taken;
                    return Ok(stored);
                }
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
        let free = || {
            let taken = self.taken();
            slot_names().find(|slot| !taken.contains(slot)).ok_or_else(|| {
                PortError::Permanent(format!(
                    "config maps in {}: all {SLOTS} for records are taken; delete those of vSphere clusters that are gone",
                    self.namespace
                ))
            })
        };
        let object_name = expected.map_or_else(free, |version| Ok(object_of(version).to_owned()))?;
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
        if let Some(version) = expected {
            metadata["resourceVersion"] = json!(resource_version_of(version));
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
        self.taken().insert(object_name);
        Ok(version(&written.metadata))
    }
}

impl ConfigMapRecordStore {
    /// Deletes a record if it still has this version. Only for Bridger's removal: a running Bridger empties records, and
    /// must not be able to delete one.
    pub async fn delete(&self, expected: &RecordVersion) -> Result<(), PortError> {
        let object_name = object_of(expected);
        let object = format!("config map {}/{object_name}", self.namespace);
        let preconditions =
            Preconditions { resource_version: Some(resource_version_of(expected).to_owned()), uid: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let request = Request::new(self.address()?).delete(object_name, &parameters);
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

/// The version of a record: its ConfigMap, and the version of that.
fn version(of: &ObjectMeta) -> RecordVersion {
    RecordVersion(format!("{} {}", of.name, of.resource_version))
}

/// The name of the ConfigMap with this version of a record.
#[must_use]
pub fn object_of(RecordVersion(version): &RecordVersion) -> &str {
    version.split_once(' ').map_or("", |(object, _)| object)
}

fn resource_version_of(RecordVersion(version): &RecordVersion) -> &str {
    version.split_once(' ').map_or("", |(_, version)| version)
}

/// The name that earlier versions gave to the ConfigMap of this record: `bridger-rules-` and a digest of the record's name.
#[must_use]
pub fn former_object_name(record_name: &str) -> String {
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
            "metadata": { "name": "bridger-rules-0", "resourceVersion": version },
            "data": { NAME_KEY: name, TEXT_KEY: text },
        })
    }

    fn of(object: &str, mut map: Value) -> Value {
        map["metadata"]["name"] = json!(object);
        map
    }

    fn list(items: &[Value]) -> ScriptedAnswer {
        ScriptedAnswer::Json(200, json!({ "metadata": {}, "items": items }))
    }

    fn address() -> String {
        format!("{MAPS}/bridger-rules-0")
    }

    fn at(version: &str) -> RecordVersion {
        RecordVersion(format!("bridger-rules-0 {version}"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_record_is_created_and_an_existing_one_is_replaced_at_its_version() {
        let address = address();
        let (record_store, log) = record_store(vec![
            (MAPS, ScriptedAnswer::Json(201, map(NAME, "a", "7"))),
            (&address, ScriptedAnswer::Json(200, map(NAME, "b", "8"))),
        ]);
        let version = record_store.save(NAME, "a", None).await.expect("created");
        assert_eq!(version, at("7"));
        assert_eq!(record_store.save(NAME, "b", Some(&version)).await, Ok(at("8")));
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
        let version = at("7");
        assert_eq!(record_store.delete(&version).await, Ok(()));
        assert!(matches!(record_store.delete(&version).await, Err(PortError::Transient(_))));
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
                    json!({ "metadata": {}, "items": [stranger, copy, of("bridger-rules-31", map("other/c", "b", "4"))] }),
                ),
            ),
        ]);
        let stored = record_store.load().await.expect("two pages");
        let record = |text: &str, version: &str| StoredRecord {
            text: text.to_owned(),
            version: RecordVersion(version.to_owned()),
        };
        let expected = [(NAME, record("a", "bridger-rules-0 3")), ("other/c", record("b", "bridger-rules-31 4"))];
        assert_eq!(stored, expected.map(|(name, stored)| (name.to_owned(), stored)).into());
        let requests = log.requests();
        assert!(requests[0].path_and_query.contains("labelSelector=app.kubernetes.io%2Fmanaged-by%3Dbridger"));
        assert!(requests[1].path_and_query.contains("continue=more"), "{}", requests[1].path_and_query);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_distinguished() {
        let known = at("7");
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

    #[tokio::test(start_paused = true)]
    async fn a_record_of_an_earlier_version_keeps_its_config_map_and_a_new_one_takes_the_first_that_is_free() {
        let former = former_object_name("old/c");
        let (new, old) = (format!("{MAPS}/bridger-rules-1"), format!("{MAPS}/{former}"));
        let created = of("bridger-rules-1", map("new/c", "a", "5"));
        let (record_store, log) = record_store(vec![
            (MAPS, list(&[of(&former, map("old/c", "a", "3")), map(NAME, "a", "4")])),
            (MAPS, ScriptedAnswer::Json(201, created.clone())),
            (&old, ScriptedAnswer::Json(200, of(&former, map("old/c", "b", "6")))),
            (&new, ScriptedAnswer::Json(200, created)),
        ]);
        let stored = record_store.load().await.expect("a list");
        let version = record_store.save("new/c", "a", None).await.expect("created");
        assert_eq!(object_of(&version), "bridger-rules-1");
        let later = record_store.save("old/c", "b", Some(&stored["old/c"].version)).await.expect("replaced");
        assert_eq!((object_of(&later), resource_version_of(&later)), (&*former, "6"));
        record_store.save("new/c", "b", Some(&version)).await.expect("replaced");
        let requests = log.requests();
        let names = requests[1..].iter().map(|request| {
            let body: Value = serde_json::from_str(&request.body).expect("JSON");
            body["metadata"]["name"].as_str().expect("a name").to_owned()
        });
        assert_eq!(names.collect::<Vec<_>>(), ["bridger-rules-1", &former, "bridger-rules-1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn two_config_maps_with_one_record_are_an_error_and_so_is_one_record_too_many() {
        let former = former_object_name(NAME);
        let all: Vec<Value> = slot_names().map(|slot| of(&slot, map(&format!("{slot}/c"), "a", "1"))).collect();
        let (record_store, log) = record_store(vec![
            (MAPS, list(&[map(NAME, "a", "1"), of(&former, map(NAME, "b", "2"))])),
            (MAPS, list(&all)),
        ]);
        let outcome = record_store.load().await;
        let is_named = |text: &String| text.contains("bridger-rules-0") && text.contains(&former);
        assert!(matches!(&outcome, Err(PortError::Permanent(text)) if is_named(text)), "{outcome:?}");
        assert_eq!(record_store.load().await.expect("a list").len(), SLOTS);
        let outcome = record_store.save(NAME, "a", None).await;
        assert!(matches!(&outcome, Err(PortError::Permanent(text)) if text.contains("all 32")), "{outcome:?}");
        assert_eq!(log.requests().len(), 2, "nothing is sent");
    }

    #[test]
    fn object_names_are_valid_and_differ() {
        assert!(slot_names().all(|slot| is_object_name(&slot)));
        let names = ["a/b", "a/c", "ab", "", "Ä/ü", &"x".repeat(500)].map(former_object_name);
        let distinct: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert!(names.iter().all(|name| is_object_name(name) && name.starts_with("bridger-rules-")));
    }
}
