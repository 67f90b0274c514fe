//! Sets of small numbers and graphs over them, as bits: the VMs of one cluster and which of them are wanted apart.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    pub(crate) fn new(width: usize) -> Self {
        Self(vec![0; width.div_ceil(64)])
    }

    pub(crate) fn of(width: usize, members: impl IntoIterator<Item = usize>) -> Self {
        let mut bits = Self::new(width);
        members.into_iter().for_each(|member| bits.insert(member));
        bits
    }

    pub(crate) fn insert(&mut self, member: usize) {
        self.0[member / 64] |= 1 << (member % 64);
    }

    pub(crate) fn remove(&mut self, member: usize) {
        self.0[member / 64] &= !(1 << (member % 64));
    }

    pub(crate) fn contains(&self, member: usize) -> bool {
        self.0[member / 64] & (1 << (member % 64)) != 0
    }

    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let words = self.0.iter().enumerate().filter(|(_, word)| **word != 0);
        words.flat_map(|(place, word)| bits_of(*word).map(move |bit| place * 64 + bit))
    }
}

fn bits_of(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}

/// An undirected graph without loops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Graph {
    rows: Vec<Bits>,
}

impl Graph {
    pub(crate) fn new(width: usize) -> Self {
        Self { rows: vec![Bits::new(width); width] }
    }

    pub(crate) fn width(&self) -> usize {
        self.rows.len()
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

    /// Edges from one to each of the others.
    pub(crate) fn add_star(&mut self, centre: usize, others: &[usize]) {
        others.iter().for_each(|other| self.add(centre, *other));
    }

    pub(crate) fn remove_within(&mut self, members: &[usize]) {
        for member in members {
            let row = &mut self.rows[*member];
            members.iter().for_each(|other| row.remove(*other));
        }
    }

    /// Each edge once, the lesser end first.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let rows = self.rows.iter().enumerate();
        rows.flat_map(|(a, row)| row.iter().filter(move |b| a < *b).map(move |b| (a, b)))
    }

    pub(crate) fn edge_count(&self) -> usize {
        self.rows.iter().map(Bits::count).sum::<usize>() / 2
    }
}
