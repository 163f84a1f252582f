//! The volume's half of the state machine.
//!
//! ```text
//!            no claim, or reserved by name        the claim refers to it
//!   new ──▶ Available ◀──────────────────────┬─────────────────────▶ Bound
//!               ▲                            │                         │
//!               │ bound to another volume    │                         │ the claim is gone
//!               └────────────────────────────┴───────────────────── Released ──▶ deleted, or Failed
//! ```

use crate::bind::phase;
use crate::change::{Change, Reason};
use crate::held::give_back_unbound;
use crate::index::modes_differ;
use crate::lower;
use crate::plugin;
use crate::reclaim::reclaim;
use crate::settings::Settings;
use crate::state::State;
use berth_core::api::{Kind, ObjectReference, PersistentVolume, PersistentVolumeClaim};
use berth_core::effect::{Effect, EventType, Fact, ObjectKey, When};
use berth_core::names;

/// How the volume refers to a claim.
#[derive(Clone, Copy, Debug)]
enum Reference<'a> {
    /// Not at all.
    None,
    /// By name: the claim may not exist yet.
    ByName,
    /// Also by UID: exactly one claim.
    ByUid(&'a ObjectReference),
}

/// The state of the claim that the volume refers to.
#[derive(Clone, Copy, Debug)]
enum Referent<'a> {
    /// No claim with this UID exists.
    Gone,
    /// It refers to no volume.
    Open(&'a PersistentVolumeClaim),
    /// It refers to this volume.
    Here,
    /// It refers to another volume.
    Elsewhere,
}

impl<'a> Reference<'a> {
    fn of(volume: &'a PersistentVolume) -> Self {
        match &volume.spec.claim_ref {
            None => Self::None,
            Some(reference) if reference.uid.is_empty() => Self::ByName,
            Some(reference) => Self::ByUid(reference),
        }
    }

    fn referent(self, volume: &PersistentVolume, state: &'a State) -> Referent<'a> {
        let Self::ByUid(reference) = self else {
            return Referent::Gone;
        };
        match state.claim(&ObjectKey::referred(reference)) {
            Some(claim) if claim.metadata.uid == reference.uid => {
                if claim.spec.volume_name.is_empty() {
                    Referent::Open(claim)
                } else if claim.spec.volume_name == volume.metadata.name {
                    Referent::Here
                } else {
                    Referent::Elsewhere
                }
            }
            Some(_) | None => Referent::Gone,
        }
    }
}

/// One step for a volume.
#[must_use]
pub fn sync_volume(volume: &PersistentVolume, state: &State, _settings: &Settings) -> Vec<Effect> {
    if let Some(effects) = anneal(volume) {
        return effects;
    }
    let reference = Reference::of(volume);
    match (reference, reference.referent(volume, state)) {
        // A claim that is not referred to by UID is not checked: the claim's own step takes the volume.
        (
            Reference::None | Reference::ByName,
            Referent::Gone | Referent::Open(_) | Referent::Here | Referent::Elsewhere,
        ) => to_phase(volume, "Available"),
        (Reference::ByUid(reference), Referent::Gone) => {
            give_back_unbound(volume, reference).unwrap_or_else(|| released(volume, Some(reference), state))
        }
        (Reference::ByUid(_), Referent::Open(claim)) if modes_differ(claim, volume) => mode_mismatch(volume, claim),
        // The binding is half done. The claim's step does the other half.
        (Reference::ByUid(_), Referent::Open(claim)) => {
            vec![lower::look_again(crate::claim::key(claim), When::Now)]
        }
        (Reference::ByUid(_), Referent::Here) => to_phase(volume, "Bound"),
        (Reference::ByUid(_), Referent::Elsewhere) => went_elsewhere(volume, state),
    }
}

/// Corrects the marks of migrated plugins before anything else.
fn anneal(volume: &PersistentVolume) -> Option<Vec<Effect>> {
    if let Some(value) = plugin::migration(&volume.metadata.annotations, &[names::PROVISIONED_BY]) {
        let key = names::MIGRATED_TO;
        return Some(vec![write(volume, &Change::Annotate { key, value })]);
    }
    plugin::deletion_finalizers(volume).map(|finalizers| vec![write(volume, &Change::Finalizers(finalizers))])
}

/// The claim is gone: the volume is released, then its policy decides.
fn released(volume: &PersistentVolume, gone: Option<&ObjectReference>, state: &State) -> Vec<Effect> {
    let mut effects = Vec::new();
    if !matches!(volume.status.phase.as_str(), "Released" | "Failed") {
        effects.extend(to_phase(volume, "Released"));
    }
    effects.extend(reclaim(volume, state));
    if let Some(reference) = gone
        && !effects.is_empty()
    {
        // A deleted volume cannot be restored, and the claim watch may lag behind.
        let gone = Fact::Gone {
            key: ObjectKey::referred(reference),
            uid: reference.uid.clone(),
        };
        effects.insert(0, Effect::Confirm(gone));
    }
    effects
}

/// The claim is bound to another volume.
fn went_elsewhere(volume: &PersistentVolume, state: &State) -> Vec<Effect> {
    let provisioned = volume.metadata.annotations.contains_key(names::PROVISIONED_BY);
    let policy = volume.spec.persistent_volume_reclaim_policy.as_deref();
    if provisioned && policy == Some("Delete") {
        // It was provisioned for this claim only, and the claim does not need it.
        return released(volume, None, state);
    }
    let by_controller = volume.metadata.annotations.contains_key(names::BOUND_BY_CONTROLLER);
    let release = Change::ReleaseVolume {
        keep_name: !by_controller,
        unhold: false,
    };
    let mut effects = vec![write(volume, &release)];
    effects.extend(to_phase(volume, "Available"));
    effects
}

fn mode_mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Vec<Effect> {
    let to_volume = format!(
        "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} due to incompatible volumeMode.",
        claim.metadata.name
    );
    let to_claim = format!(
        "Cannot bind PersistentVolume {:?} to requested PersistentVolumeClaim due to incompatible volumeMode.",
        volume.metadata.name
    );
    let about_claim = crate::claim::event(claim, EventType::Warning, Reason::VolumeMismatch, to_claim);
    vec![
        event(volume, EventType::Warning, Reason::VolumeMismatch, to_volume),
        about_claim,
    ]
}

fn to_phase(volume: &PersistentVolume, name: &'static str) -> Vec<Effect> {
    let change = phase(volume, name, String::new());
    change.map(|change| write(volume, &change)).into_iter().collect()
}

/// An event about the volume.
pub(crate) fn event(volume: &PersistentVolume, event_type: EventType, reason: Reason, message: String) -> Effect {
    let kind = Kind::PersistentVolume;
    Effect::Event(lower::event(kind, &volume.metadata, event_type, reason, message))
}

/// A write to the volume.
pub(crate) fn write(volume: &PersistentVolume, change: &Change) -> Effect {
    lower::write(Kind::PersistentVolume, &volume.metadata, change)
}
