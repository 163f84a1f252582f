//! Converts changes to effects.
//!
//! Every write of the controller is guarded by the version that was decided on: others write to claims and volumes too.

use crate::change::{Change, Reason};
use berth_core::api::{Kind, ObjectMeta};
use berth_core::effect::{Delete, Effect, Event, EventType, Guard, ObjectKey, Patch, Target, When};
use std::borrow::Cow;

/// The name under which events are reported: the one users know from kube-controller-manager.
pub const COMPONENT: &str = "persistentvolume-controller";

/// A change to an object.
pub(crate) fn write(kind: Kind, metadata: &ObjectMeta, change: &Change) -> Effect {
    Effect::Patch(Patch {
        target: Target::of(kind, metadata),
        guard: Guard::Version,
        subresource: change.subresource(),
        merge: change.merge(),
        body: change.merge_patch(),
        name: change.name(),
    })
}

/// The deletion of an object.
pub(crate) fn delete(kind: Kind, metadata: &ObjectMeta) -> Effect {
    Effect::Delete(Delete {
        target: Target::of(kind, metadata),
        guard: Guard::Version,
        grace_seconds: None,
    })
}

/// An event about an object.
pub(crate) fn event(
    kind: Kind,
    metadata: &ObjectMeta,
    event_type: EventType,
    reason: Reason,
    message: String,
) -> Event {
    Event {
        about: Target::of(kind, metadata),
        event_type,
        reason: reason.as_str(),
        message,
        source: Cow::Borrowed(COMPONENT),
    }
}

/// Another step for an object.
pub(crate) fn look_again(key: ObjectKey, when: When) -> Effect {
    Effect::LookAgain { key, when }
}
