//! Volumes on a real kube-apiserver: Bridger chooses the node, a stand-in for the volume controller and the provisioner
//! binds the claims, and the pods are bound afterwards; also when Bridger is killed meanwhile and another instance takes over.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::{Audit, Bridger, ControlPlane, eventually};

const SOON: Duration = Duration::from_secs(60);
const SELECTED: &str = "volume.kubernetes.io/selected-node";
const HOSTNAME: &str = "kubernetes.io/hostname";
const SHORT: [&str; 3] =
    ["--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"];

struct Stage {
    control_plane: ControlPlane,
    pods: Api<Pod>,
    claims: Api<PersistentVolumeClaim>,
    volumes: Api<PersistentVolume>,
}

impl Stage {
    /// Two nodes, and a class of each kind whose volumes wait for the pod.
    async fn start() -> Result<Stage> {
        Stage::start_with(&[]).await
    }

    /// With more flags of the API server.
    async fn start_with(flags: &[&str]) -> Result<Stage> {
        let flags = [&["--disable-admission-plugins=TaintNodesByCondition"], flags].concat();
        let control_plane = ControlPlane::start_with(&flags).await?;
        let client = control_plane.client().await?;
        let nodes: Api<Node> = Api::all(client.clone());
        for name in ["n1", "n2"] {
            let capacity = json!({ "cpu": "4", "memory": "8Gi", "pods": "20" });
            let ready = json!([{ "type": "Ready", "status": "True", "reason": "Test", "message": "",
                "lastHeartbeatTime": null, "lastTransitionTime": null }]);
            let node = json!({ "metadata": { "name": name, "labels": { HOSTNAME: name } },
                "status": { "capacity": capacity, "allocatable": capacity, "conditions": ready } });
            nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        }
        let classes: Api<StorageClass> = Api::all(client.clone());
        for (name, provisioner) in [("dynamic", "csi.example.com"), ("local", "kubernetes.io/no-provisioner")] {
            let class = json!({ "metadata": { "name": name }, "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer" });
            classes.create(&PostParams::default(), &serde_json::from_value(class)?).await?;
        }
        Ok(Stage {
            control_plane,
            pods: Api::default_namespaced(client.clone()),
            claims: Api::default_namespaced(client.clone()),
            volumes: Api::all(client),
        })
    }

    /// With kube-scheduler's own roles, whose permissions are sufficient.
    async fn bridger(&self) -> Result<Bridger> {
        let kubeconfig = self.control_plane.kubeconfig_for("system:kube-scheduler", &[])?;
        self.instance(&kubeconfig, &["--leader-elect=false"]).await
    }

    async fn instance(&self, kubeconfig: &Path, flags: &[&str]) -> Result<Bridger> {
        let environment = [("KUBECONFIG", kubeconfig.display().to_string()), ("NO_COLOR", "1".to_owned())];
        let mut bridger = Bridger::start(&[&["scheduler", "--port", "0"], flags].concat(), &environment)?;
        bridger.prints("Listening", SOON).await?;
        Ok(bridger)
    }

    /// The claim that a volume is reserved for.
    async fn reserved_for(&self, volume: &str) -> Result<Option<String>> {
        let claim = self.volumes.get(volume).await?.spec.and_then(|spec| spec.claim_ref);
        Ok(claim.and_then(|claim| claim.name))
    }

    async fn create_claim(&self, name: &str, class: &str) -> Result<()> {
        let claim = json!({ "metadata": { "name": name }, "spec": { "storageClassName": class,
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
        self.claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
        Ok(())
    }

    async fn create_pod(&self, name: &str, claim: &str) -> Result<()> {
        let pod = json!({ "metadata": { "name": name }, "spec": { "schedulerName": "bridger",
            "containers": [{ "name": "main", "image": "none" }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }] } });
        self.pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Ok(())
    }

    /// A volume that only this node can use.
    async fn create_local_volume(&self, name: &str, node: &str) -> Result<()> {
        let volume = json!({ "metadata": { "name": name }, "spec": { "storageClassName": "local",
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "local": { "path": "/disk" },
            "nodeAffinity": on_node(node) } });
        self.volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
        let available = Patch::Merge(json!({ "status": { "phase": "Available" } }));
        self.volumes.patch_status(name, &PatchParams::default(), &available).await?;
        Ok(())
    }

    /// The node that Bridger selected for the claim.
    async fn selected(&self, claim: &str) -> Result<String> {
        eventually(SOON, || async {
            let claim = self.claims.get(claim).await?;
            let annotations = claim.metadata.annotations.unwrap_or_default();
            annotations.get(SELECTED).cloned().context("no node is selected yet")
        })
        .await
    }

    /// As the provisioner does: a volume for the claim on its node.
    async fn provision(&self, claim: &str) -> Result<()> {
        let node = self.selected(claim).await?;
        let uid = self.claims.get(claim).await?.metadata.uid;
        let volume = json!({ "metadata": { "name": format!("pv-of-{claim}") }, "spec": { "storageClassName": "dynamic",
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "nodeAffinity": on_node(&node),
            "csi": { "driver": "csi.example.com", "volumeHandle": claim },
            "claimRef": { "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": claim,
                "uid": uid } } });
        self.volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
        self.bind(claim, &format!("pv-of-{claim}")).await
    }

    /// As the volume controller does, when claim and volume refer to each other.
    async fn bind(&self, claim: &str, volume: &str) -> Result<()> {
        let bound = json!({ "metadata": { "annotations": { "pv.kubernetes.io/bind-completed": "yes",
            "pv.kubernetes.io/bound-by-controller": "yes" } }, "spec": { "volumeName": volume } });
        self.claims.patch(claim, &PatchParams::default(), &Patch::Merge(bound)).await?;
        let phase = Patch::Merge(json!({ "status": { "phase": "Bound" } }));
        self.claims.patch_status(claim, &PatchParams::default(), &phase).await?;
        self.volumes.patch_status(volume, &PatchParams::default(), &phase).await?;
        Ok(())
    }

    async fn node_of(&self, pod: &str) -> Result<Option<String>> {
        Ok(self.pods.get(pod).await?.spec.and_then(|spec| spec.node_name))
    }

    async fn bound_to(&self, pod: &str) -> Result<String> {
        eventually(SOON, || async {
            let node = self.node_of(pod).await?;
            node.with_context(|| format!("{pod} is pending"))
        })
        .await
    }

    /// Waits until the message of the pod's condition contains this.
    async fn waits_because(&self, pod: &str, text: &str) -> Result<()> {
        eventually(SOON, || async {
            let status = self.pods.get(pod).await?.status.unwrap_or_default();
            let condition = status.conditions.unwrap_or_default().into_iter().find(|it| it.type_ == "PodScheduled");
            let message = condition.and_then(|condition| condition.message).unwrap_or_default();
            ensure!(message.contains(text), "{pod}: {message:?}");
            Ok(())
        })
        .await
    }
}

fn on_node(node: &str) -> Value {
    json!({ "required": { "nodeSelectorTerms": [
        { "matchExpressions": [{ "key": HOSTNAME, "operator": "In", "values": [node] }] }] } })
}

#[tokio::test]
async fn a_pod_is_bound_when_its_volume_is_provisioned() -> Result<()> {
    let stage = Stage::start().await?;
    let _bridger = stage.bridger().await?;
    stage.create_pod("early", "data").await?;
    stage.waits_because("early", "persistentvolumeclaim \"data\" not found").await?;
    stage.create_claim("data", "dynamic").await?;
    let node = stage.selected("data").await?;
    eventually(SOON, || async {
        let nominated = stage.pods.get("early").await?.status.and_then(|status| status.nominated_node_name);
        ensure!(nominated.as_deref() == Some(node.as_str()), "{nominated:?}");
        Ok(())
    })
    .await?;
    ensure!(stage.node_of("early").await?.is_none(), "it is bound without its volume");
    stage.provision("data").await?;
    ensure!(stage.bound_to("early").await? == node, "not the node of its volume");
    // A pod with the same claim goes where the volume is.
    stage.create_pod("late", "data").await?;
    ensure!(stage.bound_to("late").await? == node, "not the node of the volume");
    Ok(())
}

#[tokio::test]
async fn a_failed_provisioning_is_reported_and_tried_again() -> Result<()> {
    let stage = Stage::start().await?;
    let _bridger = stage.bridger().await?;
    stage.create_claim("data", "dynamic").await?;
    stage.create_pod("p", "data").await?;
    stage.selected("data").await?;
    // As the provisioner does if it cannot provide the volume there.
    let taken_back = json!({ "metadata": { "annotations": { SELECTED: null, "note": "tried" } } });
    stage.claims.patch("data", &PatchParams::default(), &Patch::Merge(taken_back)).await?;
    let failed = "running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC \"data\"";
    stage.waits_because("p", failed).await?;
    stage.provision("data").await?;
    stage.bound_to("p").await?;
    Ok(())
}

#[tokio::test]
async fn a_local_volume_is_bound_to_one_claim() -> Result<()> {
    let stage = Stage::start().await?;
    let _bridger = stage.bridger().await?;
    stage.create_local_volume("disk", "n2").await?;
    for name in ["a", "b"] {
        stage.create_claim(name, "local").await?;
        stage.create_pod(name, name).await?;
    }
    let claimed = eventually(SOON, || async {
        let volume = stage.volumes.get("disk").await?;
        let mark = volume.metadata.annotations.unwrap_or_default();
        ensure!(mark.get("pv.kubernetes.io/bound-by-controller").is_some_and(|mark| mark == "yes"), "{mark:?}");
        let claim = volume.spec.and_then(|spec| spec.claim_ref).context("it refers to no claim yet")?;
        ensure!(claim.kind.as_deref() == Some("PersistentVolumeClaim") && claim.uid.is_some(), "{claim:?}");
        claim.name.context("the claim has a name")
    })
    .await?;
    let other = if claimed == "a" { "b" } else { "a" };
    stage.waits_because(other, "2 node(s) didn't find available persistent volumes to bind").await?;
    stage.bind(&claimed, "disk").await?;
    ensure!(stage.bound_to(&claimed).await? == "n2", "not the node of its volume");
    // With a volume of its own the other pod is placed too.
    stage.create_local_volume("more", "n1").await?;
    eventually(SOON, || async {
        let claim = stage.volumes.get("more").await?.spec.and_then(|spec| spec.claim_ref);
        ensure!(claim.and_then(|claim| claim.name).as_deref() == Some(other), "not claimed yet");
        Ok(())
    })
    .await?;
    stage.bind(other, "more").await?;
    ensure!(stage.bound_to(other).await? == "n1", "not the node of its volume");
    Ok(())
}

#[tokio::test]
async fn a_pod_is_bound_although_bridger_is_killed_while_it_waits_for_the_volume() -> Result<()> {
    let stage = Stage::start().await?;
    let mut bridger = stage.bridger().await?;
    stage.create_claim("data", "dynamic").await?;
    stage.create_pod("p", "data").await?;
    let node = stage.selected("data").await?;
    bridger.kill_hard();
    let bridger = stage.bridger().await?;
    // Nothing is left of the first attempt but the selected node, which the next one keeps.
    stage.create_pod("other", "data").await?;
    stage.provision("data").await?;
    ensure!(stage.bound_to("p").await? == node && stage.bound_to("other").await? == node, "not on {node}");
    let volumes = stage.volumes.list(&ListParams::default()).await?.items;
    ensure!(volumes.len() == 1, "{} volumes", volumes.len());
    assumes_nothing(&bridger).await
}

async fn assumes_nothing(bridger: &Bridger) -> Result<()> {
    eventually(SOON, || async {
        let metrics = bridger.get("/metrics").await?;
        let assumed = metrics.lines().find(|line| line.starts_with("scheduler_cache_size{type=\"assumed_pods\"}"));
        ensure!(assumed.is_some_and(|line| line.ends_with(" 0")), "assumed pods are left: {assumed:?}");
        Ok(())
    })
    .await
}

async fn comes_to_lead(bridger: &Bridger, expected: bool) -> Result<()> {
    eventually(SOON, || async {
        let metrics = bridger.get("/metrics").await?;
        let line =
            format!("leader_election_master_status{{name=\"bridger-scheduler-bridger\"}} {}\n", u8::from(expected));
        ensure!(metrics.contains(&line), "{}", bridger.output());
        Ok(())
    })
    .await
}

/// The leader has chosen nodes and volumes, and waits for the claims to be bound: the other instance writes nothing. When the leader is
/// killed there, the other one waits for the same volumes on the same nodes.
#[tokio::test]
async fn a_second_instance_waits_until_it_leads_and_then_keeps_what_the_killed_leader_chose() -> Result<()> {
    let audit = Audit::create()?;
    let flags = audit.flags();
    let stage = Stage::start_with(&flags.each_ref().map(String::as_str)).await?;
    let users = ["first", "second"];
    let mut instances = Vec::new();
    for user in users {
        let kubeconfig = stage.control_plane.kubeconfig_for(user, &["system:masters"])?;
        instances.push(stage.instance(&kubeconfig, &SHORT).await?);
        comes_to_lead(&instances[instances.len() - 1], user == "first").await?;
    }
    let [mut first, second] = <[Bridger; 2]>::try_from(instances).map_err(|_| anyhow::anyhow!("two instances"))?;
    // Either disk would do.
    stage.create_local_volume("disk-1", "n1").await?;
    stage.create_local_volume("disk-2", "n2").await?;
    for (name, class) in [("by-hand", "local"), ("provisioned", "dynamic")] {
        stage.create_claim(name, class).await?;
        stage.create_pod(name, name).await?;
    }
    let node = stage.selected("provisioned").await?;
    let disk = eventually(SOON, || async {
        let reserved = [stage.reserved_for("disk-1").await?, stage.reserved_for("disk-2").await?];
        match reserved.each_ref().map(Option::as_deref) {
            [Some("by-hand"), None] => Ok("disk-1"),
            [None, Some("by-hand")] => Ok("disk-2"),
            _ => anyhow::bail!("{reserved:?}"),
        }
    })
    .await?;
    let written_by = |user: &str| -> Result<Vec<_>> {
        let sent = audit.sent()?.into_iter().filter(|it| it.user == user && !it.is_of_lease() && it.is_accepted());
        Ok(sent.map(|it| format!("{} {} {}", it.verb, it.resource, it.name)).collect())
    };
    ensure!(!written_by("first")?.is_empty(), "the audit log is empty");
    first.kill_hard();
    let before = written_by("second")?;
    ensure!(before.is_empty(), "the second instance followed, and wrote {before:?}");
    comes_to_lead(&second, true).await?;
    // It chooses as if the first one had not, and finds what that has written.
    eventually(SOON, || async {
        let metrics = second.get("/metrics").await?;
        let assumed = metrics.lines().find(|line| line.starts_with("scheduler_cache_size{type=\"assumed_pods\"}"));
        ensure!(assumed.is_some_and(|line| line.ends_with(" 2")), "{assumed:?}\n{}", second.output());
        Ok(())
    })
    .await?;
    let reserved = [stage.reserved_for("disk-1").await?, stage.reserved_for("disk-2").await?];
    ensure!(reserved.iter().flatten().count() == 1, "{reserved:?}");
    ensure!(stage.selected("provisioned").await? == node, "another node is selected");
    stage.provision("provisioned").await?;
    stage.bind("by-hand", disk).await?;
    ensure!(stage.bound_to("provisioned").await? == node, "not the node of its volume");
    ensure!(stage.bound_to("by-hand").await? == disk.replace("disk-", "n"), "not the node of its volume");
    let volumes = stage.volumes.list(&ListParams::default()).await?.items;
    ensure!(volumes.len() == 3, "{} volumes", volumes.len());
    assumes_nothing(&second).await
}
