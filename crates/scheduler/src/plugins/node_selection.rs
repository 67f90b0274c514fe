//! Which nodes match a pod's node selector and node affinity.
//!
//! In: requirements on labels and names, as the model parses them. Out: a test that is resolved once against the
//! columns of node labels and then compares small numbers for each node. Invariant: it accepts the same nodes as the
//! model.

use model::affinity::node::{Label, LabelRequirement, NameRequirement, NodeTerm, RequiredNodeAffinity, Values};
use model::event::{Labels, NodeAffinityFacts, NodeTermFacts, SelectorFacts};
use model::scheduling::{LabelColumn, ValueId};
use model::{NodeId, NodeSet, World};

/// One requirement.
enum Test<'a> {
    Never,
    Label { column: &'a LabelColumn, accepts: Accepts },
    Name { node: Option<NodeId>, is: bool },
    Always,
}

/// Which values of a label are accepted. `None`: only nodes without the label.
enum Accepts {
    Any,
    None,
    Among(Vec<ValueId>),
    NotAmong(Vec<ValueId>),
}

impl Accepts {
    fn accepts(&self, value: Option<ValueId>) -> bool {
        match self {
            Self::Any => value.is_some(),
            Self::None => value.is_none(),
            Self::Among(values) => value.is_some_and(|value| values.contains(&value)),
            Self::NotAmong(values) => value.is_none_or(|value| !values.contains(&value)),
        }
    }
}

impl<'a> Test<'a> {
    fn of_label(requirement: &LabelRequirement<'_>, world: &'a World) -> Self {
        let LabelRequirement { key, values } = *requirement;
        let Some(column) = world.node_label(key) else {
            return if values.accept(Label::Absent) { Self::Always } else { Self::Never };
        };
        let known = |values: &[String]| {
            let symbols = values.iter().filter_map(|value| world.interner().get(value));
            symbols.filter_map(|symbol| column.value(symbol)).collect()
        };
        let accepts = match values {
            Values::Among(values) => Accepts::Among(known(values)),
            Values::NotAmong(values) => Accepts::NotAmong(known(values)),
            Values::Any => Accepts::Any,
            Values::None => Accepts::None,
            Values::Above(_) | Values::Below(_) => {
                let is_beyond = |symbol| values.accept(Label::Is(world.interner().text(symbol)));
                let beyond = column.values().filter(|&(_, symbol)| is_beyond(symbol)).map(|(value, _)| value);
                Accepts::Among(beyond.collect())
            }
        };
        Self::Label { column, accepts }
    }

    fn of_name(requirement: &NameRequirement<'_>, world: &World) -> Self {
        Self::Name { node: world.node_id(requirement.name), is: requirement.is }
    }

    fn holds(&self, node: NodeId) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Label { column, accepts } => accepts.accepts(column.value_of(node)),
            Self::Name { node: named, is } => (*named == Some(node)) == *is,
        }
    }
}

/// Whether a node matches one term.
pub(super) struct TermTest<'a>(Vec<Test<'a>>);

impl<'a> TermTest<'a> {
    pub(super) fn of(term: &NodeTermFacts, world: &'a World) -> Self {
        NodeTerm::of(term).map_or_else(|| Self(vec![Test::Never]), |term| Self::of_read(&term, world))
    }

    fn of_read(term: &NodeTerm<'_>, world: &'a World) -> Self {
        let labels = term.labels.iter().map(|requirement| Test::of_label(requirement, world));
        let names = term.names.iter().map(|requirement| Test::of_name(requirement, world));
        Self(labels.chain(names).collect())
    }

    /// The term of a volume, which is compared with the labels of nodes only.
    pub(super) fn of_volume(term: &NodeTermFacts, world: &'a World) -> Self {
        NodeTerm::of_volume(term).map_or_else(|| Self(vec![Test::Never]), |term| Self::of_read(&term, world))
    }

    /// A label selector.
    pub(super) fn of_labels(selector: &SelectorFacts, world: &'a World) -> Self {
        let Self(mut tests) = Self::of_selector(&selector.labels, world);
        if !selector.expressions.is_empty() {
            let term = NodeTermFacts { expressions: selector.expressions.clone(), fields: Vec::new() };
            tests.extend(Self::of(&term, world).0);
        }
        Self(tests)
    }

    /// A column, and its values that the term accepts at most; of several the one with the most values.
    pub(super) fn narrowest(&self) -> Option<(&'a LabelColumn, &[ValueId])> {
        let among = self.0.iter().filter_map(|test| match test {
            Test::Label { column, accepts: Accepts::Among(values) } => Some((*column, values.as_slice())),
            _ => None,
        });
        among.max_by_key(|(column, _)| column.value_count())
    }

    fn of_selector(selector: &Labels, world: &'a World) -> Self {
        let test = |(key, value): (&String, &String)| {
            let Some(column) = world.node_label(key) else { return Test::Never };
            let value = world.interner().get(value).and_then(|symbol| column.value(symbol));
            Test::Label { column, accepts: Accepts::Among(value.into_iter().collect()) }
        };
        Self(selector.iter().map(test).collect())
    }

    pub(super) fn holds(&self, node: NodeId) -> bool {
        self.0.iter().all(|test| test.holds(node))
    }
}

/// Whether a node matches a pod's node selector and required node affinity.
pub(super) struct Selection<'a> {
    selector: TermTest<'a>,
    /// `None` if there is no required affinity.
    terms: Option<Vec<TermTest<'a>>>,
}

impl<'a> Selection<'a> {
    pub(super) fn of(node_affinity: &NodeAffinityFacts, world: &'a World) -> Self {
        let RequiredNodeAffinity { selector, terms } = RequiredNodeAffinity::of(node_affinity);
        let test = |term: &NodeTerm<'_>| TermTest::of_read(term, world);
        Self {
            selector: TermTest::of_selector(selector, world),
            terms: terms.map(|terms| terms.iter().map(test).collect()),
        }
    }

    /// Only required terms: one of them must match.
    pub(super) fn of_terms(terms: &[NodeTermFacts], world: &'a World) -> Self {
        let terms = terms.iter().map(|term| TermTest::of(term, world)).collect();
        Self { selector: TermTest(Vec::new()), terms: Some(terms) }
    }

    pub(super) fn holds(&self, node: NodeId) -> bool {
        self.selector.holds(node) && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.holds(node)))
    }

    /// The nodes of a set that match.
    pub(super) fn among(&self, nodes: &NodeSet) -> NodeSet {
        nodes.iter().filter(|node| self.holds(*node)).collect()
    }
}

#[cfg(test)]
mod tests {
    use model::event::{Event, NodeFacts, Operator, RequirementFacts};
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::testing::{node, world};

    const KEYS: &[&str] = &["zone", "generation", "example.com/disk"];
    const VALUES: &[&str] = &["", "a", "b", "1", "5", "07", "-3", "+4", "1e3", "9223372036854775807"];

    fn text(of: &[&'static str], also: &[&'static str]) -> impl Strategy<Value = String> {
        // Mostly well-formed text, because one malformed requirement invalidates its whole term.
        let (mostly, rarely) = (select(of.to_vec()), select(also.to_vec()));
        prop_oneof![9 => mostly, 1 => rarely].prop_map(str::to_owned)
    }

    fn value() -> impl Strategy<Value = String> {
        text(VALUES, &["a b", "-", "ä", "x/y", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"])
    }

    fn requirement(
        key: impl Strategy<Value = String>,
        value: impl Strategy<Value = String>,
    ) -> impl Strategy<Value = RequirementFacts> {
        use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
        // Mostly as many values as the operator takes.
        let any = (select(vec![In, NotIn, Exists, DoesNotExist, Gt, Lt]), vec(value, 0..3), any::<u8>());
        (key, any).prop_map(|(key, (operator, mut values, roll))| {
            let fitting = match operator {
                In | NotIn => values.len(),
                Exists | DoesNotExist => 0,
                Gt | Lt => 1,
            };
            if roll > 30 {
                values.truncate(fitting);
            }
            RequirementFacts { key, operator, values }
        })
    }

    fn term() -> impl Strategy<Value = NodeTermFacts> {
        let key = text(KEYS, &["elsewhere", "", "a b", "-a/b", "a/b/c"]);
        let field = text(&["metadata.name"], &["metadata.namespace", "spec.unschedulable", ""]);
        let name = text(&["n0", "n1", "n2"], &["gone", ""]);
        (vec(requirement(key, value()), 0..3), vec(requirement(field, name), 0..2))
            .prop_map(|(expressions, fields)| NodeTermFacts { expressions, fields })
    }

    fn node_affinity() -> impl Strategy<Value = NodeAffinityFacts> {
        let selector = prop_oneof![
            3 => Just(Labels::new()),
            1 => btree_map(text(KEYS, &["elsewhere", "a b"]), value(), 1..2).prop_map(|map| map.into_iter().collect()),
        ];
        (selector, vec(term(), 0..3))
            .prop_map(|(node_selector, node_terms)| NodeAffinityFacts { node_selector, node_terms })
    }

    proptest! {
        #[test]
        fn the_resolved_test_accepts_the_same_nodes_as_the_model(
            node_affinity in node_affinity(),
            labels in vec(btree_map(text(KEYS, &["other"]), text(VALUES, &["c"]), 0..4), 3),
        ) {
            let mut world = world(&[]);
            let labels: Vec<Labels> = labels.into_iter().map(|map| map.into_iter().collect()).collect();
            for (number, labels) in labels.iter().enumerate() {
                world.apply(Event::NodeApplied(NodeFacts { labels: labels.clone(), ..node(&format!("n{number}")) }));
            }
            let read = RequiredNodeAffinity::of(&node_affinity);
            let selection = Selection::of(&node_affinity, &world);
            let terms = Selection::of_terms(&node_affinity.node_terms, &world);
            for (number, labels) in labels.iter().enumerate() {
                let name = format!("n{number}");
                let id = world.node_id(&name).expect("it was applied");
                let label = |key: &str| Label::from(labels.get(key).map(String::as_str));
                prop_assert_eq!(selection.holds(id), read.accepts(&name, label), "{}", name);
                let of_terms = node_affinity.node_terms.iter().filter_map(NodeTerm::of).any(|term| term.accepts(&name, label));
                prop_assert_eq!(terms.holds(id), of_terms, "{}, only terms", name);
            }
        }
    }
}
