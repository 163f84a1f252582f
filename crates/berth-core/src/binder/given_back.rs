//! What if claims were given back: their owner would make others of the same names, which are not bound.

use super::{Overlaid, VolumeBinder};
use crate::model::{Claim, ClaimId};
use crate::symbols::Symbol;

/// Claims that are taken for new ones. [`VolumeBinder::end_supposition`] undoes it.
#[derive(Debug)]
#[must_use = "a supposition must be ended"]
pub struct Supposition(Vec<(ClaimId, Overlaid<Claim>)>);

impl VolumeBinder {
    /// Takes claims for new ones of their names. The volumes that they had count as taken until the supposition ends.
    pub fn suppose_given_back(&mut self, claims: &[ClaimId]) -> Supposition {
        let mut before = Vec::new();
        for id in claims {
            let Some(slot) = self.claims.get_mut(id.0) else {
                continue;
            };
            let new = Claim {
                // That of the new claim is not known. A volume that refers to the old one is not for it.
                uid: Box::default(),
                volume_name: Box::default(),
                bind_completed: false,
                clean: false,
                selected_node: Symbol::EMPTY,
                hold: None,
                ..slot.effective.clone()
            };
            before.push((*id, std::mem::replace(slot, Overlaid::new(new))));
        }
        Supposition(before)
    }

    /// Takes claims for what they are again.
    pub fn end_supposition(&mut self, supposition: Supposition) {
        for (id, claim) in supposition.0 {
            if let Some(slot) = self.claims.get_mut(id.0) {
                *slot = claim;
            }
        }
    }

    /// Whether a claim can be given back: no pod has ever used it, and it or its class says that it may be.
    #[must_use]
    pub fn may_be_given_back(&self, claim: &Claim) -> bool {
        let of_class = || {
            let class = claim.class.and_then(|class| self.class(class));
            class.is_some_and(|class| class.rollback)
        };
        claim.clean && claim.is_bound() && !claim.deleting && claim.rollback.unwrap_or_else(of_class)
    }
}
