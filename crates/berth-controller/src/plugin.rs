//! The volume plugins that were built into Kubernetes.
//!
//! Berth has none of them. It knows which ones CSI drivers have replaced, and reports the others as
//! kube-controller-manager does.

use berth_core::api::{PersistentVolume, StringMap};
use berth_core::migration::InTreePlugin;
use berth_core::names;

/// Provisioner of directories on the controller's own host. Known, and disabled.
pub(crate) const HOST_PATH: &str = "kubernetes.io/host-path";
const NFS: &str = "kubernetes.io/nfs";

/// The CSI driver that serves an in-tree plugin's volumes.
pub(crate) fn migrated_to(plugin: &str) -> Option<&'static str> {
    InTreePlugin::from_name(plugin).map(InTreePlugin::driver)
}

/// The provisioner of a class.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Provisioner<'a> {
    /// An external one with this name.
    External(&'a str),
    /// The host path plugin, which is known but disabled.
    HostPath,
    /// None, for this reason.
    Unknown(String),
}

/// Finds the provisioner of a class.
pub(crate) fn provisioner(name: &str) -> Provisioner<'_> {
    if let Some(driver) = migrated_to(name) {
        return Provisioner::External(driver);
    }
    match name {
        HOST_PATH => Provisioner::HostPath,
        NFS => Provisioner::Unknown("no provisionable volume plugin matched".to_owned()),
        _ if name.starts_with(names::IN_TREE_PREFIX) => Provisioner::Unknown(no_plugin(name)),
        _ => Provisioner::External(name),
    }
}

/// The component that deletes a volume's storage.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Deleter {
    /// An external one.
    External,
    /// None is needed, because there is nothing worth keeping: the volume object may be deleted.
    Scratch,
    /// None, for this reason.
    Unknown(String),
}

/// Finds the component that deletes a volume's storage.
pub(crate) fn deleter(volume: &PersistentVolume) -> Deleter {
    if let Some(plugin) = volume
        .metadata
        .annotation(names::PROVISIONED_BY)
        .filter(|name| !name.is_empty())
    {
        return match plugin {
            HOST_PATH => host_path_deleter(volume),
            NFS => Deleter::Unknown("no deletable volume plugin matched".to_owned()),
            _ if plugin.starts_with(names::IN_TREE_PREFIX) => Deleter::Unknown(no_plugin(plugin)),
            _ => Deleter::External,
        };
    }
    if volume.metadata.annotations.contains_key(names::MIGRATED_TO) || volume.spec.csi.is_some() {
        return Deleter::External;
    }
    if volume.spec.host_path.is_some() {
        return host_path_deleter(volume);
    }
    let problem = if volume.spec.nfs.is_some() {
        "no deletable volume plugin matched"
    } else {
        "no volume plugin matched"
    };
    Deleter::Unknown(format!(
        "error getting deleter volume plugin for volume {:?}: {problem}",
        volume.metadata.name
    ))
}

fn host_path_deleter(volume: &PersistentVolume) -> Deleter {
    let path = volume.spec.host_path.as_ref().map_or("", |source| source.path.as_str());
    // Only scratch space is ever given up, and its directory is left to the host.
    match path.split_once("/tmp/") {
        Some((_, rest)) if !rest.is_empty() => Deleter::Scratch,
        _ => Deleter::Unknown(format!(
            "host_path deleter only supports /tmp/.+ but received provided {path}"
        )),
    }
}

fn no_plugin(name: &str) -> String {
    format!("no volume plugin matched name: {name}")
}

/// The value that the annotation with the CSI driver must get, if it is not correct. The provisioner is the value of
/// the first of `keys` that is set.
pub(crate) fn migration(annotations: &StringMap, keys: &[&str]) -> Option<Option<String>> {
    let provisioner = keys.iter().find_map(|key| annotations.get(*key))?;
    let found = annotations
        .get(names::MIGRATED_TO)
        .map(String::as_str)
        .unwrap_or_default();
    match migrated_to(provisioner) {
        Some(driver) if driver != found => Some(Some(driver.to_owned())),
        None if !found.is_empty() => Some(None),
        Some(_) | None => None,
    }
}

/// The finalizers that a volume must have, if they are not correct.
pub(crate) fn deletion_finalizers(volume: &PersistentVolume) -> Option<Vec<String>> {
    let plugin = volume.metadata.annotation(names::PROVISIONED_BY)?;
    let current = &volume.metadata.finalizers;
    let without = |name: &str| -> Vec<String> { current.iter().filter(|found| *found != name).cloned().collect() };
    let mut wanted = if migrated_to(plugin).is_some() {
        without(names::VOLUME_DELETION_IN_TREE)
    } else if plugin.starts_with(names::IN_TREE_PREFIX) {
        without(names::PROVISIONER_FINALIZER)
    } else {
        return None;
    };
    if migrated_to(plugin).is_none() {
        let policy = volume
            .spec
            .persistent_volume_reclaim_policy
            .as_deref()
            .unwrap_or("Retain");
        let has = wanted.iter().any(|found| found == names::VOLUME_DELETION_IN_TREE);
        match (policy, has) {
            // A volume that is being deleted cannot get new finalizers.
            ("Delete", false) if !volume.metadata.is_deleting() => {
                wanted.push(names::VOLUME_DELETION_IN_TREE.to_owned());
            }
            ("Retain" | "Recycle", true) => wanted.retain(|found| found != names::VOLUME_DELETION_IN_TREE),
            _ => {}
        }
    }
    (wanted != *current).then_some(wanted)
}
