//! New volumes of CSI drivers in the form of the in-tree plugin that their class names, so that they look like older volumes of
//! the class.

use super::volume::AZURE_RESOURCE_GROUP;
use super::{InTreePlugin, TranslationError, VSPHERE_REGION, VSPHERE_ZONE};
use crate::names::{REGION, ZONE, ZONE_DELIMITER};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A volume that a driver created.
#[derive(Clone, Copy, Debug)]
pub struct CsiVolume<'a> {
    /// The driver's name for it.
    pub handle: &'a str,
    /// The driver's attributes.
    pub attributes: &'a BTreeMap<String, String>,
    /// File system, unless it is a block device.
    pub fs_type: Option<&'a str>,
    /// Read-only.
    pub read_only: bool,
    /// The secret for staging it on nodes: name and namespace.
    pub stage_secret: Option<(&'a str, &'a str)>,
    /// The labels and values of nodes that can reach it: terms are ORed, and the labels of a term ANDed.
    pub accessible: &'a [BTreeMap<String, Vec<String>>],
}

/// The in-tree form of a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct InTreeVolume {
    /// The field of the specification.
    pub field: &'static str,
    /// Its value.
    pub source: Value,
    /// The labels and values of nodes that can reach it.
    pub accessible: Vec<BTreeMap<String, Vec<String>>>,
    /// Labels of the object.
    pub labels: BTreeMap<&'static str, String>,
    /// Annotations of the object.
    pub annotations: BTreeMap<&'static str, String>,
}

/// The in-tree form of a volume that the driver of a plugin created.
///
/// # Errors
/// If handle or attributes are not those of the driver.
pub fn in_tree_volume(plugin: InTreePlugin, volume: &CsiVolume<'_>) -> Result<InTreeVolume, TranslationError> {
    let (field, source) = source(plugin, volume)?;
    let mut translated = InTreeVolume {
        field,
        source: Value::Object(source),
        accessible: volume.accessible.to_vec(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    };
    if plugin == InTreePlugin::AzureFile {
        let group = volume.handle.split('#').next().unwrap_or_default();
        if !group.is_empty() {
            translated.annotations.insert(AZURE_RESOURCE_GROUP, group.to_owned());
        }
    }
    translate_topology(plugin, &mut translated);
    Ok(translated)
}

fn source(
    plugin: InTreePlugin,
    volume: &CsiVolume<'_>,
) -> Result<(&'static str, Map<String, Value>), TranslationError> {
    let mut source = Map::new();
    let mut set = |field: &str, value: Value| drop(source.insert(field.to_owned(), value));
    if let (Some(fs_type), false) = (volume.fs_type, plugin == InTreePlugin::AzureFile) {
        set("fsType", json!(fs_type));
    }
    if volume.read_only && plugin != InTreePlugin::Vsphere {
        set("readOnly", json!(true));
    }
    let field = match plugin {
        InTreePlugin::AwsEbs => {
            set("volumeID", json!(volume.handle));
            if let Some(partition) = partition(volume)? {
                set("partition", partition);
            }
            "awsElasticBlockStore"
        }
        InTreePlugin::GcePd => {
            let name = volume.handle.split('/').nth(5).filter(|name| !name.is_empty());
            let expected = "projects/PROJECT/zones|regions/PLACE/disks/NAME";
            set(
                "pdName",
                json!(name.ok_or_else(|| wrong_handle(plugin, volume, expected))?),
            );
            if let Some(partition) = partition(volume)? {
                set("partition", partition);
            }
            "gcePersistentDisk"
        }
        InTreePlugin::AzureDisk => {
            let expected = ".../resourceGroups/GROUP/providers/Microsoft.Compute/disks/NAME";
            let parts = volume.handle.rsplit_once("/providers/Microsoft.Compute/disks/");
            let name = parts.map(|(_, name)| name).filter(|name| !name.is_empty());
            set(
                "diskName",
                json!(name.ok_or_else(|| wrong_handle(plugin, volume, expected))?),
            );
            set("diskURI", json!(volume.handle));
            set("kind", json!("Managed"));
            if let Some(mode) = attribute(volume, "cachingmode") {
                set("cachingMode", json!(mode));
            }
            if let Some(fs_type) = attribute(volume, "fstype") {
                set("fsType", json!(fs_type));
            }
            "azureDisk"
        }
        InTreePlugin::AzureFile => {
            let (share, secret, namespace) = azure_file(volume)?;
            set("shareName", json!(share));
            set("secretName", json!(secret));
            set("secretNamespace", json!(namespace));
            "azureFile"
        }
        InTreePlugin::Cinder => {
            set("volumeID", json!(volume.handle));
            "cinder"
        }
        InTreePlugin::Portworx => {
            set("volumeID", json!(volume.handle));
            "portworxVolume"
        }
        InTreePlugin::Vsphere => {
            // In-tree volumes are named by their path, which the driver reports beside its own name.
            let path = attribute(volume, "initialvolumefilepath");
            let missing = || wrong_handle(plugin, volume, "attribute initialvolumefilepath beside it");
            set("volumePath", json!(path.ok_or_else(missing)?));
            "vsphereVolume"
        }
    };
    Ok((field, source))
}

fn wrong_handle(plugin: InTreePlugin, volume: &CsiVolume<'_>, expected: &'static str) -> TranslationError {
    TranslationError::Handle {
        handle: volume.handle.into(),
        plugin,
        expected,
    }
}

/// An attribute by its name in lower case.
fn attribute<'a>(volume: &CsiVolume<'a>, name: &str) -> Option<&'a str> {
    let mut attributes = volume.attributes.iter();
    let (_, value) = attributes.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
    Some(value.as_str()).filter(|value| !value.is_empty())
}

fn partition(volume: &CsiVolume<'_>) -> Result<Option<Value>, TranslationError> {
    let Some(text) = attribute(volume, "partition") else {
        return Ok(None);
    };
    let number: Option<i32> = text.parse().ok();
    let number = number.ok_or_else(|| TranslationError::Attribute {
        name: "partition",
        value: text.into(),
        expected: "a number",
    })?;
    Ok(Some(json!(number)))
}

/// The share, its secret and the secret's namespace.
fn azure_file(volume: &CsiVolume<'_>) -> Result<(String, String, String), TranslationError> {
    let mut parts = volume.handle.split('#').skip(1);
    let (account, share_in_handle) = (parts.next(), parts.next());
    let (secret, namespace) = match volume.stage_secret {
        Some((name, namespace)) => (Some(name), Some(namespace)),
        None => (attribute(volume, "secretname"), attribute(volume, "secretnamespace")),
    };
    let wrong = || wrong_handle(InTreePlugin::AzureFile, volume, "GROUP#ACCOUNT#SHARE#...");
    let share = attribute(volume, "sharename").or(share_in_handle).ok_or_else(wrong)?;
    let secret = match secret {
        Some(secret) => secret.to_owned(),
        None => format!("azure-storage-account-{}-secret", account.ok_or_else(wrong)?),
    };
    Ok((share.to_owned(), secret, namespace.unwrap_or("default").to_owned()))
}

/// Generic labels of zone and region instead of the driver's own.
fn translate_topology(plugin: InTreePlugin, volume: &mut InTreeVolume) {
    let keys: &[(&str, &str)] = match plugin {
        InTreePlugin::Vsphere => &[(VSPHERE_ZONE, ZONE), (VSPHERE_REGION, REGION)],
        InTreePlugin::AwsEbs => &[("topology.ebs.csi.aws.com/zone", ZONE)],
        InTreePlugin::GcePd => &[("topology.gke.io/zone", ZONE)],
        InTreePlugin::Cinder => &[("topology.cinder.csi.openstack.org/zone", ZONE)],
        // Nodes have no generic label with the zones of these.
        InTreePlugin::AzureDisk | InTreePlugin::AzureFile | InTreePlugin::Portworx => return,
    };
    for term in &mut volume.accessible {
        for (from, to) in keys {
            if let Some(values) = term.remove(*from) {
                term.entry((*to).to_owned()).or_insert(values);
            }
        }
        let zones = term.get(ZONE).map_or(&[][..], Vec::as_slice);
        if let Some(region) = region_of(plugin, zones) {
            term.entry(REGION.to_owned()).or_insert_with(|| vec![region]);
        }
    }
    let values = |key: &str| -> BTreeSet<&str> {
        let terms = volume.accessible.iter().filter_map(|term| term.get(key));
        terms.flatten().map(String::as_str).collect()
    };
    let zones = Vec::from_iter(values(ZONE)).join(ZONE_DELIMITER);
    let regions = values(REGION);
    let region = regions
        .first()
        .filter(|_| regions.len() == 1)
        .map(|region| (*region).to_owned());
    if !zones.is_empty() {
        volume.labels.insert(ZONE, zones);
    }
    volume.labels.extend(region.map(|region| (REGION, region)));
}

/// The region of zones, if their names tell it: `us-central1-a` is in `us-central1`, `us-west-2a` and `us-west-2-lax-1a` are in
/// `us-west-2`.
fn region_of(plugin: InTreePlugin, zones: &[String]) -> Option<String> {
    let region = |zone: &String| {
        let parts: Vec<&str> = zone.split('-').collect();
        match (plugin, parts.as_slice()) {
            (InTreePlugin::GcePd, [locale, region, _]) => Some(format!("{locale}-{region}")),
            (InTreePlugin::AwsEbs, [.., last]) if matches!(parts.len(), 3 | 4) => {
                let digits = last.strip_suffix(|letter: char| letter.is_ascii_lowercase())?;
                let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                is_number.then(|| zone[..zone.len() - 1].to_owned())
            }
            (InTreePlugin::AwsEbs, [a, b, c, ..]) if matches!(parts.len(), 5 | 7) => Some(format!("{a}-{b}-{c}")),
            _ => None,
        }
    };
    let regions: Option<BTreeSet<String>> = zones.iter().map(region).collect();
    let regions = regions.filter(|regions| regions.len() == 1)?;
    regions.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translate(
        plugin: InTreePlugin,
        handle: &str,
        attributes: &[(&str, &str)],
        place: &[(&str, &str)],
    ) -> Result<InTreeVolume, TranslationError> {
        let attributes = attributes
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let place = place
            .iter()
            .map(|(key, value)| ((*key).to_owned(), vec![(*value).to_owned()]))
            .collect();
        in_tree_volume(
            plugin,
            &CsiVolume {
                handle,
                attributes: &attributes,
                fs_type: Some("ext4"),
                read_only: false,
                stage_secret: None,
                accessible: &[place],
            },
        )
    }

    #[test]
    fn a_disk_gets_generic_labels() {
        let disk = translate(
            InTreePlugin::AwsEbs,
            "vol-1",
            &[("partition", "2")],
            &[("topology.ebs.csi.aws.com/zone", "us-east-1a")],
        );
        let disk = disk.unwrap();
        assert_eq!(disk.field, "awsElasticBlockStore");
        assert_eq!(
            disk.source,
            json!({"volumeID": "vol-1", "partition": 2, "fsType": "ext4"})
        );
        assert_eq!(
            json!(disk.accessible),
            json!([{ZONE: ["us-east-1a"], REGION: ["us-east-1"]}])
        );
        assert_eq!(json!(disk.labels), json!({ZONE: "us-east-1a", REGION: "us-east-1"}));
        let place = &[("topology.gke.io/zone", "somewhere")];
        let disk = translate(InTreePlugin::GcePd, "projects/p/zones/somewhere/disks/d", &[], place).unwrap();
        assert_eq!(disk.source["pdName"], "d");
        assert_eq!(
            json!(disk.labels),
            json!({ZONE: "somewhere"}),
            "the region is not known"
        );
        let place = &[("topology.disk.csi.azure.com/zone", "westus-1")];
        let uri = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
        let disk = translate(InTreePlugin::AzureDisk, uri, &[("cachingMode", "None")], place).unwrap();
        assert_eq!(
            disk.source,
            json!({"diskName": "d", "diskURI": uri, "kind": "Managed", "cachingMode": "None", "fsType": "ext4"})
        );
        assert_eq!(
            json!(disk.accessible),
            json!([{"topology.disk.csi.azure.com/zone": ["westus-1"]}])
        );
    }

    #[test]
    fn shares_and_paths_are_found() {
        let share = translate(InTreePlugin::AzureFile, "g#acc#s#pv", &[], &[]).unwrap();
        assert_eq!(
            share.source,
            json!({"shareName": "s", "secretName": "azure-storage-account-acc-secret", "secretNamespace": "default"})
        );
        assert_eq!(share.annotations[AZURE_RESOURCE_GROUP], "g");
        let attributes = &[("initialvolumefilepath", "[store] a.vmdk")];
        let disk = translate(
            InTreePlugin::Vsphere,
            "id",
            attributes,
            &[(VSPHERE_ZONE, "z"), (VSPHERE_REGION, "r")],
        );
        let disk = disk.unwrap();
        assert_eq!(disk.source, json!({"volumePath": "[store] a.vmdk", "fsType": "ext4"}));
        assert_eq!(json!(disk.labels), json!({ZONE: "z", REGION: "r"}));
    }

    #[test]
    fn what_the_driver_cannot_have_named_is_refused() {
        for (plugin, handle, attributes) in [
            (InTreePlugin::GcePd, "d", &[][..]),
            (InTreePlugin::AzureDisk, "d", &[]),
            (InTreePlugin::AzureFile, "d", &[]),
            (InTreePlugin::Vsphere, "d", &[]),
            (InTreePlugin::AwsEbs, "vol-1", &[("partition", "x")]),
        ] {
            assert!(translate(plugin, handle, attributes, &[]).is_err(), "{plugin}");
        }
    }

    #[test]
    fn regions_are_parts_of_zones() {
        let region = |zone: &str| region_of(InTreePlugin::AwsEbs, &[zone.to_owned()]);
        assert_eq!(region("us-west-2a").as_deref(), Some("us-west-2"));
        assert_eq!(region("us-gov-east-1a").as_deref(), Some("us-gov-east-1"));
        assert_eq!(region("us-west-2-lax-1a").as_deref(), Some("us-west-2"));
        assert_eq!(region("us-east-1-wl1-bos-wlz-1").as_deref(), Some("us-east-1"));
        assert_eq!(region("zone"), None);
    }
}
