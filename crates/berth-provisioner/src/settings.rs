//! How a provisioner is set up.

use crate::topology::Policy;
use berth_core::migration::InTreePlugin;

/// How a provisioner is set up. The same for all claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The name that classes call it by: a CSI driver's name, or a built-in one's.
    pub provisioner: String,
    /// The driver that claims of its classes are left to, if that is another name: the volume controller leaves
    /// claims of plugins that were once part of Kubernetes to the CSI drivers that took over.
    pub claims_as: Option<String>,
    /// How it is told where a volume must be; `None` for drivers that know no topology.
    pub topology: Option<Policy>,
    /// Keep a record on the claim while the backend may hold a volume that the cluster does not know. Needed if
    /// the backend outlives this process; built-in provisioners read their state from the cluster and do without.
    pub record_attempts: bool,
    /// Serve only claims whose selected node is this one: one provisioner for each node.
    pub node: Option<String>,
    /// Tell the driver the names of claim and volume.
    pub extra_create_metadata: bool,
    /// The file system if the class names none.
    pub default_fs_type: Option<String>,
    /// Mark volumes as read-only whose claim has no access mode but `ReadOnlyMany`.
    pub publish_read_only: bool,
    /// Feature gate `VolumeScheduling`. Off: volumes are made at once, whatever the class says.
    pub volume_scheduling: bool,
}

impl Settings {
    /// For a CSI driver.
    #[must_use]
    pub fn csi(driver: impl Into<String>) -> Self {
        Self {
            provisioner: driver.into(),
            claims_as: None,
            topology: Some(Policy::default()),
            record_attempts: true,
            node: None,
            extra_create_metadata: false,
            default_fs_type: None,
            publish_read_only: false,
            volume_scheduling: true,
        }
    }

    /// For a built-in provisioner.
    #[must_use]
    pub fn builtin(provisioner: impl Into<String>) -> Self {
        let provisioner = provisioner.into();
        Self {
            claims_as: InTreePlugin::from_name(&provisioner).map(|plugin| plugin.driver().to_owned()),
            topology: None,
            record_attempts: false,
            ..Self::csi(provisioner)
        }
    }

    /// Whether claims that are left to this name are its own.
    #[must_use]
    pub fn serves(&self, provisioner: &str) -> bool {
        provisioner == self.provisioner || self.claims_as.as_deref() == Some(provisioner)
    }
}
