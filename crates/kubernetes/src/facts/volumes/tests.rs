//! Claims, volumes and pods with volumes as JSON, and the expected facts.

use model::event::{Event, Labels, NodeTermFacts, Operator, PodFacts, RequirementFacts, SelectorFacts};
use model::volumes::{Disk, InTreePlugin, InTreeVolume, MigratedVolume, PodVolume};
use serde_json::{Value, json};

use super::*;
use crate::facts::{Schedulable, Watched};

fn read(object: &Value) -> VolumeObject {
    match crate::objects::applied(object).expect("it is valid").expect("a kind that is read") {
        Event::VolumeApplied(object) => object,
        other => panic!("{other:?}"),
    }
}

fn volumes(spec: &Value) -> Vec<PodVolume> {
    let object = json!({ "metadata": { "name": "p" }, "spec": { "volumes": spec } }).to_string();
    let watched: Watched<Schedulable<PodFacts>> = serde_json::from_str(&object).expect(&object);
    let Event::PodApplied(facts) = watched.facts.applied() else { panic!("a pod") };
    facts.volumes
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn one_of(key: &str, values: &[&str]) -> RequirementFacts {
    RequirementFacts {
        key: text(key),
        operator: Operator::In,
        values: values.iter().map(|value| text(value)).collect(),
    }
}

fn term(expressions: Vec<RequirementFacts>) -> NodeTermFacts {
    NodeTermFacts { expressions, fields: Vec::new() }
}

#[test]
fn a_claim_is_read() {
    let object = |metadata: Value, spec: Value, status: Value| {
        let mut metadata = metadata;
        (metadata["name"], metadata["namespace"]) = ("data".into(), "shop".into());
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec, "status": status })
    };
    let whole = object(
        json!({
            "uid": "u1", "resourceVersion": "77", "deletionTimestamp": "2026-01-02T03:04:05Z",
            "annotations": {
                "volume.beta.kubernetes.io/storage-class": "old", "pv.kubernetes.io/bind-completed": "",
                "volume.kubernetes.io/selected-node": "n1",
            },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod", "controller": true }],
        }),
        json!({
            "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"], "resources": { "requests": { "storage": "1.5Gi" } },
            "selector": { "matchLabels": { "tier": "fast" } }, "storageClassName": "new", "volumeMode": "Block",
            "volumeAttributesClassName": "gold", "volumeName": "pv-1",
        }),
        json!({ "phase": "Lost" }),
    );
    let expected = ClaimFacts {
        namespace: text("shop"),
        name: text("data"),
        uid: text("u1"),
        version: text("77"),
        class: text("old"),
        volume: Some(text("pv-1")),
        bind_completed: true,
        is_lost: true,
        terminating: true,
        controller_uid: Some(text("pod")),
        access_modes: [AccessMode::ReadWriteOnce, AccessMode::ReadWriteOncePod].into(),
        requested_bytes: Some(3 << 29),
        selector: Some(SelectorFacts { labels: [(text("tier"), text("fast"))].into(), expressions: vec![] }),
        is_block: true,
        attributes_class: text("gold"),
        selected_node: Some(text("n1")),
    };
    assert_eq!(read(&whole), VolumeObject::Claim(Arc::new(expected)));
    let plain =
        object(json!({}), json!({ "storageClassName": "new", "volumeName": "" }), json!({ "phase": "Pending" }));
    let expected =
        ClaimFacts { namespace: text("shop"), name: text("data"), class: text("new"), ..ClaimFacts::default() };
    assert_eq!(read(&plain), VolumeObject::Claim(Arc::new(expected)));
}

#[allow(clippy::needless_pass_by_value)]
fn volume(metadata: Value, spec: Value) -> VolumeFacts {
    let mut metadata = metadata;
    metadata["name"] = "pv-1".into();
    let object = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec,
        "status": { "phase": "Available" } });
    match read(&object) {
        VolumeObject::Volume(volume) => (*volume).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_volume_is_read() {
    let local = volume(
        json!({
            "resourceVersion": "12", "labels": { "a": "b" },
            "annotations": { "pv.kubernetes.io/bound-by-controller": "yes" },
        }),
        json!({
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "10Gi" }, "storageClassName": "local",
            "claimRef": { "namespace": "shop", "name": "data" }, "local": { "path": "/disk" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"] }] },
            ] } },
        }),
    );
    let expected = VolumeFacts {
        name: text("pv-1"),
        version: text("12"),
        labels: [(text("a"), text("b"))].into(),
        class: text("local"),
        claim: Some(ClaimRefFacts { namespace: text("shop"), name: text("data"), uid: String::new() }),
        bound_by_controller: true,
        capacity_bytes: 10 << 30,
        access_modes: [AccessMode::ReadWriteOnce].into(),
        available: true,
        node_terms: Some(vec![term(vec![one_of("kubernetes.io/hostname", &["n1"])])]),
        ..VolumeFacts::default()
    };
    assert_eq!(local, expected);
    let csi = volume(json!({}), json!({ "csi": { "driver": "csi.x", "volumeHandle": "h" } }));
    assert_eq!(csi.source, VolumeSourceFacts::Csi(CsiVolume { driver: text("csi.x"), handle: text("h") }));
}

#[test]
fn in_tree_volumes_are_converted_as_by_kubernetes() {
    let labels = |pairs: &[(&str, &str)]| -> Labels { pairs.iter().map(|(k, v)| (text(k), text(v))).collect() };
    const ZONE: &str = "topology.kubernetes.io/zone";
    const BETA: &str = "failure-domain.beta.kubernetes.io/zone";
    const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
    const REGION: &str = "topology.kubernetes.io/region";
    let affinity = |key: &str, value: &str| {
        json!({ "required": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": key, "operator": "In", "values": [value] }] }] } })
    };
    let gce = |zones: &str| (labels(&[(ZONE, zones)]), json!({ "gcePersistentDisk": { "pdName": "d" } }));
    let aws = |id: &str| json!({ "awsElasticBlockStore": { "volumeID": id } });
    let with = |spec: Value, node_affinity: Value| {
        let mut spec = spec;
        spec["nodeAffinity"] = node_affinity;
        spec
    };
    let aws_zone = "topology.ebs.csi.aws.com/zone";
    let in_zones = |key: &str, zones: &[&str]| Some(vec![term(vec![one_of(key, zones)])]);
    let too_many = "failed to get region from zones: multiple or no regions gotten from zones, got: \
                    map[us-east1:{} us-west1:{}]";
    // Labels, spec; plugin, and handle with node terms, or the error.
    let cases = [
        ((labels(&[]), aws("vol-1")), InTreePlugin::AwsEbs, Ok(("vol-1", None))),
        ((labels(&[]), aws("aws://us-west-2b/vol-1")), InTreePlugin::AwsEbs, Ok(("vol-1", None))),
        ((labels(&[]), aws("aws:///vol-1")), InTreePlugin::AwsEbs, Ok(("vol-1", None))),
        (
            (labels(&[]), aws("aws:///disk-1")),
            InTreePlugin::AwsEbs,
            Err("failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws:///disk-1)"),
        ),
        ((labels(&[(ZONE, "a")]), aws("vol-1")), InTreePlugin::AwsEbs, Ok(("vol-1", in_zones(aws_zone, &["a"])))),
        // The node affinity counts more than the label, and its older region key gets the newer name.
        (
            (labels(&[(ZONE, "a")]), with(aws("vol-1"), affinity(ZONE, "b"))),
            InTreePlugin::AwsEbs,
            Ok(("vol-1", in_zones(aws_zone, &["b"]))),
        ),
        (
            (labels(&[(BETA, "a")]), with(aws("vol-1"), affinity(BETA_REGION, "r"))),
            InTreePlugin::AwsEbs,
            Ok(("vol-1", Some(vec![term(vec![one_of(REGION, &["r"]), one_of(aws_zone, &["a"])])]))),
        ),
        (
            gce("z"),
            InTreePlugin::GcePd,
            Ok(("projects/UNSPECIFIED/zones/z/disks/d", in_zones("topology.gke.io/zone", &["z"]))),
        ),
        (
            gce("us-east1-c__us-east1-b"),
            InTreePlugin::GcePd,
            Ok((
                "projects/UNSPECIFIED/regions/us-east1/disks/d",
                in_zones("topology.gke.io/zone", &["us-east1-b", "us-east1-c"]),
            )),
        ),
        (gce("us-east1-b__us-west1-a"), InTreePlugin::GcePd, Err(too_many)),
        (
            (labels(&[]), json!({ "gcePersistentDisk": { "pdName": "d" } })),
            InTreePlugin::GcePd,
            Ok(("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d", None)),
        ),
        ((labels(&[]), json!({ "cinder": { "volumeID": "c" } })), InTreePlugin::Cinder, Ok(("c", None))),
        (
            (labels(&[]), json!({ "azureDisk": { "diskName": "n", "diskURI": "/disks/n", "kind": "Managed" } })),
            InTreePlugin::AzureDisk,
            Ok(("/disks/n", None)),
        ),
        (
            (labels(&[]), json!({ "azureDisk": { "diskURI": "/disks/n", "kind": "Dedicated" } })),
            InTreePlugin::AzureDisk,
            Err("kind(Dedicated) is not supported in csi migration"),
        ),
        (
            (labels(&[(ZONE, "a")]), json!({ "portworxVolume": { "volumeID": "p" } })),
            InTreePlugin::Portworx,
            Ok(("p", None)),
        ),
    ];
    for ((labels, spec), plugin, expected) in cases {
        let read = volume(json!({ "labels": labels }), spec.clone());
        let migrated = match expected {
            Ok((handle, node_terms)) => Ok(MigratedVolume { handle: text(handle), node_terms }),
            Err(error) => Err(text(error)),
        };
        assert_eq!(read.source, VolumeSourceFacts::InTree(InTreeVolume { plugin, migrated }), "{labels:?} {spec}");
    }
    let vsphere = volume(json!({}), json!({ "vsphereVolume": { "volumePath": "[ds] x" } }));
    let VolumeSourceFacts::InTree(vsphere) = vsphere.source else { panic!("{vsphere:?}") };
    assert!(vsphere.plugin == InTreePlugin::Vsphere && vsphere.migrated.is_err());
}

#[test]
fn classes_drivers_capacities_and_attachments_are_read() {
    let object = |kind: &str, fields: Value| {
        let mut object = fields;
        object["apiVersion"] = "storage.k8s.io/v1".into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = "x".into();
        read(&object)
    };
    let class = object(
        "StorageClass",
        json!({
            "provisioner": "csi.x", "volumeBindingMode": "WaitForFirstConsumer", "parameters": { "a": "b" },
            "allowedTopologies": [{ "matchLabelExpressions": [{ "key": "zone", "values": ["a", "b"] }] }, {}],
        }),
    );
    let expected = StorageClassFacts {
        name: text("x"),
        provisioner: text("csi.x"),
        binding_mode: Some(BindingMode::WaitForFirstConsumer),
        allowed_topologies: vec![term(vec![one_of("zone", &["a", "b"])]), NodeTermFacts::default()],
    };
    assert_eq!(class, VolumeObject::StorageClass(Arc::new(expected)));
    let none = object("StorageClass", json!({ "provisioner": "p" }));
    let VolumeObject::StorageClass(none) = none else { panic!("{none:?}") };
    assert_eq!(none.binding_mode, Some(BindingMode::Immediate));

    let node = object(
        "CSINode",
        json!({
            "metadata": { "annotations": { "storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/cinder,b" } },
            "spec": { "drivers": [
                { "name": "csi.x", "nodeID": "n", "allocatable": { "count": 5 } }, { "name": "csi.y", "nodeID": "n" },
            ] },
        }),
    );
    let driver = |name: &str, volumes_max| CsiNodeDriverFacts { name: text(name), volumes_max };
    let expected = CsiNodeFacts {
        name: text("x"),
        drivers: vec![driver("csi.x", Some(5)), driver("csi.y", None)],
        migrated_plugins: [text("b"), text("kubernetes.io/cinder")].into(),
    };
    assert_eq!(node, VolumeObject::CsiNode(Arc::new(expected)));
    assert!(matches!(object("CSINode", json!({ "spec": { "drivers": null } })), VolumeObject::CsiNode(_)));

    let driver = object("CSIDriver", json!({ "spec": { "storageCapacity": true, "attachRequired": false } }));
    let expected = CsiDriverFacts { name: text("x"), storage_capacity: true };
    assert_eq!(driver, VolumeObject::CsiDriver(Arc::new(expected)));

    for (sizes, largest_bytes) in [
        (json!({ "capacity": "80Gi", "maximumVolumeSize": "40Gi" }), Some(40 << 30)),
        (json!({ "capacity": "80Gi" }), Some(80 << 30)),
        (json!({}), None),
    ] {
        let mut fields = sizes;
        fields["storageClassName"] = "fast".into();
        fields["nodeTopology"] = json!({ "matchLabels": { "zone": "a" } });
        fields["metadata"] = json!({ "namespace": "kube-system" });
        let topology = Some(SelectorFacts { labels: [(text("zone"), text("a"))].into(), expressions: vec![] });
        let expected = StorageCapacityFacts {
            namespace: text("kube-system"),
            name: text("x"),
            class: text("fast"),
            largest_bytes,
            topology,
        };
        assert_eq!(object("CSIStorageCapacity", fields), VolumeObject::StorageCapacity(Arc::new(expected)));
    }

    let attachment = object(
        "VolumeAttachment",
        json!({ "spec": { "attacher": "csi.x", "nodeName": "n1", "source": { "persistentVolumeName": "pv-1" } } }),
    );
    let expected =
        AttachmentFacts { name: text("x"), attacher: text("csi.x"), node: text("n1"), volume: Some(text("pv-1")) };
    assert_eq!(attachment, VolumeObject::Attachment(Arc::new(expected)));
}

#[test]
fn the_volumes_of_a_pod_are_read_in_order() {
    let in_tree = |plugin, handle: &str| {
        PodVolume::InTree(InTreeVolume {
            plugin,
            migrated: Ok(MigratedVolume { handle: text(handle), node_terms: None }),
        })
    };
    let read = volumes(&json!([
        { "name": "token", "projected": {} },
        { "name": "a", "gcePersistentDisk": { "pdName": "d", "readOnly": true } },
        { "name": "b", "persistentVolumeClaim": { "claimName": "data" } },
        { "name": "c", "awsElasticBlockStore": { "volumeID": "vol-1" } },
        { "name": "d", "ephemeral": { "volumeClaimTemplate": {} } },
        { "name": "e", "iscsi": { "iqn": "iqn", "targetPortal": "t", "lun": 0 } },
        { "name": "f", "rbd": { "monitors": ["m"], "image": "i" } },
        { "name": "g", "csi": { "driver": "csi.x" } },
        { "name": "h", "vsphereVolume": { "volumePath": "[ds] x" } },
        { "name": "i", "nfs": { "server": "s", "path": "/" } },
    ]));
    let [.., vsphere, datastore] = read.as_slice() else { panic!("{read:?}") };
    let PodVolume::InTree(vsphere) = vsphere else { panic!("{vsphere:?}") };
    assert!(vsphere.plugin == InTreePlugin::Vsphere && vsphere.migrated.is_err());
    assert_eq!(*datastore, PodVolume::Datastore(text("ds")));
    assert_eq!(
        read[..read.len() - 2],
        [
            PodVolume::Disk(Disk::GcePd { name: text("d"), read_only: true }),
            in_tree(InTreePlugin::GcePd, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"),
            PodVolume::Claim(text("data")),
            PodVolume::Disk(Disk::AwsEbs { volume: text("vol-1") }),
            in_tree(InTreePlugin::AwsEbs, "vol-1"),
            PodVolume::Ephemeral(text("d")),
            PodVolume::Disk(Disk::Iscsi { iqn: text("iqn"), read_only: false }),
            PodVolume::Disk(Disk::Rbd {
                monitors: vec![text("m")],
                pool: text("rbd"),
                image: text("i"),
                read_only: false
            }),
            PodVolume::Csi(text("csi.x")),
        ]
    );
    let broken = volumes(&json!([{ "name": "v", "azureDisk": { "diskURI": "/d" } }]));
    let error = "converting volume(v) from inline to csi: kind(Shared) is not supported in csi migration";
    let migrated = Err(text(error));
    assert_eq!(broken, [PodVolume::InTree(InTreeVolume { plugin: InTreePlugin::AzureDisk, migrated })]);
}

#[test]
fn the_datastore_of_a_vsphere_volume_is_read_where_the_volume_names_it() {
    let csi = |driver: &str, handle: &str, attributes: Value| json!({ "csi": { "driver": driver, "volumeHandle": handle, "volumeAttributes": attributes } });
    let vsphere = "csi.vsphere.vmware.com";
    let id = "0b6cf2bd-9c2b-4b0e-8e9c-0f0a3e3f2f52";
    for (spec, expected) in [
        (json!({ "vsphereVolume": { "volumePath": "[fast disks] kubevols/data.vmdk" } }), Some("fast disks")),
        (json!({ "vsphereVolume": { "volumePath": "data.vmdk" } }), None),
        (json!({ "vsphereVolume": { "volumePath": "[] data.vmdk" } }), None),
        // A migrated volume has its path as handle; a handle of the driver's own is an id.
        (csi(vsphere, "[slow] data.vmdk", json!(null)), Some("slow")),
        (csi(vsphere, id, json!({ "type": "vSphere CNS Block Volume" })), None),
        (csi(vsphere, id, json!({ "datastoreURL": "ds:///vmfs/volumes/a/" })), Some("ds:///vmfs/volumes/a/")),
        (csi(vsphere, id, json!({ "datastore": "fast" })), Some("fast")),
        (csi(vsphere, id, json!({ "datastore": "" })), None),
        (csi("csi.x", "[slow] data.vmdk", json!({ "datastore": "fast" })), None),
    ] {
        assert_eq!(volume(json!({}), spec.clone()).datastore.as_deref(), expected, "{spec}");
    }
}
