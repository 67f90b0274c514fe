//! Sets of small numbers and graphs over them, as bits: VMs, and which of them are wanted apart.

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

    pub(crate) fn contains(&self, member: usize) -> bool {
        self.0[member / 64] & (1 << (member % 64)) != 0
    }

    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn intersect(&mut self, other: &[u64]) {
        self.0.iter_mut().zip(other).for_each(|(word, other)| *word &= other);
    }

    pub(crate) fn remove(&mut self, member: usize) {
        self.0[member / 64] &= !(1 << (member % 64));
    }

    pub(crate) fn common_count(&self, other: &[u64]) -> usize {
        common_count(&self.0, other)
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        bits_of(&self.0)
    }
}

fn common_count(a: &[u64], b: &[u64]) -> usize {
    a.iter().zip(b).map(|(a, b)| (a & b).count_ones() as usize).sum()
}

fn bits_of(words: &[u64]) -> impl Iterator<Item = usize> + '_ {
    let words = words.iter().enumerate().filter(|(_, word)| **word != 0);
    words.flat_map(|(place, word)| {
        let mut word = *word;
        std::iter::from_fn(move || {
            let bit = word.trailing_zeros() as usize;
            (word != 0).then(|| {
                word &= word - 1;
                place * 64 + bit
            })
        })
    })
}

/// An undirected graph without loops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Graph {
    width: usize,
    /// Words of one row.
    stride: usize,
    words: Vec<u64>,
}

impl Graph {
    pub(crate) fn new(width: usize) -> Self {
        let stride = width.div_ceil(64);
        Self { width, stride, words: vec![0; width * stride] }
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn row(&self, of: usize) -> &[u64] {
        &self.words[of * self.stride..(of + 1) * self.stride]
    }

    pub(crate) fn common_count(&self, a: usize, b: usize) -> usize {
        common_count(self.row(a), self.row(b))
    }

    pub(crate) fn neighbours(&self, of: usize) -> Bits {
        Bits(self.row(of).to_vec())
    }

    pub(crate) fn add(&mut self, a: usize, b: usize) {
        if a != b {
            self.words[a * self.stride + b / 64] |= 1 << (b % 64);
            self.words[b * self.stride + a / 64] |= 1 << (a % 64);
        }
    }

    pub(crate) fn remove(&mut self, a: usize, b: usize) {
        self.words[a * self.stride + b / 64] &= !(1 << (b % 64));
        self.words[b * self.stride + a / 64] &= !(1 << (a % 64));
    }

    pub(crate) fn has(&self, a: usize, b: usize) -> bool {
        self.words[a * self.stride + b / 64] & (1 << (b % 64)) != 0
    }

    pub(crate) fn remove_within(&mut self, members: &[usize]) {
        for (place, a) in members.iter().enumerate() {
            members[place + 1..].iter().for_each(|b| self.remove(*a, *b));
        }
    }

    /// Each edge once, the lesser end first.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.width).flat_map(|a| bits_of(self.row(a)).filter(move |b| a < *b).map(move |b| (a, b)))
    }
}

/// Each pair once.
pub(crate) fn pairs(members: &[usize]) -> impl Iterator<Item = (usize, usize)> + '_ {
    members.iter().enumerate().flat_map(|(place, a)| members[place + 1..].iter().map(move |b| (*a.min(b), *a.max(b))))
}
