//! One object of any kind that Berth reads.

use super::{
    CsiDriver, CsiNode, CsiStorageCapacity, Namespace, Node, ObjectMeta, PersistentVolume, PersistentVolumeClaim, Pod,
    PodDisruptionBudget, PriorityClass, ReplicaSet, ReplicationController, Service, StatefulSet, StorageClass,
    VolumeAttachment,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

macro_rules! kinds {
    ($($kind:ident, $name:literal, $group:literal, $namespaced:literal;)*) => {
        /// The kinds that Berth reads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $(#[doc = concat!("`", $name, "`")] $kind,)* }

        /// An object of one of these kinds.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Object { $(#[doc = concat!("A ", $name, ".")] $kind(Box<$kind>),)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The kind as Kubernetes spells it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The kind of this name, if Berth reads it.
            #[must_use]
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$kind),)*
                    _ => None,
                }
            }

            /// The API group, empty for the core one.
            #[must_use]
            pub fn group(self) -> &'static str {
                match self { $(Self::$kind => $group,)* }
            }

            /// `v1`, or the group with its version. Every kind that Berth reads is served as `v1`.
            #[must_use]
            pub fn api_version(self) -> Cow<'static, str> {
                match self.group() {
                    "" => Cow::Borrowed("v1"),
                    group => Cow::Owned(format!("{group}/v1")),
                }
            }

            /// Whether its objects are namespaced.
            #[must_use]
            pub fn is_namespaced(self) -> bool {
                match self { $(Self::$kind => $namespaced,)* }
            }
        }

        impl Object {
            /// The kind of the object.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)* }
            }

            /// The metadata of the object.
            #[must_use]
            pub fn metadata(&self) -> &ObjectMeta {
                match self { $(Self::$kind(object) => &object.metadata,)* }
            }

            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                match self { $(Self::$kind(object) => &mut object.metadata,)* }
            }

            fn of_kind(kind: Kind, value: &Value) -> Result<Self, DecodeError> {
                Ok(match kind { $(Kind::$kind => Self::$kind(Box::new(typed(kind, value)?)),)* })
            }
        }

        $(impl From<$kind> for Object {
            fn from(object: $kind) -> Self { Self::$kind(Box::new(object)) }
        })*
    };
}

kinds! {
    Node, "Node", "", false;
    Pod, "Pod", "", true;
    PersistentVolume, "PersistentVolume", "", false;
    PersistentVolumeClaim, "PersistentVolumeClaim", "", true;
    StorageClass, "StorageClass", "storage.k8s.io", false;
    CsiNode, "CSINode", "storage.k8s.io", false;
    CsiDriver, "CSIDriver", "storage.k8s.io", false;
    CsiStorageCapacity, "CSIStorageCapacity", "storage.k8s.io", true;
    VolumeAttachment, "VolumeAttachment", "storage.k8s.io", false;
    Namespace, "Namespace", "", false;
    PriorityClass, "PriorityClass", "scheduling.k8s.io", false;
    Service, "Service", "", true;
    ReplicationController, "ReplicationController", "", true;
    ReplicaSet, "ReplicaSet", "apps", true;
    StatefulSet, "StatefulSet", "apps", true;
    PodDisruptionBudget, "PodDisruptionBudget", "policy", true;
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a value is not an object that Berth can read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is not an object, or has no kind.
    #[error("{what}: {problem}")]
    NotAnObject {
        /// What was found.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// One of its fields is invalid.
    #[error("{kind} {name:?}: {field}: {problem}")]
    Field {
        /// The object's kind.
        kind: Kind,
        /// The object's name with its namespace, as far as it could be read.
        name: String,
        /// The path of the field.
        field: String,
        /// What was found and what was expected.
        problem: String,
    },
}

impl Object {
    /// Decodes one object. Returns `Ok(None)` for a kind that Berth does not read.
    ///
    /// Namespaced objects without a namespace get `default`, as in kubectl.
    ///
    /// # Errors
    /// If the value is not a Kubernetes object, or a field that decisions read is invalid.
    pub fn decode(value: &Value) -> Result<Option<Self>, DecodeError> {
        let Some(kind_name) = value.get("kind").and_then(Value::as_str) else {
            return Err(not_an_object(value, "expected an object with `apiVersion` and `kind`"));
        };
        let Some(api_version) = value.get("apiVersion").and_then(Value::as_str) else {
            return Err(not_an_object(
                value,
                "expected `apiVersion` in addition to `kind`, such as `v1`",
            ));
        };
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let Some(kind) = Kind::ALL
            .iter()
            .copied()
            .find(|kind| kind.name() == kind_name && kind.group() == group)
        else {
            return Ok(None);
        };
        let mut object = Self::of_kind(kind, value)?;
        let metadata = object.metadata_mut();
        if kind.is_namespaced() && metadata.namespace.is_empty() {
            metadata.namespace = "default".to_owned();
        } else if !kind.is_namespaced() {
            metadata.namespace.clear();
        }
        if metadata.name.is_empty() {
            return Err(object.field_error("metadata.name", "expected the object's name"));
        }
        object.validate()?;
        Ok(Some(object))
    }

    /// An error about one field of this object.
    #[must_use]
    pub fn field_error(&self, field: impl Into<String>, problem: impl Into<String>) -> DecodeError {
        DecodeError::Field {
            kind: self.kind(),
            name: self.metadata().full_name(),
            field: field.into(),
            problem: problem.into(),
        }
    }
}

fn not_an_object(value: &Value, problem: &str) -> DecodeError {
    let what = match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    };
    DecodeError::NotAnObject {
        what: what.to_owned(),
        problem: problem.to_owned(),
    }
}

fn typed<T: DeserializeOwned>(kind: Kind, value: &Value) -> Result<T, DecodeError> {
    // Tracking the field path costs a quarter more time, and only errors need it.
    T::deserialize(value).or_else(|_| {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let name = match (text("/metadata/namespace"), text("/metadata/name")) {
            ("", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        };
        serde_path_to_error::deserialize(value).map_err(|error| DecodeError::Field {
            kind,
            name,
            field: error.path().to_string(),
            problem: error.inner().to_string(),
        })
    })
}
