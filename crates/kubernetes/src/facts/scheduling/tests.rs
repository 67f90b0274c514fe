//! Pods and nodes as JSON, and the expected scheduling facts.

use std::sync::Arc;

use model::event::{NodeFacts, PodFacts};
use model::scheduling::{NonZeroSums, PodRequests, ResourceSums};
use serde_json::{Value, json};

use super::*;
use crate::facts::{Schedulable, Watched};

fn pod(metadata: Value, spec: &Value, status: &Value) -> PodFacts {
    let mut metadata = metadata;
    metadata["name"] = "p".into();
    let object = json!({ "metadata": metadata, "spec": spec, "status": status }).to_string();
    let watched: Watched<Schedulable<PodFacts>> = serde_json::from_str(&object).expect(&object);
    watched.facts.0
}

fn facts(spec: &Value) -> Arc<PodSchedulingFacts> {
    pod(json!({}), spec, &Value::Null).scheduling.expect("facts for a scheduler")
}

fn requests(spec: &Value, status: &Value) -> PodRequests {
    pod(json!({}), spec, status).scheduling.expect("facts for a scheduler").requests.clone()
}

fn container(requests: &Value) -> Value {
    json!({ "name": "c", "resources": { "requests": requests } })
}

/// Cpu in thousandths, memory in MB.
fn sums(cpu_milli: i64, memory_mb: i64) -> ResourceSums {
    ResourceSums { cpu_milli, memory_bytes: memory_mb * 1_000_000, ..ResourceSums::default() }
}

fn non_zero(cpu_milli: i64, memory_bytes: i64) -> NonZeroSums {
    NonZeroSums { cpu_milli, memory_bytes }
}

const MB: i64 = 1_000_000;
const DEFAULT: i64 = 200 << 20;

/// The cases of kube-scheduler's own tests, and cases that distinguish its four sums.
#[test]
fn requests_are_summed_as_kube_scheduler_does() {
    let small = container(&json!({ "cpu": "500m", "memory": "500M" }));
    let large = container(&json!({ "cpu": "700m", "memory": "800M" }));
    let sidecar = |requests: Value| {
        let mut container = container(&requests);
        container["restartPolicy"] = "Always".into();
        container
    };
    let both = |sums: ResourceSums| (sums.clone(), sums);
    // Spec; asked and taken (equal without a status); taken with defaults; scored.
    let cases = [
        ("nothing named", json!({ "containers": [{}] }), both(sums(0, 0)), non_zero(100, DEFAULT), (100, DEFAULT)),
        (
            "an explicit 0 stays 0",
            json!({ "containers": [container(&json!({ "cpu": 0, "memory": "0" }))] }),
            both(sums(0, 0)),
            non_zero(0, 0),
            (0, 0),
        ),
        (
            "containers add up",
            json!({ "containers": [small, large] }),
            both(sums(1200, 1300)),
            non_zero(1200, 1300 * MB),
            (1200, 1300 * MB),
        ),
        (
            "each container has its own default",
            json!({ "containers": [small, {}, container(&json!({ "cpu": "1" }))] }),
            both(sums(1500, 500)),
            non_zero(1600, 500 * MB + 2 * DEFAULT),
            (1600, 500 * MB + 2 * DEFAULT),
        ),
        (
            "the largest init container counts by itself",
            json!({ "containers": [small], "initContainers": [large, container(&json!({ "cpu": "2" }))] }),
            both(sums(2000, 800)),
            non_zero(2000, 800 * MB),
            (2000, 800 * MB),
        ),
        (
            "sidecars run beside the containers after them",
            json!({
                "containers": [small],
                "initContainers": [
                    container(&json!({ "cpu": "1" })),
                    sidecar(json!({ "cpu": "300m", "memory": "1M" })),
                    container(&json!({ "cpu": "900m", "memory": "900M" })),
                ],
            }),
            both(sums(1200, 901)),
            non_zero(1200, 901 * MB),
            (1200, 901 * MB),
        ),
        (
            "overhead is added",
            json!({ "containers": [small], "overhead": { "cpu": "10m", "memory": "1M" } }),
            both(sums(510, 501)),
            non_zero(510, 501 * MB),
            (510, 501 * MB),
        ),
        (
            "pod-level requests replace the sum, but not for the score",
            json!({
                "containers": [small], "initContainers": [small], "overhead": { "cpu": "1m" },
                "resources": { "requests": { "cpu": "1200m", "memory": "1200M" } },
            }),
            both(sums(1201, 1200)),
            non_zero(1201, 1200 * MB),
            (501, 500 * MB),
        ),
        (
            "only memory for the pod: cpu has its default",
            json!({
                "containers": [{}], "initContainers": [{}], "resources": { "requests": { "memory": "1200M" } },
            }),
            both(sums(0, 1200)),
            non_zero(100, 1200 * MB),
            (100, DEFAULT),
        ),
        (
            "memory for the pod, cpu for one container: no default for the other",
            json!({
                "containers": [container(&json!({ "cpu": "1" })), {}],
                "resources": { "requests": { "memory": "1200M" } },
            }),
            both(sums(1000, 1200)),
            non_zero(1000, 1200 * MB),
            (1100, 2 * DEFAULT),
        ),
        (
            "missing requests of a container default to its limits",
            json!({ "containers": [{ "resources": { "limits": { "cpu": "2", "memory": "1M" }, "requests": { "cpu": "1" } } }] }),
            both(sums(1000, 1)),
            non_zero(1000, MB),
            (1000, MB),
        ),
        (
            "missing pod-level requests default to the containers, then to the pod's limits",
            json!({
                "containers": [container(&json!({ "cpu": "500m" }))],
                "resources": { "limits": { "cpu": "9", "memory": "7M" } },
            }),
            both(sums(500, 7)),
            non_zero(500, 7 * MB),
            (500, DEFAULT),
        ),
        (
            "parts are added before they are rounded",
            json!({ "containers": [
                container(&json!({ "cpu": "400u", "memory": "0.5" })), container(&json!({ "cpu": "600u", "memory": "500m" })),
            ] }),
            both(ResourceSums { cpu_milli: 1, memory_bytes: 1, ..ResourceSums::default() }),
            non_zero(1, 1),
            (1, 1),
        ),
    ];
    for (name, spec, (asked, taken), taken_non_zero, (scored_cpu, scored_memory)) in cases {
        let found = requests(&spec, &Value::Null);
        let scored = ResourceSums { cpu_milli: scored_cpu, memory_bytes: scored_memory, ..ResourceSums::default() };
        assert_eq!(found, PodRequests { asked, taken, taken_non_zero, scored }, "{name}");
    }
}

#[test]
fn other_resources_are_counted_by_name() {
    let named = json!({
        "ephemeral-storage": "1G", "example.com/gpu": 2, "hugepages-2Mi": "4Mi", "attachable-volumes-csi": "1",
        "example.com/none": 0, "storage": "1G", "pods": 5, "requests.example.com/x": 1, "kubernetes.io/x": "3",
    });
    let found = requests(
        &json!({
            "containers": [container(&named), container(&json!({ "example.com/gpu": "500m" }))],
            "resources": { "requests": { "hugepages-2Mi": "6Mi", "example.com/gpu": "100" } },
        }),
        &Value::Null,
    );
    let scalar = |huge_pages: i64| {
        [
            ("example.com/gpu", 3),
            ("hugepages-2Mi", huge_pages << 20),
            ("attachable-volumes-csi", 1),
            ("kubernetes.io/x", 3),
        ]
        .map(|(name, amount)| (name.to_owned(), amount))
        .into()
    };
    assert_eq!((found.asked.ephemeral_storage_bytes, found.asked.scalar), (1000 * MB, scalar(6)));
    assert_eq!(found.scored.scalar, scalar(4), "pod-level requests are not part of the score");
}

#[test]
fn a_resize_counts_at_its_largest() {
    let spec = json!({
        "containers": [{ "name": "c", "resources": { "requests": { "cpu": "500m", "memory": "500M" } } }],
        "initContainers": [
            { "name": "s", "restartPolicy": "Always", "resources": { "requests": { "cpu": "100m" } } },
            { "name": "i", "resources": { "requests": { "cpu": "200m" } } },
        ],
    });
    let status = |actuated: &str, allocated: &str, condition: &str| {
        let of = |name: &str| {
            json!({
                "name": name, "resources": { "requests": { "cpu": actuated } },
                "allocatedResources": { "cpu": allocated, "memory": "600M" },
            })
        };
        json!({
            "containerStatuses": [of("c")], "initContainerStatuses": [of("s"), of("i")],
            "conditions": [{ "type": "PodResizePending", "status": "True", "reason": condition }],
        })
    };
    // Status; cpu and memory taken. Both the container and the sidecar are resized; the plain init container has ended.
    let cases = [
        (Value::Null, (600, 500)),
        (status("400m", "300m", "Deferred"), (900, 1200)),
        (status("400m", "700m", "Deferred"), (1400, 1200)),
        (status("800m", "700m", ""), (1600, 1200)),
        (status("50m", "60m", "Infeasible"), (260, 1200)),
        // Allocated without actuated is ignored.
        (json!({ "containerStatuses": [{ "name": "c", "allocatedResources": { "cpu": "9" } }] }), (600, 500)),
    ];
    for (status, (cpu_milli, memory_mb)) in cases {
        let found = requests(&spec, &status);
        assert_eq!(found.asked, sums(600, 500), "by the spec alone: {status}");
        assert_eq!(found.taken, sums(cpu_milli, memory_mb), "{status}");
    }

    let pod_level = json!({ "containers": [{}], "resources": { "requests": { "cpu": "1", "memory": "10M" } } });
    let cases = [
        (json!({ "resources": { "requests": { "cpu": "2" } }, "allocatedResources": { "cpu": "3" } }), sums(3000, 10)),
        (json!({ "allocatedResources": { "cpu": "3" } }), sums(1000, 10)),
        (
            json!({
                "resources": { "requests": { "cpu": "500m" } },
                "conditions": [{ "type": "PodResizePending", "reason": "Infeasible" }],
            }),
            sums(500, 0),
        ),
    ];
    for (status, taken) in cases {
        assert_eq!(requests(&pod_level, &status).taken, taken, "{status}");
    }
}

#[test]
fn a_whole_pod_is_read_for_a_scheduler() {
    let read = pod(
        json!({
            "namespace": "shop", "labels": { "app": "web", "hash": "x1" }, "creationTimestamp": "2026-01-02T03:04:05Z",
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-x1", "uid": "u", "controller": true }],
        }),
        &json!({
            "schedulerName": "bridger", "priority": 7, "preemptionPolicy": "Never",
            "schedulingGates": [{ "name": "wait" }],
            "containers": [
                { "name": "a", "image": "registry:5000/web", "ports": [
                    { "containerPort": 80, "hostPort": 8080 }, { "containerPort": 81 },
                    { "containerPort": 82, "hostPort": 82, "hostIP": "10.0.0.1", "protocol": "UDP" },
                ], "restartPolicyRules": [{ "action": "RestartAllContainers" }] },
                { "name": "b", "image": "db:17" },
            ],
            "initContainers": [
                { "name": "c", "image": "tool", "ports": [{ "hostPort": 1 }] },
                { "name": "d", "image": "side@sha256:abc", "restartPolicy": "Always", "ports": [{ "hostPort": 2 }] },
            ],
            "hostNetwork": true, "hostUsers": false,
            "tolerations": [
                { "operator": "Exists" }, { "key": "a", "value": "1", "effect": "NoSchedule" },
                { "key": "n", "operator": "Gt", "value": "5" }, { "key": "b", "operator": "Exists", "effect": "Strange" },
            ],
            "topologySpreadConstraints": [
                { "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3,
                  "labelSelector": { "matchLabels": { "app": "web" } }, "matchLabelKeys": ["hash", "app", "absent"],
                  "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor" },
                { "maxSkew": 2, "topologyKey": "host", "whenUnsatisfiable": "ScheduleAnyway", "matchLabelKeys": ["hash"] },
            ],
            "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
                { "weight": 5, "preference": { "matchExpressions": [{ "key": "disk", "operator": "In", "values": ["ssd"] }] } },
            ] } },
            "volumes": [
                { "name": "v", "persistentVolumeClaim": { "claimName": "data" } }, { "name": "e", "ephemeral": {} },
                { "name": "i", "image": { "reference": "model:v1" } }, { "name": "c", "configMap": { "name": "x" } },
            ],
            "resourceClaims": [{ "name": "gpu", "resourceClaimName": "g" }],
            "schedulingGroup": { "podGroupName": "gang" },
        }),
        &json!({ "nominatedNodeName": "n1" }),
    );
    assert_eq!((read.created_s, read.nominated_node.as_deref()), (Some(1_767_323_045), Some("n1")));
    let volumes = [PodVolume::Claim("data".to_owned()), PodVolume::Ephemeral("e".to_owned())];
    assert_eq!(read.volumes, volumes);
    let facts = read.scheduling.expect("facts for a scheduler");
    let port = |ip: &str, protocol: &str, port| HostPort { ip: ip.to_owned(), protocol: protocol.to_owned(), port };
    let web = SelectorFacts {
        labels: [("app".to_owned(), "web".to_owned())].into(),
        expressions: vec![RequirementFacts {
            key: "hash".to_owned(),
            operator: Operator::In,
            values: vec!["x1".to_owned()],
        }],
    };
    let expected = PodSchedulingFacts {
        scheduler_name: "bridger".to_owned(),
        priority: 7,
        preemption: PreemptionPolicy::Never,
        gates: vec!["wait".to_owned()],
        requests: facts.requests.clone(),
        host_ports: vec![
            port("0.0.0.0", "TCP", 2),
            port("0.0.0.0", "TCP", 8080),
            // With the host's network, a container's port is the host's.
            port("0.0.0.0", "TCP", 81),
            port("10.0.0.1", "UDP", 82),
        ],
        tolerations: vec![
            Toleration::default(),
            Toleration { key: "a".to_owned(), value: Some("1".to_owned()), effect: Some(TaintEffect::NoSchedule) },
        ],
        images: ["tool:latest", "side@sha256:abc", "registry:5000/web:latest", "db:17", "model:v1"]
            .map(str::to_owned)
            .into(),
        container_count: 4,
        spread: vec![
            SpreadFacts {
                topology_key: "zone".to_owned(),
                max_skew: 1,
                hard: true,
                selector: Some(web),
                min_domains: 3,
                honor_node_affinity: false,
                honor_taints: true,
            },
            SpreadFacts {
                topology_key: "host".to_owned(),
                max_skew: 2,
                hard: false,
                selector: None,
                min_domains: 1,
                honor_node_affinity: true,
                honor_taints: false,
            },
        ],
        preferred_nodes: facts.preferred_nodes.clone(),
        required_features: vec![
            "RestartAllContainersOnContainerExits".to_owned(),
            "UserNamespacesHostNetworkSupport".to_owned(),
        ],
        controller: Some(WorkloadKind::ReplicaSet),
        unsupported: vec![
            UnsupportedFeature::ResourceClaim("gpu".to_owned()),
            UnsupportedFeature::SchedulingGroup("gang".to_owned()),
        ],
    };
    assert_eq!(*facts, expected);
    assert_eq!(facts.preferred_nodes.len(), 1);
    assert_eq!((facts.preferred_nodes[0].weight, facts.preferred_nodes[0].term.expressions.len()), (5, 1));
}

#[test]
fn an_empty_pod_has_kubernetes_defaults() {
    let facts = facts(&Value::Null);
    assert_eq!(
        *facts,
        PodSchedulingFacts { scheduler_name: "default-scheduler".to_owned(), ..PodSchedulingFacts::default() }
    );
}

#[test]
fn a_whole_node_is_read_for_a_scheduler() {
    let object = json!({
        "metadata": { "name": "n" },
        "spec": { "unschedulable": true, "providerID": "kind://x", "taints": [
            { "key": "a", "value": "1", "effect": "NoSchedule" }, { "key": "b", "effect": "NoExecute" },
            { "key": "c", "effect": "Strange" },
        ] },
        "status": {
            "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "10", "example.com/gpu": "2" },
            "images": [{ "names": ["a:1", "a@sha256:1"], "sizeBytes": 7 }, {}],
            "declaredFeatures": ["F"], "conditions": [{ "type": "Ready", "status": "True" }],
        },
    });
    let watched: Watched<Schedulable<NodeFacts>> = serde_json::from_str(&object.to_string()).expect("a node");
    let read = watched.facts.0;
    assert!(read.ready);
    let taint = |key: &str, value: &str, effect| Taint { key: key.to_owned(), value: value.to_owned(), effect };
    let image = |names: &[&str], size_bytes| NodeImage {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        size_bytes,
    };
    assert_eq!(
        *read.scheduling.expect("facts for a scheduler"),
        NodeSchedulingFacts {
            allocatable: ResourceSums {
                cpu_milli: 4000,
                memory_bytes: 8 << 30,
                ephemeral_storage_bytes: 10,
                scalar: [("example.com/gpu".to_owned(), 2)].into(),
            },
            allowed_pods: 110,
            taints: vec![taint("a", "1", TaintEffect::NoSchedule), taint("b", "", TaintEffect::NoExecute)],
            unschedulable: true,
            images: vec![image(&["a:1", "a@sha256:1"], 7), image(&[], 0)],
            declared_features: vec!["F".to_owned()],
        }
    );
}

#[test]
fn scheduling_facts_are_not_read_without_scheduling() {
    // The fields are skipped, so that even invalid values do no harm.
    let object = json!({ "metadata": { "name": "p" }, "spec": { "containers": 5 }, "status": { "conditions": 7 } });
    let watched: Watched<PodFacts> = serde_json::from_str(&object.to_string()).expect("a pod");
    assert_eq!((watched.facts.scheduling, watched.facts.created_s), (None, None));
}

#[test]
fn workloads_give_their_selectors() {
    let read = |object: Value| crate::objects::applied(&object).expect("an object of its kind");
    let labels: Labels = [("app".to_owned(), "web".to_owned())].into();
    let facts = |kind, selector| {
        Some(model::event::Event::WorkloadApplied(model::scheduling::WorkloadFacts {
            kind,
            namespace: "shop".to_owned(),
            name: "s".to_owned(),
            selector,
        }))
    };
    let by_labels = Some(SelectorFacts { labels, ..SelectorFacts::default() });
    let metadata = json!({ "name": "s", "namespace": "shop" });
    let plain = json!({ "selector": { "app": "web" } });
    let whole = json!({ "selector": { "matchLabels": { "app": "web" } } });
    let cases = [
        ("v1", "Service", plain.clone(), facts(WorkloadKind::Service, by_labels.clone())),
        ("v1", "Service", json!({}), facts(WorkloadKind::Service, None)),
        ("v1", "ReplicationController", plain, facts(WorkloadKind::ReplicationController, by_labels.clone())),
        ("apps/v1", "ReplicaSet", whole.clone(), facts(WorkloadKind::ReplicaSet, by_labels.clone())),
        ("apps/v1", "StatefulSet", whole.clone(), facts(WorkloadKind::StatefulSet, by_labels)),
        ("apps/v1", "Deployment", whole, None),
    ];
    for (api_version, kind, spec, expected) in cases {
        let object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec });
        assert_eq!(read(object), expected, "{kind}");
    }
}

#[test]
fn number_12_pods_of_a_group_are_held_back() {
    let group = |label: &str| {
        let pod = pod(json!({ "labels": { label: "gang" } }), &json!({}), &Value::Null);
        pod.scheduling.expect("facts for a scheduler").unsupported.clone()
    };
    let gang = [UnsupportedFeature::SchedulingGroup("gang".to_owned())];
    assert_eq!(group("scheduling.x-k8s.io/pod-group"), gang);
    assert_eq!(group("pod-group.scheduling.sigs.k8s.io"), gang);
    assert!(group("app").is_empty());
}

#[test]
fn a_device_class_that_is_requested_by_its_name_is_not_supported() {
    let of = |requests: Value| {
        let spec = json!({ "containers": [{ "name": "main", "resources": { "requests": requests } }] });
        pod(json!({}), &spec, &json!({})).scheduling.expect("facts for a scheduler").unsupported.clone()
    };
    let implicit = of(json!({ "deviceclass.resource.kubernetes.io/gpu.example.com": "1", "cpu": "1" }));
    assert_eq!(implicit, [UnsupportedFeature::DeviceClass("gpu.example.com".to_owned())]);
    let expected = "a device of the DeviceClass \"gpu.example.com\" (dynamic resource allocation)";
    assert_eq!(implicit[0].to_string(), expected);
    // A name that a class gives itself looks like any other: the nodes say whether they have it.
    assert!(of(json!({ "example.com/gpu": "1" })).is_empty());
    assert!(of(json!({ "deviceclass.resource.kubernetes.io/gpu": "0" })).is_empty());
}
