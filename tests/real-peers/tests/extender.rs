//! Runs kube-scheduler with Bridger as its extender, kube-apiserver and vcsim: anti-affinity between nodes applies
//! between physical hosts, in any order of pods and for any moves of VMs.

#[path = "machines/mod.rs"]
mod machines;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use machines::{HOSTS, Machines, VMS, anti_affine_spec, node_name, node_names, unschedulable_message};
use serde_json::{Value, json};
use testkit::{Bridger, Scheduler, count, eventually};
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(30);
/// kube-scheduler retries a pod after a back-off of up to 10 s.
const RETRIED: Duration = Duration::from_secs(60);
/// `schedulerName` of pods that the test itself binds through the extender.
const BY_TEST: &str = "by-test";
const BOUND: &str = "bridger_extender_bindings_total{outcome=\"bound\"}";
const CONFLICTS: &str = "bridger_extender_bindings_total{outcome=\"conflict\"}";

struct Stage {
    machines: Machines,
    bridger: Bridger,
    scheduler: Scheduler,
    pods: Api<Pod>,
    client: kube::Client,
}

/// The output of `bridger manifests scheduler-config` for this Bridger.
async fn scheduler_config(address: &str) -> Result<Value> {
    let url = format!("http://{address}/v1");
    let printed = testkit::bridger::run_to_end(&["manifests", "scheduler-config", "--url", &url], &[]).await?;
    ensure!(printed.code == Some(0), "{printed:?}");
    Ok(serde_saphyr::from_str(&printed.stdout)?)
}

/// The host on which the node's VM was placed at the start.
fn first_host(node: &str) -> Option<u32> {
    (0..VMS).find(|number| node_name(*number) == node).map(|number| number % HOSTS)
}

fn name_of(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

impl Stage {
    async fn start(in_maintenance: &[u32]) -> Result<Stage> {
        let machines = Machines::start(in_maintenance).await?;
        let environment = [
            ("KUBECONFIG", machines.control_plane.kubeconfig().display().to_string()),
            ("GOVC_URL", machines.vcsim.govc_url()),
            ("GOVC_INSECURE", "true".to_owned()),
            ("NO_COLOR", "1".to_owned()),
        ];
        let mut arguments = vec!["run", "--port", "0", "--extender-port", "0", "--listen", "127.0.0.1"];
        arguments.extend(["default-scheduler", BY_TEST].iter().flat_map(|name| ["--extender-scheduler-name", name]));
        let mut bridger = Bridger::start(&arguments, &environment)?;
        bridger.prints(&format!("{VMS} of {VMS} matched to a VM"), SOON).await?;
        let config = scheduler_config(&bridger.extender_address()?).await?;
        let scheduler = Scheduler::start(&machines.control_plane, Some(config)).await?;
        let client = machines.control_plane.client().await?;
        let pods = Api::default_namespaced(client.clone());
        Ok(Stage { machines, bridger, scheduler, pods, client })
    }

    async fn create(&self, app: &str, name: &str) -> Result<()> {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "app": app } },
            "spec": anti_affine_spec(app, "default-scheduler"),
        }))?;
        self.pods.create(&PostParams::default(), &pod).await?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// The nodes that pods of this app are bound to, by pod.
    async fn placed(&self, app: &str) -> Result<BTreeMap<String, String>> {
        let listed = self.pods.list(&ListParams::default().labels(&format!("app={app}"))).await?;
        let placed = listed.items.into_iter().filter_map(|pod| Some((pod.metadata.name?, pod.spec?.node_name?)));
        Ok(placed.collect())
    }

    async fn placed_becomes(&self, app: &str, count: usize, within: Duration) -> Result<BTreeMap<String, String>> {
        eventually(within, || async {
            let placed = self.placed(app).await?;
            ensure!(
                placed.len() == count,
                "{placed:?} instead of {count}:\n{}\n{}",
                self.scheduler.log_tail(),
                self.bridger.output()
            );
            Ok(placed)
        })
        .await
    }

    /// Checks in vcsim that `count` pods of the app are placed, each on a different physical host.
    async fn on_distinct_hosts(&self, app: &str, count: usize) -> Result<()> {
        let placed = self.placed(app).await?;
        let mut hosts = BTreeSet::new();
        for node in placed.values() {
            hosts.insert(self.machines.host_of(node).await?);
        }
        ensure!(hosts.len() == count && placed.len() == count, "{placed:?} are on {hosts:?}");
        Ok(())
    }

    /// A ReplicaSet with zero replicas.
    async fn replica_set(&self, app: &str, scheduler: &str) -> Result<ReplicaSet> {
        let sets: Api<ReplicaSet> = Api::default_namespaced(self.client.clone());
        let set = serde_json::from_value(json!({
            "metadata": { "name": app },
            "spec": { "replicas": 0, "selector": { "matchLabels": { "app": app } },
                "template": { "metadata": { "labels": { "app": app } }, "spec": anti_affine_spec(app, scheduler) } },
        }))?;
        Ok(sets.create(&PostParams::default(), &set).await?)
    }

    async fn set_replicas(&self, set: &ReplicaSet, replicas: usize) -> Result<()> {
        let sets: Api<ReplicaSet> = Api::default_namespaced(self.client.clone());
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        sets.patch(set.metadata.name.as_deref().unwrap_or_default(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Creates the pods at once, as the ReplicaSet controller does: from the template, with a name suffix and an owner
    /// reference.
    async fn scale_up(&self, set: &ReplicaSet, replicas: usize) -> Result<Vec<Pod>> {
        self.set_replicas(set, replicas).await?;
        let set = serde_json::to_value(set)?;
        let (name, template) = (set["metadata"]["name"].as_str().unwrap_or_default(), &set["spec"]["template"]);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "generateName": format!("{name}-"),
                "labels": template["metadata"]["labels"],
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name,
                    "uid": set["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true }],
            },
            "spec": template["spec"],
        }))?;
        let parameters = PostParams::default();
        Ok(try_join_all((0..replicas).map(|_| self.pods.create(&parameters, &pod))).await?)
    }

    /// Deletes the pods and waits until Bridger has observed it, so that the next pods find all hosts free.
    async fn scale_down(&self, set: &ReplicaSet, replicas: &[Pod]) -> Result<()> {
        self.set_replicas(set, 0).await?;
        try_join_all(replicas.iter().map(|replica| self.delete(name_of(replica)))).await?;
        let app = set.metadata.name.as_deref().unwrap_or_default();
        eventually(SOON, || async {
            let answer = self.filter(&probe(app)).await?;
            ensure!(answer["NodeNames"] == json!(node_names()), "{answer}");
            Ok(())
        })
        .await
    }

    /// Calls Bridger's filter with all nodes, as kube-scheduler would.
    async fn filter(&self, pod: &Value) -> Result<Value> {
        self.bridger.post("/filter", &json!({ "Pod": pod, "Nodes": null, "NodeNames": node_names() })).await
    }

    /// Lets Bridger bind a pod, as kube-scheduler would. Returns the error that Bridger reports, or an empty string. On
    /// a busy machine its watch may show a new pod later than a bind request waits for it: then it is asked again.
    async fn bind(&self, pod: &Pod, node: &str) -> Result<String> {
        let binding = json!({ "PodName": pod.metadata.name, "PodNamespace": pod.metadata.namespace,
            "PodUID": pod.metadata.uid, "Node": node });
        let deadline = Instant::now() + SOON;
        loop {
            let answer = self.bridger.post("/bind", &binding).await?;
            let error = answer["Error"].as_str().with_context(|| answer.to_string())?;
            if !error.ends_with("is not known to Bridger") || Instant::now() >= deadline {
                return Ok(error.to_owned());
            }
        }
    }

    /// The value of one of Bridger's metrics.
    async fn figure(&self, name: &str) -> Result<u64> {
        let metrics = self.bridger.get("/metrics").await?;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        Ok(value.with_context(|| format!("{name} is missing:\n{metrics}"))?.trim().parse()?)
    }

    /// Waits until kube-scheduler reports this reason why the pod is pending.
    async fn waits_because(&self, name: &str, expected: &str) -> Result<()> {
        eventually(SOON, || async {
            let pod = self.pods.get(name).await?;
            let message = unschedulable_message(&pod).with_context(|| format!("{name} has no reason yet"))?;
            ensure!(message.contains(expected), "{message}");
            Ok(())
        })
        .await
    }
}

/// A pod without terms: only the terms of other pods apply.
fn probe(app: &str) -> Value {
    json!({ "metadata": { "name": "probe", "namespace": "default", "uid": "probe", "labels": { "app": app } } })
}

#[tokio::test]
async fn replicas_land_on_different_hosts_and_moves_are_followed() -> Result<()> {
    let stage = Stage::start(&[]).await?;
    for replica in ["a1", "a2", "a3"] {
        stage.create("a", replica).await?;
    }
    stage.placed_becomes("a", 3, RETRIED).await?;
    stage.on_distinct_hosts("a", 3).await?;

    // A fourth replica stays pending, and both kube-scheduler and Bridger report why.
    stage.create("a", "a4").await?;
    stage.waits_because("a4", "6 node(s) didn't match pod anti-affinity rules between physical hosts").await?;
    let events: Api<Event> = Api::default_namespaced(stage.client.clone());
    eventually(SOON, || async {
        let listed = events.list(&ListParams::default().fields("involvedObject.name=a4")).await?;
        let messages: Vec<String> = listed
            .items
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("NoHostFits"))
            .filter_map(|event| event.message)
            .collect();
        let names_both = |text: &String| text.contains("default/a") && text.contains("DC0_C0_H");
        ensure!(messages.len() == 1 && messages.iter().all(names_both), "{messages:?}");
        Ok(())
    })
    .await?;

    // The VM of the third replica moves to another replica's host. Its own host is free then.
    let placed = stage.placed("a").await?;
    let third = placed["a3"].clone();
    let freed = stage.machines.host_of(&third).await?;
    stage.machines.migrate(&third, &stage.machines.host_of(&placed["a1"]).await?).await?;
    let placed = stage.placed_becomes("a", 4, RETRIED).await?;
    assert_eq!(stage.machines.host_of(&placed["a4"]).await?, freed);

    // The second replica is deleted, and the third one's VM moves to its host. That host is occupied again.
    let emptied = stage.machines.host_of(&placed["a2"]).await?;
    stage.delete("a2").await?;
    stage.machines.migrate(&third, &emptied).await?;
    eventually(SOON, || async {
        let nodes: Api<Node> = Api::all(stage.client.clone());
        let labels = nodes.get(&third).await?.metadata.labels.unwrap_or_default();
        ensure!(labels.get("alpha.cna.vmware.com/host") == Some(&emptied), "{labels:?}");
        Ok(())
    })
    .await?;
    stage.create("a", "a5").await?;
    stage.waits_because("a5", "between physical hosts").await?;

    let metrics = stage.bridger.get("/metrics").await?;
    for expected in [
        "bridger_extender_requests_total{verb=\"filter\",outcome=\"ok\"}",
        "bridger_extender_requests_total{verb=\"bind\",outcome=\"ok\"} 4",
        "bridger_extender_seconds_bucket",
    ] {
        assert!(metrics.contains(expected), "{expected} is missing:\n{metrics}");
    }
    Ok(())
}

#[tokio::test]
async fn number_8_large_preempt_requests_do_not_keep_others_waiting() -> Result<()> {
    let stage = Stage::start(&[]).await?;
    let terms: Vec<Value> = (0..300)
        .map(|number| {
            json!({ "topologyKey": "kubernetes.io/hostname",
                "labelSelector": { "matchLabels": { "app": format!("app-{number}") } } })
        })
        .collect();
    let affinity = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } });
    let pod = json!({ "metadata": { "name": "p", "namespace": "default", "uid": "u" },
        "spec": { "affinity": affinity, "containers": [{ "name": "main", "image": "none" }] } });
    let entry = format!("\"{}\":{{\"Pods\":[{{\"UID\":\"v\"}}],\"NumPDBViolations\":0}}", node_name(0));
    let repeated = vec![entry; (2 << 20) / 60].join(",");
    let body = format!("{{\"Pod\":{pod},\"NodeNameToVictims\":null,\"NodeNameToMetaVictims\":{{{repeated}}}}}");
    let attack = try_join_all((0..4).map(|_| stage.bridger.post_text("/preempt", &body)));
    let others = async {
        for _ in 0..10 {
            let ready = tokio::time::timeout(Duration::from_secs(2), stage.bridger.get("/readyz")).await;
            ensure!(ready.context("no answer in 2 s")??.contains("200 OK"));
            let filter = json!({ "Pod": { "metadata": { "name": "q", "namespace": "default", "uid": "w" }, "spec": {} },
                "NodeNames": [node_name(0)] });
            let filtered = tokio::time::timeout(Duration::from_secs(2), stage.bridger.post("/filter", &filter)).await;
            filtered.context("no answer in 2 s")??;
        }
        Ok(())
    };
    let (answers, others) = tokio::join!(attack, others);
    others?;
    for answer in answers? {
        ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        ensure!(answer.matches(&node_name(0)).count() == 1, "the node once");
    }
    Ok(())
}

/// kube-scheduler does not inform an extender of pods that it has placed but not bound yet.
#[tokio::test]
#[allow(clippy::print_stdout)]
async fn replicas_created_together_never_share_a_host() -> Result<()> {
    let stage = Stage::start(&[]).await?;
    let set = stage.replica_set("web", "default-scheduler").await?;
    let rounds = count(6, 100);
    for round in 0..rounds {
        let replicas = stage.scale_up(&set, 3).await?;
        let placed = stage.placed_becomes("web", 3, RETRIED).await?;
        // Nothing moves here: VMs are still on their first hosts.
        let hosts: Option<BTreeSet<u32>> = placed.values().map(|node| first_host(node)).collect();
        ensure!(hosts.is_some_and(|hosts| hosts.len() == 3), "round {round}: {placed:?}");
        stage.scale_down(&set, &replicas).await?;
    }
    let (bound, met) = (stage.figure(BOUND).await?, stage.figure(CONFLICTS).await?);
    ensure!(bound == 3 * rounds as u64, "{bound} pods were bound in {rounds} rounds");
    // The race happens by chance in about one of five rounds, so it must occur in 100 rounds.
    ensure!(met > 0 || rounds < 100, "no binding was ever rejected in {rounds} rounds");
    println!("{rounds} rounds; kube-scheduler chose an occupied host and the bind was rejected {met} times");

    // Force the same race: filter has accepted all nodes for both replicas, and they are bound at the same time to the
    // two nodes of one host.
    let pair = stage.replica_set("pair", BY_TEST).await?;
    let races = count(3, 30);
    for race in 0..races {
        let host = u32::try_from(race)? % HOSTS;
        let replicas = stage.scale_up(&pair, 2).await?;
        for replica in &replicas {
            let answer = stage.filter(&serde_json::to_value(replica)?).await?;
            ensure!(answer["NodeNames"] == json!(node_names()), "{answer}");
        }
        let nodes = [node_name(host), node_name(host + HOSTS)];
        let answers =
            try_join_all(replicas.iter().zip(&nodes).map(|(replica, node)| stage.bind(replica, node))).await?;
        let rejected: Vec<usize> = (0..2).filter(|index| !answers[*index].is_empty()).collect();
        ensure!(rejected.len() == 1, "race {race}: {answers:?}");
        ensure!(answers[rejected[0]].contains("between physical hosts"), "race {race}: {answers:?}");
        let placed = stage.placed("pair").await?;
        let (loser, winner) = (&replicas[rejected[0]], 1 - rejected[0]);
        ensure!(
            placed == BTreeMap::from([(name_of(&replicas[winner]).to_owned(), nodes[winner].clone())]),
            "{placed:?}"
        );
        // The rejected replica can still be bound on another host.
        let elsewhere = stage.bind(loser, &node_name((host + 1) % HOSTS)).await?;
        ensure!(elsewhere.is_empty(), "race {race}: {elsewhere}");
        stage.on_distinct_hosts("pair", 2).await?;
        stage.scale_down(&pair, &replicas).await?;
    }
    let conflicts = stage.figure(CONFLICTS).await? - met;
    ensure!(conflicts == races as u64, "{conflicts} conflicts in {races} races");
    Ok(())
}

#[tokio::test]
async fn a_host_in_maintenance_gets_no_pods_and_a_vcenter_outage_changes_nothing() -> Result<()> {
    let mut stage = Stage::start(&[0]).await?;
    eventually(SOON, || async {
        let answer = stage.filter(&probe("b")).await?;
        let rejected = answer["FailedAndUnresolvableNodes"].as_object().map(serde_json::Map::len);
        ensure!(rejected == Some(2), "{answer}");
        Ok(())
    })
    .await
    .context("waiting until two nodes are rejected")?;
    stage.machines.vcsim.kill();
    eventually(SOON, || async {
        let ready = stage.bridger.get("/readyz").await?;
        ensure!(ready.contains("ready, degraded"), "{ready}");
        Ok(())
    })
    .await
    .context("waiting until the lost vCenter is reported")?;
    // The last known hosts still apply.
    for replica in ["b1", "b2", "b3"] {
        stage.create("b", replica).await?;
    }
    let placed = stage.placed_becomes("b", 2, RETRIED).await?;
    let hosts: BTreeSet<u32> = placed.values().filter_map(|node| first_host(node)).collect();
    assert_eq!(hosts, BTreeSet::from([1, 2]));
    Ok(())
}
