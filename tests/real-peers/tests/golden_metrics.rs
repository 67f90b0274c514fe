//! Compares the interfaces that dashboards, alerts and scripts rely on with `tests/golden`: names, types and labels of
//! the metrics of `bridger run` and `bridger scheduler`, their events, the ConfigMap of the record, the fields of a
//! snapshot. Everything in the golden files must still exist; additions are allowed.

#[path = "../../golden/golden.rs"]
mod golden;
#[path = "golden_metrics/upstream.rs"]
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use testkit::{Bridger, Sandbox, eventually};

const SOON: Duration = Duration::from_secs(30);
const HOST_KEY: &str = "alpha.cna.vmware.com/host";

/// Labels whose values depend on the world and on events. Labels with fixed values are in `metrics/values.tsv`.
const VARYING: &[&str] = &["attempts", "event", "name", "plugin", "profile", "vcenter"];
const ANY: &str = "*";

#[derive(Debug, Default, Serialize, Deserialize)]
struct Metric {
    r#type: String,
    /// All values by label name, including histogram bounds. A label that varies has [`ANY`].
    labels: BTreeMap<String, BTreeSet<String>>,
}

type Metrics = BTreeMap<String, Metric>;

fn metrics(text: &str) -> Result<Metrics> {
    parsed(text, VARYING)
}

/// Parses the text format, of which OpenMetrics is a variant.
fn parsed(text: &str, varying: &[&str]) -> Result<Metrics> {
    let mut metrics = Metrics::new();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').with_context(|| line.to_owned())?;
            // In OpenMetrics, the name of a counter lacks the end that its samples have.
            let name = name.strip_suffix("_total").filter(|_| kind == "counter").unwrap_or(name);
            metrics.insert(name.to_owned(), Metric { r#type: kind.to_owned(), ..Metric::default() });
        } else if let Some((name, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let family = ["", "_total", "_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end).filter(|name| metrics.contains_key(*name)));
            let metric = family.and_then(|family| metrics.get_mut(family)).with_context(|| line.to_owned())?;
            let (labels, _) = labels.rsplit_once('}').with_context(|| line.to_owned())?;
            for label in labels.split("\",").filter(|label| !label.is_empty()) {
                let (name, value) = label.split_once("=\"").with_context(|| line.to_owned())?;
                let value = if varying.contains(&name) { ANY } else { value.trim_end_matches('"') };
                metric.labels.entry(name.to_owned()).or_default().insert(value.to_owned());
            }
        }
    }
    Ok(metrics)
}

/// Everything that is in `golden` and not in `now`.
fn missing(golden: &Metrics, now: &Metrics) -> Vec<String> {
    let mut missing = Vec::new();
    for (name, metric) in golden {
        let Some(found) = now.get(name) else {
            missing.push(name.clone());
            continue;
        };
        if found.r#type != metric.r#type {
            missing.push(format!("{name} of type {}, it is a {}", metric.r#type, found.r#type));
        }
        for (label, values) in &metric.labels {
            let known = found.labels.get(label);
            let lost = values.iter().filter(|value| !known.is_some_and(|known| known.contains(*value)));
            missing.extend(lost.map(|value| format!("{name}{{{label}={value:?}}}")));
        }
    }
    missing
}

#[allow(clippy::print_stdout)]
async fn compare(bridger: &Bridger, file: &str) -> Result<()> {
    let now = || async { metrics(&bridger.get("/metrics").await?) };
    if golden::is_writing() {
        // By then the latest events are counted.
        tokio::time::sleep(Duration::from_secs(3)).await;
        golden::write(file, &format!("{}\n", serde_json::to_string_pretty(&now().await?)?));
        return Ok(());
    }
    let golden: Metrics = serde_json::from_str(&golden::read(file))?;
    let now = eventually(SOON, || async {
        let now = now().await?;
        let missing = missing(&golden, &now);
        ensure!(missing.is_empty(), "{file}: no longer there, see tests/golden/README.md: {missing:#?}");
        Ok(now)
    })
    .await?;
    let new = missing(&now, &golden);
    if !new.is_empty() {
        println!("new, and not in {file}: {new:#?}");
    }
    Ok(())
}

fn pod(name: &str, cpu: &str) -> Value {
    let alike =
        json!({ "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } } });
    json!({
        "metadata": { "name": name, "labels": { "app": "web" } },
        "spec": {
            "schedulerName": "bridger",
            "containers": [{ "name": "c", "image": "web:1", "resources": { "requests": { "cpu": cpu } } }],
            "affinity": { "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [alike],
                "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "podAffinityTerm": alike }],
            } },
        },
    })
}

fn environment(sandbox: &Sandbox) -> [(&'static str, String); 4] {
    [
        ("KUBECONFIG", sandbox.kubeconfig().display().to_string()),
        ("GOVC_URL", sandbox.govc_url().to_owned()),
        ("GOVC_INSECURE", "true".to_owned()),
        ("NO_COLOR", "1".to_owned()),
    ]
}

struct Stage {
    sandbox: Sandbox,
    client: kube::Client,
    run: Bridger,
    scheduler: Bridger,
}

impl Stage {
    async fn start() -> Result<Stage> {
        let sandbox = Sandbox::start(&["--hosts", "3", "--nodes", "3", "--drs", "off", "--no-placer"]).await?;
        let environment = environment(&sandbox);
        let mut run = Bridger::start(&["run", "--port", "0", "--extender-port", "0"], &environment)?;
        let mut scheduler = Bridger::start(&["scheduler", "--port", "0"], &environment)?;
        run.prints("3 of 3 matched to a VM", SOON).await?;
        scheduler.prints("Listening", SOON).await?;
        let client = sandbox.client().await?;
        Ok(Stage { sandbox, client, run, scheduler })
    }

    /// Creates two pods with anti-affinity, and one that fits on no node.
    async fn schedule(&self) -> Result<()> {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        for (name, cpu) in [("web-0", "10m"), ("web-1", "10m"), ("huge", "1000")] {
            pods.create(&PostParams::default(), &serde_json::from_value(pod(name, cpu))?).await?;
        }
        Ok(())
    }

    /// Sends kube-scheduler's requests, and an invalid one.
    async fn ask(&self) -> Result<()> {
        let mut asked = pod("asked", "10m");
        asked["metadata"]["namespace"] = json!("default");
        asked["metadata"]["uid"] = json!("asked");
        let about = json!({ "Pod": asked, "Nodes": null, "NodeNames": ["node-1", "node-2", "node-3"] });
        for verb in ["filter", "prioritize"] {
            self.run.post(&format!("/v1/{verb}"), &about).await?;
        }
        let victims = json!({ "Pod": asked, "NodeNameToMetaVictims": { "node-1": { "Pods": [] } } });
        self.run.post("/v1/preempt", &victims).await?;
        let binding = json!({ "PodName": "none", "PodNamespace": "default", "PodUID": "none", "Node": "node-1" });
        self.run.post("/v1/bind", &binding).await?;
        // The reply is not JSON.
        let _ = self.run.post("/v1/filter", &json!("no request")).await;
        Ok(())
    }

    /// Another client sets the host label to a wrong host.
    async fn spoil_label(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        eventually(SOON, || async {
            let labels = nodes.get("node-1").await?.metadata.labels.unwrap_or_default();
            ensure!(labels.contains_key(HOST_KEY), "{labels:?}");
            Ok(())
        })
        .await?;
        let patch = json!({ "metadata": { "labels": { HOST_KEY: "elsewhere" } } });
        nodes.patch("node-1", &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Waits until the golden list's events with these reasons have been posted. Prints events that it does not have.
    async fn check_events(&self, wanted: &[&str]) -> Result<()> {
        let known: BTreeSet<Vec<String>> = golden::rows("reasons.tsv").into_iter().collect();
        let events: Api<Event> = Api::all(self.client.clone());
        eventually(SOON, || async {
            let mut reasons = BTreeSet::new();
            for event in events.list(&ListParams::default()).await? {
                if event.source.and_then(|source| source.component).as_deref() != Some("bridger") {
                    continue;
                }
                let reason = event.reason.unwrap_or_default();
                let about = event.involved_object.kind.unwrap_or_default();
                let row = vec![reason.clone(), event.type_.unwrap_or_default(), about, "event".to_owned()];
                if known.contains(&row) {
                    reasons.insert(reason);
                } else {
                    println_new(&row);
                }
            }
            ensure!(wanted.iter().all(|reason| reasons.contains(*reason)), "expected {wanted:?}, found {reasons:?}");
            Ok(())
        })
        .await
    }

    /// Checks that a new snapshot has every field of the golden one, for each kind of object.
    async fn check_snapshot(&self) -> Result<()> {
        let workdir = testkit::workdir::Workdir::create("snapshot")?;
        let file = workdir.path().join("world.json").display().to_string();
        let finished = testkit::bridger::run_to_end(&["snapshot", &file], &environment(&self.sandbox)).await?;
        ensure!(finished.code == Some(0), "{finished:?}");
        let now: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        let golden: Value = serde_json::from_str(&golden::read("snapshot/world.json"))?;
        ensure!((&now["kind"], &now["version"]) == (&golden["kind"], &golden["version"]), "{}", now["kind"]);
        for pointer in [
            "",
            "/namespaces/0",
            "/nodes/0",
            "/nodes/0/scheduling",
            "/nodes/0/scheduling/allocatable",
            "/pods/0",
            "/pods/0/pinning",
            "/pods/0/scheduling",
            "/pods/0/scheduling/requests",
            "/pods/0/scheduling/requests/asked",
            "/vcenters/0",
            "/vcenters/0/clusters/0",
            "/vcenters/0/clusters/0/ha",
            "/vcenters/0/clusters/0/rules/0",
            "/vcenters/0/hosts/0",
            "/vcenters/0/hosts/0/load",
            "/vcenters/0/vms/0",
        ] {
            let fields = |of: &Value| -> Option<BTreeSet<String>> {
                Some(of.pointer(pointer)?.as_object()?.keys().cloned().collect())
            };
            let golden = fields(&golden).with_context(|| format!("{pointer} is not in the golden snapshot"))?;
            let now = fields(&now).with_context(|| format!("{pointer} is missing"))?;
            let missing: Vec<&String> = golden.difference(&now).collect();
            ensure!(missing.is_empty(), "{pointer}: no longer there, see tests/golden/README.md: {missing:?}");
        }
        Ok(())
    }

    /// Checks the name, labels and keys of the ConfigMap with the rule record.
    async fn check_record(&self) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kube-system");
        let by_labels = ListParams::default().labels("app.kubernetes.io/managed-by=bridger,bridger.dev/kind=rules");
        let map =
            eventually(SOON, || async { maps.list(&by_labels).await?.items.into_iter().next().context("no record") })
                .await?;
        let data = map.data.unwrap_or_default();
        let shown = json!({
            "name": map.metadata.name, "labels": map.metadata.labels, "keys": data.keys().collect::<Vec<_>>(),
            "data.name": data.get("name"),
        });
        golden::assert_same("config-map.json", &format!("{shown:#}\n"));
        Ok(())
    }
}

#[allow(clippy::print_stdout)]
fn println_new(row: &[String]) {
    println!("new, and not in reasons.tsv: {row:?}");
}

#[tokio::test]
async fn golden_interfaces_of_a_running_bridger_are_unchanged() -> Result<()> {
    let stage = Stage::start().await?;
    stage.schedule().await?;
    stage.ask().await?;
    stage.spoil_label().await?;
    stage.check_events(&["Scheduled", "FailedScheduling", "LabelChangedByOthers"]).await?;
    stage.check_record().await?;
    compare(&stage.run, "metrics/run.json").await?;
    compare(&stage.scheduler, "metrics/scheduler.json").await?;
    // The rule may not exist yet.
    eventually(SOON, || stage.check_snapshot()).await
}
