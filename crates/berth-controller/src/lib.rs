//! The volume controller as pure steps: objects in, effects out.
//!
//! A step reads one claim, one volume or one pod and the known state of the rest ([`State`]), and returns the
//! [`Effect`]s to carry out, in order. Each change is a typed [`Change`], which `lower` converts to an effect. The
//! caller carries them out, retries, watches and keeps time: a cluster component, an embedded control plane, or a
//! simulation in virtual time.
//!
//! This crate has no clock, sockets, runtime or global state: the same objects always give the same effects. Every step
//! can be repeated after any of its effects was lost, so if a controller stops after any single write, the next one
//! continues.
//!
//! Map: [`sync_claim`] and [`sync_volume`] are the state machine; [`index`](State) finds the smallest fitting volume;
//! [`zone`] turns zone labels into node affinity; [`ephemeral`] and [`protection`] are the small additional controllers
//! that an embedded cluster needs.

mod bind;
mod capacity;
mod change;
mod claim;
mod clean;
pub mod ephemeral;
mod held;
mod index;
mod lower;
mod placed;
mod plugin;
pub mod protection;
mod provision;
mod reclaim;
mod settings;
mod state;
mod volume;
pub mod zone;

pub use change::{CapacityChange, Change, Reason};
pub use claim::sync_claim;
pub use clean::can_be_given_back;
pub use lower::COMPONENT;
pub use settings::{DriverHint, Protection, Settings, ZoneUpgrade};
pub use state::{PodUse, State};
pub use volume::sync_volume;

use berth_core::api::Kind;
use berth_core::effect::{Effect, ObjectKey};
use jiff::Timestamp;

/// Runs the step for one key: the claim, volume or pod with that name, if it is known.
#[must_use]
pub fn sync(key: &ObjectKey, state: &State, settings: &Settings, now: Timestamp) -> Vec<Effect> {
    match key.known_kind() {
        Some(Kind::PersistentVolumeClaim) => state.claim(key).map_or_else(Vec::new, |claim| {
            let mut effects = protection::protect_claim(claim, state, settings);
            if effects.is_empty() {
                effects = sync_claim(claim, state, settings);
            }
            // A write triggers this step again: what it leaves is what is reported on.
            if !effects.iter().any(|effect| matches!(effect, Effect::Patch(_))) {
                effects.extend(protection::report_use(claim, state, settings, now));
            }
            effects
        }),
        Some(Kind::PersistentVolume) => state.volume(&key.name).map_or_else(Vec::new, |volume| {
            let mut effects = protection::protect_volume(volume, state, settings);
            if effects.is_empty() {
                effects = zone::sync_zone(volume, state.node_keys(), settings);
            }
            // A write triggers this step again; an event alone must not prevent the volume from being synced.
            if !effects.iter().any(|effect| matches!(effect, Effect::Patch(_))) {
                effects.extend(sync_volume(volume, state, settings));
            }
            effects
        }),
        Some(Kind::Pod) => ephemeral::sync_pod(key, state, settings),
        // There are no steps for other kinds.
        _ => Vec::new(),
    }
}
