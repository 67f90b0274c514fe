//! Hand-written worlds in which the answer of the plugins for volumes follows from upstream's code. They test the judge:
//! that the plugins see every kind of object, and that the chosen volumes are reported.

use judge::change::remove;
use judge::{Answer, Judge, NodeAnswer, Verdict, Volumes, World};
use serde_json::{Value, json};

const ZONE: &str = "topology.kubernetes.io/zone";
const UNRESOLVABLE: Verdict = Verdict::UnschedulableAndUnresolvable;

fn node(name: &str, zone: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, ZONE: zone } },
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110" } } })
}

fn pod(name: &str, namespace: &str, volumes: &[Value]) -> Value {
    let named = volumes.iter().enumerate().map(|(number, volume)| {
        let mut volume = volume.clone();
        volume["name"] = format!("v{number}").into();
        volume
    });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": namespace, "uid": name },
        "spec": { "containers": [{ "name": "c", "image": "web:1" }], "volumes": named.collect::<Vec<_>>() } })
}

fn on(node: &str, priority: i32, mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = node.into();
    pod["spec"]["priority"] = priority.into();
    pod
}

fn uses(claim: &str) -> Value {
    json!({ "persistentVolumeClaim": { "claimName": claim } })
}

fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": name },
        "provisioner": provisioner, "volumeBindingMode": mode })
}

/// A claim that waits for a pod.
fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "blue", "uid": format!("uid-{name}") },
        "spec": { "storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": size } } }, "status": { "phase": "Pending" } })
}

/// A free volume of the class `static`.
fn volume(name: &str, size: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
        "spec": { "storageClassName": "static", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": size },
            "csi": { "driver": "csi.example", "volumeHandle": name } }, "status": { "phase": "Available" } })
}

fn in_zone(zone: &str, mut volume: Value) -> Value {
    volume["spec"]["nodeAffinity"]["required"] =
        json!({ "nodeSelectorTerms": [{ "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [zone] }] }] });
    volume
}

fn bound(mut claim: Value, volume: &str) -> Value {
    claim["spec"]["volumeName"] = volume.into();
    claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes".into();
    claim["status"]["phase"] = "Bound".into();
    claim
}

/// Nodes n1 in zone z1 and n2 in z2, the classes `static` and `fast`, and a pod with these volumes.
fn world(volumes: &[Value]) -> World {
    World {
        nodes: vec![node("n1", "z1"), node("n2", "z2")],
        storage_classes: vec![
            class("static", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
            class("fast", "csi.example", "WaitForFirstConsumer"),
            class("now", "csi.example", "Immediate"),
        ],
        pod: pod("incoming", "blue", volumes),
        preemption: true,
        ..World::default()
    }
}

fn ask(world: &World) -> Answer {
    let answer = Judge::start().unwrap().ask_and_validate(world).unwrap();
    assert_eq!(answer.invalid, Vec::<String>::new());
    answer
}

/// The verdict, plugin and reason of n1 and n2.
fn verdicts(world: &World) -> [(Verdict, String, String); 2] {
    let of = |node: &NodeAnswer| (node.verdict, node.plugin.clone(), node.reason.clone());
    let answer = ask(world);
    let [n1, n2] = &answer.nodes[..] else { panic!("{answer:#?}") };
    [of(n1), of(n2)]
}

#[track_caller]
fn rejects_all(world: &World, verdict: Verdict, plugin: &str, reason: &str) {
    let expected = (verdict, plugin.to_owned(), reason.to_owned());
    assert_eq!(verdicts(world), [expected.clone(), expected]);
}

#[track_caller]
fn rejects_n2(world: &World, verdict: Verdict, plugin: &str, reason: &str) {
    let expected = (verdict, plugin.to_owned(), reason.to_owned());
    assert_eq!(verdicts(world), [(Verdict::Feasible, String::new(), String::new()), expected]);
}

/// The volume of each claim on a node.
fn bindings(world: &World, node: &str) -> Vec<(String, String)> {
    let decided: Option<Volumes> = ask(world).node(node).and_then(|node| node.volumes.clone());
    let bind = decided.unwrap_or_default().bind;
    bind.into_iter().map(|(claim, bound)| (claim, bound.volume)).collect()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|&(claim, volume)| (claim.to_owned(), volume.to_owned())).collect()
}

#[test]
fn a_waiting_claim_gets_the_smallest_volume_that_fits_on_the_node() {
    let mut world = World {
        persistent_volume_claims: vec![claim("c", "static", "2Gi")],
        persistent_volumes: vec![
            volume("small", "1Gi"),
            volume("large", "9Gi"),
            volume("fits", "3Gi"),
            in_zone("z2", volume("exact", "2Gi")),
        ],
        ..world(&[uses("c")])
    };
    assert_eq!(bindings(&world, "n1"), pairs(&[("c", "fits")]));
    assert_eq!(bindings(&world, "n2"), pairs(&[("c", "exact")]));
    // One that is reserved for the claim wins, whatever its size; where it cannot be used, no other is.
    world.persistent_volumes[1]["spec"]["claimRef"] = json!({ "namespace": "blue", "name": "c" });
    assert_eq!(bindings(&world, "n1"), pairs(&[("c", "large")]));
    world.persistent_volumes[1] = in_zone("z1", world.persistent_volumes[1].clone());
    rejects_n2(&world, UNRESOLVABLE, "VolumeBinding", "node(s) didn't find available persistent volumes to bind");
    // Reserved for a claim of the same name that no longer exists.
    world.persistent_volumes[1]["spec"]["claimRef"]["uid"] = "another".into();
    assert_eq!(bindings(&world, "n1"), pairs(&[("c", "fits")]));
}

#[test]
fn smaller_claims_choose_first_and_the_rest_is_provisioned() {
    let mut world = World {
        persistent_volume_claims: vec![claim("big", "fast", "4Gi"), claim("little", "fast", "1Gi")],
        persistent_volumes: vec![volume("v", "5Gi")],
        ..world(&[uses("big"), uses("little")])
    };
    world.persistent_volumes[0]["spec"]["storageClassName"] = "fast".into();
    let decided = ask(&world).nodes[0].volumes.clone().unwrap();
    assert_eq!((bindings(&world, "n1"), decided.provision), (pairs(&[("little", "v")]), vec!["big".to_owned()]));
    assert_eq!(decided.bind["little"].capacity, 5 << 30);
}

#[test]
fn a_class_restricts_where_its_volumes_are_provisioned() {
    let mut world = World { persistent_volume_claims: vec![claim("c", "fast", "2Gi")], ..world(&[uses("c")]) };
    assert_eq!(ask(&world).feasible, 2);
    world.storage_classes[1]["allowedTopologies"] =
        json!([{ "matchLabelExpressions": [{ "key": ZONE, "values": ["z1"] }] }]);
    rejects_n2(&world, UNRESOLVABLE, "VolumeBinding", "node(s) didn't find available persistent volumes to bind");
    // The claim is being provisioned for a node already.
    remove(&mut world.storage_classes[1], "allowedTopologies");
    world.persistent_volume_claims[0]["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = "n1".into();
    rejects_n2(&world, UNRESOLVABLE, "VolumeBinding", "node(s) didn't find available persistent volumes to bind");
}

#[test]
fn the_space_on_the_storage_counts_for_drivers_that_report_it() {
    let capacity = |name: &str, zone: &str, size: &str| {
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
            "metadata": { "name": name, "namespace": "driver" }, "storageClassName": "fast",
            "nodeTopology": { "matchLabels": { ZONE: zone } }, "capacity": size })
    };
    let driver = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": "csi.example" },
        "spec": { "storageCapacity": true } });
    let mut world = World {
        persistent_volume_claims: vec![claim("c", "fast", "2Gi")],
        csi_drivers: vec![driver],
        csi_storage_capacities: vec![capacity("a", "z1", "2Gi"), capacity("b", "z2", "1Gi")],
        ..world(&[uses("c")])
    };
    rejects_n2(&world, UNRESOLVABLE, "VolumeBinding", "node(s) did not have enough free storage");
    world.csi_storage_capacities[0]["maximumVolumeSize"] = "1Gi".into();
    rejects_all(&world, UNRESOLVABLE, "VolumeBinding", "node(s) did not have enough free storage");
    world.csi_drivers[0]["spec"]["storageCapacity"] = false.into();
    assert_eq!(ask(&world).feasible, 2);
}

#[test]
fn the_state_of_a_claim_decides_before_any_node() {
    let with = |claim: Value| World { persistent_volume_claims: vec![claim], ..world(&[uses("c")]) };
    let waiting = || claim("c", "static", "1Gi");
    let missing = r#"persistentvolumeclaim "c" not found"#;
    rejects_all(&world(&[uses("c")]), UNRESOLVABLE, "VolumeRestrictions", missing);
    let mut lost = bound(waiting(), "v");
    lost["status"]["phase"] = "Lost".into();
    let text = r#"persistentvolumeclaim "c" bound to non-existent persistentvolume "v""#;
    rejects_all(&with(lost), UNRESOLVABLE, "VolumeBinding", text);
    let mut deleted = waiting();
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    deleted["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
    rejects_all(&with(deleted), UNRESOLVABLE, "VolumeBinding", r#"persistentvolumeclaim "c" is being deleted"#);
    let unbound = "pod has unbound immediate PersistentVolumeClaims";
    rejects_all(&with(claim("c", "now", "1Gi")), UNRESOLVABLE, "VolumeBinding", unbound);
    rejects_all(&with(claim("c", "absent", "1Gi")), UNRESOLVABLE, "VolumeBinding", unbound);
    let mut reserved = waiting();
    reserved["spec"]["volumeName"] = "v".into();
    rejects_all(&with(reserved), UNRESOLVABLE, "VolumeBinding", unbound);
    let gone = bound(waiting(), "v");
    rejects_all(&with(gone), UNRESOLVABLE, "VolumeZone", r#"persistentvolume "v" not found"#);
}

#[test]
fn an_ephemeral_volume_needs_a_claim_of_the_pod() {
    let template =
        json!({ "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    let mut world = world(&[json!({ "ephemeral": { "volumeClaimTemplate": template } })]);
    let text = r#"waiting for ephemeral volume controller to create the persistentvolumeclaim "incoming-v0""#;
    rejects_all(&world, UNRESOLVABLE, "VolumeBinding", text);
    world.persistent_volume_claims = vec![claim("incoming-v0", "fast", "1Gi")];
    let text = "PVC blue/incoming-v0 was not created for pod blue/incoming (pod is not owner)";
    rejects_all(&world, UNRESOLVABLE, "VolumeBinding", text);
    world.persistent_volume_claims[0]["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "v1", "kind": "Pod", "name": "incoming", "uid": "incoming", "controller": true }]);
    assert_eq!(ask(&world).nodes[0].volumes.clone().unwrap().provision, ["incoming-v0"]);
    // VolumeZone does not look at it, so VolumeBinding has the word.
    let world =
        World { persistent_volume_claims: vec![bound(world.persistent_volume_claims[0].clone(), "v")], ..world };
    let text = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
    rejects_all(&world, UNRESOLVABLE, "VolumeBinding", text);
}

#[test]
fn a_bound_volume_restricts_nodes_by_affinity_and_by_zone() {
    let with = |volume: Value| World {
        persistent_volume_claims: vec![bound(claim("c", "static", "1Gi"), "v")],
        persistent_volumes: vec![volume],
        ..world(&[uses("c")])
    };
    let far = in_zone("z1", volume("v", "1Gi"));
    rejects_n2(&with(far), UNRESOLVABLE, "VolumeBinding", "node(s) didn't match PersistentVolume's node affinity");
    let labelled = |key: &str, value: &str| {
        let mut volume = volume("v", "1Gi");
        volume["metadata"]["labels"] = json!({ key: value });
        with(volume)
    };
    // The older key also stands for the node's newer one.
    for key in [ZONE, "failure-domain.beta.kubernetes.io/zone"] {
        let text = "node(s) had no available volume zone";
        rejects_n2(&labelled(key, "z0__z1"), UNRESOLVABLE, "VolumeZone", text);
        assert_eq!(ask(&labelled(key, "z1__z2")).feasible, 2);
    }
    let mut bare = labelled(ZONE, "z1");
    remove(&mut bare.nodes[1]["metadata"], "labels");
    assert_eq!(ask(&bare).feasible, 2);
}

#[test]
fn a_driver_has_a_limit_on_a_node() {
    let limit = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": "n2" },
        "spec": { "drivers": [{ "name": "csi.example", "nodeID": "n2", "allocatable": { "count": 1 } }] } });
    let mut world = World {
        persistent_volume_claims: vec![
            bound(claim("c", "static", "1Gi"), "v"),
            bound(claim("other", "static", "1Gi"), "w"),
        ],
        persistent_volumes: vec![volume("v", "1Gi"), volume("w", "1Gi")],
        csi_nodes: vec![limit],
        pods: vec![on("n2", 0, pod("p", "blue", &[uses("other")]))],
        ..world(&[uses("c")])
    };
    let text = "node(s) exceed max volume count";
    rejects_n2(&world, Verdict::Unschedulable, "NodeVolumeLimits", text);
    // The same volume needs no second place.
    world.pods[0] = on("n2", 0, pod("p", "blue", &[uses("c")]));
    assert_eq!(ask(&world).feasible, 2);
    // One that is still attached has one.
    world.pods.clear();
    world.volume_attachments = vec![json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": { "name": "a" },
        "spec": { "attacher": "csi.example", "nodeName": "n2", "source": { "persistentVolumeName": "w" } } })];
    rejects_n2(&world, Verdict::Unschedulable, "NodeVolumeLimits", text);
}

#[test]
fn disks_in_pods_conflict() {
    let disk = |read_only: bool| json!({ "gcePersistentDisk": { "pdName": "d", "readOnly": read_only } });
    let with = |there: bool, here: bool| World {
        pods: vec![on("n2", 0, pod("p", "green", &[disk(there)]))],
        ..world(&[disk(here)])
    };
    let text = "node(s) had no available disk";
    rejects_n2(&with(true, false), Verdict::Unschedulable, "VolumeRestrictions", text);
    rejects_n2(&with(false, true), Verdict::Unschedulable, "VolumeRestrictions", text);
    assert_eq!(ask(&with(true, true)).feasible, 2);
    // vSphere's never do.
    let volumes = [json!({ "vsphereVolume": { "volumePath": "[datastore] a.vmdk" } })];
    let vsphere = World { pods: vec![on("n2", 0, pod("p", "blue", &volumes))], ..world(&volumes) };
    assert_eq!(ask(&vsphere).feasible, 2);
}

#[test]
fn a_claim_for_one_pod_is_freed_by_preemption_also_of_a_pod_that_only_uses_its_name() {
    let mut only = bound(claim("c", "static", "1Gi"), "v");
    only["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    let mut reserved = volume("v", "1Gi");
    reserved["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    let mut world = World {
        persistent_volume_claims: vec![only],
        persistent_volumes: vec![reserved],
        pods: vec![on("n1", 0, pod("user", "blue", &[uses("c")]))],
        ..world(&[uses("c")])
    };
    world.pod["spec"]["priority"] = 100.into();
    let text = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
    rejects_all(&world, Verdict::Unschedulable, "VolumeRestrictions", text);
    let candidates = |world: &World| -> Vec<(String, Vec<String>)> {
        let preemption = ask(world).preemption.unwrap();
        preemption.candidates.into_iter().map(|candidate| (candidate.node, candidate.victims)).collect()
    };
    let of = |node: &str, victim: &str| (node.to_owned(), vec![victim.to_owned()]);
    assert_eq!(candidates(&world), [of("n1", "blue/user")]);
    // Upstream compares names without namespaces here, so that it would preempt this pod in vain.
    world.pods.push(on("n2", 0, pod("stranger", "green", &[uses("c")])));
    assert_eq!(candidates(&world), [of("n1", "blue/user"), of("n2", "green/stranger")]);
}
