//! The shapes of the kinds, limited to the fields that matter here.

mod storage;

use super::Shape::{self, Any, Fields, Flag, List, Map, Quantity, Text, Whole, WholeOrText};
use crate::kubernetes::kinds::KindId;

static TEXTS: Shape = List(&Text);
static TEXT_MAP: Shape = Map(&Text);
static QUANTITIES: Shape = Map(&Quantity);
static OBJECT: Shape = Fields(&[]);
static OBJECTS: Shape = List(&OBJECT);

static METADATA: Shape = Fields(&[
    ("name", &Text),
    ("generateName", &Text),
    ("namespace", &Text),
    ("uid", &Text),
    ("resourceVersion", &Text),
    ("generation", &Whole),
    ("creationTimestamp", &Text),
    ("deletionTimestamp", &Text),
    ("deletionGracePeriodSeconds", &Whole),
    ("labels", &TEXT_MAP),
    ("annotations", &TEXT_MAP),
    ("finalizers", &TEXTS),
    (
        "ownerReferences",
        &List(&Fields(&[
            ("apiVersion", &Text),
            ("kind", &Text),
            ("name", &Text),
            ("uid", &Text),
            ("controller", &Flag),
            ("blockOwnerDeletion", &Flag),
        ])),
    ),
    ("managedFields", &List(&Fields(&[("manager", &Text), ("operation", &Text), ("fieldsV1", &OBJECT)]))),
]);

static SELECTOR: Shape = Fields(&[
    ("matchLabels", &TEXT_MAP),
    ("matchExpressions", &List(&Fields(&[("key", &Text), ("operator", &Text), ("values", &TEXTS)]))),
]);

static NODE_TERM: Shape = Fields(&[
    ("matchExpressions", &List(&Fields(&[("key", &Text), ("operator", &Text), ("values", &TEXTS)]))),
    ("matchFields", &List(&Fields(&[("key", &Text), ("operator", &Text), ("values", &TEXTS)]))),
]);

static POD_TERM: Shape = Fields(&[
    ("labelSelector", &SELECTOR),
    ("namespaces", &TEXTS),
    ("namespaceSelector", &SELECTOR),
    ("topologyKey", &Text),
    ("matchLabelKeys", &TEXTS),
    ("mismatchLabelKeys", &TEXTS),
]);

static POD_TERMS: Shape = Fields(&[
    ("requiredDuringSchedulingIgnoredDuringExecution", &List(&POD_TERM)),
    (
        "preferredDuringSchedulingIgnoredDuringExecution",
        &List(&Fields(&[("weight", &Whole), ("podAffinityTerm", &POD_TERM)])),
    ),
]);

static AFFINITY: Shape = Fields(&[
    (
        "nodeAffinity",
        &Fields(&[
            ("requiredDuringSchedulingIgnoredDuringExecution", &Fields(&[("nodeSelectorTerms", &List(&NODE_TERM))])),
            (
                "preferredDuringSchedulingIgnoredDuringExecution",
                &List(&Fields(&[("weight", &Whole), ("preference", &NODE_TERM)])),
            ),
        ]),
    ),
    ("podAffinity", &POD_TERMS),
    ("podAntiAffinity", &POD_TERMS),
]);

static RESOURCES: Shape = Fields(&[("limits", &QUANTITIES), ("requests", &QUANTITIES)]);

static CONTAINERS: Shape = List(&Fields(&[
    ("name", &Text),
    ("image", &Text),
    ("imagePullPolicy", &Text),
    ("command", &TEXTS),
    ("args", &TEXTS),
    ("env", &OBJECTS),
    ("ports", &List(&Fields(&[("containerPort", &Whole), ("hostPort", &Whole), ("protocol", &Text), ("name", &Text)]))),
    ("resources", &RESOURCES),
    ("volumeMounts", &OBJECTS),
    ("restartPolicy", &Text),
    ("terminationMessagePath", &Text),
    ("terminationMessagePolicy", &Text),
]));

static TAINTS: Shape = List(&Fields(&[("key", &Text), ("value", &Text), ("effect", &Text), ("timeAdded", &Text)]));

static POD_SPEC: Shape = Fields(&[
    ("containers", &CONTAINERS),
    ("initContainers", &CONTAINERS),
    ("nodeName", &Text),
    ("nodeSelector", &TEXT_MAP),
    ("affinity", &AFFINITY),
    (
        "tolerations",
        &List(&Fields(&[
            ("key", &Text),
            ("operator", &Text),
            ("value", &Text),
            ("effect", &Text),
            ("tolerationSeconds", &Whole),
        ])),
    ),
    (
        "topologySpreadConstraints",
        &List(&Fields(&[
            ("maxSkew", &Whole),
            ("topologyKey", &Text),
            ("whenUnsatisfiable", &Text),
            ("labelSelector", &SELECTOR),
            ("matchLabelKeys", &TEXTS),
        ])),
    ),
    ("schedulingGates", &List(&Fields(&[("name", &Text)]))),
    ("readinessGates", &List(&Fields(&[("conditionType", &Text)]))),
    ("schedulerName", &Text),
    ("restartPolicy", &Text),
    ("dnsPolicy", &Text),
    ("serviceAccountName", &Text),
    ("hostname", &Text),
    ("subdomain", &Text),
    ("hostNetwork", &Flag),
    ("priority", &Whole),
    ("priorityClassName", &Text),
    ("preemptionPolicy", &Text),
    ("terminationGracePeriodSeconds", &Whole),
    ("activeDeadlineSeconds", &Whole),
    ("overhead", &QUANTITIES),
    ("resources", &RESOURCES),
    ("securityContext", &OBJECT),
    (
        "volumes",
        &List(&Fields(&[
            ("name", &Text),
            ("persistentVolumeClaim", &Fields(&[("claimName", &Text), ("readOnly", &Flag)])),
            (
                "ephemeral",
                &Fields(&[(
                    "volumeClaimTemplate",
                    &Fields(&[("metadata", &METADATA), ("spec", &storage::CLAIM_SPEC)]),
                )]),
            ),
        ])),
    ),
]);

static CONDITIONS: Shape = List(&Fields(&[
    ("type", &Text),
    ("status", &Text),
    ("reason", &Text),
    ("message", &Text),
    ("lastTransitionTime", &Text),
]));

static CONTAINER_STATUSES: Shape = List(&Fields(&[
    ("name", &Text),
    ("ready", &Flag),
    ("started", &Flag),
    ("restartCount", &Whole),
    ("state", &OBJECT),
    ("lastState", &OBJECT),
]));

static POD_STATUS: Shape = Fields(&[
    ("phase", &Text),
    ("reason", &Text),
    ("message", &Text),
    ("conditions", &CONDITIONS),
    ("containerStatuses", &CONTAINER_STATUSES),
    ("initContainerStatuses", &CONTAINER_STATUSES),
    ("podIP", &Text),
    ("podIPs", &List(&Fields(&[("ip", &Text)]))),
    ("hostIP", &Text),
    ("nominatedNodeName", &Text),
    ("qosClass", &Text),
]);

static NODE_SPEC: Shape = Fields(&[
    ("taints", &TAINTS),
    ("unschedulable", &Flag),
    ("providerID", &Text),
    ("podCIDR", &Text),
    ("podCIDRs", &TEXTS),
]);

static NODE_STATUS: Shape = Fields(&[
    ("capacity", &QUANTITIES),
    ("allocatable", &QUANTITIES),
    ("conditions", &CONDITIONS),
    ("addresses", &List(&Fields(&[("type", &Text), ("address", &Text)]))),
    ("nodeInfo", &TEXT_MAP),
]);

static TEMPLATE: Shape = Fields(&[("metadata", &METADATA), ("spec", &POD_SPEC)]);

static WORKLOAD_SPEC: Shape = Fields(&[
    ("replicas", &Whole),
    ("selector", &SELECTOR),
    ("template", &TEMPLATE),
    ("minReadySeconds", &Whole),
    ("revisionHistoryLimit", &Whole),
    ("progressDeadlineSeconds", &Whole),
    ("paused", &Flag),
    ("serviceName", &Text),
    ("podManagementPolicy", &Text),
    ("ordinals", &Fields(&[("start", &Whole)])),
    (
        "strategy",
        &Fields(&[
            ("type", &Text),
            ("rollingUpdate", &Fields(&[("maxSurge", &WholeOrText), ("maxUnavailable", &WholeOrText)])),
        ]),
    ),
    (
        "updateStrategy",
        &Fields(&[
            ("type", &Text),
            ("rollingUpdate", &Fields(&[("partition", &Whole), ("maxUnavailable", &WholeOrText)])),
        ]),
    ),
    ("volumeClaimTemplates", &List(&Fields(&[("metadata", &METADATA), ("spec", &storage::CLAIM_SPEC)]))),
]);

static WORKLOAD_STATUS: Shape = Fields(&[
    ("replicas", &Whole),
    ("readyReplicas", &Whole),
    ("availableReplicas", &Whole),
    ("updatedReplicas", &Whole),
    ("observedGeneration", &Whole),
    ("conditions", &CONDITIONS),
]);

static SERVICE_SPEC: Shape = Fields(&[
    ("type", &Text),
    ("clusterIP", &Text),
    ("clusterIPs", &TEXTS),
    ("externalIPs", &TEXTS),
    ("externalName", &Text),
    ("selector", &TEXT_MAP),
    ("sessionAffinity", &Text),
    (
        "ports",
        &List(&Fields(&[
            ("name", &Text),
            ("port", &Whole),
            ("protocol", &Text),
            ("targetPort", &WholeOrText),
            ("nodePort", &Whole),
        ])),
    ),
]);

static BUDGET_SPEC: Shape = Fields(&[
    ("minAvailable", &WholeOrText),
    ("maxUnavailable", &WholeOrText),
    ("selector", &SELECTOR),
    ("unhealthyPodEvictionPolicy", &Text),
]);

static BUDGET_STATUS: Shape = Fields(&[
    ("disruptionsAllowed", &Whole),
    ("currentHealthy", &Whole),
    ("desiredHealthy", &Whole),
    ("expectedPods", &Whole),
    ("observedGeneration", &Whole),
    ("disruptedPods", &TEXT_MAP),
    ("conditions", &CONDITIONS),
]);

static LEASE_SPEC: Shape = Fields(&[
    ("holderIdentity", &Text),
    ("leaseDurationSeconds", &Whole),
    ("acquireTime", &Text),
    ("renewTime", &Text),
    ("leaseTransitions", &Whole),
]);

static EVENT: Shape = Fields(&[
    ("metadata", &METADATA),
    ("involvedObject", &TEXT_MAP),
    ("related", &TEXT_MAP),
    ("reason", &Text),
    ("message", &Text),
    ("type", &Text),
    ("action", &Text),
    ("count", &Whole),
    ("firstTimestamp", &Text),
    ("lastTimestamp", &Text),
    ("eventTime", &Text),
    ("source", &TEXT_MAP),
    ("series", &Fields(&[("count", &Whole), ("lastObservedTime", &Text)])),
    ("reportingComponent", &Text),
    ("reportingInstance", &Text),
]);

static POD: Shape = Fields(&[("metadata", &METADATA), ("spec", &POD_SPEC), ("status", &POD_STATUS)]);
static NODE: Shape = Fields(&[("metadata", &METADATA), ("spec", &NODE_SPEC), ("status", &NODE_STATUS)]);
static NAMESPACE: Shape = Fields(&[
    ("metadata", &METADATA),
    ("spec", &Fields(&[("finalizers", &TEXTS)])),
    ("status", &Fields(&[("phase", &Text), ("conditions", &CONDITIONS)])),
]);
static WORKLOAD: Shape = Fields(&[("metadata", &METADATA), ("spec", &WORKLOAD_SPEC), ("status", &WORKLOAD_STATUS)]);
static SERVICE: Shape = Fields(&[
    ("metadata", &METADATA),
    ("spec", &SERVICE_SPEC),
    ("status", &Fields(&[("loadBalancer", &Fields(&[("ingress", &OBJECTS)])), ("conditions", &CONDITIONS)])),
]);
static BUDGET: Shape = Fields(&[("metadata", &METADATA), ("spec", &BUDGET_SPEC), ("status", &BUDGET_STATUS)]);
static LEASE: Shape = Fields(&[("metadata", &METADATA), ("spec", &LEASE_SPEC)]);
static CONFIG_MAP: Shape =
    Fields(&[("metadata", &METADATA), ("data", &TEXT_MAP), ("binaryData", &TEXT_MAP), ("immutable", &Flag)]);
static SECRET: Shape =
    Fields(&[("metadata", &METADATA), ("data", &TEXT_MAP), ("stringData", &TEXT_MAP), ("type", &Text)]);
static PRIORITY_CLASS: Shape = Fields(&[
    ("metadata", &METADATA),
    ("value", &Whole),
    ("globalDefault", &Flag),
    ("description", &Text),
    ("preemptionPolicy", &Text),
]);
static OTHER: Shape = Fields(&[("metadata", &METADATA), ("spec", &OBJECT), ("status", &OBJECT), ("data", &Any)]);

pub(super) fn shape_of(kind: KindId) -> &'static Shape {
    match kind {
        KindId::POD => &POD,
        KindId::NODE => &NODE,
        KindId::NAMESPACE => &NAMESPACE,
        KindId::DEPLOYMENT | KindId::REPLICA_SET | KindId::STATEFUL_SET => &WORKLOAD,
        KindId::SERVICE => &SERVICE,
        KindId::POD_DISRUPTION_BUDGET => &BUDGET,
        KindId::LEASE => &LEASE,
        KindId::EVENT => &EVENT,
        KindId::CONFIG_MAP => &CONFIG_MAP,
        KindId::SECRET => &SECRET,
        KindId::PRIORITY_CLASS => &PRIORITY_CLASS,
        KindId::PERSISTENT_VOLUME => &storage::VOLUME,
        KindId::PERSISTENT_VOLUME_CLAIM => &storage::CLAIM,
        KindId::STORAGE_CLASS => &storage::STORAGE_CLASS,
        KindId::CSI_NODE => &storage::CSI_NODE,
        KindId::CSI_DRIVER => &storage::CSI_DRIVER,
        KindId::CSI_STORAGE_CAPACITY => &storage::CSI_STORAGE_CAPACITY,
        KindId::VOLUME_ATTACHMENT => &storage::VOLUME_ATTACHMENT,
        _ => &OTHER,
    }
}
