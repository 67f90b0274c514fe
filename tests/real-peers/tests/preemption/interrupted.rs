//! Preemptions that are interrupted: Bridger is killed at a request of one, or while the victims end; a second instance runs meanwhile;
//! the API server refuses evictions for a while. The pod is bound in the end, and no more pods are evicted than it needs.
//!
//! The victims have a finalizer that the test removes, as a kubelet removes a pod when its containers have ended.

use std::collections::BTreeSet;
use std::time::Instant;

use futures::future::try_join_all;
use kube::api::DeleteParams;
use testkit::Audit;
use testkit::proxy::kubernetes::KubernetesProxy;
use testkit::proxy::{Points, When};
use tokio::task::JoinHandle;

use super::*;

const FINALIZER: &str = "example.com/runs";
/// How long a victim takes to end.
const ENDS_WITHIN: Duration = Duration::from_millis(400);
const LEASE: &str = "bridger-scheduler-bridger";
const SHORT: [&str; 3] =
    ["--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"];
const ALONE: [&str; 1] = ["--leader-elect=false"];
const NODES: usize = 2;
/// Of one CPU each, as many as a node has; the pod that preempts needs three.
const PODS_PER_NODE: usize = 4;
const VICTIMS: usize = 3;

struct Stage {
    control_plane: ControlPlane,
    audit: Audit,
    pods: Api<Pod>,
    ends: Option<JoinHandle<()>>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.victims_end_no_more();
    }
}

impl Stage {
    async fn start() -> Result<Stage> {
        let audit = Audit::create()?;
        let flags = audit.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let flags = [&["--disable-admission-plugins=TaintNodesByCondition"], &flags[..]].concat();
        let control_plane = ControlPlane::start_with(&flags).await?;
        let client = control_plane.client().await?;
        let classes: Api<PriorityClass> = Api::all(client.clone());
        for (name, value) in [("low", 1), ("high", 1000)] {
            let class = json!({ "metadata": { "name": name }, "value": value });
            classes.create(&PostParams::default(), &serde_json::from_value(class)?).await?;
        }
        Ok(Stage { control_plane, audit, pods: Api::default_namespaced(client), ends: None })
    }

    /// The nodes of a group, full of pods that are less important.
    async fn fill(&self, group: &str) -> Result<()> {
        let side = self.side(group).await?;
        side.set_up().await?;
        let pods = (0..NODES * PODS_PER_NODE).map(|number| {
            let mut pod = side.pod(&format!("{group}-low-{number}"), "1", "low");
            pod["metadata"]["finalizers"] = json!([FINALIZER]);
            pod["spec"]["nodeName"] = json!(side.node(1 + number / PODS_PER_NODE));
            pod
        });
        try_join_all(pods.map(|pod| side.create(pod))).await?;
        Ok(())
    }

    /// What the story of kube-scheduler's comparison creates nodes and pods with.
    async fn side(&self, group: &str) -> Result<Side> {
        let client = self.control_plane.client().await?;
        Ok(Side { scheduler: "bridger", namespace: "default".to_owned(), client, group: group.to_owned() })
    }

    async fn create_high(&self, group: &str) -> Result<()> {
        let side = self.side(group).await?;
        side.create(side.pod(&format!("{group}-high"), &VICTIMS.to_string(), "high")).await
    }

    async fn instance(&self, kubeconfig: &Path, flags: &[&str]) -> Result<Bridger> {
        let environment = [("KUBECONFIG", kubeconfig.display().to_string()), ("NO_COLOR", "1".to_owned())];
        let mut bridger = Bridger::start(&[&["scheduler", "--port", "0"], flags].concat(), &environment)?;
        bridger.prints("Listening", SOON).await?;
        eventually(SOON, || async {
            let ready = bridger.get("/readyz").await?;
            ensure!(ready.starts_with("HTTP/1.1 200"), "{ready}");
            Ok(())
        })
        .await?;
        Ok(bridger)
    }

    async fn terminating(&self) -> Result<Vec<Pod>> {
        let pods = self.pods.list(&ListParams::default()).await?.items;
        Ok(pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).collect())
    }

    /// From now on a terminating pod ends after a moment.
    fn victims_end(&mut self) {
        let pods = self.pods.clone();
        self.victims_end_no_more();
        self.ends = Some(tokio::spawn(async move {
            let mut ends: BTreeMap<String, Instant> = BTreeMap::new();
            loop {
                let list = pods.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
                for pod in list.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
                    let name = pod.metadata.name.unwrap_or_default();
                    if ends.entry(name.clone()).or_insert_with(Instant::now).elapsed() >= ENDS_WITHIN {
                        let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
                        let _ = pods.patch(&name, &PatchParams::default(), &none).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }));
    }

    fn victims_end_no_more(&mut self) {
        if let Some(ends) = self.ends.take() {
            ends.abort();
        }
    }

    async fn until_terminating(&self, count: usize) -> Result<()> {
        eventually(SOON, || async {
            let terminating = self.terminating().await?.len();
            ensure!(terminating == count, "{terminating} are terminating");
            Ok(())
        })
        .await
    }

    async fn is_bound(&self, name: &str) -> Result<()> {
        eventually(SOON, || async {
            let pod = self.pods.get(name).await?;
            ensure!(pod.spec.and_then(|spec| spec.node_name).is_some(), "{name} is pending: {:?}", pod.status);
            Ok(())
        })
        .await
    }

    /// The pods of a group whose deletion the API server accepted, and the users who asked for that.
    fn evicted(&self, group: &str) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
        let prefix = format!("{group}-low-");
        let sent = self.audit.sent()?.into_iter().filter(|it| it.verb == "delete" && it.resource == "pods");
        Ok(sent.filter(|it| it.is_accepted() && it.name.starts_with(&prefix)).map(|it| (it.name, it.user)).unzip())
    }

    /// It has the room that it needs, and all other pods are still there.
    async fn ends_well(&self, group: &str) -> Result<()> {
        self.is_bound(&format!("{group}-high")).await?;
        let (pods, users) = self.evicted(group)?;
        ensure!(pods.len() == VICTIMS, "{group}: evicted {pods:?} by {users:?}");
        Ok(())
    }

    /// Removes the pods of all groups, by the API server's administrator.
    async fn clear(&self) -> Result<()> {
        for pod in self.pods.list(&ListParams::default()).await? {
            let name = pod.metadata.name.unwrap_or_default();
            let none = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            let _ = self.pods.patch(&name, &PatchParams::default(), &none).await;
        }
        self.pods.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await?;
        Ok(())
    }
}

/// When Bridger is killed.
#[derive(Clone, Copy, Debug)]
enum Kill {
    /// At this request of the preemption.
    At(usize, When),
    /// When all victims terminate.
    WhileVictimsEnd,
}

/// A preemption needs no more requests.
const STEPS_MAX: usize = 12;
/// The nomination, condition and deletion of each victim, and the binding.
const STEPS_MIN: usize = 2 + 2 * VICTIMS;

fn kills() -> Vec<Kill> {
    let all = (0..STEPS_MAX).flat_map(|number| [When::Before, When::After].map(|when| Kill::At(number, when)));
    let quick = [
        (0, When::Before),
        (0, When::After),
        (2, When::After),
        (4, When::Before),
        (6, When::Before),
        (7, When::Before),
    ];
    let kills: Vec<Kill> = match testkit::count(0, 1) {
        0 => quick.into_iter().map(|(number, when)| Kill::At(number, when)).collect(),
        _ => all.collect(),
    };
    kills.into_iter().chain([Kill::WhileVictimsEnd]).collect()
}

#[tokio::test]
#[allow(clippy::print_stdout)]
async fn after_a_kill_at_any_moment_of_a_preemption_the_pod_is_bound_and_no_more_pods_are_evicted() -> Result<()> {
    let mut stage = Stage::start().await?;
    let points = Points::default();
    let client = stage.control_plane.client().await?;
    // Pods and no Events: those are sent in the background.
    let proxy = KubernetesProxy::start(client, "/namespaces/default/pods/", points.clone()).await?;
    let mut reached = 0;
    for (number, kill) in kills().into_iter().enumerate() {
        let group = format!("g{number}");
        stage.fill(&group).await?;
        let mut bridger = stage.instance(proxy.kubeconfig(), &ALONE).await?;
        stage.victims_end();
        let was_reached = match kill {
            Kill::At(number, when) => {
                points.arm(number, when);
                stage.create_high(&group).await?;
                tokio::time::timeout(Duration::from_secs(5), points.reached()).await.is_ok()
            }
            Kill::WhileVictimsEnd => {
                stage.victims_end_no_more();
                points.arm(usize::MAX, When::Before);
                stage.create_high(&group).await?;
                stage.until_terminating(VICTIMS).await?;
                true
            }
        };
        let steps = points.passed();
        bridger.kill_hard();
        let again = stage.instance(stage.control_plane.kubeconfig(), &ALONE).await?;
        if let Kill::WhileVictimsEnd = kill {
            // Long enough for several attempts.
            tokio::time::sleep(Duration::from_millis(1500)).await;
            ensure!(stage.terminating().await?.len() == VICTIMS, "{}", again.output());
            stage.victims_end();
        }
        let ended = stage.ends_well(&group).await;
        ended.with_context(|| format!("killed: {kill:?} of {steps:?}\n{}", again.output()))?;
        ensure!(was_reached || steps.len() >= STEPS_MIN, "only {steps:?}");
        reached += usize::from(was_reached);
        stage.clear().await?;
    }
    ensure!(reached > 5, "killed only {reached} times");
    println!("killed {reached} times");
    Ok(())
}

#[tokio::test]
async fn of_two_instances_the_leader_alone_evicts_and_the_next_one_continues() -> Result<()> {
    let mut stage = Stage::start().await?;
    let user = |number: usize| format!("instance-{number}");
    let start = async |stage: &Stage, number: usize| {
        let kubeconfig = stage.control_plane.kubeconfig_for(&user(number), &["system:masters"])?;
        stage.instance(&kubeconfig, &SHORT).await
    };
    let mut leader = start(&stage, 0).await?;
    comes_to_lead(&leader).await?;
    let follower = start(&stage, 1).await?;
    stage.fill("a").await?;
    stage.create_high("a").await?;
    stage.until_terminating(VICTIMS).await?;
    leader.kill_hard();
    comes_to_lead(&follower).await?;
    // The victims are of the first leader: the next one waits for them.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    stage.victims_end();
    stage.ends_well("a").await.with_context(|| follower.output())?;
    ensure!(stage.evicted("a")?.1 == BTreeSet::from([user(0)]), "{:?}", stage.evicted("a")?);
    // What it has to preempt itself, it does.
    let _third = start(&stage, 2).await?;
    stage.fill("b").await?;
    stage.create_high("b").await?;
    stage.ends_well("b").await.with_context(|| follower.output())?;
    ensure!(stage.evicted("b")?.1 == BTreeSet::from([user(1)]), "{:?}", stage.evicted("b")?);
    Ok(())
}

async fn comes_to_lead(bridger: &Bridger) -> Result<()> {
    eventually(SOON, || async {
        let metrics = bridger.get("/metrics").await?;
        let leads = format!("leader_election_master_status{{name=\"{LEASE}\"}} 1\n");
        ensure!(metrics.contains(&leads), "{}", bridger.output());
        Ok(())
    })
    .await
}

/// How the API server refuses the deletion of the pods of a group, and the requests that it gets for that in
/// [`REFUSED_FOR`]: attempts after 0, 1 and 3 seconds, each with a mark and a deletion of two victims; a deletion that fails for a
/// passing reason is sent four times.
const REFUSALS: [(&str, u16, usize); 3] = [("forbidden", 403, 12), ("broken", 500, 30), ("busy", 429, 30)];
const REFUSED_FOR: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_server_that_refuses_evictions_is_not_asked_all_the_time_and_the_pod_is_bound_afterwards() -> Result<()> {
    let mut stage = Stage::start().await?;
    let points = Points::default();
    let client = stage.control_plane.client().await?;
    let proxy = KubernetesProxy::start(client, "/namespaces/default/pods/", points.clone()).await?;
    for (group, status, _) in REFUSALS {
        stage.fill(group).await?;
        points.refuse(&format!("DELETE /api/v1/namespaces/default/pods/{group}-low-"), status);
    }
    let bridger = stage.instance(proxy.kubeconfig(), &ALONE).await?;
    stage.victims_end();
    for (group, ..) in REFUSALS {
        stage.create_high(group).await?;
    }
    tokio::time::sleep(REFUSED_FOR).await;
    for (group, _, most) in REFUSALS {
        let of_victims = format!("/pods/{group}-low-");
        let steps: Vec<String> = points.arrived().into_iter().map(|(_, step)| step).collect();
        let count = steps.iter().filter(|step| step.contains(&of_victims)).count();
        ensure!(count > 4, "{group}: only {count} requests: {steps:#?}");
        ensure!(count <= most, "{group}: {count} requests in {REFUSED_FOR:?}: {steps:#?}");
        ensure!(stage.evicted(group)?.0.is_empty(), "{group}");
    }
    points.refuse_nothing();
    for (group, ..) in REFUSALS {
        stage.ends_well(group).await.with_context(|| bridger.output())?;
    }
    Ok(())
}
