//! The objects of one kind, by namespace and name, each with what is assumed about it.
//!
//! In: objects as the watch shows them; assumed versions of them. Out: an object, as observed or as assumed.
//!
//! Invariant: an assumed object has the version of the observed one.

use std::collections::HashMap;
use std::sync::Arc;

use crate::world::sync::Generation;

#[derive(Debug)]
struct Kept<T> {
    observed: Arc<T>,
    assumed: Option<Arc<T>>,
    generation: Generation,
}

/// Tenants choose the names, hence std's keyed hash.
#[derive(Debug)]
pub(super) struct Table<T> {
    by_name: HashMap<Box<str>, HashMap<Box<str>, Kept<T>>>,
    version: fn(&T) -> &str,
}

impl<T> Table<T> {
    pub(super) fn new(version: fn(&T) -> &str) -> Self {
        Self { by_name: HashMap::new(), version }
    }

    fn kept(&self, namespace: &str, name: &str) -> Option<&Kept<T>> {
        self.by_name.get(namespace)?.get(name)
    }

    /// As assumed, or else as observed.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.kept(namespace, name).map(|kept| kept.assumed.as_ref().unwrap_or(&kept.observed))
    }

    pub(super) fn observed(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.kept(namespace, name).map(|kept| &kept.observed)
    }

    /// Returns the previous object.
    pub(super) fn apply(
        &mut self,
        namespace: &str,
        name: &str,
        object: Arc<T>,
        generation: Generation,
    ) -> Option<Arc<T>> {
        let names = match self.by_name.get_mut(namespace) {
            Some(names) => names,
            None => self.by_name.entry(namespace.into()).or_default(),
        };
        let version = self.version;
        let before = names.remove(name);
        let same_version = before.as_ref().is_some_and(|before| version(&before.observed) == version(&object));
        let (observed, assumed) = before.map(|before| (before.observed, before.assumed)).unzip();
        let assumed = assumed.flatten().filter(|_| same_version);
        names.insert(name.into(), Kept { observed: object, assumed, generation });
        observed
    }

    /// Returns the removed object.
    pub(super) fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let names = self.by_name.get_mut(namespace)?;
        let removed = names.remove(name)?;
        if names.is_empty() {
            self.by_name.remove(namespace);
        }
        Some(removed.observed)
    }

    /// Returns whether the assumption holds: the object is known, in the same version.
    pub(super) fn assume(&mut self, namespace: &str, name: &str, object: &Arc<T>) -> bool {
        let version = self.version;
        let kept = self.by_name.get_mut(namespace).and_then(|names| names.get_mut(name));
        let Some(kept) = kept.filter(|kept| version(&kept.observed) == version(object)) else { return false };
        kept.assumed = Some(Arc::clone(object));
        true
    }

    /// Ends this assumption, unless another one has taken its place.
    pub(super) fn forget(&mut self, namespace: &str, name: &str, assumed: &Arc<T>) {
        let kept = self.by_name.get_mut(namespace).and_then(|names| names.get_mut(name));
        if let Some(kept) = kept
            && kept.assumed.as_ref().is_some_and(|current| Arc::ptr_eq(current, assumed))
        {
            kept.assumed = None;
        }
    }

    /// The objects that the relist of this generation did not contain, by namespace and name.
    pub(super) fn not_of(&self, generation: Generation) -> Vec<(Box<str>, Box<str>)> {
        let all = self
            .by_name
            .iter()
            .flat_map(|(namespace, names)| names.iter().map(move |(name, kept)| (namespace, name, kept)));
        let gone = all.filter(|(_, _, kept)| kept.generation != generation);
        let mut gone: Vec<_> = gone.map(|(namespace, name, _)| (namespace.clone(), name.clone())).collect();
        gone.sort_unstable();
        gone
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.values().map(HashMap::len).sum()
    }
}
