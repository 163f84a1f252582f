//! Converts actions of steps to effects.
//!
//! A [`Change`] is guarded by the version that was decided on. The deletion of a volume is guarded by its UID: whatever happened to the
//! object since, its storage is gone.

use crate::change::{Action, Change, Reason};
use crate::settings::Settings;
use berth_core::api::{Kind, ObjectMeta};
use berth_core::effect::{Delete, Effect, Event, EventType, Fact, Guard, Merge, Patch, Target};
use berth_core::names;
use serde_json::{Map, Value, json};

impl Action {
    /// Continues only if an object is still in the state that was decided on.
    pub(crate) fn confirm(kind: Kind, metadata: &ObjectMeta) -> Self {
        Self::Api(Effect::Confirm(Fact::Unchanged(Target::of(kind, metadata))))
    }

    /// Deletes an object in any state.
    pub(crate) fn delete(kind: Kind, metadata: &ObjectMeta) -> Self {
        Self::Api(Effect::Delete(Delete {
            target: Target::of(kind, metadata),
            guard: Guard::Uid,
            grace_seconds: None,
        }))
    }
}

impl Change {
    /// The write for this change on an object in this state. `None` if nothing needs to be written.
    #[must_use]
    pub fn lower(&self, metadata: &ObjectMeta) -> Option<Effect> {
        let mut annotations = Map::new();
        let finalizers = match self {
            Self::RecordAttempt(intent) => {
                let text = serde_json::to_string(intent).unwrap_or_default();
                if metadata.annotation(names::ATTEMPT) != Some(text.as_str()) {
                    annotations.insert(names::ATTEMPT.to_owned(), Value::String(text));
                }
                with_finalizer(metadata, names::ATTEMPT_FINALIZER)
            }
            Self::ForgetAttempt { reject_node } => {
                if metadata.annotation(names::ATTEMPT).is_some() {
                    annotations.insert(names::ATTEMPT.to_owned(), Value::Null);
                }
                for key in [names::SELECTED_NODE, names::SELECTED_NODE_ALPHA] {
                    if reject_node.is_some() && metadata.annotation(key) == reject_node.as_deref() {
                        annotations.insert(key.to_owned(), Value::Null);
                    }
                }
                without_finalizer(metadata, names::ATTEMPT_FINALIZER)
            }
            Self::SelectNode { node } => {
                annotations.insert(names::SELECTED_NODE.to_owned(), json!(node));
                None
            }
            Self::ProtectSource => with_finalizer(metadata, names::CLONE_PROTECTION),
            Self::ReleaseSource => without_finalizer(metadata, names::CLONE_PROTECTION),
            Self::ProtectVolume => with_finalizer(metadata, names::PROVISIONER_FINALIZER),
            Self::ReleaseVolume => without_finalizer(metadata, names::PROVISIONER_FINALIZER),
        };
        let mut changed = Map::new();
        if let Some(finalizers) = finalizers {
            changed.insert("finalizers".to_owned(), json!(finalizers));
        }
        if !annotations.is_empty() {
            changed.insert("annotations".to_owned(), Value::Object(annotations));
        }
        if changed.is_empty() {
            return None;
        }
        Some(Effect::Patch(Patch {
            target: Target::of(self.kind(), metadata),
            guard: Guard::Version,
            subresource: None,
            merge: Merge::Json,
            body: json!({"metadata": changed}),
            name: self.name(),
        }))
    }

    /// The kind of object that changes.
    fn kind(&self) -> Kind {
        match self {
            Self::RecordAttempt(_)
            | Self::ForgetAttempt { .. }
            | Self::SelectNode { .. }
            | Self::ProtectSource
            | Self::ReleaseSource => Kind::PersistentVolumeClaim,
            Self::ProtectVolume | Self::ReleaseVolume => Kind::PersistentVolume,
        }
    }

    /// A short name for logs and metrics.
    fn name(&self) -> &'static str {
        match self {
            Self::RecordAttempt(_) => "record_attempt",
            Self::ForgetAttempt { reject_node: None } => "forget_attempt",
            Self::ForgetAttempt { reject_node: Some(_) } => "reject_node",
            Self::SelectNode { .. } => "select_node",
            Self::ProtectSource => "protect_source",
            Self::ReleaseSource => "release_source",
            Self::ProtectVolume => "protect_volume",
            Self::ReleaseVolume => "release_volume",
        }
    }
}

/// The finalizers of an object with one added; `None` if it already has it.
fn with_finalizer<'a>(metadata: &'a ObjectMeta, finalizer: &'a str) -> Option<Vec<&'a str>> {
    let mut found: Vec<&str> = metadata.finalizers.iter().map(String::as_str).collect();
    if found.contains(&finalizer) {
        return None;
    }
    found.push(finalizer);
    Some(found)
}

/// The finalizers of an object with one removed; `None` if it does not have it.
fn without_finalizer<'a>(metadata: &'a ObjectMeta, finalizer: &str) -> Option<Vec<&'a str>> {
    let found = metadata.finalizers.iter().map(String::as_str);
    let left: Vec<&str> = found.filter(|one| *one != finalizer).collect();
    (left.len() < metadata.finalizers.len()).then_some(left)
}

impl Reason {
    /// The event about an object, in the name of a provisioner.
    pub(crate) fn about(self, kind: Kind, metadata: &ObjectMeta, message: String, settings: &Settings) -> Event {
        Event {
            about: Target::of(kind, metadata),
            event_type: match self {
                Self::Provisioning | Self::ProvisioningSucceeded | Self::VolumeResizeSuccessful => EventType::Normal,
                Self::ProvisionedElsewhere
                | Self::ProvisioningFailed
                | Self::VolumeFailedDelete
                | Self::VolumeResizeFailed => EventType::Warning,
            },
            reason: self.name(),
            message,
            source: settings.provisioner.clone().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Intent;

    fn metadata(fields: Value) -> ObjectMeta {
        serde_json::from_value(fields).unwrap()
    }

    fn patch(change: &Change, metadata: &ObjectMeta) -> Option<Patch> {
        match change.lower(metadata)? {
            Effect::Patch(patch) => Some(patch),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_change_holds_for_the_version_it_was_decided_on() {
        let claim = metadata(
            json!({"name": "data", "namespace": "default", "uid": "u", "resourceVersion": "7",
            "finalizers": ["kubernetes.io/pvc-protection"],
            "annotations": {"volume.kubernetes.io/selected-node": "n1"}}),
        );
        let intent = Intent {
            node: Some("n1".into()),
            ..Intent::default()
        };
        let recorded = patch(&Change::RecordAttempt(intent), &claim).unwrap();
        assert_eq!(recorded.target, Target::of(Kind::PersistentVolumeClaim, &claim));
        assert_eq!((recorded.guard, recorded.name), (Guard::Version, "record_attempt"));
        assert_eq!(
            recorded.body,
            json!({"metadata": {
                "finalizers": ["kubernetes.io/pvc-protection", "provisioner.berth.dev/attempt"],
                "annotations": {"provisioner.berth.dev/attempt": "{\"node\":\"n1\",\"requirement\":null}"}}})
        );
        let forget = |node: &str| Change::ForgetAttempt {
            reject_node: Some(node.into()),
        };
        assert_eq!(
            patch(&forget("n1"), &claim).unwrap().body,
            json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": null}}})
        );
        // The scheduler has meanwhile chosen another node: its choice is kept.
        assert_eq!(patch(&forget("n2"), &claim), None);
    }

    #[test]
    fn what_is_made_is_not_written_again() {
        let volume = metadata(json!({"name": "pv", "finalizers": ["a", names::PROVISIONER_FINALIZER]}));
        assert_eq!(patch(&Change::ProtectVolume, &volume), None);
        let released = patch(&Change::ReleaseVolume, &volume).unwrap();
        assert_eq!(released.body, json!({"metadata": {"finalizers": ["a"]}}));
        assert_eq!(released.target.key.kind, "PersistentVolume");
        let bare = metadata(json!({"name": "pv"}));
        assert_eq!(patch(&Change::ReleaseVolume, &bare), None);
    }
}
