//! Volumes of in-tree plugins as their CSI drivers know them.

use super::InTreePlugin;
use crate::api::{self, VolumeSource};
use crate::names;
use std::collections::BTreeSet;

/// Why a volume has no CSI form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TranslationError {
    /// The disk's ID is not a valid EBS volume ID.
    #[error("{0:?} is not the id of an EBS volume")]
    EbsVolumeId(Box<str>),
    /// The zones are not in one region.
    #[error("zones {0:?} do not lie in one region")]
    Region(Box<str>),
    /// Only managed disks are supported.
    #[error("kind({0}) is not supported in csi migration")]
    AzureKind(Box<str>),
    /// The namespace of the secret of an Azure file share is unknown.
    #[error("the volume names no namespace for its secret, and has no claim")]
    AzureFileNamespace,
    /// The driver's name for a new volume has no in-tree form.
    #[error("{handle:?} is not the handle of a {plugin} volume: expected {expected}")]
    Handle {
        /// The handle.
        handle: Box<str>,
        /// The plugin.
        plugin: InTreePlugin,
        /// The form of such handles.
        expected: &'static str,
    },
    /// An attribute of a new volume has no in-tree form.
    #[error("attribute {name:?} of the volume is {value:?}: expected {expected}")]
    Attribute {
        /// The attribute.
        name: &'static str,
        /// Its value.
        value: Box<str>,
        /// The valid values.
        expected: &'static str,
    },
}

/// The in-tree plugin of a volume, and the name that the CSI driver gives to the volume. `None` if it is not a volume of a
/// migrated plugin.
#[must_use]
pub fn csi_handle_of(volume: &api::PersistentVolume) -> Option<(InTreePlugin, Result<Box<str>, TranslationError>)> {
    let spec = &volume.spec;
    if let Some(share) = &spec.azure_file {
        return Some((InTreePlugin::AzureFile, azure_file_handle(share, volume)));
    }
    if let Some(disk) = &spec.vsphere_volume {
        return Some((InTreePlugin::Vsphere, Ok(disk.volume_path.as_str().into())));
    }
    if let Some(disk) = &spec.portworx_volume {
        return Some((InTreePlugin::Portworx, Ok(disk.volume_id.as_str().into())));
    }
    let source = spec.source();
    InTreePlugin::of(source).zip(csi_handle(source, Some(&volume.metadata.labels)))
}

/// Resource group, account, share, volume and namespace, separated by `#`.
fn azure_file_handle(
    share: &api::AzureFileVolume,
    volume: &api::PersistentVolume,
) -> Result<Box<str>, TranslationError> {
    let group = volume.metadata.annotation(AZURE_RESOURCE_GROUP).unwrap_or_default();
    let secret = share.secret_name.as_str();
    let account = secret
        .strip_prefix("azure-storage-account-")
        .and_then(|rest| rest.strip_suffix("-secret"))
        .filter(|account| !account.is_empty())
        .unwrap_or(secret);
    let of_claim = || volume.spec.claim_ref.as_ref().map(|claim| claim.namespace.as_str());
    let namespace = share.secret_namespace.as_deref().or_else(of_claim);
    let namespace = namespace.filter(|namespace| !namespace.is_empty());
    let namespace = namespace.ok_or(TranslationError::AzureFileNamespace)?;
    let (share, name) = (&share.share_name, &volume.metadata.name);
    Ok(format!("{group}#{account}#{share}#{name}#{namespace}").into())
}

/// Annotation on an in-tree volume of an Azure file share: the resource group of the account.
pub(super) const AZURE_RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";

/// The name that a CSI driver gives to an in-tree volume with these labels; empty for inline volumes.
///
/// # Errors
/// If the driver cannot serve the volume.
pub fn csi_handle(
    source: VolumeSource<'_>,
    labels: Option<&api::StringMap>,
) -> Option<Result<Box<str>, TranslationError>> {
    Some(match source {
        VolumeSource::AwsElasticBlockStore(disk) => ebs_handle(&disk.volume_id),
        VolumeSource::GcePersistentDisk(disk) => gce_handle(&disk.pd_name, labels),
        VolumeSource::AzureDisk(disk) => match disk.kind.as_deref() {
            Some(kind) if !kind.eq_ignore_ascii_case("managed") => Err(TranslationError::AzureKind(kind.into())),
            _ => Ok(disk.disk_uri.as_str().into()),
        },
        VolumeSource::Cinder(disk) => Ok(disk.volume_id.as_str().into()),
        VolumeSource::Csi(_)
        | VolumeSource::Iscsi(_)
        | VolumeSource::Rbd(_)
        | VolumeSource::Local(_)
        | VolumeSource::Other => return None,
    })
}

fn ebs_handle(id: &str) -> Result<Box<str>, TranslationError> {
    let Some(path) = id.strip_prefix("aws://") else {
        return Ok(id.into());
    };
    let last = path.trim_matches('/').rsplit('/').next().unwrap_or("");
    if last.starts_with("vol-") {
        Ok(last.into())
    } else {
        Err(TranslationError::EbsVolumeId(id.into()))
    }
}

fn gce_handle(disk: &str, labels: Option<&api::StringMap>) -> Result<Box<str>, TranslationError> {
    let label = |key| {
        labels
            .and_then(|labels| labels.get(key))
            .filter(|value| !value.is_empty())
    };
    let zones = label(names::ZONE_BETA)
        .or_else(|| label(names::ZONE))
        .map_or("UNSPECIFIED", String::as_str);
    if !zones.contains(names::ZONE_DELIMITER) {
        return Ok(format!("projects/UNSPECIFIED/zones/{zones}/disks/{disk}").into());
    }
    let regions: BTreeSet<_> = zones
        .split(names::ZONE_DELIMITER)
        .map(|zone| {
            zone.rsplit_once('-')
                .filter(|(region, _)| region.matches('-').count() == 1)
        })
        .map(|split| split.map(|(region, _)| region))
        .collect();
    match regions.into_iter().collect::<Vec<_>>().as_slice() {
        [Some(region)] => Ok(format!("projects/UNSPECIFIED/regions/{region}/disks/{disk}").into()),
        _ => Err(TranslationError::Region(zones.into())),
    }
}

/// The node affinity of a migrated volume: zones under the driver's own key.
#[must_use]
pub fn migrated_affinity(plugin: InTreePlugin, volume: &api::PersistentVolume) -> Option<api::NodeSelector> {
    let required = volume
        .spec
        .node_affinity
        .as_ref()
        .and_then(|affinity| affinity.required.clone());
    let Some(zone_key) = plugin.zone_key() else {
        return required;
    };
    let labels = &volume.metadata.labels;
    let mut selector = required.unwrap_or_default();
    let has_key = |selector: &api::NodeSelector, key: &str| expressions(selector).any(|found| found.key == key);
    let older = !has_key(&selector, names::ZONE)
        && (has_key(&selector, names::ZONE_BETA)
            || !labels.contains_key(names::ZONE) && labels.contains_key(names::ZONE_BETA));
    let (zone, region) = if older {
        (names::ZONE_BETA, names::REGION_BETA)
    } else {
        (names::ZONE, names::REGION)
    };
    let has_zones = expressions(&selector).any(|found| found.key == zone && !found.values.is_empty());
    if has_zones {
        rename_key(&mut selector, zone, zone_key);
    } else if let Some(zones) = labels.get(zone) {
        add_zones(&mut selector, zone_key, zones);
    }
    if older {
        rename_key(&mut selector, region, names::REGION);
    }
    let unrestricted = selector.node_selector_terms.is_empty()
        && volume
            .spec
            .node_affinity
            .as_ref()
            .is_none_or(|affinity| affinity.required.is_none());
    (!unrestricted).then_some(selector)
}

fn expressions(selector: &api::NodeSelector) -> impl Iterator<Item = &api::Requirement> {
    selector
        .node_selector_terms
        .iter()
        .flat_map(|term| &term.match_expressions)
}

fn rename_key(selector: &mut api::NodeSelector, from: &str, to: &str) {
    for term in &mut selector.node_selector_terms {
        for requirement in &mut term.match_expressions {
            if requirement.key == from {
                to.clone_into(&mut requirement.key);
            }
        }
    }
}

fn add_zones(selector: &mut api::NodeSelector, key: &str, zones: &str) {
    let zones: BTreeSet<_> = zones
        .split(names::ZONE_DELIMITER)
        .filter(|zone| !zone.is_empty())
        .map(str::to_owned)
        .collect();
    if zones.is_empty() {
        return;
    }
    if selector.node_selector_terms.is_empty() {
        selector.node_selector_terms.push(api::NodeSelectorTerm::default());
    }
    for term in &mut selector.node_selector_terms {
        if term.match_expressions.iter().all(|found| found.key != key) {
            term.match_expressions.push(api::Requirement {
                key: key.to_owned(),
                operator: "In".to_owned(),
                values: zones.iter().cloned().collect(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn volume(value: serde_json::Value) -> api::PersistentVolume {
        serde_json::from_value(value).unwrap()
    }

    fn check_handle(spec: serde_json::Value, labels: serde_json::Value, expected: Option<&str>) {
        let volume = volume(json!({"metadata": {"name": "pv", "labels": labels}, "spec": spec}));
        let handle = csi_handle(volume.spec.source(), Some(&volume.metadata.labels)).unwrap();
        assert_eq!(handle.ok().as_deref(), expected);
    }

    #[test]
    fn handles_are_what_the_drivers_use() {
        let none = || json!({});
        check_handle(
            json!({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-1"}}),
            none(),
            Some("vol-1"),
        );
        check_handle(
            json!({"awsElasticBlockStore": {"volumeID": "vol-2"}}),
            none(),
            Some("vol-2"),
        );
        check_handle(
            json!({"awsElasticBlockStore": {"volumeID": "aws://us-east-1a/disk"}}),
            none(),
            None,
        );
        let disk = || json!({"gcePersistentDisk": {"pdName": "d"}});
        check_handle(disk(), none(), Some("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"));
        check_handle(
            disk(),
            json!({names::ZONE: "r-1-a"}),
            Some("projects/UNSPECIFIED/zones/r-1-a/disks/d"),
        );
        check_handle(
            disk(),
            json!({names::ZONE_BETA: "eu-west1-a__eu-west1-b"}),
            Some("projects/UNSPECIFIED/regions/eu-west1/disks/d"),
        );
        check_handle(disk(), json!({names::ZONE_BETA: "eu-west1-a__us-west1-b"}), None);
        check_handle(
            json!({"azureDisk": {"diskURI": "u", "kind": "managed"}}),
            none(),
            Some("u"),
        );
        check_handle(
            json!({"azureDisk": {"diskURI": "u", "kind": "Dedicated"}}),
            none(),
            None,
        );
        check_handle(json!({"cinder": {"volumeID": "c"}}), none(), Some("c"));
    }

    #[test]
    fn every_migrated_volume_has_a_handle() {
        let handle = |spec: serde_json::Value| {
            let metadata = json!({"name": "pv", "annotations": {AZURE_RESOURCE_GROUP: "group"}});
            csi_handle_of(&volume(json!({"metadata": metadata, "spec": spec})))
        };
        let share = json!({"shareName": "s", "secretName": "azure-storage-account-acc-secret", "secretNamespace": "n"});
        let expected = Ok("group#acc#s#pv#n".into());
        assert_eq!(
            handle(json!({"azureFile": share})),
            Some((InTreePlugin::AzureFile, expected))
        );
        let of_claim =
            json!({"azureFile": {"shareName": "s", "secretName": "x"}, "claimRef": {"namespace": "c", "name": "d"}});
        assert_eq!(
            handle(of_claim),
            Some((InTreePlugin::AzureFile, Ok("group#x#s#pv#c".into())))
        );
        let nowhere = json!({"azureFile": {"shareName": "s", "secretName": "x"}});
        assert_eq!(
            handle(nowhere),
            Some((InTreePlugin::AzureFile, Err(TranslationError::AzureFileNamespace)))
        );
        let disk = json!({"vsphereVolume": {"volumePath": "[store] a.vmdk"}});
        assert_eq!(handle(disk), Some((InTreePlugin::Vsphere, Ok("[store] a.vmdk".into()))));
        let disk = json!({"portworxVolume": {"volumeID": "p"}});
        assert_eq!(handle(disk), Some((InTreePlugin::Portworx, Ok("p".into()))));
        let disk = json!({"awsElasticBlockStore": {"volumeID": "vol-1"}});
        assert_eq!(handle(disk), Some((InTreePlugin::AwsEbs, Ok("vol-1".into()))));
        assert_eq!(
            handle(json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}})),
            None
        );
    }

    fn check_affinity(
        plugin: InTreePlugin,
        labels: serde_json::Value,
        terms: serde_json::Value,
        expected: serde_json::Value,
    ) {
        let affinity = if terms.is_null() {
            json!(null)
        } else {
            json!({"required": {"nodeSelectorTerms": terms}})
        };
        let volume = volume(json!({"metadata": {"labels": labels}, "spec": {"nodeAffinity": affinity}}));
        let expected: Option<api::NodeSelector> = match expected {
            serde_json::Value::Null => None,
            terms => Some(serde_json::from_value(json!({"nodeSelectorTerms": terms})).unwrap()),
        };
        assert_eq!(migrated_affinity(plugin, &volume), expected);
    }

    #[test]
    fn zones_move_to_the_drivers_key() {
        let zone = |key: &str, zones: serde_json::Value| json!({"key": key, "operator": "In", "values": zones});
        check_affinity(InTreePlugin::GcePd, json!({}), json!(null), json!(null));
        check_affinity(
            InTreePlugin::GcePd,
            json!({}),
            json!([{"matchExpressions": [zone(names::ZONE_BETA, json!(["a"])), zone(names::REGION_BETA, json!(["r"]))]}]),
            json!([{"matchExpressions": [zone("topology.gke.io/zone", json!(["a"])), zone(names::REGION, json!(["r"]))]}]),
        );
        check_affinity(
            InTreePlugin::AwsEbs,
            json!({names::ZONE: "b__a"}),
            json!(null),
            json!([{"matchExpressions": [zone("topology.ebs.csi.aws.com/zone", json!(["a", "b"]))]}]),
        );
        check_affinity(
            InTreePlugin::AzureDisk,
            json!({names::ZONE: "a"}),
            json!([{"matchExpressions": [zone(names::ZONE, json!(["a"]))]}]),
            json!([{"matchExpressions": [zone(names::ZONE, json!(["a"]))]}]),
        );
    }
}
