//! Which volumes a claim may be bound to, apart from where they are: `component-helpers/storage/volume` of Kubernetes.

use model::volumes::{ClaimFacts, VolumeFacts};

/// Whether the volume is reserved for the claim, or a controller has begun to bind it to the claim.
pub(super) fn is_reserved_for(volume: &VolumeFacts, claim: &ClaimFacts) -> bool {
    volume.claim.as_ref().is_some_and(|reserved| reserved.is_of(claim))
}

/// Whether the claim may be bound to the volume, which is of the claim's class. A volume that is reserved for the claim
/// need only be large enough and of the right kind.
pub(super) fn can_be_bound(volume: &VolumeFacts, claim: &ClaimFacts) -> bool {
    let fits = volume.capacity_bytes >= claim.requested_bytes.unwrap_or_default()
        && volume.is_block == claim.is_block
        && volume.attributes_class == claim.attributes_class
        && !volume.terminating;
    if !fits || volume.claim.is_some() {
        return fits && is_reserved_for(volume, claim);
    }
    volume.available
        && claim.selector.as_ref().is_none_or(|selector| selector.matches(&volume.labels))
        && claim.access_modes.is_subset(&volume.access_modes)
}
