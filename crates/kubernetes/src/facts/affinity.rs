//! Reads a pod's `spec.affinity`.
//!
//! In: the JSON. Out: required and preferred terms, in the pod's facts.
//!
//! Invariant: a selector or a node term with an unknown operator matches nothing, so that a guess never widens a
//! policy.

use model::event::{
    Labels, NodeAffinityFacts, NodeTermFacts, Operator, PodFacts, RequirementFacts, SelectorFacts, TermFacts,
    WeightedTermFacts,
};
use model::scheduling::WeightedNodeTerm;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Affinity {
    node_affinity: Option<NodeAffinity>,
    pod_affinity: Option<PodAffinity>,
    pod_anti_affinity: Option<PodAffinity>,
}

#[derive(Debug, Deserialize)]
struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<NodeSelector>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    preferred: Option<Vec<PreferredNodeTerm>>,
}

#[derive(Debug, Deserialize)]
struct PreferredNodeTerm {
    #[serde(default)]
    weight: i32,
    #[serde(default)]
    preference: NodeTerm,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeSelector {
    node_selector_terms: Option<Vec<NodeTerm>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeTerm {
    match_expressions: Option<Vec<Requirement>>,
    match_fields: Option<Vec<Requirement>>,
}

#[derive(Debug, Deserialize)]
struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<Vec<Term>>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    preferred: Option<Vec<WeightedTerm>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WeightedTerm {
    weight: Option<i32>,
    pod_affinity_term: Option<Term>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    topology_key: Option<String>,
    label_selector: Option<Selector>,
    namespaces: Option<Vec<String>>,
    namespace_selector: Option<Selector>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Selector {
    match_labels: Option<Labels>,
    match_expressions: Option<Vec<Requirement>>,
}

#[derive(Debug, Deserialize)]
struct Requirement {
    key: String,
    operator: String,
    values: Option<Vec<String>>,
}

impl Affinity {
    /// Preferred node affinity.
    pub(crate) fn take_preferred_nodes(&mut self) -> Vec<WeightedNodeTerm> {
        let preferred = self.node_affinity.as_mut().and_then(|affinity| affinity.preferred.take());
        let facts = |wire: PreferredNodeTerm| WeightedNodeTerm { weight: wire.weight, term: wire.preference.facts() };
        preferred.into_iter().flatten().map(facts).collect()
    }

    pub(crate) fn add_to(self, facts: &mut PodFacts) {
        if let Some(required) = self.node_affinity.and_then(|affinity| affinity.required) {
            required.add_to(&mut facts.node_affinity);
        }
        if let Some(affinity) = self.pod_affinity {
            (facts.affinity, facts.preferred_affinity) = affinity.facts();
        }
        if let Some(affinity) = self.pod_anti_affinity {
            (facts.anti_affinity, facts.preferred_anti_affinity) = affinity.facts();
        }
    }
}

impl PodAffinity {
    /// Required and preferred terms.
    fn facts(self) -> (Vec<TermFacts>, Vec<WeightedTermFacts>) {
        let required = self.required.unwrap_or_default().into_iter().map(Term::facts).collect();
        let preferred = self.preferred.unwrap_or_default().into_iter().map(|preferred| WeightedTermFacts {
            weight: preferred.weight.unwrap_or_default(),
            term: preferred.pod_affinity_term.unwrap_or_default().facts(),
        });
        (required, preferred.collect())
    }
}

impl NodeSelector {
    fn add_to(self, node_affinity: &mut NodeAffinityFacts) {
        node_affinity.node_terms.extend(self.terms());
    }

    /// Its terms; at least one.
    pub(crate) fn terms(self) -> Vec<NodeTermFacts> {
        // A required affinity without terms accepts no node, like an empty term. With no term at all there would be no
        // requirement.
        let terms = self.node_selector_terms.filter(|terms| !terms.is_empty());
        let terms = terms.unwrap_or_else(|| vec![NodeTerm::default()]);
        terms.into_iter().map(NodeTerm::facts).collect()
    }
}

impl NodeTerm {
    fn facts(self) -> NodeTermFacts {
        let requirements = |wire: Option<Vec<Requirement>>| -> Option<Vec<RequirementFacts>> {
            wire.unwrap_or_default().into_iter().map(Requirement::of_nodes).collect()
        };
        let both = requirements(self.match_expressions).zip(requirements(self.match_fields));
        // An empty term accepts no node.
        let (expressions, fields) = both.unwrap_or_default();
        NodeTermFacts { expressions, fields }
    }
}

impl Term {
    fn facts(self) -> TermFacts {
        TermFacts {
            topology_key: self.topology_key.unwrap_or_default(),
            selector: self.label_selector.and_then(Selector::facts),
            namespaces: self.namespaces.unwrap_or_default(),
            // Never `None` if a selector is given, because `None` means the pod's own namespace.
            namespace_selector: self.namespace_selector.map(Selector::facts_or_nothing),
        }
    }
}

/// A selector that no labels satisfy.
fn nothing() -> SelectorFacts {
    let requirement =
        |operator| RequirementFacts { key: "kubernetes.io/metadata.name".to_owned(), operator, values: Vec::new() };
    let expressions = vec![requirement(Operator::Exists), requirement(Operator::DoesNotExist)];
    SelectorFacts { expressions, ..SelectorFacts::default() }
}

impl Selector {
    /// Like [`Selector::facts`]; an invalid selector matches nothing.
    pub(crate) fn facts_or_nothing(self) -> SelectorFacts {
        self.facts().unwrap_or_else(nothing)
    }

    pub(crate) fn facts(self) -> Option<SelectorFacts> {
        let expressions = self.match_expressions.unwrap_or_default().into_iter().map(Requirement::of_labels);
        Some(SelectorFacts {
            labels: self.match_labels.unwrap_or_default(),
            expressions: expressions.collect::<Option<_>>()?,
        })
    }
}

impl Requirement {
    fn of_labels(self) -> Option<RequirementFacts> {
        self.of_nodes().filter(|facts| !matches!(facts.operator, Operator::Gt | Operator::Lt))
    }

    fn of_nodes(self) -> Option<RequirementFacts> {
        let operator = match self.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "Gt" => Operator::Gt,
            "Lt" => Operator::Lt,
            _ => return None,
        };
        Some(RequirementFacts { key: self.key, operator, values: self.values.unwrap_or_default() })
    }
}
