//! Documents that kube-scheduler accepts, and what is taken of them.

use std::path::PathBuf;

use super::*;

fn with(fields: Value) -> Configuration {
    let mut document = configuration(&json!([{"plugins": {"multiPoint": {"enabled": set(&["Everywhere"])}}}]));
    let (Value::Object(fields), Value::Object(all)) = (fields, &mut document) else { panic!("objects") };
    all.extend(fields);
    Configuration::from_value(&document, &registry()).unwrap_or_else(|error| panic!("{error}\n{document}"))
}

/// Path and reason of each setting without effect.
fn without_effect(configuration: &Configuration) -> Vec<String> {
    configuration.without_effect().iter().map(ToString::to_string).collect()
}

#[test]
fn a_typical_file_of_kube_scheduler_is_accepted() {
    let document = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": true, "leaseDuration": "15s", "resourceLock": "leases", "resourceName": "mine"},
        "parallelism": 16,
        "percentageOfNodesToScore": 50,
        "podInitialBackoffSeconds": 2,
        "podMaxBackoffSeconds": 30,
        "profiles": [{
            "schedulerName": "mine",
            "percentageOfNodesToScore": 10,
            "plugins": {"multiPoint": {"enabled": set(&["Everywhere"]), "disabled": set(&["DynamicResources", "EBSLimits"])}},
            "pluginConfig": [{"name": "Everywhere", "args": {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "EverywhereArgs"}}],
        }],
    });
    let configuration = Configuration::from_value(&document, &registry()).expect("the configuration is valid");
    assert_eq!(configuration.backoff(), PodBackoff { initial: Duration::from_secs(2), max: Duration::from_secs(30) });
    assert_eq!(configuration.profiles()[0].name(), "mine");
    let all_scored = "has no effect: all nodes are evaluated for every pod";
    assert_eq!(
        without_effect(&configuration),
        [
            "parallelism has no effect: one thread decides about all nodes".to_owned(),
            format!("percentageOfNodesToScore {all_scored}"),
            format!("profiles[0].percentageOfNodesToScore {all_scored}"),
        ]
    );
}

#[test]
fn null_is_an_absent_field() {
    let mut document = with_nulls(&[
        "parallelism",
        "percentageOfNodesToScore",
        "podInitialBackoffSeconds",
        "podMaxBackoffSeconds",
        "leaderElection",
        "clientConnection",
        "enableProfiling",
        "enableContentionProfiling",
        "delayCacheUntilActive",
        "extenders",
    ]);
    document["profiles"] = json!([{
        "schedulerName": null, "percentageOfNodesToScore": null,
        "plugins": {"multiPoint": {"enabled": [{"name": "Everywhere", "weight": null}], "disabled": null}, "score": null},
        "pluginConfig": [{"name": "Everywhere", "args": {"unknown": null}}, {"name": "Scorer1", "args": null}],
    }]);
    let configuration = Configuration::from_value(&document, &registry()).expect("the configuration is valid");
    assert_eq!(without_effect(&configuration), Vec::<String>::new());
    assert_eq!(configuration.profiles()[0].name(), DEFAULT_SCHEDULER_NAME);
}

fn with_nulls(names: &[&str]) -> Value {
    let mut document = configuration(&json!(null));
    for name in names {
        document[*name] = Value::Null;
    }
    document
}

#[test]
fn leader_election_has_the_given_fields() {
    // Without an election the other fields do not count. 0 and empty texts are absent fields.
    let off =
        json!({"leaderElect": false, "leaseDuration": "-1s", "resourceLock": "endpoints", "renewDeadline": "10s"});
    let zero = json!({"leaseDuration": "0s", "renewDeadline": "0", "retryPeriod": "0ms", "resourceLock": "",
        "resourceName": "", "resourceNamespace": ""});
    // What a file leaves open, a flag may set: 5 s are too short only beside the default renewDeadline.
    let short = json!({"leaseDuration": "5s", "resourceName": "n", "resourceNamespace": "s"});
    let text = |text: &str| Some(text.to_owned());
    let none = LeaderElection::default();
    for (given, expected) in [
        (json!({}), none.clone()),
        (zero, none.clone()),
        (
            off,
            LeaderElection {
                leader_elect: Some(false),
                lease_duration: text("-1s"),
                renew_deadline: text("10s"),
                ..none.clone()
            },
        ),
        (
            short,
            LeaderElection {
                lease_duration: text("5s"),
                resource_name: text("n"),
                resource_namespace: text("s"),
                ..none
            },
        ),
    ] {
        assert_eq!(with(json!({"leaderElection": given})).leader_election(), &expected, "{given}");
    }
}

#[test]
fn client_connection_has_the_given_fields() {
    let none = ClientConnection::default();
    let kubeconfig = Some(PathBuf::from("/etc/kubernetes/scheduler.conf"));
    for (given, expected, no_effect) in [
        (json!({}), none.clone(), vec![]),
        (
            json!({"kubeconfig": "", "qps": 0, "burst": 0, "contentType": "", "acceptContentTypes": ""}),
            none.clone(),
            vec![],
        ),
        (
            json!({"kubeconfig": "/etc/kubernetes/scheduler.conf", "qps": 12.5, "burst": 100}),
            ClientConnection { kubeconfig, qps: Some(12.5), burst: Some(100) },
            vec![],
        ),
        (json!({"qps": -1}), ClientConnection { qps: Some(-1.0), ..none.clone() }, vec![]),
        (json!({"contentType": "application/json", "acceptContentTypes": "application/json"}), none.clone(), vec![]),
        (
            json!({"contentType": "application/vnd.kubernetes.protobuf", "acceptContentTypes": "application/cbor"}),
            none,
            vec!["clientConnection.acceptContentTypes", "clientConnection.contentType"],
        ),
    ] {
        let configuration = with(json!({"clientConnection": given}));
        assert_eq!(configuration.client_connection(), &expected, "{given}");
        let paths: Vec<String> = configuration.without_effect().iter().map(|it| it.path.to_string()).collect();
        assert_eq!(paths, no_effect, "{given}");
    }
}

#[test]
fn only_a_setting_that_changes_nothing_is_without_effect() {
    let on = json!({"enableProfiling": true, "enableContentionProfiling": true, "delayCacheUntilActive": true});
    let off = json!({"enableProfiling": false, "enableContentionProfiling": false, "delayCacheUntilActive": false});
    let found = without_effect(&with(on));
    let expected = ["enableProfiling has no effect", "enableContentionProfiling has", "delayCacheUntilActive has"];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
    assert_eq!(without_effect(&with(off)), Vec::<String>::new());
}

#[test]
fn extenders_have_all_their_fields() {
    let extenders = json!([
        {
            "urlPrefix": "https://one.example/v1", "filterVerb": "filter", "preemptVerb": "preempt",
            "prioritizeVerb": "prioritize", "weight": 5, "bindVerb": "bind", "enableHTTPS": true,
            "tlsConfig": {
                "serverName": "one.example", "certFile": "c.pem", "keyFile": "k.pem", "caFile": "a.pem",
                "certData": "Yw==", "keyData": "c2VjcmV0", "caData": "YQ==\n",
            },
            "httpTimeout": "1m30s", "nodeCacheCapable": true, "ignorable": true,
            "managedResources": [{"name": "example.com/a", "ignoredByScheduler": true}, {"name": "example.com/b"}],
        },
        // kube-scheduler does not check the URL either. A weight counts only with prioritizeVerb.
        {"urlPrefix": "not a URL", "filterVerb": "", "weight": -1, "httpTimeout": "0s", "tlsConfig": {"insecure": true}},
    ]);
    let configuration = with(json!({"extenders": extenders}));
    let [first, second] = configuration.extenders() else { panic!("two extenders") };
    let text = |text: &str| Some(text.to_owned());
    let managed = |name: &str, ignored_by_scheduler| ManagedResource { name: name.to_owned(), ignored_by_scheduler };
    let expected = OutgoingExtender {
        url_prefix: "https://one.example/v1".to_owned(),
        filter_verb: text("filter"),
        preempt_verb: text("preempt"),
        prioritize_verb: text("prioritize"),
        bind_verb: text("bind"),
        weight: 5,
        enable_https: true,
        tls: Some(ExtenderTls {
            insecure: false,
            server_name: text("one.example"),
            cert_file: Some("c.pem".into()),
            key_file: Some("k.pem".into()),
            ca_file: Some("a.pem".into()),
            cert_data: Some(b"c".to_vec()),
            key_data: Some(b"secret".to_vec()),
            ca_data: Some(b"a".to_vec()),
        }),
        http_timeout: Duration::from_secs(90),
        node_cache_capable: true,
        managed_resources: vec![managed("example.com/a", true), managed("example.com/b", false)],
        ignorable: true,
    };
    assert_eq!(first, &expected);
    let shown = format!("{first:?}");
    assert!(!shown.contains("key_data") && !shown.contains("115, 101, 99"), "{shown}");
    assert_eq!((second.filter_verb.as_deref(), second.http_timeout), (None, Duration::from_secs(5)));
    assert_eq!((second.weight, second.tls.as_ref().map(|tls| tls.insecure)), (-1, Some(true)));
}

#[test]
fn plugins_that_bridger_lacks_may_be_named() {
    let plugins = json!({
        "multiPoint": {"enabled": set(&["Everywhere", "DynamicResources"])},
        "score": {"enabled": set(&["DynamicResources"]), "disabled": set(&["GangScheduling"])},
        "placementGenerate": {},
        "placementScore": {"enabled": [], "disabled": set(&["PodGroupPodsCount"])},
    });
    let arguments = json!([{"name": "DynamicResources", "args": {"filterTimeout": "10s"}}]);
    let document = configuration(&json!([{"plugins": plugins, "pluginConfig": arguments}]));
    let configuration = Configuration::from_value(&document, &registry()).expect("the configuration is valid");
    let paths: Vec<String> = configuration.without_effect().iter().map(|it| it.path.to_string()).collect();
    assert_eq!(
        paths,
        [
            "profiles[0].plugins.multiPoint.enabled[1]",
            "profiles[0].plugins.score.enabled[0]",
            "profiles[0].pluginConfig[0]",
        ]
    );
    let profile = &configuration.profiles()[0];
    assert_eq!(profile.plugins_at("score"), ["NodeName", "Everywhere"]);
    assert_eq!(profile.plugins_at("postFilter"), Vec::<&str>::new());
}

#[test]
fn a_profile_can_be_kept_alone() {
    let everywhere = json!({"multiPoint": {"enabled": set(&["Everywhere"])}});
    let profile = |name: &str| json!({"schedulerName": name, "percentageOfNodesToScore": 5, "plugins": everywhere});
    let document = configuration(&json!([profile("a"), profile("b"), profile("c")]));
    let mut configuration = Configuration::from_value(&document, &registry()).expect("the configuration is valid");
    assert!(!configuration.keep_profile("d"));
    assert_eq!((configuration.profiles().len(), configuration.without_effect().len()), (3, 3));
    assert!(configuration.keep_profile("b"));
    let names: Vec<&str> = configuration.profiles().iter().map(Profile::name).collect();
    let paths: Vec<String> = configuration.without_effect().iter().map(|it| it.path.to_string()).collect();
    assert_eq!((names, paths), (vec!["b"], vec!["profiles[1].percentageOfNodesToScore".to_owned()]));
}

#[test]
fn profiles_may_enable_one_order_at_different_places() {
    let everywhere = json!({"multiPoint": {"enabled": set(&["Everywhere"])}});
    let by_point =
        json!({"multiPoint": {"enabled": set(&["Everywhere"])}, "queueSort": {"enabled": set(&["Everywhere"])}});
    let no_arguments = json!([{"name": "Everywhere", "args": {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "EverywhereArgs"}}]);
    let document = configuration(&json!([
        {"schedulerName": "a", "plugins": everywhere},
        {"schedulerName": "b", "plugins": by_point, "pluginConfig": no_arguments},
    ]));
    let configuration = Configuration::from_value(&document, &registry()).expect("the configuration is valid");
    assert_eq!(configuration.profiles().len(), 2);
}
