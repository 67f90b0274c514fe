//! Preemption on a real kube-apiserver, by kube-scheduler and by `bridger scheduler`: the same pods are evicted, and the
//! API server receives the same requests.
//!
//! Each scheduler has a namespace and nodes of its own, equal but for their names. The API server's audit log has every
//! request with its body.

#[path = "preemption/interrupted.rs"]
mod interrupted;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::workdir::Workdir;
use testkit::{Bridger, ControlPlane, Scheduler, eventually};

const SOON: Duration = Duration::from_secs(60);
/// A kube-scheduler says so for pods without resource claims too; 1.37 no longer does.
const OF_RESOURCE_CLAIMS: &str = "no new claims to deallocate, ";

const POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Request
  users: [system:kube-scheduler]
  verbs: [create, update, patch, delete]
- level: None
"#;

/// A scheduler and what belongs to it.
struct Side {
    scheduler: &'static str,
    namespace: String,
    /// The names and the label of its nodes.
    group: String,
    client: kube::Client,
}

impl Side {
    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Two nodes of 4 CPUs each that only its pods select.
    async fn set_up(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        for number in 1..=2 {
            let capacity = json!({ "cpu": "4", "memory": "8Gi", "pods": "20" });
            let ready = json!([{ "type": "Ready", "status": "True", "reason": "Test", "message": "",
                "lastHeartbeatTime": null, "lastTransitionTime": null }]);
            let node = json!({
                "metadata": { "name": self.node(number), "labels": { "of": self.group } },
                "status": { "capacity": capacity, "allocatable": capacity, "conditions": ready },
            });
            nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        }
        Ok(())
    }

    fn node(&self, number: usize) -> String {
        format!("{}-{number}", self.group)
    }

    fn pod(&self, name: &str, cpu: &str, class: &str) -> Value {
        json!({
            "metadata": { "name": name, "labels": { "app": name } },
            "spec": {
                "schedulerName": self.scheduler,
                "priorityClassName": class,
                "nodeSelector": { "of": self.group },
                "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "main", "image": "none", "resources": { "requests": { "cpu": cpu } } }],
            },
        })
    }

    async fn create(&self, pod: Value) -> Result<()> {
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    }

    /// A pod that runs on a node for this many minutes.
    async fn runs(&self, mut pod: Value, node: usize, minutes: i64) -> Result<()> {
        pod["spec"]["nodeName"] = json!(self.node(node));
        let name = pod["metadata"]["name"].as_str().context("a name")?.to_owned();
        self.create(pod).await?;
        let started = jiff::Timestamp::from_second(1_700_000_000 - 60 * minutes)?.to_string();
        let status = json!({ "status": { "phase": "Running", "startTime": started } });
        self.pods().patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    async fn allows_no_disruption_of(&self, app: &str) -> Result<()> {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &self.namespace);
        let budget = json!({ "metadata": { "name": app },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": app } } } });
        budgets.create(&PostParams::default(), &serde_json::from_value(budget)?).await?;
        let status = json!({ "status": { "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1,
            "expectedPods": 1, "observedGeneration": 1 } });
        budgets.patch_status(app, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    async fn is_bound(&self, name: &str, node: usize) -> Result<()> {
        eventually(SOON, || async {
            let pod = self.pods().get(name).await?;
            let on = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            ensure!(on == Some(self.node(node)), "{} {name}: {on:?} {:?}", self.namespace, pod.status);
            Ok(())
        })
        .await
    }

    async fn waits(&self, name: &str, because: &str) -> Result<()> {
        eventually(SOON, || async {
            let status = self.pods().get(name).await?.status.unwrap_or_default();
            let message = status.conditions.iter().flatten().find_map(|it| it.message.clone()).unwrap_or_default();
            ensure!(message.contains(because), "{} {name}: {message:?}", self.namespace);
            Ok(())
        })
        .await
    }

    async fn left(&self) -> Result<Vec<String>> {
        let pods = self.pods().list(&ListParams::default()).await?.items;
        Ok(pods.into_iter().filter_map(|pod| pod.metadata.name).collect())
    }

    /// What its scheduler sent, by pod, in order, without names, times and UIDs that differ.
    fn requests(&self, audit: &Path) -> Result<BTreeMap<String, Vec<String>>> {
        let mut requests: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in std::fs::read_to_string(audit)?.lines() {
            let entry: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            let (object, body) = (&entry["objectRef"], &entry["requestObject"]);
            if object["namespace"] != json!(self.namespace) {
                continue;
            }
            let resource = [&object["resource"], &object["subresource"]].map(|part| part.as_str().unwrap_or_default());
            let (pod, what) = match resource {
                ["events", _] => {
                    // A repeated event is a patch of the first one.
                    let regarding =
                        if body["regarding"].is_null() { &body["involvedObject"] } else { &body["regarding"] };
                    let Some(pod) = regarding["name"].as_str() else { continue };
                    let note = if body["note"].is_null() { &body["message"] } else { &body["note"] };
                    (pod.to_owned(), format!("event {} {} {}", body["type"], body["reason"], note))
                }
                ["pods", "status"] => {
                    let conditions = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
                    let conditions: Vec<String> = conditions
                        .iter()
                        .map(|it| format!("{} {} {} {}", it["type"], it["status"], it["reason"], it["message"]))
                        .collect();
                    let nominated = body["status"].get("nominatedNodeName");
                    let pod = object["name"].as_str().context("a name")?.to_owned();
                    (pod, format!("status {conditions:?} nominated {nominated:?}"))
                }
                ["pods", subresource] => {
                    let pod = object["name"].as_str().context("a name")?.to_owned();
                    (pod, format!("{} {subresource} {}", entry["verb"], body["target"]["name"]))
                }
                _ => continue,
            };
            requests.entry(pod).or_default().push(what);
        }
        let normal = |text: String| {
            let text = text.replace(&self.namespace, "NS").replace(self.scheduler, "SCHEDULER");
            without_uids(&text.replace(OF_RESOURCE_CLAIMS, ""))
        };
        Ok(requests.into_iter().map(|(pod, sent)| (pod, sent.into_iter().map(normal).collect())).collect())
    }
}

/// With a word in place of every UID.
fn without_uids(text: &str) -> String {
    let is_uid = |word: &str| word.len() == 36 && word.bytes().filter(|byte| *byte == b'-').count() == 4;
    text.split(' ').map(|word| if is_uid(word) { "UID" } else { word }).collect::<Vec<_>>().join(" ")
}

async fn story(side: &Side) -> Result<()> {
    side.set_up().await?;
    // On the first node the less important pod is protected by a budget, on the second one the only pod.
    side.runs(side.pod("kept", "2", "low"), 1, 10).await?;
    side.runs(side.pod("older", "1", "middle"), 1, 20).await?;
    side.runs(side.pod("newer", "1", "middle"), 1, 5).await?;
    side.runs(side.pod("alone", "4", "low"), 2, 30).await?;
    side.allows_no_disruption_of("kept").await?;
    side.allows_no_disruption_of("alone").await
}

async fn preempt(side: &Side) -> Result<()> {
    // One pod of the first node is enough, and of the two that no budget protects the one that runs less long.
    side.create(side.pod("first", "1", "high")).await?;
    side.is_bound("first", 1).await?;
    let mut never = side.pod("never", "1", "never");
    never["spec"]["preemptionPolicy"] = json!("Never");
    side.create(never).await?;
    side.waits("never", "preemption: not eligible due to preemptionPolicy=Never.").await?;
    side.create(side.pod("huge", "9", "high")).await?;
    side.waits("huge", "Preemption is not helpful for scheduling").await?;
    // Now a budget must be violated, on either node: the pod that runs less long goes.
    side.create(side.pod("second", "2", "high")).await?;
    side.is_bound("second", 1).await?;
    Ok(())
}

#[tokio::test]
async fn the_same_pods_are_evicted_with_the_same_requests_as_by_kube_scheduler() -> Result<()> {
    let workdir = Workdir::create("preemption")?;
    let policy = workdir.write("policy.yaml", POLICY)?;
    let audit = workdir.write("audit.log", "")?;
    let control_plane = ControlPlane::start_with(&[
        &format!("--audit-policy-file={}", policy.display()),
        &format!("--audit-log-path={}", audit.display()),
        "--disable-admission-plugins=TaintNodesByCondition",
    ])
    .await?;
    let client = control_plane.client().await?;
    let classes: Api<PriorityClass> = Api::all(client.clone());
    for (name, value, preemption) in [
        ("low", 1, "PreemptLowerPriority"),
        ("middle", 5, "PreemptLowerPriority"),
        ("high", 1000, "PreemptLowerPriority"),
        ("never", 1000, "Never"),
    ] {
        let class = json!({ "metadata": { "name": name }, "value": value, "preemptionPolicy": preemption });
        classes.create(&PostParams::default(), &serde_json::from_value(class)?).await?;
    }
    let mut sides = Vec::new();
    for scheduler in ["default-scheduler", "bridger"] {
        let namespace = control_plane.namespace(if scheduler == "bridger" { "ours" } else { "upstream" }).await?;
        sides.push(Side { scheduler, group: namespace.clone(), namespace, client: client.clone() });
    }
    for side in &sides {
        story(side).await?;
    }
    let _upstream = Scheduler::start(&control_plane, None).await?;
    let kubeconfig = control_plane.kubeconfig_for("system:kube-scheduler", &[])?;
    let environment = [("KUBECONFIG", kubeconfig.display().to_string()), ("NO_COLOR", "1".to_owned())];
    let mut bridger = Bridger::start(&["scheduler", "--port", "0", "--leader-elect=false"], &environment)?;
    bridger.prints("Listening", SOON).await?;
    for side in &sides {
        preempt(side).await.with_context(|| bridger.output())?;
    }
    let (upstream, ours) = (&sides[0], &sides[1]);
    assert_eq!(ours.left().await?, upstream.left().await?);
    // Events are posted in the background.
    eventually(SOON, || async {
        let (expected, sent) = (upstream.requests(&audit)?, ours.requests(&audit)?);
        for (pod, expected) in &expected {
            let sent = sent.get(pod).map(Vec::as_slice).unwrap_or_default();
            ensure!(same(expected, sent), "{pod}:\nkube-scheduler {expected:#?}\nbridger {sent:#?}");
        }
        ensure!(sent.len() == expected.len(), "{:?} {:?}", sent.keys(), expected.keys());
        Ok(())
    })
    .await
}

/// Events are sent in the background, so their order among the other requests varies; and kube-scheduler repeats the
/// event of a failure with another version of the pod.
fn same(expected: &[String], sent: &[String]) -> bool {
    let of = |requests: &[String], is_event: bool| {
        let mut found: Vec<String> =
            requests.iter().filter(|it| it.starts_with("event") == is_event).cloned().collect();
        if is_event {
            found.sort();
            found.dedup();
        }
        found
    };
    of(expected, true) == of(sent, true) && of(expected, false) == of(sent, false)
}
