//! Volumes, claims, classes, and what drivers publish.

use super::{LabelSelector, NodeSelector, ObjectMeta, ResourceList, nullable};
use crate::names;
use crate::quantity::Quantity;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolume {
    /// Metadata.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// Its desired state.
    #[serde(deserialize_with = "nullable")]
    pub spec: PersistentVolumeSpec,
    /// Its current state.
    #[serde(deserialize_with = "nullable")]
    pub status: PersistentVolumeStatus,
}

/// See [`PersistentVolume`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    /// Its size, under `storage`.
    #[serde(deserialize_with = "nullable")]
    pub capacity: ResourceList,
    /// The ways in which it can be mounted.
    #[serde(deserialize_with = "nullable")]
    pub access_modes: Vec<String>,
    /// The claim it is bound to, or reserved for.
    pub claim_ref: Option<ObjectReference>,
    /// The class it belongs to.
    #[serde(deserialize_with = "nullable")]
    pub storage_class_name: String,
    /// `Filesystem` unless `Block`.
    pub volume_mode: Option<String>,
    /// `Retain`, `Delete` or `Recycle`.
    pub persistent_volume_reclaim_policy: Option<String>,
    /// The nodes that can reach it.
    pub node_affinity: Option<VolumeNodeAffinity>,
    /// The attributes class it was made with.
    pub volume_attributes_class_name: Option<String>,
    /// A CSI driver's volume.
    pub csi: Option<CsiSource>,
    /// A Google disk.
    pub gce_persistent_disk: Option<GcePersistentDisk>,
    /// An Amazon disk.
    pub aws_elastic_block_store: Option<AwsElasticBlockStore>,
    /// An Azure disk.
    pub azure_disk: Option<AzureDisk>,
    /// An OpenStack disk.
    pub cinder: Option<CinderVolume>,
    /// An iSCSI disk.
    pub iscsi: Option<IscsiVolume>,
    /// A Ceph block device.
    pub rbd: Option<RbdVolume>,
    /// A directory or disk of one node.
    pub local: Option<LocalVolume>,
    /// A directory of the node that the pod runs on.
    pub host_path: Option<HostPathVolume>,
    /// A network file system.
    pub nfs: Option<NfsVolume>,
    /// A file share of Azure.
    pub azure_file: Option<AzureFileVolume>,
    /// A disk of vSphere.
    pub vsphere_volume: Option<VsphereVolume>,
    /// A volume of Portworx.
    pub portworx_volume: Option<PortworxVolume>,
}

/// The nodes that can reach a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeNodeAffinity {
    /// None means every node.
    pub required: Option<NodeSelector>,
}

/// See [`PersistentVolume`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeStatus {
    /// `Pending`, `Available`, `Bound`, `Released` or `Failed`.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
    /// Why it is in this phase.
    #[serde(deserialize_with = "nullable")]
    pub message: String,
    /// The reason for this phase, as one word.
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
}

/// A reference to an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// API version.
    #[serde(deserialize_with = "nullable")]
    pub api_version: String,
    /// Kind.
    #[serde(deserialize_with = "nullable")]
    pub kind: String,
    /// Namespace.
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// UID; empty if the writer did not know it.
    #[serde(deserialize_with = "nullable")]
    pub uid: String,
    /// Resource version.
    #[serde(deserialize_with = "nullable")]
    pub resource_version: String,
}

/// The storage behind a volume, as far as decisions distinguish sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeSource<'a> {
    /// A CSI driver's volume.
    Csi(&'a CsiSource),
    /// A Google disk.
    GcePersistentDisk(&'a GcePersistentDisk),
    /// An Amazon disk.
    AwsElasticBlockStore(&'a AwsElasticBlockStore),
    /// An Azure disk.
    AzureDisk(&'a AzureDisk),
    /// An OpenStack disk.
    Cinder(&'a CinderVolume),
    /// An iSCSI disk.
    Iscsi(&'a IscsiVolume),
    /// A Ceph block device.
    Rbd(&'a RbdVolume),
    /// A directory or disk of one node.
    Local(&'a LocalVolume),
    /// Any other source, or none.
    Other,
}

macro_rules! volume_source {
    ($holder:ty) => {
        impl $holder {
            /// The storage source.
            #[must_use]
            pub fn source(&self) -> $crate::api::VolumeSource<'_> {
                use $crate::api::VolumeSource as Source;
                None.or(self.csi.as_ref().map(Source::Csi))
                    .or(self.gce_persistent_disk.as_ref().map(Source::GcePersistentDisk))
                    .or(self
                        .aws_elastic_block_store
                        .as_ref()
                        .map(Source::AwsElasticBlockStore))
                    .or(self.azure_disk.as_ref().map(Source::AzureDisk))
                    .or(self.cinder.as_ref().map(Source::Cinder))
                    .or(self.iscsi.as_ref().map(Source::Iscsi))
                    .or(self.rbd.as_ref().map(Source::Rbd))
                    .or(self.local.as_ref().map(Source::Local))
                    .unwrap_or(Source::Other)
            }
        }
    };
}
pub(super) use volume_source;

volume_source!(PersistentVolumeSpec);

/// A volume of a CSI driver, as a volume's source or inline in a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiSource {
    /// The driver.
    #[serde(deserialize_with = "nullable")]
    pub driver: String,
    /// The driver's name for the volume (not inline).
    #[serde(deserialize_with = "nullable")]
    pub volume_handle: String,
    /// Read-only.
    pub read_only: Option<bool>,
    /// File system.
    pub fs_type: Option<String>,
    /// Size of an inline volume.
    pub fs_size: Option<Quantity>,
    /// The driver's own parameters.
    #[serde(deserialize_with = "nullable")]
    pub volume_attributes: BTreeMap<String, String>,
}

/// See [`VolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GcePersistentDisk {
    /// The disk's name. The examples of KEP-490 (Zonal Volume) spell the key `diskName`.
    #[serde(alias = "diskName", deserialize_with = "nullable")]
    pub pd_name: String,
    /// File system.
    pub fs_type: Option<String>,
    /// Partition.
    pub partition: Option<i32>,
    /// Read-only.
    #[serde(deserialize_with = "nullable")]
    pub read_only: bool,
}

/// See [`VolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AwsElasticBlockStore {
    /// The disk's id.
    #[serde(rename = "volumeID", deserialize_with = "nullable")]
    pub volume_id: String,
    /// File system.
    pub fs_type: Option<String>,
    /// Partition.
    pub partition: Option<i32>,
    /// Read-only.
    #[serde(deserialize_with = "nullable")]
    pub read_only: bool,
}

/// See [`VolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AzureDisk {
    /// The disk's name.
    #[serde(deserialize_with = "nullable")]
    pub disk_name: String,
    /// The disk's address.
    #[serde(rename = "diskURI", deserialize_with = "nullable")]
    pub disk_uri: String,
    /// `Shared`, `Dedicated` or `Managed`.
    pub kind: Option<String>,
    /// Read-only.
    pub read_only: Option<bool>,
}

/// See [`VolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CinderVolume {
    /// The disk's id.
    #[serde(rename = "volumeID", deserialize_with = "nullable")]
    pub volume_id: String,
    /// Read-only.
    #[serde(deserialize_with = "nullable")]
    pub read_only: bool,
}

/// See [`PersistentVolumeSpec`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AzureFileVolume {
    /// The share.
    #[serde(deserialize_with = "nullable")]
    pub share_name: String,
    /// The secret with the account and its key.
    #[serde(deserialize_with = "nullable")]
    pub secret_name: String,
    /// The namespace of the secret; that of the claim if not set.
    pub secret_namespace: Option<String>,
}

/// See [`PersistentVolumeSpec`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VsphereVolume {
    /// The path of the disk.
    #[serde(deserialize_with = "nullable")]
    pub volume_path: String,
}

/// See [`PersistentVolumeSpec`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortworxVolume {
    /// The volume's id.
    #[serde(rename = "volumeID", deserialize_with = "nullable")]
    pub volume_id: String,
}

/// See [`VolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IscsiVolume {
    /// The portal.
    #[serde(deserialize_with = "nullable")]
    pub target_portal: String,
    /// The target.
    #[serde(deserialize_with = "nullable")]
    pub iqn: String,
    /// The unit.
    #[serde(deserialize_with = "nullable")]
    pub lun: i32,
    /// Read-only.
    #[serde(deserialize_with = "nullable")]
    pub read_only: bool,
}

/// See [`VolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RbdVolume {
    /// The monitors, under the name used by a pod's volume or by a persistent volume.
    #[serde(deserialize_with = "nullable")]
    pub monitors: Vec<String>,
    /// The image.
    #[serde(deserialize_with = "nullable")]
    pub image: String,
    /// The pool; `rbd` if not given.
    #[serde(deserialize_with = "nullable")]
    pub pool: String,
    /// Read-only.
    #[serde(deserialize_with = "nullable")]
    pub read_only: bool,
}

/// See [`VolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalVolume {
    /// Path on the node.
    #[serde(deserialize_with = "nullable")]
    pub path: String,
}

/// See [`VolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostPathVolume {
    /// Path on the node.
    #[serde(deserialize_with = "nullable")]
    pub path: String,
}

/// See [`VolumeSource`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NfsVolume {
    /// The server.
    #[serde(deserialize_with = "nullable")]
    pub server: String,
    /// The exported path.
    #[serde(deserialize_with = "nullable")]
    pub path: String,
}

/// A claim for a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaim {
    /// Metadata.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// What it requests.
    #[serde(deserialize_with = "nullable")]
    pub spec: PersistentVolumeClaimSpec,
    /// What it received.
    #[serde(deserialize_with = "nullable")]
    pub status: PersistentVolumeClaimStatus,
}

/// See [`PersistentVolumeClaim`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSpec {
    /// The requested ways to mount it.
    #[serde(deserialize_with = "nullable")]
    pub access_modes: Vec<String>,
    /// Only volumes with these labels.
    pub selector: Option<LabelSelector>,
    /// The size, under `requests.storage`.
    #[serde(deserialize_with = "nullable")]
    pub resources: VolumeResources,
    /// The class; `Some("")` means no class, and `None` means the default class.
    pub storage_class_name: Option<String>,
    /// `Filesystem` unless `Block`.
    pub volume_mode: Option<String>,
    /// The volume it is bound to or requests.
    #[serde(deserialize_with = "nullable")]
    pub volume_name: String,
    /// The requested attributes class.
    pub volume_attributes_class_name: Option<String>,
    /// The object to populate the volume from.
    pub data_source: Option<DataSource>,
    /// The object to populate the volume from, of any kind.
    pub data_source_ref: Option<DataSource>,
}

/// An object that a new volume is populated from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DataSource {
    /// API group, empty for the core one.
    #[serde(deserialize_with = "nullable")]
    pub api_group: String,
    /// Kind.
    #[serde(deserialize_with = "nullable")]
    pub kind: String,
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Namespace; empty for that of the claim.
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
}

/// What a claim requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeResources {
    /// At least this much.
    #[serde(deserialize_with = "nullable")]
    pub requests: ResourceList,
}

/// See [`PersistentVolumeClaim`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimStatus {
    /// `Pending`, `Bound` or `Lost`.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
    /// The ways in which the bound volume can be mounted.
    #[serde(deserialize_with = "nullable")]
    pub access_modes: Vec<String>,
    /// The bound volume's size.
    #[serde(deserialize_with = "nullable")]
    pub capacity: ResourceList,
    /// The attributes class of the bound volume.
    pub current_volume_attributes_class_name: Option<String>,
    /// Whether no pod uses the claim, as its condition `Unused` says; `None` without that condition.
    #[serde(rename = "conditions", deserialize_with = "unused")]
    pub unused: Option<bool>,
}

/// The status of the condition `Unused`. Nothing reads the others.
fn unused<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    #[derive(Deserialize)]
    struct Condition {
        #[serde(rename = "type")]
        kind: String,
        status: String,
    }
    let conditions = Option::<Vec<Condition>>::deserialize(deserializer)?.unwrap_or_default();
    let found = conditions.iter().find(|condition| condition.kind == names::UNUSED);
    Ok(found.map(|condition| condition.status == "True"))
}

/// A storage class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// Metadata.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// The provisioner that creates its volumes.
    #[serde(deserialize_with = "nullable")]
    pub provisioner: String,
    /// The provisioner's parameters.
    #[serde(deserialize_with = "nullable")]
    pub parameters: BTreeMap<String, String>,
    /// What happens to its volumes when they are released: `Delete` if not set.
    pub reclaim_policy: Option<String>,
    /// `Immediate` unless `WaitForFirstConsumer`. An example of KEP-490 (End to End Zonal Example) spells the key
    /// `bindingMode`.
    #[serde(alias = "bindingMode")]
    pub volume_binding_mode: Option<String>,
    /// Whether its volumes can be expanded.
    pub allow_volume_expansion: Option<bool>,
    /// Where volumes may be created.
    #[serde(deserialize_with = "nullable")]
    pub allowed_topologies: Vec<TopologySelectorTerm>,
    /// Mount options for its volumes.
    #[serde(deserialize_with = "nullable")]
    pub mount_options: Vec<String>,
}

/// Requirements on node labels, ANDed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySelectorTerm {
    /// The requirements.
    #[serde(deserialize_with = "nullable")]
    pub match_label_expressions: Vec<TopologyRequirement>,
}

/// A label must have one of these values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyRequirement {
    /// The label's key.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// The allowed values.
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<String>,
}

/// A CSI driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriver {
    /// Metadata.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// Its capabilities.
    #[serde(deserialize_with = "nullable")]
    pub spec: CsiDriverSpec,
    /// What it reports.
    #[serde(deserialize_with = "nullable")]
    pub status: CsiDriverStatus,
}

/// See [`CsiDriver`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriverSpec {
    /// It publishes its capacity as separate objects.
    pub storage_capacity: Option<bool>,
    /// It publishes its capacity in its own status.
    pub capacity_tracking: Option<bool>,
    /// Its volumes are attached before they are mounted.
    pub attach_required: Option<bool>,
    /// It needs pod information when it mounts.
    pub pod_info_on_mount: Option<bool>,
    /// Pods with its volumes only run on nodes that have it.
    pub prevent_pod_scheduling_if_missing: Option<bool>,
}

/// See [`CsiDriver`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriverStatus {
    /// Free space by class.
    #[serde(deserialize_with = "nullable")]
    pub storage: Vec<CsiStorage>,
}

/// The pools that serve one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiStorage {
    /// A class, `<fallback>` or `<ephemeral>`.
    #[serde(deserialize_with = "nullable")]
    pub storage_class_name: String,
    /// The pools.
    #[serde(deserialize_with = "nullable")]
    pub pools: Vec<CsiStoragePool>,
}

/// A pool of storage that some nodes can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiStoragePool {
    /// Unique among the pools of its class.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// The nodes that can reach it, by label.
    pub node_topology: Option<NodeSelector>,
    /// The nodes that can reach it, by name.
    #[serde(deserialize_with = "nullable")]
    pub node_list: Vec<String>,
    /// The largest volume that can be created now.
    pub capacity: Option<Quantity>,
    /// When this entry expires.
    pub expiry_time: Option<String>,
}

/// A volume attached to a node, or about to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachment {
    /// Metadata.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// What is attached where.
    #[serde(deserialize_with = "nullable")]
    pub spec: VolumeAttachmentSpec,
    /// Its current state.
    #[serde(deserialize_with = "nullable")]
    pub status: VolumeAttachmentStatus,
}

/// See [`VolumeAttachment`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSpec {
    /// The driver.
    #[serde(deserialize_with = "nullable")]
    pub attacher: String,
    /// The node.
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
    /// The volume.
    #[serde(deserialize_with = "nullable")]
    pub source: VolumeAttachmentSource,
}

/// See [`VolumeAttachment`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSource {
    /// A volume by name.
    pub persistent_volume_name: Option<String>,
    /// A volume that a pod holds inline.
    pub inline_volume_spec: Option<PersistentVolumeSpec>,
}

/// See [`VolumeAttachment`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentStatus {
    /// It is attached.
    #[serde(deserialize_with = "nullable")]
    pub attached: bool,
}

impl PersistentVolume {
    /// The class: the legacy annotation wins over the field, as in Kubernetes.
    #[must_use]
    pub fn class_name(&self) -> &str {
        self.metadata
            .annotation(names::STORAGE_CLASS_BETA)
            .unwrap_or(&self.spec.storage_class_name)
    }
}

impl PersistentVolumeClaim {
    /// The class: the legacy annotation wins over the field. `None` if neither is set, which differs from an empty
    /// name.
    #[must_use]
    pub fn class_name(&self) -> Option<&str> {
        self.metadata
            .annotation(names::STORAGE_CLASS_BETA)
            .or(self.spec.storage_class_name.as_deref())
    }

    /// The node selected for the claim's first consumer, from the current annotation or the original one of KEP-490.
    #[must_use]
    pub fn selected_node(&self) -> Option<&str> {
        self.metadata
            .annotation(names::SELECTED_NODE)
            .or_else(|| self.metadata.annotation(names::SELECTED_NODE_ALPHA))
    }

    /// The provisioner of its volume, from the current annotation or its predecessor.
    #[must_use]
    pub fn storage_provisioner(&self) -> Option<&str> {
        self.metadata
            .annotation(names::STORAGE_PROVISIONER)
            .or_else(|| self.metadata.annotation(names::STORAGE_PROVISIONER_BETA))
    }

    /// The requested size in bytes.
    #[must_use]
    pub fn requested_bytes(&self) -> i64 {
        self.spec
            .resources
            .requests
            .get("storage")
            .map_or(0, |quantity| quantity.value())
    }
}

impl StorageClass {
    /// The weight in the capacity score that the class sets.
    ///
    /// # Errors
    /// Returns the value if it is not a non-negative integer.
    pub fn weight(&self) -> Result<Option<i64>, &str> {
        let Some(text) = self.metadata.annotation(names::CLASS_WEIGHT) else {
            return Ok(None);
        };
        let weight = text.parse().ok().filter(|weight| *weight >= 0);
        weight.map(Some).ok_or(text)
    }

    /// Whether volumes are bound only when a pod that uses the claim is scheduled.
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        self.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
    }
}
