//! The interface between deciding and making: what a provisioner is asked for, and what it answers.
//!
//! A request carries the claim, the class, the selected node with its
//! labels and the allowed topologies; the answer is a volume with the places it can be reached from,
//! or a failure that is final or to be tried again.

use crate::parameters::Parameters;
use crate::topology::{Requirement, Segment};
use berth_core::api::{Node, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim, StorageClass};
use std::collections::BTreeMap;

/// Asks for a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The volume's name. It comes from the claim's uid, so asking twice asks for the same volume.
    pub name: String,
    /// The claim.
    pub claim: PersistentVolumeClaim,
    /// Its class. The allowed topologies are those in effect, in whatever way the class names them.
    pub class: StorageClass,
    /// The class's parameters, sorted out.
    pub parameters: Parameters,
    /// The node that the scheduler chose, if it still exists.
    pub selected_node: Option<Node>,
    /// Where the volume must be reachable, for drivers that know topology.
    pub requirement: Option<Requirement>,
    /// The size.
    pub bytes: i64,
    /// The attempt of a pod that the volume is made for, if the claim is held.
    pub held_for: Option<String>,
}

impl Request {
    /// Whether the claim asks for a device instead of a file system.
    #[must_use]
    pub fn is_block(&self) -> bool {
        self.claim.spec.volume_mode.as_deref() == Some("Block")
    }
}

/// The name of the volume that is made for a claim.
#[must_use]
pub fn volume_name(claim: &PersistentVolumeClaim) -> String {
    if claim.metadata.uid.is_empty() {
        // Objects from files may have no uid; namespace and name tell them apart as well.
        format!("pvc-{}-{}", claim.metadata.namespace, claim.metadata.name)
    } else {
        format!("pvc-{}", claim.metadata.uid)
    }
}

/// Labels with the values that will do, ANDed.
pub type Place = BTreeMap<String, Vec<String>>;

/// A volume that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The backend's name for it.
    pub handle: String,
    /// Its size; zero if the backend does not know.
    pub bytes: i64,
    /// Where its bytes are.
    pub source: Source,
    /// The places it can be reached from, ORed. None means everywhere.
    pub accessible: Vec<Place>,
}

/// Where a volume's bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// With a CSI driver.
    Csi {
        /// The driver.
        driver: String,
        /// The driver's own words about the volume.
        attributes: BTreeMap<String, String>,
    },
    /// On a Google disk.
    GcePersistentDisk,
    /// On a node.
    Local {
        /// Where on the node.
        path: String,
    },
}

/// Places from the segments that a driver names.
#[must_use]
pub fn places(segments: impl IntoIterator<Item = Segment>) -> Vec<Place> {
    segments
        .into_iter()
        .filter(|segment| !segment.is_empty())
        .map(|segment| segment.into_iter().map(|(key, value)| (key, vec![value])).collect())
        .collect()
}

/// The places from which a volume of the cluster can be reached. None means everywhere.
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

/// Why there is no volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What it means for the claim.
    pub kind: FailureKind,
    /// For the user.
    pub message: String,
}

/// What a failure means for the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No volume was made and none is being made: the pod had better go elsewhere.
    Final,
    /// A volume may exist or be under way: only asking again for the same one can tell.
    InDoubt,
    /// The backend itself says that it failed, but not that it left nothing behind. Asked again while the claim is there;
    /// not kept up by it when the claim is to go.
    Unclear,
    /// The backend was not asked at all: the same is tried again later.
    NotAsked,
}

impl Failure {
    /// No volume was made.
    #[must_use]
    pub fn last(message: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Final,
            message: message.into(),
        }
    }

    /// Nobody knows.
    #[must_use]
    pub fn in_doubt(message: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::InDoubt,
            message: message.into(),
        }
    }

    /// The backend failed somehow.
    #[must_use]
    pub fn unclear(message: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Unclear,
            message: message.into(),
        }
    }

    /// Nothing was asked.
    #[must_use]
    pub fn not_asked(message: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::NotAsked,
            message: message.into(),
        }
    }
}

/// A volume in the backend that is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backing {
    /// The backend's name for it.
    pub handle: String,
    /// The credentials that deleting needs.
    pub secret: Option<crate::parameters::SecretReference>,
}
