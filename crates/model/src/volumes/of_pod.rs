//! The volumes of a pod.
//!
//! In: nothing; adapters fill these in. Out: plain data, part of [`crate::event::PodFacts`].

use std::borrow::Cow;

use super::facts::InTreeVolume;

/// The volumes of a pod that matter for its placement, in the order of its `spec`. Equal lists are stored once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodVolumes(pub Box<[PodVolume]>);

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PodVolume {
    /// A claim in the pod's namespace, by name.
    Claim(String),
    /// The name of the volume. Its claim is created for the pod and named after both.
    Ephemeral(String),
    /// A disk of a cloud or of the network that the pod names itself. One that a CSI driver handles is also listed as
    /// [`PodVolume::InTree`].
    Disk(Disk),
    InTree(InTreeVolume),
    /// The name of the CSI driver of an inline volume.
    Csi(String),
    /// The name of the vSphere datastore of a disk that the pod names itself, which is also listed as
    /// [`PodVolume::InTree`].
    Datastore(String),
}

impl PodVolume {
    /// The name of its claim, for a pod of this name.
    pub fn claim_name(&self, pod: &str) -> Option<Cow<'_, str>> {
        match self {
            Self::Claim(name) => Some(Cow::Borrowed(name)),
            Self::Ephemeral(volume) => Some(Cow::Owned(format!("{pod}-{volume}"))),
            Self::Disk(_) | Self::InTree(_) | Self::Csi(_) | Self::Datastore(_) => None,
        }
    }

    /// Whether it may count towards a limit of its driver.
    pub fn is_attachable(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::Ephemeral(_) | Self::InTree(_))
    }
}

/// A disk that a pod names itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Disk {
    GcePd { name: String, read_only: bool },
    AwsEbs { volume: String },
    Iscsi { iqn: String, read_only: bool },
    Rbd { monitors: Vec<String>, pool: String, image: String, read_only: bool },
}

impl Disk {
    /// Whether two pods cannot use the two disks on one node.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::GcePd { name, read_only }, Self::GcePd { name: other, read_only: too }) => {
                name == other && !(*read_only && *too)
            }
            (Self::AwsEbs { volume }, Self::AwsEbs { volume: other }) => volume == other,
            (Self::Iscsi { iqn, read_only }, Self::Iscsi { iqn: other, read_only: too }) => {
                iqn == other && !(*read_only && *too)
            }
            (
                Self::Rbd { monitors, pool, image, read_only },
                Self::Rbd { monitors: other_monitors, pool: other_pool, image: other_image, read_only: too },
            ) => {
                let same_image = pool == other_pool && image == other_image;
                same_image && !(*read_only && *too) && monitors.iter().any(|monitor| other_monitors.contains(monitor))
            }
            _ => false,
        }
    }
}

impl PodVolumes {
    pub fn iter(&self) -> impl Iterator<Item = &PodVolume> {
        self.0.iter()
    }

    /// The names of the claims that it names itself.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.iter().filter_map(|volume| match volume {
            PodVolume::Claim(name) => Some(name.as_str()),
            _ => None,
        })
    }

    pub fn disks(&self) -> impl Iterator<Item = &Disk> {
        self.iter().filter_map(|volume| match volume {
            PodVolume::Disk(disk) => Some(disk),
            _ => None,
        })
    }

    /// Whether it uses a claim, its own or one that is created for it.
    pub fn has_claims(&self) -> bool {
        self.iter().any(|volume| matches!(volume, PodVolume::Claim(_) | PodVolume::Ephemeral(_)))
    }

    /// Whether two pods cannot use these volumes on one node.
    pub fn conflict_with(&self, other: &Self) -> bool {
        self.disks().any(|disk| other.disks().any(|other| disk.conflicts_with(other)))
    }
}
