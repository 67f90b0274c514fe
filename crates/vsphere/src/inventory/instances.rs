//! Which vCenter of the configuration each instance is.
//!
//! In: the instance UUID of each vCenter that was reached. Out: whether it may be followed. With two addresses of one
//! vCenter, every VM would appear twice and no node would match.
//!
//! Invariant: an instance is followed under one address for as long as the process runs. If another address took over
//! after an outage, the objects of both would be known at the same time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use model::event::VcenterId;

use crate::error::VsphereError;

/// Shared by all vCenters of a process.
#[derive(Clone, Debug, Default)]
pub struct Instances(Arc<Mutex<BTreeMap<String, (VcenterId, String)>>>);

impl Instances {
    /// The vCenter `id`, reached as `host`, is this instance.
    pub(super) fn claim(&self, id: VcenterId, host: &str, instance_uuid: &str) -> Result<(), VsphereError> {
        if instance_uuid.is_empty() {
            return Ok(());
        }
        let mut followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((holder, address)) = followed.get(instance_uuid)
            && *holder != id
        {
            return Err(VsphereError::SameVcenter { host: host.to_owned(), other: address.clone() });
        }
        // Another instance may have replaced an earlier one at this address.
        followed.retain(|_, (holder, _)| *holder != id);
        followed.insert(instance_uuid.to_owned(), (id, host.to_owned()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_1_an_instance_is_followed_under_one_address() {
        let instances = Instances::default();
        let claim =
            |id: u16, host: &str, uuid: &str| instances.claim(VcenterId(id), host, uuid).map_err(|it| it.to_string());
        assert_eq!(claim(0, "a", "one"), Ok(()));
        assert_eq!(claim(0, "a", "one"), Ok(()), "after an outage");
        let error = claim(1, "b", "one").unwrap_err();
        assert!(error.contains('a') && error.contains('b'), "{error}");
        assert_eq!(claim(1, "b", "two"), Ok(()));
        assert_eq!(claim(0, "a", "three"), Ok(()), "it was replaced");
        assert_eq!(claim(2, "c", "one"), Ok(()));
        // An old server that reports no UUID cannot be compared.
        assert_eq!((claim(3, "d", ""), claim(4, "e", "")), (Ok(()), Ok(())));
    }
}
