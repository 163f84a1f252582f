//! What a step asks for, as data. `lower` puts it into the language of writes.
//!
//! Actions are carried out in order, and the first one that is refused ends the list: the next step on the same object
//! finds what is left to do. A [`Change`] holds for the version of the object that it was decided on. After a
//! conflict the fresh object goes into the state, and the step is run again.

use crate::request::Backing;
use crate::topology::Requirement;
use berth_core::effect::Effect;
use serde::{Deserialize, Serialize};

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write to the API, or ask it.
    Api(Effect),
    /// Delete a volume in the backend.
    DeleteBacking(Backing),
}

/// What a backend was asked for, kept on the claim while a volume may exist that the cluster does not
/// know. After a crash the very same is asked again, even if the node is gone by then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The selected node.
    pub node: Option<String>,
    /// Where the volume must be reachable.
    pub requirement: Option<Requirement>,
    /// The attempt of a pod that held the claim when it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_for: Option<String>,
    /// Only the best places were kept: there are more, and as long as the node is there they can be found again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// How many terms are kept. An annotation holds 256 KiB with all others, and a term is some hundred bytes long, so
/// these take a few per cent; a cluster whose nodes are segments of their own has thousands.
const MOST_TERMS: usize = 32;

impl Intent {
    /// An intent that is small enough to be kept on a claim.
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
    /// A claim: nothing is left in the backend that the cluster does not know.
    ForgetAttempt {
        /// The scheduler is to choose anew, if this is the node.
        reject_node: Option<String>,
    },
    /// A volume: keep the object until the backend is clean.
    ProtectVolume,
    /// A volume: the backend is clean, or not to be touched.
    ReleaseVolume,
}

/// Why an event was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The backend is asked for a volume.
    Provisioning,
    /// There is a volume.
    ProvisioningSucceeded,
    /// There is none.
    ProvisioningFailed,
    /// The backend did not delete a volume.
    VolumeFailedDelete,
}

impl Reason {
    /// Every reason.
    pub const ALL: &[Self] = &[
        Self::Provisioning,
        Self::ProvisioningSucceeded,
        Self::ProvisioningFailed,
        Self::VolumeFailedDelete,
    ];

    /// The word of the Kubernetes API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Provisioning => "Provisioning",
            Self::ProvisioningSucceeded => "ProvisioningSucceeded",
            Self::ProvisioningFailed => "ProvisioningFailed",
            Self::VolumeFailedDelete => "VolumeFailedDelete",
        }
    }
}
