//! Bound claims that no pod has used yet: closed to nodes until one admits a pod, or given back before.
//!
//! ```text
//!   bound and marked clean ──a node admits a pod that uses it──▶ the mark goes ──▶ phase Bound
//!     │        ▲
//!     │        └──a pod has a node after all──┐
//!     └──the scheduler marks it: rolled back ─┴──no pod has a node──▶ an existing volume is free again, the claim is deleted
//! ```
//!
//! Only claims that opt in are marked. The mark is made in the write that completes the binding, so a claim without it was bound by
//! somebody else, or was used.

use crate::change::{Change, Reason};
use crate::claim::{event, key, write};
use crate::held::give_back;
use crate::lower;
use crate::state::State;
use berth_core::api::{Kind, PersistentVolume, PersistentVolumeClaim};
use berth_core::clean::{self, Rollback};
use berth_core::effect::{Effect, EventType, Fact, Target};
use berth_core::names;

/// Whether a claim is to be marked when it is bound to a volume: it may be given back as long as no pod has used it.
pub(crate) fn is_to_be_marked(claim: &PersistentVolumeClaim, volume: &PersistentVolume, state: &State) -> bool {
    let of_class = || {
        let class = claim.class_name().and_then(|name| state.class(name));
        class.and_then(|class| clean::choice(&class.metadata)).unwrap_or(false)
    };
    clean::choice(&claim.metadata).unwrap_or_else(of_class)
        && clean::is_closed(claim)
        && !claim.metadata.uid.is_empty()
        // Where the next volume would be made at once, nobody knows.
        && state.wants_delay(claim)
        && !claim.metadata.is_deleting()
        // A volume that the user chose is chosen again by the next claim.
        && claim.spec.volume_name.is_empty()
        // What fills a volume before its claim is bound is not known here.
        && claim.spec.data_source.is_none()
        && claim.spec.data_source_ref.is_none()
        && can_be_given_back(claim, volume)
}

/// Whether a volume can be given back: one that was made for the claim goes with it; one that was there before is free again.
#[must_use]
pub fn can_be_given_back(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    if volume.metadata.annotations.contains_key(names::PROVISIONED_BY) {
        // A volume that is retained would be left behind each time.
        let is_deleted = volume.spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
        return is_deleted && is_made_for(volume, claim);
    }
    // One that the user reserved goes to the next claim of that name.
    volume.spec.claim_ref.is_none() || volume.metadata.annotations.contains_key(names::BOUND_BY_CONTROLLER)
}

/// Whether a volume was made for this very claim, as provisioners name volumes. One that was made for another claim may hold its data.
fn is_made_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.metadata.name.strip_prefix("pvc-") == Some(claim.metadata.uid.as_str())
}

/// What to do about a claim that is clean, if it is more than to keep it bound.
pub(crate) fn settle_clean(claim: &PersistentVolumeClaim, state: &State) -> Option<Vec<Effect>> {
    if !clean::is_clean(claim) {
        return None;
    }
    if claim.metadata.is_deleting() {
        // No node mounts a claim that is going.
        return Some(Vec::new());
    }
    match Rollback::of_claim(claim) {
        Some(rollback) => Some(roll_back(claim, &rollback, state)),
        None => is_admitted(claim, state).then(|| vec![unmark(claim, names::CLEAN)]),
    }
}

/// Whether a node admitted a pod that uses the claim.
fn is_admitted(claim: &PersistentVolumeClaim, state: &State) -> bool {
    let name = key(claim);
    state.pods_using(&name).any(|pod| pod.admitted && pod.may_use(claim))
}

/// Gives a claim back: an existing volume is free again before the claim goes, so that its reclaim policy does not matter.
fn roll_back(claim: &PersistentVolumeClaim, rollback: &Rollback, state: &State) -> Vec<Effect> {
    let name = key(claim);
    let volume = state.volume(&claim.spec.volume_name).filter(|volume| {
        let reference = volume.spec.claim_ref.as_ref();
        reference.is_some_and(|reference| reference.uid == claim.metadata.uid)
    });
    if volume.is_some() && state.pods_using(&name).any(|pod| pod.holds(claim)) {
        // Whoever put it there did not see the mark, and the claim is as good as before.
        return vec![unmark(claim, names::ROLLED_BACK_FOR)];
    }
    let mut effects = vec![Effect::Confirm(Fact::ClaimUnused { claim: name })];
    if let Some(volume) = volume.filter(|volume| !is_made_for(volume, claim)) {
        let unchanged = Fact::Unchanged(Target::of(Kind::PersistentVolumeClaim, &claim.metadata));
        effects.push(Effect::Confirm(unchanged));
        effects.extend(give_back(volume));
    }
    effects.push(lower::delete(Kind::PersistentVolumeClaim, &claim.metadata));
    let message = format!(
        "volume {:?} was never used, and pod {:?} fits nowhere with it: given back",
        claim.spec.volume_name, rollback.pod
    );
    effects.push(event(claim, EventType::Normal, Reason::RolledBack, message));
    effects
}

/// Removes a mark.
fn unmark(claim: &PersistentVolumeClaim, key: &'static str) -> Effect {
    let change = Change::Annotate { key, value: None };
    write(claim, &change)
}
