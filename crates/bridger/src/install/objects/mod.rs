//! The objects of an installation, in the order in which they are created.

mod account;
mod certificates;
mod configuration;
mod monitoring;
mod network;
mod workload;

use super::template::{Entry, Template, Yaml, literal, map, namespace, text, value};

pub fn all() -> Vec<Template> {
    let groups = [
        account::objects(),
        configuration::objects(),
        certificates::objects(),
        network::objects(),
        workload::objects(),
        monitoring::objects(),
    ];
    groups.into_iter().flatten().collect()
}

/// The labels by which the pods of this installation are found. They never change, because a Deployment's selector
/// cannot.
fn selector() -> Yaml {
    map([("app.kubernetes.io/name", literal("bridger")), ("app.kubernetes.io/instance", value("name"))])
}

fn labels() -> Yaml {
    selector().with([
        Entry::Key("app.kubernetes.io/version", literal(env!("CARGO_PKG_VERSION"))),
        Entry::Key("app.kubernetes.io/part-of", literal("bridger")),
    ])
}

/// An object in the namespace of the installation.
fn object(version: &'static str, kind: &'static str, name: &'static str) -> Yaml {
    map([
        ("apiVersion", literal(version)),
        ("kind", literal(kind)),
        ("metadata", map([("name", text(name)), ("namespace", namespace()), ("labels", labels())])),
    ])
}

/// An object of the whole cluster.
fn cluster_object(version: &'static str, kind: &'static str, name: &'static str) -> Yaml {
    map([
        ("apiVersion", literal(version)),
        ("kind", literal(kind)),
        ("metadata", map([("name", text(name)), ("labels", labels())])),
    ])
}
