//! The place of a pod in the queue, as a QueueSort plugin computed it.
//!
//! In: a key of any ordered type. Out: an order. A key is computed when its pod enters the active queue and never
//! changes there, so that the heap stays valid whatever a plugin reads. Invariant: keys that are compared come from one
//! plugin.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct SortKey(Arc<dyn AnyKey>);

trait AnyKey: Any + Send + Sync {
    fn compare(&self, other: &dyn Any) -> Ordering;
}

impl<K: Ord + Send + Sync + 'static> AnyKey for K {
    fn compare(&self, other: &dyn Any) -> Ordering {
        other.downcast_ref().map_or(Ordering::Equal, |other| self.cmp(other))
    }
}

impl SortKey {
    pub(crate) fn new<K: Ord + Send + Sync + 'static>(key: K) -> Self {
        Self(Arc::new(key))
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let other: &dyn Any = &*other.0;
        self.0.compare(other)
    }
}

impl fmt::Debug for SortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SortKey")
    }
}
