//! What a step requests, as data. `lower` converts it to effects.
//!
//! Actions are carried out in order, and the first refused one ends the list: the next step on the same object finds
//! the remaining work. A [`Change`] is valid for the version of the object that was decided on. After a conflict the
//! fresh object is applied to the state, and the step is run again.

use crate::request::Backing;
use crate::source::Content;
use crate::topology::Requirement;
use berth_core::effect::{Effect, ObjectKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write to the API, or query it.
    Api(Effect),
    /// Delete a volume in the backend.
    DeleteBacking(Backing),
    /// Let a snapshot be deleted, from which a volume was created.
    Unprotect(ObjectKey),
}

/// The request to a backend, kept on the claim while a volume may exist that the cluster does not know. After a crash
/// exactly the same request is repeated, even if the node is gone by then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The selected node.
    pub node: Option<String>,
    /// Where the volume must be reachable.
    pub requirement: Option<Requirement>,
    /// The attempt that held the claim when the volume was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_for: Option<String>,
    /// What the volume is filled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// The parameters of the volume attributes class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mutable_parameters: BTreeMap<String, String>,
    /// Only the best places were kept: there are more, and they can be found again as long as the node exists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// Maximum number of recorded terms. All annotations together are limited to 256 KiB, and a term takes some hundred
/// bytes, so these take a few per cent. A cluster in which each node is a segment has thousands.
const MOST_TERMS: usize = 32;

impl Intent {
    /// An intent that is small enough for an annotation.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let mut bounded = self.clone();
        if let Some(requirement) = bounded
            .requirement
            .as_mut()
            .filter(|all| all.requisite.len() > MOST_TERMS)
        {
            requirement.preferred.truncate(MOST_TERMS);
            requirement.requisite = requirement.preferred.clone();
            bounded.partial = true;
        }
        bounded
    }
}

/// What changes about a claim or a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A claim: the backend is about to be asked.
    RecordAttempt(Intent),
    /// A claim: the backend has nothing that the cluster does not know.
    ForgetAttempt {
        /// Clear the selected node if it is this one, so that the scheduler chooses again.
        reject_node: Option<String>,
    },
    /// A claim: the volume is created on this node.
    SelectNode {
        /// The node.
        node: String,
    },
    /// A claim: keep it while its volume is being cloned.
    ProtectSource,
    /// A claim: no clone of its volume is being made any more.
    ReleaseSource,
    /// A volume: keep the object until its storage is deleted.
    ProtectVolume,
    /// A volume: its storage is deleted, or must be kept.
    ReleaseVolume,
}

/// Why an event was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A volume is being requested from the backend.
    Provisioning,
    /// The volume was created.
    ProvisioningSucceeded,
    /// The volume was created, but the selected node cannot reach it.
    ProvisionedElsewhere,
    /// No volume was created.
    ProvisioningFailed,
    /// The backend did not delete a volume.
    VolumeFailedDelete,
    /// The volume was expanded.
    VolumeResizeSuccessful,
    /// The volume was not expanded.
    VolumeResizeFailed,
}

impl Reason {
    /// Every reason.
    pub const ALL: &[Self] = &[
        Self::Provisioning,
        Self::ProvisioningSucceeded,
        Self::ProvisionedElsewhere,
        Self::ProvisioningFailed,
        Self::VolumeFailedDelete,
        Self::VolumeResizeSuccessful,
        Self::VolumeResizeFailed,
    ];

    /// The name in the Kubernetes API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Provisioning => "Provisioning",
            Self::ProvisioningSucceeded => "ProvisioningSucceeded",
            Self::ProvisionedElsewhere => "ProvisionedElsewhere",
            Self::ProvisioningFailed => "ProvisioningFailed",
            Self::VolumeFailedDelete => "VolumeFailedDelete",
            Self::VolumeResizeSuccessful => "VolumeResizeSuccessful",
            Self::VolumeResizeFailed => "VolumeResizeFailed",
        }
    }
}
