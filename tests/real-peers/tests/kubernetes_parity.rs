//! Runs one scenario on a real kube-apiserver and on the embedded API: the answers must be the same.
//!
//! Each step records what a client can observe: the status code, and the parts of the body that do not depend on time.
//! If the two differ, the embedded API is wrong.

#[path = "kubernetes_parity/priorities.rs"]
mod priorities;
#[path = "kubernetes_parity/storage.rs"]
mod storage;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{AsyncBufReadExt, StreamExt};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use testkit::{ControlPlane, Sandbox, eventually};

const NAMESPACE: &str = "parity";
const LIMIT: Duration = Duration::from_secs(30);

/// A server under comparison, and its answers so far.
struct Witness {
    client: Client,
    /// No controllers or kubelets run with the real kube-apiserver: the scenario does their work there.
    has_controllers: bool,
    observed: Vec<String>,
}

impl Witness {
    async fn call(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Result<(u16, Value)> {
        let path = path.replace("{ns}", &format!("/api/v1/namespaces/{NAMESPACE}"));
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder()
            .method(method)
            .uri(&path)
            .header("content-type", content_type)
            .header("accept", "application/json")
            .body(Body::from(bytes))?;
        let called = || format!("{method} {path}");
        let response = tokio::time::timeout(LIMIT, self.client.send(request)).await.with_context(called)??;
        let status = response.status().as_u16();
        let body = response.into_body().collect_bytes();
        let bytes = tokio::time::timeout(LIMIT, body).await.with_context(called)??;
        Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    /// Sends a request and records the status with these parts of the answer; for an error, its reason and message.
    async fn note(&mut self, step: &str, call: Call<'_>, parts: &[&str]) -> Result<Value> {
        let (status, body) = self.call(call.method, call.path, call.content_type, &call.body).await?;
        let mut line = format!("{step}: {status}");
        if body["kind"] == "Status" && body["status"] == "Failure" {
            line.push_str(&format!(" {} {}", body["reason"], body["message"]));
        }
        for part in parts {
            line.push_str(&format!(" {part}={}", body.pointer(part).unwrap_or(&Value::Null)));
        }
        self.observed.push(line);
        Ok(body)
    }

    /// Opens a watch and records type and object of the expected number of events.
    async fn note_watch(&mut self, step: &str, path: &str, events: usize) -> Result<()> {
        let path = path.replace("{ns}", &format!("/api/v1/namespaces/{NAMESPACE}"));
        let request = http::Request::get(&path).body(Vec::new())?;
        let stream = tokio::time::timeout(LIMIT, self.client.request_stream(request)).await??;
        let mut lines = std::pin::pin!(stream.lines().take(events));
        while let Some(line) =
            tokio::time::timeout(LIMIT, lines.next()).await.with_context(|| format!("{step}: too few events"))?
        {
            let event: Value = serde_json::from_str(&line?)?;
            let object = &event["object"];
            let note = match event["type"].as_str() {
                Some("ERROR") => format!("{step}: ERROR {} {}", object["code"], object["reason"]),
                Some(kind) => format!("{step}: {kind} {} {}", object["metadata"]["name"], object["data"]),
                None => format!("{step}: {event}"),
            };
            self.observed.push(note);
        }
        Ok(())
    }
}

struct Call<'a> {
    method: &'a str,
    path: &'a str,
    content_type: &'a str,
    body: Value,
}

fn get(path: &str) -> Call<'_> {
    Call { method: "GET", path, content_type: "application/json", body: Value::Null }
}

fn send<'a>(method: &'a str, path: &'a str, body: Value) -> Call<'a> {
    Call { method, path, content_type: "application/json", body }
}

fn patch<'a>(kind: &'a str, path: &'a str, body: Value) -> Call<'a> {
    Call { method: "PATCH", path, content_type: kind, body }
}

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

#[allow(clippy::needless_pass_by_value)]
fn config_map(name: &str, labels: Value, data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "labels": labels }, "data": data })
}

fn pod(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": "guarded" } },
        "spec": { "schedulerName": "no-scheduler", "containers": [{ "name": "main", "image": "none",
            "resources": { "requests": { "cpu": "100m" } } }] } })
}

async fn objects(witness: &mut Witness) -> Result<()> {
    let maps = "{ns}/configmaps";
    let one = "{ns}/configmaps/one";
    let created = witness
        .note(
            "create",
            send("POST", maps, config_map("one", json!({ "tier": "a" }), json!({ "k": "1" }))),
            &["/kind", "/apiVersion", "/metadata/name", "/metadata/namespace", "/metadata/labels", "/data"],
        )
        .await?;
    ensure!(created["metadata"]["uid"].is_string() && created["metadata"]["resourceVersion"].is_string(), "{created}");
    witness
        .note(
            "create again",
            send("POST", maps, config_map("one", json!({}), json!({}))),
            &["/details/name", "/details/kind"],
        )
        .await?;
    witness.note("create without a name", send("POST", maps, json!({ "metadata": {} })), &[]).await?;
    witness
        .note(
            "create with a bad name",
            send("POST", maps, config_map("Not_Valid", json!({}), json!({}))),
            &["/details/name"],
        )
        .await?;
    let generated = witness
        .call("POST", "{ns}/configmaps", "application/json", &json!({ "metadata": { "generateName": "many-" } }))
        .await?;
    let name = generated.1["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    witness.observed.push(format!("generateName: {} {} {}", generated.0, name.starts_with("many-"), name.len()));
    witness.call("DELETE", &format!("{{ns}}/configmaps/{name}"), "application/json", &Value::Null).await?;
    witness
        .note(
            "in a missing namespace",
            send("POST", "/api/v1/namespaces/nowhere/configmaps", config_map("x", json!({}), json!({}))),
            &[],
        )
        .await?;
    witness.note("get", get(one), &["/data"]).await?;
    witness.note("get a missing object", get("{ns}/configmaps/none"), &["/details/kind", "/details/name"]).await?;
    witness.note("an unknown resource", get("{ns}/nothings"), &[]).await?;

    let mut stale = created.clone();
    let mut fresh = created.clone();
    fresh["data"] = json!({ "k": "2" });
    stale["data"] = json!({ "k": "3" });
    witness.note("update", send("PUT", one, fresh), &["/data"]).await?;
    witness.note("update with an old version", send("PUT", one, stale), &["/details/kind"]).await?;
    let mut other_name = created.clone();
    other_name["metadata"]["name"] = json!("two");
    witness.note("update under another name", send("PUT", one, other_name), &[]).await?;

    witness
        .note(
            "json patch",
            patch(JSON_PATCH, one, json!([{ "op": "add", "path": "/data/j", "value": "4" }])),
            &["/data"],
        )
        .await?;
    witness
        .note(
            "json patch, test fails",
            patch(JSON_PATCH, one, json!([{ "op": "test", "path": "/data/j", "value": "5" }])),
            &[],
        )
        .await?;
    for (what, path) in [("there", "/data/none"), ("in an object that is there", "/spec/none")] {
        let test = json!([{ "op": "test", "path": path, "value": null }]);
        witness.note(&format!("json patch, test for what is not {what}"), patch(JSON_PATCH, one, test), &[]).await?;
    }
    witness
        .note("merge patch", patch(MERGE_PATCH, one, json!({ "data": { "j": null, "m": "6" } })), &["/data"])
        .await?;
    witness
        .note("merge patch with an old version", patch(MERGE_PATCH, one, json!({ "metadata": { "resourceVersion": created["metadata"]["resourceVersion"] }, "data": { "m": "7" } })), &[])
        .await?;
    witness
        .note(
            "strategic patch",
            patch(STRATEGIC_PATCH, one, json!({ "metadata": { "labels": { "tier": "b" } } })),
            &["/metadata/labels"],
        )
        .await?;
    let applied = config_map("applied", json!({ "tier": "c" }), json!({ "a": "1" }));
    witness
        .note(
            "apply creates",
            patch(APPLY_PATCH, "{ns}/configmaps/applied?fieldManager=parity", applied.clone()),
            &["/data", "/metadata/labels"],
        )
        .await?;
    witness
        .note(
            "apply again",
            patch(APPLY_PATCH, "{ns}/configmaps/applied?fieldManager=parity&force=true", applied),
            &["/data"],
        )
        .await?;
    witness.note("an unknown patch type", patch("application/strange+json", one, json!({})), &[]).await?;
    witness
        .note("patch a missing object", patch(MERGE_PATCH, "{ns}/configmaps/none", json!({ "data": {} })), &[])
        .await?;
    Ok(())
}

async fn strategic_lists(witness: &mut Witness) -> Result<()> {
    let path = "{ns}/pods/listed";
    let mut listed = pod("listed");
    listed["spec"]["tolerations"] = json!([{ "key": "a", "operator": "Exists" }]);
    witness
        .note(
            "pod",
            send("POST", "{ns}/pods", listed),
            &["/spec/containers/0/name", "/status/phase", "/spec/restartPolicy", "/status/qosClass"],
        )
        .await?;
    // Containers merge by name; a new image is one of the few changes a pod's spec allows.
    witness
        .note(
            "strategic patch merges by key",
            patch(STRATEGIC_PATCH, path, json!({ "spec": { "containers": [{ "name": "main", "image": "other" }] } })),
            &["/spec/containers/0/image", "/spec/containers/0/resources/requests", "/spec/containers/1"],
        )
        .await?;
    let status =
        json!({ "status": { "conditions": [{ "type": "A", "status": "True" }, { "type": "B", "status": "False" }] } });
    witness
        .note(
            "conditions",
            patch(STRATEGIC_PATCH, "{ns}/pods/listed/status", status),
            &["/status/conditions/0/type", "/status/conditions/1/type"],
        )
        .await?;
    let status = json!({ "status": { "conditions": [{ "type": "B", "status": "True" }] } });
    let body = witness
        .note("conditions merge by type", patch(STRATEGIC_PATCH, "{ns}/pods/listed/status", status), &[])
        .await?;
    let mut conditions: Vec<String> = body["status"]["conditions"]
        .as_array()
        .context("conditions")?
        .iter()
        .map(|condition| format!("{}={}", condition["type"], condition["status"]))
        .collect();
    conditions.sort();
    witness.observed.push(format!("conditions now: {conditions:?}"));
    witness
        .note(
            "a patch deletes an entry",
            patch(
                STRATEGIC_PATCH,
                "{ns}/pods/listed/status",
                json!({ "status": { "conditions": [{ "$patch": "delete", "type": "A" }] } }),
            ),
            &["/status/conditions/1"],
        )
        .await?;
    let changed = json!({ "spec": { "nodeSelector": { "x": "y" } } });
    let (code, body) = witness.call("PATCH", path, MERGE_PATCH, &changed).await?;
    witness.observed.push(format!("a pod's spec is fixed: {code} {}", body["reason"]));
    witness.note("force delete", send("DELETE", path, json!({ "gracePeriodSeconds": 0 })), &[]).await?;
    Ok(())
}

async fn selectors_and_pages(witness: &mut Witness) -> Result<()> {
    for (name, tier, zone) in
        [("s1", "x", Some("z1")), ("s2", "x", Some("z2")), ("s3", "y", None), ("s4", "y", Some("z1"))]
    {
        let mut labels = json!({ "set": "s", "tier": tier });
        if let Some(zone) = zone {
            labels["zone"] = json!(zone);
        }
        witness.call("POST", "{ns}/configmaps", "application/json", &config_map(name, labels, json!({}))).await?;
    }
    for selector in [
        "tier=x",
        "tier!=x,set=s",
        "tier in (x,y),zone",
        "set=s,!zone",
        "set=s,zone notin (z1)",
        "tier==y,set=s",
        "tier in (x",
        "=x",
    ] {
        let path = format!("{{ns}}/configmaps?labelSelector={}", encode(selector));
        let (code, list) = witness.call("GET", &path, "application/json", &Value::Null).await?;
        witness.observed.push(format!("labels {selector:?}: {code} {:?}", names(&list)));
    }
    for selector in ["metadata.name=s2", "metadata.name!=s2,metadata.namespace=parity", "data.k=1"] {
        let path = format!("{{ns}}/configmaps?labelSelector=set%3Ds&fieldSelector={}", encode(selector));
        let (code, list) = witness.call("GET", &path, "application/json", &Value::Null).await?;
        witness.observed.push(format!("fields {selector:?}: {code} {:?}", names(&list)));
    }
    let mut token = String::new();
    for page in 0..3 {
        let path = format!("{{ns}}/configmaps?labelSelector=set%3Ds&limit=3&continue={token}");
        let (code, list) = witness.call("GET", &path, "application/json", &Value::Null).await?;
        token = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        witness.observed.push(format!("page {page}: {code} {:?} more={}", names(&list), !token.is_empty()));
        if token.is_empty() {
            break;
        }
    }
    let (code, list) = witness.call("GET", "{ns}/configmaps?limit=1", "application/json", &Value::Null).await?;
    let total = witness.call("GET", "{ns}/configmaps", "application/json", &Value::Null).await?.1;
    let left = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
    witness.observed.push(format!("remaining: {code} {}", left + 1 == names(&total).len() as u64));
    witness.note("a bad continue token", get("{ns}/configmaps?limit=1&continue=!!"), &[]).await?;
    witness.note("a bad limit", get("{ns}/configmaps?limit=many"), &[]).await?;
    Ok(())
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().cloned().unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .filter(|name| !name.starts_with("kube-root"))
        .map(str::to_owned)
        .collect()
}

fn encode(selector: &str) -> String {
    selector
        .bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

async fn watches(witness: &mut Witness) -> Result<()> {
    let start = witness.call("GET", "{ns}/configmaps", "application/json", &Value::Null).await?.1;
    let version = start["metadata"]["resourceVersion"].as_str().context("a version")?.to_owned();
    let label = |value: &str| json!({ "metadata": { "labels": { "watched": value } } });
    witness
        .call(
            "POST",
            "{ns}/configmaps",
            "application/json",
            &config_map("w", json!({ "watched": "no" }), json!({ "k": "1" })),
        )
        .await?;
    witness.call("PATCH", "{ns}/configmaps/w", MERGE_PATCH, &label("yes")).await?;
    witness.call("PATCH", "{ns}/configmaps/w", MERGE_PATCH, &json!({ "data": { "k": "2" } })).await?;
    witness.call("PATCH", "{ns}/configmaps/w", MERGE_PATCH, &label("no")).await?;
    witness.call("PATCH", "{ns}/configmaps/w", MERGE_PATCH, &label("yes")).await?;
    witness.call("DELETE", "{ns}/configmaps/w", "application/json", &Value::Null).await?;
    witness
        .note_watch("watch", &format!("{{ns}}/configmaps?watch=true&timeoutSeconds=20&resourceVersion={version}"), 6)
        .await?;
    let selected =
        format!("{{ns}}/configmaps?watch=true&timeoutSeconds=20&labelSelector=watched%3Dyes&resourceVersion={version}");
    witness.note_watch("watch with a selector", &selected, 5).await?;
    witness
        .note_watch("watch from the beginning", "{ns}/configmaps?watch=true&timeoutSeconds=20&labelSelector=set%3Ds", 4)
        .await?;
    // A watch with a timeout ends by itself.
    let before = std::time::Instant::now();
    let (code, _) = witness
        .call(
            "GET",
            &format!("{{ns}}/configmaps?watch=true&timeoutSeconds=1&resourceVersion={version}&labelSelector=none"),
            "application/json",
            &Value::Null,
        )
        .await?;
    witness.observed.push(format!("watch ends: {code} {}", before.elapsed() < Duration::from_secs(10)));
    Ok(())
}

async fn expired_versions(witness: &mut Witness) -> Result<()> {
    // A request compacts the embedded API; the real server's etcd is compacted every second here.
    if witness.has_controllers {
        witness.call("POST", "/simulator/watches/compact?kept=0", "application/json", &Value::Null).await?;
    }
    let exactly = "{ns}/configmaps?limit=10&resourceVersion=1&resourceVersionMatch=Exact";
    eventually(LIMIT, || async {
        let (code, _) = witness.call("GET", exactly, "application/json", &Value::Null).await?;
        ensure!(code == 410, "version 1 still exists: {code}");
        Ok(())
    })
    .await?;
    let (code, body) = witness.call("GET", exactly, "application/json", &Value::Null).await?;
    witness.observed.push(format!("list at an expired version: {code} {}", body["reason"]));
    // Events, because kube-apiserver has no watch cache for them from which it could still answer.
    witness.note_watch("expired watch", "{ns}/events?watch=true&timeoutSeconds=20&resourceVersion=1", 1).await
}

async fn binding_and_eviction(witness: &mut Witness) -> Result<()> {
    let node = "parity-node";
    witness.call("POST", "/api/v1/nodes", "application/json", &json!({ "metadata": { "name": node } })).await?;
    witness
        .note("pod to bind", send("POST", "{ns}/pods", pod("guarded")), &["/spec/nodeName", "/status/phase"])
        .await?;
    let target = if witness.has_controllers { "node-1" } else { node };
    let binding = |name: &str| json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name }, "target": { "apiVersion": "v1", "kind": "Node", "name": target } });
    witness.note("bind", send("POST", "{ns}/pods/guarded/binding", binding("guarded")), &["/status"]).await?;
    let (code, body) =
        witness.call("POST", "{ns}/pods/guarded/binding", "application/json", &binding("guarded")).await?;
    let message = body["message"].as_str().unwrap_or_default().replace(target, "NODE");
    witness.observed.push(format!("bind twice: {code} {} {message}", body["reason"]));
    let bound = witness.call("GET", "{ns}/pods/guarded", "application/json", &Value::Null).await?.1;
    let condition = bound["status"]["conditions"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["type"] == "PodScheduled"))
        .cloned();
    witness.observed.push(format!(
        "bound: {} {}",
        bound["spec"]["nodeName"] == target,
        condition.unwrap_or_default()["status"]
    ));
    witness.note("bind a missing pod", send("POST", "{ns}/pods/none/binding", binding("none")), &[]).await?;

    let budget = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "guard" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "guarded" } } } });
    let budgets = format!("/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets");
    witness.note("budget", send("POST", &budgets, budget), &["/spec/minAvailable"]).await?;
    let ready = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    let status = json!({ "status": { "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1 } });
    if !witness.has_controllers {
        witness.call("PATCH", "{ns}/pods/guarded/status", STRATEGIC_PATCH, &ready).await?;
        witness.call("PATCH", &format!("{budgets}/guard/status"), MERGE_PATCH, &status).await?;
    }
    eventually(LIMIT, || async {
        let (_, guard) = witness.call("GET", &format!("{budgets}/guard"), "application/json", &Value::Null).await?;
        ensure!(guard["status"]["currentHealthy"] == 1 && guard["status"]["observedGeneration"] == 1, "{guard}");
        Ok(())
    })
    .await?;
    let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "guarded", "namespace": NAMESPACE } });
    witness
        .note(
            "evict against the budget",
            send("POST", "{ns}/pods/guarded/eviction", eviction.clone()),
            &["/details/causes/0/reason", "/details/causes/0/message"],
        )
        .await?;
    witness.note("remove the budget", send("DELETE", &format!("{budgets}/guard"), Value::Null), &[]).await?;
    witness.note("evict", send("POST", "{ns}/pods/guarded/eviction", eviction), &["/status"]).await?;
    let terminating = witness.call("GET", "{ns}/pods/guarded", "application/json", &Value::Null).await?;
    witness.observed.push(format!(
        "terminating: {} {}",
        terminating.0,
        terminating.1["metadata"]["deletionTimestamp"].is_string()
    ));
    Ok(())
}

async fn subresources(witness: &mut Witness) -> Result<()> {
    let deployments = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "idle" },
        "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "idle" } },
            "template": { "metadata": { "labels": { "app": "idle" } }, "spec": { "schedulerName": "no-scheduler", "containers": [{ "name": "main", "image": "none" }] } } } });
    witness
        .note(
            "deployment",
            send("POST", &deployments, deployment),
            &[
                "/metadata/generation",
                "/spec/strategy/type",
                "/spec/strategy/rollingUpdate",
                "/spec/revisionHistoryLimit",
            ],
        )
        .await?;
    // The deployment controller's first write, an annotation, is a separate change. Wait until both sides have it.
    let idle = format!("{deployments}/idle");
    if !witness.has_controllers {
        let revision = json!({ "metadata": { "annotations": { "deployment.kubernetes.io/revision": "1" } } });
        witness.call("PATCH", &idle, MERGE_PATCH, &revision).await?;
    }
    eventually(LIMIT, || async {
        let (_, found) = witness.call("GET", &idle, "application/json", &Value::Null).await?;
        ensure!(found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1", "{found}");
        Ok(())
    })
    .await?;
    let scale = format!("{deployments}/idle/scale");
    witness.note("scale", get(&scale), &["/kind", "/apiVersion", "/spec", "/status/selector"]).await?;
    witness
        .note("scale up", patch(MERGE_PATCH, &scale, json!({ "spec": { "replicas": 2 } })), &["/spec/replicas"])
        .await?;
    witness.note("scaled", get(&format!("{deployments}/idle")), &["/spec/replicas", "/metadata/generation"]).await?;
    let mut whole = witness.call("GET", &format!("{deployments}/idle"), "application/json", &Value::Null).await?.1;
    whole["status"]["observedGeneration"] = json!(77);
    if let Some(metadata) = whole["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    let after = witness.call("PUT", &format!("{deployments}/idle"), "application/json", &whole).await?;
    witness.observed.push(format!(
        "status through the main resource: {} {}",
        after.0,
        after.1["status"]["observedGeneration"] == 77
    ));
    let bad = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "bad" }, "spec": {} });
    let (code, body) = witness.call("POST", &deployments, "application/json", &bad).await?;
    witness.observed.push(format!("an incomplete deployment: {code} {}", body["reason"]));
    let (code, body) = witness.call("POST", "{ns}/configmaps", "application/json", &json!("text")).await?;
    witness.observed.push(format!("not an object: {code} {}", body["reason"]));
    let (code, body) = witness.call("DELETE", "{ns}/configmaps/none", "application/json", &Value::Null).await?;
    witness.observed.push(format!("delete a missing object: {code} {}", body["reason"]));
    let uid = json!({ "preconditions": { "uid": "not-this-one" } });
    let (code, body) = witness.call("DELETE", "{ns}/configmaps/s1", "application/json", &uid).await?;
    witness.observed.push(format!("delete with another uid: {code} {}", body["reason"]));
    let (code, body) =
        witness.call("DELETE", "{ns}/configmaps?labelSelector=set%3Ds", "application/json", &Value::Null).await?;
    witness.observed.push(format!("delete a collection: {code} {:?}", names(&body)));
    Ok(())
}

async fn scenario(client: Client, has_controllers: bool) -> Result<Vec<String>> {
    let mut witness = Witness { client, has_controllers, observed: Vec::new() };
    witness
        .note(
            "namespace",
            send("POST", "/api/v1/namespaces", json!({ "metadata": { "name": NAMESPACE } })),
            &["/metadata/name", "/metadata/labels", "/status/phase"],
        )
        .await?;
    objects(&mut witness).await?;
    strategic_lists(&mut witness).await?;
    selectors_and_pages(&mut witness).await?;
    watches(&mut witness).await?;
    binding_and_eviction(&mut witness).await?;
    subresources(&mut witness).await?;
    priorities::classes(&mut witness).await?;
    priorities::nominations(&mut witness).await?;
    storage::claims_and_volumes(&mut witness).await?;
    storage::classes_and_drivers(&mut witness).await?;
    storage::tables(&mut witness).await?;
    expired_versions(&mut witness).await?;
    Ok(witness.observed)
}

#[tokio::test]
async fn the_embedded_api_answers_as_the_real_one_does() -> Result<()> {
    let control_plane = ControlPlane::start_with(&["--etcd-compaction-interval=1s"]).await?;
    let sandbox = Sandbox::start(&["--hosts", "2", "--nodes", "2"]).await?;
    let real = scenario(control_plane.client().await?, false).await.context("on the real kube-apiserver")?;
    let embedded = scenario(sandbox.client().await?, true).await.context("on the embedded API")?;
    let differences: Vec<String> = real
        .iter()
        .zip(&embedded)
        .filter(|(real, embedded)| real != embedded)
        .map(|(real, embedded)| format!("real     {real}\nembedded {embedded}"))
        .collect();
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n\n"));
    assert_eq!(real.len(), embedded.len());
    assert!(real.len() > 120, "only {} observations", real.len());
    Ok(())
}
