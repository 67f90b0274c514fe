//! Finds objects by name or content without storing the key a second time: the table holds ids only.
//!
//! In: ids, with a function from id to key. Out: the id for a key. Tenants choose the keys, hence std's keyed hash; the
//! table is never iterated, so the random hash key does not affect results.

use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;

#[derive(Debug)]
pub(crate) struct Finder<I> {
    hasher: RandomState,
    ids: HashTable<I>,
}

impl<I> Default for Finder<I> {
    fn default() -> Self {
        Self { hasher: RandomState::new(), ids: HashTable::new() }
    }
}

impl<I: Copy + Eq> Finder<I> {
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn find<K: Hash>(&self, key: &K, has_it: impl Fn(I) -> bool) -> Option<I> {
        self.ids.find(self.hasher.hash_one(key), |id| has_it(*id)).copied()
    }

    /// The id must not be in the table yet; `key_of` returns the key of every id in the table, and of this one.
    pub(crate) fn insert<K: Hash>(&mut self, id: I, key_of: impl Fn(I) -> K) {
        let hasher = &self.hasher;
        let hash = |id: &I| hasher.hash_one(key_of(*id));
        self.ids.insert_unique(hash(&id), id, hash);
    }

    /// The key must be the same as when the id was inserted.
    pub(crate) fn remove<K: Hash>(&mut self, id: I, key: &K) {
        if let Ok(entry) = self.ids.find_entry(self.hasher.hash_one(key), |other| *other == id) {
            entry.remove();
        }
        if self.ids.is_empty() {
            self.ids = HashTable::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_until_it_is_removed() {
        let names: Vec<String> = (0..1_000).map(|number| format!("name-{number}")).collect();
        let mut finder: Finder<usize> = Finder::default();
        let find = |finder: &Finder<usize>, name: &str| finder.find(&name, |id| names[id] == name);
        for id in 0..names.len() {
            assert_eq!(find(&finder, &names[id]), None);
            finder.insert(id, |id| names[id].as_str());
        }
        for id in (0..names.len()).step_by(2) {
            finder.remove(id, &names[id].as_str());
        }
        for (id, name) in names.iter().enumerate() {
            assert_eq!(find(&finder, name), (id % 2 == 1).then_some(id));
        }
        assert_eq!(finder.len(), 500);
    }
}
