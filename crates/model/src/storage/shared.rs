//! Values that many objects have in common, stored once.
//!
//! In: a value. Out: a shared value that equals it. Invariant: a value leaves the table when the last object releases
//! it, even if other references to it still exist.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Values, and how many objects have each. Tenants choose the values, hence std's keyed hash. Never iterated.
#[derive(Debug)]
pub(crate) struct Shared<T>(HashMap<Arc<T>, u32>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Hash + Eq + Clone> Shared<T> {
    pub(crate) fn acquire(&mut self, value: &T) -> Arc<T> {
        if let Some((known, _)) = self.0.get_key_value(value) {
            let shared = Arc::clone(known);
            *self.0.entry(Arc::clone(&shared)).or_default() += 1;
            return shared;
        }
        let shared = Arc::new(value.clone());
        self.0.insert(Arc::clone(&shared), 1);
        shared
    }

    pub(crate) fn release(&mut self, value: &Arc<T>) {
        if let Some(users) = self.0.get_mut(value) {
            *users -= 1;
            if *users == 0 {
                self.0.remove(value);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
