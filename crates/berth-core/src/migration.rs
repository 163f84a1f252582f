//! In-tree volume plugins that are migrated to CSI drivers on some nodes.
//!
//! On such a node a volume has its CSI name, and the node must have the driver's own topology label instead of the
//! generic zone label.

use crate::api::{self, TopologyRequirement, TopologySelectorTerm, VolumeSource};
use crate::names;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

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
    /// The parameters of its classes that specify zones.
    fn zone_parameters(self) -> &'static [&'static str] {
        match self {
            Self::AwsEbs | Self::GcePd | Self::AzureDisk => &["zone", "zones"],
            Self::Cinder => &["availability"],
            Self::AzureFile | Self::Portworx | Self::Vsphere => &[],
        }
    }
}

/// Why the topology of a class is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// Two parameters specify zones.
    #[error("parameters {first:?} and {second:?} both name zones: keep one of them")]
    TwoParameters {
        /// One parameter.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A parameter specifies zones in addition to allowed topologies.
    #[error("parameter {parameter:?} names zones, and so do allowedTopologies: keep one of them")]
    ParameterAndTopologies {
        /// The parameter.
        parameter: &'static str,
    },
}

/// Where the volumes of a class may be created. In-tree plugins accepted zones as class parameters; their CSI drivers
/// read them as allowed topologies. The zone matches under any label name that nodes use for it.
///
/// ```
/// use berth_core::api::StorageClass;
/// use berth_core::migration::allowed_topologies;
///
/// let class: StorageClass = serde_json::from_str(
///     r#"{"provisioner": "kubernetes.io/gce-pd", "parameters": {"zones": "a, b"}}"#,
/// )?;
/// let terms = allowed_topologies(&class)?;
/// assert_eq!(terms[0].match_label_expressions[0].values, ["a", "b"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the class specifies zones in two ways.
pub fn allowed_topologies(class: &api::StorageClass) -> Result<Cow<'_, [TopologySelectorTerm]>, TopologyError> {
    let plugin = InTreePlugin::from_name(&class.provisioner);
    let names = plugin.map_or(&[][..], InTreePlugin::zone_parameters);
    let mut named = names.iter().filter(|name| class.parameters.contains_key(**name));
    let (Some(plugin), Some(parameter)) = (plugin, named.next()) else {
        return Ok(Cow::Borrowed(&class.allowed_topologies));
    };
    if let Some(second) = named.next() {
        let first = parameter;
        return Err(TopologyError::TwoParameters { first, second });
    }
    if !class.allowed_topologies.is_empty() {
        return Err(TopologyError::ParameterAndTopologies { parameter });
    }
    let text = class.parameters.get(*parameter).map_or("", String::as_str);
    let zones = text.split(',').map(str::trim).filter(|zone| !zone.is_empty());
    let values: Vec<String> = zones.map(str::to_owned).collect();
    if values.is_empty() {
        return Ok(Cow::Borrowed(&[]));
    }
    let term = |key: &str| TopologySelectorTerm {
        match_label_expressions: vec![TopologyRequirement {
            key: key.to_owned(),
            values: values.clone(),
        }],
    };
    let keys = [names::ZONE, names::ZONE_BETA].into_iter().chain(plugin.zone_key());
    Ok(Cow::Owned(keys.map(term).collect()))
}

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
}

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
