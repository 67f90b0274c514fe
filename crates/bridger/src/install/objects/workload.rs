//! The Deployment, and the budget that keeps one of its pods.

use serde_json::json;

use super::configuration::{CERTIFICATES, CREDENTIALS, FILES, credentials, every_instance_is_ready};
use super::{labels, object, selector};
use crate::install::template::{
    Condition, Entry, Item, Origin, Template, Yaml, is, list, literal, map, not, text, value,
};

pub fn objects() -> Vec<Template> {
    let several = Condition::Above(Origin::Value("replicas"), 1);
    vec![
        Template { file: "deployment", when: None, object: deployment() },
        // A budget counts ready pods. With the extender only the leader is ready, so no node with it could be drained.
        Template {
            file: "pod-disruption-budget",
            when: Some(Condition::All(vec![several, every_instance_is_ready()])),
            object: object("policy/v1", "PodDisruptionBudget", "{name}").with([Entry::Key(
                "spec",
                map([("minAvailable", literal(1)), ("selector", map([("matchLabels", selector())]))]),
            )]),
        },
    ]
}

fn deployment() -> Yaml {
    let spec = map([
        ("replicas", value("replicas")),
        // A follower of the extender is never ready: a rollout must not wait for it.
        (
            "strategy",
            literal(json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } })),
        ),
        ("selector", map([("matchLabels", selector())])),
        ("template", map([("metadata", metadata()), ("spec", pod())])),
    ]);
    object("apps/v1", "Deployment", "{name}").with([Entry::Key("spec", spec)])
}

fn metadata() -> Yaml {
    let annotations = Yaml::Map(vec![
        Entry::Key("bridger.dev/values", Yaml::Inserted(Origin::Digest)),
        Entry::Spread(Origin::Value("podAnnotations")),
    ]);
    map([("labels", labels().with([Entry::Spread(Origin::Value("podLabels"))])), ("annotations", annotations)])
}

fn pod() -> Yaml {
    let key = Entry::Key;
    let optional = |name: &'static str| Entry::When(is(name), vec![Entry::Key(name, value(name))]);
    let one_per_node = map([
        ("topologyKey", literal("kubernetes.io/hostname")),
        ("labelSelector", map([("matchLabels", selector())])),
    ]);
    // Bridger also keeps these nodes on different physical hosts: its own pods are pods like any other.
    let affinity =
        map([("podAntiAffinity", map([("requiredDuringSchedulingIgnoredDuringExecution", list([one_per_node]))]))]);
    Yaml::Map(vec![
        key("serviceAccountName", text("{name}")),
        key("automountServiceAccountToken", literal(true)),
        optional("priorityClassName"),
        optional("imagePullSecrets"),
        key(
            "securityContext",
            literal(json!({ "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                "seccompProfile": { "type": "RuntimeDefault" } })),
        ),
        // It finishes what it has begun, and hands its leases over.
        key("terminationGracePeriodSeconds", literal(15)),
        key("affinity", affinity),
        optional("nodeSelector"),
        optional("tolerations"),
        key("containers", list([container()])),
        key("volumes", volumes()),
    ])
}

fn container() -> Yaml {
    let probe = |path: &str, failures: u32| {
        literal(json!({ "httpGet": { "path": path, "port": "metrics" }, "periodSeconds": 10, "timeoutSeconds": 5,
            "failureThreshold": failures }))
    };
    let port =
        |name: &'static str, number: &'static str| map([("name", literal(name)), ("containerPort", value(number))]);
    let mount =
        |name: &str, path: &str| Item::One(literal(json!({ "name": name, "mountPath": path, "readOnly": true })));
    let pinned = Entry::When(is("image.digest"), vec![Entry::Key("image", text("{image.repository}@{image.digest}"))]);
    let tagged =
        Entry::When(not(is("image.digest")), vec![Entry::Key("image", text("{image.repository}:{image.tag}"))]);
    let key = Entry::Key;
    Yaml::Map(vec![
        key("name", literal("bridger")),
        pinned,
        tagged,
        key("imagePullPolicy", value("image.pullPolicy")),
        key("args", literal(json!(["run", "--config", format!("{FILES}/bridger.yaml"), "--log-format", "json"]))),
        key(
            "ports",
            Yaml::List(vec![
                Item::One(port("metrics", "metrics.port")),
                Item::When(is("parts.extender"), vec![Item::One(port("extender", "extender.port"))]),
            ]),
        ),
        key("livenessProbe", probe("/livez", 3)),
        key("readinessProbe", probe("/readyz", 1)),
        key("resources", value("resources")),
        key(
            "securityContext",
            literal(json!({ "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": { "drop": ["ALL"] } })),
        ),
        key(
            "volumeMounts",
            Yaml::List(vec![
                mount("configuration", FILES),
                Item::When(is("vcenters"), vec![mount("vcenters", CREDENTIALS)]),
                Item::When(is("parts.extender"), vec![mount("extender", CERTIFICATES)]),
            ]),
        ),
    ])
}

fn volumes() -> Yaml {
    let volume = |name: &'static str, kind: &'static str, content: Yaml| {
        Item::One(map([("name", literal(name)), (kind, content)]))
    };
    let configuration = map([("name", text("{name}"))]);
    let certificates = map([("secretName", value("extender.tlsSecret")), ("defaultMode", literal(0o440))]);
    Yaml::List(vec![
        volume("configuration", "configMap", configuration),
        Item::When(is("vcenters"), vec![volume("vcenters", "projected", credentials())]),
        Item::When(is("parts.extender"), vec![volume("extender", "secret", certificates)]),
    ])
}
