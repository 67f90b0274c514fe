//! Label selectors, in symbols.
//!
//! In: a Kubernetes label selector. Out: whether labels satisfy it.
//!
//! Invariants: two selectors that differ only in order or spelling (`matchLabels` or `In` with one value) are equal; an
//! absent selector matches nothing, an empty one everything. A selector holds one use of each of its symbols until
//! `release`.

use crate::event::{Operator, RequirementFacts, SelectorFacts};
use crate::storage::intern::{Symbol, Symbols};

/// Labels in the form of [`crate::storage::label_set::LabelSet::pairs`]: sorted by key.
pub(crate) type Pairs = [(Symbol, Symbol)];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Requirement {
    In(Symbol, Box<[Symbol]>),
    /// An absent label satisfies it too.
    NotIn(Symbol, Box<[Symbol]>),
    Exists(Symbol),
    DoesNotExist(Symbol),
}

impl Requirement {
    /// `None` for an operator that a label selector cannot contain.
    fn acquire<S: Symbols>(facts: &RequirementFacts, interner: &mut S) -> Option<Self> {
        let values = |interner: &mut S| {
            let mut values: Vec<Symbol> = facts.values.iter().map(|value| interner.acquire(value)).collect();
            values.sort_unstable();
            release_repeated(&mut values, interner, |value, interner| interner.release(*value));
            values.into_boxed_slice()
        };
        let requirement = match facts.operator {
            Operator::In => Self::In(interner.acquire(&facts.key), values(interner)),
            Operator::NotIn => Self::NotIn(interner.acquire(&facts.key), values(interner)),
            Operator::Exists => Self::Exists(interner.acquire(&facts.key)),
            Operator::DoesNotExist => Self::DoesNotExist(interner.acquire(&facts.key)),
            Operator::Gt | Operator::Lt => return None,
        };
        Some(requirement)
    }

    fn release<S: Symbols>(&self, interner: &mut S) {
        let (key, values) = self.parts();
        interner.release(key);
        values.iter().for_each(|value| interner.release(*value));
    }

    fn parts(&self) -> (Symbol, &[Symbol]) {
        match self {
            Self::In(key, values) | Self::NotIn(key, values) => (*key, values),
            Self::Exists(key) | Self::DoesNotExist(key) => (*key, &[]),
        }
    }

    fn holds(&self, labels: &Pairs) -> bool {
        let value = |key: Symbol| labels.binary_search_by_key(&key, |&(key, _)| key).ok().map(|index| labels[index].1);
        match self {
            Self::In(key, values) => value(*key).is_some_and(|value| values.contains(&value)),
            Self::NotIn(key, values) => value(*key).is_none_or(|value| !values.contains(&value)),
            Self::Exists(key) => value(*key).is_some(),
            Self::DoesNotExist(key) => value(*key).is_none(),
        }
    }
}

/// Removes duplicates from a sorted list, and releases what each of them holds.
fn release_repeated<T: PartialEq, S: Symbols>(list: &mut Vec<T>, interner: &mut S, release: impl Fn(&T, &mut S)) {
    list.dedup_by(|later, earlier| {
        let repeated = later == earlier;
        if repeated {
            release(later, interner);
        }
        repeated
    });
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    Nothing,
    /// All of these must hold; matches everything if empty.
    Requires(Box<[Requirement]>),
}

impl Selector {
    pub(crate) fn acquire<S: Symbols>(facts: Option<&SelectorFacts>, interner: &mut S) -> Self {
        let Some(facts) = facts else { return Self::Nothing };
        let equal = facts.labels.iter().map(|(key, value)| RequirementFacts {
            key: key.clone(),
            operator: Operator::In,
            values: vec![value.clone()],
        });
        let mut requirements = Vec::with_capacity(facts.labels.len() + facts.expressions.len());
        for requirement in equal.chain(facts.expressions.iter().cloned()) {
            let Some(requirement) = Requirement::acquire(&requirement, interner) else {
                requirements.iter().for_each(|held: &Requirement| held.release(interner));
                return Self::Nothing;
            };
            requirements.push(requirement);
        }
        requirements.sort_unstable();
        release_repeated(&mut requirements, interner, Requirement::release);
        Self::Requires(requirements.into())
    }

    pub(crate) fn release<S: Symbols>(&self, interner: &mut S) {
        self.requirements().iter().for_each(|requirement| requirement.release(interner));
    }

    /// A copy that holds its own uses.
    pub(crate) fn retained<S: Symbols>(&self, symbols: &mut S) -> Self {
        for requirement in self.requirements() {
            let (key, values) = requirement.parts();
            symbols.retain(key);
            values.iter().for_each(|value| symbols.retain(*value));
        }
        self.clone()
    }

    /// A selector that matches what all of these match. Takes ownership of their uses.
    pub(crate) fn all_of<S: Symbols>(selectors: &[Self], symbols: &mut S) -> Self {
        if selectors.contains(&Self::Nothing) {
            selectors.iter().for_each(|selector| selector.release(symbols));
            return Self::Nothing;
        }
        let mut requirements: Vec<Requirement> = selectors.iter().flat_map(Self::requirements).cloned().collect();
        requirements.sort_unstable();
        release_repeated(&mut requirements, symbols, Requirement::release);
        Self::Requires(requirements.into())
    }

    pub fn requirements(&self) -> &[Requirement] {
        match self {
            Self::Nothing => &[],
            Self::Requires(requirements) => requirements,
        }
    }

    pub fn is_everything(&self) -> bool {
        matches!(self, Self::Requires(requirements) if requirements.is_empty())
    }

    /// Whether labels, sorted by key, satisfy it.
    pub fn matches(&self, labels: &[(Symbol, Symbol)]) -> bool {
        match self {
            Self::Nothing => false,
            Self::Requires(requirements) => requirements.iter().all(|requirement| requirement.holds(labels)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Labels;
    use crate::storage::intern::Interner;
    use crate::storage::label_set::LabelSet;
    use crate::testing::labels;

    fn requirement(key: &str, operator: Operator, values: &[&str]) -> RequirementFacts {
        RequirementFacts {
            key: key.to_owned(),
            operator,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        }
    }

    fn expressions(expressions: Vec<RequirementFacts>) -> Option<SelectorFacts> {
        Some(SelectorFacts { expressions, ..SelectorFacts::default() })
    }

    #[test]
    fn selectors_match_as_in_kubernetes() {
        use Operator::{DoesNotExist, Exists, Gt, In, NotIn};
        let web = labels(&[("app", "web"), ("tier", "1")]);
        let db = labels(&[("app", "db")]);
        let none = Labels::new();
        // The selector, and whether it matches web, db, and no labels at all.
        let cases = [
            (None, [false, false, false]),
            (Some(SelectorFacts::default()), [true, true, true]),
            (Some(SelectorFacts { labels: labels(&[("app", "web")]), expressions: vec![] }), [true, false, false]),
            (
                Some(SelectorFacts {
                    labels: labels(&[("app", "web")]),
                    expressions: vec![requirement("tier", NotIn, &["1"])],
                }),
                [false, false, false],
            ),
            (expressions(vec![requirement("app", In, &["web", "db", "web"])]), [true, true, false]),
            (expressions(vec![requirement("app", In, &[])]), [false, false, false]),
            (expressions(vec![requirement("app", NotIn, &["web"])]), [false, true, true]),
            (expressions(vec![requirement("tier", Exists, &[])]), [true, false, false]),
            (expressions(vec![requirement("tier", DoesNotExist, &[])]), [false, true, true]),
            (expressions(vec![requirement("never", DoesNotExist, &[])]), [true, true, true]),
            (expressions(vec![requirement("tier", Gt, &["0"])]), [false, false, false]),
            (expressions(vec![requirement("app", Exists, &[]), requirement("tier", Gt, &["0"])]), [false; 3]),
        ];
        for (facts, expected) in cases {
            let mut interner = Interner::default();
            let selector = Selector::acquire(facts.as_ref(), &mut interner);
            for (labels, expected) in [&web, &db, &none].into_iter().zip(expected) {
                let set = LabelSet::acquire(labels, &mut interner);
                assert_eq!(selector.matches(set.pairs()), expected, "{facts:?} {labels:?}");
                set.release(&mut interner);
            }
            selector.release(&mut interner);
            assert!(interner.is_empty(), "{facts:?}");
        }
    }

    #[test]
    fn equivalent_selectors_are_equal() {
        use Operator::{Exists, In};
        let mut interner = Interner::default();
        let plain = SelectorFacts {
            labels: labels(&[("a", "1")]),
            expressions: vec![requirement("b", In, &["2", "3"]), requirement("c", Exists, &[])],
        };
        let twisted = expressions(vec![
            requirement("c", Exists, &[]),
            requirement("b", In, &["3", "2", "3"]),
            requirement("a", In, &["1"]),
            requirement("c", Exists, &[]),
        ]);
        let plain = Selector::acquire(Some(&plain), &mut interner);
        let twisted = Selector::acquire(twisted.as_ref(), &mut interner);
        assert_eq!(plain, twisted);
        plain.release(&mut interner);
        twisted.release(&mut interner);
        assert!(interner.is_empty());
    }
}
