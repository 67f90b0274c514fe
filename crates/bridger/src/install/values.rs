//! The values of an installation: the one list that the chart's `values.yaml` and `values.schema.json`, the check of
//! `bridger manifests all` and the documentation are made from.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::chart::document;
use super::render::at;

/// One value.
pub struct Setting {
    /// A dotted path.
    pub path: &'static str,
    pub kind: Kind,
    pub default: Default,
    pub about: &'static str,
}

pub enum Default {
    Text(&'static str),
    Switch(bool),
    Number(i64),
    /// An empty list or map.
    Empty,
    /// As JSON.
    Json(&'static str),
}

pub enum Kind {
    Text,
    Switch,
    Number {
        min: i64,
        max: i64,
    },
    OneOf(&'static [&'static str]),
    Texts,
    Numbers {
        min: i64,
        max: i64,
    },
    /// A list of maps of any content, as Kubernetes or Bridger define it.
    Maps,
    Map,
    /// A list of maps with these members.
    Each(&'static [Member]),
}

/// A member of the maps in a list.
pub struct Member {
    name: &'static str,
    kind: Kind,
    required: bool,
}

const fn required(name: &'static str, kind: Kind) -> Member {
    Member { name, kind, required: true }
}

const fn optional(name: &'static str, kind: Kind) -> Member {
    Member { name, kind, required: false }
}

const PORT: Kind = Kind::Number { min: 1, max: 65_535 };

const fn setting(path: &'static str, kind: Kind, default: Default, about: &'static str) -> Setting {
    Setting { path, kind, default, about }
}

/// In the order in which they are printed.
pub const SETTINGS: &[Setting] = &[
    setting("name", Kind::Text, Default::Text("bridger"), "Name of every object. Two installations need two names."),
    setting("image.repository", Kind::Text, Default::Text("bridger"), "Registry and name of the image."),
    setting("image.tag", Kind::Text, Default::Text(env!("CARGO_PKG_VERSION")), "Ignored if a digest is given."),
    setting("image.digest", Kind::Text, Default::Text(""), "sha256:... of the image."),
    setting("image.pullPolicy", Kind::OneOf(&["Always", "IfNotPresent", "Never"]), Default::Text("IfNotPresent"), ""),
    setting("imagePullSecrets", Kind::Maps, Default::Empty, "As in a pod: a list of {name: SECRET}."),
    setting(
        "replicas",
        Kind::Number { min: 0, max: 10 },
        Default::Number(2),
        "One of them writes; see docs/run.md, Several instances.",
    ),
    setting("parts.labels", Kind::Switch, Default::Switch(true), "Label nodes with their physical host."),
    setting("parts.rules", Kind::Switch, Default::Switch(true), "Maintain DRS rules. Read `bridger plan` first."),
    setting("parts.extender", Kind::Switch, Default::Switch(false), "Answer kube-scheduler; see extender below."),
    setting("parts.scheduling", Kind::Switch, Default::Switch(false), "Schedule the pods of schedulerName: bridger."),
    setting("dryRun", Kind::Switch, Default::Switch(false), "Log what would be written, and write nothing."),
    setting(
        "vcenters",
        Kind::Each(&[
            required("name", Kind::Text),
            required("url", Kind::Text),
            required("credentialsSecret", Kind::Text),
            optional("caConfigMap", Kind::Text),
            optional("thumbprint", Kind::Text),
            optional("insecure", Kind::Switch),
            optional("vmFolders", Kind::Texts),
            optional("vmResourcePools", Kind::Texts),
            optional("vmTags", Kind::Texts),
        ]),
        Default::Empty,
        "The vCenters: name, of your choice; url; credentialsSecret, a Secret with the keys username and password; caConfigMap, a ConfigMap\n\
         with the key ca.crt, or thumbprint; insecure; vmFolders, vmResourcePools, vmTags. A changed Secret takes effect\n\
         at the next login.",
    ),
    setting(
        "settings",
        Kind::Map,
        Default::Empty,
        "Further keys of Bridger's configuration file: policy, lift, hostLabel, ... (docs/run.md).",
    ),
    setting(
        "schedulerConfiguration",
        Kind::Map,
        Default::Empty,
        "A KubeSchedulerConfiguration, if parts.scheduling is on.",
    ),
    setting("extender.port", PORT, Default::Number(12_348), ""),
    setting(
        "extender.tlsSecret",
        Kind::Text,
        Default::Text("bridger-extender"),
        "A Secret with tls.crt, tls.key and ca.crt, the authority of kube-scheduler's certificate.",
    ),
    setting(
        "extender.schedulerNames",
        Kind::Texts,
        Default::Json(r#"["default-scheduler"]"#),
        "The schedulers whose pods /bind binds.",
    ),
    setting(
        "extender.clientAllowedNames",
        Kind::Texts,
        Default::Json(r#"["system:kube-scheduler"]"#),
        "The names in the client certificates.",
    ),
    setting(
        "extender.certManager.enabled",
        Kind::Switch,
        Default::Switch(false),
        "Let cert-manager issue the certificates: an authority of their own, Bridger's and\none for kube-scheduler, renewed in time.",
    ),
    setting("metrics.port", PORT, Default::Number(12_346), "Health and metrics."),
    setting("serviceMonitor.enabled", Kind::Switch, Default::Switch(false), "Needs the Prometheus operator."),
    setting("serviceMonitor.labels", Kind::Map, Default::Empty, ""),
    setting(
        "networkPolicy.enabled",
        Kind::Switch,
        Default::Switch(true),
        "Only DNS, and the ports below, may be reached from Bridger.",
    ),
    setting(
        "networkPolicy.egressPorts",
        Kind::Numbers { min: 1, max: 65_535 },
        Default::Json("[443, 6443]"),
        "Of the API server and the vCenters.",
    ),
    setting(
        "resources",
        Kind::Map,
        Default::Json(r#"{"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}"#),
        "",
    ),
    setting("priorityClassName", Kind::Text, Default::Text("system-cluster-critical"), ""),
    setting("nodeSelector", Kind::Map, Default::Empty, ""),
    setting(
        "tolerations",
        Kind::Maps,
        Default::Json(
            r#"[{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}]"#,
        ),
        "",
    ),
    setting("podAnnotations", Kind::Map, Default::Empty, ""),
    setting("podLabels", Kind::Map, Default::Empty, ""),
];

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValuesError {
    #[error("the values are not a map.\nThey are `name: value`, as in deploy/chart/values.yaml")]
    NoMap,
    #[error("{path}: there is no such value.\nThe values are those of deploy/chart/values.yaml")]
    Unknown { path: String },
    #[error("{path}: {found} is not {expected}")]
    Invalid { path: String, found: String, expected: String },
}

/// The values of an installation: the defaults, with what was given in their place.
pub fn complete(given: &Value) -> Result<Value, ValuesError> {
    if !given.is_object() {
        return Err(ValuesError::NoMap);
    }
    check_names("", given)?;
    let mut values = Value::Object(Map::new());
    for setting in SETTINGS {
        let value = match at(given, setting.path) {
            // As in Helm, null means the default.
            None | Some(Value::Null) => setting.default(),
            Some(value) => {
                setting.kind.check(setting.path, value)?;
                value.clone()
            }
        };
        put(&mut values, setting.path, value);
    }
    Ok(values)
}

/// Puts a value at a dotted path; maps on the way are created.
pub fn put(values: &mut Value, path: &str, value: Value) {
    if !values.is_object() {
        *values = Value::Object(Map::new());
    }
    match path.split_once('.') {
        None => values[path] = value,
        Some((first, rest)) => put(&mut values[first], rest, value),
    }
}

fn check_names(prefix: &str, given: &Value) -> Result<(), ValuesError> {
    for (name, value) in given.as_object().into_iter().flatten() {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        if SETTINGS.iter().any(|setting| setting.path == path) {
            continue;
        }
        let is_folder = SETTINGS.iter().any(|setting| setting.path.starts_with(&format!("{path}.")));
        if !is_folder {
            return Err(ValuesError::Unknown { path });
        }
        if !value.is_object() && !value.is_null() {
            return Err(ValuesError::Invalid { path, found: value.to_string(), expected: "a map".to_owned() });
        }
        check_names(&path, value)?;
    }
    Ok(())
}

impl Setting {
    pub fn default(&self) -> Value {
        match self.default {
            Default::Text(text) => text.into(),
            Default::Switch(on) => on.into(),
            Default::Number(number) => number.into(),
            Default::Empty if matches!(self.kind, Kind::Map) => json!({}),
            Default::Empty => json!([]),
            Default::Json(text) => serde_json::from_str(text).unwrap_or_default(),
        }
    }
}

impl Kind {
    fn check(&self, path: &str, value: &Value) -> Result<(), ValuesError> {
        let each = |kind: &Kind| {
            let mut values = value.as_array().into_iter().flatten().enumerate();
            values.try_for_each(|(index, value)| kind.check(&format!("{path}[{index}]"), value))
        };
        let fits = match self {
            Kind::Text => value.is_string(),
            Kind::Switch => value.is_boolean(),
            Kind::Number { min, max } => value.as_i64().is_some_and(|number| (*min..=*max).contains(&number)),
            Kind::OneOf(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Kind::Map => value.is_object(),
            Kind::Texts | Kind::Numbers { .. } | Kind::Maps | Kind::Each(_) => value.is_array(),
        };
        if !fits {
            let (path, found) = (path.to_owned(), value.to_string());
            return Err(ValuesError::Invalid { path, found, expected: self.expected() });
        }
        match self {
            Kind::Texts => each(&Kind::Text),
            Kind::Numbers { min, max } => each(&Kind::Number { min: *min, max: *max }),
            Kind::Maps => each(&Kind::Map),
            Kind::Each(members) => {
                for (index, element) in value.as_array().into_iter().flatten().enumerate() {
                    check_element(&format!("{path}[{index}]"), members, element)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn expected(&self) -> String {
        match self {
            Kind::Text => "text".to_owned(),
            Kind::Switch => "true or false".to_owned(),
            Kind::Number { min, max } => format!("a number from {min} to {max}"),
            Kind::OneOf(words) => format!("one of {}", words.join(", ")),
            Kind::Map => "a map".to_owned(),
            Kind::Texts | Kind::Numbers { .. } | Kind::Maps | Kind::Each(_) => "a list".to_owned(),
        }
    }

    fn schema(&self) -> Value {
        let list = |items: Value| json!({ "type": "array", "items": items });
        match self {
            Kind::Text => json!({ "type": "string" }),
            Kind::Switch => json!({ "type": "boolean" }),
            Kind::Number { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
            Kind::OneOf(words) => json!({ "enum": words }),
            Kind::Texts => list(Kind::Text.schema()),
            Kind::Numbers { min, max } => list(Kind::Number { min: *min, max: *max }.schema()),
            Kind::Map => json!({ "type": "object" }),
            Kind::Maps => list(Kind::Map.schema()),
            Kind::Each(members) => {
                let properties: Map<String, Value> =
                    members.iter().map(|member| (member.name.to_owned(), member.kind.schema())).collect();
                let required: Vec<&str> = members.iter().filter(|it| it.required).map(|it| it.name).collect();
                list(json!({ "type": "object", "properties": properties, "required": required,
                    "additionalProperties": false }))
            }
        }
    }
}

fn check_element(path: &str, members: &[Member], element: &Value) -> Result<(), ValuesError> {
    let invalid = |found: String, expected: String| ValuesError::Invalid { path: path.to_owned(), found, expected };
    let Some(given) = element.as_object() else { return Err(invalid(element.to_string(), "a map".to_owned())) };
    if let Some(missing) = members.iter().find(|member| member.required && !given.contains_key(member.name)) {
        return Err(invalid(element.to_string(), format!("a map with {}", missing.name)));
    }
    for (name, value) in given {
        let path = format!("{path}.{name}");
        let Some(member) = members.iter().find(|member| member.name == name) else {
            return Err(ValuesError::Unknown { path });
        };
        member.kind.check(&path, value)?;
    }
    Ok(())
}

/// `values.schema.json`.
pub fn schema() -> Value {
    let folder = || json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let mut root = folder();
    for setting in SETTINGS {
        let mut names: Vec<&str> = setting.path.split('.').collect();
        let last = names.pop().unwrap_or_default();
        let mut at = &mut root;
        for name in names {
            at = &mut at["properties"][name];
            if at.is_null() {
                *at = folder();
            }
        }
        at["properties"][last] = setting.kind.schema();
    }
    // Helm itself adds it, for charts that use this one.
    root["properties"]["global"] = json!({ "type": "object" });
    root["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    root
}

/// `values.yaml`: every value with its default and what it means.
pub fn file() -> String {
    let mut text = "# The values of Bridger's chart. Generated from the program: see CONTRIBUTING.md.\n".to_owned();
    let mut open: Vec<&str> = Vec::new();
    for setting in SETTINGS {
        let names: Vec<&str> = setting.path.split('.').collect();
        let (last, folders) = names.split_last().map_or(("", &[][..]), |(last, folders)| (*last, folders));
        let common = open.iter().zip(folders).take_while(|(a, b)| a == b).count();
        for (depth, folder) in folders.iter().enumerate().skip(common) {
            let _ = writeln!(text, "{:indent$}{folder}:", "", indent = depth * 2);
        }
        open = folders.to_vec();
        let indent = folders.len() * 2;
        for line in setting.about.lines() {
            let _ = writeln!(text, "{:indent$}# {line}", "");
        }
        for line in document(&json!({ last: setting.default() })).lines() {
            let _ = writeln!(text, "{:indent$}{line}", "");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_values_are_refused_with_their_path() {
        for (given, expected) in [
            (json!([]), "not a map"),
            (json!("text"), "not a map"),
            (json!({ "nonsense": 1 }), "nonsense: there is no such value"),
            (json!({ "image": { "tagg": "1" } }), "image.tagg: there is no such value"),
            (json!({ "image": "text" }), "image: \"text\" is not a map"),
            (json!({ "replicas": "2" }), "replicas: \"2\" is not a number from 0 to 10"),
            (json!({ "replicas": 11 }), "replicas: 11 is not a number"),
            (json!({ "parts": { "labels": "on" } }), "parts.labels: \"on\" is not true or false"),
            (json!({ "image": { "pullPolicy": "Sometimes" } }), "one of Always, IfNotPresent, Never"),
            (json!({ "networkPolicy": { "egressPorts": [443, 0] } }), "networkPolicy.egressPorts[1]: 0"),
            (json!({ "vcenters": [{ "name": "one", "url": "u" }] }), "vcenters[0]: {"),
            (json!({ "vcenters": ["one"] }), "vcenters[0]: \"one\" is not a map"),
        ] {
            let error = complete(&given).expect_err("they are wrong").to_string();
            assert!(error.contains(expected), "{given}: {error}");
        }
        assert_eq!(complete(&json!({ "image": null, "replicas": null })), complete(&json!({})));
    }

    #[test]
    fn a_value_is_put_where_another_type_was() {
        let mut values = json!({ "image": "text" });
        put(&mut values, "image.tag", json!("1"));
        put(&mut values, "replicas", json!(1));
        assert_eq!(values, json!({ "image": { "tag": "1" }, "replicas": 1 }));
    }
}
