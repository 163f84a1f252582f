//! Several writes for one pod as one attempt: what they reserve and mark is held until all volumes are there.

use super::{Assumption, VolumeBinder};
use crate::hold::{Hold, VolumeHold};
use crate::model::{Claim, Volume};

/// An attempt to get all volumes of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The pod's name.
    pub pod: Box<str>,
    /// The pod's uid.
    pub pod_uid: Box<str>,
    /// Larger than those of the pod's earlier attempts.
    pub number: u64,
}

impl Attempt {
    /// The mark of a claim.
    pub(super) fn hold(&self, claim: &Claim) -> Hold {
        Hold {
            pod: self.pod.clone(),
            pod_uid: self.pod_uid.clone(),
            claim_uid: claim.uid.clone(),
            attempt: self.number,
        }
    }
}

impl VolumeBinder {
    /// Holds what is to be written for one attempt: no claim is bound before all volumes are there. One write needs no attempt, since
    /// it is made or not made.
    pub fn hold(&mut self, assumption: &mut Assumption, attempt: Attempt) {
        if assumption.reservations.len() + assumption.selections.len() < 2 || assumption.is_partly_written() {
            return;
        }
        for (volume, reservation) in &assumption.reservations {
            let hold = self.claim(reservation.claim).map(|claim| attempt.hold(claim));
            if let Some(slot) = self.volumes.get_mut(volume.0) {
                slot.effective.hold = hold.map(|hold| Box::new(VolumeHold { hold, made: false }));
            }
        }
        for claim in assumption.selections.keys() {
            if let Some(slot) = self.claims.get_mut(claim.0) {
                slot.effective.hold = Some(Box::new(attempt.hold(&slot.effective)));
            }
        }
        assumption.attempt = Some(attempt);
    }

    /// What holds a claim that is not bound yet, or the existing volumes that are reserved for it.
    pub fn holds_on<'a>(&'a self, claim: &'a Claim) -> impl Iterator<Item = &'a Hold> {
        let of_volumes = self.volumes_for(claim);
        let of_volumes = of_volumes.filter_map(|volume| Some(&volume.hold.as_deref()?.hold));
        claim.hold.as_deref().into_iter().chain(of_volumes)
    }

    /// The volumes that are reserved or were made for a claim.
    pub fn volumes_for<'a>(&'a self, claim: &'a Claim) -> impl Iterator<Item = &'a Volume> {
        let by_name = self.reserved.get(&claim.namespace);
        let reserved = by_name.and_then(|by_name| by_name.get(&claim.name));
        let volumes = reserved.into_iter().flatten().filter_map(|id| self.volume(*id));
        volumes.filter(|volume| volume.is_for(claim))
    }
}
