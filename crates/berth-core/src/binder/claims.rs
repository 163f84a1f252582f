//! The claims of a pod, sorted by what remains to be done for them.

use super::VolumeBinder;
use crate::api::{self, VolumeSource};
use crate::model::{Claim, ClaimId};
use crate::names;
use crate::quantity::Quantity;
use crate::reason::VolumeReason;
use crate::symbols::{Symbol, Symbols};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

/// Up to this many claims, duplicates are found by a linear scan.
const FEW_CLAIMS: usize = 16;

/// The parts of a pod's volumes that matter for binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodVolumes {
    /// The pod's namespace.
    pub namespace: Symbol,
    /// The pod's name.
    pub name: Box<str>,
    /// The pod's uid.
    pub uid: Box<str>,
    /// The claims it uses, in order.
    pub claims: Box<[PodClaim]>,
    /// The inline CSI volumes that specify a size: driver and bytes.
    pub inline: Box<[(Symbol, i64)]>,
}

crate::trace!(PodVolumes { namespace, inline; name, uid, claims });

/// A claim that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodClaim {
    /// The claim's name.
    pub name: Box<str>,
    /// Whether the claim is created for the pod and deleted with it.
    pub ephemeral: bool,
}

impl PodVolumes {
    /// Reads the volumes of a pod.
    #[must_use]
    pub fn new(symbols: &mut Symbols, pod: &api::Pod) -> Self {
        let claims = pod.spec.volumes.iter().filter_map(|volume| {
            Some(PodClaim {
                name: volume.claim_name(&pod.metadata.name)?.into(),
                ephemeral: volume.persistent_volume_claim.is_none(),
            })
        });
        let inline = pod.spec.volumes.iter().filter_map(|volume| {
            let VolumeSource::Csi(csi) = volume.source() else {
                return None;
            };
            let attribute = csi.volume_attributes.get(names::INLINE_SIZE);
            let size = csi.fs_size.or_else(|| attribute?.parse::<Quantity>().ok())?;
            Some((symbols.intern(&csi.driver), size.value()))
        });
        Self {
            inline: inline.collect(),
            claims: claims.collect(),
            namespace: symbols.intern(&pod.metadata.namespace),
            name: pod.metadata.name.as_str().into(),
            uid: pod.metadata.uid.as_str().into(),
        }
    }

    /// Whether there is nothing to bind, provision or check.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.inline.is_empty()
    }
}

/// The claims of a pod, sorted. A claim that the pod uses twice is listed once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodClaims {
    /// Fully bound.
    pub bound: SmallVec<[ClaimId; 2]>,
    /// Not bound, and waiting for this pod to be scheduled.
    pub delayed: SmallVec<[ClaimId; 2]>,
    /// The pod's inline volumes that specify a size: driver and bytes.
    pub inline: SmallVec<[(Symbol, i64); 1]>,
}

impl VolumeBinder {
    /// Sorts the claims of a pod.
    ///
    /// # Errors
    /// The reason why the pod cannot run on any node: a claim is missing, lost, being deleted, owned by another object,
    /// or should already have been bound by the volume controller.
    pub fn claims(&self, pod: &PodVolumes) -> Result<PodClaims, VolumeReason> {
        let mut claims = PodClaims {
            inline: pod.inline.iter().copied().collect(),
            ..PodClaims::default()
        };
        let mut ids: SmallVec<[ClaimId; 4]> = SmallVec::new();
        let mut among_many = FxHashSet::default();
        for reference in &pod.claims {
            let id = self.claim_id(pod.namespace, &reference.name);
            let Some((id, claim)) = id.and_then(|id| Some((id, self.claim(id)?))) else {
                let claim = reference.name.clone();
                return Err(if reference.ephemeral {
                    VolumeReason::EphemeralClaimNotFound { claim }
                } else {
                    VolumeReason::ClaimNotFound { claim }
                });
            };
            self.check_usable(pod, claim, reference.ephemeral)?;
            // For a few claims, a scan is faster than building a set.
            let is_new = if pod.claims.len() <= FEW_CLAIMS {
                !ids.contains(&id)
            } else {
                among_many.insert(id)
            };
            if is_new {
                ids.push(id);
            }
        }
        let mut unbound_immediate = false;
        for id in ids {
            let Some(claim) = self.claim(id) else {
                continue;
            };
            if claim.is_bound() {
                claims.bound.push(id);
            } else if claim.volume_name.is_empty() && self.is_delayed(claim) {
                claims.delayed.push(id);
            } else {
                unbound_immediate = true;
            }
        }
        if unbound_immediate {
            return Err(VolumeReason::UnboundImmediateClaims);
        }
        Ok(claims)
    }

    fn check_usable(&self, pod: &PodVolumes, claim: &Claim, ephemeral: bool) -> Result<(), VolumeReason> {
        if claim.lost {
            return Err(VolumeReason::ClaimLost {
                claim: claim.name.clone(),
                volume: claim.volume_name.clone(),
            });
        }
        if claim.deleting {
            return Err(VolumeReason::ClaimDeleting {
                claim: claim.name.clone(),
            });
        }
        if ephemeral && !claim.is_made_for(pod) {
            return Err(self.not_owned(pod, claim));
        }
        Ok(())
    }

    /// The reason why a claim for an ephemeral volume of the pod is not owned by the pod.
    #[must_use]
    pub fn not_owned(&self, pod: &PodVolumes, claim: &Claim) -> VolumeReason {
        let namespace = self.symbols.text(pod.namespace);
        VolumeReason::ClaimNotOwned {
            claim: format!("{namespace}/{}", claim.name).into(),
            pod: format!("{namespace}/{}", pod.name).into(),
        }
    }

    /// Whether the claim waits for its first consumer.
    fn is_delayed(&self, claim: &Claim) -> bool {
        claim
            .class
            .and_then(|class| self.classes.get(&class))
            .is_some_and(|class| self.delays(class))
    }
}
