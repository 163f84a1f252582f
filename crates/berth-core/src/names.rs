//! Well-known Kubernetes names that decisions read or write: annotations, labels, provisioners.
//!
//! Each is defined once, here. No other module spells them out.

use std::borrow::Cow;

/// Annotation on a claim: its binding to a volume is complete.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation on a claim or a volume: the controller, not the user, set the reference to the other object.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Annotation on a volume: the provisioner that created it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Annotation on a claim: the node that the scheduler chose for its first consumer.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The name of [`SELECTED_NODE`] in KEP-490 (Dynamic Provisioning interface changes). Read, never written.
pub const SELECTED_NODE_ALPHA: &str = "volume.alpha.kubernetes.io/selectedNode";
/// Annotation on a claim: the provisioner that should create its volume.
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The older twin of [`STORAGE_PROVISIONER`]. Both are written.
pub const STORAGE_PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// Annotation on a claim or a volume that names its class, older than `spec.storageClassName`.
pub const STORAGE_CLASS_BETA: &str = "volume.beta.kubernetes.io/storage-class";
/// Annotation on a class: claims that name no class get this one.
pub const IS_DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// The older twin of [`IS_DEFAULT_CLASS`].
pub const IS_DEFAULT_CLASS_BETA: &str = "storageclass.beta.kubernetes.io/is-default-class";
/// Annotation on a class: its weight in the volume capacity score.
pub const CLASS_WEIGHT: &str = "storageclass.kubernetes.io/weight";
/// Annotation on a claim or a volume that an in-tree plugin owned and a CSI driver now serves.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// Annotation on a CSINode: the in-tree plugins whose volumes are served by CSI drivers on that node.
pub const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// The provisioner that provisions nothing: only existing volumes are bound.
pub const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Condition of a claim: whether no pod uses it, and since when.
pub const UNUSED: &str = "Unused";

/// Finalizer on a claim that a pod still uses.
pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Finalizer on a volume that a claim still holds.
pub const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// Finalizer on a volume whose storage the controller itself has to delete.
pub const VOLUME_DELETION_IN_TREE: &str = "kubernetes.io/pv-controller";
/// Annotation on a volume: the size it had before it was expanded.
pub const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
/// Prefix of the provisioners that were built into Kubernetes.
pub const IN_TREE_PREFIX: &str = "kubernetes.io/";

/// Node label: the host name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// Label: the zone of a node or a volume.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Label: the region of a node or a volume.
pub const REGION: &str = "topology.kubernetes.io/region";
/// The older name of [`ZONE`].
pub const ZONE_BETA: &str = "failure-domain.beta.kubernetes.io/zone";
/// The older name of [`REGION`].
pub const REGION_BETA: &str = "failure-domain.beta.kubernetes.io/region";

/// Separates the zones of a volume whose label names several.
pub const ZONE_DELIMITER: &str = "__";

/// Finalizer on a volume whose backing storage an external provisioner still has to delete.
pub const PROVISIONER_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Annotation on a volume: the secret required to delete it.
pub const DELETION_SECRET_NAME: &str = "volume.kubernetes.io/provisioner-deletion-secret-name";
/// The namespace of [`DELETION_SECRET_NAME`].
pub const DELETION_SECRET_NAMESPACE: &str = "volume.kubernetes.io/provisioner-deletion-secret-namespace";
/// Finalizer on a claim whose volume is being cloned.
pub const CLONE_PROTECTION: &str = "provisioner.storage.kubernetes.io/cloning-protection";
/// Finalizer on a snapshot from which a volume is being created.
pub const SNAPSHOT_PROTECTION: &str = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection";
/// Annotation on the content of a snapshot: volumes from it may have another volume mode.
pub const ALLOW_MODE_CHANGE: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";
/// Annotation on a volume: the secret required to change its attributes.
pub const MODIFY_SECRET_NAME: &str = "volume.kubernetes.io/controller-modify-secret-name";
/// The namespace of [`MODIFY_SECRET_NAME`].
pub const MODIFY_SECRET_NAMESPACE: &str = "volume.kubernetes.io/controller-modify-secret-namespace";
/// Class parameters and volume attributes with this prefix belong to Kubernetes, not to the driver.
pub const CSI_PREFIX: &str = "csi.storage.k8s.io/";
/// The attribute of an inline CSI volume that gives its size, on clusters without a field for it.
pub const INLINE_SIZE: &str = "csi.storage.k8s.io/size";
/// Label on published capacity: the driver.
pub const CAPACITY_DRIVER: &str = "csi.storage.k8s.io/drivername";
/// Label on published capacity: the component that manages the object.
pub const CAPACITY_MANAGED_BY: &str = "csi.storage.k8s.io/managed-by";

/// Finalizer on a claim whose volume may already exist in the backend without being known to the cluster.
pub const ATTEMPT_FINALIZER: &str = "provisioner.berth.dev/attempt";
/// Annotation on such a claim: the request to the backend.
pub const ATTEMPT: &str = "provisioner.berth.dev/attempt";
/// Annotation on a volume that was reserved, or on a claim for which a node was selected: the attempt that holds it until
/// all volumes of the pod exist.
pub const HELD_FOR: &str = "binding.berth.dev/held-for";
/// Annotation on a volume that was provisioned for a held claim: the attempt it was created for.
pub const MADE_FOR: &str = "binding.berth.dev/made-for";
/// Annotation on a pod: the attempt whose volumes all exist.
pub const COMMITTED: &str = "binding.berth.dev/committed";
/// Annotation on a pod: this attempt and all earlier ones are aborted, and their volumes released.
pub const ABORTED: &str = "binding.berth.dev/aborted";
/// Annotation on a claim or a class: whether claims are rolled back that no pod has ever used. What a claim says comes first.
pub const ROLLBACK: &str = "binding.berth.dev/rollback";
/// Annotation on a bound claim that no node may mount yet, with its uid: no pod has ever used it.
pub const CLEAN: &str = "binding.berth.dev/clean";
/// Annotation on such a claim: the pod for which it is given back.
pub const ROLLED_BACK_FOR: &str = "binding.berth.dev/rolled-back-for";
/// Annotation on a pod that a kubelet runs from a file: nothing else can remove it.
pub const MIRROR_POD: &str = "kubernetes.io/config.mirror";
/// The pools for classes that have none of their own.
pub const FALLBACK_CLASS: &str = "<fallback>";
/// The pools for inline volumes.
pub const EPHEMERAL_CLASS: &str = "<ephemeral>";

/// Label on the pods of a Job: its name.
pub const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// The older twin of [`JOB_NAME`]. Both are written.
pub const JOB_NAME_LEGACY: &str = "job-name";
/// Label on the pods of a Job: its uid.
pub const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
/// The older twin of [`CONTROLLER_UID`]. Both are written.
pub const CONTROLLER_UID_LEGACY: &str = "controller-uid";

/// Node label: the rack, unique only within a zone.
pub const RACK: &str = "topology.berth.dev/rack";

/// What the keys of taints on nodes in trouble start with. Kubernetes adds and removes them.
pub const NODE_TAINT_PREFIX: &str = "node.kubernetes.io/";
/// Taint on a cordoned node.
pub const TAINT_UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Taint on a node whose kubelet reports that it is not ready.
pub const TAINT_NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Taint on a node whose kubelet does not report.
pub const TAINT_UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Taint that an administrator sets on a node that is shut down.
pub const TAINT_OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Taint on a node whose machine the cloud provider has stopped.
pub const TAINT_SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Taint on a node that the cloud provider has not initialized yet.
pub const TAINT_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Taint on a node that is low on memory.
pub const TAINT_MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";
/// Taint on a node that is low on disk space.
pub const TAINT_DISK_PRESSURE: &str = "node.kubernetes.io/disk-pressure";
/// Taint on a node that is low on process IDs.
pub const TAINT_PID_PRESSURE: &str = "node.kubernetes.io/pid-pressure";
/// Taint on a node whose network is not configured.
pub const TAINT_NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";

/// The name of the `CSIDriver` object of a provisioner. The name of a non-CSI plugin may contain a slash, which object
/// names may not: the part after it comes first.
///
/// ```
/// use berth_core::names::driver_object;
/// assert_eq!(driver_object("example.com"), "example.com");
/// assert_eq!(driver_object("berth.dev/local"), "local.berth.dev");
/// assert_eq!(driver_object("berth.dev/disks/local"), "disks.local.berth.dev");
/// ```
#[must_use]
pub fn driver_object(provisioner: &str) -> Cow<'_, str> {
    match provisioner.split_once('/') {
        Some((domain, plugin)) => Cow::Owned(format!("{}.{domain}", plugin.replace('/', "."))),
        None => Cow::Borrowed(provisioner),
    }
}
