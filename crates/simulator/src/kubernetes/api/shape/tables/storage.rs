//! The shapes of the kinds of storage.

use super::super::Shape::{self, Fields, Flag, List, Quantity, Text, Whole};
use super::{CONDITIONS, METADATA, NODE_TERM, OBJECT, OBJECTS, QUANTITIES, RESOURCES, SELECTOR, TEXT_MAP, TEXTS};

static REFERENCE: Shape = Fields(&[
    ("apiVersion", &Text),
    ("kind", &Text),
    ("namespace", &Text),
    ("name", &Text),
    ("uid", &Text),
    ("resourceVersion", &Text),
    ("fieldPath", &Text),
]);

pub(super) static CLAIM_SPEC: Shape = Fields(&[
    ("accessModes", &TEXTS),
    ("resources", &RESOURCES),
    ("selector", &SELECTOR),
    ("storageClassName", &Text),
    ("volumeName", &Text),
    ("volumeMode", &Text),
    ("volumeAttributesClassName", &Text),
    ("dataSource", &OBJECT),
    ("dataSourceRef", &OBJECT),
]);
pub(super) static CLAIM: Shape = Fields(&[
    ("metadata", &METADATA),
    ("spec", &CLAIM_SPEC),
    (
        "status",
        &Fields(&[
            ("phase", &Text),
            ("accessModes", &TEXTS),
            ("capacity", &QUANTITIES),
            ("allocatedResources", &QUANTITIES),
            ("conditions", &CONDITIONS),
        ]),
    ),
]);
static VOLUME_SPEC: Shape = Fields(&[
    ("capacity", &QUANTITIES),
    ("accessModes", &TEXTS),
    ("claimRef", &REFERENCE),
    ("persistentVolumeReclaimPolicy", &Text),
    ("storageClassName", &Text),
    ("mountOptions", &TEXTS),
    ("volumeMode", &Text),
    ("volumeAttributesClassName", &Text),
    ("nodeAffinity", &Fields(&[("required", &Fields(&[("nodeSelectorTerms", &List(&NODE_TERM))]))])),
    (
        "csi",
        &Fields(&[
            ("driver", &Text),
            ("volumeHandle", &Text),
            ("readOnly", &Flag),
            ("fsType", &Text),
            ("volumeAttributes", &TEXT_MAP),
        ]),
    ),
    ("hostPath", &Fields(&[("path", &Text), ("type", &Text)])),
    ("local", &Fields(&[("path", &Text), ("fsType", &Text)])),
    ("nfs", &Fields(&[("server", &Text), ("path", &Text), ("readOnly", &Flag)])),
    ("vsphereVolume", &Fields(&[("volumePath", &Text), ("fsType", &Text)])),
]);
pub(super) static VOLUME: Shape = Fields(&[
    ("metadata", &METADATA),
    ("spec", &VOLUME_SPEC),
    ("status", &Fields(&[("phase", &Text), ("message", &Text), ("reason", &Text), ("lastPhaseTransitionTime", &Text)])),
]);
pub(super) static STORAGE_CLASS: Shape = Fields(&[
    ("metadata", &METADATA),
    ("provisioner", &Text),
    ("parameters", &TEXT_MAP),
    ("reclaimPolicy", &Text),
    ("mountOptions", &TEXTS),
    ("allowVolumeExpansion", &Flag),
    ("volumeBindingMode", &Text),
    (
        "allowedTopologies",
        &List(&Fields(&[("matchLabelExpressions", &List(&Fields(&[("key", &Text), ("values", &TEXTS)])))])),
    ),
]);
pub(super) static CSI_NODE: Shape = Fields(&[
    ("metadata", &METADATA),
    (
        "spec",
        &Fields(&[(
            "drivers",
            &List(&Fields(&[
                ("name", &Text),
                ("nodeID", &Text),
                ("topologyKeys", &TEXTS),
                ("allocatable", &Fields(&[("count", &Whole)])),
            ])),
        )]),
    ),
]);
pub(super) static CSI_DRIVER: Shape = Fields(&[
    ("metadata", &METADATA),
    (
        "spec",
        &Fields(&[
            ("attachRequired", &Flag),
            ("podInfoOnMount", &Flag),
            ("volumeLifecycleModes", &TEXTS),
            ("storageCapacity", &Flag),
            ("fsGroupPolicy", &Text),
            ("tokenRequests", &OBJECTS),
            ("requiresRepublish", &Flag),
            ("seLinuxMount", &Flag),
        ]),
    ),
]);
pub(super) static CSI_STORAGE_CAPACITY: Shape = Fields(&[
    ("metadata", &METADATA),
    ("nodeTopology", &SELECTOR),
    ("storageClassName", &Text),
    ("capacity", &Quantity),
    ("maximumVolumeSize", &Quantity),
]);
static VOLUME_ERROR: Shape = Fields(&[("time", &Text), ("message", &Text), ("errorCode", &Whole)]);
pub(super) static VOLUME_ATTACHMENT: Shape = Fields(&[
    ("metadata", &METADATA),
    (
        "spec",
        &Fields(&[
            ("attacher", &Text),
            ("nodeName", &Text),
            ("source", &Fields(&[("persistentVolumeName", &Text), ("inlineVolumeSpec", &VOLUME_SPEC)])),
        ]),
    ),
    (
        "status",
        &Fields(&[
            ("attached", &Flag),
            ("attachmentMetadata", &TEXT_MAP),
            ("attachError", &VOLUME_ERROR),
            ("detachError", &VOLUME_ERROR),
        ]),
    ),
]);
