//! Why a pod's volumes exclude it from a node, or from the cluster. Each reason has a stable code and one wording.

use std::fmt;

/// A reason related to volumes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeReason {
    /// A bound volume cannot be reached from the node.
    NodeConflict,
    /// A claim finds no volume on the node, and none can be provisioned for it there.
    BindConflict,
    /// The pools that the node can reach are too small.
    NotEnoughSpace,
    /// A claim is bound to a volume that does not exist.
    VolumeNotFound,
    /// A claim that should already be bound is not.
    UnboundImmediateClaims,
    /// The pod refers to a claim that does not exist.
    ClaimNotFound {
        /// The claim's name.
        claim: Box<str>,
    },
    /// The claim for an ephemeral volume does not exist yet.
    EphemeralClaimNotFound {
        /// The claim's name.
        claim: Box<str>,
    },
    /// A claim's volume is gone.
    ClaimLost {
        /// The claim's name.
        claim: Box<str>,
        /// The volume's name.
        volume: Box<str>,
    },
    /// A claim is being deleted.
    ClaimDeleting {
        /// The claim's name.
        claim: Box<str>,
    },
    /// The claim for an ephemeral volume belongs to another object.
    ClaimNotOwned {
        /// The claim's namespace and name.
        claim: Box<str>,
        /// The pod's namespace and name.
        pod: Box<str>,
    },
    /// The CSI driver that replaces a volume's plugin cannot serve it.
    NotTranslatable {
        /// The volume's name.
        volume: Box<str>,
        /// Why.
        problem: Box<str>,
    },
}

impl VolumeReason {
    /// One reason of each kind, to list codes and wordings.
    #[must_use]
    pub fn samples() -> Vec<Self> {
        let claim: Box<str> = "CLAIM".into();
        vec![
            Self::NodeConflict,
            Self::BindConflict,
            Self::NotEnoughSpace,
            Self::VolumeNotFound,
            Self::UnboundImmediateClaims,
            Self::ClaimNotFound { claim: claim.clone() },
            Self::EphemeralClaimNotFound { claim: claim.clone() },
            Self::ClaimLost {
                claim: claim.clone(),
                volume: "VOLUME".into(),
            },
            Self::ClaimDeleting { claim },
            Self::ClaimNotOwned {
                claim: "NAMESPACE/CLAIM".into(),
                pod: "NAMESPACE/POD".into(),
            },
            Self::NotTranslatable {
                volume: "VOLUME".into(),
                problem: "PROBLEM".into(),
            },
        ]
    }

    /// The stable code of the reason.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NodeConflict => "VolumeBinding.NodeConflict",
            Self::BindConflict => "VolumeBinding.BindConflict",
            Self::NotEnoughSpace => "VolumeBinding.NotEnoughSpace",
            Self::VolumeNotFound => "VolumeBinding.VolumeNotFound",
            Self::UnboundImmediateClaims => "VolumeBinding.UnboundImmediateClaims",
            Self::ClaimNotFound { .. } => "VolumeBinding.ClaimNotFound",
            Self::EphemeralClaimNotFound { .. } => "VolumeBinding.EphemeralClaimNotFound",
            Self::ClaimLost { .. } => "VolumeBinding.ClaimLost",
            Self::ClaimDeleting { .. } => "VolumeBinding.ClaimDeleting",
            Self::ClaimNotOwned { .. } => "VolumeBinding.ClaimNotOwned",
            Self::NotTranslatable { .. } => "VolumeBinding.NotTranslatable",
        }
    }
}

impl fmt::Display for VolumeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeConflict => f.write_str("node(s) didn't match PersistentVolume's node affinity"),
            Self::BindConflict => f.write_str("node(s) didn't find available persistent volumes to bind"),
            Self::NotEnoughSpace => f.write_str("node(s) did not have enough free storage"),
            Self::VolumeNotFound => {
                f.write_str("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
            }
            Self::UnboundImmediateClaims => f.write_str("pod has unbound immediate PersistentVolumeClaims"),
            Self::ClaimNotFound { claim } => write!(f, "persistentvolumeclaim {claim:?} not found"),
            Self::EphemeralClaimNotFound { claim } => write!(
                f,
                "waiting for ephemeral volume controller to create the persistentvolumeclaim {claim:?}"
            ),
            Self::ClaimLost { claim, volume } => write!(
                f,
                "persistentvolumeclaim {claim:?} bound to non-existent persistentvolume {volume:?}"
            ),
            Self::ClaimDeleting { claim } => write!(f, "persistentvolumeclaim {claim:?} is being deleted"),
            Self::ClaimNotOwned { claim, pod } => {
                write!(f, "PVC {claim} was not created for pod {pod} (pod is not owner)")
            }
            Self::NotTranslatable { volume, problem } => write!(f, "could not translate pv {volume:?}: {problem}"),
        }
    }
}
