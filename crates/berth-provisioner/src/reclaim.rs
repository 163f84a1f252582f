//! What to do about a volume of this provisioner: delete its storage once it is released.

use crate::change::{Action, Change, Reason};
use crate::parameters::{ParameterError, SecretReference, deletion_secret};
use crate::request::{Backing, places_of};
use crate::settings::Settings;
use crate::state::State;
use berth_core::api::{Kind, ObjectMeta, PersistentVolume, PersistentVolumeClaim, VolumeSource};
use berth_core::effect::Event;
use berth_core::hold::{Hold, VolumeHold};
use berth_core::migration::{TopologyError, TranslationError, csi_class, csi_handle_of};
use berth_core::names;

/// What to do about a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum Reclaim {
    /// Nothing.
    Nothing,
    /// Carry these out in order. If deletion in the backend fails, report it with [`delete_failed`] and retry later.
    Act(Vec<Action>),
    /// It cannot be deleted yet.
    Wait {
        /// The reason, for the user.
        because: String,
    },
}

/// Decides about a volume.
#[must_use]
pub fn reclaim(volume: &PersistentVolume, state: &State, settings: &Settings) -> Reclaim {
    if !settings.owns(volume) {
        return Reclaim::Nothing;
    }
    if settings.node.as_deref().is_some_and(|node| !is_on(volume, node, state)) {
        return Reclaim::Nothing;
    }
    if let Some(claim) = given_back_by(volume, state) {
        let confirm = Action::confirm(Kind::PersistentVolumeClaim, &claim.metadata);
        return delete(volume, state, settings, Some(confirm));
    }
    let protected = volume
        .metadata
        .finalizers
        .iter()
        .any(|one| one == names::PROVISIONER_FINALIZER);
    let policy = volume.spec.persistent_volume_reclaim_policy.as_deref();
    if policy != Some("Delete") {
        // The administrator changed the policy: the storage must be kept.
        return change(volume, &Change::ReleaseVolume);
    }
    match volume.status.phase.as_str() {
        "Released" | "Failed" => {}
        // Deleted by a user before it was bound: a volume that is being deleted is not bound, and its claim waits for
        // another one.
        "Available" | "Pending" if volume.metadata.is_deleting() && is_unclaimed(volume, state) => {}
        _ => {
            // Finalizers cannot be added to an object that is being deleted.
            if volume.metadata.is_deleting() {
                return Reclaim::Nothing;
            }
            return change(volume, &Change::ProtectVolume);
        }
    }
    if volume.metadata.is_deleting() && !protected {
        // The storage is deleted; another finalizer still keeps the object.
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
    delete(volume, state, settings, None)
}

/// Deletes a volume's storage, then its object.
fn delete(volume: &PersistentVolume, state: &State, settings: &Settings, confirm: Option<Action>) -> Reclaim {
    let backing = match backing(volume, state, settings) {
        Ok(backing) => backing,
        Err(error) => {
            let because = error.to_string();
            return Reclaim::Wait { because };
        }
    };
    let mut actions: Vec<Action> = confirm.into_iter().collect();
    actions.extend([
        // The known state may be outdated, and deleted data cannot be recovered: the policy may have changed since.
        Action::confirm(Kind::PersistentVolume, &volume.metadata),
        Action::DeleteBacking(backing),
        Action::delete(Kind::PersistentVolume, &volume.metadata),
    ]);
    actions.extend(Change::ReleaseVolume.lower(&volume.metadata).map(Action::Api));
    Reclaim::Act(actions)
}

/// The claim that a volume was created for, if the attempt is over: the claim is not bound, and is no longer held for this attempt. No
/// claim ever used the volume, so it has no data and is deleted regardless of its policy.
fn given_back_by<'a>(volume: &PersistentVolume, state: &'a State) -> Option<&'a PersistentVolumeClaim> {
    let made = VolumeHold::of(volume)?;
    let reference = volume.spec.claim_ref.as_ref()?;
    let claim = state.claim(&reference.namespace, &reference.name)?;
    let is_open = claim.metadata.uid == reference.uid && claim.spec.volume_name.is_empty();
    (is_open && made.is_orphan(Hold::of_claim(claim).as_ref())).then_some(claim)
}

/// Whether no claim uses a volume, as far as its claim is known. A claim that was not observed may exist.
fn is_unclaimed(volume: &PersistentVolume, state: &State) -> bool {
    volume.spec.claim_ref.as_ref().is_none_or(|reference| {
        let claim = state.claim(&reference.namespace, &reference.name);
        claim.is_some_and(|claim| claim.metadata.uid == reference.uid && claim.spec.volume_name.is_empty())
    })
}

/// Whether the driver of a node holds a volume. For a volume without a location this is never certain.
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

/// Why the backend cannot be asked to delete a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackingError {
    /// An in-tree volume has no CSI form.
    #[error("the volume has no form that CSI driver {driver:?} knows: {problem}")]
    Volume {
        /// The driver.
        driver: String,
        /// What is wrong with the volume.
        problem: TranslationError,
    },
    /// The class is broken.
    #[error("StorageClass {class:?}, which names the secret for the deletion: {problem}")]
    Class {
        /// The class.
        class: String,
        /// What is wrong with it.
        problem: TopologyError,
    },
    /// The class specifies an invalid secret.
    #[error("StorageClass {class:?}, which names the secret for the deletion: {problem}")]
    Secret {
        /// The class.
        class: String,
        /// What is wrong with it.
        problem: ParameterError,
    },
}

/// The volume in the backend.
///
/// # Errors
/// If its name in the backend or the secret for the deletion cannot be found.
pub fn backing(volume: &PersistentVolume, state: &State, settings: &Settings) -> Result<Backing, BackingError> {
    let migrated = csi_handle_of(volume).filter(|(plugin, _)| settings.migrates == Some(*plugin));
    let handle = match (migrated, volume.spec.source()) {
        (Some((_, handle)), _) => String::from(handle.map_err(|problem| BackingError::Volume {
            driver: settings.provisioner.clone(),
            problem,
        })?),
        (None, VolumeSource::Csi(csi)) => csi.volume_handle.clone(),
        (None, VolumeSource::GcePersistentDisk(disk)) => disk.pd_name.clone(),
        (
            None,
            VolumeSource::Local(_)
            | VolumeSource::AwsElasticBlockStore(_)
            | VolumeSource::AzureDisk(_)
            | VolumeSource::Cinder(_)
            | VolumeSource::Iscsi(_)
            | VolumeSource::Rbd(_)
            | VolumeSource::Other,
        ) => volume.metadata.name.clone(),
    };
    let secret = secret_of(volume, state, settings)?;
    Ok(Backing { handle, secret })
}

/// The secret for deleting a volume. Provisioners write it to the volume; before they did so, they read it from the class.
fn secret_of(
    volume: &PersistentVolume,
    state: &State,
    settings: &Settings,
) -> Result<Option<SecretReference>, BackingError> {
    let annotation = |key| volume.metadata.annotation(key);
    let written = annotation(names::DELETION_SECRET_NAME).zip(annotation(names::DELETION_SECRET_NAMESPACE));
    if let Some((name, namespace)) = written {
        let is_known = !name.is_empty() && !namespace.is_empty();
        return Ok(is_known.then(|| SecretReference {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        }));
    }
    let class = state
        .class(volume.class_name())
        .filter(|class| settings.serves_class(class));
    let (Some(class), Some(reference)) = (class, &volume.spec.claim_ref) else {
        return Ok(None);
    };
    let name = || class.metadata.name.clone();
    let parameters = csi_class(class).map(|class| class.parameters);
    let parameters = parameters.map_err(|problem| BackingError::Class { class: name(), problem })?;
    let claim = ObjectMeta {
        name: reference.name.clone(),
        namespace: reference.namespace.clone(),
        ..ObjectMeta::default()
    };
    let secret = deletion_secret(&parameters, &volume.metadata.name, &claim);
    secret.map_err(|problem| BackingError::Secret { class: name(), problem })
}

/// The event for a volume that could not be deleted.
#[must_use]
pub fn delete_failed(volume: &PersistentVolume, message: &str, settings: &Settings) -> Event {
    let message = message.to_owned();
    Reason::VolumeFailedDelete.about(Kind::PersistentVolume, &volume.metadata, message, settings)
}
