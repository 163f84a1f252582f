//! The two-step binding of a claim and a volume.
//!
//! ```text
//!   claim  Pending                                          volumeName   Bound
//!            │                                                  ▲          ▲
//!            ▼                                                  │          │
//!   volume Available ──claimRef──▶ reserved ──phase──▶ Bound ───┘──────────┘
//! ```
//!
//! The volume is written first: from then on no other claim can take it. Each of the four writes is skipped if it was
//! already made, so a binding continues from wherever it stopped.

use crate::capacity;
use crate::change::{CapacityChange, Change};
use crate::clean::is_to_be_marked;
use crate::index::{attributes_class, modes_differ, size_of};
use crate::state::State;
use crate::{claim as claims, volume as volumes};
use berth_core::api::{Kind, ObjectReference, PersistentVolume, PersistentVolumeClaim};
use berth_core::clean::is_clean;
use berth_core::effect::Effect;
use berth_core::model::AccessModes;
use berth_core::names;
use berth_core::quantity::Quantity;

/// Whether a volume refers to this claim, by name only or also by UID.
pub(crate) fn is_reserved_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|reference| {
        reference.name == claim.metadata.name
            && reference.namespace == claim.metadata.namespace
            && (reference.uid.is_empty() || reference.uid == claim.metadata.uid)
    })
}

/// Why a volume that a claim requests by name cannot be bound to it.
pub(crate) fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    if volume.metadata.is_deleting() {
        return Some(format!("the volume is marked for deletion {:?}", volume.metadata.name));
    }
    let problem = if size_of(volume).value() < claim.requested_bytes() {
        "requested PV is too small"
    } else if volume.class_name() != claim.class_name().unwrap_or_default() {
        "storageClassName does not match"
    } else if attributes_class(claim.spec.volume_attributes_class_name.as_ref())
        != attributes_class(volume.spec.volume_attributes_class_name.as_ref())
    {
        "volumeAttributesClassName does not match"
    } else if modes_differ(claim, volume) {
        "incompatible volumeMode"
    } else if !AccessModes::new(&volume.spec.access_modes).contains(AccessModes::new(&claim.spec.access_modes)) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(problem.to_owned())
}

/// The writes that are still missing to bind the two.
pub(crate) fn bind(volume: &PersistentVolume, claim: &PersistentVolumeClaim, state: &State) -> Vec<Effect> {
    let to_volume = [reserve(volume, claim), phase(volume, "Bound", String::new())];
    let completed = claim.metadata.annotations.contains_key(names::BIND_COMPLETED);
    let marks = !completed && is_to_be_marked(claim, volume, state);
    // No node mounts a claim in another phase: it stays clean until one admits a pod.
    let is_open = !marks && !is_clean(claim);
    let status = is_open.then(|| bound_status(claim, volume)).flatten();
    let to_claim = [complete(claim, volume, marks), status];
    let to_volume = to_volume
        .into_iter()
        .flatten()
        .map(|change| volumes::write(volume, &change));
    let to_claim = to_claim
        .into_iter()
        .flatten()
        .map(|change| claims::write(claim, &change));
    to_volume.chain(to_claim).collect()
}

fn reserve(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Change> {
    let reserved = is_reserved_for(volume, claim);
    let known = volume
        .spec
        .claim_ref
        .as_ref()
        .is_some_and(|reference| reserved && reference.uid == claim.metadata.uid);
    (!known).then(|| Change::ReserveVolume {
        claim: ObjectReference {
            api_version: "v1".to_owned(),
            kind: Kind::PersistentVolumeClaim.name().to_owned(),
            namespace: claim.metadata.namespace.clone(),
            name: claim.metadata.name.clone(),
            uid: claim.metadata.uid.clone(),
            resource_version: claim.metadata.resource_version.clone(),
        },
        // A reservation by name was made by the user: unbinding must keep the name. A mark left by an earlier binding would
        // claim otherwise.
        by_controller: (reserved == volume.metadata.annotations.contains_key(names::BOUND_BY_CONTROLLER))
            .then_some(!reserved),
    })
}

/// The change of a volume's phase, if it differs.
pub(crate) fn phase(volume: &PersistentVolume, phase: &'static str, message: String) -> Option<Change> {
    (volume.status.phase != phase).then_some(Change::VolumePhase { phase, message })
}

fn complete(claim: &PersistentVolumeClaim, volume: &PersistentVolume, marks: bool) -> Option<Change> {
    let names_it = claim.spec.volume_name == volume.metadata.name;
    let completed = claim.metadata.annotations.contains_key(names::BIND_COMPLETED);
    (!names_it || !completed).then(|| Change::CompleteClaim {
        volume_name: (!names_it).then(|| volume.metadata.name.clone()),
        unhold: claim.metadata.annotations.contains_key(names::HELD_FOR),
        clean: marks.then(|| claim.metadata.uid.clone()),
    })
}

fn bound_status(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<Change> {
    let entering = claim.status.phase != "Bound";
    let modes_change = claim.status.access_modes != volume.spec.access_modes;
    if !entering && !modes_change {
        return None;
    }
    // The size is copied once, when the claim becomes bound: afterwards the resizer maintains it.
    let capacity = match volume.metadata.annotation(names::PRE_RESIZE_CAPACITY) {
        _ if !entering => CapacityChange::Keep,
        Some(before) if before.parse::<Quantity>().is_ok() => CapacityChange::Set(before.to_owned()),
        Some(_) | None => CapacityChange::Set(capacity::text(size_of(volume))),
    };
    let attributes_class = &volume.spec.volume_attributes_class_name;
    let from_pending = entering && claim.status.phase != "Lost";
    let class_changes = from_pending && claim.status.current_volume_attributes_class_name != *attributes_class;
    Some(Change::ClaimStatus {
        phase: "Bound",
        access_modes: Some(volume.spec.access_modes.clone()),
        capacity,
        attributes_class: class_changes.then(|| attributes_class.clone()),
    })
}

/// The write that sets a claim to a phase without a volume, if anything changes.
pub(crate) fn unbound_status(claim: &PersistentVolumeClaim, phase: &'static str) -> Option<Effect> {
    let status = &claim.status;
    let clean = status.phase == phase
        && status.access_modes.is_empty()
        && status.capacity.is_empty()
        && status.current_volume_attributes_class_name.is_none();
    let had_class = status.current_volume_attributes_class_name.is_some();
    (!clean).then(|| {
        let change = Change::ClaimStatus {
            phase,
            access_modes: None,
            capacity: CapacityChange::Clear,
            attributes_class: had_class.then_some(None),
        };
        claims::write(claim, &change)
    })
}
