//! Precedence as in upstream's tests (`TestNewFrameworkMultiPointExpansion`, `TestMergePlugins`).
//!
//! `accepted`, `rejected`: documents, and what is taken of them or wrong with them. `arguments`: those of plugins.

mod accepted;
mod arguments;
mod rejected;

use std::collections::BTreeMap;

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
            type Key = Duration;

            fn key(&self, _: &Cycle<'_>, queued: &QueuedPod) -> Duration {
                queued.queued_at
            }
        }

        impl Filter for $type {}
        impl Score for $type {}

        impl Bind for $type {
            type Work = ();

            fn bind(&self, _: &Cycle<'_>, (): &(), _: model::NodeId) -> Result<Option<()>, Status> {
                Ok(Some(()))
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

/// An order with arguments.
struct Tuned;

impl Plugin for Tuned {
    const NAME: &'static str = "Tuned";
    type State = ();
}

impl QueueSort for Tuned {
    type Key = Duration;

    fn key(&self, _: &Cycle<'_>, queued: &QueuedPod) -> Duration {
        queued.queued_at
    }
}

impl Register for Tuned {
    type Args = BTreeMap<String, String>;

    fn build(_: BTreeMap<String, String>) -> Result<Self, String> {
        Ok(Self)
    }

    fn points(points: Points<Self>) -> Points<Self> {
        points.queue_sort()
    }
}

fn registry() -> Registry {
    let registry = Registry::default().with::<Everywhere>().with::<Sorter>().with::<Binder>().with::<NodeName>();
    registry.with::<Scorer1>().with::<Scorer2>().with::<Scorer3>().with::<Tuned>()
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
    // The `plugins` of the file. The pod requires a resource claim, which no plugin here supports.
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
    let claim = model::scheduling::UnsupportedFeature::ResourceClaim("gpu".to_owned());
    let pod = crate::testing::pod_with("db", |facts| facts.unsupported = vec![claim]);
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
