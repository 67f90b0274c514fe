//! Objects as JSON, and the expected facts.

use kube::ResourceExt;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const UUID: &str = "4230f3a1-1c5f-9d3b-6d5a-0f5b1f6f2f01";

fn facts<F: Facts>(object: &Value) -> F {
    // From text, as in kube: borrowed input takes other code paths in serde than a value.
    serde_json::from_str::<Watched<F>>(&object.to_string()).unwrap_or_else(|error| panic!("{error}: {object}")).facts
}

fn node(spec: &Value, status: &Value) -> NodeFacts {
    facts(&json!({ "metadata": { "name": "n" }, "spec": spec, "status": status }))
}

fn uuid() -> Option<Uuid> {
    Some(Uuid::parse_str(UUID).expect("a UUID"))
}

#[test]
fn system_uuids_are_read_in_all_their_spellings() {
    let cases = [
        (json!(UUID), uuid()),
        (json!(UUID.to_uppercase()), uuid()),
        (json!(UUID.replace('-', "")), uuid()),
        (json!(format!(" {UUID}\n")), uuid()),
        (json!("00000000-0000-0000-0000-000000000000"), None),
        (json!("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"), None),
        (json!("ec2e4f6a"), None),
        (json!("Not Specified"), None),
        (json!(""), None),
        (Value::Null, None),
    ];
    for (text, expected) in cases {
        let facts = node(&Value::Null, &json!({ "nodeInfo": { "systemUUID": text, "machineID": "x" } }));
        assert_eq!(facts.system_uuid, expected, "{text}");
    }
}

#[test]
fn vsphere_provider_ids_contain_a_uuid() {
    let cases = [
        (json!(format!("vsphere://{UUID}")), uuid()),
        (json!(format!("vsphere://{}", UUID.to_uppercase())), uuid()),
        (json!(format!("vsphere:///{UUID}")), uuid()),
        (json!(format!("kind://{UUID}")), None),
        (json!(UUID), None),
        (json!("vsphere://vm-42"), None),
        (json!("vsphere://"), None),
        (Value::Null, None),
    ];
    for (text, expected) in cases {
        assert_eq!(node(&json!({ "providerID": text }), &Value::Null).provider_uuid, expected, "{text}");
    }
}

#[test]
fn addresses_are_classified_by_type() {
    let facts = node(
        &Value::Null,
        &json!({ "addresses": [
            { "type": "InternalIP", "address": "10.0.0.5" },
            { "type": "ExternalIP", "address": "2001:DB8::5" },
            { "type": "InternalIP", "address": "10.0.0.5" },
            { "type": "InternalIP", "address": "not an address" },
            { "type": "Hostname", "address": "Node-5" },
            { "type": "InternalDNS", "address": "node-5.Example.COM." },
            { "type": "ExternalDNS", "address": "node-5" },
            { "type": "ExternalDNS", "address": "" },
            { "type": "SomethingNew", "address": "10.9.9.9" },
        ] }),
    );
    let expected: [IpAddr; 2] = ["10.0.0.5".parse().expect("IPv4"), "2001:db8::5".parse().expect("IPv6")];
    assert_eq!(facts.ip_addresses, expected);
    assert_eq!(facts.dns_names, ["node-5", "node-5.example.com"]);
}

#[test]
fn a_node_is_ready_only_if_its_condition_is_true() {
    let cases = [
        (json!([{ "type": "Ready", "status": "True" }]), true),
        (json!([{ "type": "MemoryPressure", "status": "False" }, { "type": "Ready", "status": "True" }]), true),
        (json!([{ "type": "Ready", "status": "False" }]), false),
        (json!([{ "type": "Ready", "status": "Unknown" }]), false),
        (json!([{ "type": "MemoryPressure", "status": "True" }]), false),
        (json!([]), false),
        (Value::Null, false),
    ];
    for (conditions, expected) in cases {
        assert_eq!(node(&Value::Null, &json!({ "conditions": conditions })).ready, expected, "{conditions}");
    }
}

#[test]
fn a_whole_node_is_read() {
    let object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "n1", "uid": "u1", "resourceVersion": "77", "labels": { "a": "b" },
            "annotations": { "x": "y" }, "managedFields": [{ "manager": "kubelet", "fieldsV1": { "f:a": {} } }],
        },
        "spec": { "podCIDR": "10.1.0.0/24", "providerID": format!("vsphere://{UUID}") },
        "status": { "nodeInfo": { "systemUUID": UUID, "kubeletVersion": "v1.36.0" }, "images": [{ "names": ["i"] }] },
    });
    let watched: Watched<NodeFacts> = serde_json::from_str(&object.to_string()).expect("a node");
    assert_eq!(watched.resource_version().as_deref(), Some("77"));
    assert_eq!(
        watched.facts,
        NodeFacts {
            name: "n1".to_owned(),
            uid: "u1".to_owned(),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            system_uuid: uuid(),
            provider_uuid: uuid(),
            ..NodeFacts::default()
        }
    );
}

#[test]
fn pods_are_read() {
    let meta = |more: Value| {
        let mut meta = json!({ "name": "p", "namespace": "ns", "uid": "u" });
        meta.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        meta
    };
    let plain =
        PodFacts { namespace: "ns".to_owned(), name: "p".to_owned(), uid: "u".to_owned(), ..PodFacts::default() };
    let cases = [
        (json!({ "metadata": meta(json!({})) }), plain.clone()),
        (json!({ "metadata": meta(json!({ "labels": null })), "spec": null, "status": null }), plain.clone()),
        (json!({ "metadata": meta(json!({})), "spec": { "nodeName": "" } }), plain.clone()),
        (
            json!({
                "metadata": meta(json!({ "labels": { "app": "web" }, "managedFields": [{}] })),
                "spec": { "nodeName": "n1", "containers": [{ "env": [{ "name": "A", "value": "B" }] }] },
                "status": { "phase": "Running", "conditions": [] },
            }),
            PodFacts {
                labels: [("app".to_owned(), "web".to_owned())].into(),
                node: Some("n1".to_owned()),
                ..plain.clone()
            },
        ),
        (
            json!({ "metadata": meta(json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" })) }),
            PodFacts { terminating: true, ..plain.clone() },
        ),
        (json!({ "metadata": meta(json!({ "deletionTimestamp": null })) }), plain.clone()),
        (
            json!({ "metadata": meta(json!({})), "status": { "phase": "Succeeded" } }),
            PodFacts { finished: true, ..plain.clone() },
        ),
        (
            json!({ "metadata": meta(json!({})), "status": { "phase": "Failed" } }),
            PodFacts { finished: true, ..plain.clone() },
        ),
        (json!({ "metadata": meta(json!({})), "status": { "phase": "Pending" } }), plain),
    ];
    for (object, expected) in cases {
        assert_eq!(facts::<PodFacts>(&object), expected, "{object}");
    }
}

#[test]
fn the_affinity_of_a_pod_is_read() {
    use model::event::{
        NodeAffinityFacts, NodeTermFacts, Operator, RequirementFacts, SelectorFacts, TermFacts, WeightedTermFacts,
    };

    let requirement = |key: &str, operator, values: &[&str]| RequirementFacts {
        key: key.to_owned(),
        operator,
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    };
    let object = json!({
        "metadata": {
            "name": "p", "namespace": "ns",
            "annotations": { "other": "x", "bridger.dev/lift": "off" },
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u0" },
                { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u1", "controller": true },
            ],
        },
        "spec": {
            "nodeSelector": { "disk": "ssd" },
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                        { "matchExpressions": [{ "key": "cores", "operator": "Gt", "values": ["4"] }] },
                        { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n1"] }] },
                        { "matchExpressions": [{ "key": "a", "operator": "Near", "values": ["4"] }] },
                    ] },
                    "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "preference": {} }],
                },
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "zone", "labelSelector": {} }],
                    "preferredDuringSchedulingIgnoredDuringExecution": [{
                        "weight": 7,
                        "podAffinityTerm": { "topologyKey": "rack", "labelSelector": {}, "namespaces": ["a"] },
                    }],
                },
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {
                                "matchLabels": { "app": "web" },
                                "matchExpressions": [{ "key": "old", "operator": "DoesNotExist" }],
                            },
                            "namespaces": ["a", "b"],
                            "namespaceSelector": {},
                            "matchLabelKeys": ["merged-already"],
                        },
                        { "topologyKey": "t", "labelSelector": null, "namespaceSelector": null },
                        { "topologyKey": "t", "labelSelector": {
                            "matchExpressions": [{ "key": "old", "operator": "Gt", "values": ["1"] }] } },
                    ],
                    "preferredDuringSchedulingIgnoredDuringExecution": [{}, {}],
                },
            },
        },
    });
    let facts: PodFacts = facts(&object);
    let owner = OwnerFacts { kind: "ReplicaSet".to_owned(), name: "web-1".to_owned(), uid: "u1".to_owned() };
    assert_eq!((facts.owner, facts.lift_off), (Some(owner), true));
    assert_eq!(
        facts.node_affinity,
        NodeAffinityFacts {
            node_selector: [("disk".to_owned(), "ssd".to_owned())].into(),
            node_terms: vec![
                NodeTermFacts { expressions: vec![requirement("cores", Operator::Gt, &["4"])], fields: vec![] },
                NodeTermFacts {
                    expressions: vec![],
                    fields: vec![requirement("metadata.name", Operator::In, &["n1"])]
                },
                NodeTermFacts::default(),
            ],
        }
    );
    for required in [json!({}), json!({ "nodeSelectorTerms": [] })] {
        let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } });
        let facts: PodFacts = self::facts(&json!({ "metadata": { "name": "p" }, "spec": { "affinity": affinity } }));
        assert_eq!(facts.node_affinity.node_terms, [NodeTermFacts::default()], "it accepts no node");
    }
    let everything = Some(SelectorFacts::default());
    let plain = |key: &str, selector| TermFacts { topology_key: key.to_owned(), selector, ..TermFacts::default() };
    assert_eq!(facts.affinity, [plain("zone", everything.clone())]);
    let near = TermFacts { namespaces: vec!["a".to_owned()], ..plain("rack", everything.clone()) };
    assert_eq!(facts.preferred_affinity, [WeightedTermFacts { weight: 7, term: near }]);
    // Incomplete terms are kept, and match nothing.
    assert_eq!(facts.preferred_anti_affinity, [WeightedTermFacts::default(), WeightedTermFacts::default()]);
    let selector = SelectorFacts {
        labels: [("app".to_owned(), "web".to_owned())].into(),
        expressions: vec![requirement("old", Operator::DoesNotExist, &[])],
    };
    let first = TermFacts {
        namespaces: vec!["a".to_owned(), "b".to_owned()],
        namespace_selector: everything,
        ..plain("kubernetes.io/hostname", Some(selector))
    };
    assert_eq!(facts.anti_affinity, [first, plain("t", None), plain("t", None)]);
}

#[test]
fn only_the_word_off_opts_out() {
    for (annotations, off) in [
        (json!({ "bridger.dev/lift": "off" }), true),
        (json!({ "bridger.dev/lift": "on" }), false),
        (json!({ "bridger.dev/lift": "" }), false),
        (json!({ "lift": "off" }), false),
        (json!({}), false),
        (Value::Null, false),
    ] {
        let object = json!({ "metadata": { "name": "a", "annotations": annotations } });
        assert_eq!(facts::<PodFacts>(&object).lift_off, off, "{object}");
        assert_eq!(facts::<NamespaceFacts>(&object).lift_off, off, "{object}");
    }
}

#[test]
fn namespaces_are_read() {
    let object = json!({
        "metadata": { "name": "kube-system", "uid": "u9", "labels": { "team": "a" } },
        "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
    });
    assert_eq!(
        facts::<NamespaceFacts>(&object),
        NamespaceFacts {
            name: "kube-system".to_owned(),
            uid: "u9".to_owned(),
            labels: [("team".to_owned(), "a".to_owned())].into(),
            lift_off: false,
        }
    );
}

proptest! {
    /// An object with any text as UUID, address or condition is still read.
    #[test]
    fn invalid_values_never_hide_an_object(text in ".{0,60}", kind in "(InternalIP|ExternalIP|Hostname|InternalDNS|.{0,8})") {
        let facts = node(
            &json!({ "providerID": text }),
            &json!({
                "nodeInfo": { "systemUUID": text },
                "addresses": [{ "type": kind, "address": text }],
                "conditions": [{ "type": kind, "status": text }],
            }),
        );
        prop_assert_eq!(facts.name, "n");
        prop_assert!(facts.dns_names.iter().all(|name| *name == name.to_lowercase() && !name.is_empty()));
    }

    /// Every spelling of a UUID gives that UUID.
    #[test]
    fn uuids_are_read_in_every_spelling(number in 1..u128::MAX, upper in any::<bool>(), dashes in any::<bool>()) {
        let uuid = Uuid::from_u128(number);
        let text = if dashes { uuid.hyphenated().to_string() } else { uuid.simple().to_string() };
        let text = if upper { text.to_uppercase() } else { text };
        prop_assert_eq!(uuid_of(&text), Some(uuid));
        prop_assert_eq!(uuid_of_provider_id(&format!("vsphere://{text}")), Some(uuid));
    }
}
