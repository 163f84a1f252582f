//! What happened: the changes of rows that a timeline tells.

use crate::rows::{ClaimRow, NodeRow, PodRow, VolumeRow};
use serde::Serialize;

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Moment {
    /// A pod came and waits for a node.
    PodWaits {
        /// `namespace/name`
        pod: String,
    },
    /// A pod got a node.
    PodPlaced {
        /// `namespace/name`
        pod: String,
        /// Its node.
        node: String,
        /// How long it waited, in milliseconds, if it was seen to come.
        #[serde(skip_serializing_if = "Option::is_none")]
        waited: Option<i64>,
    },
    /// A pod ended badly.
    PodFailed {
        /// `namespace/name`
        pod: String,
        /// Its node.
        node: String,
    },
    /// A pod is gone.
    PodGone {
        /// `namespace/name`
        pod: String,
        /// The node it had; empty if it had none.
        node: String,
    },
    /// A node was selected for the volume of a claim.
    NodeSelected {
        /// `namespace/name`
        claim: String,
        /// The node.
        node: String,
    },
    /// A claim got its volume.
    ClaimBound {
        /// `namespace/name`
        claim: String,
        /// The volume.
        volume: String,
    },
    /// A volume was made.
    VolumeMade {
        /// Its name.
        volume: String,
    },
    /// A volume is gone.
    VolumeGone {
        /// Its name.
        volume: String,
    },
    /// A node came.
    NodeAdded {
        /// Its name.
        node: String,
    },
    /// A node is gone.
    NodeGone {
        /// Its name.
        node: String,
    },
    /// A node became ready, or is no longer.
    NodeReady {
        /// Its name.
        node: String,
        /// Whether it is ready.
        ready: bool,
    },
    /// A node takes no new pods, or takes them again.
    NodeCordoned {
        /// Its name.
        node: String,
        /// Whether it takes none.
        cordoned: bool,
    },
}

impl Moment {
    pub(crate) fn of_node(name: &str, before: Option<&NodeRow>, after: Option<&NodeRow>) -> Vec<Self> {
        let node = name.to_owned();
        let (before, after) = match (before, after) {
            (None, None) => return Vec::new(),
            (None, Some(_)) => return vec![Self::NodeAdded { node }],
            (Some(_), None) => return vec![Self::NodeGone { node }],
            (Some(before), Some(after)) => (before, after),
        };
        let ready = (before.ready != after.ready).then(|| Self::NodeReady {
            node: node.clone(),
            ready: after.ready,
        });
        let cordoned = (before.cordoned != after.cordoned).then_some(Self::NodeCordoned {
            node,
            cordoned: after.cordoned,
        });
        ready.into_iter().chain(cordoned).collect()
    }

    pub(crate) fn of_pod(
        name: &str,
        before: Option<&PodRow>,
        after: Option<&PodRow>,
        waited: Option<i64>,
    ) -> Option<Self> {
        let pod = name.to_owned();
        let had_node = before.is_some_and(|before| !before.node.is_empty());
        let Some(after) = after else {
            let node = before?.node.clone();
            return Some(Self::PodGone { pod, node });
        };
        let failed = |row: &PodRow| row.phase == "Failed";
        let node = after.node.clone();
        if !had_node && !node.is_empty() {
            return Some(Self::PodPlaced { pod, node, waited });
        }
        if failed(after) && !before.is_some_and(failed) {
            return Some(Self::PodFailed { pod, node });
        }
        (before.is_none() && after.is_waiting()).then_some(Self::PodWaits { pod })
    }

    pub(crate) fn of_claim(name: &str, before: Option<&ClaimRow>, after: Option<&ClaimRow>) -> Option<Self> {
        let (claim, after) = (name.to_owned(), after?);
        let bound = |row: &ClaimRow| row.phase == "Bound";
        if bound(after) && !before.is_some_and(bound) {
            let volume = after.volume.clone();
            return Some(Self::ClaimBound { claim, volume });
        }
        let node = after.selected_node.clone();
        let is_news = !node.is_empty() && before.is_none_or(|before| before.selected_node != node);
        is_news.then_some(Self::NodeSelected { claim, node })
    }

    pub(crate) fn of_volume(name: &str, before: Option<&VolumeRow>, after: Option<&VolumeRow>) -> Option<Self> {
        let volume = name.to_owned();
        match (before, after) {
            (None, Some(_)) => Some(Self::VolumeMade { volume }),
            (Some(_), None) => Some(Self::VolumeGone { volume }),
            (Some(_), Some(_)) | (None, None) => None,
        }
    }
}
