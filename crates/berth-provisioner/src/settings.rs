//! The settings of a provisioner.

use crate::topology::Policy;
use berth_core::migration::InTreePlugin;

/// The settings of a provisioner, for all claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its name in classes: that of a CSI driver or of a built-in provisioner.
    pub provisioner: String,
    /// The driver that claims of its classes are assigned to, if it has another name: the volume controller assigns
    /// claims of in-tree plugins to the CSI drivers that replace them.
    pub claims_as: Option<String>,
    /// How topology requirements are computed; `None` for drivers without topology support.
    pub topology: Option<Policy>,
    /// Keep a record on the claim while the backend may hold a volume that the cluster does not know. Needed if the
    /// backend outlives this process; built-in provisioners rebuild their state from the cluster and do not need it.
    pub record_attempts: bool,
    /// Serve only claims whose selected node is this one: one provisioner per node.
    pub node: Option<String>,
    /// Pass the names of claim and volume to the driver.
    pub extra_create_metadata: bool,
    /// The file system if the class specifies none.
    pub default_fs_type: Option<String>,
    /// Mark volumes as read-only if the only access mode of their claim is `ReadOnlyMany`.
    pub publish_read_only: bool,
    /// Feature gate `VolumeScheduling`. Off: volumes are created immediately, whatever the class says.
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

    /// Whether claims assigned to this name are its own.
    #[must_use]
    pub fn serves(&self, provisioner: &str) -> bool {
        provisioner == self.provisioner || self.claims_as.as_deref() == Some(provisioner)
    }
}
