//! The datastores that a host certainly cannot use.
//!
//! In: the watched datastores with the hosts that mount them, and where they are. Out: for a host, the datastores of its
//! datacenter that it does not mount, or whose mount is not accessible. A datastore whose mounts, name or datacenter is
//! unknown is missing nowhere, and neither is one that no host mounts: then its mounts are not to be trusted.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::event::DatastoreFacts;

use super::picture::datacenter_id;
use super::properties::{DatastoreState, PlaceState};

/// A datastore, and by host whether its mount can be used.
type Mounted<'a> = (&'a Arc<DatastoreFacts>, &'a BTreeMap<String, bool>);

/// By the id of the datacenter.
#[derive(Debug, Default)]
pub(super) struct Datastores<'a>(BTreeMap<&'a str, Vec<Mounted<'a>>>);

impl<'a> Datastores<'a> {
    pub(super) fn of(
        datastores: impl Iterator<Item = &'a DatastoreState>,
        places: &'a BTreeMap<String, PlaceState>,
    ) -> Datastores<'a> {
        let mut all = Datastores::default();
        for datastore in datastores.filter(|datastore| !datastore.facts.name.is_empty()) {
            let mounts = datastore.mounts.as_ref().filter(|mounts| !mounts.is_empty());
            if let (Some(mounts), Some(datacenter)) = (mounts, datacenter_id(places, datastore.parent.as_ref())) {
                all.0.entry(datacenter).or_default().push((&datastore.facts, mounts));
            }
        }
        all
    }

    pub(super) fn missing(&self, host: &str, datacenter: Option<&str>) -> Vec<Arc<DatastoreFacts>> {
        let near = datacenter.and_then(|datacenter| self.0.get(datacenter)).into_iter().flatten();
        let missing = near.filter(|(_, mounts)| mounts.get(host) != Some(&true));
        missing.map(|(datastore, _)| Arc::clone(datastore)).collect()
    }
}
