//! What a step of a workload controller or a node agent answers with.

use super::field;
use berth_core::effect::{Delete, Effect, Event, EventType, Guard, Merge, ObjectKey, Patch, Target, When};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The answer of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// What to do, in this order.
    pub effects: Vec<Effect>,
    /// When to run the step again even if nothing changes. `None`: only a change can make a difference.
    pub wake: Option<Timestamp>,
}

impl Step {
    /// Asks to be run again at a time, or earlier if that was asked for already.
    pub fn wake_at(&mut self, time: Timestamp) {
        self.wake = Some(self.wake.map_or(time, |earlier| earlier.min(time)));
    }

    /// Adds what another step asks for.
    pub fn append(&mut self, other: Self) {
        self.effects.extend(other.effects);
        if let Some(time) = other.wake {
            self.wake_at(time);
        }
    }

    /// The step of this key as a list of effects, the last of which asks for the next look.
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

    /// Deletes an object with the grace period that it asks for itself.
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

    /// Tells that something went as it should.
    pub(crate) fn normal(&mut self, source: &'static str, object: &Value, reason: &'static str, message: String) {
        self.event(source, object, EventType::Normal, reason, message);
    }

    /// Tells that something did not go as it should.
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

/// Deletes an object with the grace period that it asks for itself.
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

/// Changes an object by a JSON merge patch. It sets what only its author sets, so it holds on any version.
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

/// Changes an object on the very version that was decided on: for lists of which others write parts, too.
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

/// Gives an object another status, on the very version that was decided on. `None` if it has it already.
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
