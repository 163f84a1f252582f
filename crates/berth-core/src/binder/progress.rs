//! Carrying a decision out: what has to be written, in which order, when it is done, and what breaks it.
//!
//! ```text
//!   assume ──▶ writes: volumes reserved ──all taken──▶ writes: nodes selected ──all taken──▶ progress: waiting ──▶ bound
//!                 │                                       │                                       │
//!                 └────────── refused, or something gone or changed: revert, and decide anew ─────┘
//! ```
//!
//! Volumes are reserved first, and nodes selected for claims only when every volume is: a reservation can be lost to
//! another writer, and a volume that is being made cannot be taken back. Nothing here writes or waits: whoever uses it
//! sends the writes, reports what the API server took, and asks again when a watched object changed.

use super::{Assumption, VolumeBinder};
use crate::model::{ClaimId, VolumeId};

/// An object that is written while a decision is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteTarget {
    /// A volume that is reserved for a claim.
    Volume(VolumeId),
    /// A claim for which a node is selected.
    Claim(ClaimId),
}

/// Something to be written so that a decision comes true. Whoever carries decisions out has to know all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeWrite {
    /// Set a volume's `claimRef`, if the volume is still at this version.
    ReserveVolume {
        /// The volume.
        volume: String,
        /// Its version, 0 if not known.
        version: u64,
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        claim: String,
        /// The claim's uid.
        uid: String,
    },
    /// Mark a claim with the node that its volume is to be made for, if the claim is still at this version.
    SelectNode {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        claim: String,
        /// Its version, 0 if not known.
        version: u64,
        /// The node.
        node: String,
    },
}

/// How far the claims of a decision are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Some claim is not bound yet.
    Waiting,
    /// All claims are bound: the pod may be.
    Bound,
}

/// Why a decision cannot come true any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindingError {
    /// The node is gone.
    #[error("the chosen node is gone")]
    NodeGone,
    /// A claim is gone.
    #[error("a claim of the pod was deleted")]
    ClaimGone,
    /// A claim is going.
    #[error("claim {0:?} is being deleted")]
    ClaimDeleting(Box<str>),
    /// Whoever makes the claim's volume could not make it for the node, and asks for another one.
    #[error("selected-node of claim {0:?} was cleared")]
    SelectionCleared(Box<str>),
    /// Somebody selected another node.
    #[error("selected-node of claim {0:?} was changed")]
    SelectionChanged(Box<str>),
    /// The chosen volume is gone.
    #[error("the volume chosen for claim {0:?} was deleted")]
    VolumeGone(Box<str>),
    /// Somebody else has the chosen volume.
    #[error("volume {volume:?} is no longer reserved for claim {claim:?}")]
    VolumeLost {
        /// The volume.
        volume: Box<str>,
        /// The claim.
        claim: Box<str>,
    },
}

impl VolumeBinder {
    /// What is to be written now: all reservations that the API server has not taken yet, or if it has taken all of
    /// them, all selections that it has not. None are left when everything is written. Report what was taken with
    /// [`Assumption::written`], and ask again when all these writes are answered.
    ///
    /// # Errors
    /// If something is gone that the decision needs: then the assumption is to be reverted.
    pub fn writes(&self, assumption: &Assumption) -> Result<Vec<(WriteTarget, VolumeWrite)>, BindingError> {
        if self.nodes.name(assumption.node) != assumption.node_name {
            return Err(BindingError::NodeGone);
        }
        let mut writes = Vec::new();
        for (claim, volume) in &assumption.decision.bindings {
            if !assumption.volumes().contains(volume) {
                continue;
            }
            let claim = self.claim(*claim).ok_or(BindingError::ClaimGone)?;
            let found = self.volume(*volume);
            let found = found.ok_or_else(|| BindingError::VolumeGone(claim.name.clone()))?;
            let write = VolumeWrite::ReserveVolume {
                volume: found.name.to_string(),
                version: found.version,
                namespace: self.symbols.text(claim.namespace).to_owned(),
                claim: claim.name.to_string(),
                uid: claim.uid.to_string(),
            };
            writes.push((WriteTarget::Volume(*volume), write));
        }
        if !writes.is_empty() {
            return Ok(writes);
        }
        for id in assumption.claims() {
            let claim = self.claim(*id).ok_or(BindingError::ClaimGone)?;
            let write = VolumeWrite::SelectNode {
                namespace: self.symbols.text(claim.namespace).to_owned(),
                claim: claim.name.to_string(),
                version: claim.version,
                node: self.symbols.text(assumption.node_name).to_owned(),
            };
            writes.push((WriteTarget::Claim(*id), write));
        }
        Ok(writes)
    }

    /// How far the claims are when everything is written: each must be bound, or still be on its way to what was decided.
    ///
    /// # Errors
    /// If the decision cannot come true any more: then the assumption is to be reverted.
    pub fn progress(&self, assumption: &Assumption) -> Result<Progress, BindingError> {
        if self.nodes.name(assumption.node) != assumption.node_name {
            return Err(BindingError::NodeGone);
        }
        let decision = &assumption.decision;
        let mut progress = Progress::Bound;
        let bindings = decision.bindings.iter().map(|(claim, _)| *claim);
        for id in bindings.chain(decision.provisions.iter().copied()) {
            let claim = self.claim(id).ok_or(BindingError::ClaimGone)?;
            if claim.deleting {
                return Err(BindingError::ClaimDeleting(claim.name.clone()));
            }
            if claim.is_bound() {
                continue;
            }
            progress = Progress::Waiting;
            let provisioned = decision.provisions.contains(&id);
            let selected = claim.selected_node;
            if provisioned
                && selected != assumption.node_name
                && !assumption.is_behind(WriteTarget::Claim(id), claim.version)
            {
                return Err(if selected.is_empty() {
                    BindingError::SelectionCleared(claim.name.clone())
                } else {
                    BindingError::SelectionChanged(claim.name.clone())
                });
            }
        }
        for (claim, id) in &decision.bindings {
            let Some(claim) = self.claim(*claim).filter(|claim| !claim.is_bound()) else {
                continue;
            };
            let volume = self.volume(*id);
            let volume = volume.ok_or_else(|| BindingError::VolumeGone(claim.name.clone()))?;
            if !volume.is_for(claim) && !assumption.is_behind(WriteTarget::Volume(*id), volume.version) {
                return Err(BindingError::VolumeLost {
                    volume: (*volume.name).into(),
                    claim: claim.name.clone(),
                });
            }
        }
        Ok(progress)
    }
}
