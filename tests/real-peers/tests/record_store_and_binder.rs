//! Tests the record store and the binder with a real kube-apiserver: conflicting writes, late writes, repeated binds.

use anyhow::Result;
use engine::ports::{Binder, Binding, PortError, RecordStore};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kubernetes::record_store::{SLOTS, former_object_name, object_of};
use kubernetes::{Access, ConfigMapRecordStore, Connection, KubernetesCredentials, Need, PodBinder};
use serde_json::{Value, json};
use testkit::ControlPlane;

async fn connect(plane: &ControlPlane) -> Result<Connection> {
    Ok(kubernetes::connect(&KubernetesCredentials::choose(Some(plane.kubeconfig()), None, None)).await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_written_only_with_its_latest_version() -> Result<()> {
    let plane = ControlPlane::start().await?;
    let connection = connect(&plane).await?;
    let done = [Access::WriteRecord, Access::BindPods, Access::WriteEvents];
    let needs: Vec<Need> = done.into_iter().flat_map(Access::needs).copied().collect();
    kubernetes::preflight(&connection, &needs).await?;
    let record_store = || ConfigMapRecordStore::new(connection.client.clone(), "default".to_owned());
    let (first, second) = (record_store(), record_store());
    let name = "564d0d6e-0000-4000-8000-000000000001/domain-c8";
    assert!(first.load().await?.is_empty());
    let created = first.save(name, "one", None).await?;
    assert!(matches!(second.save(name, "two", None).await, Err(PortError::Transient(_))), "the record already exists");
    let kept = second.load().await?.remove(name).expect("the record");
    assert_eq!((kept.text.as_str(), &kept.version), ("one", &created));
    let later = second.save(name, "two", Some(&kept.version)).await?;
    assert!(matches!(first.save(name, "three", Some(&created)).await, Err(PortError::Transient(_))), "too late");
    // The maximum size: the server must accept it.
    let large = "x".repeat(kubernetes::record_store::TEXT_BYTES_MAX - name.len());
    let later = second.save(name, &large, Some(&later)).await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(connection.client.client().clone());
    // Those of earlier versions.
    for number in 0..120 {
        let other = format!("other/domain-c{number}");
        let labels = json!({ "app.kubernetes.io/managed-by": "bridger", "bridger.dev/kind": "rules" });
        let map = json!({ "metadata": { "name": former_object_name(&other), "labels": labels },
            "data": { "name": other, "record": "small" } });
        maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    }
    let stored = first.load().await?;
    assert_eq!(stored.len(), 121, "all pages are read");
    let other = stored.get("other/domain-c7").expect("a record of an earlier version");
    let replaced = first.save("other/domain-c7", "changed", Some(&other.version)).await?;
    assert_eq!(object_of(&replaced), former_object_name("other/domain-c7"), "it keeps its ConfigMap");
    // A ConfigMap of this name that is no record is not overwritten.
    let taken = json!({ "metadata": { "name": "bridger-rules-1" }, "data": { "key": "of another" } });
    maps.create(&PostParams::default(), &serde_json::from_value(taken)?).await?;
    assert!(matches!(first.save("new/domain-c0", "small", None).await, Err(PortError::Transient(_))));
    maps.delete("bridger-rules-1", &DeleteParams::default()).await?;
    for number in 1..SLOTS {
        let version = first.save(&format!("new/domain-c{number}"), "small", None).await?;
        assert_eq!(object_of(&version), format!("bridger-rules-{number}"));
    }
    assert!(matches!(first.save("new/domain-c0", "small", None).await, Err(PortError::Permanent(_))), "one too many");
    for map in maps.list(&ListParams::default().labels("app.kubernetes.io/managed-by=bridger")).await?.items {
        maps.delete(map.metadata.name.as_deref().unwrap_or_default(), &DeleteParams::default()).await?;
    }
    assert!(matches!(second.save(name, "four", Some(&later)).await, Err(PortError::NotFound(_))), "deleted by hand");
    let nowhere = ConfigMapRecordStore::new(connection.client.clone(), "nowhere".to_owned());
    assert!(matches!(nowhere.save(name, "text", None).await, Err(PortError::Permanent(_))));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_bound_once_and_only_with_its_own_uid() -> Result<()> {
    let plane = ControlPlane::start().await?;
    let connection = connect(&plane).await?;
    let client = connection.client.client();
    let post = PostParams::default();
    let nodes: Api<Node> = Api::all(client.clone());
    for name in ["n1", "n2"] {
        nodes.create(&post, &serde_json::from_value(json!({ "metadata": { "name": name } }))?).await?;
    }
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let account: Value = json!({ "metadata": { "name": "default" } });
    // The controller that would create it does not run here.
    let _ = accounts.create(&post, &serde_json::from_value(account)?).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = json!({
        "metadata": { "name": "web-1" },
        "spec": { "containers": [{ "name": "main", "image": "web" }], "automountServiceAccountToken": false },
    });
    let uid = pods.create(&post, &serde_json::from_value(pod)?).await?.metadata.uid.unwrap_or_default();
    let binder = PodBinder::new(connection.client.clone());
    let binding = |pod: &str, uid: &str, node: &str| Binding {
        namespace: "default".to_owned(),
        pod: pod.to_owned(),
        uid: uid.to_owned(),
        node: node.to_owned(),
    };
    let another = "11111111-1111-4111-8111-111111111111";
    assert!(matches!(binder.bind(&binding("web-1", another, "n1")).await, Err(PortError::Invalid(_))));
    binder.bind(&binding("web-1", &uid, "n1")).await?;
    assert!(matches!(binder.bind(&binding("web-1", &uid, "n2")).await, Err(PortError::Invalid(_))), "bound already");
    assert!(matches!(binder.bind(&binding("web-2", &uid, "n1")).await, Err(PortError::NotFound(_))));
    let node = pods.get("web-1").await?.spec.and_then(|spec| spec.node_name);
    assert_eq!(node.as_deref(), Some("n1"));
    Ok(())
}
