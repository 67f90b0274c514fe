//! The extender's certificates, issued and renewed by cert-manager: an authority of their own, which is trusted for
//! nothing else.

use serde_json::json;

use super::object;
use crate::install::template::{Condition, Entry, Template, Yaml, is, list, literal, map, text, value};

const VERSION: &str = "cert-manager.io/v1";

pub fn objects() -> Vec<Template> {
    let when = || Some(Condition::All(vec![is("parts.extender"), is("extender.certManager.enabled")]));
    let of = |file, kind, name, spec: Yaml| Template {
        file,
        when: when(),
        object: object(VERSION, kind, name).with([Entry::Key("spec", spec)]),
    };
    let issuer = |name: &'static str| map([("kind", literal("Issuer")), ("name", text(name))]);
    let key = || literal(json!({ "algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always" }));
    let authority = map([
        ("isCA", literal(true)),
        ("commonName", text("{name}-extender")),
        ("secretName", text("{name}-extender-ca")),
        ("duration", literal("87600h")),
        ("privateKey", literal(json!({ "algorithm": "ECDSA", "size": 256 }))),
        ("issuerRef", issuer("{name}-extender-root")),
    ]);
    let server = map([
        ("secretName", value("extender.tlsSecret")),
        ("commonName", text("{name}-extender")),
        ("dnsNames", list([text("{name}-extender.{namespace}.svc"), text("{name}-extender.{namespace}")])),
        ("usages", literal(json!(["server auth"]))),
        ("duration", literal("2160h")),
        ("privateKey", key()),
        ("issuerRef", issuer("{name}-extender")),
    ]);
    let client = map([
        ("secretName", text("{name}-kube-scheduler")),
        ("commonName", literal("system:kube-scheduler")),
        ("usages", literal(json!(["client auth"]))),
        ("duration", literal("2160h")),
        ("privateKey", key()),
        ("issuerRef", issuer("{name}-extender")),
    ]);
    let signs = map([("ca", map([("secretName", text("{name}-extender-ca"))]))]);
    vec![
        of("extender-root-issuer", "Issuer", "{name}-extender-root", literal(json!({ "selfSigned": {} }))),
        of("extender-authority", "Certificate", "{name}-extender-ca", authority),
        of("extender-issuer", "Issuer", "{name}-extender", signs),
        of("extender-certificate", "Certificate", "{name}-extender", server),
        of("extender-client-certificate", "Certificate", "{name}-kube-scheduler", client),
    ]
}
