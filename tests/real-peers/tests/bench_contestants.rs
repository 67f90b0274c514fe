//! The scheduler benchmarks compare like with like: every binding counts, all contestants have the same identity and the
//! same allocator, and the lower bounds (null binder, extender that accepts everything) do what Bridger cannot do without.

#[path = "../examples/scheduler/contestant.rs"]
mod contestant;
#[path = "../examples/extender/ways.rs"]
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Binding, Node, Pod};
use kube::api::{Api, ListParams, PostParams};
use real_peers::bench::{
    Arrival, Cluster, Constraint, Contender, Running, Scene, Selection, Setup, Size, Source, Until, Workload,
};
use serde_json::{Value, json};
use testkit::proxy::Points;
use testkit::proxy::kubernetes::KubernetesProxy;
use testkit::workdir::Workdir;
use testkit::{Bridger, ControlPlane, eventually};
use tokio::task::JoinHandle;

use self::contestant::Kind;
use self::ways::Way;

const SOON: Duration = Duration::from_secs(60);
const PODS: usize = 3;

/// A program of a benchmark; `cargo test` builds it with this test.
fn example(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().and_then(Path::parent).context("the folder of this build")?;
    let program = folder.join("examples").join(name);
    ensure!(program.exists(), "{} is not built: cargo build -p real-peers --examples", program.display());
    Ok(program)
}

fn node(name: &str) -> Result<Node> {
    let capacity = json!({ "cpu": "16", "memory": "64Gi", "pods": "110" });
    let ready = json!([{ "type": "Ready", "status": "True", "reason": "Test", "message": "",
        "lastHeartbeatTime": null, "lastTransitionTime": null }]);
    Ok(serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "status": { "capacity": capacity, "allocatable": capacity, "conditions": ready },
    }))?)
}

/// Creates pods whose names begin with this.
async fn create(pods: &Api<Pod>, prefix: &str, scheduler_name: &str) -> Result<()> {
    for number in 0..PODS {
        let pod = json!({ "metadata": { "name": format!("{prefix}-{number}") },
            "spec": { "schedulerName": scheduler_name, "containers": [{ "name": "main", "image": "none" }] } });
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    }
    Ok(())
}

async fn all_bound(pods: &Api<Pod>, prefix: &str) -> Result<()> {
    eventually(SOON, || async {
        for number in 0..PODS {
            let pod = pods.get(&format!("{prefix}-{number}")).await?;
            ensure!(pod.spec.is_some_and(|spec| spec.node_name.is_some()), "{prefix}-{number} is pending");
        }
        Ok(())
    })
    .await
}

/// Binds all pods at once, except the last one.
#[derive(Clone, Copy)]
struct Late;

const LATE: Duration = Duration::from_secs(2);
const FAILED: usize = 3;

impl Contender for Late {
    type Beside = ();
    type Running = LateRun;

    fn name(self) -> &'static str {
        "late"
    }

    fn takes_turns(self) -> bool {
        false
    }

    async fn beside(self, _: &ControlPlane) -> Result<()> {
        Ok(())
    }

    async fn start(self, (): (), control_plane: &ControlPlane) -> Result<LateRun> {
        let pods: Api<Pod> = Api::namespaced(control_plane.client().await?, "bench");
        Ok(LateRun(tokio::spawn(async move {
            let mut all = pods.list(&ListParams::default()).await?.items;
            let last = all.pop().context("a pod")?;
            let bind = async |pod: Pod| {
                let name = pod.metadata.name.context("a name")?;
                let target = json!({ "apiVersion": "v1", "kind": "Node", "name": "node-00000" });
                let binding: Binding =
                    serde_json::from_value(json!({ "metadata": { "name": name }, "target": target }))?;
                let path = format!("/api/v1/namespaces/bench/pods/{name}/binding");
                let request = http::Request::post(path).header("content-type", "application/json");
                pods.clone().into_client().request_text(request.body(serde_json::to_vec(&binding)?)?).await?;
                anyhow::Ok(())
            };
            for pod in all {
                bind(pod).await?;
            }
            tokio::time::sleep(LATE).await;
            bind(last).await
        })))
    }
}

struct LateRun(JoinHandle<Result<()>>);

impl Drop for LateRun {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Running for LateRun {
    fn pid(&self) -> Option<u32> {
        Some(std::process::id())
    }

    fn output(&self) -> String {
        String::new()
    }

    async fn metrics(&self) -> Result<Option<String>> {
        let attempts = |result: &str, count: usize| {
            format!("scheduler_schedule_attempts_total{{profile=\"late\",result=\"{result}\"}} {count}\n")
        };
        Ok(Some(attempts("scheduled", 20) + &attempts("error", FAILED)))
    }
}

#[tokio::test]
async fn number_8_benchmarks_count_the_last_binding_and_failed_attempts() -> Result<()> {
    let size = Size { nodes: 2, hosts: 2, zones: 1, running: 0, measured: 20, limit: SOON };
    let setup = Setup { size, scheduler_name: "late", until: Until::Bound, arrival: Arrival::Before };
    let cluster = Cluster::start(setup).await?;
    let selection = Selection::parse(["--load=empty".to_owned()])?;
    let workloads = [Workload::new("basic", Constraint::Nothing, Workload::ONE_GROUP)];
    let show = |round: &real_peers::bench::Round| {
        let figures = json!({ "rate": round.pods_per_second, "took_s": round.took_s, "most_took_s": round.most_took_s,
            "failed": round.failed_attempts });
        (String::new(), figures)
    };
    let rounds = cluster.rounds(&[Late], &selection, &workloads, show).await?;
    let figure = |member: &str| rounds["empty"]["basic"]["late"][0][member].as_f64().context(rounds.to_string());
    let (rate, took_s, most_took_s) = (figure("rate")?, figure("took_s")?, figure("most_took_s")?);
    ensure!(took_s >= LATE.as_secs_f64(), "all took {took_s} s");
    ensure!(most_took_s <= took_s - LATE.as_secs_f64() / 2.0, "95 % took {most_took_s} s, all {took_s} s");
    // Without the first bindings, with which the time begins.
    ensure!(rate <= 20.0 / took_s, "{rate} pods/s, all took {took_s} s");
    assert_eq!(figure("failed")?, FAILED as f64);
    Ok(())
}

#[tokio::test]
async fn benchmarks_of_preemption_and_volumes_compare_the_two_schedulers_that_decide_them() -> Result<()> {
    const NODES: usize = 20;
    let size = Size { nodes: NODES, hosts: 10, zones: 2, running: 6 * NODES, measured: 1, limit: SOON };
    let setup = Setup {
        size,
        scheduler_name: contestant::SCHEDULER_NAME,
        until: Until::EventsPosted,
        arrival: Arrival::Before,
    };
    let cluster = Cluster::start(setup).await?;
    let workloads = [
        Workload::in_scene("preemption", Scene::Preemption { pods: PODS }),
        Workload::in_scene("volumes, local", Scene::Volumes { pods: PODS, source: Source::Local { nodes: 10 } }),
        Workload::in_scene("volumes, provisioned", Scene::Volumes { pods: PODS, source: Source::Provisioned }),
    ];
    let show = |round: &real_peers::bench::Round| {
        (
            String::new(),
            json!({ "took_s": round.took_s, "most_took_s": round.most_took_s, "failed": round.failed_attempts }),
        )
    };
    let selection = Selection::parse(["--turns=1".to_owned()])?.in_pairs(1);
    let own = example("scheduler")?;
    let rounds = cluster.rounds(&Kind::all(&own, None), &selection, &workloads, show).await?;
    assert_eq!(rounds["empty"], json!({}), "there is room in an empty cluster");
    for workload in workloads {
        let contestants = rounds["loaded"][workload.name].as_object().context("contestants")?;
        let names: Vec<&str> = contestants.keys().map(String::as_str).collect();
        assert_eq!(names, ["bridger", "kube-scheduler"], "{}", workload.name);
        for (name, turns) in contestants {
            let figure =
                |member: &str| turns[0][member].as_f64().with_context(|| format!("{member} of {name}: {turns}"));
            let (took_s, most_took_s, failed) = (figure("took_s")?, figure("most_took_s")?, figure("failed")?);
            ensure!(took_s > 0.0 && most_took_s <= took_s, "{name}: {turns}");
            // A pod that preempts others fails first, also the one that shows that the contestant is ready.
            let fails_at_first = matches!(workload.scene, Scene::Preemption { .. });
            ensure!(!fails_at_first || failed >= (PODS + 1) as f64, "{}, {name}: {turns}", workload.name);
        }
    }
    let pods: Api<Pod> = Api::namespaced(cluster.control_plane().client().await?, "bench");
    let left = pods.list_metadata(&ListParams::default()).await?.items.len();
    assert_eq!(left, size.running, "victims and measured pods are gone");
    Ok(())
}

const POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  resources: [{ group: "", resources: [pods/binding] }]
- level: None
"#;

/// The users that bound pods, by the first part of the pods' names.
fn users(audit: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in std::fs::read_to_string(audit)?.lines() {
        let event: Value = serde_json::from_str(line)?;
        let pod = event["objectRef"]["name"].as_str().context("a pod")?;
        let prefix = pod.rsplit_once('-').context("a number")?.0;
        let user = event["user"]["username"].as_str().context("a user")?;
        users.entry(prefix.to_owned()).or_default().insert(user.to_owned());
    }
    Ok(users)
}

#[tokio::test]
async fn number_8_all_contestants_of_benchmarks_bind_as_kube_scheduler() -> Result<()> {
    let workdir = Workdir::create("bench-audit")?;
    let policy = workdir.write("policy.yaml", POLICY)?;
    let audit = workdir.write("audit.log", "")?;
    let flags = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", audit.display()),
        "--audit-log-mode=blocking".to_owned(),
        "--disable-admission-plugins=TaintNodesByCondition".to_owned(),
    ];
    let control_plane = ControlPlane::start_with(&flags.each_ref().map(String::as_str)).await?;
    let client = control_plane.client().await?;
    let (pods, nodes): (Api<Pod>, Api<Node>) = (Api::default_namespaced(client.clone()), Api::all(client));
    for name in ["n1", "n2"] {
        nodes.create(&PostParams::default(), &node(name)?).await?;
    }
    let mut contestants = BTreeSet::new();
    for kind in Kind::all(&example("scheduler")?, None) {
        let prefix = format!("scheduler-{}", kind.name().replace(' ', "-"));
        create(&pods, &prefix, contestant::SCHEDULER_NAME).await?;
        let running = kind.start((), &control_plane).await?;
        all_bound(&pods, &prefix).await.with_context(|| running.output())?;
        contestants.insert(prefix);
    }
    for way in Way::all(None) {
        let prefix = format!("extender-{}", way.name());
        let beside = way.beside(&control_plane).await?;
        create(&pods, &prefix, ways::SCHEDULER_NAME).await?;
        let running = way.start(beside, &control_plane).await?;
        all_bound(&pods, &prefix).await.with_context(|| running.output())?;
        contestants.insert(prefix);
    }
    assert_eq!(contestants.len(), 7, "{contestants:?}");
    let only = BTreeSet::from(["system:kube-scheduler".to_owned()]);
    let expected = contestants.into_iter().map(|prefix| (prefix, only.clone())).collect();
    assert_eq!(users(&audit)?, expected);
    Ok(())
}

/// The paths that are read, and the kinds of requests that write.
fn requests(points: &Points) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
    for (_, step) in points.arrived() {
        match step.split_once(' ') {
            Some(("GET", path)) => read.insert(path.to_owned()),
            Some((method, path)) => written.insert(format!("{method} {}", path.rsplit('/').next().unwrap_or_default())),
            None => false,
        };
    }
    (read, written)
}

#[tokio::test]
async fn number_8_the_null_binder_of_benchmarks_reads_and_writes_no_more_than_bridger() -> Result<()> {
    let control_plane = ControlPlane::start_with(&["--disable-admission-plugins=TaintNodesByCondition"]).await?;
    let client = control_plane.client().await?;
    let (pods, nodes): (Api<Pod>, Api<Node>) = (Api::default_namespaced(client.clone()), Api::all(client.clone()));
    nodes.create(&PostParams::default(), &node("n1")?).await?;
    let (of_null_binder, of_bridger) = (Points::default(), Points::default());
    let both_written = |points: &Points| requests(points).1.len() >= 2;

    create(&pods, "null", contestant::SCHEDULER_NAME).await?;
    let proxy = KubernetesProxy::start(client.clone(), "", of_null_binder.clone()).await?;
    let null_binder = contestant::null_binder(&example("scheduler")?, proxy.kubeconfig())?;
    all_bound(&pods, "null").await?;
    eventually(SOON, || async {
        ensure!(both_written(&of_null_binder), "{:?}", requests(&of_null_binder));
        Ok(())
    })
    .await?;
    drop(null_binder);

    create(&pods, "own", contestant::SCHEDULER_NAME).await?;
    let proxy = KubernetesProxy::start(client, "", of_bridger.clone()).await?;
    let environment = [("KUBECONFIG", proxy.kubeconfig().display().to_string())];
    let arguments = [&contestant::ALONE[..], &["--leader-elect=false"]].concat();
    let bridger = Bridger::start(&arguments, &environment)?;
    all_bound(&pods, "own").await.with_context(|| bridger.output())?;
    eventually(SOON, || async {
        ensure!(both_written(&of_bridger), "{:?}", requests(&of_bridger));
        Ok(())
    })
    .await?;

    let ((read, written), (read_by_bridger, written_by_bridger)) = (requests(&of_null_binder), requests(&of_bridger));
    assert_eq!(read, BTreeSet::from(["/api/v1/nodes", "/api/v1/pods"].map(str::to_owned)));
    assert_eq!(written, BTreeSet::from(["POST binding", "POST events"].map(str::to_owned)));
    ensure!(read.is_subset(&read_by_bridger), "{read:?} {read_by_bridger:?}");
    ensure!(written.is_subset(&written_by_bridger), "{written:?} {written_by_bridger:?}");
    Ok(())
}

#[tokio::test]
async fn number_8_the_lower_bounds_of_benchmarks_have_the_allocator_of_bridger() -> Result<()> {
    let verbose = ("MIMALLOC_VERBOSE", "1".to_owned());
    let bridger = testkit::bridger::run_to_end(&["--version"], std::slice::from_ref(&verbose)).await?;
    ensure!(bridger.stderr.contains("mimalloc: "), "bridger: {bridger:?}");
    // Both end at once: there is no such file, and no such argument.
    for (program, arguments) in [("scheduler", &["null-binder", "/nonexistent"][..]), ("extender", &["--nonsense"])] {
        let output =
            tokio::process::Command::new(example(program)?).args(arguments).env(verbose.0, &verbose.1).output();
        let output = tokio::time::timeout(SOON, output).await??;
        let printed = String::from_utf8_lossy(&output.stderr);
        ensure!(printed.contains("mimalloc: "), "{program}: {printed}");
    }
    Ok(())
}
