//! Carries out a decision: what to write and in which order, when it is done, and what invalidates it.
//!
//! ```text
//!   assume ──▶ writes: volumes reserved ──accepted───▶ writes: nodes selected ──accepted───▶ progress: waiting ──▶ bound
//!                 │                                       │                                       │    ready ▲
//!                 └────────── refused, or an object gone or changed: revert, and decide again ─────┘
//! ```
//!
//! Objects that are [held](VolumeBinder::hold) are ready when all volumes exist, and bound only after the caller has committed the
//! decision.
//!
//! Volumes are reserved first, and nodes are selected for claims only once every volume is reserved: another writer can
//! win a reservation, and provisioning cannot be undone. Nothing here writes or waits. The caller sends the writes,
//! reports which ones the API server accepted, and asks again when a watched object changed.

use super::{Assumption, VolumeBinder};
use crate::hold::Hold;
use crate::model::{Claim, ClaimId, VolumeId};

/// An object that is written while a decision is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteTarget {
    /// A volume that is reserved for a claim.
    Volume(VolumeId),
    /// A claim for which a node is selected.
    Claim(ClaimId),
}

/// A write that a decision requires. Executors must handle every variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeWrite {
    /// Set a volume's `claimRef` if the volume is still at this version.
    ReserveVolume {
        /// The volume.
        volume: String,
        /// Its version, 0 if unknown.
        version: u64,
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        claim: String,
        /// The claim's uid.
        uid: String,
        /// Whether a user already reserved the volume for the claim. Then it is not marked as bound by the controller: the
        /// reservation remains if the claim is bound elsewhere.
        prebound: bool,
        /// The attempt that holds it.
        hold: Option<Hold>,
    },
    /// Annotate a claim with the node to provision its volume for, if the claim is still at this version.
    SelectNode {
        /// The claim's namespace.
        namespace: String,
        /// The claim's name.
        claim: String,
        /// Its version, 0 if unknown.
        version: u64,
        /// The node.
        node: String,
        /// The attempt that holds the claim.
        hold: Option<Hold>,
    },
}

/// How far the claims of a decision have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// Some claim is not bound yet.
    Waiting,
    /// Every claim of an attempt is bound, or has a volume that is held for it.
    Ready,
    /// All claims are bound: the pod may be bound.
    Bound,
}

/// Why a decision can no longer be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindingError {
    /// The node is gone.
    #[error("the chosen node is gone")]
    NodeGone,
    /// A claim is gone.
    #[error("a claim of the pod was deleted")]
    ClaimGone,
    /// A claim is being deleted.
    #[error("claim {0:?} is being deleted")]
    ClaimDeleting(Box<str>),
    /// The provisioner could not create the claim's volume for the node, and asks for another node.
    #[error("selected-node of claim {0:?} was cleared")]
    SelectionCleared(Box<str>),
    /// Another node was selected for the claim.
    #[error("selected-node of claim {0:?} was changed")]
    SelectionChanged(Box<str>),
    /// The chosen volume is gone.
    #[error("the volume chosen for claim {0:?} was deleted")]
    VolumeGone(Box<str>),
    /// The provisioned volume cannot be used on the node.
    #[error("volume {volume:?}, provisioned for claim {claim:?}, cannot be reached from the chosen node")]
    VolumeUnreachable {
        /// The volume.
        volume: Box<str>,
        /// The claim.
        claim: Box<str>,
    },
    /// The chosen volume belongs to another claim.
    #[error("volume {volume:?} is no longer reserved for claim {claim:?}")]
    VolumeLost {
        /// The volume.
        volume: Box<str>,
        /// The claim.
        claim: Box<str>,
    },
}

impl VolumeBinder {
    /// What to write now: all reservations that the API server has not accepted yet or, once it has accepted them all,
    /// all outstanding selections. Empty when everything is written. Report accepted writes with
    /// [`Assumption::written`], and call this again when all of them are answered.
    ///
    /// # Errors
    /// If an object that the decision needs is gone: the assumption must be reverted.
    pub fn writes(&self, assumption: &Assumption) -> Result<Vec<(WriteTarget, VolumeWrite)>, BindingError> {
        if self.nodes.name(assumption.node) != assumption.node_name {
            return Err(BindingError::NodeGone);
        }
        let mut writes = Vec::new();
        for (volume, reservation) in &assumption.reservations {
            let claim = self.claim(reservation.claim).ok_or(BindingError::ClaimGone)?;
            let found = self.volume(*volume);
            let found = found.ok_or_else(|| BindingError::VolumeGone(claim.name.clone()))?;
            let write = VolumeWrite::ReserveVolume {
                volume: found.name.to_string(),
                version: reservation.version,
                namespace: self.symbols.text(claim.namespace).to_owned(),
                claim: claim.name.to_string(),
                uid: claim.uid.to_string(),
                prebound: reservation.prebound,
                hold: assumption.attempt.as_ref().map(|attempt| attempt.hold(claim)),
            };
            writes.push((WriteTarget::Volume(*volume), write));
        }
        if !writes.is_empty() {
            return Ok(writes);
        }
        for (id, version) in &assumption.selections {
            let claim = self.claim(*id).ok_or(BindingError::ClaimGone)?;
            let selected = claim.selected_node;
            if !selected.is_empty() && selected != assumption.node_name {
                return Err(BindingError::SelectionChanged(claim.name.clone()));
            }
            let write = VolumeWrite::SelectNode {
                namespace: self.symbols.text(claim.namespace).to_owned(),
                claim: claim.name.to_string(),
                // The version of the claim that was decided on, so that later changes by others are not overwritten.
                version: *version,
                node: self.symbols.text(assumption.node_name).to_owned(),
                hold: assumption.attempt.as_ref().map(|attempt| attempt.hold(claim)),
            };
            writes.push((WriteTarget::Claim(*id), write));
        }
        Ok(writes)
    }

    /// How far the claims are once everything is written: each must be bound, or still on its way to the decided outcome.
    /// A claim that is bound to an unknown volume waits for it: the volume watch may lag behind the claim watch.
    ///
    /// # Errors
    /// If the decision can no longer be carried out: the assumption must be reverted.
    pub fn progress(&self, assumption: &Assumption) -> Result<Progress, BindingError> {
        if self.nodes.name(assumption.node) != assumption.node_name {
            return Err(BindingError::NodeGone);
        }
        let mut progress = Progress::Bound;
        for claim in assumption.decided_claims() {
            progress = progress.min(self.progress_of(assumption, claim)?);
        }
        Ok(progress)
    }

    /// How far one claim of the decision is, as in [`Self::progress`]. A pod may have thousands of claims, so a change of one
    /// of them does not require checking all.
    ///
    /// # Errors
    /// If the decision can no longer be carried out because of this claim.
    pub fn progress_of(&self, assumption: &Assumption, id: ClaimId) -> Result<Progress, BindingError> {
        let claim = self.claim(id).ok_or(BindingError::ClaimGone)?;
        if claim.deleting {
            return Err(BindingError::ClaimDeleting(claim.name.clone()));
        }
        if claim.is_bound() {
            let known = self.volumes_by_name.contains_key(&*claim.volume_name);
            return Ok(if known { Progress::Bound } else { Progress::Waiting });
        }
        let chosen = assumption.chosen_for(id);
        match chosen {
            Some(volume) => self.check_reserved(assumption, claim, volume)?,
            None => self.check_selected(assumption, claim, id)?,
        }
        if assumption.attempt.is_none() {
            return Ok(Progress::Waiting);
        }
        let is_there = match chosen {
            Some(volume) => !assumption.reservations.contains_key(&volume),
            None => self.is_made(assumption, claim)?,
        };
        Ok(if is_there { Progress::Ready } else { Progress::Waiting })
    }

    /// Whether a volume was provisioned for the claim.
    fn is_made(&self, assumption: &Assumption, claim: &Claim) -> Result<bool, BindingError> {
        let Some(volume) = self.volume_held_for(claim).filter(|volume| !volume.deleting) else {
            return Ok(false);
        };
        if self.nodes.matching(volume.affinity).contains(assumption.node.0) {
            return Ok(true);
        }
        Err(BindingError::VolumeUnreachable {
            volume: (*volume.name).into(),
            claim: claim.name.clone(),
        })
    }

    /// Checks that the chosen volume is still the claim's, or that its reservation was not observed yet.
    fn check_reserved(&self, assumption: &Assumption, claim: &Claim, id: VolumeId) -> Result<(), BindingError> {
        let volume = self.volume(id);
        let volume = volume.ok_or_else(|| BindingError::VolumeGone(claim.name.clone()))?;
        if volume.is_for(claim) || assumption.is_behind(WriteTarget::Volume(id), volume.version) {
            return Ok(());
        }
        Err(BindingError::VolumeLost {
            volume: (*volume.name).into(),
            claim: claim.name.clone(),
        })
    }

    /// Checks that the chosen node is still selected for the claim, or that the selection was not observed yet.
    fn check_selected(&self, assumption: &Assumption, claim: &Claim, id: ClaimId) -> Result<(), BindingError> {
        let selected = claim.selected_node;
        let attempt = assumption
            .attempt()
            .filter(|_| assumption.has_written(WriteTarget::Claim(id)));
        let is_held = attempt.is_none_or(|attempt| claim.hold.as_deref() == Some(&attempt.hold(claim)));
        if selected == assumption.node_name && is_held || assumption.is_behind(WriteTarget::Claim(id), claim.version) {
            return Ok(());
        }
        Err(if selected.is_empty() || !is_held {
            BindingError::SelectionCleared(claim.name.clone())
        } else {
            BindingError::SelectionChanged(claim.name.clone())
        })
    }
}
