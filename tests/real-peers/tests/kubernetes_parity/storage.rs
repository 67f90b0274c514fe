//! Volumes, claims, classes, and what storage drivers report.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{MERGE_PATCH, NAMESPACE, Witness, get, patch, send};

const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "{ns}/persistentvolumeclaims";

/// The class `by-hand` has no provisioner and waits, so that no controller touches the claims.
fn claim(name: &str, extra: &Value) -> Value {
    let mut claim = json!({ "metadata": { "name": name }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } }, "storageClassName": "by-hand" } });
    if let (Some(spec), Some(extra)) = (claim["spec"].as_object_mut(), extra.as_object()) {
        spec.extend(extra.clone());
    }
    claim
}

fn volume(name: &str, extra: &Value) -> Value {
    let mut volume = json!({ "metadata": { "name": name }, "spec": { "accessModes": ["ReadWriteOnce"],
        "capacity": { "storage": "1Gi" }, "storageClassName": "other",
        "csi": { "driver": "csi.example.com", "volumeHandle": "h" } } });
    if let (Some(spec), Some(extra)) = (volume["spec"].as_object_mut(), extra.as_object()) {
        spec.extend(extra.clone());
        spec.retain(|_, value| !value.is_null());
    }
    volume
}

impl Witness {
    /// Records status, reason, and the first line of the message: some messages end with a comparison of Go values.
    async fn note_first_line(&mut self, step: &str, method: &str, path: &str, kind: &str, body: Value) -> Result<()> {
        let (status, body) = self.call(method, path, kind, &body).await?;
        let message = body["message"].as_str().unwrap_or_default();
        self.observed.push(format!(
            "{step}: {status} {} {}",
            body["reason"],
            message.lines().next().unwrap_or_default()
        ));
        Ok(())
    }
}

pub async fn claims_and_volumes(witness: &mut Witness) -> Result<()> {
    // The embedded world has a default class from the start; a new cluster has none.
    witness.call("DELETE", &format!("{CLASSES}/standard"), "application/json", &Value::Null).await?;
    let by_hand = json!({ "metadata": { "name": "by-hand" }, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer" });
    witness
        .note("class", send("POST", CLASSES, by_hand), &["/provisioner", "/reclaimPolicy", "/volumeBindingMode"])
        .await?;
    let created = ["/spec", "/status", "/metadata/finalizers", "/metadata/generation"];
    witness.note("claim", send("POST", CLAIMS, claim("data", &json!({}))), &created).await?;
    let without_class = json!({ "metadata": { "name": "classless" }, "spec": { "accessModes": ["ReadWriteMany"],
        "resources": { "requests": { "storage": "1Gi" } }, "volumeMode": "Block" } });
    witness.note("claim without a class", send("POST", CLAIMS, without_class), &created).await?;
    for (step, extra) in [
        ("claim without access modes", json!({ "accessModes": [] })),
        ("claim with a strange access mode", json!({ "accessModes": ["ReadSometimes"] })),
        ("claim with exclusive access and more", json!({ "accessModes": ["ReadWriteOncePod", "ReadWriteOnce"] })),
        ("claim without a size", json!({ "resources": {} })),
        ("claim of nothing", json!({ "resources": { "requests": { "storage": "0" } } })),
        ("claim with a strange mode", json!({ "volumeMode": "Tape" })),
        ("claim with a bad class", json!({ "storageClassName": "Not_Valid" })),
    ] {
        witness.note(step, send("POST", CLAIMS, claim("bad", &extra)), &[]).await?;
    }
    let data = "{ns}/persistentvolumeclaims/data";
    for (step, spec) in [
        ("another class", json!({ "storageClassName": "other" })),
        ("a larger claim", json!({ "resources": { "requests": { "storage": "2Gi" } } })),
        ("other access modes", json!({ "accessModes": ["ReadOnlyMany"] })),
    ] {
        witness.note_first_line(step, "PATCH", data, MERGE_PATCH, json!({ "spec": spec })).await?;
    }
    let selected = json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": "n" } } });
    witness.note("select a node", patch(MERGE_PATCH, data, selected), &["/metadata/annotations"]).await?;
    let status = json!({ "status": { "phase": "Lost" } });
    witness.note("a phase through the claim", patch(MERGE_PATCH, data, status), &["/status/phase"]).await?;

    let parts = ["/spec", "/status/phase", "/metadata/finalizers", "/metadata/generation"];
    let affinity = |zone: &str| {
        json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": "zone", "operator": "In", "values": [zone] }] }] } })
    };
    let zoned = json!({ "nodeAffinity": affinity("a") });
    witness.note("volume", send("POST", VOLUMES, volume("v1", &zoned)), &parts).await?;
    for (step, extra) in [
        ("volume without capacity", json!({ "capacity": null })),
        ("volume of nothing", json!({ "capacity": { "storage": "0" } })),
        ("volume without access modes", json!({ "accessModes": null })),
        ("volume without a source", json!({ "csi": null })),
        ("volume with an incomplete source", json!({ "csi": { "driver": "csi.example.com" } })),
        ("local volume anywhere", json!({ "csi": null, "local": { "path": "/disk" } })),
        ("volume with a strange policy", json!({ "persistentVolumeReclaimPolicy": "Shred" })),
    ] {
        witness.note(step, send("POST", VOLUMES, volume("bad", &extra)), &[]).await?;
    }
    let v1 = format!("{VOLUMES}/v1");
    let source = json!({ "spec": { "csi": { "volumeHandle": "other" } } });
    witness.note_first_line("another source", "PATCH", &v1, MERGE_PATCH, source).await?;
    let moved = json!({ "spec": { "nodeAffinity": affinity("b") } });
    let (code, body) = witness.call("PATCH", &v1, MERGE_PATCH, &moved).await?;
    witness.observed.push(format!("another affinity: {code} {}", body["reason"]));
    let larger = json!({ "spec": { "capacity": { "storage": "2Gi" } } });
    witness.note("a larger volume", patch(MERGE_PATCH, &v1, larger), &["/spec/capacity"]).await?;
    Ok(())
}

pub async fn classes_and_drivers(witness: &mut Witness) -> Result<()> {
    let parts = ["/provisioner", "/reclaimPolicy", "/volumeBindingMode", "/allowedTopologies", "/metadata/generation"];
    let topologies = json!([{ "matchLabelExpressions": [{ "key": "zone", "values": ["a"] }] }]);
    let class = json!({ "metadata": { "name": "fast" }, "provisioner": "csi.example.com", "parameters": { "a": "b" },
        "allowedTopologies": topologies });
    witness.note("fast class", send("POST", CLASSES, class), &parts).await?;
    for (step, class) in [
        ("class without a provisioner", json!({ "metadata": { "name": "bad" } })),
        ("strange binding", json!({ "metadata": { "name": "bad" }, "provisioner": "p", "volumeBindingMode": "Later" })),
        ("strange policy", json!({ "metadata": { "name": "bad" }, "provisioner": "p", "reclaimPolicy": "Shred" })),
    ] {
        let (code, body) = witness.call("POST", CLASSES, "application/json", &class).await?;
        witness.observed.push(format!("{step}: {code} {} {}", body["reason"], body["details"]["causes"][0]["field"]));
    }
    let fast = format!("{CLASSES}/fast");
    for (step, change) in [
        ("another binding mode", json!({ "volumeBindingMode": "WaitForFirstConsumer" })),
        ("another policy", json!({ "reclaimPolicy": "Retain" })),
        ("growing allowed", json!({ "allowVolumeExpansion": true })),
    ] {
        let (code, body) = witness.call("PATCH", &fast, MERGE_PATCH, &change).await?;
        witness.observed.push(format!("{step}: {code} {} {}", body["reason"], body["details"]["causes"][0]["field"]));
    }
    let storage = "/apis/storage.k8s.io/v1";
    let driver = json!({ "metadata": { "name": "csi.example.com" }, "spec": { "attachRequired": false } });
    let drivers = format!("{storage}/csidrivers");
    witness.note("driver", send("POST", &drivers, driver), &["/spec", "/metadata/generation"]).await?;
    let one = format!("{drivers}/csi.example.com");
    let capacity = json!({ "spec": { "storageCapacity": true } });
    witness.note("driver with capacity", patch(MERGE_PATCH, &one, capacity), &["/spec/storageCapacity"]).await?;
    let (code, body) = witness.call("PATCH", &one, MERGE_PATCH, &json!({ "spec": { "attachRequired": true } })).await?;
    witness.observed.push(format!("driver with attachment: {code} {}", body["reason"]));

    let nodes = format!("{storage}/csinodes");
    let node = json!({ "metadata": { "name": "parity-csi" }, "spec": { "drivers": [
        { "name": "csi.example.com", "nodeID": "n", "topologyKeys": ["zone"], "allocatable": { "count": 3 } }] } });
    witness.note("node", send("POST", &nodes, node), &["/spec"]).await?;
    let node = json!({ "metadata": { "name": "bad" }, "spec": { "drivers": [{ "name": "csi.example.com" }] } });
    witness.note("node without an ID", send("POST", &nodes, node), &[]).await?;

    let capacities = format!("{storage}/namespaces/{NAMESPACE}/csistoragecapacities");
    let capacity = json!({ "metadata": { "name": "c" }, "storageClassName": "fast", "capacity": "80Gi",
        "maximumVolumeSize": "40Gi", "nodeTopology": { "matchLabels": { "zone": "a" } } });
    let parts = ["/storageClassName", "/capacity", "/maximumVolumeSize", "/nodeTopology"];
    witness.note("capacity", send("POST", &capacities, capacity), &parts).await?;
    let one = format!("{capacities}/c");
    let less = json!({ "capacity": "8Gi" });
    witness.note("less capacity", patch(MERGE_PATCH, &one, less), &["/capacity"]).await?;
    let other = json!({ "storageClassName": "by-hand" });
    witness.note("capacity of another class", patch(MERGE_PATCH, &one, other), &[]).await?;

    let attachments = format!("{storage}/volumeattachments");
    let attachment = json!({ "metadata": { "name": "a" }, "spec": { "attacher": "unknown.example.com",
        "nodeName": "parity-csi", "source": { "persistentVolumeName": "v1" } } });
    witness.note("attachment", send("POST", &attachments, attachment), &["/spec", "/status"]).await?;
    let one = format!("{attachments}/a");
    let (code, body) = witness.call("PATCH", &one, MERGE_PATCH, &json!({ "spec": { "nodeName": "x" } })).await?;
    witness.observed.push(format!("attachment elsewhere: {code} {}", body["reason"]));
    let status = format!("{one}/status");
    let attached = json!({ "status": { "attached": true } });
    witness.note("attached", patch(MERGE_PATCH, &status, attached), &["/status/attached"]).await?;
    let bad = json!({ "metadata": { "name": "b" }, "spec": { "attacher": "a.b", "nodeName": "n" } });
    let (code, body) = witness.call("POST", &attachments, "application/json", &bad).await?;
    witness.observed.push(format!("attachment of nothing: {code} {}", body["reason"]));

    for kind in ["resourceclaims", "resourceslices", "deviceclasses"] {
        let path = format!("/apis/resource.k8s.io/v1/{kind}");
        witness.note(kind, get(&path), &["/kind", "/apiVersion", "/items"]).await?;
    }
    Ok(())
}

/// What `kubectl get` prints.
pub async fn tables(witness: &mut Witness) -> Result<()> {
    let storage = "/apis/storage.k8s.io/v1";
    for (path, name) in [
        (VOLUMES.to_owned(), "v1"),
        (CLAIMS.to_owned(), "data"),
        (CLAIMS.to_owned(), "classless"),
        (CLASSES.to_owned(), "fast"),
        (format!("{storage}/csidrivers"), "csi.example.com"),
        (format!("{storage}/csinodes"), "parity-csi"),
        (format!("{storage}/namespaces/{NAMESPACE}/csistoragecapacities"), "c"),
        (format!("{storage}/volumeattachments"), "a"),
    ] {
        let path = format!("{path}/{name}").replace("{ns}", &format!("/api/v1/namespaces/{NAMESPACE}"));
        let request = http::Request::get(&path)
            .header("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
            .body(Vec::new())?;
        let table: Value = witness.client.request(request).await.with_context(|| format!("the table of {path}"))?;
        let columns = table["columnDefinitions"].as_array().cloned().unwrap_or_default();
        let cells = table["rows"][0]["cells"].as_array().cloned().unwrap_or_default();
        let shown: Vec<String> = columns
            .iter()
            .zip(cells)
            .map(|(column, cell)| {
                // Controllers of the embedded world write the phase.
                let varies = ["Age", "Status", "Created At"].iter().any(|name| column["name"] == *name);
                let cell = if varies { json!("...") } else { cell };
                format!("{} {} {}={cell}", column["name"], column["type"], column["priority"])
            })
            .collect();
        witness.observed.push(format!("table of {name}: {}", shown.join(", ")));
    }
    for path in [
        format!("{storage}/volumeattachments/a"),
        format!("{VOLUMES}/v1"),
        format!("{storage}/csinodes/parity-csi"),
        format!("{storage}/csidrivers/csi.example.com"),
        format!("{CLASSES}/fast"),
        format!("{CLASSES}/by-hand"),
        format!("{storage}/namespaces/{NAMESPACE}/csistoragecapacities/c"),
    ] {
        witness.note(&format!("delete {path}"), send("DELETE", &path, Value::Null), &["/kind"]).await?;
    }
    Ok(())
}
