//! Snapshot files: what is written, read and rejected.

use std::sync::Arc;

use super::*;
use model::event::{OwnerFacts, RequirementFacts, RuleFacts, RuleKind, SelectorFacts, TermFacts};
use model::scheduling::UnsupportedFeature;

fn sample() -> Snapshot {
    let vcenter = VcenterId(0);
    let mut gathered = Gathered::default();
    let term = TermFacts {
        topology_key: "kubernetes.io/hostname".to_owned(),
        // An empty and a missing selector have opposite meanings and must stay distinct.
        selector: Some(SelectorFacts::default()),
        namespace_selector: None,
        ..TermFacts::default()
    };
    let exists =
        RequirementFacts { key: "app".to_owned(), operator: model::event::Operator::Exists, values: Vec::new() };
    let other = TermFacts {
        selector: Some(SelectorFacts { expressions: vec![exists], ..SelectorFacts::default() }),
        ..term.clone()
    };
    let none = TermFacts { selector: None, ..term.clone() };
    let rule = RuleFacts {
        key: 1,
        uuid: None,
        name: "r".to_owned(),
        enabled: true,
        mandatory: false,
        user_created: true,
        kind: RuleKind::VmAntiAffinity(vec!["vm-1".to_owned()]),
    };
    for event in [
        Event::RelistBegan(Source::Nodes),
        Event::NodeApplied(NodeFacts { name: "gone".to_owned(), ..NodeFacts::default() }),
        Event::RelistBegan(Source::Nodes),
        Event::NodeApplied(NodeFacts { name: "n1".to_owned(), ready: true, ..NodeFacts::default() }),
        Event::RelistEnded(Source::Nodes),
        Event::NamespaceApplied(NamespaceFacts { name: "kube-system".to_owned(), ..NamespaceFacts::default() }),
        Event::PodApplied(PodFacts {
            namespace: "a".to_owned(),
            name: "p".to_owned(),
            owner: Some(OwnerFacts::default()),
            affinity: vec![term],
            anti_affinity: vec![other, none],
            ..PodFacts::default()
        }),
        Event::ClusterApplied {
            vcenter,
            cluster: ClusterFacts { id: "c".to_owned(), rules: vec![rule], ..ClusterFacts::default() },
        },
        Event::HostApplied { vcenter, host: HostFacts { id: "h".to_owned(), ..HostFacts::default() } },
        Event::VmApplied { vcenter, vm: VmFacts { id: "vm-1".to_owned(), ..VmFacts::default() } },
    ] {
        gathered.apply(event);
    }
    assert!(gathered.is_whole(Source::Nodes) && !gathered.is_whole(Source::Pods));
    let record = BTreeMap::from([("uuid/c".to_owned(), "{}".to_owned())]);
    gathered.into_snapshot(Timestamp::UNIX_EPOCH, &["uuid".to_owned()], record)
}

#[test]
fn a_snapshot_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("world.json");
    let snapshot = sample();
    assert_eq!(snapshot.nodes.len(), 1, "objects of an interrupted list are dropped");
    snapshot.write(&path).unwrap();
    assert_eq!(Snapshot::read(&path).unwrap(), snapshot);
    let events = snapshot.into_events();
    assert_eq!(
        events.iter().filter(|event| matches!(event, Event::RelistEnded(_))).count(),
        KUBERNETES_SOURCES.len() + 1
    );
}

/// A file with every field, kind of object and enum variant, as the first program of this version wrote it.
const EVERY_FIELD: &str = include_str!("testdata/every-field.json");

#[test]
fn every_field_keeps_its_format() {
    let snapshot = format::read(EVERY_FIELD.as_bytes()).unwrap();
    let written = String::from_utf8(format::write(&snapshot).unwrap()).unwrap();
    // No string in the file contains white space.
    assert_eq!(written, EVERY_FIELD.split_whitespace().collect::<String>());
    assert_eq!(format::read(written.as_bytes()).unwrap(), snapshot);
    let pod = &snapshot.pods[0];
    assert_eq!(pod.scheduling.as_ref().map(|facts| facts.priority), Some(7));
    assert_eq!(pod.anti_affinity[0].selector, None);
    let events = snapshot.into_events();
    let of_kubernetes =
        events.iter().filter(|event| matches!(event, Event::RelistEnded(source) if source.row().is_some()));
    assert_eq!(of_kubernetes.count(), KUBERNETES_SOURCES.len());
}

#[test]
fn a_missing_field_has_its_default() {
    let text = r#"{"kind":"BridgerSnapshot","version":1,"taken":"1970-01-01T00:00:00Z","record":{},"ofTheFuture":1,
        "vcenters":[{"instanceUuid":"u","clusters":[{"id":"c","ha":{}}],"hosts":[{"id":"h"}],"vms":[{"id":"vm-1"}]}],
        "namespaces":[{"name":"a"}],"nodes":[{"name":"n","scheduling":{}}],"pods":[{"name":"p","scheduling":{}}]}"#;
    let snapshot = format::read(text.as_bytes()).unwrap();
    let text = |text: &str| text.to_owned();
    let part = VcenterPart {
        instance_uuid: text("u"),
        clusters: vec![ClusterFacts { id: text("c"), ..ClusterFacts::default() }],
        hosts: vec![HostFacts { id: text("h"), ..HostFacts::default() }],
        vms: vec![VmFacts { id: text("vm-1"), ..VmFacts::default() }],
    };
    let expected = Snapshot {
        taken: Timestamp::UNIX_EPOCH,
        vcenters: vec![part],
        namespaces: vec![NamespaceFacts { name: text("a"), ..NamespaceFacts::default() }],
        nodes: vec![NodeFacts { name: text("n"), scheduling: Some(Arc::default()), ..NodeFacts::default() }],
        pods: vec![PodFacts { name: text("p"), scheduling: Some(Arc::default()), ..PodFacts::default() }],
        workloads: Vec::new(),
        budgets: Vec::new(),
        volumes: Vec::new(),
        record: BTreeMap::new(),
    };
    assert_eq!(snapshot, expected);
}

#[test]
fn volumes_among_unsupported_features_of_older_files_are_left_out() {
    let text = r#"{"kind":"BridgerSnapshot","version":1,"taken":"1970-01-01T00:00:00Z","record":{},"vcenters":[],"namespaces":[],
        "nodes":[],"pods":[{"name":"p","scheduling":{"unsupported":[{"persistentVolumeClaim":"data"},{"ephemeralVolume":"e"},
        {"inlineVolume":"i"},{"resourceClaim":"gpu"},{"schedulingGroup":"gang"}]}}]}"#;
    let snapshot = format::read(text.as_bytes()).unwrap();
    let unsupported = snapshot.pods[0].scheduling.as_ref().map(|facts| facts.unsupported.clone());
    let left =
        [UnsupportedFeature::ResourceClaim("gpu".to_owned()), UnsupportedFeature::SchedulingGroup("gang".to_owned())];
    assert_eq!(unsupported, Some(left.to_vec()));
}

#[test]
fn a_file_that_is_not_a_snapshot_is_rejected_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut newer: serde_json::Value = serde_json::from_slice(&format::write(&sample()).unwrap()).unwrap();
    newer["version"] = 2.into();
    for (name, text, expected) in [
        ("list", r#"{"kind":"List","items":[]}"#.to_owned(), "is not a snapshot"),
        ("newer", newer.to_string(), "version 2"),
        ("torn", "{\"kind\":".to_owned(), "cannot parse"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let message = Snapshot::read(&path).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    assert!(Snapshot::read(&folder.path().join("missing")).unwrap_err().to_string().contains("cannot read"));
}
