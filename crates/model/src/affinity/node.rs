//! Node affinity: which nodes a pod's node selector and node affinity accept. The only implementation of both.
//!
//! In: requirements as pods write them. Out: terms with well-formed requirements only, evaluated for one node here, or
//! resolved against the labels of all nodes by the scheduler.
//!
//! Invariants, as in kube-scheduler's `component-helpers/scheduling/corev1/nodeaffinity`: the selector and one of the
//! terms must hold; all requirements of a term must hold; a term without requirements accepts no node, and neither does
//! a term with a malformed requirement. A label requirement is malformed if its key or a value is not valid for a
//! label, it has the wrong number of values, or its bound is not a number. A field requirement is malformed unless it
//! is `In` or `NotIn` with exactly one value. A node has only the field `metadata.name`; any other field reads as
//! empty.

use crate::event::{Labels, NodeAffinityFacts, NodeTermFacts, Operator, RequirementFacts};
use crate::labels::is_label_key;
use crate::labels::value::is_valid;

/// The field that names a node.
pub const NAME_FIELD: &str = "metadata.name";

/// The required node affinity of a pod.
#[derive(Debug)]
pub struct RequiredNodeAffinity<'a> {
    pub selector: &'a Labels,
    /// The terms that can accept a node; `None` if the pod has no required node affinity.
    pub terms: Option<Vec<NodeTerm<'a>>>,
}

/// A well-formed term: all requirements must hold.
#[derive(Debug, PartialEq, Eq)]
pub struct NodeTerm<'a> {
    pub labels: Vec<LabelRequirement<'a>>,
    pub names: Vec<NameRequirement<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct LabelRequirement<'a> {
    pub key: &'a str,
    pub values: Values<'a>,
}

/// Which values of a label are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values<'a> {
    Among(&'a [String]),
    /// An absent label is accepted too.
    NotAmong(&'a [String]),
    Any,
    None,
    Above(i64),
    Below(i64),
}

/// The node must have this name (`is`) or must not have it.
#[derive(Debug, PartialEq, Eq)]
pub struct NameRequirement<'a> {
    pub name: &'a str,
    pub is: bool,
}

/// The known value of a node's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label<'a> {
    Is(&'a str),
    Absent,
    /// Satisfies every requirement.
    Unknown,
}

impl<'a> From<Option<&'a str>> for Label<'a> {
    fn from(value: Option<&'a str>) -> Self {
        value.map_or(Self::Absent, Self::Is)
    }
}

impl<'a> RequiredNodeAffinity<'a> {
    pub fn of(facts: &'a NodeAffinityFacts) -> Self {
        let terms = || facts.node_terms.iter().filter_map(NodeTerm::of).collect();
        Self { selector: &facts.node_selector, terms: (!facts.node_terms.is_empty()).then(terms) }
    }

    /// Whether it accepts a node with this name and the labels that the function returns.
    pub fn accepts<'n>(&self, node: &str, label: impl Fn(&str) -> Label<'n>) -> bool {
        let is_selected = |(key, value): (&String, &String)| match label(key) {
            Label::Is(other) => value == other,
            Label::Absent => false,
            Label::Unknown => true,
        };
        let is_affine = |terms: &Vec<NodeTerm<'_>>| terms.iter().any(|term| term.accepts(node, &label));
        self.selector.iter().all(is_selected) && self.terms.as_ref().is_none_or(is_affine)
    }
}

impl<'a> NodeTerm<'a> {
    /// `None` if the term can accept no node.
    pub fn of(facts: &'a NodeTermFacts) -> Option<Self> {
        if facts.expressions.is_empty() && facts.fields.is_empty() {
            return None;
        }
        let labels = facts.expressions.iter().map(LabelRequirement::of).collect::<Option<_>>()?;
        let mut names = Vec::with_capacity(facts.fields.len());
        for field in &facts.fields {
            let [name] = field.values.as_slice() else { return None };
            let is = match field.operator {
                Operator::In => true,
                Operator::NotIn => false,
                _ => return None,
            };
            match field.key.as_str() {
                NAME_FIELD => names.push(NameRequirement { name, is }),
                _ if name.is_empty() != is => return None,
                _ => {}
            }
        }
        Some(Self { labels, names })
    }

    /// The same for a term of a volume, which kube-scheduler compares with the labels of nodes only: a requirement on a
    /// field must be well-formed, but accepts every node.
    pub fn of_volume(facts: &'a NodeTermFacts) -> Option<Self> {
        if facts.expressions.is_empty() && facts.fields.is_empty() {
            return None;
        }
        let is_well_formed = |field: &RequirementFacts| {
            field.values.len() == 1 && matches!(field.operator, Operator::In | Operator::NotIn)
        };
        if !facts.fields.iter().all(is_well_formed) {
            return None;
        }
        let labels = facts.expressions.iter().map(LabelRequirement::of).collect::<Option<_>>()?;
        Some(Self { labels, names: Vec::new() })
    }

    pub fn accepts<'n>(&self, node: &str, label: impl Fn(&str) -> Label<'n>) -> bool {
        self.accepts_name(node) && self.labels.iter().all(|required| required.values.accept(label(required.key)))
    }

    /// Whether its requirements on the node's name hold.
    pub fn accepts_name(&self, node: &str) -> bool {
        self.names.iter().all(|required| (required.name == node) == required.is)
    }
}

impl<'a> LabelRequirement<'a> {
    /// `None` if it is malformed.
    fn of(facts: &'a RequirementFacts) -> Option<Self> {
        let RequirementFacts { key, operator, values } = facts;
        let is_value = |value: &String| value.is_empty() || is_valid(value);
        if !is_label_key(key) || !values.iter().all(is_value) {
            return None;
        }
        let values = match (operator, values.as_slice()) {
            (Operator::In, [_, ..]) => Values::Among(values),
            (Operator::NotIn, [_, ..]) => Values::NotAmong(values),
            (Operator::Exists, []) => Values::Any,
            (Operator::DoesNotExist, []) => Values::None,
            (Operator::Gt, [bound]) => Values::Above(number(bound)?),
            (Operator::Lt, [bound]) => Values::Below(number(bound)?),
            _ => return None,
        };
        Some(Self { key, values })
    }
}

impl Values<'_> {
    pub fn accept(self, label: Label<'_>) -> bool {
        let value = match label {
            Label::Is(value) => Some(value),
            Label::Absent => None,
            Label::Unknown => return true,
        };
        let is_among = |values: &[String]| value.is_some_and(|value| values.iter().any(|other| other == value));
        match self {
            Self::Among(values) => is_among(values),
            Self::NotAmong(values) => !is_among(values),
            Self::Any => value.is_some(),
            Self::None => value.is_none(),
            Self::Above(bound) => value.and_then(number).is_some_and(|value| value > bound),
            Self::Below(bound) => value.and_then(number).is_some_and(|value| value < bound),
        }
    }
}

fn number(text: &str) -> Option<i64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};

    use super::*;

    fn required(key: &str, operator: Operator, values: &[&str]) -> RequirementFacts {
        RequirementFacts {
            key: key.to_owned(),
            operator,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        }
    }

    #[test]
    fn label_requirements_match_as_in_kube_scheduler() {
        let long = "x".repeat(64);
        // Whether the label is accepted if it is "5", "", or absent; `None` if the requirement is malformed.
        let cases = [
            (required("k", In, &["4", "5"]), Some([true, false, false])),
            (required("k", In, &[""]), Some([false, true, false])),
            (required("k", NotIn, &["5"]), Some([false, true, true])),
            (required("k", Exists, &[]), Some([true, true, false])),
            (required("k", DoesNotExist, &[]), Some([false, false, true])),
            (required("k", Gt, &["4"]), Some([true, false, false])),
            (required("k", Gt, &["5"]), Some([false, false, false])),
            (required("k", Lt, &["6"]), Some([true, false, false])),
            (required("k", In, &[]), None),
            (required("k", NotIn, &[]), None),
            (required("k", Exists, &["5"]), None),
            (required("k", DoesNotExist, &["5"]), None),
            (required("k", Gt, &[]), None),
            (required("k", Gt, &["1", "2"]), None),
            (required("k", Gt, &["four"]), None),
            (required("k", Lt, &["9223372036854775808"]), None),
            // A label value cannot begin with a sign.
            (required("k", Gt, &["-1"]), None),
            (required("k", NotIn, &["a b"]), None),
            (required("k", NotIn, &[&long]), None),
            (required("", NotIn, &["5"]), None),
            (required("a/b/c", NotIn, &["5"]), None),
        ];
        for (facts, expected) in cases {
            let read = LabelRequirement::of(&facts).map(|required| {
                [Label::Is("5"), Label::Is(""), Label::Absent].map(|label| required.values.accept(label))
            });
            assert_eq!(read, expected, "{facts:?}");
        }
    }

    #[test]
    fn node_terms_match_as_in_kube_scheduler() {
        let label = || required("k", In, &["5"]);
        let field = |key: &str, operator, values: &[&str]| vec![required(key, operator, values)];
        // Whether a node n1 with k=5 is accepted.
        let cases = [
            (vec![], vec![], false),
            (vec![label()], vec![], true),
            (vec![label(), required("other", Exists, &[])], vec![], false),
            (vec![label(), required("other", NotIn, &[])], vec![], false),
            (vec![label()], field(NAME_FIELD, In, &["n1"]), true),
            (vec![], field(NAME_FIELD, NotIn, &["n1"]), false),
            (vec![], field(NAME_FIELD, NotIn, &["n2"]), true),
            (vec![], field(NAME_FIELD, In, &["n1", "n2"]), false),
            (vec![], field(NAME_FIELD, NotIn, &[]), false),
            (vec![], field(NAME_FIELD, Exists, &[]), false),
            (vec![], field(NAME_FIELD, Gt, &["0"]), false),
            (vec![label()], field("spec.unschedulable", In, &["true"]), false),
            (vec![label()], field("spec.unschedulable", In, &[""]), true),
            (vec![], field("spec.unschedulable", NotIn, &["true"]), true),
            (vec![], field("spec.unschedulable", NotIn, &[""]), false),
        ];
        for (expressions, fields, expected) in cases {
            let facts = NodeTermFacts { expressions, fields };
            let of_node = |key: &str| Label::from((key == "k").then_some("5"));
            let accepts = NodeTerm::of(&facts).is_some_and(|term| term.accepts("n1", of_node));
            assert_eq!(accepts, expected, "{facts:?}");
        }
    }
}
