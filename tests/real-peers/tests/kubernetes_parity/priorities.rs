//! PriorityClasses, the priority of pods, and nominations.

use anyhow::Result;
use serde_json::{Value, json};

use super::{MERGE_PATCH, STRATEGIC_PATCH, Witness, get, patch, pod, send};

const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

pub async fn classes(witness: &mut Witness) -> Result<()> {
    for name in ["system-node-critical", "system-cluster-critical"] {
        let path = format!("{CLASSES}/{name}");
        witness.note(name, get(&path), &["/value", "/preemptionPolicy", "/globalDefault", "/description"]).await?;
    }
    for (name, class) in [
        ("high", json!({ "value": 1000, "preemptionPolicy": "Never" })),
        ("low", json!({ "value": -5 })),
        ("too-high", json!({ "value": 1_000_000_001 })),
        ("system-own", json!({ "value": 5 })),
        ("odd", json!({ "value": 5, "preemptionPolicy": "Sometimes" })),
        ("usual", json!({ "value": 7, "globalDefault": true })),
        ("usual-too", json!({ "value": 8, "globalDefault": true })),
    ] {
        let mut object = class;
        object["metadata"] = json!({ "name": name });
        let step = format!("priority class {name}");
        witness.note(&step, send("POST", CLASSES, object), &["/value", "/preemptionPolicy", "/globalDefault"]).await?;
    }
    let high = format!("{CLASSES}/high");
    witness.note("another value", patch(MERGE_PATCH, &high, json!({ "value": 1001 })), &[]).await?;
    let policy = json!({ "preemptionPolicy": "PreemptLowerPriority" });
    witness.note("another policy", patch(MERGE_PATCH, &high, policy), &[]).await?;

    let parts = ["/spec/priority", "/spec/priorityClassName", "/spec/preemptionPolicy"];
    for (number, spec) in [
        json!({}),
        json!({ "priorityClassName": "high" }),
        json!({ "priorityClassName": "high", "priority": 1000 }),
        json!({ "priorityClassName": "high", "priority": 3 }),
        json!({ "priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority" }),
        json!({ "priorityClassName": "low" }),
        json!({ "priorityClassName": "none" }),
        json!({ "priorityClassName": "system-node-critical" }),
        json!({ "priority": 9 }),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("ranked-{number}");
        let mut ranked = pod(&name);
        ranked["spec"]
            .as_object_mut()
            .into_iter()
            .for_each(|own| own.extend(spec.as_object().cloned().unwrap_or_default()));
        // The default class is in use as soon as the admission plugin has seen it.
        if number == 0 {
            super::eventually(super::LIMIT, || async {
                let probe = witness.call("POST", "{ns}/pods?dryRun=All", "application/json", &ranked).await?.1;
                anyhow::ensure!(probe["spec"]["priority"] == 7, "{probe}");
                Ok(())
            })
            .await?;
        }
        witness.note(&format!("pod with {spec}"), send("POST", "{ns}/pods", ranked), &parts).await?;
        witness
            .call("DELETE", &format!("{{ns}}/pods/{name}?gracePeriodSeconds=0"), "application/json", &Value::Null)
            .await?;
    }
    for name in ["high", "low", "usual"] {
        witness.call("DELETE", &format!("{CLASSES}/{name}"), "application/json", &Value::Null).await?;
    }
    Ok(())
}

pub async fn nominations(witness: &mut Witness) -> Result<()> {
    let nominated = ["/status/nominatedNodeName"];
    let status = "{ns}/pods/nominated/status";
    let nominate = |node: Value| patch(STRATEGIC_PATCH, status, json!({ "status": { "nominatedNodeName": node } }));
    witness.note("pod to nominate", send("POST", "{ns}/pods", pod("nominated")), &nominated).await?;
    witness.note("nominate", nominate(json!("some-node")), &nominated).await?;
    witness.note("a nomination that is no node's name", nominate(json!("Not_a_node")), &nominated).await?;
    let condition = json!({ "status": { "conditions": [{ "type": "DisruptionTarget", "status": "True",
        "reason": "PreemptionByScheduler", "message": "m", "observedGeneration": 1, "lastProbeTime": null,
        "lastTransitionTime": "2026-11-16T09:00:00Z" }] } });
    witness
        .note(
            "disruption target",
            patch(STRATEGIC_PATCH, status, condition),
            &["/status/conditions/0/type", "/status/conditions/0/reason", "/status/nominatedNodeName"],
        )
        .await?;
    witness.note("clear the nomination", nominate(Value::Null), &nominated).await?;
    witness.note("nominate again", nominate(json!("some-node")), &nominated).await?;
    let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "nominated" },
        "target": { "kind": "Node", "name": "some-node" } });
    witness.note("bind it", send("POST", "{ns}/pods/nominated/binding", binding), &["/status"]).await?;
    witness.note("bound", get("{ns}/pods/nominated"), &["/spec/nodeName", "/status/nominatedNodeName"]).await?;
    witness.note("nominate a bound pod", nominate(json!("some-node")), &nominated).await?;
    witness.note("clear what is not there", nominate(Value::Null), &nominated).await?;
    let quality = json!({ "status": { "qosClass": "Guaranteed" } });
    witness.note("another quality of service", patch(STRATEGIC_PATCH, status, quality), &["/status/qosClass"]).await?;
    let path = "{ns}/pods/nominated?gracePeriodSeconds=0";
    witness.note("remove it", send("DELETE", path, Value::Null), &["/status/qosClass"]).await?;
    Ok(())
}
