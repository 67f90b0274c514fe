//! Values that many objects have alike, kept once.
//!
//! In: a value. Out: a shared one that equals it. Invariant: a value is forgotten with the last object that gives it back.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Tenants choose the values, hence std's keyed hash. Never iterated.
#[derive(Debug)]
pub(crate) struct Shared<T>(HashSet<Arc<T>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(HashSet::new())
    }
}

impl<T: Hash + Eq + Clone> Shared<T> {
    pub(crate) fn acquire(&mut self, value: &T) -> Arc<T> {
        if let Some(known) = self.0.get(value) {
            return Arc::clone(known);
        }
        let shared = Arc::new(value.clone());
        self.0.insert(Arc::clone(&shared));
        shared
    }

    pub(crate) fn release(&mut self, value: &Arc<T>) {
        // This one and the table's own.
        if Arc::strong_count(value) == 2 {
            self.0.remove(value);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
