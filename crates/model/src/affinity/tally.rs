//! How many, per domain: only the domains where there are any.
//!
//! In: one more or one less in a domain. Out: the count of each domain that has one. Invariants: sorted by domain; no
//! count is zero. A sorted list is what takes least memory for the few dozen domains that a workload is spread over, and
//! moving the tail of a list of 5000 takes less than a microsecond.

/// A place under one topology key: all nodes with one value of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DomainId(pub(crate) u32);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally(Vec<(DomainId, u32)>);

impl Tally {
    pub(crate) fn change(&mut self, domain: DomainId, by: i32) {
        match self.0.binary_search_by_key(&domain, |&(domain, _)| domain) {
            Ok(place) => {
                self.0[place].1 = self.0[place].1.saturating_add_signed(by);
                if self.0[place].1 == 0 {
                    self.0.remove(place);
                    if self.0.is_empty() {
                        self.0 = Vec::new();
                    }
                }
            }
            Err(place) => {
                if let Ok(count @ 1..) = u32::try_from(by) {
                    self.0.insert(place, (domain, count));
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (DomainId, u32)> {
        self.0.iter().copied()
    }
}
