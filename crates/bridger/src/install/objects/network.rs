//! Services, and what may reach Bridger and be reached from it.

use serde_json::json;

use super::{object, selector};
use crate::install::template::{Entry, Item, Origin, Template, Yaml, is, list, literal, map, value};

pub fn objects() -> Vec<Template> {
    let spec = |entries: Vec<Entry>| Entry::Key("spec", Yaml::Map(entries));
    let key = Entry::Key;
    let port = |name: &'static str, number: Yaml| {
        list([map([("name", literal(name)), ("port", number), ("targetPort", literal(name))])])
    };
    let metrics = object("v1", "Service", "{name}").with([spec(vec![
        key("selector", selector()),
        key("ports", port("metrics", value("metrics.port"))),
        // Instances that are not ready have metrics, too.
        key("publishNotReadyAddresses", literal(true)),
    ])]);
    let extender = object("v1", "Service", "{name}-extender")
        .with([spec(vec![key("selector", selector()), key("ports", port("extender", literal(443)))])]);
    vec![
        Template { file: "service", when: None, object: metrics },
        Template { file: "extender-service", when: Some(is("parts.extender")), object: extender },
        Template { file: "network-policy", when: Some(is("networkPolicy.enabled")), object: policy() },
    ]
}

fn policy() -> Yaml {
    let tcp = |number: Yaml| Item::One(map([("protocol", literal("TCP")), ("port", number)]));
    let ingress = Yaml::List(vec![
        tcp(value("metrics.port")),
        Item::When(is("parts.extender"), vec![tcp(value("extender.port"))]),
    ]);
    let egress = Yaml::List(vec![
        Item::One(literal(json!({ "protocol": "UDP", "port": 53 }))),
        tcp(literal(53)),
        Item::Each("networkPolicy.egressPorts", vec![tcp(Yaml::Inserted(Origin::Element))]),
    ]);
    object("networking.k8s.io/v1", "NetworkPolicy", "{name}").with([Entry::Key(
        "spec",
        map([
            ("podSelector", map([("matchLabels", selector())])),
            ("policyTypes", literal(json!(["Ingress", "Egress"]))),
            ("ingress", list([map([("ports", ingress)])])),
            ("egress", list([map([("ports", egress)])])),
        ]),
    )])
}
