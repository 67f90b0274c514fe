//! Reads PodDisruptionBudgets.
//!
//! In: the JSON of a budget. Out: [`DisruptionBudgetFacts`].

use std::collections::BTreeMap;

use k8s_openapi::NamespaceResourceScope;
use model::event::Event;
use model::scheduling::DisruptionBudgetFacts;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::affinity::Selector;
use super::{Facts, Meta};

#[derive(Clone, Debug)]
pub(crate) struct DisruptionBudget(DisruptionBudgetFacts);

#[derive(Deserialize)]
pub(crate) struct Spec {
    selector: Option<Selector>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    disruptions_allowed: Option<i32>,
    disrupted_pods: Option<BTreeMap<String, IgnoredAny>>,
}

impl Facts for DisruptionBudget {
    type Scope = NamespaceResourceScope;
    type Spec = Spec;
    type Status = Status;

    fn new(meta: Meta, spec: Option<Spec>, status: Option<Status>) -> Self {
        let status = status.unwrap_or_default();
        Self(DisruptionBudgetFacts {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name,
            selector: spec.and_then(|spec| spec.selector).and_then(Selector::facts),
            disruptions_allowed: status.disruptions_allowed.unwrap_or(0),
            disrupted_pods: status.disrupted_pods.unwrap_or_default().into_keys().collect(),
        })
    }

    fn applied(self) -> Event {
        Event::DisruptionBudgetApplied(self.0)
    }

    fn deleted(self) -> Event {
        Event::DisruptionBudgetDeleted { namespace: self.0.namespace, name: self.0.name }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Watched;
    use super::*;

    #[test]
    fn a_budget_is_read_with_its_status() {
        let object = json!({
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "minAvailable": 2, "selector": { "matchLabels": { "app": "web" } } },
            "status": { "disruptionsAllowed": 1, "disruptedPods": { "web-1": "2026-03-01T12:00:00Z" } },
        });
        let read = Watched::<DisruptionBudget>::deserialize(&object).expect("a budget").facts.0;
        assert_eq!((read.namespace.as_str(), read.name.as_str(), read.disruptions_allowed), ("shop", "web", 1));
        assert!(read.disrupted_pods.contains("web-1"));
        assert_eq!(read.selector.expect("a selector").labels.get("app").map(String::as_str), Some("web"));
        let bare = json!({ "metadata": { "name": "new", "namespace": "shop" } });
        let read = Watched::<DisruptionBudget>::deserialize(&bare).expect("a budget").facts.0;
        assert_eq!((read.selector, read.disruptions_allowed), (None, 0));
    }
}
