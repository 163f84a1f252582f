//! What a CSI driver is told of a volume before a pod on a node can use it.

use std::collections::BTreeMap;

/// A volume as a pod uses it on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeVolume {
    /// The driver's name for it.
    pub handle: String,
    /// Where it is made ready once for all pods of the node, if the driver does that. Inline volumes are not.
    pub staging_path: Option<String>,
    /// Where the pod finds it.
    pub target_path: String,
    /// Access mode, in the words of Kubernetes.
    pub access_mode: String,
    /// A device instead of a directory.
    pub is_block: bool,
    /// File system; empty leaves it to the driver.
    pub fs_type: String,
    /// Options for mounting.
    pub mount_options: Vec<String>,
    /// Not writable.
    pub read_only: bool,
    /// Attributes of the volume, and of the pod if the driver asks for them.
    pub volume_context: BTreeMap<String, String>,
    /// What else the driver is told when the volume is published.
    pub publish_context: BTreeMap<String, String>,
    /// Credentials for staging.
    pub stage_secrets: BTreeMap<String, String>,
    /// Credentials for publishing.
    pub publish_secrets: BTreeMap<String, String>,
}
