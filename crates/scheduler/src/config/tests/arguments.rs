//! The arguments of plugins: kube-scheduler's rules, with its own cases (`validation_pluginargs_test.go`).

use super::*;

/// With the plugins of this crate.
fn with_arguments(plugin_config: &Value) -> Result<Configuration, ConfigError> {
    let document = configuration(&json!([{"pluginConfig": plugin_config}]));
    Configuration::from_value(&document, &crate::plugins::standard())
}

fn of(plugin: &str, args: &Value) -> Result<Configuration, ConfigError> {
    with_arguments(&json!([{"name": plugin, "args": args}]))
}

#[test]
fn entries_are_checked() {
    let kind = |kind: &str| json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": kind});
    let before = json!({"apiVersion": "kubescheduler.config.k8s.io/v1beta3", "kind": "NodeAffinityArgs"});
    // The list, and the message behind `profiles[0].pluginConfig`.
    let cases = [
        (json!([{"args": {}}]), "[0].name: Required value"),
        (json!([{"name": "ImageLocality", "arg": {}}]), "[0].arg: unknown field"),
        (json!([{"name": "Missing"}]), "[0]: plugin \"Missing\" does not exist"),
        (json!([{"name": "GangScheduling"}]), "[0]: plugin \"GangScheduling\" is not supported"),
        (
            json!([{"name": "GCEPDLimits"}]),
            "[0]: Invalid value: \"GCEPDLimits\": was invalid in version \"v1\" (KubeSchedulerConfiguration is version \
             \"kubescheduler.config.k8s.io/v1\")",
        ),
        (
            json!([{"name": "VolumeBinding"}, {"name": "ImageLocality"}, {"name": "VolumeBinding"}]),
            "[2]: Duplicate value: \"VolumeBinding\"",
        ),
        (
            json!([{"name": "DefaultPreemption", "args": kind("InterPodAffinityArgs")}]),
            "[0].args.kind: args for plugin \"DefaultPreemption\" were not of type \
             DefaultPreemptionArgs.kubescheduler.config.k8s.io, got InterPodAffinityArgs.kubescheduler.config.k8s.io",
        ),
        (
            json!([{"name": "NodeAffinity", "args": before}]),
            "[0].args.apiVersion: Invalid value: \"kubescheduler.config.k8s.io/v1beta3\": must be \
             kubescheduler.config.k8s.io/v1",
        ),
        (json!([{"name": "NodeAffinity", "args": 5}]), "[0].args: Invalid value: 5: must be an object"),
    ];
    for (list, expected) in cases {
        let found = with_arguments(&list).err().map(|error| error.to_string());
        assert_eq!(found, Some(format!("profiles[0].pluginConfig{expected}")));
    }
    // A plugin without rules here says itself what is wrong.
    let found = of("ImageLocality", &json!({"x": 1})).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(found.starts_with("profiles[0].pluginConfig[0].args: unknown field `x`"), "{found}");
}

#[test]
fn valid_arguments_are_accepted() {
    let term = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", ""]}],
        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n"]}]});
    for (plugin, args) in [
        ("InterPodAffinity", json!({})),
        ("InterPodAffinity", json!({"hardPodAffinityWeight": 100, "ignorePreferredTermsOfExistingPods": true})),
        ("NodeAffinity", json!({"addedAffinity": null})),
        (
            "NodeAffinity",
            json!({"addedAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}, term]},
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": term},
                    // Without weight it does not count.
                    {"weight": 0, "preference": {"matchExpressions": [{"key": "-", "operator": "In"}]}},
                ],
            }}),
        ),
        ("NodeResourcesBalancedAllocation", json!({"resources": [{"name": "cpu"}, {"name": "memory", "weight": 0}]})),
        ("NodeResourcesFit", json!({"ignoredResources": ["foo"], "ignoredResourceGroups": ["example.com"]})),
        ("NodeResourcesFit", json!({"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu"}]}})),
        (
            "NodeResourcesFit",
            json!({"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio":
                {"shape": [{"score": 3}, {"utilization": 50}, {"utilization": 100, "score": 10}]}}}),
        ),
        ("PodTopologySpread", json!({"defaultingType": "", "defaultConstraints": []})),
        ("PodTopologySpread", json!({"defaultingType": "List"})),
        (
            "PodTopologySpread",
            json!({"defaultingType": "List", "defaultConstraints": [
                {"maxSkew": 1, "topologyKey": "node", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2,
                    "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor", "labelSelector": null},
                {"maxSkew": 2, "topologyKey": "node", "whenUnsatisfiable": "ScheduleAnyway"},
            ]}),
        ),
    ] {
        if let Err(error) = of(plugin, &args) {
            panic!("{plugin}: {error}\n{args}");
        }
    }
}

/// The message behind `args`, for each of the arguments.
fn rejected(plugin: &str, cases: Vec<(Value, &str)>) {
    for (args, expected) in cases {
        match of(plugin, &args) {
            Ok(_) => panic!("accepted: {plugin} {args}"),
            Err(error) => {
                assert_eq!(error.to_string(), format!("profiles[0].pluginConfig[0].args{expected}"), "{plugin}");
            }
        }
    }
}

#[test]
fn inter_pod_affinity() {
    rejected(
        "InterPodAffinity",
        vec![
            (json!({"hardWeight": 1}), ".hardWeight: unknown field"),
            (
                json!({"hardPodAffinityWeight": -1}),
                ".hardPodAffinityWeight: Invalid value: -1: not in valid range [0, 100]",
            ),
            (
                json!({"hardPodAffinityWeight": 101}),
                ".hardPodAffinityWeight: Invalid value: 101: not in valid range [0, 100]",
            ),
            (
                json!({"ignorePreferredTermsOfExistingPods": 1}),
                ".ignorePreferredTermsOfExistingPods: Invalid value: 1: must be a boolean",
            ),
        ],
    );
}

#[test]
fn node_affinity() {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let added = |affinity: Value| json!({"addedAffinity": affinity});
    let expression = |requirement: Value| json!({"addedAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}});
    let field = |requirement: Value| json!({"addedAffinity": {required: {"nodeSelectorTerms": [{"matchFields": [requirement]}]}}});
    let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution":
        [{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}]});
    let at = format!(".addedAffinity.{required}.nodeSelectorTerms[0]");
    let expressions = format!("{at}.matchExpressions[0]");
    let fields = format!("{at}.matchFields[0]");
    let cases = [
        (added(json!({"required": {}})), ".addedAffinity.required: unknown field".to_owned()),
        (
            added(preferred),
            ".addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values: \
             Invalid value: [...]: values set must be empty for exists and does not exist"
                .to_owned(),
        ),
        (expression(json!({"ke": "a"})), format!("{expressions}.ke: unknown field")),
        (
            expression(json!({"key": "a", "operator": "Is"})),
            format!(
                "{expressions}.operator: Unsupported value: \"Is\": supported values: \"In\", \"NotIn\", \"Exists\", \
                 \"DoesNotExist\", \"Gt\", \"Lt\""
            ),
        ),
        (
            expression(json!({"key": "", "operator": "Exists"})),
            format!("{expressions}.key: Invalid value: \"\": name part must be non-empty"),
        ),
        (
            expression(json!({"key": "a", "operator": "In"})),
            format!("{expressions}.values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"),
        ),
        (
            expression(json!({"key": "a", "operator": "Gt", "values": ["1", "2"]})),
            format!(
                "{expressions}.values: Invalid value: [...]: for 'Gt', 'Lt' operators, exactly one value is required"
            ),
        ),
        (
            expression(json!({"key": "a", "operator": "Lt", "values": ["x"]})),
            format!(
                "{expressions}.values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"
            ),
        ),
        (
            expression(json!({"key": "a", "operator": "In", "values": ["b", "c/d"]})),
            format!(
                "{expressions}.values[1]: Invalid value: \"c/d\": a valid label must be an empty string or consist of \
                 alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
            ),
        ),
        (
            expression(json!({"key": "a", "operator": "In", "values": [1]})),
            format!("{expressions}.values[0]: Invalid value: 1: must be a string"),
        ),
        (
            field(json!({"key": "metadata.name", "operator": "Exists"})),
            format!("{fields}.operator: Unsupported value: \"Exists\": supported values: \"In\", \"NotIn\""),
        ),
        (
            field(json!({"key": "metadata.name", "operator": "In", "values": ["a", "b"]})),
            format!("{fields}.values: Invalid value: [...]: must have one element"),
        ),
    ];
    rejected("NodeAffinity", cases.iter().map(|(args, expected)| (args.clone(), expected.as_str())).collect());
}

#[test]
fn node_resources_balanced_allocation() {
    let resources = |resources: Value| json!({"resources": resources});
    rejected(
        "NodeResourcesBalancedAllocation",
        vec![
            (resources(json!([{"name": "cpu", "weight": 2}])), ".resources[0].weight: Invalid value: 2: must be 1"),
            (
                resources(json!([{"name": "cpu"}, {"name": "cpu", "weight": 1}])),
                ".resources[1].name: Duplicate value: \"cpu\"",
            ),
            (resources(json!([{"Name": "cpu"}])), ".resources[0].Name: unknown field"),
        ],
    );
}

#[test]
fn node_resources_fit() {
    let strategy = |strategy: Value| json!({"scoringStrategy": strategy});
    let shape = |points: Value| {
        let ratio = json!({"shape": points});
        json!({"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": ratio}})
    };
    rejected(
        "NodeResourcesFit",
        vec![
            (
                json!({"ignoredResources": ["a", "a/b/c"]}),
                ".ignoredResources[1]: Invalid value: \"a/b/c\": a valid label key must consist of alphanumeric \
                 characters, '-', '_' or '.', and must start and end with an alphanumeric character with an optional \
                 DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
            ),
            (
                json!({"ignoredResourceGroups": ["a/b"]}),
                ".ignoredResourceGroups[0]: Invalid value: \"a/b\": resource group name can't contain '/'",
            ),
            (
                json!({"ignoredResourceGroups": [""]}),
                ".ignoredResourceGroups[0]: Invalid value: \"\": name part must be non-empty",
            ),
            (
                strategy(json!({})),
                ".scoringStrategy.type: Unsupported value: \"\": supported values: \"LeastAllocated\", \
                 \"MostAllocated\", \"RequestedToCapacityRatio\"",
            ),
            (
                strategy(json!({"type": "Random"})),
                ".scoringStrategy.type: Unsupported value: \"Random\": supported values: \"LeastAllocated\", \
                 \"MostAllocated\", \"RequestedToCapacityRatio\"",
            ),
            (
                strategy(json!({"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 101}]})),
                ".scoringStrategy.resources[0].weight: Invalid value: 101: resource weight of cpu not in valid range \
                 (0, 100]",
            ),
            (
                strategy(json!({"type": "MostAllocated", "resources": [{"name": "cpu"}, {"name": "a", "weight": -1}]})),
                ".scoringStrategy.resources[1].weight: Invalid value: -1: resource weight of a not in valid range \
                 (0, 100]",
            ),
            (
                strategy(json!({"type": "RequestedToCapacityRatio"})),
                ".scoringStrategy.requestedToCapacityRatio: Required value: must be specified when type is \
                 RequestedToCapacityRatio",
            ),
            (
                strategy(json!({"type": "MostAllocated", "requestedToCapacityRatio": {"shape": []}})),
                ".scoringStrategy.requestedToCapacityRatio: Forbidden: must be nil when type is not \
                 RequestedToCapacityRatio",
            ),
            (
                shape(json!([])),
                ".scoringStrategy.requestedToCapacityRatio.shape: Required value: at least one point must be specified",
            ),
            (
                shape(json!([{"utilization": 50, "score": 1}, {"utilization": 50, "score": 2}])),
                ".scoringStrategy.requestedToCapacityRatio.shape[1].utilization: Invalid value: 50: values must be \
                 sorted in increasing order",
            ),
            (
                shape(json!([{"utilization": 101, "score": 1}])),
                ".scoringStrategy.requestedToCapacityRatio.shape[0].utilization: Invalid value: 101: not in valid range \
                 [0, 100]",
            ),
            (
                shape(json!([{"utilization": 50, "score": 11}])),
                ".scoringStrategy.requestedToCapacityRatio.shape[0].score: Invalid value: 11: not in valid range [0, 10]",
            ),
            (
                shape(json!([{"Utilization": 1, "Score": 2}])),
                ".scoringStrategy.requestedToCapacityRatio.shape[0].Score: unknown field",
            ),
        ],
    );
}

#[test]
fn pod_topology_spread() {
    let with = |change: fn(&mut Value)| {
        let mut constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"});
        change(&mut constraint);
        json!({"defaultingType": "List", "defaultConstraints": [constraint]})
    };
    let mut of_system = with(|_| ());
    of_system["defaultingType"] = Value::Null;
    let mut twice = with(|_| ());
    let first = twice["defaultConstraints"][0].clone();
    twice["defaultConstraints"].as_array_mut().expect("a list").push(first);
    rejected(
        "PodTopologySpread",
        vec![
            (
                json!({"defaultingType": "Some"}),
                ".defaultingType: Unsupported value: \"Some\": supported values: \"System\", \"List\"",
            ),
            (of_system, ".defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty"),
            (
                with(|it| it["maxSkew"] = json!(0)),
                ".defaultConstraints[0].maxSkew: Invalid value: 0: not in valid range (0, inf)",
            ),
            (
                with(|it| it["topologyKey"] = json!("")),
                ".defaultConstraints[0].topologyKey: Required value: can not be empty",
            ),
            (
                with(|it| it["topologyKey"] = json!("/a")),
                ".defaultConstraints[0].topologyKey: Invalid value: \"/a\": prefix part must be non-empty",
            ),
            (
                with(|it| it["whenUnsatisfiable"] = Value::Null),
                ".defaultConstraints[0].whenUnsatisfiable: Required value: can not be empty",
            ),
            (
                with(|it| it["whenUnsatisfiable"] = json!("Never")),
                ".defaultConstraints[0].whenUnsatisfiable: Unsupported value: \"Never\": supported values: \
                 \"DoNotSchedule\", \"ScheduleAnyway\"",
            ),
            (
                with(|it| it["labelSelector"] = json!({})),
                ".defaultConstraints[0].labelSelector: Forbidden: constraint must not define a selector, as they \
                 deduced for each pod",
            ),
            (
                with(|it| it["nodeTaintsPolicy"] = json!("Obey")),
                ".defaultConstraints[0].nodeTaintsPolicy: Unsupported value: \"Obey\": supported values: \"Honor\", \
                 \"Ignore\"",
            ),
            (with(|it| it["minSkew"] = json!(1)), ".defaultConstraints[0].minSkew: unknown field"),
            (twice, ".defaultConstraints[1]: Duplicate value: \"{zone, ScheduleAnyway}\""),
        ],
    );
}
