//! One API server with three schedulers: kube-scheduler's `scheduler-recorder`, and `bridger-recorder` twice, because the
//! profiles of one process see each other's nominations.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::workdir::Workdir;
use testkit::{Bridger, ControlPlane, Scheduler, eventually};

use super::calls::{self, CallsByPod};
use super::watched::{Shown, Watched};

const SOON: Duration = Duration::from_secs(30);
const FIRST_NODES: [&str; 3] = ["n1", "n2", "n3"];

/// A profile of one of the schedulers. Its name is also the namespace of its pods and the name of its file.
pub type Profile = &'static str;

pub const UPSTREAM: Profile = "upstream";
/// Bridger: PreBind and Bind are answered by executors.
pub const EXECUTORS: Profile = "executors";
/// Bridger: PreBind and Bind are answered by the plugins.
pub const AT_ONCE: Profile = "at-once";
/// Bridger: equal pods share answers.
pub const SHARING: Profile = "sharing";

/// A pod to create: its name, and the labels of its scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub pod: &'static str,
    pub scenario: &'static str,
    /// How often the plugins answer as the scenario says, if not always.
    pub times: Option<u32>,
}

pub struct Stage {
    client: kube::Client,
    watched: Watched,
    folder: Workdir,
    touches: std::cell::Cell<u32>,
    // Dropped in this order.
    upstream: Scheduler,
    bridgers: [Bridger; 2],
    _control_plane: ControlPlane,
}

impl Stage {
    pub async fn start() -> Result<Stage> {
        let control_plane = ControlPlane::start().await?;
        let client = control_plane.client().await?;
        let folder = Workdir::create("recorder")?;
        for namespace in [UPSTREAM, EXECUTORS, AT_ONCE, SHARING] {
            control_plane.namespace(namespace).await?;
        }
        create_nodes(&client, &FIRST_NODES.map(str::to_owned)).await?;
        let watched = Watched::start(client.clone()).await?;
        let config = configuration("RecorderSort", &[profile(&folder, UPSTREAM, &json!({}))]);
        let upstream = Scheduler::start_program(&control_plane, "scheduler-recorder", config);
        let mut bridgers = [
            start_bridger(&control_plane, &folder, &[profile(&folder, EXECUTORS, &json!({}))])?,
            start_bridger(
                &control_plane,
                &folder,
                &[
                    profile(&folder, AT_ONCE, &json!({ "answersAtOnce": true })),
                    profile(&folder, SHARING, &json!({ "shares": true })),
                ],
            )?,
        ];
        let listening = try_join_all(bridgers.iter_mut().map(|bridger| bridger.prints("Listening", SOON)));
        let (upstream, _) = tokio::try_join!(upstream, listening)?;
        let touches = std::cell::Cell::new(0);
        Ok(Stage { client, watched, folder, touches, upstream, bridgers, _control_plane: control_plane })
    }

    fn pods(&self, profile: Profile) -> Api<Pod> {
        Api::namespaced(self.client.clone(), profile)
    }

    pub async fn create(&self, profiles: &[Profile], scenes: &[Scene]) -> Result<()> {
        for scene in scenes {
            let mut labels = json!({ "scenario": scene.scenario });
            if let Some(times) = scene.times {
                labels["times"] = json!(times.to_string());
            }
            for profile in profiles {
                let pod: Pod = serde_json::from_value(json!({
                    "metadata": { "name": scene.pod, "labels": labels },
                    "spec": { "schedulerName": profile, "terminationGracePeriodSeconds": 0,
                        "containers": [{ "name": "main", "image": "none" }] },
                }))?;
                self.pods(profile).create(&PostParams::default(), &pod).await?;
            }
        }
        Ok(())
    }

    pub async fn delete(&self, profiles: &[Profile], pod: &str) -> Result<()> {
        for profile in profiles {
            self.pods(profile).delete(pod, &DeleteParams::default().grace_period(0)).await?;
        }
        Ok(())
    }

    /// Changes a label of a node, which wakes all rejected pods.
    pub async fn touch_node(&self) -> Result<()> {
        self.touches.set(self.touches.get() + 1);
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = json!({ "metadata": { "labels": { "touched": self.touches.get().to_string() } } });
        nodes.patch("n2", &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Adds nodes, and waits until all schedulers know them.
    pub async fn add_nodes(&self, count: u32) -> Result<()> {
        let names: Vec<String> = (0..count).map(|number| format!("p{number:03}")).collect();
        create_nodes(&self.client, &names).await?;
        let expected = format!("scheduler_cache_size{{type=\"nodes\"}} {}", FIRST_NODES.len() + names.len());
        eventually(SOON, || async {
            ensure!(self.upstream.metrics().await?.contains(&expected), "kube-scheduler does not know all nodes");
            for bridger in &self.bridgers {
                ensure!(bridger.get("/metrics").await?.contains(&expected), "Bridger does not know all nodes");
            }
            Ok(())
        })
        .await
    }

    pub fn shown(&self, profile: Profile, pod: &str) -> Result<Shown> {
        self.watched.of(profile, pod)
    }

    /// Waits until each of these pods is shown like this.
    async fn until(
        &self,
        profiles: &[Profile],
        pods: &[&str],
        is_so: impl Fn(&Shown) -> bool,
        what: &str,
    ) -> Result<()> {
        eventually(SOON, || async {
            for (profile, pod) in profiles.iter().flat_map(|profile| pods.iter().map(move |pod| (profile, pod))) {
                let shown = self.shown(profile, pod)?;
                ensure!(is_so(&shown), "{profile}/{pod} {what}: {shown:?}");
            }
            Ok(())
        })
        .await
    }

    pub async fn bound(&self, profiles: &[Profile], pods: &[&str]) -> Result<()> {
        self.until(profiles, pods, |shown| !shown.node.is_empty(), "is not bound").await
    }

    pub async fn unschedulable(&self, profiles: &[Profile], pods: &[&str]) -> Result<()> {
        let is_so = |shown: &Shown| {
            shown.conditions.iter().any(|[status, reason, _]| status == "False" && reason == "Unschedulable")
        };
        self.until(profiles, pods, is_so, "is not unschedulable").await
    }

    pub async fn nominated(&self, profiles: &[Profile], pod: &str) -> Result<()> {
        self.until(profiles, &[pod], |shown| !shown.nominated.is_empty(), "is not nominated").await
    }

    /// Waits until Second, which is called last, was called so often at this point for each of these pods.
    pub async fn called(&self, profiles: &[Profile], pods: &[&str], point: &str, times: usize) -> Result<()> {
        eventually(SOON, || async {
            for profile in profiles {
                let calls = self.calls(profile)?;
                for pod in pods {
                    let of_pod = calls.get(*pod).into_iter().flatten();
                    let found = of_pod.filter(|call| call.point == point && call.plugin == "Second").count();
                    ensure!(found >= times, "{profile}/{pod}: {found} of {times} calls of {point}");
                }
            }
            Ok(())
        })
        .await
    }

    pub fn calls(&self, profile: Profile) -> Result<CallsByPod> {
        calls::read(&file(&self.folder, profile))
    }
}

fn start_bridger(control_plane: &ControlPlane, folder: &Workdir, profiles: &[Value]) -> Result<Bridger> {
    let name = format!("{}.json", profiles[0]["schedulerName"].as_str().unwrap_or_default());
    let config = folder.write(&name, configuration("PrioritySort", profiles).to_string())?.display().to_string();
    let kubeconfig = control_plane.kubeconfig().display().to_string();
    let program = Path::new(env!("CARGO_BIN_EXE_bridger-recorder"));
    let arguments = ["--config", &config, "--port", "0"];
    Bridger::start_build(Some(program), &arguments, &[("KUBECONFIG", kubeconfig), ("NO_COLOR", "1".to_owned())])
}

fn file(folder: &Workdir, profile: Profile) -> PathBuf {
    folder.join(&format!("{profile}.jsonl"))
}

/// First and Second at all points, and no other plugin.
fn profile(folder: &Workdir, name: Profile, more: &Value) -> Value {
    let mut args = json!({ "file": file(folder, name) });
    for (key, value) in more.as_object().into_iter().flatten() {
        args[key] = value.clone();
    }
    let arguments = ["First", "Second"].map(|plugin| json!({ "name": plugin, "args": args }));
    json!({
        "schedulerName": name,
        "plugins": { "multiPoint": { "enabled": [{ "name": "First" }, { "name": "Second" }], "disabled": [{ "name": "*" }] } },
        "pluginConfig": arguments,
    })
}

fn configuration(queue_sort: &str, profiles: &[Value]) -> Value {
    let mut profiles = profiles.to_vec();
    for profile in &mut profiles {
        profile["plugins"]["queueSort"] = json!({ "enabled": [{ "name": queue_sort }] });
    }
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": { "leaderElect": false },
        // kube-scheduler visits the nodes one after the other.
        "parallelism": 1,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
        "profiles": profiles,
    })
}

/// No plugin looks at their taints or resources.
async fn create_nodes(client: &kube::Client, names: &[String]) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    // In order, because kube-scheduler visits them in this order.
    for names in names.chunks(16) {
        let create = names.iter().map(|name| {
            let node = json!({ "metadata": { "name": name } });
            let nodes = nodes.clone();
            async move { anyhow::Ok(nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?) }
        });
        try_join_all(create).await?;
    }
    Ok(())
}
