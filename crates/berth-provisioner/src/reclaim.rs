//! What to do about a volume that this provisioner made: delete it in the backend once it is released.

use crate::effect::{Action, Change, Reason};
use crate::parameters::SecretReference;
use crate::request::{Backing, places_of};
use crate::settings::Settings;
use crate::state::State;
use berth_core::api::{Kind, PersistentVolume, PersistentVolumeClaim, VolumeSource};
use berth_core::effect::Event;
use berth_core::hold::{Hold, VolumeHold};
use berth_core::names;

/// What to do about a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum Reclaim {
    /// Nothing.
    Nothing,
    /// Carry these out, in order. If deleting in the backend fails, say so with [`delete_failed`] and try again later.
    Act(Vec<Action>),
    /// It cannot be deleted yet.
    Wait {
        /// Why, for the user.
        because: String,
    },
}

/// Decides about a volume.
#[must_use]
pub fn reclaim(volume: &PersistentVolume, state: &State, settings: &Settings) -> Reclaim {
    if volume.metadata.annotation(names::PROVISIONED_BY) != Some(settings.provisioner.as_str()) {
        return Reclaim::Nothing;
    }
    if settings.node.as_deref().is_some_and(|node| !is_on(volume, node, state)) {
        return Reclaim::Nothing;
    }
    if let Some(claim) = given_back_by(volume, state) {
        let mut actions = vec![Action::confirm(Kind::PersistentVolumeClaim, &claim.metadata)];
        actions.extend(delete(volume));
        return Reclaim::Act(actions);
    }
    let protected = volume
        .metadata
        .finalizers
        .iter()
        .any(|one| one == names::PROVISIONER_FINALIZER);
    let policy = volume.spec.persistent_volume_reclaim_policy.as_deref();
    if policy != Some("Delete") {
        // The administrator changed the policy: the backend is not to be touched any more.
        return change(volume, &Change::ReleaseVolume);
    }
    match volume.status.phase.as_str() {
        "Released" | "Failed" => {}
        // Deleted by hand before anyone had it: nobody binds a volume that is going, and its claim waits for another one.
        "Available" | "Pending" if volume.metadata.is_deleting() && is_unclaimed(volume, state) => {}
        _ => {
            // An object that is going takes no finalizer any more.
            if volume.metadata.is_deleting() {
                return Reclaim::Nothing;
            }
            return change(volume, &Change::ProtectVolume);
        }
    }
    if volume.metadata.is_deleting() && !protected {
        // The backend is clean; somebody else still holds the object.
        return Reclaim::Nothing;
    }
    if let Some(node) = state.attached_to(&volume.metadata.name) {
        return Reclaim::Wait {
            because: format!(
                "persistentvolume {} is still attached to node {node}",
                volume.metadata.name
            ),
        };
    }
    Reclaim::Act(delete(volume))
}

/// Deletes a volume in the backend, then its object.
fn delete(volume: &PersistentVolume) -> Vec<Action> {
    let mut actions = vec![
        // What is known may be old, and data that are deleted do not come back: the policy may have changed since.
        Action::confirm(Kind::PersistentVolume, &volume.metadata),
        Action::DeleteBacking(backing(volume)),
        Action::delete(Kind::PersistentVolume, &volume.metadata),
    ];
    actions.extend(Change::ReleaseVolume.lower(&volume.metadata).map(Action::Api));
    actions
}

/// The claim that a volume was made for, if the attempt is over: the claim is not bound, and is not held for this attempt any more. So no
/// claim ever had the volume, no data can be on it, and it goes whatever its policy says.
fn given_back_by<'a>(volume: &PersistentVolume, state: &'a State) -> Option<&'a PersistentVolumeClaim> {
    let made = VolumeHold::of(volume)?;
    let reference = volume.spec.claim_ref.as_ref()?;
    let claim = state.claim(&reference.namespace, &reference.name)?;
    let is_open = claim.metadata.uid == reference.uid && claim.spec.volume_name.is_empty();
    (is_open && made.is_orphan(Hold::of_claim(claim).as_ref())).then_some(claim)
}

/// Whether no claim has a volume, as far as its claim is known. One that was not seen may be there all the same.
fn is_unclaimed(volume: &PersistentVolume, state: &State) -> bool {
    volume.spec.claim_ref.as_ref().is_none_or(|reference| {
        let claim = state.claim(&reference.namespace, &reference.name);
        claim.is_some_and(|claim| claim.metadata.uid == reference.uid && claim.spec.volume_name.is_empty())
    })
}

/// Whether the driver of a node holds a volume. One that says of no volume where it is, holds none for certain.
fn is_on(volume: &PersistentVolume, node: &str, state: &State) -> bool {
    let Some(node) = state.nodes().get(node) else {
        return false;
    };
    let is_here = |(key, values): (&String, &Vec<String>)| {
        let label = node.metadata.labels.get(key);
        label.is_some_and(|label| values.contains(label))
    };
    places_of(volume).iter().any(|place| place.iter().all(is_here))
}

fn change(volume: &PersistentVolume, change: &Change) -> Reclaim {
    match change.lower(&volume.metadata) {
        Some(effect) => Reclaim::Act(vec![Action::Api(effect)]),
        None => Reclaim::Nothing,
    }
}

/// The volume in the backend.
#[must_use]
pub fn backing(volume: &PersistentVolume) -> Backing {
    let handle = match volume.spec.source() {
        VolumeSource::Csi(csi) => csi.volume_handle.clone(),
        VolumeSource::GcePersistentDisk(disk) => disk.pd_name.clone(),
        VolumeSource::Local(_)
        | VolumeSource::AwsElasticBlockStore(_)
        | VolumeSource::AzureDisk(_)
        | VolumeSource::Cinder(_)
        | VolumeSource::Iscsi(_)
        | VolumeSource::Rbd(_)
        | VolumeSource::Other => volume.metadata.name.clone(),
    };
    let annotation = |key| volume.metadata.annotation(key).filter(|text| !text.is_empty());
    let secret = annotation(names::DELETION_SECRET_NAME)
        .zip(annotation(names::DELETION_SECRET_NAMESPACE))
        .map(|(name, namespace)| SecretReference {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        });
    Backing { handle, secret }
}

/// The event that a volume could not be deleted.
#[must_use]
pub fn delete_failed(volume: &PersistentVolume, message: &str, settings: &Settings) -> Event {
    let message = message.to_owned();
    Reason::VolumeFailedDelete.about(Kind::PersistentVolume, &volume.metadata, message, settings)
}
