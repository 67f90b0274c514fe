//! Precedence as in upstream's tests (`TestNewFrameworkMultiPointExpansion`, `TestMergePlugins`), and invalid
//! documents.

use serde_json::{Value, json};

use super::expand::DEFAULT_PLUGINS;
use super::*;
use crate::framework::cycle::Cycle;
use crate::framework::plugin::Plugin;
use crate::framework::points::{Bind, Filter, QueueSort, QueuedPod, Score};
use crate::framework::registry::{NoArgs, Points, Register};
use crate::framework::status::Status;

macro_rules! plugins {
    ($($type:ident: $($point:ident)+;)+) => {$(
        struct $type;

        impl Plugin for $type {
            const NAME: &'static str = stringify!($type);
            type State = ();
        }

        impl QueueSort for $type {
            fn order(&self, a: &QueuedPod, b: &QueuedPod) -> std::cmp::Ordering {
                a.queued_at.cmp(&b.queued_at)
            }
        }

        impl Filter for $type {}
        impl Score for $type {}

        impl Bind for $type {
            fn bind(&self, _: &Cycle<'_>, _: model::NodeId) -> Status {
                Status::Success
            }
        }

        impl Register for $type {
            type Args = NoArgs;

            fn build(_: NoArgs) -> Result<Self, String> {
                Ok(Self)
            }

            fn points(points: Points<Self>) -> Points<Self> {
                points$(.$point())+
            }
        }
    )+};
}

plugins! {
    Everywhere: queue_sort filter score bind;
    Sorter: queue_sort;
    Binder: bind;
    Scorer1: score;
    Scorer2: score;
    Scorer3: score;
    // Has the name of a default plugin.
    NodeName: filter score;
}

fn registry() -> Registry {
    let registry = Registry::default().with::<Everywhere>().with::<Sorter>().with::<Binder>().with::<NodeName>();
    registry.with::<Scorer1>().with::<Scorer2>().with::<Scorer3>()
}

fn configuration(profiles: &Value) -> Value {
    json!({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": profiles})
}

fn read(plugins: &Value) -> Result<Configuration, ConfigError> {
    Configuration::from_value(&configuration(&json!([{"plugins": plugins}])), &registry())
}

fn set(names: &[&str]) -> Value {
    json!(names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>())
}

#[test]
fn plugins_run_at_the_same_points_as_upstream() {
    let all = json!({"name": "*"});
    // Configuration; score plugins in order; filter plugins in order.
    let cases = [
        (
            "expansion",
            json!({"multiPoint": {"enabled": set(&["Everywhere"])}}),
            vec!["NodeName", "Everywhere"],
            vec!["NodeName", "Everywhere"],
        ),
        (
            "disabled at one point",
            json!({"multiPoint": {"enabled": set(&["Everywhere"])}, "score": {"disabled": set(&["Everywhere"])}}),
            vec!["NodeName"],
            vec!["NodeName", "Everywhere"],
        ),
        (
            "one point without multiPoint",
            json!({"multiPoint": {"enabled": set(&["Everywhere", "Scorer1"])}, "score": {"disabled": [all], "enabled": set(&["Scorer2"])}}),
            vec!["Scorer2"],
            vec!["NodeName", "Everywhere"],
        ),
        (
            "the point's own order comes first",
            json!({"multiPoint": {"enabled": set(&["Scorer3", "Everywhere", "Scorer1"])}, "score": {"enabled": set(&["Scorer1", "Everywhere"])}}),
            vec!["Scorer1", "Everywhere", "NodeName", "Scorer3"],
            vec!["NodeName", "Everywhere"],
        ),
        (
            "but only for plugins that multiPoint also enables",
            json!({"multiPoint": {"enabled": set(&["Everywhere", "Scorer1"])}, "score": {"enabled": set(&["Scorer3", "Scorer1", "Everywhere"])}}),
            vec!["Scorer1", "Everywhere", "NodeName", "Scorer3"],
            vec!["NodeName", "Everywhere"],
        ),
        (
            "all defaults off",
            json!({"multiPoint": {"enabled": set(&["Sorter", "Binder", "Scorer1"]), "disabled": [all]}}),
            vec!["Scorer1"],
            vec![],
        ),
        (
            "a default that is disabled and enabled again moves to the end",
            json!({"multiPoint": {"enabled": set(&["Everywhere", "NodeName"]), "disabled": set(&["NodeName"])}}),
            vec!["Everywhere", "NodeName"],
            vec!["Everywhere", "NodeName"],
        ),
        (
            "a default that is enabled again keeps its position",
            json!({"multiPoint": {"enabled": set(&["Everywhere", "NodeName"])}}),
            vec!["NodeName", "Everywhere"],
            vec!["NodeName", "Everywhere"],
        ),
    ];
    for (case, plugins, score, filter) in cases {
        let configuration = read(&plugins).unwrap_or_else(|error| panic!("{case}: {error}"));
        let profile = &configuration.profiles()[0];
        assert_eq!((profile.plugins_at("score"), profile.plugins_at("filter")), (score, filter), "{case}");
        assert_eq!(profile.name(), DEFAULT_SCHEDULER_NAME);
    }
}

#[test]
fn a_weight_at_score_overrides_one_at_multi_point() {
    let plugins = json!({
        "multiPoint": {"enabled": [{"name": "Everywhere", "weight": 7}, {"name": "Scorer1", "weight": 4}, {"name": "Scorer2"}]},
        "score": {"enabled": [{"name": "Scorer1", "weight": 5}, {"name": "Scorer3", "weight": 0}]},
    });
    let configuration = read(&plugins).expect("the configuration is valid");
    let weight = |name: &str| configuration.profiles()[0].weight(name);
    assert_eq!(["Everywhere", "Scorer1", "Scorer2", "Scorer3"].map(weight), [Some(7), Some(5), Some(1), Some(1)]);
}

#[test]
fn an_invalid_document_is_rejected_with_the_wrong_field() {
    let everywhere = json!({"enabled": set(&["Everywhere"])});
    let plugins = |plugins: Value| configuration(&json!([{"plugins": plugins}]));
    let top = |field: &str, value: Value| {
        let mut document = configuration(&json!([]));
        document[field] = value;
        document
    };
    let cases = [
        (json!([]), "is not an object"),
        (json!({"kind": "KubeSchedulerConfiguration"}), "apiVersion: is \"\""),
        (top("kind", json!("Policy")), "kind: is \"Policy\""),
        (top("extenders", json!([])), "extenders is not supported: write a plugin instead"),
        (top("clientConnection", json!({})), "clientConnection is not supported"),
        (top("leaderElection", json!({"resourceLock": "endpoints"})), "leaderElection.resourceLock: is \"endpoints\""),
        (top("leaderElection", json!({"leaderElekt": true})), "unknown field `leaderElekt`"),
        (top("podMaxBackofSeconds", json!(3)), "unknown field `podMaxBackofSeconds`"),
        (top("podInitialBackoffSeconds", json!(0)), "podInitialBackoffSeconds: 0 is not between 1"),
        (top("podInitialBackoffSeconds", json!(20)), "podMaxBackoffSeconds: must not be less"),
        (top("parallelism", json!(0)), "parallelism: 0 is not above 0"),
        (top("percentageOfNodesToScore", json!(101)), "percentageOfNodesToScore: 101"),
        (configuration(&json!([{"pluginz": {}}])), "profiles[0]: unknown field `pluginz`"),
        (plugins(json!({"multipoint": everywhere})), "unknown field `multipoint`"),
        (plugins(json!({"multiPoint": {"enabled": set(&["Everywhere", "Missing"])}})), "plugin Missing does not exist"),
        (
            plugins(json!({"multiPoint": {"enabled": set(&["Everywhere"]), "disabled": set(&["Missing"])}})),
            "plugin Missing does not exist",
        ),
        (
            plugins(json!({"multiPoint": {"enabled": set(&["Everywhere", "VolumeBinding"])}})),
            "plugin VolumeBinding is not supported",
        ),
        (
            plugins(json!({"multiPoint": {"enabled": set(&["Everywhere", "Everywhere"])}})),
            "plugin Everywhere is enabled twice",
        ),
        (
            plugins(json!({"multiPoint": everywhere, "score": {"enabled": set(&["Scorer1", "Scorer1"])}})),
            "Scorer1 is enabled twice at score",
        ),
        (
            plugins(json!({"multiPoint": everywhere, "filter": {"enabled": set(&["Scorer1"])}})),
            "plugin Scorer1 does not extend filter",
        ),
        (
            plugins(json!({"multiPoint": everywhere, "score": {"enabled": [{"name": "Scorer1", "weight": -1}]}})),
            "negative weight -1",
        ),
        (plugins(json!({"multiPoint": {"enabled": set(&["Sorter"])}})), "no bind plugin"),
        (plugins(json!({"multiPoint": {"enabled": set(&["Binder"])}})), "no queueSort plugin"),
        (plugins(json!({"multiPoint": {"enabled": set(&["Everywhere", "Sorter"])}})), "several queueSort plugins"),
        (
            configuration(
                &json!([{"plugins": {"multiPoint": everywhere}, "pluginConfig": [{"name": "Everywhere", "args": {"x": 1}}]}]),
            ),
            "arguments of plugin Everywhere: unknown field `x`",
        ),
        (
            configuration(
                &json!([{"plugins": {"multiPoint": everywhere}, "pluginConfig": [{"name": "Everywhere"}, {"name": "Everywhere"}]}]),
            ),
            "given twice",
        ),
        (
            configuration(
                &json!([{"plugins": {"multiPoint": everywhere}, "pluginConfig": [{"name": "Scorer1", "args": {"kind": "OtherArgs"}}]}]),
            ),
            "kind is \"OtherArgs\", not Scorer1Args",
        ),
        (
            configuration(
                &json!([{"schedulerName": "a", "plugins": {"multiPoint": everywhere}}, {"schedulerName": "a", "plugins": {"multiPoint": everywhere}}]),
            ),
            "a is used twice",
        ),
        (
            configuration(
                &json!([{"plugins": {"multiPoint": everywhere}}, {"schedulerName": "a", "plugins": {"multiPoint": everywhere}}]),
            ),
            "profiles[0].schedulerName: is needed",
        ),
        (
            configuration(
                &json!([{"schedulerName": "a", "plugins": {"multiPoint": everywhere}}, {"schedulerName": "b", "plugins": {"multiPoint": {"enabled": set(&["Sorter", "Binder"])}}}]),
            ),
            "same queueSort plugin, not Everywhere in a and Sorter in b",
        ),
    ];
    for (document, expected) in cases {
        match Configuration::from_value(&document, &registry()) {
            Ok(_) => panic!("accepted: {document}"),
            Err(error) => assert!(error.to_string().contains(expected), "{error}\n is not: {expected}\n{document}"),
        }
    }
}

#[test]
fn a_typical_kube_scheduler_file_is_accepted() {
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
            "plugins": {"multiPoint": {"enabled": set(&["Everywhere"]), "disabled": set(&["VolumeBinding"])}},
            "pluginConfig": [{"name": "Everywhere", "args": {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "EverywhereArgs"}}],
        }],
    });
    let configuration = Configuration::from_value(&document, &registry()).expect("the configuration is valid");
    assert_eq!(configuration.backoff(), PodBackoff { initial: Duration::from_secs(2), max: Duration::from_secs(30) });
    assert_eq!(configuration.profiles()[0].name(), "mine");
    assert_eq!(configuration.leader_election().resource_name.as_deref(), Some("mine"));
}

#[test]
fn the_standard_registry_has_all_default_plugins() {
    let registry = crate::plugins::standard();
    let absent: Vec<&str> =
        DEFAULT_PLUGINS.iter().map(|(name, _)| *name).filter(|name| !registry.contains(name)).collect();
    assert_eq!(absent, Vec::<&str>::new());
    let configuration = Configuration::with_name("bridger", &registry).expect("the default profile works");
    let profile = &configuration.profiles()[0];
    for (name, weight) in DEFAULT_PLUGINS.iter().filter(|(_, weight)| *weight > 0) {
        assert!(profile.plugins_at("score").contains(name), "{name} scores");
        assert_eq!(profile.weight(name), Some(i64::from(*weight)));
    }
}

#[test]
fn no_file_can_disable_the_unsupported_plugin() {
    let essential = set(&["PrioritySort", "DefaultBinder"]);
    let by_name = set(&["Unsupported"]);
    // The `plugins` of the file. The pod requires a volume, which no plugin here supports.
    let cases = [
        json!({}),
        json!({"multiPoint": {"disabled": set(&["*"]), "enabled": essential}}),
        json!({"multiPoint": {"disabled": by_name}}),
        json!({"multiPoint": {"disabled": set(&["*", "Unsupported"]), "enabled": essential}}),
        json!({"preFilter": {"disabled": set(&["*"])}}),
        json!({"preFilter": {"disabled": by_name}}),
        json!({"multiPoint": {"disabled": by_name}, "preFilter": {"disabled": set(&["*"]), "enabled": set(&["NodePorts"])}}),
        json!({"preFilter": {"disabled": by_name, "enabled": by_name}}),
    ];
    let mut world = crate::testing::world(&["n1", "n2"]);
    let volume = model::scheduling::UnsupportedFeature::PersistentVolumeClaim("data".to_owned());
    let pod = crate::testing::pod_with("db", |facts| facts.unsupported = vec![volume]);
    world.apply(model::event::Event::PodApplied(pod));
    for plugins in cases {
        let document = configuration(&json!([{"plugins": plugins}]));
        let configuration = Configuration::from_value(&document, &crate::plugins::standard())
            .unwrap_or_else(|error| panic!("{plugins}: {error}"));
        let profile = &configuration.profiles()[0];
        let pre_filter = profile.plugins_at("preFilter");
        assert_eq!(pre_filter.iter().filter(|name| **name == "Unsupported").count(), 1, "{plugins}: {pre_filter:?}");
        let explained = crate::explain(&world, crate::testing::id(&world, "db"), profile).expect("no plugin fails");
        let by: Vec<_> = explained.nodes.iter().map(|node| node.plugin.as_deref()).collect();
        assert_eq!((explained.feasible, by), (0, vec![Some("Unsupported"); 2]), "{plugins}");
    }
}
