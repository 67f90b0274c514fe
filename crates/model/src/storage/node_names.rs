//! Nodes by name, for queries about thousands of them at once.
//!
//! In: names with their ids. Out: the id of a name. The table stores the name next to the id, so that a lookup reads
//! one cache line: through the interner, which holds every string of the world, it would read five, and a query that
//! names 5000 nodes would spend most of its time there. Tenants do not choose node names, hence the fast unkeyed hash.
//!
//! Invariant: the table holds each name at most once.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use crate::storage::arena::NodeId;

/// With the id and the length, one cache line.
const INLINE_BYTES: usize = 54;

#[derive(Debug)]
enum Name {
    Inline { length: u8, bytes: [u8; INLINE_BYTES] },
    Long(Box<str>),
}

impl Name {
    fn of(text: &str) -> Name {
        let mut bytes = [0; INLINE_BYTES];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(buffer), Ok(length)) => {
                buffer.copy_from_slice(text.as_bytes());
                Name::Inline { length, bytes }
            }
            _ => Name::Long(text.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Name::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Name::Long(text) => text.as_bytes(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct NodeNames(HashTable<(Name, NodeId)>);

fn hash(name: &[u8]) -> u64 {
    FxBuildHasher.hash_one(name)
}

impl NodeNames {
    pub(crate) fn find(&self, name: &str) -> Option<NodeId> {
        let name = name.as_bytes();
        self.0.find(hash(name), |(known, _)| known.bytes() == name).map(|(_, id)| *id)
    }

    /// The name must not be in the table yet.
    pub(crate) fn insert(&mut self, name: &str, id: NodeId) {
        self.0.insert_unique(hash(name.as_bytes()), (Name::of(name), id), |(name, _)| hash(name.bytes()));
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let name = name.as_bytes();
        if let Ok(entry) = self.0.find_entry(hash(name), |(known, _)| known.bytes() == name) {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::arena::Arena;

    #[test]
    fn names_of_every_length_are_found_until_they_are_removed() {
        assert!(size_of::<(Name, NodeId)>() <= 64);
        let mut arena: Arena<NodeId, ()> = Arena::default();
        let named: Vec<(String, NodeId)> = (0..254).map(|length| ("n".repeat(length), arena.insert(()))).collect();
        let mut names = NodeNames::default();
        for (name, id) in &named {
            assert_eq!(names.find(name), None);
            names.insert(name, *id);
        }
        for (name, id) in &named {
            assert_eq!(names.find(name), Some(*id));
        }
        for (name, _) in named.iter().step_by(2) {
            names.remove(name);
        }
        for (length, (name, id)) in named.iter().enumerate() {
            assert_eq!(names.find(name), (length % 2 == 1).then_some(*id), "{length}");
        }
    }
}
