//! Undirected graphs over small numbers: VMs, and which of them must not share a host.

use fixedbitset::FixedBitSet;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Graph {
    rows: Vec<FixedBitSet>,
}

impl Graph {
    pub(crate) fn new(width: usize) -> Self {
        Self { rows: vec![FixedBitSet::with_capacity(width); width] }
    }

    pub(crate) fn width(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn neighbours(&self, of: usize) -> &FixedBitSet {
        &self.rows[of]
    }

    pub(crate) fn add(&mut self, a: usize, b: usize) {
        if a != b {
            self.rows[a].insert(b);
            self.rows[b].insert(a);
        }
    }

    pub(crate) fn remove(&mut self, a: usize, b: usize) {
        self.rows[a].remove(b);
        self.rows[b].remove(a);
    }

    pub(crate) fn has(&self, a: usize, b: usize) -> bool {
        self.rows[a].contains(b)
    }

    pub(crate) fn remove_within(&mut self, members: &[usize]) {
        pairs(members).for_each(|(a, b)| self.remove(a, b));
    }

    /// Each edge once, the lesser end first.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.width()).flat_map(|a| self.rows[a].ones().filter(move |b| a < *b).map(move |b| (a, b)))
    }
}

/// Each pair once, the lesser member first.
pub(crate) fn pairs(members: &[usize]) -> impl Iterator<Item = (usize, usize)> + '_ {
    members.iter().enumerate().flat_map(|(index, a)| members[index + 1..].iter().map(move |b| (*a.min(b), *a.max(b))))
}

pub(crate) fn set_of(width: usize, members: impl IntoIterator<Item = usize>) -> FixedBitSet {
    let mut set = FixedBitSet::with_capacity(width);
    set.extend(members);
    set
}
