//! Which of many things that are each usable on some nodes is the first that is usable on a given node.
//!
//! In: things in the order of preference, each with the nodes that can use it: the local volumes of thousands of nodes,
//! or their storage capacities. Out: the first one for a node. A thing that is bound to a label value is found by the
//! node's value, not by a walk over all things.

use std::collections::HashMap;

use model::NodeId;
use model::scheduling::LabelColumn;

use super::super::node_selection::TermTest;

/// The nodes on which a thing can be used.
pub(super) enum Place<'a> {
    Everywhere,
    /// One of the terms must hold.
    Terms(Vec<TermTest<'a>>),
}

impl Place<'_> {
    pub(super) fn has(&self, node: NodeId) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Terms(terms) => terms.iter().any(|term| term.holds(node)),
        }
    }
}

/// Things by the values of one label, each in order.
struct ByValue<'a> {
    column: &'a LabelColumn,
    /// By the index of the value.
    things: Vec<Vec<usize>>,
}

#[derive(Default)]
pub(super) struct Places<'a> {
    places: Vec<Place<'a>>,
    by_value: Vec<ByValue<'a>>,
    /// Things that no single label places.
    others: Vec<usize>,
}

impl<'a> FromIterator<Place<'a>> for Places<'a> {
    fn from_iter<T: IntoIterator<Item = Place<'a>>>(things: T) -> Self {
        let mut all = Self::default();
        let mut known: HashMap<*const LabelColumn, usize> = HashMap::new();
        for place in things {
            let number = all.places.len();
            let narrowest = match &place {
                Place::Terms(terms) if terms.len() == 1 => terms.first().and_then(TermTest::narrowest),
                _ => None,
            };
            match narrowest {
                Some((column, values)) => {
                    let position = *known.entry(column).or_insert_with(|| {
                        all.by_value.push(ByValue { column, things: vec![Vec::new(); column.width()] });
                        all.by_value.len() - 1
                    });
                    for value in values {
                        all.by_value[position].things[value.index()].push(number);
                    }
                }
                None => all.others.push(number),
            }
            all.places.push(place);
        }
        all
    }
}

impl Places<'_> {
    /// The first thing that the node can use, of those that are allowed.
    pub(super) fn first(&self, node: NodeId, is_allowed: impl Fn(usize) -> bool) -> Option<usize> {
        let is_usable = |number: &&usize| is_allowed(**number) && self.places[**number].has(node);
        let by_value = self.by_value.iter().filter_map(|by_value| {
            let value = by_value.column.value_of(node)?;
            by_value.things[value.index()].iter().find(is_usable)
        });
        by_value.chain(self.others.iter().find(is_usable)).min().copied()
    }
}
