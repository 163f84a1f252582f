//! Claims for the generic ephemeral volumes of pods.
//!
//! The claim is created for the pod and owned by it, so that it goes when the pod goes. A claim of
//! that name which is not the pod's is never touched: the pod is told instead.

use crate::effect::{Effect, Event, EventType, Reason, Target};
use crate::key::NamespacedName;
use crate::settings::Settings;
use crate::state::{State, is_owned_by};
use berth_core::api::{Kind, Pod};
use serde_json::{Map, Value, json};

/// The name of the claim for a pod's ephemeral volume.
#[must_use]
pub fn claim_name(pod: &str, volume: &str) -> String {
    format!("{pod}-{volume}")
}

/// The ephemeral volumes of a pod: name in the pod, name of the claim.
pub(crate) fn volumes_of(pod: &Pod) -> impl Iterator<Item = (String, String)> {
    let name = &pod.metadata.name;
    let ephemeral = pod.spec.volumes.iter().filter(|volume| volume.ephemeral.is_some());
    ephemeral.map(|volume| (volume.name.clone(), claim_name(name, &volume.name)))
}

/// The step for a pod.
#[must_use]
pub fn sync_pod(name: &NamespacedName, state: &State, settings: &Settings) -> Vec<Effect> {
    let Some(pod) = state
        .pod(name)
        .filter(|pod| settings.ephemeral_claims && !pod.metadata.is_deleting())
    else {
        return Vec::new();
    };
    let target = Target::of(Kind::Pod, &pod.metadata);
    let mut effects = Vec::new();
    for (volume, claim) in &pod.ephemeral {
        match state.claim(&NamespacedName::new(&name.namespace, claim)) {
            None => effects.push(Effect::CreateClaim {
                pod: target.clone(),
                volume: volume.clone(),
                claim: claim.clone(),
            }),
            // Made before.
            Some(found) if is_owned_by(&found.metadata.owner_references, &pod.metadata.uid) => {}
            Some(_) => {
                let namespace = &name.namespace;
                let message = format!(
                    "ephemeral volume {volume}: PVC {namespace}/{claim} was not created for pod {name} (pod is not owner)"
                );
                effects.push(Effect::Emit(Event {
                    about: target.clone(),
                    event_type: EventType::Warning,
                    reason: Reason::FailedBinding,
                    message,
                }));
            }
        }
    }
    effects
}

/// The claim to create for an ephemeral volume, from the pod as the API server has it.
/// Nothing if the pod has no such volume.
///
/// The template is taken over whole: it can hold fields that decisions do not read.
#[must_use]
pub fn claim_of(pod: &Value, volume: &str) -> Option<Value> {
    let volumes = pod.pointer("/spec/volumes")?.as_array()?;
    let found = volumes.iter().find(|candidate| candidate["name"] == volume)?;
    let template = found.pointer("/ephemeral/volumeClaimTemplate")?;
    let pod_name = pod.pointer("/metadata/name")?.as_str()?;
    let mut metadata = Map::new();
    for key in ["labels", "annotations"] {
        if let Some(taken) = template.pointer("/metadata").and_then(|found| found.get(key)) {
            metadata.insert(key.to_owned(), taken.clone());
        }
    }
    metadata.insert("name".to_owned(), json!(claim_name(pod_name, volume)));
    metadata.insert("namespace".to_owned(), pod.pointer("/metadata/namespace")?.clone());
    metadata.insert(
        "ownerReferences".to_owned(),
        json!([{
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod_name,
            "uid": pod.pointer("/metadata/uid")?,
            "controller": true,
            "blockOwnerDeletion": true,
        }]),
    );
    Some(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": template.get("spec").cloned().unwrap_or_else(|| json!({})),
    }))
}
