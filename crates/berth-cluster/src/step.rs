//! The result of a step of a workload controller or a node agent.

use super::field;
use berth_core::effect::{Delete, Effect, Event, EventType, Guard, Merge, ObjectKey, Patch, Target, When};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The result of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// What to do, in order.
    pub effects: Vec<Effect>,
    /// When to run the step again even if nothing changes. `None`: only after a change.
    pub wake: Option<Timestamp>,
}

impl Step {
    /// Requests another run at a time, or earlier if already requested.
    pub fn wake_at(&mut self, time: Timestamp) {
        self.wake = Some(self.wake.map_or(time, |earlier| earlier.min(time)));
    }

    /// Adds the result of another step.
    pub fn append(&mut self, other: Self) {
        self.effects.extend(other.effects);
        if let Some(time) = other.wake {
            self.wake_at(time);
        }
    }

    /// The step of this key as a list of effects; the last one requests the next run.
    #[must_use]
    pub fn into_effects(self, key: &ObjectKey) -> Vec<Effect> {
        let mut effects = self.effects;
        effects.extend(self.wake.map(|at| Effect::LookAgain {
            key: key.clone(),
            when: When::At(at),
        }));
        effects
    }

    /// Creates an object. It has `apiVersion`, `kind` and a name.
    pub(crate) fn create(&mut self, object: Value) {
        self.effects.push(Effect::Create(Box::new(object)));
    }

    /// Deletes an object with its own grace period.
    pub(crate) fn delete(&mut self, object: &Value) {
        self.effects.push(delete(object));
    }

    /// Removes an object at once.
    pub(crate) fn remove(&mut self, object: &Value) {
        self.effects.push(remove(object));
    }

    /// Changes an object, as [`patch`].
    pub(crate) fn patch(&mut self, object: &Value, name: &'static str, body: Value) {
        self.effects.push(patch(object, name, body));
    }

    /// Adds an event of type Normal.
    pub(crate) fn normal(&mut self, source: &'static str, object: &Value, reason: &'static str, message: String) {
        self.event(source, object, EventType::Normal, reason, message);
    }

    /// Adds an event of type Warning.
    pub(crate) fn warning(&mut self, source: &'static str, object: &Value, reason: &'static str, message: String) {
        self.event(source, object, EventType::Warning, reason, message);
    }

    fn event(
        &mut self,
        source: &'static str,
        object: &Value,
        event_type: EventType,
        reason: &'static str,
        message: String,
    ) {
        self.effects.push(Effect::Event(Event {
            about: Target::of_value(object),
            event_type,
            reason,
            message,
            source: source.into(),
        }));
    }
}

/// Deletes an object with its own grace period.
#[must_use]
pub fn delete(object: &Value) -> Effect {
    Effect::Delete(Delete {
        target: Target::of_value(object),
        guard: Guard::Uid,
        grace_seconds: None,
    })
}

/// Removes an object at once: what a node agent does when the containers of a pod have stopped.
#[must_use]
pub fn remove(object: &Value) -> Effect {
    Effect::Delete(Delete {
        target: Target::of_value(object),
        guard: Guard::Uid,
        grace_seconds: Some(0),
    })
}

/// Changes an object by a JSON merge patch. It sets only fields of its author, so it applies to any version.
#[must_use]
pub fn patch(object: &Value, name: &'static str, body: Value) -> Effect {
    Effect::Patch(Patch {
        target: Target::of_value(object),
        guard: Guard::Uid,
        subresource: None,
        merge: Merge::Json,
        body,
        name,
    })
}

/// Changes an object in exactly the version that was decided on: for lists that others also write to.
#[must_use]
pub fn patch_as_seen(object: &Value, name: &'static str, body: Value) -> Effect {
    Effect::Patch(Patch {
        target: Target::of_value(object),
        guard: Guard::Version,
        subresource: None,
        merge: Merge::Json,
        body,
        name,
    })
}

/// Sets the status of an object, in exactly the version that was decided on. `None` if it is unchanged.
#[must_use]
pub fn update_status(object: &Value, status: &Value) -> Option<Effect> {
    let body = field::difference(&object["status"], status)?;
    Some(Effect::Patch(Patch {
        target: Target::of_value(object),
        guard: Guard::Version,
        subresource: Some("status"),
        merge: Merge::Json,
        body: json!({ "status": body }),
        name: "update_status",
    }))
}
