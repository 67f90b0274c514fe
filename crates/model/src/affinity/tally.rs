//! Counts per domain, without zeros.
//!
//! In: changes of a domain's count. Out: the count of each domain that has one. Invariants: sorted by domain; no count
//! is zero. A sorted list takes the least memory for the few dozen domains that a workload is spread over, and moving
//! the tail of a list of 5000 takes less than a microsecond.

/// A topology domain: all nodes with one value of a topology key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DomainId(pub(crate) u32);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally(Vec<(DomainId, u32)>);

impl Tally {
    pub(crate) fn change(&mut self, domain: DomainId, by: i32) {
        match self.0.binary_search_by_key(&domain, |&(domain, _)| domain) {
            Ok(index) => {
                self.0[index].1 = self.0[index].1.saturating_add_signed(by);
                if self.0[index].1 == 0 {
                    self.0.remove(index);
                    if self.0.is_empty() {
                        self.0 = Vec::new();
                    }
                }
            }
            Err(index) => {
                if let Ok(count @ 1..) = u32::try_from(by) {
                    self.0.insert(index, (domain, count));
                }
            }
        }
    }

    pub(crate) fn of(&self, domain: DomainId) -> u32 {
        self.0.binary_search_by_key(&domain, |&(domain, _)| domain).map_or(0, |index| self.0[index].1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (DomainId, u32)> {
        self.0.iter().copied()
    }
}
