//! The claim's half of the state machine.
//!
//! ```text
//!                    no volume fits                volume lost, or another claim's
//!             ┌──────────┐                        ┌─────────────────────────┐
//!             ▼          │      bind              │                         ▼
//!   new ──▶ Pending ─────┴───────────────────▶ Bound ◀──────────────────── Lost
//!                                                     the volume is recreated
//! ```
//!
//! A claim is `Completed` once the annotation is set; from then on it never moves to another volume.

use crate::bind::{bind, is_reserved_for, mismatch, unbound_status};
use crate::change::{Change, Reason};
use crate::clean::settle_clean;
use crate::held::settle_hold;
use crate::lower;
use crate::placed::bind_for_placed_pod;
use crate::plugin;
use crate::provision::provision;
use crate::settings::Settings;
use crate::state::State;
use berth_core::api::{Kind, PersistentVolume, PersistentVolumeClaim};
use berth_core::effect::{Effect, EventType, Fact, ObjectKey, Target, When};
use berth_core::names;

/// Whether the claim's binding is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binding {
    /// Not complete.
    Open,
    /// Complete: the annotation is set.
    Completed,
}

/// The state of the volume that the claim refers to.
#[derive(Clone, Copy, Debug)]
enum NamedVolume<'a> {
    /// The claim refers to no volume.
    None,
    /// No volume with this name exists.
    Missing(&'a str),
    /// It refers to no claim.
    Free(&'a PersistentVolume),
    /// It refers to this claim by name only.
    ReservedByName(&'a PersistentVolume),
    /// It refers to exactly this claim.
    ReservedByUid(&'a PersistentVolume),
    /// It refers to another claim, or to an earlier one with this name.
    Taken(&'a PersistentVolume),
}

impl<'a> NamedVolume<'a> {
    fn of(claim: &'a PersistentVolumeClaim, state: &'a State) -> Self {
        let name = claim.spec.volume_name.as_str();
        if name.is_empty() {
            return Self::None;
        }
        let Some(volume) = state.volume(name) else {
            return Self::Missing(name);
        };
        match &volume.spec.claim_ref {
            None => Self::Free(volume),
            Some(_) if !is_reserved_for(volume, claim) => Self::Taken(volume),
            Some(reference) if reference.uid.is_empty() => Self::ReservedByName(volume),
            Some(_) => Self::ReservedByUid(volume),
        }
    }
}

/// One step for a claim.
#[must_use]
pub fn sync_claim(claim: &PersistentVolumeClaim, state: &State, settings: &Settings) -> Vec<Effect> {
    let provisioner_keys = [names::STORAGE_PROVISIONER, names::STORAGE_PROVISIONER_BETA];
    if let Some(value) = plugin::migration(&claim.metadata.annotations, &provisioner_keys) {
        // The write triggers another step, which continues from here.
        let key = names::MIGRATED_TO;
        return vec![write(claim, &Change::Annotate { key, value })];
    }
    if let Some(effects) = settle_clean(claim, state) {
        return effects;
    }
    let binding = if claim.metadata.annotations.contains_key(names::BIND_COMPLETED) {
        Binding::Completed
    } else {
        Binding::Open
    };
    match (binding, NamedVolume::of(claim, state)) {
        (Binding::Open, NamedVolume::None) => {
            settle_hold(claim, state, settings).unwrap_or_else(|| find_volume(claim, state, settings))
        }
        // The volume may still be created. Until then there is nothing to report.
        (Binding::Open, NamedVolume::Missing(_)) => unbound_status(claim, "Pending").into_iter().collect(),
        (Binding::Open, NamedVolume::Free(volume)) => match mismatch(volume, claim) {
            None => bind(volume, claim, state),
            Some(problem) => {
                let message = format!("Cannot bind to requested volume {:?}: {problem}", volume.metadata.name);
                refuse(claim, EventType::Warning, Reason::VolumeMismatch, message)
            }
        },
        // The user paired them on both sides, or a binding stopped halfway: size and class are not checked.
        (Binding::Open, NamedVolume::ReservedByName(volume) | NamedVolume::ReservedByUid(volume)) => {
            bind(volume, claim, state)
        }
        (Binding::Open, NamedVolume::Taken(volume)) => taken(claim, volume),
        (Binding::Completed, NamedVolume::None) => {
            let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
            lose(claim, Reason::ClaimLost, message, None)
        }
        (Binding::Completed, NamedVolume::Missing(name)) => {
            let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
            let gone = Fact::Gone {
                key: ObjectKey::volume(name),
                uid: String::new(),
            };
            lose(claim, Reason::ClaimLost, message, Some(gone))
        }
        // The volume lost its reference, or was recreated: the claim keeps it.
        (Binding::Completed, NamedVolume::Free(volume)) => bind(volume, claim, state),
        // Everything is in order, or the last writes of the binding are missing.
        (Binding::Completed, NamedVolume::ReservedByUid(volume)) => bind(volume, claim, state),
        (Binding::Completed, NamedVolume::ReservedByName(volume) | NamedVolume::Taken(volume)) => {
            let message = "Two claims are bound to the same volume, this one is bound incorrectly";
            // Another controller may have completed the binding, and the volume watch may lag behind.
            let unchanged = Fact::Unchanged(Target::of(Kind::PersistentVolume, &volume.metadata));
            lose(claim, Reason::ClaimMisbound, message, Some(unchanged))
        }
    }
}

/// Finds a volume for an unbound claim that specifies none.
fn find_volume(claim: &PersistentVolumeClaim, state: &State, settings: &Settings) -> Vec<Effect> {
    let mut effects = Vec::new();
    if state.is_undelayed(claim, settings) {
        let message = "no scheduler announces that it can bind delayed claims: this one is bound at once, wherever its \
                       pod may run";
        effects.push(event(
            claim,
            EventType::Warning,
            Reason::DelayedBindingUnavailable,
            message.to_owned(),
        ));
    }
    effects.extend(choose_volume(claim, state, settings));
    effects
}

fn choose_volume(claim: &PersistentVolumeClaim, state: &State, settings: &Settings) -> Vec<Effect> {
    let delayed = state.is_delayed(claim, settings);
    if let Some(volume) = state.best_volume(claim, delayed) {
        return bind(volume, claim, state);
    }
    if claim.class_name().is_none()
        && let Some(class) = state.default_class()
    {
        let class = class.metadata.name.clone();
        return vec![write(claim, &Change::AssignClass { class })];
    }
    if delayed && claim.selected_node().is_none() {
        return bind_for_placed_pod(claim, state, settings).unwrap_or_else(|| wait(claim, state));
    }
    if claim.class_name().is_some_and(|class| !class.is_empty()) {
        return provision(claim, state, settings);
    }
    let message = "no persistent volumes available for this claim and no storage class is set".to_owned();
    refuse(claim, EventType::Normal, Reason::FailedBinding, message)
}

/// A delayed claim waits for a pod, or for its pod to be scheduled.
fn wait(claim: &PersistentVolumeClaim, state: &State) -> Vec<Effect> {
    let name = key(claim);
    let unscheduled: Vec<&str> = state
        .pods_using(&name)
        .filter(|pod| !pod.terminated && pod.node_name.is_empty())
        .map(|pod| pod.metadata.name.as_str())
        .collect();
    let (reason, message) = match unscheduled.as_slice() {
        [] => (
            Reason::WaitForFirstConsumer,
            "waiting for first consumer to be created before binding".to_owned(),
        ),
        [pod] => (
            Reason::WaitForPodScheduled,
            format!("waiting for pod {pod} to be scheduled"),
        ),
        pods => (
            Reason::WaitForPodScheduled,
            format!("waiting for pods {} to be scheduled", pods.join(",")),
        ),
    };
    refuse(claim, EventType::Normal, reason, message)
}

/// The volume that the claim refers to belongs to another claim.
fn taken(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Vec<Effect> {
    let message = format!("volume {:?} already bound to a different claim.", volume.metadata.name);
    if claim.metadata.annotations.contains_key(names::BOUND_BY_CONTROLLER) {
        // The controller never writes such a pair. Its author may still be changing it.
        let emit = event(claim, EventType::Warning, Reason::FailedBinding, message);
        return vec![emit, lower::look_again(key(claim), When::Backoff)];
    }
    refuse(claim, EventType::Warning, Reason::FailedBinding, message)
}

/// Reports why the claim remains pending.
pub(crate) fn refuse(
    claim: &PersistentVolumeClaim,
    event_type: EventType,
    reason: Reason,
    message: String,
) -> Vec<Effect> {
    let mut effects = vec![event(claim, event_type, reason, message)];
    effects.extend(unbound_status(claim, "Pending"));
    effects
}

/// The claim loses its volume. Reported once, when the phase changes.
fn lose(claim: &PersistentVolumeClaim, reason: Reason, message: &str, fact: Option<Fact>) -> Vec<Effect> {
    if claim.status.phase == "Lost" {
        return Vec::new();
    }
    let mut effects: Vec<Effect> = fact.map(Effect::Confirm).into_iter().collect();
    effects.extend(unbound_status(claim, "Lost"));
    effects.push(event(claim, EventType::Warning, reason, message.to_owned()));
    effects
}

/// The name of the claim.
pub(crate) fn key(claim: &PersistentVolumeClaim) -> ObjectKey {
    ObjectKey::of(Kind::PersistentVolumeClaim, &claim.metadata)
}

/// An event about the claim.
pub(crate) fn event(claim: &PersistentVolumeClaim, event_type: EventType, reason: Reason, message: String) -> Effect {
    let kind = Kind::PersistentVolumeClaim;
    Effect::Event(lower::event(kind, &claim.metadata, event_type, reason, message))
}

/// A write to the claim.
pub(crate) fn write(claim: &PersistentVolumeClaim, change: &Change) -> Effect {
    lower::write(Kind::PersistentVolumeClaim, &claim.metadata, change)
}
