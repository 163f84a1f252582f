//! In-tree volume plugins that are migrated to CSI drivers.
//!
//! On a node where a plugin is migrated, a volume has its CSI name, and the node must have the driver's own topology label instead
//! of the generic zone label. The driver's provisioner also serves classes of the plugin, and deletes its volumes.

mod class;
mod in_tree;
mod volume;

pub use class::{TopologyError, allowed_topologies, csi_class};
pub use in_tree::{CsiVolume, InTreeVolume, in_tree_volume};
pub use volume::{TranslationError, csi_handle, csi_handle_of, migrated_affinity};

use crate::api::VolumeSource;
use std::fmt;

/// The vSphere driver's label for zones.
const VSPHERE_ZONE: &str = "topology.csi.vmware.com/zone";
/// The vSphere driver's label for regions.
const VSPHERE_REGION: &str = "topology.csi.vmware.com/region";

/// An in-tree plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InTreePlugin {
    /// `kubernetes.io/aws-ebs`
    AwsEbs,
    /// `kubernetes.io/gce-pd`
    GcePd,
    /// `kubernetes.io/azure-disk`
    AzureDisk,
    /// `kubernetes.io/cinder`
    Cinder,
    /// `kubernetes.io/azure-file`
    AzureFile,
    /// `kubernetes.io/portworx-volume`
    Portworx,
    /// `kubernetes.io/vsphere-volume`
    Vsphere,
}

impl InTreePlugin {
    /// Every plugin.
    pub const ALL: [Self; 7] = [
        Self::AwsEbs,
        Self::GcePd,
        Self::AzureDisk,
        Self::Cinder,
        Self::AzureFile,
        Self::Portworx,
        Self::Vsphere,
    ];

    /// The plugin's name, which is also the name of its provisioner.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AwsEbs => "kubernetes.io/aws-ebs",
            Self::GcePd => "kubernetes.io/gce-pd",
            Self::AzureDisk => "kubernetes.io/azure-disk",
            Self::Cinder => "kubernetes.io/cinder",
            Self::AzureFile => "kubernetes.io/azure-file",
            Self::Portworx => "kubernetes.io/portworx-volume",
            Self::Vsphere => "kubernetes.io/vsphere-volume",
        }
    }

    /// The CSI driver that replaces it.
    #[must_use]
    pub fn driver(self) -> &'static str {
        match self {
            Self::AwsEbs => "ebs.csi.aws.com",
            Self::GcePd => "pd.csi.storage.gke.io",
            Self::AzureDisk => "disk.csi.azure.com",
            Self::Cinder => "cinder.csi.openstack.org",
            Self::AzureFile => "file.csi.azure.com",
            Self::Portworx => "pxd.portworx.com",
            Self::Vsphere => "csi.vsphere.vmware.com",
        }
    }

    /// The plugin that a CSI driver replaces.
    #[must_use]
    pub fn replaced_by(driver: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.driver() == driver)
    }

    /// The plugin of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name)
    }

    /// The plugin of a volume source, if its volumes count towards attach limits.
    #[must_use]
    pub fn of(source: VolumeSource<'_>) -> Option<Self> {
        match source {
            VolumeSource::AwsElasticBlockStore(_) => Some(Self::AwsEbs),
            VolumeSource::GcePersistentDisk(_) => Some(Self::GcePd),
            VolumeSource::AzureDisk(_) => Some(Self::AzureDisk),
            VolumeSource::Cinder(_) => Some(Self::Cinder),
            VolumeSource::Csi(_)
            | VolumeSource::Iscsi(_)
            | VolumeSource::Rbd(_)
            | VolumeSource::Local(_)
            | VolumeSource::Other => None,
        }
    }

    /// The node label that the driver reads zones from. Azure disks keep the generic one; the last three have none.
    fn zone_key(self) -> Option<&'static str> {
        match self {
            Self::AwsEbs => Some("topology.ebs.csi.aws.com/zone"),
            Self::GcePd => Some("topology.gke.io/zone"),
            Self::AzureDisk | Self::AzureFile | Self::Portworx | Self::Vsphere => None,
            Self::Cinder => Some("topology.cinder.csi.openstack.org/zone"),
        }
    }
}

impl InTreePlugin {
    /// The node label under which the driver expects the zones of a class.
    fn class_zone_key(self) -> Option<&'static str> {
        match self {
            Self::AwsEbs | Self::GcePd | Self::Cinder => self.zone_key(),
            Self::AzureDisk => Some("topology.disk.csi.azure.com/zone"),
            Self::Vsphere => Some(VSPHERE_ZONE),
            Self::AzureFile | Self::Portworx => None,
        }
    }

    /// The parameters of its classes that the driver reads as topologies. The Cinder driver reads `availability` itself.
    fn zone_parameters_of_driver(self) -> &'static [&'static str] {
        match self {
            Self::Cinder => &[],
            _ => self.zone_parameters(),
        }
    }

    /// The parameters of its classes that specify zones.
    fn zone_parameters(self) -> &'static [&'static str] {
        match self {
            Self::AwsEbs | Self::GcePd | Self::AzureDisk => &["zone", "zones"],
            Self::Cinder => &["availability"],
            Self::AzureFile | Self::Portworx | Self::Vsphere => &[],
        }
    }
}

/// The plugins that a CSINode's annotation lists as migrated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MigratedPlugins(u8);

impl MigratedPlugins {
    /// Reads the annotation's value.
    #[must_use]
    pub fn new(annotation: &str) -> Self {
        Self(
            annotation
                .split(',')
                .filter_map(InTreePlugin::from_name)
                .fold(0, |set, plugin| set | 1 << plugin as u8),
        )
    }

    /// Whether a plugin is among them.
    #[must_use]
    pub fn contains(self, plugin: InTreePlugin) -> bool {
        self.0 >> plugin as u8 & 1 == 1
    }
}

impl fmt::Display for InTreePlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
