//! Objects with small, dense ids, so that indexes over them can be plain vectors and bitsets.
//!
//! In: objects. Out: an id each. Invariants: an id names one object until the object is removed; then the id may be
//! reused for another object of the same kind; iteration is in the order of ids.

use std::marker::PhantomData;

/// An id that is an index.
pub trait DenseId: Copy {
    fn from_index(index: u32) -> Self;
    fn index(self) -> usize;
}

macro_rules! dense_ids {
    ($($(#[$meta:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl DenseId for $name {
            fn from_index(index: u32) -> Self {
                Self(index)
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}

dense_ids! {
    /// A Kubernetes node.
    NodeId,
    /// A pod.
    PodId,
    /// A virtual machine of any vCenter.
    VmId,
    /// A physical host of any vCenter.
    HostId,
    /// A vSphere cluster of any vCenter.
    ClusterId,
    /// A distinct pod affinity or anti-affinity term.
    TermId,
    /// What terms depend on in a pod: its namespace, labels and own terms.
    ProfileId,
    /// A topology key as written, or lifted to hosts.
    SpaceId,
}

#[derive(Debug)]
pub struct Arena<I, T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    ids: PhantomData<fn() -> I>,
}

impl<I, T> Default for Arena<I, T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), ids: PhantomData }
    }
}

impl<I: DenseId, T> Arena<I, T> {
    pub fn insert(&mut self, object: T) -> I {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = Some(object);
            return I::from_index(index);
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 objects fit in memory");
        self.slots.push(Some(object));
        I::from_index(index)
    }

    pub fn remove(&mut self, id: I) -> Option<T> {
        let object = self.slots.get_mut(id.index())?.take()?;
        // The cast is lossless: the index came from `insert`.
        self.free.push(id.index() as u32);
        Some(object)
    }

    pub fn get(&self, id: I) -> Option<&T> {
        self.slots.get(id.index())?.as_ref()
    }

    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.slots.get_mut(id.index())?.as_mut()
    }

    /// All objects, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        // The cast is lossless: indexes come from `insert`.
        self.slots.iter().enumerate().filter_map(|(index, slot)| Some((I::from_index(index as u32), slot.as_ref()?)))
    }

    /// All objects, mutable, in the order of their ids.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    pub fn ids(&self) -> impl Iterator<Item = I> {
        self.iter().map(|(id, _)| id)
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One more than the greatest index ever used: the required length of a vector or bitset over these ids.
    pub fn width(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_are_reused_and_stay_dense() {
        let mut arena: Arena<NodeId, &str> = Arena::default();
        let first = arena.insert("a");
        let second = arena.insert("b");
        assert_eq!(arena.remove(first), Some("a"));
        assert_eq!((arena.remove(first), arena.get(first), arena.len()), (None, None, 1));
        assert_eq!(arena.insert("c"), first);
        assert_eq!(arena.iter().collect::<Vec<_>>(), [(first, &"c"), (second, &"b")]);
        assert_eq!(arena.width(), 2);
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_map(steps in proptest::collection::vec((any::<bool>(), 0u32..12), 0..80)) {
            let mut arena: Arena<PodId, usize> = Arena::default();
            let mut map = BTreeMap::new();
            for (step, (insert, index)) in steps.into_iter().enumerate() {
                if insert {
                    let id = arena.insert(step);
                    prop_assert_eq!(map.insert(id, step), None, "an id in use was returned again");
                } else {
                    let id = PodId::from_index(index);
                    prop_assert_eq!(arena.remove(id), map.remove(&id));
                }
                prop_assert_eq!(arena.len(), map.len());
                prop_assert!(arena.iter().map(|(id, object)| (id, *object)).eq(map.iter().map(|(id, object)| (*id, *object))));
            }
        }
    }
}
