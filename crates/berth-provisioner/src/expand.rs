//! Expansion of volumes of built-in provisioners. For CSI drivers that is the task of the external-resizer.
//!
//! The API server lets a claim request more only if its class allows expansion. The volume's object grows first, and the
//! claim's status last, so that an expansion that was interrupted goes on.

use crate::answer::{Conclusion, Then};
use crate::builtin::Layout;
use crate::change::{Action, Reason};
use crate::settings::Settings;
use crate::state::State;
use crate::step::event;
use berth_core::api::{Kind, PersistentVolume, PersistentVolumeClaim, ResourceList, StorageClass};
use berth_core::effect::{Effect, Guard, Merge, Patch, Target};
use berth_core::quantity::Bytes;
use serde_json::{Value, json};

/// A volume that is smaller than its claim requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Expansion {
    /// The claim.
    pub claim: PersistentVolumeClaim,
    /// The volume.
    pub volume: PersistentVolume,
    /// Its class.
    pub class: StorageClass,
    /// The requested size.
    pub bytes: i64,
}

fn bytes_of(list: &ResourceList) -> i64 {
    list.get("storage").map_or(0, |quantity| quantity.value())
}

/// The expansion that a claim requests, if its volume is one of a built-in provisioner.
pub(crate) fn requested(claim: &PersistentVolumeClaim, state: &State, settings: &Settings) -> Option<Expansion> {
    let bytes = claim.requested_bytes();
    let is_bound = claim.status.phase == "Bound" && !claim.metadata.is_deleting();
    if !is_bound || bytes <= bytes_of(&claim.status.capacity) {
        return None;
    }
    let volume = state.volume(&claim.spec.volume_name)?;
    let reference = volume.spec.claim_ref.as_ref()?;
    let class = state.class(volume.class_name())?;
    let is_ours = settings.owns(volume) && Layout::of(class).is_some() && class.allow_volume_expansion == Some(true);
    let is_possible = is_ours && reference.uid == claim.metadata.uid && !volume.metadata.is_deleting();
    is_possible.then(|| Expansion {
        claim: claim.clone(),
        volume: volume.clone(),
        class: class.clone(),
        bytes,
    })
}

impl Expansion {
    /// What follows from the response of the backend: the volume has this size, or why it has not.
    #[must_use]
    pub(crate) fn conclude(&self, expanded: Result<(), String>, settings: &Settings) -> Conclusion {
        let tell = |reason, message| Action::Api(Effect::Event(event(&self.claim, reason, message, settings)));
        if let Err(problem) = expanded {
            let name = &self.volume.metadata.name;
            let message = format!("resize volume {name:?} failed: {problem}");
            return Conclusion {
                actions: vec![tell(Reason::VolumeResizeFailed, message)],
                then: Then::Retry,
            };
        }
        let size = json!({"capacity": {"storage": Bytes(self.bytes).to_string()}});
        let mut actions = Vec::new();
        if bytes_of(&self.volume.spec.capacity) < self.bytes {
            let target = Target::of(Kind::PersistentVolume, &self.volume.metadata);
            actions.push(patch(target, None, json!({"spec": size}), "expand_volume"));
        }
        let target = Target::of(Kind::PersistentVolumeClaim, &self.claim.metadata);
        actions.push(patch(target, Some("status"), json!({"status": size}), "expand_claim"));
        actions.push(tell(
            Reason::VolumeResizeSuccessful,
            "Resize volume succeeded".to_owned(),
        ));
        Conclusion {
            actions,
            then: Then::Rest,
        }
    }
}

fn patch(target: Target, subresource: Option<&'static str>, body: Value, name: &'static str) -> Action {
    Action::Api(Effect::Patch(Patch {
        target,
        guard: Guard::Version,
        subresource,
        merge: Merge::Json,
        body,
        name,
    }))
}
