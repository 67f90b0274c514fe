//! Documents that are rejected, each with its whole message: the field, and why. A row for every rule.

use super::*;

fn message(document: &Value) -> String {
    match Configuration::from_value(document, &registry()) {
        Ok(_) => panic!("accepted: {document}"),
        Err(error) => error.to_string(),
    }
}

fn everywhere() -> Value {
    json!({"multiPoint": {"enabled": set(&["Everywhere"])}})
}

#[test]
fn fields_of_the_document() {
    let mut nameless = configuration(&json!([]));
    nameless.as_object_mut().expect("an object").remove("apiVersion");
    assert_eq!(message(&json!([])), "the document: Invalid value: [...]: must be an object");
    assert_eq!(message(&nameless), "apiVersion: Required value: kubescheduler.config.k8s.io/v1");
    let removed = |name: &str| {
        format!("{name}: unknown field: kubescheduler.config.k8s.io/v1 does not have it, use --listen and --port")
    };
    let (healthz, metrics) = (removed("healthzBindAddress"), removed("metricsBindAddress"));
    // Field, value, message.
    let cases = [
        ("apiVersion", json!("v1"), "apiVersion: Invalid value: \"v1\": must be kubescheduler.config.k8s.io/v1"),
        ("kind", json!("Policy"), "kind: Invalid value: \"Policy\": must be KubeSchedulerConfiguration"),
        ("podMaxBackofSeconds", json!(3), "podMaxBackofSeconds: unknown field"),
        ("two\nlines", json!(3), "two\\nlines: unknown field"),
        ("healthzBindAddress", json!(""), healthz.as_str()),
        ("metricsBindAddress", json!(""), metrics.as_str()),
        ("parallelism", json!(0), "parallelism: Invalid value: 0: should be an integer value greater than zero"),
        ("parallelism", json!("many"), "parallelism: Invalid value: \"many\": must be an integer"),
        ("parallelism", json!(1.5), "parallelism: Invalid value: 1.5: must be an integer"),
        ("parallelism", json!(1_i64 << 31), "parallelism: Invalid value: 2147483648: must be an integer of 32 bits"),
        (
            "percentageOfNodesToScore",
            json!(101),
            "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        ),
        (
            "percentageOfNodesToScore",
            json!(-1),
            "percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
        ),
        ("podInitialBackoffSeconds", json!(0), "podInitialBackoffSeconds: Invalid value: 0: must be greater than 0"),
        (
            "podInitialBackoffSeconds",
            json!(90_000),
            "podInitialBackoffSeconds: Invalid value: 90000: must be at most 86400",
        ),
        // The default maximum is 10.
        (
            "podInitialBackoffSeconds",
            json!(20),
            "podMaxBackoffSeconds: Invalid value: 10: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        (
            "podMaxBackoffSeconds",
            json!(0),
            "podMaxBackoffSeconds: Invalid value: 0: must be greater than or equal to PodInitialBackoffSeconds",
        ),
        ("podMaxBackoffSeconds", json!(86_401), "podMaxBackoffSeconds: Invalid value: 86401: must be at most 86400"),
        ("enableProfiling", json!("yes"), "enableProfiling: Invalid value: \"yes\": must be a boolean"),
        ("delayCacheUntilActive", json!(1), "delayCacheUntilActive: Invalid value: 1: must be a boolean"),
        ("profiles", json!({}), "profiles: Invalid value: {...}: must be a list"),
        ("profiles", json!([3]), "profiles[0]: Invalid value: 3: must be an object"),
    ];
    for (field, value, expected) in cases {
        let mut document = configuration(&json!([]));
        document[field] = value;
        assert_eq!(message(&document), expected);
    }
}

#[test]
fn leader_election_and_client_connection() {
    let too_large = format!(".qps: Invalid value: {}: must be a number of 32 bits", json!(1e300));
    // Field, value, message behind the field.
    let cases = [
        ("leaderElection", json!([]), ": Invalid value: [...]: must be an object"),
        ("leaderElection", json!({"leaderElekt": true}), ".leaderElekt: unknown field"),
        ("leaderElection", json!({"leaderElect": "on"}), ".leaderElect: Invalid value: \"on\": must be a boolean"),
        (
            "leaderElection",
            json!({"leaseDuration": "-1s"}),
            ".leaseDuration: Invalid value: \"-1s\": must be greater than zero",
        ),
        (
            "leaderElection",
            json!({"renewDeadline": "-1s"}),
            ".renewDeadline: Invalid value: \"-1s\": must be greater than zero",
        ),
        (
            "leaderElection",
            json!({"retryPeriod": "-1s"}),
            ".retryPeriod: Invalid value: \"-1s\": must be greater than zero",
        ),
        (
            "leaderElection",
            json!({"retryPeriod": "2 seconds"}),
            ".retryPeriod: Invalid value: \"2 seconds\": must be a duration like 15s",
        ),
        ("leaderElection", json!({"retryPeriod": 2}), ".retryPeriod: Invalid value: 2: must be a string"),
        (
            "leaderElection",
            json!({"leaseDuration": "5s", "renewDeadline": "5s"}),
            ".leaseDuration: Invalid value: \"5s\": must be greater than `RenewDeadline`",
        ),
        (
            "leaderElection",
            json!({"resourceLock": "endpoints"}),
            ".resourceLock: Invalid value: \"endpoints\": resourceLock value must be \"leases\"",
        ),
        ("clientConnection", json!({"QPS": 5}), ".QPS: unknown field"),
        ("clientConnection", json!({"kubeconfig": 5}), ".kubeconfig: Invalid value: 5: must be a string"),
        ("clientConnection", json!({"contentType": 5}), ".contentType: Invalid value: 5: must be a string"),
        ("clientConnection", json!({"qps": "5"}), ".qps: Invalid value: \"5\": must be a number of 32 bits"),
        ("clientConnection", json!({"qps": 1e300}), too_large.as_str()),
        ("clientConnection", json!({"burst": -1}), ".burst: Invalid value: -1: must be non-negative"),
        ("clientConnection", json!({"burst": 1.5}), ".burst: Invalid value: 1.5: must be an integer"),
    ];
    for (field, value, expected) in cases {
        let mut document = configuration(&json!([]));
        document[field] = value;
        assert_eq!(message(&document), format!("{field}{expected}"));
    }
}

#[test]
fn extenders() {
    let managed = |names: &[&str]| json!([{"managedResources": set(names)}]);
    let one = |extender: Value| json!([extender]);
    let not_base64 = json!({"keyData": "hunter2!"});
    let ca_and_insecure = json!({"insecure": true, "caFile": "ca.pem"});
    // The list, and the message behind `extenders`.
    let cases = [
        (json!({}), ": Invalid value: {...}: must be a list"),
        (one(json!({"urlPrefixes": "http://x"})), "[0].urlPrefixes: unknown field"),
        (one(json!({"urlPrefix": 5})), "[0].urlPrefix: Invalid value: 5: must be a string"),
        (
            one(json!({"prioritizeVerb": "prioritize"})),
            "[0].weight: Invalid value: 0: must have a positive weight applied to it",
        ),
        (
            one(json!({"prioritizeVerb": "prioritize", "weight": -1})),
            "[0].weight: Invalid value: -1: must have a positive weight applied to it",
        ),
        (
            json!([{"bindVerb": "a"}, {}, {"bindVerb": "b"}]),
            ": Invalid value: \"found 2 extenders implementing bind\": only one extender can implement bind",
        ),
        (
            managed(&["example.com/a", "cpu"]),
            "[0].managedResources[1].name: Invalid value: \"cpu\": is an invalid extended resource name",
        ),
        (
            managed(&["-/a"]),
            "[0].managedResources[0].name: Invalid value: \"-/a\": prefix part a lowercase RFC 1123 subdomain must \
             consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character",
        ),
        (
            one(json!({"managedResources": [{}]})),
            "[0].managedResources[0].name: Invalid value: \"\": name part must be non-empty",
        ),
        (
            json!([{"managedResources": set(&["example.com/a"])}, {"managedResources": set(&["example.com/a"])}]),
            "[1].managedResources[0].name: Invalid value: \"example.com/a\": duplicate extender managed resource name",
        ),
        (one(json!({"managedResources": [{"nam": "a"}]})), "[0].managedResources[0].nam: unknown field"),
        (one(json!({"httpTimeout": "5"})), "[0].httpTimeout: Invalid value: \"5\": must be a duration like 15s"),
        (one(json!({"httpTimeout": "-5s"})), "[0].httpTimeout: Invalid value: \"-5s\": must be zero or positive"),
        (one(json!({"tlsConfig": {"caPath": "x"}})), "[0].tlsConfig.caPath: unknown field"),
        (one(json!({"tlsConfig": not_base64})), "[0].tlsConfig.keyData: must be a string in base64"),
        (one(json!({"tlsConfig": {"keyData": 7}})), "[0].tlsConfig.keyData: must be a string in base64"),
        (
            one(json!({"tlsConfig": ca_and_insecure})),
            "[0].tlsConfig: specifying a root certificates file with the insecure flag is not allowed",
        ),
    ];
    for (list, expected) in cases {
        let mut document = configuration(&json!([]));
        document["extenders"] = list;
        assert_eq!(message(&document), format!("extenders{expected}"));
    }
}

#[test]
fn profiles() {
    let profile = |name: &str| json!({"schedulerName": name, "plugins": everywhere()});
    let mut too_much = profile("a");
    too_much["percentageOfNodesToScore"] = json!(101);
    let mut sorted = profile("b");
    sorted["plugins"] = json!({"multiPoint": {"enabled": set(&["Sorter", "Binder"])}});
    let tuned = |name: &str, arguments: Value| {
        let plugins = json!({"multiPoint": {"enabled": set(&["Tuned", "Binder"])}});
        json!({"schedulerName": name, "plugins": plugins, "pluginConfig": arguments})
    };
    let by = |value: &str| json!([{"name": "Tuned", "args": {"by": value}}]);
    // The list, and the message behind `profiles`.
    let cases = [
        (json!([{"pluginz": {}}]), "[0].pluginz: unknown field"),
        (json!([profile("")]), "[0].schedulerName: Required value"),
        (json!([{"schedulerName": 5}]), "[0].schedulerName: Invalid value: 5: must be a string"),
        (json!([{"plugins": everywhere()}, profile("a")]), "[0].schedulerName: Required value"),
        (json!([profile("a"), profile("b"), profile("a")]), "[2].schedulerName: Duplicate value: \"a\""),
        (json!([too_much]), "[0].percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]"),
        (
            json!([profile("a"), sorted]),
            "[1].plugins.queueSort: Invalid value: \"Sorter\": must be the same for all profiles",
        ),
        (
            json!([tuned("a", by("size")), tuned("b", by("age"))]),
            "[1].pluginConfig[0].args: Invalid value: {...}: queueSort must be the same for all profiles",
        ),
        (
            json!([tuned("a", by("size")), tuned("b", json!([]))]),
            "[1].pluginConfig: Invalid value: null: queueSort must be the same for all profiles",
        ),
    ];
    for (list, expected) in cases {
        assert_eq!(message(&configuration(&list)), format!("profiles{expected}"));
    }
}

#[test]
fn plugins() {
    let multi_point = |names: &[&str]| json!({"multiPoint": {"enabled": set(names)}});
    let and = |point: &str, set: Value| {
        let mut plugins = everywhere();
        plugins[point] = set;
        plugins
    };
    let was_invalid = "Invalid value: \"EBSLimits\": was invalid in version \"v1\" (KubeSchedulerConfiguration is version \
                       \"kubescheduler.config.k8s.io/v1\")";
    let one_order = "only one queue sort plugin required for profile with scheduler name \"bridger\"";
    // The plugins, and the message behind `profiles[0]`.
    let cases = [
        (json!({"multipoint": {}}), ".plugins.multipoint: unknown field".to_owned()),
        (and("score", json!({"enable": []})), ".plugins.score.enable: unknown field".to_owned()),
        (and("score", json!({"enabled": [{}]})), ".plugins.score.enabled[0].name: Required value".to_owned()),
        (
            and("score", json!({"enabled": [{"name": "Scorer1", "wait": 1}]})),
            ".plugins.score.enabled[0].wait: unknown field".to_owned(),
        ),
        (
            and("score", json!({"enabled": [{"name": "Scorer1", "weight": "1"}]})),
            ".plugins.score.enabled[0].weight: Invalid value: \"1\": must be an integer".to_owned(),
        ),
        (
            and("score", json!({"enabled": [{"name": "Scorer1", "weight": -1}]})),
            ".plugins.score.enabled[0].weight: Invalid value: -1: must be zero or positive".to_owned(),
        ),
        (
            multi_point(&["Everywhere", "Missing"]),
            ".plugins.multiPoint.enabled[1]: plugin \"Missing\" does not exist".to_owned(),
        ),
        (
            and("filter", json!({"disabled": set(&["Missing"])})),
            ".plugins.filter.disabled[0]: plugin \"Missing\" does not exist".to_owned(),
        ),
        (
            multi_point(&["Everywhere", "GangScheduling"]),
            ".plugins.multiPoint.enabled[1]: plugin \"GangScheduling\" is not supported".to_owned(),
        ),
        (
            and("placementScore", json!({"enabled": set(&["PodGroupPodsCount"])})),
            ".plugins.placementScore.enabled[0]: plugin \"PodGroupPodsCount\" is not supported at placementScore"
                .to_owned(),
        ),
        (
            and("placementGenerate", json!({"enabled": set(&["Everywhere"])})),
            ".plugins.placementGenerate.enabled[0]: plugin \"Everywhere\" is not supported at placementGenerate"
                .to_owned(),
        ),
        (and("filter", json!({"enabled": set(&["EBSLimits"])})), format!(".plugins.filter.enabled[0]: {was_invalid}")),
        (
            multi_point(&["Everywhere", "Everywhere"]),
            ".plugins.multiPoint.enabled[1]: plugin \"Everywhere\" already registered as \"multiPoint\"".to_owned(),
        ),
        (
            and("score", json!({"enabled": set(&["Scorer1", "Scorer1"])})),
            ".plugins.score.enabled[1]: plugin \"Scorer1\" already registered as \"score\"".to_owned(),
        ),
        (
            and("filter", json!({"enabled": set(&["Scorer1"])})),
            ".plugins.filter.enabled[0]: plugin \"Scorer1\" does not extend filter plugin".to_owned(),
        ),
        (
            multi_point(&["Sorter"]),
            ": at least one bind plugin is needed for profile with scheduler name \"bridger\"".to_owned(),
        ),
        (multi_point(&["Binder"]), format!(": {one_order}, but got 0")),
        (multi_point(&["Everywhere", "Sorter"]), format!(": {one_order}, but got 2")),
        (
            and("queueSort", json!({"enabled": set(&["Everywhere", "Sorter"])})),
            ".plugins.queueSort.enabled: Invalid value: 2: only one queue sort plugin can be enabled".to_owned(),
        ),
    ];
    for (plugins, expected) in cases {
        let document = configuration(&json!([{"plugins": plugins}]));
        assert_eq!(message(&document), format!("profiles[0]{expected}"));
    }
}

#[test]
fn a_long_value_is_cut() {
    let long = "x".repeat(9000);
    let plugins = json!({"multiPoint": {"enabled": set(&[long.as_str()])}});
    let found = message(&configuration(&json!([{"plugins": plugins}])));
    assert!(found.ends_with("xxx...\" does not exist") && found.len() < 250, "{found}");
}
