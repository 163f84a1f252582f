//! Classes of in-tree plugins: the zones they name, and what their CSI drivers read instead.

use super::InTreePlugin;
use crate::api::{StorageClass, TopologyRequirement, TopologySelectorTerm};
use crate::names::{self, CSI_PREFIX};
use std::borrow::Cow;
use std::collections::BTreeMap;

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
pub fn allowed_topologies(class: &StorageClass) -> Result<Cow<'_, [TopologySelectorTerm]>, TopologyError> {
    let Some(plugin) = InTreePlugin::from_name(&class.provisioner) else {
        return Ok(Cow::Borrowed(&class.allowed_topologies));
    };
    match named_zones(class, plugin.zone_parameters())? {
        None => Ok(Cow::Borrowed(&class.allowed_topologies)),
        Some(zones) if zones.is_empty() => Ok(Cow::Borrowed(&[])),
        Some(zones) => {
            let keys = [names::ZONE, names::ZONE_BETA].into_iter().chain(plugin.zone_key());
            Ok(Cow::Owned(keys.map(|key| zone_term(key, &zones)).collect()))
        }
    }
}

/// The zones that one of these parameters lists. In-tree plugins ignored the case of parameters.
fn named_zones(class: &StorageClass, names: &'static [&'static str]) -> Result<Option<Vec<String>>, TopologyError> {
    let value = |name: &str| class.parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    let mut named = names.iter().filter_map(|name| Some((*name, value(name)?.1)));
    let Some((parameter, text)) = named.next() else {
        return Ok(None);
    };
    if let Some((second, _)) = named.next() {
        let first = parameter;
        return Err(TopologyError::TwoParameters { first, second });
    }
    if !class.allowed_topologies.is_empty() {
        return Err(TopologyError::ParameterAndTopologies { parameter });
    }
    let zones = text.split(',').map(str::trim).filter(|zone| !zone.is_empty());
    Ok(Some(zones.map(str::to_owned).collect()))
}

fn zone_term(key: &str, zones: &[String]) -> TopologySelectorTerm {
    TopologySelectorTerm {
        match_label_expressions: vec![TopologyRequirement {
            key: key.to_owned(),
            values: zones.to_vec(),
        }],
    }
}

/// A class of an in-tree plugin as the CSI driver reads it: parameters have the driver's names, and zones are allowed
/// topologies under the driver's label. Other classes are returned unchanged.
///
/// ```
/// use berth_core::api::StorageClass;
/// use berth_core::migration::csi_class;
///
/// let class: StorageClass = serde_json::from_str(
///     r#"{"provisioner": "kubernetes.io/aws-ebs", "parameters": {"type": "gp2", "fsType": "xfs", "zone": "us-east-1a"}}"#,
/// )?;
/// let translated = csi_class(&class)?;
/// assert_eq!(translated.provisioner, "ebs.csi.aws.com");
/// assert_eq!(translated.parameters["csi.storage.k8s.io/fstype"], "xfs");
/// assert_eq!(translated.parameters["type"], "gp2");
/// let term = &translated.allowed_topologies[0].match_label_expressions[0];
/// assert_eq!((term.key.as_str(), term.values[0].as_str()), ("topology.ebs.csi.aws.com/zone", "us-east-1a"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the class specifies zones in two ways.
pub fn csi_class(class: &StorageClass) -> Result<StorageClass, TopologyError> {
    let Some(plugin) = InTreePlugin::from_name(&class.provisioner) else {
        return Ok(class.clone());
    };
    let zone_parameters = plugin.zone_parameters_of_driver();
    let zones = named_zones(class, zone_parameters)?.filter(|zones| !zones.is_empty());
    let mut translated = class.clone();
    plugin.driver().clone_into(&mut translated.provisioner);
    translated.parameters = BTreeMap::new();
    for (key, value) in &class.parameters {
        let lower = key.to_ascii_lowercase();
        if !zone_parameters.contains(&lower.as_str()) {
            translate_parameter(plugin, (key, &lower), value, &mut translated.parameters);
        }
    }
    if plugin == InTreePlugin::Vsphere {
        // The driver then reports the path of the disk, which the volume's object needs.
        translated
            .parameters
            .insert("csimigration".to_owned(), "true".to_owned());
    }
    if let Some(key) = plugin.class_zone_key() {
        if let Some(zones) = &zones {
            translated.allowed_topologies = vec![zone_term(key, zones)];
        }
        for expression in expressions(&mut translated.allowed_topologies) {
            translate_zones(plugin, key, expression);
        }
    }
    Ok(translated)
}

fn expressions(terms: &mut [TopologySelectorTerm]) -> impl Iterator<Item = &mut TopologyRequirement> {
    terms.iter_mut().flat_map(|term| &mut term.match_label_expressions)
}

fn translate_zones(plugin: InTreePlugin, key: &str, expression: &mut TopologyRequirement) {
    if [names::ZONE, names::ZONE_BETA].contains(&expression.key.as_str()) {
        key.clone_into(&mut expression.key);
    }
    if plugin == InTreePlugin::AzureDisk && expression.key == key {
        // A number is a fault domain of a region without zones. The driver's label is empty there.
        let is_fault_domain = |zone: &String| !zone.is_empty() && zone.bytes().all(|byte| byte.is_ascii_digit());
        expression
            .values
            .iter_mut()
            .filter(|zone| is_fault_domain(zone))
            .for_each(String::clear);
    }
}

/// What a parameter becomes. `key` is its spelling in the class, and the same in lower case.
fn translate_parameter(
    plugin: InTreePlugin,
    (key, lower): (&str, &str),
    value: &str,
    into: &mut BTreeMap<String, String>,
) {
    let mut add = |key: String| drop(into.insert(key, value.to_owned()));
    match (plugin, lower) {
        (InTreePlugin::AwsEbs | InTreePlugin::GcePd | InTreePlugin::Cinder | InTreePlugin::Vsphere, "fstype") => {
            add(format!("{CSI_PREFIX}fstype"));
        }
        (InTreePlugin::AwsEbs, "iopspergb") => {
            add(key.to_owned());
            // The in-tree plugin raised a value that is too low for a small disk.
            into.insert("allowautoiopspergbincrease".to_owned(), "true".to_owned());
        }
        (InTreePlugin::Vsphere, "storagepolicyname") => add(lower.to_owned()),
        (InTreePlugin::Vsphere, _) => {
            if VSPHERE_PARAMETERS.contains(&lower) {
                add(format!("{lower}-migrationparam"));
            }
        }
        (InTreePlugin::Portworx, "openstorage.io/auth-secret-name") => {
            PORTWORX_SECRETS
                .iter()
                .for_each(|purpose| add(format!("{CSI_PREFIX}{purpose}-secret-name")));
        }
        (InTreePlugin::Portworx, "openstorage.io/auth-secret-namespace") => {
            PORTWORX_SECRETS
                .iter()
                .for_each(|purpose| add(format!("{CSI_PREFIX}{purpose}-secret-namespace")));
        }
        (
            InTreePlugin::AwsEbs
            | InTreePlugin::GcePd
            | InTreePlugin::AzureDisk
            | InTreePlugin::AzureFile
            | InTreePlugin::Cinder
            | InTreePlugin::Portworx,
            _,
        ) => add(key.to_owned()),
    }
}

/// The parameters that the vSphere driver supports for migrated classes. It rejects others.
const VSPHERE_PARAMETERS: [&str; 8] = [
    "datastore",
    "diskformat",
    "hostfailurestotolerate",
    "forceprovisioning",
    "cachereservation",
    "diskstripes",
    "objectspacereservation",
    "iopslimit",
];

/// The calls that use the secret of a Portworx class.
const PORTWORX_SECRETS: [&str; 6] = [
    "provisioner",
    "controller-publish",
    "node-publish",
    "node-stage",
    "controller-expand",
    "node-expand",
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn translated(class: Value) -> Result<StorageClass, TopologyError> {
        csi_class(&serde_json::from_value(class).unwrap())
    }

    #[track_caller]
    fn check(plugin: &str, parameters: Value, expected: Value) {
        let class = translated(json!({"provisioner": plugin, "parameters": parameters})).unwrap();
        assert_eq!(json!(class.parameters), expected);
    }

    #[test]
    fn parameters_get_the_names_of_the_driver() {
        check(
            "kubernetes.io/aws-ebs",
            json!({"type": "io1", "iopsPerGB": "10", "FSType": "xfs", "encrypted": "true"}),
            json!({"type": "io1", "iopsPerGB": "10", "allowautoiopspergbincrease": "true",
                "csi.storage.k8s.io/fstype": "xfs", "encrypted": "true"}),
        );
        check(
            "kubernetes.io/azure-disk",
            json!({"skuName": "Premium_LRS", "fsType": "xfs"}),
            json!({"skuName": "Premium_LRS", "fsType": "xfs"}),
        );
        check(
            "kubernetes.io/cinder",
            json!({"availability": "nova", "fstype": "ext4"}),
            json!({"availability": "nova", "csi.storage.k8s.io/fstype": "ext4"}),
        );
        check(
            "kubernetes.io/vsphere-volume",
            json!({"diskformat": "thin", "storagePolicyName": "gold", "unknown": "x"}),
            json!({"diskformat-migrationparam": "thin", "storagepolicyname": "gold", "csimigration": "true"}),
        );
        let secrets = translated(json!({"provisioner": "kubernetes.io/portworx-volume", "parameters":
            {"repl": "3", "openstorage.io/auth-secret-name": "s", "openstorage.io/auth-secret-namespace": "n"}}));
        let secrets = secrets.unwrap().parameters;
        assert_eq!(secrets["csi.storage.k8s.io/node-stage-secret-name"], "s");
        assert_eq!(secrets["csi.storage.k8s.io/provisioner-secret-namespace"], "n");
        assert_eq!((secrets["repl"].as_str(), secrets.len()), ("3", 13));
    }

    #[test]
    fn zones_become_topologies_of_the_driver() {
        let gce = translated(json!({"provisioner": "kubernetes.io/gce-pd",
            "parameters": {"zones": "us-a1-a, us-a1-b", "type": "pd-ssd"}}));
        let gce = gce.unwrap();
        assert_eq!(
            gce.allowed_topologies,
            [zone_term("topology.gke.io/zone", &["us-a1-a".into(), "us-a1-b".into()])]
        );
        assert_eq!(json!(gce.parameters), json!({"type": "pd-ssd"}));
        let allowed = |key: &str, values: Value| {
            json!([{"matchLabelExpressions": [
            {"key": key, "values": values}, {"key": "rack", "values": ["1"]}]}])
        };
        for (plugin, zone, key, expected) in [
            (
                "kubernetes.io/aws-ebs",
                "us-east-1a",
                "topology.ebs.csi.aws.com/zone",
                "us-east-1a",
            ),
            (
                "kubernetes.io/azure-disk",
                "westus-1",
                "topology.disk.csi.azure.com/zone",
                "westus-1",
            ),
            ("kubernetes.io/azure-disk", "0", "topology.disk.csi.azure.com/zone", ""),
            ("kubernetes.io/vsphere-volume", "z", "topology.csi.vmware.com/zone", "z"),
        ] {
            for label in [names::ZONE, names::ZONE_BETA] {
                let class = json!({"provisioner": plugin, "allowedTopologies": allowed(label, json!([zone]))});
                let expected: Vec<TopologySelectorTerm> =
                    serde_json::from_value(allowed(key, json!([expected]))).unwrap();
                assert_eq!(translated(class).unwrap().allowed_topologies, expected);
            }
        }
        let twice = json!({"provisioner": "kubernetes.io/aws-ebs", "parameters": {"Zone": "a"},
            "allowedTopologies": allowed(names::ZONE, json!(["a"]))});
        assert_eq!(
            translated(twice),
            Err(TopologyError::ParameterAndTopologies { parameter: "zone" })
        );
        let other = json!({"provisioner": "example.com", "parameters": {"zone": "a"}});
        assert_eq!(
            translated(other.clone()).unwrap(),
            serde_json::from_value(other).unwrap()
        );
    }
}
