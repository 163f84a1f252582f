//! What happens to a volume whose claim is gone.

use crate::change::{Change, Reason};
use crate::lower;
use crate::plugin::{Deleter, deleter};
use crate::state::State;
use crate::volume::{event, write};
use berth_core::api::{Kind, PersistentVolume};
use berth_core::effect::{Effect, EventType, ObjectKey};
use berth_core::names;

/// Carries out the reclaim policy of a released volume.
pub(crate) fn reclaim(volume: &PersistentVolume, state: &State) -> Vec<Effect> {
    let migrated = volume.metadata.annotation(names::MIGRATED_TO);
    if migrated.is_some_and(|driver| !driver.is_empty()) {
        // The CSI driver's provisioner watches the volume too.
        return Vec::new();
    }
    match volume
        .spec
        .persistent_volume_reclaim_policy
        .as_deref()
        .unwrap_or("Retain")
    {
        // The data is kept until an administrator has looked at it.
        "Retain" => Vec::new(),
        "Delete" => delete(volume),
        "Recycle" => recycle(volume, state),
        _ => {
            let message = "Volume has unrecognized PersistentVolumeReclaimPolicy".to_owned();
            fail(volume, Reason::VolumeUnknownReclaimPolicy, message)
        }
    }
}

fn delete(volume: &PersistentVolume) -> Vec<Effect> {
    match deleter(volume) {
        // The external provisioner also watches the volume, and deletes it when it is released.
        Deleter::External => Vec::new(),
        Deleter::Unknown(problem) => fail(volume, Reason::VolumeFailedDelete, problem),
        Deleter::Scratch => {
            let finalizers = &volume.metadata.finalizers;
            let ours = |name: &String| name == names::VOLUME_DELETION_IN_TREE;
            let mut effects = Vec::new();
            if finalizers.iter().any(ours) {
                let rest = finalizers.iter().filter(|name| !ours(name)).cloned().collect();
                effects.push(write(volume, &Change::Finalizers(rest)));
            }
            if !volume.metadata.is_deleting() {
                effects.push(lower::delete(Kind::PersistentVolume, &volume.metadata));
            }
            effects
        }
    }
}

/// Scrubbing a volume requires a pod that mounts it. Recycling has long been deprecated in favour of dynamic
/// provisioning, and is reported as not supported.
fn recycle(volume: &PersistentVolume, state: &State) -> Vec<Effect> {
    let claim = volume.spec.claim_ref.as_ref().map(ObjectKey::referred);
    if let Some(claim) = claim.filter(|claim| state.claim(claim).is_none()) {
        let pods = state.pods_using(&claim).filter(|pod| !pod.terminated);
        let used: Vec<String> = pods.map(|pod| pod.metadata.full_name()).collect();
        if !used.is_empty() {
            let message = format!("Volume is used by pods: {}", used.join(","));
            return vec![event(volume, EventType::Normal, Reason::VolumeFailedRecycle, message)];
        }
    }
    let message = "No recycler plugin found for the volume!".to_owned();
    fail(volume, Reason::VolumeFailedRecycle, message)
}

/// The volume fails. Reported once, when the phase changes.
fn fail(volume: &PersistentVolume, reason: Reason, message: String) -> Vec<Effect> {
    if volume.status.phase == "Failed" {
        return Vec::new();
    }
    let phase = Change::VolumePhase {
        phase: "Failed",
        message: message.clone(),
    };
    vec![
        write(volume, &phase),
        event(volume, EventType::Warning, reason, message),
    ]
}
