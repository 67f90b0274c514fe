//! Which nodes a pod's node selector and node affinity accept.
//!
//! In: requirements on labels and names. Out: a test that is resolved once, against the columns of node labels, and then
//! compares small numbers for each node.
//!
//! Invariant: the meaning is upstream's. All requirements of a term must hold, and one of the terms; a term without any accepts
//! no node, and neither does one that is malformed, by a number that is none or a value that no label may have.

use model::event::{NodeTermFacts, Operator, PinningFacts, RequirementFacts};
use model::scheduling::{LabelColumn, ValueId};
use model::{NodeId, NodeSet, World};

/// The field that names a node.
pub(super) const NAME_FIELD: &str = "metadata.name";

/// One requirement.
enum Test<'a> {
    Never,
    Label { column: &'a LabelColumn, accepts: Accepts },
    Name { node: Option<NodeId>, is: bool },
    Always,
}

/// Which values of a label are accepted; `None` stands for a node without it.
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
    /// `None` where the requirement is malformed.
    fn of_label(requirement: &RequirementFacts, world: &'a World) -> Option<Self> {
        let RequirementFacts { key, operator, values } = requirement;
        let well_formed = match operator {
            Operator::In | Operator::NotIn => !values.is_empty(),
            Operator::Exists | Operator::DoesNotExist => values.is_empty(),
            Operator::Gt | Operator::Lt => values.len() == 1,
        };
        if !well_formed || !values.iter().all(|value| is_label_value(value)) {
            return None;
        }
        let bound: Option<i64> = match operator {
            Operator::Gt | Operator::Lt => Some(values[0].parse().ok()?),
            _ => None,
        };
        let Some(column) = world.node_label(key) else {
            let holds_without = matches!(operator, Operator::NotIn | Operator::DoesNotExist);
            return Some(if holds_without { Self::Always } else { Self::Never });
        };
        let known = |values: &[String]| {
            let symbols = values.iter().filter_map(|value| world.interner().get(value));
            symbols.filter_map(|symbol| column.value(symbol)).collect()
        };
        let beyond = |holds: fn(i64, i64) -> bool| {
            let number = |symbol| world.interner().text(symbol).parse::<i64>().ok();
            let holds = |symbol| bound.zip(number(symbol)).is_some_and(|(bound, value)| holds(value, bound));
            column.values().filter(|&(_, symbol)| holds(symbol)).map(|(value, _)| value).collect()
        };
        let accepts = match operator {
            Operator::In => Accepts::Among(known(values)),
            Operator::NotIn => Accepts::NotAmong(known(values)),
            Operator::Exists => Accepts::Any,
            Operator::DoesNotExist => Accepts::None,
            Operator::Gt => Accepts::Among(beyond(|value, bound| value > bound)),
            Operator::Lt => Accepts::Among(beyond(|value, bound| value < bound)),
        };
        Some(Self::Label { column, accepts })
    }

    /// On a field: exactly one name, and it is that or it is not.
    fn of_field(requirement: &RequirementFacts, world: &'a World) -> Option<Self> {
        let [name] = requirement.values.as_slice() else { return None };
        let is = match requirement.operator {
            Operator::In => true,
            Operator::NotIn => false,
            _ => return None,
        };
        if requirement.key != NAME_FIELD {
            // No node has any other field: it reads as empty.
            return Some(if name.is_empty() == is { Self::Always } else { Self::Never });
        }
        Some(Self::Name { node: world.node_id(name), is })
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

/// At most 63 characters: letters, digits, and in between also `-`, `_` and `.`; or none at all.
fn is_label_value(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| is_end(c) || matches!(c, '-' | '_' | '.');
    text.is_empty()
        || (text.len() <= 63 && text.starts_with(is_end) && text.ends_with(is_end) && text.chars().all(inner))
}

/// Whether one term accepts nodes.
pub(super) struct TermTest<'a>(Vec<Test<'a>>);

impl<'a> TermTest<'a> {
    pub(super) fn of(term: &NodeTermFacts, world: &'a World) -> Self {
        let never = || Self(vec![Test::Never]);
        if term.expressions.is_empty() && term.fields.is_empty() {
            return never();
        }
        let labels = term.expressions.iter().map(|requirement| Test::of_label(requirement, world));
        let fields = term.fields.iter().map(|requirement| Test::of_field(requirement, world));
        labels.chain(fields).collect::<Option<_>>().map_or_else(never, Self)
    }

    pub(super) fn holds(&self, node: NodeId) -> bool {
        self.0.iter().all(|test| test.holds(node))
    }
}

/// Whether a pod accepts nodes, as far as its selector and required affinity say.
pub(super) struct Selection<'a> {
    selector: TermTest<'a>,
    /// `None` where there is no required affinity.
    terms: Option<Vec<TermTest<'a>>>,
}

impl<'a> Selection<'a> {
    pub(super) fn of(pinning: &PinningFacts, world: &'a World) -> Self {
        let selector = pinning.node_selector.iter().map(|(key, value)| {
            let accepts = |column: &LabelColumn| {
                let value = world.interner().get(value).and_then(|symbol| column.value(symbol));
                Accepts::Among(value.into_iter().collect())
            };
            world.node_label(key).map_or(Test::Never, |column| Test::Label { column, accepts: accepts(column) })
        });
        Self {
            selector: TermTest(selector.collect()),
            terms: (!pinning.node_terms.is_empty())
                .then(|| pinning.node_terms.iter().map(|term| TermTest::of(term, world)).collect()),
        }
    }

    /// Required terms alone: one of them must hold.
    pub(super) fn of_terms(terms: &[NodeTermFacts], world: &'a World) -> Self {
        let terms = terms.iter().map(|term| TermTest::of(term, world)).collect();
        Self { selector: TermTest(Vec::new()), terms: Some(terms) }
    }

    pub(super) fn holds(&self, node: NodeId) -> bool {
        self.selector.holds(node) && self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.holds(node)))
    }

    /// The nodes of a set that are accepted.
    pub(super) fn among(&self, nodes: &NodeSet) -> NodeSet {
        nodes.iter().filter(|node| self.holds(*node)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_told_from_other_text() {
        for good in ["", "a", "A-b_c.9", &"x".repeat(63)] {
            assert!(is_label_value(good), "{good}");
        }
        for bad in ["-a", "a-", "a b", "ä", ".", &"x".repeat(64)] {
            assert!(!is_label_value(bad), "{bad}");
        }
    }
}
