//! What Prometheus reads.

use serde_json::json;

use super::{object, selector};
use crate::install::template::{Entry, Origin, Template, is, list, literal, map};

pub fn objects() -> Vec<Template> {
    let endpoint = literal(json!({ "port": "metrics", "interval": "30s" }));
    let monitor = object("monitoring.coreos.com/v1", "ServiceMonitor", "{name}");
    let monitor = monitor.with([Entry::Key(
        "spec",
        map([("selector", map([("matchLabels", selector())])), ("endpoints", list([endpoint]))]),
    )]);
    // Prometheus selects monitors by labels of the team's choice.
    let monitor = monitor.labelled(Origin::Value("serviceMonitor.labels"));
    vec![Template { file: "service-monitor", when: Some(is("serviceMonitor.enabled")), object: monitor }]
}
