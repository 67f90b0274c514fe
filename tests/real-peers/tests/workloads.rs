//! Workloads of a real kube-controller-manager, placed by Bridger: its Deployment and StatefulSet controllers create the
//! pods, its volume controller binds their claims, and its disruption controller keeps the status of the budget that
//! preemption respects. A stand-in does what kubelet and provisioner do.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::{Bridger, ControlPlane, ControllerManager, eventually};

const SOON: Duration = Duration::from_secs(60);
const SELECTED: &str = "volume.kubernetes.io/selected-node";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Without the one that marks nodes whose kubelets send no heartbeats.
const CONTROLLERS: &str = "--controllers=deployment-controller,replicaset-controller,statefulset-controller,\
                           disruption-controller,persistentvolume-binder-controller";

struct Stage {
    client: kube::Client,
}

impl Stage {
    fn all<K: kube::Resource<Scope = k8s_openapi::ClusterResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    fn own<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::default_namespaced(self.client.clone())
    }

    /// Two nodes of four CPUs each, a class whose volumes wait for the pod, and three priorities.
    async fn set_up(&self) -> Result<()> {
        for name in ["n1", "n2"] {
            let capacity = json!({ "cpu": "4", "memory": "8Gi", "pods": "20" });
            let ready = json!([{ "type": "Ready", "status": "True", "reason": "Test", "message": "",
                "lastHeartbeatTime": null, "lastTransitionTime": null }]);
            let node = json!({ "metadata": { "name": name, "labels": { HOSTNAME: name } },
                "status": { "capacity": capacity, "allocatable": capacity, "conditions": ready } });
            create(&self.all::<Node>(), node).await?;
        }
        let class = json!({ "metadata": { "name": "dynamic" }, "provisioner": "csi.example.com",
            "volumeBindingMode": "WaitForFirstConsumer" });
        create(&self.all::<StorageClass>(), class).await?;
        for (name, value) in [("low", 1), ("high", 1000)] {
            create(&self.all::<PriorityClass>(), json!({ "metadata": { "name": name }, "value": value })).await?;
        }
        Ok(())
    }

    /// What kubelets and a provisioner do: bound pods run and are ready, and a claim whose node is selected gets a volume.
    async fn stand_in(&self) -> Result<()> {
        for pod in self.own::<Pod>().list(&ListParams::default()).await? {
            let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            let runs = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
            let name = pod.metadata.name.context("a name")?;
            if !is_bound || runs {
                continue;
            }
            let now = jiff::Timestamp::now().to_string();
            let conditions = ["Ready", "ContainersReady"]
                .map(|it| json!({ "type": it, "status": "True", "lastTransitionTime": now }));
            let status = json!({ "status": { "phase": "Running", "startTime": now, "conditions": conditions } });
            // It may have been evicted in the meantime.
            let _ = self.own::<Pod>().patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await;
        }
        for claim in self.own::<PersistentVolumeClaim>().list(&ListParams::default()).await? {
            let node = claim.metadata.annotations.as_ref().and_then(|it| it.get(SELECTED)).cloned();
            let is_bound = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
            if let (Some(node), false) = (node, is_bound) {
                let name = claim.metadata.name.context("a name")?;
                let on_node = json!({ "required": { "nodeSelectorTerms": [
                    { "matchExpressions": [{ "key": HOSTNAME, "operator": "In", "values": [node] }] }] } });
                let volume = json!({ "metadata": { "name": format!("pv-of-{name}") },
                    "spec": { "storageClassName": "dynamic", "capacity": { "storage": "1Gi" },
                        "accessModes": ["ReadWriteOnce"], "nodeAffinity": on_node,
                        "csi": { "driver": "csi.example.com", "volumeHandle": name },
                        "claimRef": { "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default",
                            "name": name, "uid": claim.metadata.uid } } });
                // It exists if the volume controller has not bound the claim yet.
                let _ = create(&self.all::<PersistentVolume>(), volume).await;
            }
        }
        Ok(())
    }

    async fn deploy(&self, name: &str, class: &str, replicas: usize, cpu: &str) -> Result<()> {
        let deployment = json!({ "metadata": { "name": name }, "spec": { "replicas": replicas,
            "selector": { "matchLabels": { "app": name } }, "template": template(name, class, cpu) } });
        create(&self.own::<Deployment>(), deployment).await
    }

    async fn pods(&self, app: &str) -> Result<Vec<Pod>> {
        Ok(self.own::<Pod>().list(&ListParams::default().labels(&format!("app={app}"))).await?.items)
    }

    /// Waits until so many pods of a workload run, while the stand-in works, and returns their UIDs.
    async fn runs(&self, app: &str, count: usize) -> Result<BTreeSet<String>> {
        eventually(SOON, || async {
            self.stand_in().await?;
            let pods = self.pods(app).await?;
            let running =
                pods.iter().filter(|pod| pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running")));
            let uids: BTreeSet<String> = running.filter_map(|pod| pod.metadata.uid.clone()).collect();
            let waiting = || pods.iter().filter_map(|pod| pod.status.as_ref()?.conditions.clone()).flatten();
            ensure!(uids.len() == count, "{app}: {} of {count} run: {:?}", uids.len(), waiting().collect::<Vec<_>>());
            Ok(uids)
        })
        .await
    }
}

/// Pods of one workload are as many on one node as on the other, so that it is known what has to give way where.
fn template(app: &str, class: &str, cpu: &str) -> Value {
    let spread = json!({ "maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": { "matchLabels": { "app": app } } });
    json!({
        "metadata": { "labels": { "app": app } },
        "spec": {
            "schedulerName": "bridger",
            "topologySpreadConstraints": [spread],
            "priorityClassName": class,
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": "none", "resources": { "requests": { "cpu": cpu } } }],
        },
    })
}

async fn create<K: Clone + std::fmt::Debug + Serialize + DeserializeOwned>(api: &Api<K>, object: Value) -> Result<()> {
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

#[tokio::test]
async fn workloads_get_volumes_displace_others_and_respect_a_budget() -> Result<()> {
    let control_plane = ControlPlane::start_with(&["--disable-admission-plugins=TaintNodesByCondition"]).await?;
    let _controllers = ControllerManager::start(&control_plane, &[CONTROLLERS]).await?;
    let stage = Stage { client: control_plane.client().await? };
    stage.set_up().await?;
    let kubeconfig = control_plane.kubeconfig_for("system:kube-scheduler", &[])?;
    let environment = [("KUBECONFIG", kubeconfig.display().to_string()), ("NO_COLOR", "1".to_owned())];
    let mut bridger = Bridger::start(&["scheduler", "--port", "0", "--leader-elect=false"], &environment)?;
    bridger.prints("Listening", SOON).await?;

    // A pod of a StatefulSet starts when the one before it is ready, so each has its volume.
    let claim = json!({ "metadata": { "name": "data" }, "spec": { "storageClassName": "dynamic",
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    let database = json!({ "metadata": { "name": "db" }, "spec": { "replicas": 2, "serviceName": "db",
        "selector": { "matchLabels": { "app": "db" } }, "template": template("db", "high", "1"),
        "volumeClaimTemplates": [claim] } });
    create(&stage.own::<StatefulSet>(), database).await?;
    let database = stage.runs("db", 2).await?;
    for number in 0..2 {
        let pod = stage.own::<Pod>().get(&format!("db-{number}")).await?;
        let claim = stage.own::<PersistentVolumeClaim>().get(&format!("data-db-{number}")).await?;
        let volume = claim.spec.and_then(|spec| spec.volume_name).context("no volume")?;
        ensure!(volume == format!("pv-of-data-db-{number}"), "{volume}");
        let selected = claim.metadata.annotations.unwrap_or_default().remove(SELECTED);
        ensure!(selected == pod.spec.and_then(|spec| spec.node_name), "db-{number}: its volume is on {selected:?}");
    }

    // They fill the nodes. Those with a budget start later, so without it they would be displaced first.
    stage.deploy("web", "low", 4, "1").await?;
    let web = stage.runs("web", 4).await?;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    stage.deploy("kept", "low", 2, "1").await?;
    let kept = stage.runs("kept", 2).await?;
    let budget = json!({ "metadata": { "name": "kept" },
        "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": "kept" } } } });
    let budgets = stage.own::<PodDisruptionBudget>();
    create(&budgets, budget).await?;
    eventually(SOON, || async {
        let status = budgets.get("kept").await?.status.context("no status yet")?;
        ensure!(status.current_healthy == Some(2) && status.disruptions_allowed == Some(0), "{status:?}");
        Ok(())
    })
    .await?;

    stage.deploy("urgent", "high", 2, "2").await?;
    stage.runs("urgent", 2).await.with_context(|| bridger.output())?;
    ensure!(stage.runs("kept", 2).await? == kept, "pods that a budget protects were displaced");
    ensure!(stage.runs("db", 2).await? == database, "pods of the same priority were displaced");
    // Their replacements wait.
    let replacements = eventually(SOON, || async {
        let uids: BTreeSet<String> = stage.pods("web").await?.into_iter().filter_map(|pod| pod.metadata.uid).collect();
        ensure!(uids.len() == 4 && uids.is_disjoint(&web), "{uids:?} {web:?}");
        Ok(uids)
    })
    .await?;
    stage.runs("web", 0).await?;
    let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    stage.own::<Deployment>().patch("urgent", &PatchParams::default(), &none).await?;
    ensure!(stage.runs("web", 4).await? == replacements, "the pods that waited were replaced");
    Ok(())
}
