//! Claims for the generic ephemeral volumes of pods.
//!
//! The claim is created for the pod and owned by it, so that it is deleted with the pod. A claim with that name that
//! the pod does not own is never touched: an event on the pod reports it instead.

use crate::change::Reason;
use crate::lower;
use crate::settings::Settings;
use crate::state::{PodUse, State, is_owned_by};
use berth_core::api::{Kind, Pod};
use berth_core::effect::{Effect, Event, EventType, ObjectKey, Refusal, Target};
use serde_json::{Map, Value, json};

/// An ephemeral volume of a pod, and the claim that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EphemeralVolume {
    /// Its name in the pod.
    pub name: String,
    /// The name of the claim.
    pub claim: String,
    /// The template of the claim, including fields that decisions do not read.
    pub template: Value,
}

/// The ephemeral volumes of a pod.
pub(crate) fn volumes_of(pod: &Pod) -> Vec<EphemeralVolume> {
    let volumes = pod.spec.volumes.iter().filter_map(|volume| {
        let source = volume.ephemeral.as_ref()?;
        Some(EphemeralVolume {
            name: volume.name.clone(),
            claim: volume.claim_name(&pod.metadata.name)?,
            template: source
                .volume_claim_template
                .as_ref()
                .map_or(Value::Null, |template| template.whole.clone()),
        })
    });
    volumes.collect()
}

/// The step for a pod.
#[must_use]
pub fn sync_pod(name: &ObjectKey, state: &State, settings: &Settings) -> Vec<Effect> {
    let Some(pod) = state
        .pod(name)
        .filter(|pod| settings.ephemeral_claims && !pod.metadata.is_deleting())
    else {
        return Vec::new();
    };
    let mut effects = Vec::new();
    for volume in &pod.ephemeral {
        let claim = ObjectKey::claim(&name.namespace, &volume.claim);
        match state.claim(&claim) {
            None => effects.push(Effect::Create(Box::new(claim_of(pod, volume)))),
            // It was created before.
            Some(found) if is_owned_by(&found.metadata.owner_references, &pod.metadata.uid) => {}
            Some(_) => {
                let problem = format!(
                    "PVC {}/{} was not created for pod {} (pod is not owner)",
                    claim.namespace,
                    claim.name,
                    pod.metadata.full_name()
                );
                effects.push(Effect::Event(failed(pod, volume, &problem)));
            }
        }
    }
    effects
}

/// The event if the claim of an ephemeral volume could not be created. An existing claim is not reported here: the next step checks
/// its owner.
#[must_use]
pub fn create_refused(created: &Value, refusal: &Refusal, state: &State) -> Option<Event> {
    if matches!(refusal, Refusal::AlreadyExists(_)) {
        return None;
    }
    let claim = Target::of_value(created).key;
    let mut pods = state.pods_using(&claim);
    let made_for =
        |pod: &PodUse, volume: &EphemeralVolume| volume.claim == claim.name && claim_of(pod, volume) == *created;
    pods.find_map(|pod| {
        let volume = pod.ephemeral.iter().find(|volume| made_for(pod, volume))?;
        Some(failed(pod, volume, &format!("create PVC {}: {refusal}", claim.name)))
    })
}

fn failed(pod: &PodUse, volume: &EphemeralVolume, problem: &str) -> Event {
    let message = format!("ephemeral volume {}: {problem}", volume.name);
    lower::event(
        Kind::Pod,
        &pod.metadata,
        EventType::Warning,
        Reason::FailedBinding,
        message,
    )
}

/// The claim to create for an ephemeral volume. The whole template is copied: it may contain fields that decisions do
/// not read.
fn claim_of(pod: &PodUse, volume: &EphemeralVolume) -> Value {
    let mut metadata = Map::new();
    for key in ["labels", "annotations"] {
        if let Some(taken) = volume.template.get("metadata").and_then(|found| found.get(key)) {
            metadata.insert(key.to_owned(), taken.clone());
        }
    }
    metadata.insert("name".to_owned(), json!(volume.claim));
    metadata.insert("namespace".to_owned(), json!(pod.metadata.namespace));
    metadata.insert(
        "ownerReferences".to_owned(),
        json!([{
            "apiVersion": "v1",
            "kind": Kind::Pod.name(),
            "name": pod.metadata.name,
            "uid": pod.metadata.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }]),
    );
    json!({
        "apiVersion": "v1",
        "kind": Kind::PersistentVolumeClaim.name(),
        "metadata": metadata,
        "spec": volume.template.get("spec").cloned().unwrap_or_else(|| json!({})),
    })
}
