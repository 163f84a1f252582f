//! The volumes of a pod that matter for restrictions and attach limits.

use berth_core::api::{self, VolumeSource};
use berth_core::migration::{self, InTreePlugin, TranslationError};

/// A volume of a pod that a node may have to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodVolume {
    /// A claim.
    Claim {
        /// Its name, in the pod's namespace.
        name: Box<str>,
        /// Whether it is created for the pod and deleted with it.
        ephemeral: bool,
    },
    /// A disk of an in-tree plugin, or of the CSI driver that replaces it.
    InTree {
        /// The volume's name in the pod.
        name: Box<str>,
        /// The plugin.
        plugin: InTreePlugin,
        /// The CSI driver's name for the disk.
        handle: Result<Box<str>, TranslationError>,
    },
}

/// Volumes of a pod in its order.
#[must_use]
pub(super) fn pod_volumes(pod: &api::Pod) -> Box<[PodVolume]> {
    let volumes = pod.spec.volumes.iter();
    volumes
        .filter_map(|volume| {
            if let Some(name) = volume.claim_name(&pod.metadata.name) {
                return Some(PodVolume::Claim {
                    name: name.into(),
                    ephemeral: volume.persistent_volume_claim.is_none(),
                });
            }
            let source = volume.source();
            Some(PodVolume::InTree {
                name: volume.name.as_str().into(),
                plugin: InTreePlugin::of(source)?,
                handle: migration::csi_handle(source, None)?,
            })
        })
        .collect()
}

/// A disk that cannot be shared, or only by readers. Two pods with a common disk key use the same disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDisk {
    /// The disk.
    pub key: DiskKey,
    /// Whether the pod only reads, and the disk can be read by several.
    pub read_only: bool,
}

/// The identity of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DiskKey {
    /// A Google disk, by name.
    Gce(Box<str>),
    /// An Amazon disk, by id.
    Aws(Box<str>),
    /// An iSCSI target, regardless of the LUN.
    Iscsi(Box<str>),
    /// A Ceph block device, by one of its monitors, its pool and its image.
    Rbd(Box<[Box<str>; 3]>),
}

/// The disks that the volumes of a pod refer to directly, without those behind claims.
#[must_use]
pub(super) fn shared_disks(pod: &api::Pod) -> Box<[SharedDisk]> {
    let mut disks = Vec::new();
    for volume in &pod.spec.volumes {
        let mut add = |key, read_only| disks.push(SharedDisk { key, read_only });
        match volume.source() {
            VolumeSource::GcePersistentDisk(disk) => add(DiskKey::Gce(disk.pd_name.as_str().into()), disk.read_only),
            // Amazon attaches a disk to one machine, even for reading.
            VolumeSource::AwsElasticBlockStore(disk) => add(DiskKey::Aws(disk.volume_id.as_str().into()), false),
            VolumeSource::Iscsi(disk) => add(DiskKey::Iscsi(disk.iqn.as_str().into()), disk.read_only),
            VolumeSource::Rbd(disk) => {
                for monitor in &disk.monitors {
                    let key = [monitor, &disk.pool, &disk.image].map(|part| part.as_str().into());
                    add(DiskKey::Rbd(Box::new(key)), disk.read_only);
                }
            }
            VolumeSource::Csi(_)
            | VolumeSource::AzureDisk(_)
            | VolumeSource::Cinder(_)
            | VolumeSource::Local(_)
            | VolumeSource::Other => {}
        }
    }
    disks.into()
}
