//! Asks for the volumes of pods: the engine's `VolumeBinder`.
//!
//! In: a volume and the claim to bind it to, or a claim and the node to provision its volume for. Out: one JSON merge
//! patch each, with the fields that kube-scheduler writes and the resource version that was read, so that the server
//! rejects it if the object changed in the meantime.

use engine::ports::{PortError, ProvisionWork, VolumeBinder, VolumeBindingWork};
use futures::future::BoxFuture;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::COMPONENT;
use crate::bounded::BoundedClient;
use crate::failure::{describe_status, port_error};
use crate::labels::{WRITE_LIMIT, is_object_name};

/// Binds volumes through the API.
pub struct VolumeWriter {
    client: BoundedClient,
}

#[derive(Deserialize)]
struct Written {
    metadata: WrittenMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMeta {
    resource_version: String,
}

impl VolumeWriter {
    #[must_use]
    pub fn new(client: impl Into<BoundedClient>) -> VolumeWriter {
        VolumeWriter { client: client.into() }
    }

    async fn bind(&self, binding: &VolumeBindingWork) -> Result<String, PortError> {
        let claim = &*binding.claim;
        let mut patch = json!({ "metadata": { "resourceVersion": binding.version } });
        if binding.sets_mark {
            patch["metadata"]["annotations"] = json!({ "pv.kubernetes.io/bound-by-controller": "yes" });
        }
        if binding.sets_claim {
            patch["spec"] = json!({ "claimRef": {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": claim.namespace,
                "name": claim.name,
                "uid": claim.uid,
                "resourceVersion": claim.version,
            } });
        }
        let object = format!("persistent volume {}", binding.volume);
        self.patch(&object, "/api/v1/persistentvolumes".to_owned(), &[&binding.volume], patch).await
    }

    async fn select(&self, provision: &ProvisionWork, node: &str) -> Result<String, PortError> {
        let ProvisionWork { namespace, claim, version } = provision;
        let annotations = json!({ "volume.kubernetes.io/selected-node": node });
        let patch = json!({ "metadata": { "resourceVersion": version, "annotations": annotations } });
        let object = format!("persistent volume claim {namespace}/{claim}");
        let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
        self.patch(&object, path, &[namespace, claim], patch).await
    }

    /// `names`: those in the URL, the object's last. Returns the object's new resource version.
    async fn patch(&self, object: &str, path: String, names: &[&str], patch: Value) -> Result<String, PortError> {
        let valid = names.iter().all(|name| is_object_name(name));
        let Some(name) = names.last().filter(|_| valid) else {
            return Err(PortError::Permanent(format!("{object:?}: not a valid object name")));
        };
        let parameters = PatchParams { field_manager: Some(COMPONENT.to_owned()), ..PatchParams::default() };
        let request = Request::new(path)
            .patch(name, &parameters, &Patch::Merge(patch))
            .map_err(|error| PortError::Permanent(format!("{object}: {error}")))?;
        let answer = tokio::time::timeout(WRITE_LIMIT, self.client.client().request_text(request)).await;
        let text = match answer {
            Ok(Ok(text)) => text,
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                // It changed since it was read: the same patch fails again.
                return Err(PortError::Invalid(format!("{object}: {}", describe_status(&status))));
            }
            Ok(Err(error)) => return Err(port_error(object, &error)),
            Err(_) => {
                return Err(PortError::Transient(format!("{object}: no answer within {} s", WRITE_LIMIT.as_secs())));
            }
        };
        let written: Written = serde_json::from_str(&text).map_err(|error| {
            PortError::Permanent(format!("{object}: the answer can't be read (column {})", error.column()))
        })?;
        Ok(written.metadata.resource_version)
    }
}

impl VolumeBinder for VolumeWriter {
    fn bind_volume<'a>(&'a self, binding: &'a VolumeBindingWork) -> BoxFuture<'a, Result<String, PortError>> {
        Box::pin(self.bind(binding))
    }

    fn select_node<'a>(
        &'a self,
        provision: &'a ProvisionWork,
        node: &'a str,
    ) -> BoxFuture<'a, Result<String, PortError>> {
        Box::pin(self.select(provision, node))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::volumes::ClaimFacts;

    use super::*;
    use crate::scripted::{ScriptedAnswer, scripted};

    const VOLUME: &str = "/api/v1/persistentvolumes/pv-1";
    const CLAIM: &str = "/api/v1/namespaces/shop/persistentvolumeclaims/data-0";

    fn binding() -> VolumeBindingWork {
        let text = str::to_owned;
        let claim = ClaimFacts {
            namespace: text("shop"),
            name: text("data-0"),
            uid: text("u1"),
            version: text("77"),
            ..ClaimFacts::default()
        };
        VolumeBindingWork {
            volume: text("pv-1"),
            version: text("12"),
            claim: Arc::new(claim),
            sets_claim: true,
            sets_mark: true,
        }
    }

    fn provision(claim: &str) -> ProvisionWork {
        ProvisionWork { namespace: "shop".to_owned(), claim: claim.to_owned(), version: "77".to_owned() }
    }

    fn written(version: &str) -> ScriptedAnswer {
        ScriptedAnswer::Json(200, json!({ "metadata": { "resourceVersion": version } }))
    }

    #[tokio::test(start_paused = true)]
    async fn the_patches_contain_what_kube_scheduler_writes_and_the_version_that_was_read() {
        let (client, log) = scripted([(VOLUME, written("13")), (VOLUME, written("14")), (CLAIM, written("78"))]);
        let writer = VolumeWriter::new(client);
        assert_eq!(writer.bind_volume(&binding()).await, Ok("13".to_owned()));
        let marked = VolumeBindingWork { sets_mark: false, ..binding() };
        assert_eq!(writer.bind_volume(&marked).await, Ok("14".to_owned()));
        assert_eq!(writer.select_node(&provision("data-0"), "node-3").await, Ok("78".to_owned()));
        let requests = log.requests();
        let bodies: Vec<Value> =
            requests.iter().map(|request| serde_json::from_str(&request.body).expect("JSON")).collect();
        let spec = json!({ "claimRef": { "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "shop",
            "name": "data-0", "uid": "u1", "resourceVersion": "77" } });
        let mark = json!({ "pv.kubernetes.io/bound-by-controller": "yes" });
        let selected = json!({ "volume.kubernetes.io/selected-node": "node-3" });
        assert_eq!(
            bodies,
            [
                json!({ "metadata": { "resourceVersion": "12", "annotations": mark }, "spec": spec }),
                json!({ "metadata": { "resourceVersion": "12" }, "spec": spec }),
                json!({ "metadata": { "resourceVersion": "77", "annotations": selected } }),
            ]
        );
        assert!(requests.iter().all(|request| request.method == "PATCH"));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_distinguished() {
        let cases = [
            (ScriptedAnswer::Status(409, "modified"), "Invalid(\"persistent volume pv-1: HTTP 409: modified\")"),
            (ScriptedAnswer::Status(404, "gone"), "NotFound(\"persistent volume pv-1\")"),
            (ScriptedAnswer::Status(403, "no"), "Permanent(\"persistent volume pv-1: HTTP 403: no\")"),
            (ScriptedAnswer::Silence, "Transient(\"persistent volume pv-1: no answer within 10 s\")"),
            (
                ScriptedAnswer::Json(200, json!({})),
                "Permanent(\"persistent volume pv-1: the answer can't be read (column 2)\")",
            ),
        ];
        for (answer, expected) in cases {
            let (client, _) = scripted([(VOLUME, answer)]);
            let outcome = VolumeWriter::new(client).bind_volume(&binding()).await;
            assert_eq!(format!("{:?}", outcome.expect_err("a failure")), expected);
        }
        let (client, log) = scripted([]);
        let outcome = VolumeWriter::new(client).select_node(&provision("a/b"), "n").await;
        assert!(matches!(outcome, Err(PortError::Permanent(_))) && log.requests().is_empty());
    }
}
