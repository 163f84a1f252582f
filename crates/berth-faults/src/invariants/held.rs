//! The volumes of a pod are bound together or not at all.

use super::always::Checked;
use crate::world::{Doc, Entry, World};
use berth_cluster::field;
use berth_core::api::Object;
use berth_core::hold::{Hold, Verdict, Verdicts, VolumeHold};
use std::collections::BTreeSet;

/// The volumes, by name, that a claim ever referred to: they may have data.
#[derive(Debug, Default)]
pub(super) struct EverBound(BTreeSet<String>);

impl EverBound {
    pub(super) fn contains(&self, volume: &str) -> bool {
        self.0.contains(volume)
    }

    /// A process changed a claim: it is bound only after its attempt was committed, and released only if it was not.
    pub(super) fn claim_changed(&mut self, entry: &Entry, before: Option<&Doc>, world: &World) -> Checked {
        let claim = &entry.doc;
        let volume = claim.text("/spec/volumeName");
        let is_new = !volume.is_empty() && before.is_none_or(|before| before.text("/spec/volumeName").is_empty());
        self.0.extend((!volume.is_empty()).then(|| volume.to_owned()));
        if is_new {
            let of_volume = world
                .get("PersistentVolume", "", volume)
                .and_then(|volume| held_volume(volume));
            let hold = before.and_then(held_claim).or(of_volume.map(|held| held.hold));
            let verdict = hold.and_then(|hold| Some((verdict(&hold, world)?, hold)));
            return match verdict {
                Some((Verdict::Open | Verdict::Aborted, hold)) => {
                    Err(format!("{} is bound before attempt {hold} was committed", claim.key))
                }
                _ => Ok(()),
            };
        }
        match before.and_then(held_claim) {
            Some(hold) if volume.is_empty() && held_claim(claim).as_ref() != Some(&hold) => {
                given_back(claim, &hold, world)
            }
            _ => Ok(()),
        }
    }
}

/// A process changed a volume: it is released only if its attempt was not committed.
pub(super) fn volume_changed(entry: &Entry, before: Option<&Doc>, world: &World) -> Checked {
    let Some(held) = before.and_then(held_volume) else {
        return Ok(());
    };
    let claims = || world.of_kind("PersistentVolumeClaim");
    let is_open = claims().any(|claim| *claim.uid == *held.hold.claim_uid && claim.text("/spec/volumeName").is_empty());
    if !is_open || held_volume(&entry.doc).is_some_and(|now| now == held) {
        return Ok(());
    }
    given_back(&entry.doc, &held.hold, world)
}

/// Something that is still held when nothing changes any more.
pub(super) fn held_for_ever(world: &World) -> Option<String> {
    let claims = || {
        world
            .of_kind("PersistentVolumeClaim")
            .filter(|claim| claim.text("/spec/volumeName").is_empty())
    };
    if let Some(claim) = claims().find(|claim| held_claim(claim).is_some()) {
        return Some(format!("{} is held forever", claim.key));
    }
    let volume = world.of_kind("PersistentVolume").find(|volume| {
        let held = held_volume(volume);
        held.is_some_and(|held| claims().any(|claim| *claim.uid == *held.hold.claim_uid))
    })?;
    Some(format!("{} is held forever", volume.key))
}

fn given_back(doc: &Doc, hold: &Hold, world: &World) -> Checked {
    match verdict(hold, world) {
        Some(Verdict::Committed) => Err(format!("{} is given back though attempt {hold} was committed", doc.key)),
        _ => Ok(()),
    }
}

/// The verdict on an attempt; `None` if its pod is gone, or was bound to a node.
fn verdict(hold: &Hold, world: &World) -> Option<Verdict> {
    let pod = world.of_kind("Pod").find(|pod| *pod.uid == *hold.pod_uid)?;
    let is_over = !pod.text("/spec/nodeName").is_empty() || field::is_deleting(&pod.value);
    match pod.object()? {
        Object::Pod(pod) if !is_over => Some(Verdicts::of(&pod.metadata).on(hold.attempt)),
        _ => None,
    }
}

fn held_claim(doc: &Doc) -> Option<Hold> {
    match doc.object()? {
        Object::PersistentVolumeClaim(claim) => Hold::of_claim(claim),
        _ => None,
    }
}

fn held_volume(doc: &Doc) -> Option<VolumeHold> {
    match doc.object()? {
        Object::PersistentVolume(volume) => VolumeHold::of(volume),
        _ => None,
    }
}
