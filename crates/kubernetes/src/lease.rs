//! A Lease object: the engine's `LeaseStore`.
//!
//! In: the namespace and name of the object. Out: what it says, read with GET, created with POST, changed with a merge patch that
//! names the version it changes, so that labels and annotations of others stay.
//!
//! Invariant: a write succeeds only on the version that was read; the server checks it.

use std::time::Duration;

use engine::ports::{PortError, UnixMillis};
use engine::runtime::{LeaseRecord, LeaseStore, StoredLease};
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::COMPONENT;
use crate::bounded::BoundedClient;
use crate::failure::port_error;
use crate::labels::is_object_name;

/// One call takes no longer; elections bound theirs further.
const CALL_LIMIT: Duration = Duration::from_secs(10);

pub struct LeaseObject {
    client: BoundedClient,
    namespace: String,
    name: String,
}

impl LeaseObject {
    #[must_use]
    pub fn new(client: impl Into<BoundedClient>, namespace: String, name: String) -> LeaseObject {
        LeaseObject { client: client.into(), namespace, name }
    }

    fn description(&self) -> String {
        format!("lease {}/{}", self.namespace, self.name)
    }

    fn requests(&self) -> Result<Request, PortError> {
        if !is_object_name(&self.namespace) || !is_object_name(&self.name) {
            return Err(PortError::Permanent(format!("{:?}: not a name of an object", self.description())));
        }
        Ok(Request::new(format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)))
    }

    async fn send(&self, request: http::Request<Vec<u8>>) -> Result<StoredLease, PortError> {
        let description = self.description();
        let text = timeout(CALL_LIMIT, self.client.client().request_text(request))
            .await
            .map_err(|_| PortError::Transient(format!("{description}: no answer within {} s", CALL_LIMIT.as_secs())))?
            .map_err(|error| port_error(&description, &error))?;
        let object: Object = serde_json::from_str(&text)
            .map_err(|error| PortError::Transient(format!("{description}: the answer can't be read: {error}")))?;
        Ok(object.stored())
    }

    async fn read(&self) -> Result<Option<StoredLease>, PortError> {
        let request = self.requests()?.get(&self.name, &kube::api::GetParams::default());
        let request = request.map_err(|error| self.unsendable(&error))?;
        match self.send(request).await {
            Ok(stored) => Ok(Some(stored)),
            Err(PortError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write(&self, record: &LeaseRecord, expected: Option<&str>) -> Result<StoredLease, PortError> {
        let requests = self.requests()?;
        let spec = spec(record);
        let request = match expected {
            None => {
                let object = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": { "namespace": self.namespace, "name": self.name },
                    "spec": spec,
                });
                let parameters = PostParams { field_manager: Some(COMPONENT.to_owned()), ..PostParams::default() };
                requests.create(&parameters, object.to_string().into_bytes())
            }
            Some(version) => {
                let patch = json!({ "metadata": { "resourceVersion": version }, "spec": spec });
                let parameters = PatchParams { field_manager: Some(COMPONENT.to_owned()), ..PatchParams::default() };
                requests.patch(&self.name, &parameters, &Patch::Merge(patch))
            }
        };
        match self.send(request.map_err(|error| self.unsendable(&error))?).await {
            Err(PortError::NotFound(_)) if expected.is_none() => {
                Err(PortError::Permanent(format!("{}: the namespace does not exist", self.description())))
            }
            answer => answer,
        }
    }

    fn unsendable(&self, error: &kube::core::request::Error) -> PortError {
        PortError::Permanent(format!("{}: {error}", self.description()))
    }
}

impl LeaseStore for LeaseObject {
    fn get(&self) -> BoxFuture<'_, Result<Option<StoredLease>, PortError>> {
        Box::pin(self.read())
    }

    fn put<'a>(
        &'a self,
        record: &'a LeaseRecord,
        expected: Option<&'a str>,
    ) -> BoxFuture<'a, Result<StoredLease, PortError>> {
        Box::pin(self.write(record, expected))
    }
}

fn spec(record: &LeaseRecord) -> Value {
    json!({
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration_s,
        "acquireTime": micro_time(record.acquired_at),
        "renewTime": micro_time(record.renewed_at),
        "leaseTransitions": record.transitions,
    })
}

/// Kubernetes' MicroTime: six digits, always.
fn micro_time(time: UnixMillis) -> Option<String> {
    let time = Timestamp::from_millisecond(i64::try_from(time.0).ok()?).ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i64>,
    acquire_time: Option<Timestamp>,
    renew_time: Option<Timestamp>,
    lease_transitions: Option<i64>,
}

impl Object {
    fn stored(self) -> StoredLease {
        let number = |number: Option<i64>| number.and_then(|number| u32::try_from(number).ok()).unwrap_or_default();
        let millis = |time: Option<Timestamp>| {
            UnixMillis(time.and_then(|time| u64::try_from(time.as_millisecond()).ok()).unwrap_or_default())
        };
        let spec = self.spec;
        let record = LeaseRecord {
            holder: spec.holder_identity.unwrap_or_default(),
            duration_s: number(spec.lease_duration_seconds),
            acquired_at: millis(spec.acquire_time),
            renewed_at: millis(spec.renew_time),
            transitions: number(spec.lease_transitions),
        };
        StoredLease { record, version: self.metadata.resource_version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{ScriptedAnswer, scripted};

    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/infra/leases";
    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/infra/leases/bridger";

    fn record() -> LeaseRecord {
        LeaseRecord {
            holder: "host-1_abc".to_owned(),
            duration_s: 15,
            acquired_at: UnixMillis(1_700_000_000_000),
            renewed_at: UnixMillis(1_700_000_001_500),
            transitions: 2,
        }
    }

    fn object(version: &str) -> Value {
        json!({ "metadata": { "name": "bridger", "resourceVersion": version }, "spec": spec(&record()) })
    }

    fn lease(script: Vec<(&'static str, ScriptedAnswer)>) -> (LeaseObject, crate::scripted::Log) {
        let (client, log) = scripted(script);
        (LeaseObject::new(client, "infra".to_owned(), "bridger".to_owned()), log)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_created_read_and_changed_only_in_the_version_that_was_read() {
        let (lease, log) = lease(vec![
            (LEASE, ScriptedAnswer::Status(404, "no such lease")),
            (LEASES, ScriptedAnswer::Json(201, object("1"))),
            (LEASE, ScriptedAnswer::Json(200, object("1"))),
            (LEASE, ScriptedAnswer::Json(200, object("2"))),
        ]);
        assert_eq!(lease.get().await, Ok(None));
        let created = lease.put(&record(), None).await.expect("created");
        assert_eq!(created, StoredLease { record: record(), version: "1".to_owned() });
        assert_eq!(lease.get().await, Ok(Some(created.clone())));
        let changed = lease.put(&record(), Some(&created.version)).await.expect("changed");
        assert_eq!(changed.version, "2");
        let requests = log.requests();
        let methods: Vec<&str> = requests.iter().map(|request| request.method.as_str()).collect();
        assert_eq!(methods, ["GET", "POST", "GET", "PATCH"]);
        let patch: Value = serde_json::from_str(&requests[3].body).expect("JSON");
        assert_eq!(patch["metadata"], json!({ "resourceVersion": "1" }));
        assert_eq!(patch["spec"]["renewTime"], "2023-11-14T22:13:21.500000Z");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_without_values_is_held_by_no_one() {
        let empty = json!({ "metadata": { "resourceVersion": "1" }, "spec": {} });
        let (lease, _) = lease(vec![(LEASE, ScriptedAnswer::Json(200, empty))]);
        let stored = lease.get().await.expect("an answer").expect("a lease");
        assert_eq!(stored.record, LeaseRecord::default());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_distinguished() {
        for (answer, expected, expected_version) in [
            (ScriptedAnswer::Status(409, "changed"), "Transient", Some("1")),
            (ScriptedAnswer::Status(403, "no"), "Permanent", Some("1")),
            (ScriptedAnswer::Status(404, "no such namespace"), "Permanent", None),
            (ScriptedAnswer::Status(500, "etcd"), "Transient", None),
        ] {
            let path = if expected_version.is_some() { LEASE } else { LEASES };
            let (lease, _) = lease(vec![(path, answer.clone())]);
            let outcome = format!("{:?}", lease.put(&record(), expected_version).await.expect_err("a failure"));
            assert!(outcome.starts_with(expected), "{answer:?}: {outcome}");
        }
    }
}
