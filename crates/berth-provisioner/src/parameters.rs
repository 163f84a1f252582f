//! The parameters of a class, split into those of Kubernetes (`csi.storage.k8s.io/...`) and those of the driver.

use berth_core::api::ObjectMeta;
use berth_core::names::CSI_PREFIX;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A reference to a secret. Only the code that calls the driver reads its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretReference {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl SecretReference {
    /// As written in a volume.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({"name": self.name, "namespace": self.namespace})
    }
}

/// The calls that may need their own secret, by the parameter's prefix, whose secret the volume refers to in this field.
const SECRET_PURPOSES: [(&str, &str); 5] = [
    ("controller-publish", "controllerPublishSecretRef"),
    ("node-stage", "nodeStageSecretRef"),
    ("node-publish", "nodePublishSecretRef"),
    ("controller-expand", "controllerExpandSecretRef"),
    ("node-expand", "nodeExpandSecretRef"),
];

/// The call that creates a volume, and the one that deletes it.
const PROVISIONER: &str = "provisioner";
/// The call that changes the attributes of a volume.
const MODIFY: &str = "controller-modify";

/// The parameters of a class for one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// File system, if the class specifies one.
    pub fs_type: Option<String>,
    /// The secret for creating and deleting the volume.
    pub provisioner_secret: Option<SecretReference>,
    /// The secret for changing the attributes of the volume.
    pub modify_secret: Option<SecretReference>,
    /// The secrets for using it, by the field of the volume that refers to them.
    pub volume_secrets: BTreeMap<&'static str, SecretReference>,
    /// The parameters passed to the driver.
    pub for_driver: BTreeMap<String, String>,
}

/// Why the parameters of a class cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// Two keys with the same meaning.
    #[error("the class names the file system twice, as {first:?} and {second:?}: keep one")]
    FsTypeTwice {
        /// One key.
        first: String,
        /// The other.
        second: String,
    },
    /// An unknown reserved key.
    #[error("the class has an unknown parameter {key:?} with a reserved prefix")]
    Unknown {
        /// The key.
        key: String,
    },
    /// A secret with a name or a namespace only.
    #[error("the class sets {given:?} of a secret without {missing:?}")]
    HalfSecret {
        /// The key that is set.
        given: String,
        /// The missing key.
        missing: String,
    },
    /// A placeholder that cannot be resolved.
    #[error("parameter {key:?}: {placeholder:?} cannot be filled in here; known are {known}")]
    Placeholder {
        /// The key.
        key: String,
        /// The placeholder.
        placeholder: String,
        /// The supported placeholders.
        known: &'static str,
    },
}

impl Parameters {
    /// Splits the parameters of a class for the volume of a claim.
    ///
    /// # Errors
    /// If a reserved parameter is unknown, incomplete, or has a placeholder that cannot be resolved.
    pub fn new(
        parameters: &BTreeMap<String, String>,
        volume: &str,
        claim: &ObjectMeta,
    ) -> Result<Self, ParameterError> {
        let known = |rest: &str| {
            rest == "fstype"
                || SECRET_PURPOSES
                    .iter()
                    .map(|(purpose, _)| *purpose)
                    .chain([PROVISIONER, MODIFY])
                    .map(|purpose| format!("{purpose}-secret"))
                    .chain(["secret".to_owned()])
                    .any(|prefix| rest == format!("{prefix}-name") || rest == format!("{prefix}-namespace"))
        };
        let mut sorted = Self::default();
        let mut fs_type_key: Option<&str> = None;
        for (key, value) in parameters {
            let reserved = key.strip_prefix(CSI_PREFIX);
            if reserved.is_some_and(|rest| !known(rest)) {
                return Err(ParameterError::Unknown { key: key.clone() });
            }
            if reserved == Some("fstype") || key.eq_ignore_ascii_case("fstype") {
                if let Some(first) = fs_type_key.replace(key) {
                    return Err(ParameterError::FsTypeTwice {
                        first: first.to_owned(),
                        second: key.clone(),
                    });
                }
                sorted.fs_type = Some(value.clone()).filter(|value| !value.is_empty());
            }
            if reserved.is_none() {
                sorted.for_driver.insert(key.clone(), value.clone());
            }
        }
        let secret_for = |purpose| secret_for(purpose, parameters, volume, claim);
        sorted.provisioner_secret = secret_for(PROVISIONER)?;
        sorted.modify_secret = secret_for(MODIFY)?;
        for (purpose, field) in SECRET_PURPOSES {
            let found = secret_for(purpose)?;
            sorted.volume_secrets.extend(found.map(|found| (field, found)));
        }
        Ok(sorted)
    }
}

/// The secret for deleting a volume of a class. The claim may be gone: only its name and namespace are read.
///
/// # Errors
/// If the class specifies it incompletely, or with a placeholder that cannot be resolved.
pub fn deletion_secret(
    parameters: &BTreeMap<String, String>,
    volume: &str,
    claim: &ObjectMeta,
) -> Result<Option<SecretReference>, ParameterError> {
    secret_for(PROVISIONER, parameters, volume, claim)
}

/// The secret for a purpose, or the one for all purposes.
fn secret_for(
    purpose: &str,
    parameters: &BTreeMap<String, String>,
    volume: &str,
    claim: &ObjectMeta,
) -> Result<Option<SecretReference>, ParameterError> {
    let prefixed = |purpose: &str| {
        let name = format!("{CSI_PREFIX}{purpose}secret-name");
        secret(
            parameters,
            (name, format!("{CSI_PREFIX}{purpose}secret-namespace")),
            volume,
            claim,
        )
    };
    let found = match prefixed(&format!("{purpose}-"))? {
        Some(found) => Some(found),
        None => secret(parameters, older_keys(purpose), volume, claim)?,
    };
    match found {
        Some(found) => Ok(Some(found)),
        None => prefixed(""),
    }
}

/// The first names of these parameters, `csiNodeStageSecretName` for `node-stage`. Drivers receive them, too.
fn older_keys(purpose: &str) -> (String, String) {
    let words = purpose.split('-').map(|word| {
        let (first, rest) = word.split_at(1.min(word.len()));
        first.to_ascii_uppercase() + rest
    });
    let prefix = format!("csi{}Secret", words.collect::<String>());
    (format!("{prefix}Name"), format!("{prefix}Namespace"))
}

fn secret(
    parameters: &BTreeMap<String, String>,
    (name_key, namespace_key): (String, String),
    volume: &str,
    claim: &ObjectMeta,
) -> Result<Option<SecretReference>, ParameterError> {
    match (parameters.get(&name_key), parameters.get(&namespace_key)) {
        (None, None) => Ok(None),
        (Some(name), Some(namespace)) => Ok(Some(SecretReference {
            name: fill(&name_key, name, volume, claim, true)?,
            namespace: fill(&namespace_key, namespace, volume, claim, false)?,
        })),
        (Some(_), None) => Err(ParameterError::HalfSecret {
            given: name_key,
            missing: namespace_key,
        }),
        (None, Some(_)) => Err(ParameterError::HalfSecret {
            given: namespace_key,
            missing: name_key,
        }),
    }
}

/// Resolves `${...}`. A namespace may not come from fields that the claim's author controls, or users could point a
/// driver at other users' secrets.
fn fill(key: &str, template: &str, volume: &str, claim: &ObjectMeta, is_name: bool) -> Result<String, ParameterError> {
    let mut filled = String::new();
    let mut rest = template;
    while let Some(start) = rest.find("${") {
        filled.push_str(&rest[..start]);
        let Some(length) = rest[start..].find('}') else {
            break;
        };
        let placeholder = &rest[start..=start + length];
        let annotation = placeholder
            .strip_prefix("${pvc.annotations['")
            .and_then(|inner| inner.strip_suffix("']}"));
        let value = match (placeholder, annotation) {
            ("${pv.name}", _) => Some(volume),
            ("${pvc.namespace}", _) => Some(claim.namespace.as_str()),
            ("${pvc.name}", _) if is_name => Some(claim.name.as_str()),
            (_, Some(annotation)) if is_name => claim.annotation(annotation),
            _ => None,
        };
        let Some(value) = value else {
            return Err(ParameterError::Placeholder {
                key: key.to_owned(),
                placeholder: placeholder.to_owned(),
                known: if is_name {
                    "${pv.name}, ${pvc.namespace}, ${pvc.name} and ${pvc.annotations['KEY']} of an existing annotation"
                } else {
                    "${pv.name} and ${pvc.namespace}"
                },
            });
        };
        filled.push_str(value);
        rest = &rest[start + length + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sort(parameters: &[(&str, &str)]) -> Result<Parameters, ParameterError> {
        let claim: ObjectMeta =
            serde_json::from_str(r#"{"name":"data","namespace":"team","annotations":{"example.com/key":"s3"}}"#)
                .unwrap();
        let parameters = parameters
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Parameters::new(&parameters, "pvc-1", &claim)
    }

    #[test]
    fn older_names_of_secrets_are_known_and_the_driver_gets_them() {
        let sorted = sort(&[
            ("csiNodeStageSecretName", "stage"),
            ("csiNodeStageSecretNamespace", "${pvc.namespace}"),
            ("csi.storage.k8s.io/controller-modify-secret-name", "modify"),
            ("csi.storage.k8s.io/controller-modify-secret-namespace", "x"),
        ]);
        let sorted = sorted.unwrap();
        assert_eq!(
            sorted.volume_secrets["nodeStageSecretRef"].to_json(),
            json!({"name": "stage", "namespace": "team"})
        );
        assert_eq!(sorted.modify_secret.unwrap().name, "modify");
        assert_eq!(sorted.for_driver.len(), 2);
        assert_eq!(older_keys("controller-publish").0, "csiControllerPublishSecretName");
    }

    #[test]
    fn reserved_parameters_are_taken_out() {
        let sorted = sort(&[
            ("type", "fast"),
            ("csi.storage.k8s.io/fstype", "xfs"),
            ("csi.storage.k8s.io/provisioner-secret-name", "make-${pv.name}"),
            ("csi.storage.k8s.io/provisioner-secret-namespace", "${pvc.namespace}"),
            (
                "csi.storage.k8s.io/node-publish-secret-name",
                "${pvc.annotations['example.com/key']}",
            ),
            ("csi.storage.k8s.io/node-publish-secret-namespace", "storage"),
        ])
        .unwrap();
        assert_eq!(sorted.fs_type.as_deref(), Some("xfs"));
        assert_eq!(
            sorted.for_driver.into_iter().collect::<Vec<_>>(),
            [("type".into(), "fast".into())]
        );
        let made = sorted.provisioner_secret.unwrap();
        assert_eq!((made.namespace.as_str(), made.name.as_str()), ("team", "make-pvc-1"));
        assert_eq!(sorted.volume_secrets["nodePublishSecretRef"].name, "s3");
        assert_eq!(sorted.volume_secrets.len(), 1);
    }

    #[test]
    fn one_secret_serves_every_call() {
        let sorted = sort(&[
            ("csi.storage.k8s.io/secret-name", "all"),
            ("csi.storage.k8s.io/secret-namespace", "storage"),
            ("csi.storage.k8s.io/node-stage-secret-name", "stage"),
            ("csi.storage.k8s.io/node-stage-secret-namespace", "storage"),
        ])
        .unwrap();
        assert_eq!(sorted.provisioner_secret.unwrap().name, "all");
        assert_eq!(sorted.volume_secrets["nodeStageSecretRef"].name, "stage");
        assert_eq!(sorted.volume_secrets["nodeExpandSecretRef"].name, "all");
    }

    #[test]
    fn the_older_file_system_key_goes_to_the_driver_too() {
        let sorted = sort(&[("fsType", "ext4")]).unwrap();
        assert_eq!(sorted.fs_type.as_deref(), Some("ext4"));
        assert!(sorted.for_driver.contains_key("fsType"));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (parameters, words) in [
            (&[("csi.storage.k8s.io/speed", "fast")][..], "csi.storage.k8s.io/speed"),
            (
                &[("csi.storage.k8s.io/provisioner-secret-name", "x")],
                "provisioner-secret-namespace",
            ),
            (&[("fstype", "a"), ("csi.storage.k8s.io/fstype", "b")], "twice"),
            (
                &[
                    ("csi.storage.k8s.io/secret-name", "x"),
                    (
                        "csi.storage.k8s.io/secret-namespace",
                        "${pvc.annotations['example.com/key']}",
                    ),
                ],
                "secret-namespace",
            ),
            (
                &[
                    ("csi.storage.k8s.io/secret-name", "${pvc.uid}"),
                    ("csi.storage.k8s.io/secret-namespace", "x"),
                ],
                "${pvc.uid}",
            ),
        ] {
            let error = sort(parameters).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
