//! The fixed names of Kubernetes that decisions read or write: annotations, labels, provisioners.
//!
//! Each is defined here once. Nothing else in the workspace spells them out.

use std::borrow::Cow;

/// Annotation on a claim: its binding to a volume is complete.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation on a claim or a volume: the controller, not the user, set the reference to the other side.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Annotation on a volume: the provisioner that made it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Annotation on a claim: the node that the scheduler chose for its first consumer.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The name that [`SELECTED_NODE`] had in the first design. Read, never written.
pub const SELECTED_NODE_ALPHA: &str = "volume.alpha.kubernetes.io/selectedNode";
/// Annotation on a claim: the provisioner that should make a volume for it.
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

/// Finalizer on a claim that a pod still uses.
pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Finalizer on a volume that a claim still holds.
pub const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// Finalizer on a volume whose bytes the controller itself has to delete.
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
/// Annotation on a volume: the secret that deleting it needs.
pub const DELETION_SECRET_NAME: &str = "volume.kubernetes.io/provisioner-deletion-secret-name";
/// The namespace of [`DELETION_SECRET_NAME`].
pub const DELETION_SECRET_NAMESPACE: &str = "volume.kubernetes.io/provisioner-deletion-secret-namespace";
/// Class parameters and volume attributes that begin so are Kubernetes' own, not the driver's.
pub const CSI_PREFIX: &str = "csi.storage.k8s.io/";
/// The attribute of an inline CSI volume that gives its size, on clusters without a field for it.
pub const INLINE_SIZE: &str = "csi.storage.k8s.io/size";
/// Label on published capacity: the driver.
pub const CAPACITY_DRIVER: &str = "csi.storage.k8s.io/drivername";
/// Label on published capacity: who keeps the object.
pub const CAPACITY_MANAGED_BY: &str = "csi.storage.k8s.io/managed-by";

/// Finalizer on a claim whose volume may already exist in the backend without being known to the cluster.
pub const ATTEMPT_FINALIZER: &str = "provisioner.berth.dev/attempt";
/// Annotation on such a claim: what the backend was asked for.
pub const ATTEMPT: &str = "provisioner.berth.dev/attempt";
/// Annotation on a volume that was reserved, or on a claim for which a node was selected: the attempt of a pod that holds it
/// until all volumes of the pod are there.
pub const HELD_FOR: &str = "binding.berth.dev/held-for";
/// Annotation on a volume that was made for a claim which is held: the attempt that it was made for.
pub const MADE_FOR: &str = "binding.berth.dev/made-for";
/// Annotation on a pod: the attempt whose volumes are all there.
pub const COMMITTED: &str = "binding.berth.dev/committed";
/// Annotation on a pod: the attempt, with all before it, whose volumes are given back.
pub const ABORTED: &str = "binding.berth.dev/aborted";
/// The pools that volumes of no class in particular come from.
pub const FALLBACK_CLASS: &str = "<fallback>";
/// The pools that inline volumes come from.
pub const EPHEMERAL_CLASS: &str = "<ephemeral>";

/// Taint on a node that `kubectl cordon` closed.
pub const TAINT_UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Taint on a node whose kubelet says that it is not ready.
pub const TAINT_NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Taint on a node whose kubelet says nothing.
pub const TAINT_UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Taint by which an administrator says that a node is off.
pub const TAINT_OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Taint on a node whose machine the cloud has stopped.
pub const TAINT_SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Taint on a node that the cloud has not set up yet.
pub const TAINT_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Taint on a node with little memory left.
pub const TAINT_MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";
/// Taint on a node with little disk left.
pub const TAINT_DISK_PRESSURE: &str = "node.kubernetes.io/disk-pressure";
/// Taint on a node with few process ids left.
pub const TAINT_PID_PRESSURE: &str = "node.kubernetes.io/pid-pressure";
/// Taint on a node whose network is not set up.
pub const TAINT_NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";

/// The name of the `CSIDriver` object of a provisioner. That of a plugin which is no CSI driver may hold a slash, which no
/// name of an object may: the part after it comes first.
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
