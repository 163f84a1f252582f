//! Claims and volumes that are held for a pod: bound together, or given back together.
//!
//! ```text
//!   held ──the pod says: committed, or has a node──▶ bound as any other
//!     └────the pod says: aborted, has run to its end, is being deleted, or is gone──▶ volumes are free again, no node is selected
//! ```
//!
//! A volume that was made for an attempt which was given back is left to its provisioner, which deletes it.

use crate::bind::{phase, unbound_status};
use crate::change::Change;
use crate::claim::{key, write};
use crate::provision::provision;
use crate::settings::Settings;
use crate::state::State;
use crate::volume;
use berth_core::api::{Kind, ObjectReference, PersistentVolume, PersistentVolumeClaim};
use berth_core::effect::{Effect, Fact, ObjectKey, Target};
use berth_core::hold::{Hold, Verdict, VolumeHold};
use berth_core::names;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;

/// Whether a volume was made for an attempt that its claim knows nothing of any more.
pub(crate) fn is_orphan(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let made = VolumeHold::of(volume).filter(|held| *held.hold.claim_uid == *claim.metadata.uid);
    made.is_some_and(|made| made.is_orphan(Hold::of_claim(claim).as_ref()))
}

/// What is to be done about something that is held.
enum Fate {
    /// All volumes of the pod are there.
    Bind,
    /// Nobody knows yet.
    Wait,
    /// It is given back, if this is so.
    GiveBack(Option<Fact>),
}

/// What to do about an open claim because it is held, or a volume that is reserved for it. Nothing if neither is, or if it is to be bound.
pub(crate) fn settle_hold(claim: &PersistentVolumeClaim, state: &State, settings: &Settings) -> Option<Vec<Effect>> {
    let of_claim = Hold::of_claim(claim);
    let name = key(claim);
    let reserved = state.volumes_referring_to(&name).filter_map(|volume| {
        let held = VolumeHold::of(volume).filter(|held| !held.made && *held.hold.claim_uid == *claim.metadata.uid)?;
        Some((volume, held.hold))
    });
    let mut waits = false;
    let mut effects = Vec::new();
    for (volume, hold) in reserved {
        match fate(&hold, claim, state) {
            Fate::Bind => {}
            Fate::Wait => waits = true,
            Fate::GiveBack(fact) => {
                effects.extend(fact.map(Effect::Confirm));
                // The claim may be bound by now, and its watch behind.
                let unchanged = Fact::Unchanged(Target::of(Kind::PersistentVolumeClaim, &claim.metadata));
                effects.push(Effect::Confirm(unchanged));
                effects.extend(give_back(volume));
            }
        }
    }
    match of_claim.as_ref().map(|hold| fate(hold, claim, state)) {
        Some(Fate::GiveBack(fact)) => {
            effects.extend(fact.map(Effect::Confirm));
            effects.push(write(claim, &Change::UnselectNode));
        }
        Some(Fate::Wait) => waits = true,
        Some(Fate::Bind) | None => {}
    }
    if !effects.is_empty() {
        return Some(effects);
    }
    waits.then(|| match claim.selected_node() {
        Some(_) => provision(claim, state, settings),
        None => unbound_status(claim, "Pending").into_iter().collect(),
    })
}

fn fate(hold: &Hold, claim: &PersistentVolumeClaim, state: &State) -> Fate {
    let key = ObjectKey::new(Kind::Pod.name(), &claim.metadata.namespace, &*hold.pod);
    let pod = state.pod(&key).filter(|pod| *pod.metadata.uid == *hold.pod_uid);
    match pod {
        // Its last words may not have been seen, but if other claims of the attempt are bound, it was committed.
        None if state.begun().has(hold) => Fate::Bind,
        None => Fate::GiveBack(Some(Fact::Gone {
            key,
            uid: hold.pod_uid.to_string(),
        })),
        // Whoever put it there did not wait for the volumes.
        Some(pod) if !pod.node_name.is_empty() => Fate::Bind,
        Some(pod) => match pod.verdicts.on(hold.attempt) {
            Verdict::Committed => Fate::Bind,
            // One that is being deleted is not looked at by schedulers any more.
            Verdict::Open if !pod.terminated && !pod.metadata.is_deleting() => Fate::Wait,
            Verdict::Open | Verdict::Aborted => Fate::GiveBack(None),
        },
    }
}

/// Attempts whose volumes have begun to be bound, with the number of those: such an attempt was committed, whether or not its pod is
/// still there to say so.
#[derive(Clone, Debug, Default)]
pub(crate) struct Begun(FxHashMap<(Box<str>, u64), usize>);

impl Begun {
    fn has(&self, hold: &Hold) -> bool {
        self.0.contains_key(&(hold.pod_uid.clone(), hold.attempt))
    }

    pub(crate) fn insert(&mut self, volume: &PersistentVolume) {
        if let Some(attempt) = begun(volume) {
            *self.0.entry(attempt).or_default() += 1;
        }
    }

    pub(crate) fn remove(&mut self, volume: &PersistentVolume) {
        if let Some(attempt) = begun(volume)
            && let Entry::Occupied(mut count) = self.0.entry(attempt)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The attempt that a volume was bound for: its phase says so before its claim does.
fn begun(volume: &PersistentVolume) -> Option<(Box<str>, u64)> {
    let held = VolumeHold::of(volume).filter(|_| volume.status.phase == "Bound")?;
    Some((held.hold.pod_uid, held.hold.attempt))
}

/// Gives a volume back whose claim went while the volume was held for it: it was never bound to that claim, since its phase says so before
/// the claim does, and is as free as before. Only a volume that is said to be available was: of one without a phase, such as one that was
/// restored from a backup with its marks, nobody knows what is on it.
pub(crate) fn give_back_unbound(volume: &PersistentVolume, claim: &ObjectReference) -> Option<Vec<Effect>> {
    VolumeHold::of(volume).filter(|held| !held.made)?;
    if volume.status.phase != "Available" {
        return None;
    }
    let gone = Fact::Gone {
        key: ObjectKey::referred(claim),
        uid: claim.uid.clone(),
    };
    let mut effects = vec![Effect::Confirm(gone)];
    effects.extend(give_back(volume));
    Some(effects)
}

/// Makes a reserved volume free again.
pub(crate) fn give_back(volume: &PersistentVolume) -> Vec<Effect> {
    let by_controller = volume.metadata.annotations.contains_key(names::BOUND_BY_CONTROLLER);
    let release = Change::ReleaseVolume {
        keep_name: !by_controller,
        unhold: true,
    };
    let available = phase(volume, "Available", String::new());
    let changes = std::iter::once(release).chain(available);
    changes.map(|change| volume::write(volume, &change)).collect()
}
