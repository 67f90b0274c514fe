//! Host names that two vCenters use.
//!
//! In: the name of each host as it is added, renamed and removed. Out: whether hosts of two vCenters have a name: one
//! label value for both would make them one machine. Invariant: a change reports every host whose label may change.

use std::collections::{BTreeSet, HashMap};

use crate::event::VcenterId;
use crate::storage::arena::HostId;

/// Std's keyed hash, because administrators of other sites choose the names; never iterated.
#[derive(Debug, Default)]
pub(crate) struct HostNames(HashMap<Box<str>, BTreeSet<(VcenterId, HostId)>>);

impl HostNames {
    /// Hosts of two vCenters have this name.
    pub(crate) fn is_shared(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|hosts| match (hosts.first(), hosts.last()) {
            (Some((first, _)), Some((last, _))) => first != last,
            _ => false,
        })
    }

    /// The host has another name than before; `None` if it does not exist. Returns the hosts whose label may change.
    pub(crate) fn renamed(
        &mut self,
        host: (VcenterId, HostId),
        before: Option<&str>,
        after: Option<&str>,
    ) -> BTreeSet<(VcenterId, HostId)> {
        let mut relabelled = BTreeSet::new();
        if before == after {
            return relabelled;
        }
        for (name, joins) in [(before, false), (after, true)] {
            let Some(name) = name else { continue };
            let was_shared = self.is_shared(name);
            let hosts = self.0.entry(name.into()).or_default();
            if joins {
                hosts.insert(host);
            } else {
                hosts.remove(&host);
            }
            let (is_empty, all) = (hosts.is_empty(), hosts.clone());
            if is_empty {
                self.0.remove(name);
            }
            if self.is_shared(name) != was_shared {
                relabelled.extend(all);
            }
        }
        relabelled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::arena::DenseId;

    #[test]
    fn number_5_a_name_is_shared_while_hosts_of_two_vcenters_have_it() {
        let mut names = HostNames::default();
        let host = |vcenter: u16, index: u32| (VcenterId(vcenter), HostId::from_index(index));
        assert!(names.renamed(host(0, 0), None, Some("esx-1")).is_empty());
        assert!(names.renamed(host(0, 1), None, Some("esx-1")).is_empty(), "of the same vCenter");
        assert!(!names.is_shared("esx-1"));
        let both = BTreeSet::from([host(0, 0), host(0, 1), host(1, 2)]);
        assert_eq!(names.renamed(host(1, 2), None, Some("esx-1")), both);
        assert!(names.is_shared("esx-1"));
        assert!(names.renamed(host(1, 2), Some("esx-1"), Some("esx-1")).is_empty());
        let left = BTreeSet::from([host(0, 0), host(0, 1)]);
        assert_eq!(names.renamed(host(1, 2), Some("esx-1"), Some("esx-2")), left);
        assert!(!names.is_shared("esx-1") && !names.is_shared("esx-2"));
        names.renamed(host(1, 2), Some("esx-2"), None);
        names.renamed(host(0, 0), Some("esx-1"), None);
        names.renamed(host(0, 1), Some("esx-1"), None);
        assert!(names.0.is_empty());
    }
}
