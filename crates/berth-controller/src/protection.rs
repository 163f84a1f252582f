//! Protects claims and volumes in use from deletion, by finalizer.
//!
//! A real cluster has its own controllers for this; an embedded one needs them here. As there, the condition `Unused` of claims is a part of it.

use crate::change::Change;
use crate::settings::{Protection, Settings};
use crate::state::State;
use crate::{claim, volume};
use berth_core::api::{ObjectMeta, PersistentVolume, PersistentVolumeClaim};
use berth_core::effect::{Effect, Fact, ObjectKey};
use berth_core::names;
use berth_core::time::seconds;
use jiff::Timestamp;

/// What the finalizer of an object requires.
enum Finalizer {
    /// The object is new.
    Add(Vec<String>),
    /// The object is being deleted and waits for its finalizer.
    Remove(Vec<String>),
    /// The finalizer is set and the object is not being deleted, or the object is being deleted without it.
    Fine,
}

fn finalizer(metadata: &ObjectMeta, name: &str) -> Finalizer {
    let has = metadata.finalizers.iter().any(|found| found == name);
    match (metadata.is_deleting(), has) {
        (false, false) => {
            let current = metadata.finalizers.iter().cloned();
            Finalizer::Add(current.chain([name.to_owned()]).collect())
        }
        (true, true) => {
            let others = metadata.finalizers.iter().filter(|found| *found != name);
            Finalizer::Remove(others.cloned().collect())
        }
        // Already set, and the object is not being deleted.
        (false, true) => Finalizer::Fine,
        // Too late to protect it: finalizers cannot be added to an object that is being deleted.
        (true, false) => Finalizer::Fine,
    }
}

/// The protection step for a claim.
#[must_use]
pub fn protect_claim(object: &PersistentVolumeClaim, state: &State, settings: &Settings) -> Vec<Effect> {
    if settings.protection == Protection::Off {
        return Vec::new();
    }
    match finalizer(&object.metadata, names::CLAIM_PROTECTION) {
        Finalizer::Fine => Vec::new(),
        Finalizer::Add(finalizers) => vec![claim::write(object, &Change::Finalizers(finalizers))],
        Finalizer::Remove(finalizers) => {
            if is_used_by_pod(object, state) {
                // The end of the pod triggers this step again.
                return Vec::new();
            }
            vec![
                Effect::Confirm(Fact::ClaimUnused {
                    claim: claim::key(object),
                }),
                claim::write(object, &Change::Finalizers(finalizers)),
            ]
        }
    }
}

/// Reports on a bound claim whether a pod uses it, if that changed. Before a claim is bound, its status changes often enough.
#[must_use]
pub fn report_use(object: &PersistentVolumeClaim, state: &State, settings: &Settings, now: Timestamp) -> Vec<Effect> {
    let is_reported = settings.protection != Protection::Off && settings.claim_unused_since_time;
    if !is_reported || object.metadata.is_deleting() || object.status.phase != "Bound" {
        return Vec::new();
    }
    let name = claim::key(object);
    let unused = !state.pods_using(&name).any(|pod| pod.refers_to(object));
    if object.status.unused == Some(unused) {
        return Vec::new();
    }
    // Watches of claims and pods are not synchronized: a pod that was not seen yet may use the claim.
    let confirmed = unused.then_some(Effect::Confirm(Fact::ClaimUnreferenced { claim: name }));
    let since = seconds(now);
    confirmed
        .into_iter()
        .chain([claim::write(object, &Change::ClaimUnused { unused, since })])
        .collect()
}

fn is_used_by_pod(object: &PersistentVolumeClaim, state: &State) -> bool {
    let name = claim::key(object);
    let mut pods = state.pods_using(&name);
    pods.any(|pod| pod.holds(object))
}

fn is_in_use(object: &PersistentVolume, state: &State, settings: &Settings) -> bool {
    let claim = || {
        let reference = object.spec.claim_ref.as_ref()?;
        let claim = state.claim(&ObjectKey::referred(reference))?;
        (claim.metadata.uid == reference.uid).then_some(claim)
    };
    object.status.phase == "Bound"
        && match settings.protection {
            Protection::Off => false,
            Protection::UsedByPods => claim().is_some_and(|claim| is_used_by_pod(claim, state)),
            Protection::Bound => true,
        }
}

/// The protection step for a volume.
#[must_use]
pub fn protect_volume(object: &PersistentVolume, state: &State, settings: &Settings) -> Vec<Effect> {
    if settings.protection == Protection::Off {
        return Vec::new();
    }
    match finalizer(&object.metadata, names::VOLUME_PROTECTION) {
        Finalizer::Fine => Vec::new(),
        Finalizer::Add(finalizers) => vec![volume::write(object, &Change::Finalizers(finalizers))],
        // When the claim is deleted the phase changes, and when the pod ends its claim is synced: either triggers this
        // step again.
        Finalizer::Remove(_) if is_in_use(object, state, settings) => Vec::new(),
        Finalizer::Remove(finalizers) => vec![volume::write(object, &Change::Finalizers(finalizers))],
    }
}
