//! Reads the volumes of a pod.

use model::volumes::{Disk, PodVolume};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::migration::{AwsEbs, AzureDisk, ByVolumeId, GcePd, InTreeSources, VsphereDisk};

/// A volume of a pod: the sources that matter for its placement, of which at most one is given. Not flattened, because
/// that would read each volume of each pod twice.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Volume {
    name: String,
    persistent_volume_claim: Option<ClaimSource>,
    ephemeral: Option<IgnoredAny>,
    image: Option<ImageSource>,
    csi: Option<CsiSource>,
    iscsi: Option<Iscsi>,
    rbd: Option<Rbd>,
    aws_elastic_block_store: Option<AwsEbs>,
    azure_disk: Option<AzureDisk>,
    azure_file: Option<IgnoredAny>,
    cinder: Option<ByVolumeId>,
    gce_persistent_disk: Option<GcePd>,
    portworx_volume: Option<ByVolumeId>,
    vsphere_volume: Option<VsphereDisk>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimSource {
    claim_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ImageSource {
    reference: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CsiSource {
    driver: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Iscsi {
    iqn: String,
    read_only: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rbd {
    monitors: Option<Vec<String>>,
    pool: String,
    image: String,
    read_only: bool,
}

impl Volume {
    /// The image that it contains.
    pub(crate) fn image(&self) -> Option<&str> {
        self.image.as_ref().map(|image| image.reference.as_deref().unwrap_or_default())
    }

    /// What matters for the pod's placement; a disk of a cloud that a CSI driver handles counts as both.
    pub(crate) fn take_facts(&mut self) -> Vec<PodVolume> {
        if let Some(claim) = self.persistent_volume_claim.take() {
            return vec![PodVolume::Claim(claim.claim_name)];
        }
        if self.ephemeral.take().is_some() {
            return vec![PodVolume::Ephemeral(std::mem::take(&mut self.name))];
        }
        let disk = self.disk().map(PodVolume::Disk);
        let csi = self.csi.take().map(|csi| PodVolume::Csi(csi.driver));
        let datastore = self.vsphere_volume.as_ref().and_then(VsphereDisk::datastore).map(PodVolume::Datastore);
        let in_tree = InTreeSources {
            aws_elastic_block_store: self.aws_elastic_block_store.take(),
            azure_disk: self.azure_disk.take(),
            azure_file: self.azure_file.take(),
            cinder: self.cinder.take(),
            gce_persistent_disk: self.gce_persistent_disk.take(),
            portworx_volume: self.portworx_volume.take(),
            vsphere_volume: self.vsphere_volume.take(),
        };
        let in_tree = in_tree.inline(&self.name).map(PodVolume::InTree);
        disk.into_iter().chain(in_tree).chain(csi).chain(datastore).collect()
    }

    fn disk(&self) -> Option<Disk> {
        if let Some(GcePd { pd_name, read_only }) = &self.gce_persistent_disk {
            return Some(Disk::GcePd { name: pd_name.clone(), read_only: *read_only });
        }
        if let Some(AwsEbs { volume_id }) = &self.aws_elastic_block_store {
            return Some(Disk::AwsEbs { volume: volume_id.clone() });
        }
        if let Some(Iscsi { iqn, read_only }) = &self.iscsi {
            return Some(Disk::Iscsi { iqn: iqn.clone(), read_only: *read_only });
        }
        let Rbd { monitors, pool, image, read_only } = self.rbd.as_ref()?;
        // The API server's default.
        let pool = if pool.is_empty() { "rbd" } else { pool }.to_owned();
        let monitors = monitors.clone().unwrap_or_default();
        Some(Disk::Rbd { monitors, pool, image: image.clone(), read_only: *read_only })
    }
}
