//! How objects are named inside the controller.

use berth_core::api::{ObjectMeta, ObjectReference};
use std::fmt;

/// A name with its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl NamespacedName {
    /// A name in a namespace.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The name of an object.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self::new(&metadata.namespace, &metadata.name)
    }

    /// The claim that a volume refers to.
    #[must_use]
    pub fn referred(reference: &ObjectReference) -> Self {
        Self::new(&reference.namespace, &reference.name)
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a step is about. Steps of one key never run at the same time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A claim.
    Claim(NamespacedName),
    /// A volume.
    Volume(String),
    /// A pod, for the claims of its ephemeral volumes.
    Pod(NamespacedName),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(name) => write!(f, "PersistentVolumeClaim {name}"),
            Self::Volume(name) => write!(f, "PersistentVolume {name}"),
            Self::Pod(name) => write!(f, "Pod {name}"),
        }
    }
}
