//! Volumes of in-tree kinds, in the form that their CSI drivers read: `csi-translation-lib` of Kubernetes.
//!
//! In: the source of a persistent volume or of a pod's volume, and the volume's topology. Out: the driver's handle, and
//! the topology with the driver's own keys. Only what a scheduler reads is converted.

use std::collections::BTreeSet;

use model::event::{Labels, NodeTermFacts, Operator, RequirementFacts};
use model::volumes::{InTreePlugin, InTreeVolume, MigratedVolume};
use serde::Deserialize;
use serde::de::IgnoredAny;

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// Between the zones of a label's value.
const DELIMITER: &str = "__";
const UNSPECIFIED: &str = "UNSPECIFIED";

/// The sources of in-tree kinds. The same in persistent volumes and in pods; at most one is given.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct InTreeSources {
    pub(super) aws_elastic_block_store: Option<AwsEbs>,
    pub(super) azure_disk: Option<AzureDisk>,
    pub(super) azure_file: Option<IgnoredAny>,
    pub(super) cinder: Option<ByVolumeId>,
    pub(super) gce_persistent_disk: Option<GcePd>,
    pub(super) portworx_volume: Option<ByVolumeId>,
    pub(super) vsphere_volume: Option<VsphereDisk>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AwsEbs {
    #[serde(rename = "volumeID")]
    pub(super) volume_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AzureDisk {
    #[serde(rename = "diskURI")]
    disk_uri: String,
    kind: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ByVolumeId {
    #[serde(rename = "volumeID")]
    volume_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GcePd {
    pub(super) pd_name: String,
    pub(super) read_only: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct VsphereDisk {
    volume_path: String,
}

impl VsphereDisk {
    pub(super) fn datastore(&self) -> Option<String> {
        datastore_of_path(&self.volume_path)
    }
}

/// The datastore in a path such as `[datastore-1] volumes/disk.vmdk`.
pub(super) fn datastore_of_path(path: &str) -> Option<String> {
    let (name, _) = path.trim_start().strip_prefix('[')?.split_once(']')?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// What the volume's handle and topology depend on besides its source.
#[derive(Clone, Copy, Default)]
struct Topology<'a> {
    labels: Option<&'a Labels>,
    node_terms: Option<&'a [NodeTermFacts]>,
}

impl InTreeSources {
    /// The in-tree volume of a persistent volume with these labels and this node affinity.
    pub(crate) fn volume(&self, labels: &Labels, node_terms: Option<&[NodeTermFacts]>) -> Option<InTreeVolume> {
        self.read(Topology { labels: Some(labels), node_terms })
    }

    /// The in-tree volume that a pod names itself.
    pub(crate) fn inline(&self, name: &str) -> Option<InTreeVolume> {
        let mut volume = self.read(Topology::default())?;
        if let Ok(migrated) = &mut volume.migrated {
            migrated.node_terms = None;
        }
        volume.migrated =
            volume.migrated.map_err(|error| format!("converting volume({name}) from inline to csi: {error}"));
        Some(volume)
    }

    fn read(&self, topology: Topology<'_>) -> Option<InTreeVolume> {
        let as_it_is = |handle: &str| {
            let node_terms = topology.node_terms.map(<[NodeTermFacts]>::to_vec);
            MigratedVolume { handle: handle.to_owned(), node_terms }
        };
        let with_zones = |handle: String, key| MigratedVolume { handle, node_terms: topology.migrated(key) };
        let (plugin, migrated) = if let Some(disk) = &self.aws_elastic_block_store {
            let handle = ebs_volume_id(&disk.volume_id)
                .map_err(|error| format!("failed to translate Kubernetes ID to EBS Volume ID {error}"));
            (InTreePlugin::AwsEbs, handle.map(|handle| with_zones(handle, "topology.ebs.csi.aws.com/zone")))
        } else if let Some(disk) = &self.azure_disk {
            let kind = disk.kind.as_deref().unwrap_or("Shared");
            let is_managed = kind.eq_ignore_ascii_case("managed");
            let error = || format!("kind({kind}) is not supported in csi migration");
            (InTreePlugin::AzureDisk, if is_managed { Ok(as_it_is(&disk.disk_uri)) } else { Err(error()) })
        } else if let Some(disk) = &self.cinder {
            let migrated = with_zones(disk.volume_id.clone(), "topology.cinder.csi.openstack.org/zone");
            (InTreePlugin::Cinder, Ok(migrated))
        } else if let Some(disk) = &self.gce_persistent_disk {
            let place = gce_place(topology.labels);
            let handle = place.map(|place| format!("projects/{UNSPECIFIED}/{place}/disks/{}", disk.pd_name));
            (InTreePlugin::GcePd, handle.map(|handle| with_zones(handle, "topology.gke.io/zone")))
        } else if let Some(disk) = &self.portworx_volume {
            (InTreePlugin::Portworx, Ok(as_it_is(&disk.volume_id)))
        } else if self.azure_file.is_some() {
            (InTreePlugin::AzureFile, Err(never_migrated(InTreePlugin::AzureFile)))
        } else if self.vsphere_volume.is_some() {
            (InTreePlugin::Vsphere, Err(never_migrated(InTreePlugin::Vsphere)))
        } else {
            return None;
        };
        Some(InTreeVolume { plugin, migrated })
    }
}

/// kube-scheduler never treats these as volumes of the CSI driver, although they are.
fn never_migrated(plugin: InTreePlugin) -> String {
    format!("{} is not in kube-scheduler's list of migrated plugins", plugin.name())
}

/// `aws://zone/vol-1`, `aws:///vol-1` or `vol-1`.
fn ebs_volume_id(id: &str) -> Result<String, String> {
    let Some(address) = id.strip_prefix("aws://") else { return Ok(id.to_owned()) };
    let path = address.find('/').map_or("", |slash| &address[slash..]).trim_matches('/');
    if !path.starts_with("vol-") || path.contains('/') {
        return Err(format!("Invalid format for AWS volume ({id})"));
    }
    Ok(path.to_owned())
}

/// `zones/ZONE` or `regions/REGION`, from the volume's zone label.
fn gce_place(labels: Option<&Labels>) -> Result<String, String> {
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).filter(|value| !value.is_empty());
    let Some(zones) = label(BETA_ZONE).or_else(|| label(ZONE)) else { return Ok(format!("zones/{UNSPECIFIED}")) };
    let zones: Vec<&str> = zones.split(DELIMITER).collect();
    if let [zone] = zones.as_slice() {
        return Ok(format!("zones/{zone}"));
    }
    let mut regions = BTreeSet::new();
    for zone in zones {
        let parts: Vec<&str> = zone.split('-').collect();
        let [locale, region, _] = parts.as_slice() else {
            let expected = "expected: {locale}-{region}-{zone}";
            return Err(format!("failed to get region from zones: zone in unexpected format, {expected}, got: {zone}"));
        };
        regions.insert(format!("{locale}-{region}"));
    }
    match regions.first() {
        Some(region) if regions.len() == 1 => Ok(format!("regions/{region}")),
        _ => {
            let got: Vec<String> = regions.iter().map(|region| format!("{region}:{{}}")).collect();
            let got = got.join(" ");
            Err(format!("failed to get region from zones: multiple or no regions gotten from zones, got: map[{got}]"))
        }
    }
}

impl Topology<'_> {
    /// The node affinity with the driver's key in place of the zone's; if it names no zone, with the zones of the
    /// volume's label.
    fn migrated(self, key: &str) -> Option<Vec<NodeTermFacts>> {
        let (zone, has_beta_region) = self.zone_key();
        let mut terms = self.node_terms.map(<[NodeTermFacts]>::to_vec);
        let names = |terms: &Option<Vec<NodeTermFacts>>, key: &str| {
            let mut expressions = terms.iter().flatten().flat_map(|term| &term.expressions);
            expressions.any(|expression| expression.key == key && !expression.values.is_empty())
        };
        if names(&terms, zone) {
            rename(&mut terms, zone, key);
        } else if let Some(label) = self.labels.and_then(|labels| labels.get(zone)) {
            let zones: BTreeSet<&str> = label.split(DELIMITER).map(str::trim).filter(|zone| !zone.is_empty()).collect();
            if !zones.is_empty() {
                let terms = terms.get_or_insert_default();
                if terms.is_empty() {
                    terms.push(NodeTermFacts::default());
                }
                for term in terms {
                    let values = zones.iter().map(|zone| (*zone).to_owned()).collect();
                    let key = key.to_owned();
                    term.expressions.push(RequirementFacts { key, operator: Operator::In, values });
                }
            }
        }
        if has_beta_region && names(&terms, BETA_REGION) {
            rename(&mut terms, BETA_REGION, REGION);
        }
        terms
    }

    /// The key of the zone, in the node affinity or else in the labels; and whether it is the older one.
    fn zone_key(self) -> (&'static str, bool) {
        let in_terms = |key: &str| {
            let mut expressions = self.node_terms.iter().copied().flatten().flat_map(|term| &term.expressions);
            expressions.any(|expression| expression.key == key)
        };
        let in_labels = |key: &str| self.labels.is_some_and(|labels| labels.contains_key(key));
        let is_beta = !in_terms(ZONE) && (in_terms(BETA_ZONE) || (!in_labels(ZONE) && in_labels(BETA_ZONE)));
        if is_beta { (BETA_ZONE, true) } else { (ZONE, false) }
    }
}

fn rename(terms: &mut Option<Vec<NodeTermFacts>>, from: &str, to: &str) {
    let expressions = terms.iter_mut().flatten().flat_map(|term| &mut term.expressions);
    expressions.filter(|expression| expression.key == from).for_each(|expression| expression.key = to.to_owned());
}
