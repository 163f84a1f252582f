//! The interface between decisions and backends: what a provisioner is asked for, and how it responds.
//!
//! A request contains the claim, the class, the selected node with its labels and the allowed topologies. The response
//! is a volume with the places it can be reached from, or a failure that is final or can be retried.

use crate::parameters::Parameters;
use crate::source::Content;
use crate::topology::{Requirement, Segment};
use berth_core::api::{Node, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim, StorageClass};
use berth_core::migration::InTreePlugin;
use std::collections::BTreeMap;

/// A request for a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The volume's name. It is derived from the claim's UID, so a repeated request is for the same volume.
    pub name: String,
    /// The claim.
    pub claim: PersistentVolumeClaim,
    /// Its class, with the effective allowed topologies, however the class specifies them. A class of a migrated in-tree plugin is in
    /// the form that the CSI driver reads.
    pub class: StorageClass,
    /// The in-tree plugin of the class, if its driver is asked: the volume's object gets the form of the plugin's volumes.
    pub migrated: Option<InTreePlugin>,
    /// The class's parameters, parsed.
    pub parameters: Parameters,
    /// The node that the scheduler chose, if it still exists.
    pub selected_node: Option<Node>,
    /// Where the volume must be reachable, for drivers with topology support.
    pub requirement: Option<Requirement>,
    /// The size.
    pub bytes: i64,
    /// The attempt that the volume is created for, if the claim is held.
    pub held_for: Option<String>,
    /// What the volume is filled with; `None` for an empty volume.
    pub content: Option<Content>,
    /// The parameters of its attributes class.
    pub mutable_parameters: BTreeMap<String, String>,
}

impl Request {
    /// Whether the claim requests a block device instead of a file system.
    #[must_use]
    pub fn is_block(&self) -> bool {
        self.claim.spec.volume_mode.as_deref() == Some("Block")
    }
}

/// How volumes are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// The first part of the name.
    pub prefix: String,
    /// The number of characters of the claim's UID, without dashes; `None` for the UID as it is.
    pub uid_length: Option<usize>,
}

impl Default for Naming {
    fn default() -> Self {
        Self {
            prefix: "pvc".to_owned(),
            uid_length: None,
        }
    }
}

impl Naming {
    /// The name of the volume for a claim.
    #[must_use]
    pub fn volume(&self, claim: &PersistentVolumeClaim) -> String {
        let (prefix, metadata) = (&self.prefix, &claim.metadata);
        if metadata.uid.is_empty() {
            // Objects from files may have no UID; namespace and name are unique as well.
            return format!("{prefix}-{}-{}", metadata.namespace, metadata.name);
        }
        match self.uid_length {
            None => format!("{prefix}-{}", metadata.uid),
            Some(length) => {
                let uid: String = metadata.uid.chars().filter(|one| *one != '-').take(length).collect();
                format!("{prefix}-{uid}")
            }
        }
    }
}

/// Labels with their accepted values, ANDed.
pub type Place = BTreeMap<String, Vec<String>>;

/// A provisioned volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The backend's name for it.
    pub handle: String,
    /// Its size; zero if the backend does not report it.
    pub bytes: i64,
    /// Its storage.
    pub source: Source,
    /// The places it can be reached from, ORed. Empty means everywhere.
    pub accessible: Vec<Place>,
    /// It was filled with the requested content.
    pub filled: bool,
}

/// The storage of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A CSI driver.
    Csi {
        /// The driver.
        driver: String,
        /// The driver's attributes of the volume.
        attributes: BTreeMap<String, String>,
    },
    /// A Google disk.
    GcePersistentDisk,
    /// A path on a node.
    Local {
        /// The path on the node.
        path: String,
    },
}

/// Places from the segments of a driver.
#[must_use]
pub fn places(segments: impl IntoIterator<Item = Segment>) -> Vec<Place> {
    segments
        .into_iter()
        .filter(|segment| !segment.is_empty())
        .map(|segment| segment.into_iter().map(|(key, value)| (key, vec![value])).collect())
        .collect()
}

/// The places from which a volume of the cluster can be reached. Empty means everywhere.
#[must_use]
pub fn places_of(volume: &PersistentVolume) -> Vec<Place> {
    let affinity = volume.spec.node_affinity.as_ref().and_then(|one| one.required.as_ref());
    let terms = affinity.map_or(&[][..], |selector| &selector.node_selector_terms);
    let place = |term: &NodeSelectorTerm| {
        let pairs = term.match_expressions.iter();
        pairs.map(|one| (one.key.clone(), one.values.clone())).collect()
    };
    terms.iter().map(place).collect()
}

/// Why provisioning failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What it means for the claim.
    pub kind: FailureKind,
    /// A message for the user.
    pub message: String,
}

/// What a failure means for the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No volume was created and none is being created: the pod should be placed elsewhere.
    Final,
    /// A volume may exist or be in progress: only repeating the same request can tell.
    InDoubt,
    /// The backend itself reports failure, but not that it left nothing behind. Retried while the claim exists; does not
    /// block deletion of the claim.
    Unclear,
    /// The backend was not asked: the same request is retried later.
    NotAsked,
}

impl Failure {
    /// No volume was created.
    #[must_use]
    pub fn last(message: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Final,
            message: message.into(),
        }
    }

    /// The result is unknown.
    #[must_use]
    pub fn in_doubt(message: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::InDoubt,
            message: message.into(),
        }
    }

    /// The backend failed for an unspecified reason.
    #[must_use]
    pub fn unclear(message: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Unclear,
            message: message.into(),
        }
    }

    /// The backend was not asked.
    #[must_use]
    pub fn not_asked(message: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::NotAsked,
            message: message.into(),
        }
    }
}

/// A volume in the backend that must be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backing {
    /// The backend's name for it.
    pub handle: String,
    /// The credentials required for deletion.
    pub secret: Option<crate::parameters::SecretReference>,
}
