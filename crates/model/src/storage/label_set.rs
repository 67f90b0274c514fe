//! The labels of one object, interned.
//!
//! In: labels as strings. Out: pairs of symbols, sorted, without repeated keys. Invariant: two sets are equal exactly
//! when the labels are. A set holds one use of each of its symbols until `LabelSet::release`.

use crate::event::Labels;
use crate::storage::intern::{Interner, Symbol, Symbols};

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct LabelSet(Box<[(Symbol, Symbol)]>);

impl LabelSet {
    pub(crate) fn acquire(labels: &Labels, interner: &mut impl Symbols) -> Self {
        let mut pairs: Box<[_]> =
            labels.iter().map(|(key, value)| (interner.acquire(key), interner.acquire(value))).collect();
        pairs.sort_unstable();
        Self(pairs)
    }

    pub(crate) fn release(self, interner: &mut Interner) {
        self.release_uses(interner);
    }

    /// Like `release`, for a shared set; the set must not be read afterwards.
    pub(crate) fn release_uses(&self, interner: &mut Interner) {
        for &(key, value) in &self.0 {
            interner.release(key);
            interner.release(value);
        }
    }

    pub fn get(&self, key: Symbol) -> Option<Symbol> {
        self.0.binary_search_by_key(&key, |&(key, _)| key).ok().map(|index| self.0[index].1)
    }

    /// All pairs, in the order of their symbols (not their strings).
    pub fn pairs(&self) -> &[(Symbol, Symbol)] {
        &self.0
    }

    pub fn to_labels(&self, interner: &Interner) -> Labels {
        self.0.iter().map(|&(key, value)| (interner.text(key).to_owned(), interner.text(value).to_owned())).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn labels_survive_a_round_trip(sets in proptest::collection::vec(
            proptest::collection::btree_map("[ab]{0,2}", "[ab]{0,2}", 0..5), 1..4))
        {
            let mut interner = Interner::default();
            let stored: Vec<_> = sets.iter().map(|labels| LabelSet::acquire(labels, &mut interner)).collect();
            for (labels, set) in sets.iter().zip(&stored) {
                prop_assert_eq!(&set.to_labels(&interner), labels);
                for (key, value) in labels {
                    let found = interner.get(key).and_then(|key| set.get(key)).map(|value| interner.text(value));
                    prop_assert_eq!(found, Some(value.as_str()));
                }
            }
            for (labels, set) in sets.iter().zip(&stored) {
                prop_assert_eq!(labels == &sets[0], set == &stored[0]);
            }
            for set in stored {
                set.release(&mut interner);
            }
            prop_assert!(interner.is_empty());
        }
    }
}
