//! Fields whose zero means something: they are pointers in Go, and are sent only if they are set.

/// Names that are pointers wherever they are used with a meaning for zero, false or the empty text.
const ANYWHERE: &[&str] = &[
    "activeDeadlineSeconds",
    "allocateLoadBalancerNodePorts",
    "allowPrivilegeEscalation",
    "allowVolumeExpansion",
    "attachRequired",
    "automountServiceAccountToken",
    "backoffLimit",
    "backoffLimitPerIndex",
    "blockOwnerDeletion",
    "completions",
    "controller",
    "defaultMode",
    "deletionGracePeriodSeconds",
    "enableServiceLinks",
    "expirationSeconds",
    "failedJobsHistoryLimit",
    "fsGroup",
    "gracePeriodSeconds",
    "hostUsers",
    "immutable",
    "leaseTransitions",
    "manualSelector",
    "maxFailedIndexes",
    "mode",
    "optional",
    "orphanDependents",
    "parallelism",
    "partition",
    "podInfoOnMount",
    "priority",
    "privileged",
    "procMount",
    "progressDeadlineSeconds",
    "readOnlyRootFilesystem",
    "requiresRepublish",
    "revisionHistoryLimit",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "seLinuxMount",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "started",
    "startingDeadlineSeconds",
    "storageCapacity",
    "successfulJobsHistoryLimit",
    "suspend",
    "terminationGracePeriodSeconds",
    "tolerationSeconds",
    "ttlSecondsAfterFinished",
];

/// Names that are pointers in these messages, and plain fields in others.
const HERE: &[(&str, &str)] = &[
    ("apps.v1.DeploymentSpec", "replicas"),
    ("apps.v1.ReplicaSetSpec", "replicas"),
    ("apps.v1.StatefulSetSpec", "replicas"),
    ("core.v1.PersistentVolumeClaimSpec", "storageClassName"),
    (
        "core.v1.PersistentVolumeClaimSpec",
        "volumeAttributesClassName",
    ),
    ("core.v1.CSIVolumeSource", "readOnly"),
    ("core.v1.CSIVolumeSource", "fsType"),
    ("storage.v1.VolumeNodeResources", "count"),
];

/// Whether the field is sent only if it is set, so that its zero is kept.
pub(super) fn is_pointer(message: &str, field: &str) -> bool {
    ANYWHERE.contains(&field) || HERE.contains(&(message, field))
}
