//! What a step asks for, as data. Somebody else carries it out.
//!
//! Effects are carried out in order, and the first one that fails ends the list: the next step on the
//! same object finds what is left to do. A [`Change`] is made on the object as it is when it is
//! written, not as it was when it was decided: [`Change::patch`] says what is left of it, and names
//! the version that it holds for.

use crate::request::Backing;
use crate::topology::Requirement;
use berth_core::api::{Kind, ObjectMeta};
use berth_core::names;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Change an object.
    Change(Target, Change),
    /// Create a PersistentVolume. One of that name for the same claim counts as created.
    CreateVolume(Box<Value>),
    /// Delete a PersistentVolume object. One that is gone counts as deleted.
    DeleteVolume(Target),
    /// Delete a volume in the backend.
    DeleteBacking(Backing),
    /// Tell the user.
    Emit(Event),
}

/// The object that an effect is about. A namesake with another uid is another object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Kind.
    pub kind: Kind,
    /// Namespace, empty for objects of the cluster.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
}

impl Target {
    /// The object with this metadata.
    #[must_use]
    pub fn of(kind: Kind, metadata: &ObjectMeta) -> Self {
        Self {
            kind,
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
        }
    }
}

/// What a backend was asked for, kept on the claim while a volume may exist that the cluster does not
/// know. After a crash the very same is asked again, even if the node is gone by then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The selected node.
    pub node: Option<String>,
    /// Where the volume must be reachable.
    pub requirement: Option<Requirement>,
    /// Only the best places were kept: there are more, and as long as the node is there they can be found again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// How many terms are kept. An annotation holds 256 KiB with all others, and a term is some hundred bytes long, so
/// these take a few per cent; a cluster whose nodes are segments of their own has thousands.
const MOST_TERMS: usize = 32;

impl Intent {
    /// The same, small enough to be kept on a claim.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let mut bounded = self.clone();
        if let Some(requirement) = bounded
            .requirement
            .as_mut()
            .filter(|all| all.requisite.len() > MOST_TERMS)
        {
            requirement.preferred.truncate(MOST_TERMS);
            requirement.requisite = requirement.preferred.clone();
            bounded.partial = true;
        }
        bounded
    }
}

/// What changes about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A claim: the backend is about to be asked.
    RecordAttempt(Intent),
    /// A claim: nothing is left in the backend that the cluster does not know.
    ForgetAttempt {
        /// The scheduler is to choose anew, if this is still the node.
        reject_node: Option<String>,
    },
    /// A volume: keep the object until the backend is clean.
    ProtectVolume,
    /// A volume: the backend is clean, or not to be touched.
    ReleaseVolume,
}

impl Change {
    /// The JSON merge patch that makes the change on an object as it is now. `None` if it is made.
    ///
    /// # Errors
    /// If the object cannot be changed so any more: the step must be run again on what is there now.
    pub fn patch(&self, current: &Value) -> Result<Option<Value>, TooLate> {
        let metadata = current.get("metadata").unwrap_or(&Value::Null);
        if self.adds_finalizer().is_some_and(|finalizer| {
            // The server refuses new finalizers on an object that is going.
            let is_deleting = metadata.get("deletionTimestamp").is_some_and(|time| !time.is_null());
            is_deleting && !finalizers(metadata).contains(&finalizer)
        }) {
            return Err(TooLate);
        }
        let annotation = |key: &str| {
            metadata
                .get("annotations")
                .and_then(|annotations| annotations.get(key))
                .and_then(Value::as_str)
        };
        let mut annotations = Map::new();
        let finalizers = match self {
            Self::RecordAttempt(intent) => {
                let text = serde_json::to_string(intent).unwrap_or_default();
                if annotation(names::ATTEMPT) != Some(text.as_str()) {
                    annotations.insert(names::ATTEMPT.to_owned(), Value::String(text));
                }
                with_finalizer(metadata, names::ATTEMPT_FINALIZER)
            }
            Self::ForgetAttempt { reject_node } => {
                if annotation(names::ATTEMPT).is_some() {
                    annotations.insert(names::ATTEMPT.to_owned(), Value::Null);
                }
                for key in [names::SELECTED_NODE, names::SELECTED_NODE_ALPHA] {
                    if reject_node.is_some() && annotation(key) == reject_node.as_deref() {
                        annotations.insert(key.to_owned(), Value::Null);
                    }
                }
                without_finalizer(metadata, names::ATTEMPT_FINALIZER)
            }
            Self::ProtectVolume => with_finalizer(metadata, names::PROVISIONER_FINALIZER),
            Self::ReleaseVolume => without_finalizer(metadata, names::PROVISIONER_FINALIZER),
        };
        let mut patch = Map::new();
        if let Some(finalizers) = finalizers {
            patch.insert("finalizers".to_owned(), json!(finalizers));
        }
        if !annotations.is_empty() {
            patch.insert("annotations".to_owned(), Value::Object(annotations));
        }
        if patch.is_empty() {
            return Ok(None);
        }
        for field in ["uid", "resourceVersion"] {
            if let Some(value) = metadata.get(field) {
                patch.insert(field.to_owned(), value.clone());
            }
        }
        Ok(Some(json!({"metadata": patch})))
    }

    fn adds_finalizer(&self) -> Option<&'static str> {
        match self {
            Self::RecordAttempt(_) => Some(names::ATTEMPT_FINALIZER),
            Self::ProtectVolume => Some(names::PROVISIONER_FINALIZER),
            Self::ForgetAttempt { .. } | Self::ReleaseVolume => None,
        }
    }

    /// Whether an object that is gone is as good as changed.
    #[must_use]
    pub fn is_moot_without_object(&self) -> bool {
        self.adds_finalizer().is_none()
    }

    /// A short name for logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::RecordAttempt(_) => "record_attempt",
            Self::ForgetAttempt { reject_node: None } => "forget_attempt",
            Self::ForgetAttempt { reject_node: Some(_) } => "reject_node",
            Self::ProtectVolume => "protect_volume",
            Self::ReleaseVolume => "release_volume",
        }
    }
}

/// The object is being deleted and can no longer be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object is being deleted")]
pub struct TooLate;

fn finalizers(metadata: &Value) -> Vec<&str> {
    let list = metadata.get("finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn with_finalizer<'a>(metadata: &'a Value, finalizer: &'a str) -> Option<Vec<&'a str>> {
    let mut found = finalizers(metadata);
    if found.contains(&finalizer) {
        return None;
    }
    found.push(finalizer);
    Some(found)
}

fn without_finalizer<'a>(metadata: &'a Value, finalizer: &str) -> Option<Vec<&'a str>> {
    let mut found = finalizers(metadata);
    let before = found.len();
    found.retain(|one| *one != finalizer);
    (found.len() < before).then_some(found)
}

/// Something that the user should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is about.
    pub about: Target,
    /// `Normal` or `Warning`.
    pub event_type: EventType,
    /// A word for machines.
    pub reason: Reason,
    /// A sentence for people.
    pub message: String,
}

/// How an event is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// As it should be.
    Normal,
    /// Somebody may have to do something.
    Warning,
}

impl EventType {
    /// As Kubernetes spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Why an event was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The backend is asked for a volume.
    Provisioning,
    /// There is a volume.
    ProvisioningSucceeded,
    /// There is none.
    ProvisioningFailed,
    /// The backend did not delete a volume.
    VolumeFailedDelete,
}

impl Reason {
    /// Every reason.
    pub const ALL: &[Self] = &[
        Self::Provisioning,
        Self::ProvisioningSucceeded,
        Self::ProvisioningFailed,
        Self::VolumeFailedDelete,
    ];

    /// As Kubernetes spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Provisioning => "Provisioning",
            Self::ProvisioningSucceeded => "ProvisioningSucceeded",
            Self::ProvisioningFailed => "ProvisioningFailed",
            Self::VolumeFailedDelete => "VolumeFailedDelete",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_made_on_what_is_there() {
        let claim = json!({"metadata": {"uid": "u", "resourceVersion": "7",
            "finalizers": ["kubernetes.io/pvc-protection"],
            "annotations": {"volume.kubernetes.io/selected-node": "n1"}}});
        let intent = Intent {
            node: Some("n1".into()),
            requirement: None,
            partial: false,
        };
        let recorded = Change::RecordAttempt(intent).patch(&claim).unwrap().unwrap();
        assert_eq!(
            recorded,
            json!({"metadata": {"uid": "u", "resourceVersion": "7",
                "finalizers": ["kubernetes.io/pvc-protection", "provisioner.berth.dev/attempt"],
                "annotations": {"provisioner.berth.dev/attempt": "{\"node\":\"n1\",\"requirement\":null}"}}})
        );
        let forget = |node: &str| Change::ForgetAttempt {
            reject_node: Some(node.into()),
        };
        assert_eq!(
            forget("n1").patch(&claim).unwrap().unwrap(),
            json!({"metadata": {"uid": "u", "resourceVersion": "7",
                "annotations": {"volume.kubernetes.io/selected-node": null}}})
        );
        // The scheduler has chosen another node meanwhile: its choice stays.
        assert_eq!(forget("n2").patch(&claim), Ok(None));
    }

    #[test]
    fn a_going_object_gets_no_finalizer() {
        let volume = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(Change::ProtectVolume.patch(&volume), Err(TooLate));
        assert_eq!(Change::ReleaseVolume.patch(&volume), Ok(None));
    }
}
