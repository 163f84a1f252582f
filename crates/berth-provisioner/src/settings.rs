//! The settings of a provisioner.

use crate::bids::Delays;
use crate::topology::Policy;
use berth_core::api::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use berth_core::migration::InTreePlugin;
use berth_core::names;

/// What a CSI driver can do beyond creating empty volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Volumes from snapshots.
    pub snapshots: bool,
    /// Volumes from volumes.
    pub clones: bool,
    /// Volumes with the parameters of a volume attributes class.
    pub attributes: bool,
    /// Reports of its free space.
    pub capacity: bool,
}

/// The settings of a provisioner, for all claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its name in classes: that of a CSI driver or of a built-in provisioner.
    pub provisioner: String,
    /// The driver that claims of its classes are assigned to, if it has another name: the volume controller assigns
    /// claims of in-tree plugins to the CSI drivers that replace them.
    pub claims_as: Option<String>,
    /// The in-tree plugin that this driver replaces: it also serves the plugin's classes, and deletes its volumes.
    pub migrates: Option<InTreePlugin>,
    /// How topology requirements are computed; `None` for drivers without topology support.
    pub topology: Option<Policy>,
    /// Keep a record on the claim while the backend may hold a volume that the cluster does not know. Needed if the
    /// backend outlives this process; built-in provisioners rebuild their state from the cluster and do not need it.
    pub record_attempts: bool,
    /// Serve only claims whose selected node is this one: one provisioner per node.
    pub node: Option<String>,
    /// With a node: compete with the provisioners of other nodes for Immediate claims, after these delays.
    pub immediate: Option<Delays>,
    /// Pass the names of claim and volume to the driver.
    pub extra_create_metadata: bool,
    /// The file system if the class specifies none.
    pub default_fs_type: Option<String>,
    /// Mark volumes as read-only if the only access mode of their claim is `ReadOnlyMany`.
    pub publish_read_only: bool,
    /// Feature gate `VolumeScheduling`. Off: volumes are created immediately, whatever the class says.
    pub volume_scheduling: bool,
    /// What its driver can do beyond creating empty volumes; `None` for built-in provisioners, which can do none of it.
    pub abilities: Option<Abilities>,
    /// Feature gate `CrossNamespaceVolumeDataSource`.
    pub cross_namespace_sources: bool,
    /// Feature gate `VolumeAttributesClass`. Off: volumes are created without the parameters of their attributes class.
    pub attributes_classes: bool,
    /// A volume from a snapshot must have the volume mode of the snapshot, unless the snapshot allows another one.
    pub prevent_mode_conversion: bool,
}

impl Settings {
    /// For a CSI driver.
    #[must_use]
    pub fn csi(driver: impl Into<String>) -> Self {
        let provisioner = driver.into();
        Self {
            migrates: InTreePlugin::replaced_by(&provisioner),
            provisioner,
            claims_as: None,
            topology: Some(Policy::default()),
            record_attempts: true,
            node: None,
            immediate: None,
            extra_create_metadata: false,
            default_fs_type: None,
            publish_read_only: false,
            volume_scheduling: true,
            abilities: Some(Abilities::default()),
            cross_namespace_sources: false,
            attributes_classes: true,
            prevent_mode_conversion: true,
        }
    }

    /// For a built-in provisioner.
    #[must_use]
    pub fn builtin(provisioner: impl Into<String>) -> Self {
        let provisioner = provisioner.into();
        Self {
            claims_as: InTreePlugin::from_name(&provisioner).map(|plugin| plugin.driver().to_owned()),
            migrates: None,
            topology: None,
            record_attempts: false,
            abilities: None,
            ..Self::csi(provisioner)
        }
    }

    /// Whether a claim is assigned to this provisioner.
    #[must_use]
    pub fn serves(&self, claim: &PersistentVolumeClaim) -> bool {
        let is_migrated = || claim.metadata.annotation(names::MIGRATED_TO) == Some(self.provisioner.as_str());
        claim.storage_provisioner().is_some_and(|name| {
            name == self.provisioner
                || self.claims_as.as_deref() == Some(name)
                || self.is_migrated_name(name) && is_migrated()
        })
    }

    /// Whether this provisioner creates the volumes of a class.
    #[must_use]
    pub fn serves_class(&self, class: &StorageClass) -> bool {
        self.knows(&class.provisioner)
    }

    /// Whether this provisioner deletes the storage of a volume. That includes volumes that an administrator created by hand for
    /// its driver.
    #[must_use]
    pub fn owns(&self, volume: &PersistentVolume) -> bool {
        let annotation = |key| volume.metadata.annotation(key).filter(|name| !name.is_empty());
        let csi = volume.spec.csi.as_ref().map(|csi| csi.driver.as_str());
        let made_by = annotation(names::PROVISIONED_BY).or(csi);
        let names = [made_by, annotation(names::MIGRATED_TO)];
        names.into_iter().flatten().any(|name| self.knows(name))
    }

    fn knows(&self, provisioner: &str) -> bool {
        provisioner == self.provisioner || self.is_migrated_name(provisioner)
    }

    fn is_migrated_name(&self, provisioner: &str) -> bool {
        self.migrates.is_some_and(|plugin| plugin.name() == provisioner)
    }
}
