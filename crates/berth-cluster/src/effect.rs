//! What a step asks for, as plain data.

use super::field;
use jiff::Timestamp;
use serde_json::Value;

/// The answer of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// What to do, in this order. The first effect that fails ends the list: run the step again on what is then
    /// there, and it finds what is left to do.
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
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Create an object. It has `apiVersion`, `kind` and a name.
    Create(Value),
    /// Delete an object of this uid; another one of the same name stays.
    Delete {
        /// The object.
        target: Target,
        /// How long its containers may take to stop; `None` leaves it to the object.
        grace_seconds: Option<i64>,
    },
    /// Replace the whole status, on the very version that the target names.
    UpdateStatus {
        /// The object.
        target: Target,
        /// The new status.
        status: Value,
    },
    /// Change an object by a JSON merge patch. It sets what only the author of the effect sets, so it holds on any
    /// version of the object of this uid.
    Patch {
        /// The object.
        target: Target,
        /// The merge patch.
        patch: Value,
    },
    /// Tell the user.
    Event(Event),
}

impl Effect {
    /// Deletes an object with the grace period that it asks for itself.
    #[must_use]
    pub fn delete(object: &Value) -> Self {
        Self::Delete {
            target: Target::of(object),
            grace_seconds: None,
        }
    }

    /// Removes an object at once: what a node agent does when the containers of a pod have stopped.
    #[must_use]
    pub fn remove(object: &Value) -> Self {
        Self::Delete {
            target: Target::of(object),
            grace_seconds: Some(0),
        }
    }

    /// Changes an object.
    #[must_use]
    pub fn patch(object: &Value, patch: Value) -> Self {
        Self::Patch {
            target: Target::of(object),
            patch,
        }
    }
}

/// The object that an effect is about, in the state that was decided on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// API version, as `apps/v1`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace, empty for objects of the cluster.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
}

impl Target {
    /// The target that is this object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self {
            api_version: field::text(object, "/apiVersion").to_owned(),
            kind: field::kind(object).to_owned(),
            namespace: field::namespace(object).to_owned(),
            name: field::name(object).to_owned(),
            uid: field::uid(object).to_owned(),
            resource_version: field::text(object, "/metadata/resourceVersion").to_owned(),
        }
    }
}

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// Something went as it should.
    Normal,
    /// Something did not.
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

/// Something to tell the user about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The object.
    pub regarding: Target,
    /// Good news or not.
    pub event_type: EventType,
    /// One word for machines.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
    /// The component that says it.
    pub source: &'static str,
}

impl Event {
    /// An effect that tells good news.
    #[must_use]
    pub fn normal(source: &'static str, object: &Value, reason: &'static str, message: String) -> Effect {
        Self::about(source, object, EventType::Normal, reason, message)
    }

    /// An effect that tells bad news.
    #[must_use]
    pub fn warning(source: &'static str, object: &Value, reason: &'static str, message: String) -> Effect {
        Self::about(source, object, EventType::Warning, reason, message)
    }

    fn about(
        source: &'static str,
        object: &Value,
        event_type: EventType,
        reason: &'static str,
        message: String,
    ) -> Effect {
        Effect::Event(Self {
            regarding: Target::of(object),
            event_type,
            reason,
            message,
            source,
        })
    }
}
