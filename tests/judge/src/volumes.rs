//! Which volumes a pod's claims get on a node: what VolumeBinding decides, beside its verdict.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volumes {
    /// The volumes to bind, by claim.
    #[serde(default)]
    pub bind: BTreeMap<String, BoundVolume>,
    /// The claims to provision volumes for, in the order in which they were considered.
    #[serde(default)]
    pub provision: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundVolume {
    pub volume: String,
    /// In bytes. Among volumes of the same capacity upstream chooses in the order of a Go map.
    pub capacity: i64,
}

impl Volumes {
    /// Whether another scheduler decided the same. Its volumes may differ in name, not in capacity.
    #[must_use]
    pub fn equal_but_for_ties(&self, own: &Volumes) -> bool {
        let sizes = |of: &Volumes| -> Vec<(String, i64)> {
            of.bind.iter().map(|(claim, bound)| (claim.clone(), bound.capacity)).collect()
        };
        sizes(self) == sizes(own) && self.provision == own.provision
    }
}
