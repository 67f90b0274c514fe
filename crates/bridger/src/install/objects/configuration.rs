//! Bridger's configuration file, and that of its scheduler, in a ConfigMap.

use super::object;
use crate::install::template::{
    Condition, Entry, Item, Origin, Template, Yaml, field, has, is, literal, map, namespace, not, text, value,
};

/// Where the ConfigMap, the credentials and the certificates are in the pod.
pub const FILES: &str = "/etc/bridger/config";
pub const CREDENTIALS: &str = "/etc/bridger/vcenters";
pub const CERTIFICATES: &str = "/etc/bridger/extender";

pub fn objects() -> Vec<Template> {
    let of_scheduler = Condition::All(vec![is("parts.scheduling"), is("schedulerConfiguration")]);
    let scheduler = Yaml::Map(vec![
        Entry::Key("apiVersion", literal("kubescheduler.config.k8s.io/v1")),
        Entry::Key("kind", literal("KubeSchedulerConfiguration")),
        Entry::Spread(Origin::Value("schedulerConfiguration")),
    ]);
    let data = Yaml::Map(vec![
        Entry::Key("bridger.yaml", Yaml::File(Box::new(bridger(&of_scheduler)))),
        Entry::When(of_scheduler.clone(), vec![Entry::Key("scheduler.yaml", Yaml::File(Box::new(scheduler)))]),
    ]);
    let object = object("v1", "ConfigMap", "{name}").with([Entry::Key("data", data)]);
    vec![Template { file: "configuration", when: None, object }]
}

fn bridger(of_scheduler: &Condition) -> Yaml {
    let key = Entry::Key;
    let optional = |name: &'static str, of: &'static str| Entry::When(has(of), vec![Entry::Key(name, field(of))]);
    let vcenter = Yaml::Map(vec![
        key("url", field("url")),
        key("usernameFile", text("/etc/bridger/vcenters/{.name}/username")),
        key("passwordFile", text("/etc/bridger/vcenters/{.name}/password")),
        Entry::When(has("caConfigMap"), vec![key("caFile", text("/etc/bridger/vcenters/{.name}/ca.crt"))]),
        optional("thumbprint", "thumbprint"),
        optional("insecure", "insecure"),
        optional("vmFolders", "vmFolders"),
        optional("vmResourcePools", "vmResourcePools"),
        optional("vmTags", "vmTags"),
    ]);
    Yaml::Map(vec![
        key("labels", value("parts.labels")),
        key("rules", value("parts.rules")),
        key("scheduling", value("parts.scheduling")),
        key("dryRun", value("dryRun")),
        key("recordNamespace", namespace()),
        key("listen", literal("0.0.0.0")),
        key("port", value("metrics.port")),
        Entry::When(
            is("vcenters"),
            vec![key("vcenters", Yaml::List(vec![Item::Each("vcenters", vec![Item::One(vcenter)])]))],
        ),
        Entry::When(of_scheduler.clone(), vec![key("schedulerConfig", literal(format!("{FILES}/scheduler.yaml")))]),
        Entry::When(
            is("parts.extender"),
            vec![
                key("extenderPort", value("extender.port")),
                key("extenderSchedulerNames", value("extender.schedulerNames")),
                key("clientAllowedNames", value("extender.clientAllowedNames")),
                key("tlsCertFile", literal(format!("{CERTIFICATES}/tls.crt"))),
                key("tlsKeyFile", literal(format!("{CERTIFICATES}/tls.key"))),
                key("clientCaFile", literal(format!("{CERTIFICATES}/ca.crt"))),
            ],
        ),
        Entry::Spread(Origin::Value("settings")),
    ])
}

/// The credentials and authorities of all vCenters, as one volume: a folder for each vCenter.
pub fn credentials() -> Yaml {
    let file = |key: &'static str, path: &'static str| Item::One(map([("key", literal(key)), ("path", text(path))]));
    let secret = map([(
        "secret",
        map([
            ("name", field("credentialsSecret")),
            ("items", Yaml::List(vec![file("username", "{.name}/username"), file("password", "{.name}/password")])),
        ]),
    )]);
    let authority = map([(
        "configMap",
        map([("name", field("caConfigMap")), ("items", Yaml::List(vec![file("ca.crt", "{.name}/ca.crt")]))]),
    )]);
    let each = vec![Item::One(secret), Item::When(has("caConfigMap"), vec![Item::One(authority)])];
    map([("defaultMode", literal(0o440)), ("sources", Yaml::List(vec![Item::Each("vcenters", each)]))])
}

/// Whether one instance is enough for the Service: with the extender on, only its leader is ready.
pub fn every_instance_is_ready() -> Condition {
    not(is("parts.extender"))
}
