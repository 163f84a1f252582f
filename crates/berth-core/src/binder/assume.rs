//! Assumptions: decisions of a scheduler that watches have not confirmed yet.
//!
//! ```text
//!                assume                    a newer object is watched
//!    watched ────────────▶ assumed ─────────────────────────────────▶ watched
//!       ▲                     │
//!       └───────revert────────┘
//! ```

use super::{Attempt, NodeVolumes, Overlaid, Overlay, VolumeBinder, WriteTarget};
use crate::model::{Claim, ClaimId, ClaimRef, Volume, VolumeId};
use crate::nodes::NodeId;
use crate::symbols::Symbol;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// What was assumed for one pod. It must be reverted if binding fails. Once the API server has accepted every write, it
/// may be dropped with [`Assumption::keep`], and watched objects replace it.
#[derive(Debug)]
#[must_use = "an assumption holds volumes back until it is reverted or kept"]
pub struct Assumption {
    number: u64,
    pub(super) node: NodeId,
    /// Its name: another node may reuse the ID of a deleted one.
    pub(super) node_name: Symbol,
    /// In the order of claims.
    pub(super) decision: NodeVolumes,
    /// Reservations that the API server has not accepted yet.
    pub(super) reservations: BTreeMap<VolumeId, Reservation>,
    /// Claims whose node selection has not been accepted yet, with the versions that the decision was based on.
    pub(super) selections: BTreeMap<ClaimId, u64>,
    /// The versions that the API server assigned to the writes; older states do not include them yet.
    written: FxHashMap<WriteTarget, u64>,
    /// The attempt that holds the written objects until all volumes exist.
    pub(super) attempt: Option<Attempt>,
}

crate::trace!(Assumption { node_name; number, node, decision, reservations, selections, written, attempt });

/// A volume to be reserved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    /// The claim that it is reserved for.
    pub(super) claim: ClaimId,
    /// The volume's version that the decision was based on.
    pub(super) version: u64,
    /// Whether the volume already named the claim, because a user reserved it.
    pub(super) prebound: bool,
}

impl Assumption {
    /// Whether nothing was assumed because all claims are bound.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reservations.is_empty() && self.selections.is_empty()
    }

    /// The attempt that the written objects are held for.
    #[must_use]
    pub fn attempt(&self) -> Option<&Attempt> {
        self.attempt.as_ref()
    }

    /// Whether the API server has accepted any of its writes.
    #[must_use]
    pub fn is_partly_written(&self) -> bool {
        !self.written.is_empty()
    }

    pub(super) fn has_written(&self, target: WriteTarget) -> bool {
        self.written.contains_key(&target)
    }

    /// Leaves the assumption in place until watched objects replace it.
    pub fn keep(self) {}

    /// Records that the API server accepted the write to an object and assigned this version, 0 if unknown. Reverting
    /// then leaves the object in place.
    pub fn written(&mut self, target: WriteTarget, version: u64) {
        match target {
            WriteTarget::Volume(volume) => {
                self.reservations.remove(&volume);
            }
            WriteTarget::Claim(claim) => {
                self.selections.remove(&claim);
            }
        }
        self.written.insert(target, version);
    }

    /// Whether an object at this version is older than the last write to it.
    pub(super) fn is_behind(&self, target: WriteTarget, version: u64) -> bool {
        self.written.get(&target).is_some_and(|written| version < *written)
    }

    /// The node that was decided on.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The name of that node.
    #[must_use]
    pub fn node_name(&self) -> Symbol {
        self.node_name
    }

    /// What was decided.
    #[must_use]
    pub fn decision(&self) -> &NodeVolumes {
        &self.decision
    }

    /// The claims in the decision.
    pub fn decided_claims(&self) -> impl Iterator<Item = ClaimId> + '_ {
        let bindings = self.decision.bindings.iter().map(|(claim, _)| *claim);
        bindings.chain(self.decision.provisions.iter().copied())
    }

    /// Whether the decision includes a claim.
    #[must_use]
    pub fn decides(&self, claim: ClaimId) -> bool {
        self.chosen_for(claim).is_some() || self.decision.provisions.binary_search(&claim).is_ok()
    }

    /// The existing volume that was chosen for a claim.
    pub(super) fn chosen_for(&self, claim: ClaimId) -> Option<VolumeId> {
        let bindings = &self.decision.bindings;
        let at = bindings.binary_search_by_key(&claim, |(claim, _)| *claim).ok()?;
        bindings.get(at).map(|(_, volume)| *volume)
    }

    /// The volumes that were not held for their claims before, and whose reservations are not written yet.
    pub fn volumes(&self) -> impl Iterator<Item = VolumeId> + '_ {
        self.reservations.keys().copied()
    }

    /// The claims that were not annotated with the node before, and whose selections are not written yet.
    pub fn claims(&self) -> impl Iterator<Item = ClaimId> + '_ {
        self.selections.keys().copied()
    }
}

/// Why a decision can no longer be assumed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssumeError {
    /// The node is gone.
    #[error("the chosen node is gone")]
    NodeGone,
    /// A claim is gone.
    #[error("a claim of the pod is gone")]
    ClaimGone,
    /// A claim has been bound since.
    #[error("claim {0:?} has been bound since")]
    ClaimBound(Box<str>),
    /// A volume is gone.
    #[error("the volume chosen for claim {0:?} is gone")]
    VolumeGone(Box<str>),
    /// A volume is taken.
    #[error("volume {volume:?} was taken by another claim before {claim:?}")]
    VolumeTaken {
        /// The volume.
        volume: Box<str>,
        /// The claim.
        claim: Box<str>,
    },
}

impl VolumeBinder {
    /// Assumes a decision: its volumes are held for their claims, and claims without a volume are annotated with the
    /// node. Other pods see this at once.
    ///
    /// # Errors
    /// If the state has changed since, so that the decision cannot be carried out. Nothing is assumed in that case.
    pub fn assume(&mut self, node: NodeId, decision: &NodeVolumes) -> Result<Assumption, AssumeError> {
        let node_name = self.nodes.name(node);
        if node_name.is_empty() {
            return Err(AssumeError::NodeGone);
        }
        for (claim, volume) in &decision.bindings {
            let claim = self.assumable_claim(*claim)?;
            let volume = self
                .volume(*volume)
                .ok_or_else(|| AssumeError::VolumeGone(claim.name.clone()))?;
            if !volume.is_free() && !volume.is_for(claim) {
                return Err(AssumeError::VolumeTaken {
                    volume: (*volume.name).into(),
                    claim: claim.name.clone(),
                });
            }
        }
        for claim in &decision.provisions {
            self.assumable_claim(*claim)?;
        }
        self.assumptions += 1;
        let number = self.assumptions;
        let mut decision = decision.clone();
        decision.bindings.sort_unstable();
        decision.provisions.sort_unstable();
        let mut assumption = Assumption {
            number,
            node,
            node_name,
            decision,
            reservations: BTreeMap::new(),
            selections: BTreeMap::new(),
            written: FxHashMap::default(),
            attempt: None,
        };
        for (claim, volume) in &assumption.decision.bindings {
            if let Some(reservation) = self.hold_volume(*volume, *claim, number) {
                assumption.reservations.insert(*volume, reservation);
            }
        }
        for claim in &assumption.decision.provisions {
            if let Some(slot) = self.claims.get_mut(claim.0)
                && slot.effective.selected_node != node_name
            {
                let mut assumed = slot.effective.clone();
                assumed.selected_node = node_name;
                assumption.selections.insert(*claim, assumed.version);
                slot.cover(assumed, number);
                self.promise_changed(*claim);
            }
        }
        Ok(assumption)
    }

    fn assumable_claim(&self, id: ClaimId) -> Result<&Claim, AssumeError> {
        let claim = self.claim(id).ok_or(AssumeError::ClaimGone)?;
        if claim.is_bound() {
            return Err(AssumeError::ClaimBound(claim.name.clone()));
        }
        Ok(claim)
    }

    /// Reserves a volume for a claim; `None` if it is already reserved with the claim's UID.
    fn hold_volume(&mut self, volume: VolumeId, id: ClaimId, number: u64) -> Option<Reservation> {
        let claim = self.claim(id)?;
        let reference = Some(Box::new(ClaimRef {
            namespace: claim.namespace,
            name: claim.name.clone(),
            uid: claim.uid.clone(),
        }));
        let known = self.volume(volume).filter(|known| known.claim_ref != reference)?;
        let reservation = Reservation {
            claim: id,
            version: known.version,
            prebound: known.claim_ref.is_some(),
        };
        self.unindex_volume(volume);
        if let Some(slot) = self.volumes.get_mut(volume.0) {
            let assumed = Volume {
                claim_ref: reference,
                hold: None,
                ..slot.effective.clone()
            };
            slot.cover(assumed, number);
        }
        self.index_volume(volume);
        Some(reservation)
    }

    /// Undoes an assumption, except for objects whose watches have shown a change since.
    pub fn revert(&mut self, assumption: Assumption) {
        for id in assumption.reservations.into_keys() {
            let covered = |slot: &Overlaid<Volume>| slot.is_covered_by(assumption.number);
            if self.volumes.get(id.0).is_some_and(covered) {
                self.unindex_volume(id);
                if let Some(slot) = self.volumes.get_mut(id.0) {
                    slot.uncover();
                }
                self.index_volume(id);
            }
        }
        for id in assumption.selections.into_keys() {
            if let Some(slot) = self.claims.get_mut(id.0)
                && slot.is_covered_by(assumption.number)
            {
                slot.uncover();
                self.promise_changed(id);
            }
        }
    }
}

impl<T> Overlaid<T> {
    fn cover(&mut self, assumed: T, assumption: u64) {
        let before = std::mem::replace(&mut self.effective, assumed);
        let watched = self.watched.take().map_or(before, |overlay| overlay.watched);
        self.watched = Some(Box::new(Overlay { watched, assumption }));
    }

    fn is_covered_by(&self, assumption: u64) -> bool {
        self.watched
            .as_ref()
            .is_some_and(|overlay| overlay.assumption == assumption)
    }

    fn uncover(&mut self) {
        if let Some(overlay) = self.watched.take() {
            self.effective = overlay.watched;
        }
    }
}
