//! What a CSI driver needs to know about a volume before a pod on a node can use it.

use std::collections::BTreeMap;

/// A volume as a pod uses it on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeVolume {
    /// The driver's name for it.
    pub handle: String,
    /// Where it is staged once for all pods of the node, if the driver supports that. Inline volumes are not staged.
    pub staging_path: Option<String>,
    /// Where it is mounted for the pod.
    pub target_path: String,
    /// Access mode, as in Kubernetes.
    pub access_mode: String,
    /// A block device instead of a directory.
    pub is_block: bool,
    /// File system; empty for the driver's default.
    pub fs_type: String,
    /// Mount options.
    pub mount_options: Vec<String>,
    /// Read-only.
    pub read_only: bool,
    /// Attributes of the volume, and of the pod if the driver requests them.
    pub volume_context: BTreeMap<String, String>,
    /// Further context for publishing the volume.
    pub publish_context: BTreeMap<String, String>,
    /// Credentials for staging.
    pub stage_secrets: BTreeMap<String, String>,
    /// Credentials for publishing.
    pub publish_secrets: BTreeMap<String, String>,
}
